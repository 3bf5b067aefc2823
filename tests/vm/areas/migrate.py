# SPDX-License-Identifier: Apache-2.0
"""A guest moves by QEMU's live migration to the other host's manad and back, while its queue pairs
are in use: its connections go on, there, or where they are when the move fails."""

from __future__ import annotations

import re
import statistics
import time
from typing import Any

from harness import Area, CaseFailed, Context, check, skip
from programs import ping, quick_rdma

from lab.emulator import Move
from lab.errors import LabError

AREA = Area("migrate", layout="move")
# Traffic is under way by then, before a move and behind it.
SETTLE = 1.0
SLOW = 8 << 20  # bytes a second: there is time for something to happen


def patched(context: Context) -> None:
    """QEMU 11.1 as it is has no migration of vfio-user devices."""
    if context.options.qemu != "patched":
        skip("needs --qemu patched")


def other(context: Context) -> int:
    """The host that the moving guest is not on."""
    return 1 - int(context.b.guest.spec.host)


def move(context: Context, *how: Any, **changes: str) -> dict[str, Any]:
    """Moves guest b to the other host."""
    moved: dict[str, Any] = context.lab.move(context.b.index, other(context), *how, **changes)
    return moved


def works(context: Context) -> None:
    """Both kinds of traffic, begun anew."""
    ping(context.b, context.a.ip())
    quick_rdma(context)


def fails(context: Context, words: str, *how: Any, **changes: str) -> None:
    """A move that fails: the guest is where it was, and the other host has no NIC of it."""
    target = context.lab.manads[other(context)]
    nics = len(target.ctl_json("stats")["nics"])
    try:
        move(context, *how, **changes)
    except LabError as error:
        check(re.search(words, str(error)) is not None, f"not '{words}': {error}")
        context.note(str(error).partition("; log")[0])
    else:
        raise CaseFailed("the guest has moved")
    status = context.b.guest.qmp("query-status")["status"]
    check(status == "running", f"the guest does not run any more: {status}")
    left = len(target.ctl_json("stats")["nics"])
    check(left == nics, f"the target has {left} NICs, {nics} before")


def figures(moves: list[dict[str, Any]]) -> str:
    """What QEMU says of moves, in words."""
    down = [one["downtime"] for one in moves]
    state = [one.get("vfio", {}).get("transferred", 0) for one in moves]
    return (f"{len(moves)} moves; downtime: median {statistics.median(down):.0f} ms, max "
            f"{max(down)} ms; state of the NIC: {max(state):,} bytes at most")


@AREA.case("a guest with an idle NIC moves to the other host and back, and works", smoke=True,
           timeout=400.0)
def idle(context: Context) -> None:
    patched(context)
    moves = []
    for _ in range(2):
        moves.append(move(context))
        works(context)
    check(all(one.get("vfio", {}).get("transferred", 0) > 0 for one in moves),
          f"QEMU has moved no state of a device: {moves}")
    context.note(figures(moves))


def verify_pair(options: str, context: Context) -> tuple[Any, Any]:
    """rdma_verify, which compares every byte and completion."""
    port = context.port()
    server, client = ([context.program(peer, "rdma_verify.c"), "--dev", peer.rdma, "--port",
                       str(port), *options.split()] for peer in (context.a, context.b))
    listener = context.a.spawn([*server, "--server"])
    context.a.wait_listening(port, listener)
    return listener, context.b.spawn([*client, "--host", context.a.ip()])


def ended(context: Context, server: Any, client: Any) -> None:
    """Both ends of rdma_verify end well."""
    context.b.finish(client, 300)
    context.a.finish(server, 60)
    check(client.stdout.startswith("verified:"), f"rdma_verify: {client.stdout}")


def fails_in_traffic(context: Context, *how: Any, **changes: str) -> None:
    """The traffic goes on where it is, and the guest can still move."""
    patched(context)
    server, client = verify_pair("--seed 5 --rounds 150 --batch 8 --max 60000 --both", context)
    time.sleep(SETTLE)
    fails(context, "did not move", *how, **changes)
    ended(context, server, client)
    move(context)
    works(context)


@AREA.case("a target with another MAC address refuses the state: traffic goes on", timeout=400.0)
def refused(context: Context) -> None:
    fails_in_traffic(context, mac="02:4d:41:7f:00:00")


@AREA.case("the new QEMU dies in the middle: traffic goes on, the next move works", timeout=400.0)
def target_dies(context: Context) -> None:
    def kill(process: Any) -> None:
        time.sleep(1)
        process.kill()

    fails_in_traffic(context, Move(bandwidth=SLOW, meanwhile=kill))


@AREA.case("moves with open connections: all operations, verified", timeout=900.0)
def in_traffic(context: Context) -> None:
    """Moves as long as the traffic lasts; again until there were enough of them."""
    patched(context)
    moves: list[dict[str, Any]] = []
    while len(moves) < 2 * context.options.rounds:
        server, client = verify_pair(
            "--seed 27 --rounds 400 --batch 8 --max 60000 --both --align 3", context)
        time.sleep(SETTLE)
        while len(moves) < 2 * context.options.rounds and client.status is None:
            moved = move(context)
            time.sleep(SETTLE)
            if client.status is None:  # or it was none in traffic
                moves.append(moved)
        ended(context, server, client)
    context.note(figures(moves))

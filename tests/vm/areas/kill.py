# SPDX-License-Identifier: Apache-2.0
"""What ends in full RDMA traffic: guests, functions, drivers. The peer's retries are used up, the
next client of the NIC is served, and manad keeps nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from areas import errors, lifecycle
from harness import Area, CaseFailed, Context, Peer, check
from programs import configure, quick_rdma

AREA = Area("kill")
ROUNDS = int(os.environ.get("OPENMANA_VM_ROUNDS", "3"))


def no_objects(context: Context, peer: Peer, after: str) -> None:
    """The NIC of a client that is gone, and that none follows yet, has nothing."""
    status = context.lab.manad_of(peer.index).ctl_json("status")
    mine = next(nic for nic in status["nics"] if nic["nic"] == peer.in_manad)
    left = {name: count for name, count in {"qps": mine["qps"], **mine["objects"]}.items()
            if count}
    check(not left, f"after {after} the NIC still has {left}")


def reload_driver(victim: Peer) -> None:
    """Unloads the drivers with the programs still at work, and loads them again."""
    victim.run("pkill -9 -x rdma_errors; pkill -9 -x ib_write_bw; rmmod mana_ib && rmmod mana && "
               "modprobe mana && modprobe mana_ib", timeout=120)


@dataclass(frozen=True)
class Footprint:
    """What a manad has from its host: descriptors, and bytes that it has allocated."""

    descriptors: int
    heap: int

    @staticmethod
    def of(context: Context, peer: Peer) -> Footprint:
        """That of the manad of a peer."""
        manad = context.lab.manad_of(peer.index)
        return Footprint(len(os.listdir(f"/proc/{manad.pid}/fd")),
                         int(manad.ctl_json("status")["heap_bytes"]))


# Bytes that manad may grow in the rounds after the first, and in each of them. The five queue pairs
# of a round would be 20 KiB more in each, one of them 4 KiB.
GROWTH, GROWTH_OF_ROUND = 65536, 2048


def no_growth(context: Context, peer: Peer, first: Footprint, rounds: int) -> None:
    """After rounds that follow the first one a manad has the same descriptors and no more memory
    than chance gives it."""
    end = time.monotonic() + 10
    while (last := Footprint.of(context, peer)).descriptors != first.descriptors:
        check(time.monotonic() < end, f"{peer.name}: manad had {first.descriptors} descriptors "
              f"after the first round, and {last.descriptors} after {rounds} more")
        time.sleep(0.2)
    grown = last.heap - first.heap
    context.note(f"{peer.name}: {last.descriptors} descriptors, {first.heap} bytes {grown:+d}")
    check(grown <= GROWTH + GROWTH_OF_ROUND * rounds,
          f"{peer.name}: manad grew by {grown} bytes in {rounds} rounds, from {first.heap}")


def ended(action: Callable[[Peer], None], context: Context) -> None:
    """Rounds of traffic from b to a, in which something ends a."""
    first = None
    for number in range(ROUNDS):
        try:
            one_round(action, context)
        except CaseFailed as error:
            raise CaseFailed(f"round {number + 1} of {ROUNDS}: {error}") from error
        finally:
            if not context.a.guest.alive:  # the next case needs it
                lifecycle.replace(context, context.a)
                configure(context, context.a)
        if first is None:
            first = Footprint.of(context, context.a)
    context.note(f"{ROUNDS} rounds")
    if first is not None:
        no_growth(context, context.a, first, ROUNDS - 1)


def one_round(action: Callable[[Peer], None], context: Context) -> None:
    """Traffic, its end, and traffic again."""
    victim, survivor = context.a, context.b
    _, client = errors.traffic(context)
    action(victim)
    errors.lost(context, client)
    survivor.until("! pidof ib_write_bw >/dev/null", "ib_write_bw goes on without its peer", 30)
    if not victim.guest.alive:
        no_objects(context, victim, "the kill")
        lifecycle.replace(context, victim)
    victim.until("[ -n \"$(ls -A /sys/class/infiniband)\" ]", "the RDMA device did not come back",
                 20)
    configure(context, victim)
    quick_rdma(context)


def reboot(victim: Peer) -> None:
    """Reboots the guest."""
    victim.guest.reboot()


def kill(victim: Peer) -> None:
    """Kills QEMU as a crash would."""
    victim.guest.kill()


_LIMIT = 60.0 + 40 * ROUNDS
for _title, _action in (("guest killed", kill), ("guest rebooted", reboot),
                        ("function reset by sysfs, driver unbound meanwhile",
                         lifecycle.sysfs_reset),
                        ("driver unbound and bound", lifecycle.rebind),
                        ("drivers unloaded and loaded", reload_driver)):
    AREA.add(f"{_title} in full RDMA traffic: retries used up, the next client is served",
             partial(ended, _action), timeout=_LIMIT, smoke=_action is kill)

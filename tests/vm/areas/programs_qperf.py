# SPDX-License-Identifier: Apache-2.0
"""qperf. With -cm1 it connects by rdma_cm, which knows all tests over RC. Without it qperf has
nothing but LIDs, as on InfiniBand: the kernel refuses such addresses at every RoCE port."""

from __future__ import annotations

import re
from functools import partial

from harness import Area, CaseFailed, Context, Peer, check

from lab import extras

AREA = Area("programs_qperf")
FOLDER = "/root/qperf"
LIMIT = 300.0  # the first case may fetch the package
SECONDS, TRIES = 1, 4
BY_CM = ("rc_lat", "rc_bw", "rc_bi_bw", "rc_rdma_read_lat", "rc_rdma_read_bw", "rc_rdma_write_lat",
         "rc_rdma_write_poll_lat", "rc_rdma_write_bw")
ATOMICS = ("rc_compare_swap_mr", "rc_fetch_add_mr", "ver_rc_compare_swap", "ver_rc_fetch_add")
SIZES = ("1", "4096", "65536", "1M")
BY_LID = ("rc_bw", "uc_bw", "ud_bw")
REFUSED = re.compile(r"failed to (modify QP to RTR|create address handle): Invalid argument")


def qperf(context: Context, *words: str) -> tuple[int, str]:
    """A qperf of the second guest with a server on the first; its status and what it said."""
    server, client = context.a, context.b
    tar = extras.archive("trixie", ("qperf",), ("usr/bin/qperf",))
    for peer in (server, client):
        if peer.run(f"test -x {FOLDER}/qperf", check=False).status != 0:
            extras.unpack(peer.guest, tar, FOLDER)
    port = context.port()

    def command(*more: str) -> str:
        return " ".join([f"LD_LIBRARY_PATH={FOLDER} exec {FOLDER}/qperf --listen_port {port}",
                         *more])

    listener = server.spawn(command())
    server.wait_listening(port, listener)
    context.ran("qperf", extras.version(tar, "qperf"), " ".join(["qperf", server.ip(), *words]))
    done = client.run(command("-t", str(SECONDS), server.ip(), *words), timeout=90, check=False)
    listener.kill()
    return done.status, (done.stdout + done.stderr).strip()


def needs_cm(context: Context) -> None:
    """Skips where there are no connections for it."""
    if not context.has("driver"):
        context.cannot("qperf -cm1", "the stock driver of kernel 6.12 has no QP1, so no connection "
                       "manager" if context.pair == "trixie" else "the stock driver has no "
                       "ibv_query_qp(), which qperf asks of each connection")


def figures(status: int, said: str, tests: int) -> str:
    """`name: figure` of each test; all must have one."""
    found = re.findall(r"^(\w+):\n\s+\w+\s+=\s+(\S.*)$", said, re.M)
    if status != 0 or len(found) != tests:
        raise CaseFailed(f"qperf ended with status {status}, {len(found)} of {tests} tests have "
                         f"figures: {said[-300:]}")
    return ", ".join(f"{name}: {figure}" for name, figure in found)


def by_cm(tests: tuple[str, ...], words: tuple[str, ...], needs: tuple[str, ...], context: Context
          ) -> None:
    """Tests over connections of rdma_cm."""
    needs_cm(context)
    if not all(context.has(side) for side in needs):
        context.cannot(f"qperf -cm1 {' '.join(tests)}", f"needs our {', '.join(needs)}")
    context.note(figures(*qperf(context, "-cm1", *words, *tests), tests=len(tests)))


AREA.add("qperf -cm1: every test over RC but atomics", partial(by_cm, BY_CM, (), ()),
         timeout=LIMIT, smoke=True)
AREA.add("qperf -cm1: atomics, and that their results are right",
         partial(by_cm, ATOMICS, (), ("driver", "provider", "ext")), timeout=LIMIT)
for _size in SIZES:
    AREA.add(f"qperf -cm1 -m {_size}",
             partial(by_cm, ("rc_lat", "rc_bw", "rc_rdma_read_bw", "rc_rdma_write_bw"),
                     ("-m", _size), ()), timeout=LIMIT)


def refusal(context: Context, device: str, test: str) -> str:
    """What qperf without -cm1 says of a device. It forgets the words of its server now and then."""
    said = ""
    for _ in range(TRIES):
        status, said = qperf(context, "-i", device, test)
        check(status != 0, f"qperf -i {device} {test} was not refused: {said[-200:]}")
        found = REFUSED.search(said)
        if found:
            return found[1]
    raise CaseFailed(f"qperf -i {device} {test} does not say why it failed: {said[-200:]}")


@AREA.case("qperf without -cm1 is refused as with Soft-RoCE, since it has no GIDs", timeout=LIMIT)
def by_lid(context: Context) -> None:
    if not all(context.has(side) for side in ("driver", "provider")):
        context.cannot("qperf", "UC and UD queue pairs of programs: needs our driver, provider")
    peers: tuple[Peer, ...] = (context.a, context.b)
    for peer in peers:
        peer.run(f"modprobe rdma_rxe && rdma link add rxe9 type rxe netdev {peer.interface}")
    try:
        for test in BY_LID:
            # Both ends take the device of this name.
            here, soft = (refusal(context, device, test) for device in (context.b.rdma, "rxe9"))
            check(here == soft, f"qperf {test}: {here}; with Soft-RoCE: {soft}")
            context.note(f"{test}: failed to {here}")
    finally:
        for peer in peers:
            peer.run("rdma link delete rxe9")
    context.note("so with Soft-RoCE on the same interfaces")

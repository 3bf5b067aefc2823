# SPDX-License-Identifier: Apache-2.0
"""One context of two processes, by rdma_import.c: an owner, and one that imports what it has."""

from __future__ import annotations

from areas.lifecycle import works
from areas.module import unbind_auxiliary
from harness import Area, Context, check, skip
from programs import configure

READY = "/tmp/two-processes-are-ready"
AREA = Area("importing", needs=("provider",))


@AREA.case("an owner that is killed, and an importer that goes on", smoke=True)
def killed(context: Context) -> None:
    peer = context.a
    ended = peer.run([context.program(peer, "rdma_import.c"), "--dev", peer.rdma], timeout=120,
                     check=False)
    if context.has("driver"):
        check(ended.stdout == "done\n", f"the program said {ended.stdout!r}, {ended.stderr!r}")
    else:
        check("importing the device: Operation not supported" in ended.stderr,
              f"with the stock driver the program said {ended.stdout!r}, {ended.stderr!r}")


@AREA.case("the driver leaves the device of two processes: the event, EIO from then on",
           timeout=150)
def leaving(context: Context) -> None:
    peer = context.a
    if not context.has("driver"):
        skip("the stock driver has no imports")
    started = peer.spawn([context.program(peer, "rdma_import.c"), "--dev", peer.rdma, "--leaving",
                          READY])
    peer.until(f"test -e {READY}", "the two processes are not ready", 60)
    unbind_auxiliary(peer)
    peer.finish(started, 60)
    peer.until("[ -n \"$(ls -A /sys/class/infiniband)\" ]", "the RDMA device did not come back", 30)
    configure(context, peer)
    works(context, peer)

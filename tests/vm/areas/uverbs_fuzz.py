# SPDX-License-Identifier: Apache-2.0
"""What a process may say to our driver by the uverbs interface: anything. It is answered with
errors, by a kernel that reports nothing, loses nothing and goes on (uverbs_fuzz.c)."""

from __future__ import annotations

from areas.lifecycle import works
from areas.module import unbind_auxiliary
from harness import Area, Context, Peer, check
from programs import configure

AREA = Area("uverbs_fuzz", needs=("driver", "ext"))
# What the parent says of a request that the device refuses, and the core of arguments.
REFUSED = (r"mana \S+: (HWC: Failed hw_channel req: 0x\w+|Command 0x\w+ failed with status: 0x\w+)|"
           r"infiniband \S+:  ?_ib_modify_qp \w+ overflow, masking to 24 bits|"
           r"create flow failed, flow \d+: \d+ bytes left from uverb cmd|"
           r"uverbs_write: process \d+ \(uverbs_fuzz\) changed security contexts .*")
LIST = "rdma res show; rdma -dd res show qp; rdma -dd res show cq; rdma -dd res show mr; " \
       "rdma -dd res show srq; rdma -dd res show ctx"


def objects(peer: Peer) -> str:
    """What the kernel counts."""
    return peer.out("rdma res show")


def fuzz(context: Context, peer: Peer, seed: int, seconds: float, *options: str,
         processes: int = 1, device: str | None = None) -> None:
    """The program's time is as long as the others' time-outs are on a slow kernel."""
    seconds *= context.patience
    context.expect_kernel(peer, REFUSED)
    before = objects(peer)
    words = [context.program(peer, "uverbs_fuzz.c"), "--dev", device or peer.rdma, "--seconds",
             f"{seconds:.0f}", "--patience", f"{20 * context.patience:.0f}", *options]
    started = [peer.spawn([*words, "--seed", str(seed + number)]) for number in range(processes)]
    reader = peer.spawn(f"while :; do {LIST}; done >/dev/null")
    for one in started:
        peer.finish(one, seconds / context.patience + 60)
        context.note(one.stdout.strip().splitlines()[-1])
    check(reader.status is None and not reader.stderr,
          f"{peer.name}: rdma, which reads all the time: {reader.stderr[-300:]}")
    reader.kill()
    peer.finish(reader, 20, check=False)
    after = objects(peer)
    check(after == before, f"{peer.name}: objects before: {before}, and after: {after}")


@AREA.case("known cases", smoke=True)
def known(context: Context) -> None:
    fuzz(context, context.b, 1, 0)
    works(context)


@AREA.case("any commands of one process", timeout=120)
def commands(context: Context) -> None:
    fuzz(context, context.b, 1, 15)
    works(context)


@AREA.case("two processes at once", timeout=150)
def processes(context: Context) -> None:
    fuzz(context, context.b, 100, 25, processes=2)
    works(context)


@AREA.case("raw packets", timeout=150)
def raw_packets(context: Context) -> None:
    """The transmit side of a port belongs to its interface while that is up."""
    peer = context.b
    devices = peer.out("ls /sys/class/infiniband").split()
    device = next((name for name in devices if name.startswith("manae")), peer.rdma)
    peer.run(f"ip link set {peer.interface} down")
    try:
        fuzz(context, peer, 200, 20, "--raw", device=device)
    finally:
        peer.run(f"ip link set {peer.interface} up")
    works(context, peer)


@AREA.case("the driver leaves the device meanwhile, and comes again", timeout=180)
def leaving(context: Context) -> None:
    peer = context.b
    context.expect_kernel(peer, REFUSED)
    program = context.program(peer, "uverbs_fuzz.c")
    for number in range(3):
        started = peer.spawn([program, "--dev", peer.rdma, "--seed", str(300 + number), "--seconds",
                              f"{4 * context.patience:.0f}", "--leaving", "--patience",
                              f"{20 * context.patience:.0f}"])
        peer.run(f"sleep {2 * context.patience:.0f}")
        unbind_auxiliary(peer)
        peer.finish(started, 60)
        context.note(started.stdout.strip().splitlines()[-1])
        peer.until("[ -n \"$(ls -A /sys/class/infiniband)\" ]", "the RDMA device did not come back",
                   30)
        configure(context, peer)
    works(context, peer)


@AREA.case("any commands, for long", timeout=900, long=True)
def long_run(context: Context) -> None:
    fuzz(context, context.b, 1000, 300, processes=2)
    works(context)

# SPDX-License-Identifier: Apache-2.0
"""The process of manad that serves is killed in full RDMA traffic, again and again, and its monitor
has another one go on. Guests of 7.2 and later have a working NIC again by themselves
(docs/manad.md, "A crash")."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from areas import upgrade
from harness import Area, CaseFailed, Context, check
from programs import ping, quick_rdma

AREA = Area("crash", layout="monitored")
ROUNDS = int(os.environ.get("OPENMANA_VM_ROUNDS", "3"))
# Of a guest, from the kill on: it waits 10 s itself. If it has given the old NIC an Ethernet frame
# that was not sent, it first waits 120 s for that; most have not.
PATIENCE, PATIENCE_OF_MOST = 180.0, 35.0
BINS = (11, 12, 13, 15, 20, 25, 30, 35, 140)  # s, of the histogram
GROWTH = 4  # descriptors by which chance may differ
# Drivers and ib_core warn, with traces, of objects that a device without memory of them does not
# destroy. What says that the kernel itself went wrong.
MESSAGES = r".*"
CRASHES = "BUG:|Oops|general protection|unable to handle|double fault|Kernel panic|KASAN|list_del"


def works_again(context: Context, begin: float) -> float:
    """Waits until the guests have their RDMA devices again and reach each other; the seconds since.
    Nothing is sent before: the driver waits for frames that it has given to the old device."""
    for peer in context.peers:
        peer.until("[ \"$(cat /tmp/crash-device)\" != "
                   "\"$(stat -c %i /sys/class/infiniband/*)\" ] && "
                   "grep -q ACTIVE /sys/class/infiniband/*/ports/1/state",
                   "the RDMA device did not come back", PATIENCE)
    while True:
        with contextlib.suppress(CaseFailed):
            ping(context.a, context.b.ip(), count=1)
            return time.monotonic() - begin
        took = time.monotonic() - begin
        check(took < PATIENCE, f"no working NIC {took:.0f} s after the kill")
        time.sleep(0.2)


def one_round(context: Context) -> float:
    """Traffic, the kill, and traffic again; how long the guests had no NIC."""
    manad = context.lab.manad_of(context.a.index)
    server, client = upgrade.perftest_pair("ib_write_bw", "-s 65536", context)
    time.sleep(2)
    check(client.status is None, f"no traffic: {client.stdout[-300:]}")
    before = manad.serving_pid
    check(before != manad.pid, "manad has no monitor")
    for peer in context.peers:
        peer.run("stat -c %i /sys/class/infiniband/* >/tmp/crash-device")
    begin = time.monotonic()
    os.kill(before, signal.SIGKILL)
    took = works_again(context, begin)
    check(manad.serving_pid not in (before, manad.pid), "the killed process still serves")
    for program in (client, server):  # what it has is gone, and it may never see that
        program.kill()
    for peer in context.peers:
        peer.until("! pidof ib_write_bw >/dev/null", "ib_write_bw does not end", 30)
        context.forget(peer)
    quick_rdma(context)
    for peer in context.peers:
        said = peer.out(f"dmesg | grep -E '{CRASHES}' | head -3")
        check(not said, f"{peer.name}: the kernel says: {said}")
    return took


def killed(context: Context) -> None:
    """Rounds of it; the process keeps nothing of those before it."""
    manad = context.lab.manad_of(context.a.index)
    for peer in context.peers:
        context.expect_kernel(peer, MESSAGES)
    times: list[float] = []
    files = 0
    for number in range(ROUNDS):
        try:
            times.append(one_round(context))
        except CaseFailed as error:
            raise CaseFailed(f"round {number + 1} of {ROUNDS}: {error}") from error
        if number == 0:
            files = len(os.listdir(f"/proc/{manad.pid}/fd"))
    context.note(f"{ROUNDS} kills; {upgrade.histogram(times, BINS, 's')}")
    late = sum(took > PATIENCE_OF_MOST for took in times)
    check(late <= ROUNDS // 4, f"{late} of {ROUNDS} took longer than {PATIENCE_OF_MOST:.0f} s")
    last = len(os.listdir(f"/proc/{manad.pid}/fd"))
    check(last <= files + GROWTH, f"{files} descriptors after the first round, {last} in the end")


AREA.add("manad killed in ib_write_bw, its monitor has another one go on", killed,
         timeout=120.0 + 90 * ROUNDS, only=("forky", "newest", "trixie-backports"),
         reason="the parent driver of 6.12 ignores reset requests")

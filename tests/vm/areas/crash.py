# SPDX-License-Identifier: Apache-2.0
"""The process of manad that serves is killed in full RDMA and TCP traffic, again and again, and its
monitor has another one go on (docs/manad.md, "A crash"). Guests of 7.2 and later have a working NIC
again by themselves, those of 6.12 by the command that the document gives."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from areas import upgrade
from areas.lifecycle import address
from harness import Area, CaseFailed, Context, check
from programs import configure, ping, quick_rdma

from lab.errors import CommandTimeout

AREA = Area("crash", layout="monitored")
ROUNDS = int(os.environ.get("OPENMANA_VM_ROUNDS", "3"))
PATIENCE = 35.0  # from the kill on: a guest waits 10 s itself
BINS = (5, 8, 11, 12, 13, 15, 20, 25, 30, 35)  # s, of the histogram
PACE = 20.0  # s between two kills: the monitor gives up after five within a minute
GROWTH = 4  # descriptors by which chance may differ
# Drivers and ib_core warn, with traces, of objects that a device without memory of them does not
# destroy. What says that the kernel itself went wrong.
MESSAGES = r".*"
CRASHES = "BUG:|Oops|general protection|unable to handle|double fault|Kernel panic|KASAN|list_del"
DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "manad.md"
# Of the RDMA device, which is another one afterwards.
IDENTITY = "stat -c %i /sys/class/infiniband/*"


def command_for(at: str) -> str:
    """The document's command for a guest whose driver ignores that it is asked for a reset."""
    found = re.search(r"^echo 1 > (/sys/bus/pci/devices/)[0-9a-f:.]+(/remove; echo 1 > .*)$",
                      DOCUMENT.read_text(encoding="utf-8"), re.M)
    check(found, f"{DOCUMENT.name} has no command")
    assert found
    return f"echo 1 > {found[1]}{at}{found[2]}"


def heals_itself(context: Context) -> bool:
    """Whether the parent drivers act on the event that asks for a reset."""
    return all(int(peer.out("uname -r").partition(".")[0]) >= 7 for peer in context.peers)


def works_again(context: Context, begin: float, itself: bool) -> float:
    """Waits until the guests have their RDMA devices again and reach each other; the seconds
    since."""
    if not itself:
        for peer in context.peers:
            peer.run(command_for(address(peer)))
            peer.until("[ -n \"$(ls -A /sys/class/infiniband)\" ]",
                       "the driver has no RDMA device", PATIENCE)
        configure(context, *context.peers)
    for peer in context.peers:
        peer.until(f"[ \"$(cat /tmp/crash-device)\" != \"$({IDENTITY})\" ] && "
                   "grep -q ACTIVE /sys/class/infiniband/*/ports/1/state",
                   "the RDMA device did not come back", PATIENCE)
    while True:
        with contextlib.suppress(CaseFailed):
            ping(context.a, context.b.ip(), count=1)
            return time.monotonic() - begin
        took = time.monotonic() - begin
        check(took < PATIENCE, f"no working NIC {took:.0f} s after the kill")
        time.sleep(0.2)


def endless_tcp(context: Context) -> tuple[Any, Any]:
    """Frames both ways that are under way at any time, whatever happens."""
    port = context.port()
    sink = context.a.spawn(f"exec socat -u TCP4-LISTEN:{port},reuseaddr OPEN:/dev/null")
    context.a.wait_listening(port, sink)
    return sink, context.b.spawn(f"exec socat -u OPEN:/dev/zero TCP4:{context.a.ip()}:{port}")


def wait_told(watchers: Iterable[Any]) -> None:
    """Programs that wait for events have been told that their device is gone."""
    for watcher in watchers:
        try:
            watcher.wait_output("event_type", PATIENCE)
        except CommandTimeout:
            check(False, "no event came to a program that waits for one")
        check(re.search(r"event_type (.*\()?8\b", watcher.stdout),
              f"it has heard of something else: {watcher.stdout[-300:]}")


def one_round(context: Context, itself: bool) -> float:
    """Traffic, the kill, and traffic again; how long the guests had no NIC."""
    manad = context.lab.manad_of(context.a.index)
    tcp = endless_tcp(context)
    server, client = upgrade.perftest_pair("ib_write_bw", "-s 65536", context)
    time.sleep(2)
    check(client.status is None, f"no traffic: {client.stdout[-300:]}")
    before = manad.serving_pid
    check(before != manad.pid, "manad has no monitor")
    watchers = []
    for peer in context.peers:
        peer.run(f"{IDENTITY} >/tmp/crash-device")
        watchers.append(peer.spawn(f"exec stdbuf -oL ibv_asyncwatch -d {peer.rdma}"))
        watchers[-1].wait_output("async event FD", 20)
    begin = time.monotonic()
    os.kill(before, signal.SIGKILL)
    took = works_again(context, begin, itself)
    check(took <= PATIENCE, f"a working NIC only {took:.1f} s after the kill")
    check(manad.serving_pid not in (before, manad.pid), "the killed process still serves")
    wait_told(watchers)
    for program in (client, server, *tcp, *watchers):  # what it has is gone, and it need not end
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
    itself = heals_itself(context)
    times: list[float] = []
    files = 0
    for number in range(ROUNDS):
        end = time.monotonic() + PACE
        try:
            times.append(one_round(context, itself))
        except CaseFailed as error:
            raise CaseFailed(f"round {number + 1} of {ROUNDS}: {error}") from error
        time.sleep(max(0.0, end - time.monotonic()))
        if number == 0:
            files = len(os.listdir(f"/proc/{manad.pid}/fd"))
    context.note(f"{ROUNDS} kills, the driver {'by itself' if itself else 'by command'}; "
                 f"{upgrade.histogram(times, BINS, 's')}")
    last = len(os.listdir(f"/proc/{manad.pid}/fd"))
    check(last <= files + GROWTH, f"{files} descriptors after the first round, {last} in the end")


AREA.add("manad killed in ib_write_bw and TCP, its monitor has another one go on", killed,
         timeout=120.0 + 90 * ROUNDS)

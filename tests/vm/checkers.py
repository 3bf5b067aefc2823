# SPDX-License-Identifier: Apache-2.0
"""What a debug kernel finds: reports of its checkers on the console (of earlier boots too), memory
that nothing points to any more, data races, and checkers that have given up.

Nothing is left out in silence: a report that is not about our code may be known (`KNOWN`), is then
named with its reason, and fails nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness import Peer

SCAN_TIMEOUT = 120.0
LEAKS = "/sys/kernel/debug/kmemleak"
# How many more errors DMA-API tells; one, until somebody writes here.
DMA_ERRORS = "/sys/kernel/debug/dma-api/num_errors"
# The first line of a report.
TITLE = re.compile(
    r"BUG: (?!soft lockup|workqueue lockup)|WARNING: |UBSAN: |ODEBUG: "
    r"|DMA-API: (?!preallocated|debugging|dma_debug_entry pool)|Oops: |kernel BUG at |Kernel panic"
    r"|general protection fault|refcount_t: |list_(?:add|del)\S* corruption"
    r"|kmemleak: .*(?:disabled|Cannot|exceeded)|unregister_netdevice: waiting")
# Its last one: KASAN shows the memory at the end, KCSAN a machine, a warning its own end, lockdep a
# trace.
ENDS = ((re.compile(r"BUG: K[AC]SAN"), re.compile(r"={40,}$")),
        (re.compile(r"WARNING: (?:CPU: \d|(?:\S+ )?at )|UBSAN|ODEBUG|DMA-API|refcount|list_"),
         re.compile(r"---\[ end trace")),
        (re.compile(""), re.compile(r" *</TASK>")))
REPORT_LINES = 200
# What DMA-API says behind the end of a report: where the other mapping was made.
BEHIND = "DMA-API: Mapped at:"
# What KCSAN counts, and a line of a stack that is in the module of RDMA.
COUNTS = "/sys/kernel/debug/kcsan"
DRIVER = re.compile(r"^ *\S+\+0x\w+/0x\w+ \[mana_ib\]", re.M)
# (pattern of a whole report, why it is no failure). docs/testing.md names them.
KNOWN: tuple[tuple[str, str], ...] = (
    (r"DMA-API: (?:mana \S+ cacheline tracking EEXIST, overlapping|exceeded \d+ overlapping) .*"
     r" ib_umem_(?:get|dmabuf_\w+)\+",
     "a program may register a page twice; the core's mappings cannot say so to 6.12's checker"),
    (r"DMA-API: (?:mana \S+ cacheline tracking EEXIST, overlapping|exceeded \d+ overlapping) .*"
     r" nvme_rdma_alloc_qe\+",
     "the NVMe host maps replies of 16 bytes, several in a cache line, one by one"),
    (r"DMA-API: mana \S+ device driver frees DMA memory with different direction .*"
     r" rds_dma_hdrs_free\+",
     "RDS gives its headers back in another direction than it mapped them"),
    (r"DMA-API: mana \S+ device driver tries to sync DMA memory it has not allocated .*"
     r" isert_create_send_desc(\.isra\.\d+)?\+",
     "iSER's target syncs a header before it maps it"),
    (r"possible recursive locking .* rds_ib_laddr_check\+",
     "RDS ends an identifier of the connection manager in the handler of another one; lockdep says"
     " no more until a reboot"),
    (r"possible circular locking .* nvmet_find_get_subsys\+.* nvmet_rdma_disable_port\+",
     "the NVMe target takes its configuration's lock under that of its RDMA port and the other way"
     " round; lockdep says no more until a reboot"),
    (r"possible circular locking .* uverbs_user_mmap_disassociate\+.* rdma_umap_open\+",
     "the core of 6.12 takes the lock of mappings that go and that of a forked process's memory"
     " in both orders; lockdep says no more until a reboot"),
    (r'unreferenced object .*comm "uverbs_fuzz".* copy_process\+',
     "the core keeps the task that asked for a context by ioctl() and did not get it"),
    (r"WARNING: at (?:\w*napi_\w+_locked|netif_set_real_num_[rt]x_queues)\+"
     r".* mana_(?:detach|alloc_queues)\+",
     "the parent of 7.2 makes and ends its queues without the lock of its network interface when"
     " the device comes and goes"),
    (r"unreferenced object .* mana_init_port\+",
     "the parent of 6.12 forgets its receive queues when a silent device cannot take them back"),
)


# In front of a line: when, and on the console of a debug kernel which task or CPU
# (dmesg sets a blank between).
STAMP = re.compile(r"^\[\s*[\d.]+\](?: ?\[\s*([TC]\d+)\])?\s")


def plain(line: str) -> str:
    """A line of the console or of dmesg without its time and its caller."""
    return STAMP.sub("", line.strip("\r\n")).rstrip()


@dataclass(frozen=True)
class Report:
    """A report: its title, its lines, and whether these are all."""

    title: str
    lines: tuple[str, ...]
    whole: bool = True

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(self.lines)

    @property
    def reason(self) -> str:
        """Why it fails nothing, or nothing."""
        return next((why for pattern, why in KNOWN if re.search(pattern, self.text, re.S)), "")


class _Teller:
    """What one task or CPU says: its reports, into a list that all share."""

    def __init__(self, found: list[Report | None]) -> None:
        self._found = found
        self._lines: list[str] = []
        self._place = -1  # of its newest report
        self._before = ""
        self._title = ""
        self._end = re.compile("")

    def hear(self, line: str) -> None:
        """The next line."""
        last = self._found[self._place] if self._place >= 0 else None
        if not self._title and last is not None and (
                line == BEHIND or BEHIND in last.lines and line[:1] == " "):
            self._found[self._place] = replace(last, lines=(*last.lines, line))
            return
        if not self._title:
            if not TITLE.search(line):
                self._before = line
                self._place = -1
                return
            self._title = line
            self._end = next(last for first, last in ENDS if first.search(line))
            self._lines = [self._before] if re.match(r"[-=]{6,}", self._before) else []
            self._place = len(self._found)
            self._found.append(None)
        self._lines.append(line)
        if self._end.match(line) or len(self._lines) == REPORT_LINES:
            self.close(True)

    def close(self, whole: bool) -> None:
        """No line of the report follows."""
        if self._title:
            self._found[self._place] = Report(self._title, tuple(self._lines), whole)
            self._before = self._title = ""


def told(line: str) -> tuple[str, str]:
    """Who says a line, and what."""
    stamp = STAMP.match(line)
    return (stamp[1] or "") if stamp else "", plain(line)


def split_reports(lines: list[str]) -> list[Report]:
    """The reports in the lines of a kernel log, in the order of their first lines. Two CPUs may
    report at once: each caller's lines are put together."""
    found: list[Report | None] = []
    tellers: dict[str, _Teller] = {}
    for line in lines:
        who, words = told(line)
        tellers.setdefault(who, _Teller(found)).hear(words)
    for teller in tellers.values():
        teller.close(False)
    return [report for report in found if report is not None]


def split_leaks(text: str) -> list[Report]:
    """The objects in kmemleak's file."""
    found = []
    for block in re.split(r"^(?=unreferenced object )", text, flags=re.M):
        if not block.startswith("unreferenced object"):
            continue
        frames = re.findall(r"^ +(?:\[<\w+>\] )?([\w.]+)\+0x", block, re.M)
        size = re.search(r"\(size (\d+)\)", block)
        found.append(Report(f"memory leak: {size[1] if size else '?'} bytes of "
                            f"{' < '.join(frames[:8])}", tuple(block.rstrip().splitlines())))
    return found


class Checkers:
    """Follows what the checkers of the guests say."""

    def __init__(self) -> None:
        self._judged: dict[int, int] = {}
        self.lines: set[str] = set()
        self.known: set[str] = set()
        self._lost: list[str] = []
        self._excused: set[int] = set()  # guests whose lockdep gave up for a known reason

    def reports(self, peer: Peer, last: bool = False) -> list[str]:
        """Titles of new reports on a guest's console. One that may go on waits for the next call,
        unless this is the `last`."""
        found = split_reports(peer.guest.console().splitlines())
        fresh = found[self._judged.get(peer.index, 0):]
        if not last:
            fresh = fresh[:next((place for place, report in enumerate(fresh) if not report.whole),
                                len(fresh))]
        self._judged[peer.index] = self._judged.get(peer.index, 0) + len(fresh)
        if any(report.title.startswith("DMA-API") for report in fresh):
            peer.run(f"echo 1 >{DMA_ERRORS}")
        if any(report.reason and "locking" in report.title for report in fresh):
            self._excused.add(peer.index)
        return self._judge(fresh, peer)

    def follow(self, peer: Peer) -> None:
        """What a reboot would end is looked for before it."""
        def look() -> None:
            self.scan([peer])
            self._lost += [f"{peer.name}: kernel: {words}, before a reboot"
                           for words in [*self.reports(peer, last=True), *self.leaks(peer),
                                         *self.given_up(peer)]]
            self._excused.discard(peer.index)

        peer.guest.before_reboot = look

    def before_reboots(self) -> list[str]:
        """What was found before reboots, once."""
        found, self._lost = self._lost, []
        return found

    def excuse(self, report: Report, _peer: Peer) -> str:
        """Why a report of a guest fails nothing, or nothing."""
        return report.reason

    def _judge(self, reports: list[Report], peer: Peer) -> list[str]:
        wrong = []
        for report in reports:
            self.lines.update(line.strip() for line in report.lines)
            if why := self.excuse(report, peer):
                self.known.add(f"{report.title}: {why}")
            else:
                wrong.append(report.title)
        return wrong

    @staticmethod
    def scan(peers: Sequence[Peer]) -> None:
        """Looks for memory that nothing points to, in all guests at once. Two scans: what was on
        its way during the first has arrived at the second, and an object counts from its fifth
        second on."""
        command = f"echo scan >{LEAKS} && sleep 5 && echo scan >{LEAKS}"
        for peer, started in [(peer, peer.spawn(command)) for peer in peers]:
            peer.finish(started, SCAN_TIMEOUT)

    def leaks(self, peer: Peer) -> list[str]:
        """What the scans have found since it was last asked."""
        text = peer.out(f"cat {LEAKS}", timeout=SCAN_TIMEOUT)
        peer.run(f"echo clear >{LEAKS}")
        return self._judge(split_leaks(text), peer)

    def given_up(self, peer: Peer) -> list[str]:
        """Checkers that are not at work any more, unless a known report ended them."""
        on = re.search(r"debug_locks:\s+1$", peer.out("cat /proc/lockdep_stats"), re.M)
        return [] if on or peer.index in self._excused else ["lockdep has given up"]


class Races(Checkers):
    """Follows what KCSAN says. It sees the core, the parent and our driver; a data race is ours if
    either of its two sides is in our driver, or in what that has called. Others are named."""

    def excuse(self, report: Report, peer: Peer) -> str:
        """Why a report of a guest fails nothing, or nothing."""
        if report.reason or "KCSAN" not in report.title:
            return report.reason
        ours = peer.guest.spec.driver == "ours" and DRIVER.search(report.text)
        return "" if ours else "neither side is in our driver"

    @staticmethod
    def scan(peers: Sequence[Peer]) -> None:
        """This kernel does not look for leaks."""

    def leaks(self, peer: Peer) -> list[str]:
        """This kernel does not look for leaks."""
        return []

    def given_up(self, peer: Peer) -> list[str]:
        """KCSAN that watches nothing."""
        counts = dict(re.findall(r"^(\w+): (\d+)$", peer.out(f"cat {COUNTS}"), re.M))
        on = counts.get("enabled") == "1" and int(counts.get("setup_watchpoints", 0))
        return [] if on else ["KCSAN watches nothing"]

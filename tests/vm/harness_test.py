#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the guest tests' harness with a lab that is not there: each way in which a case, a guest
or manad can fail is reported in the right words."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import checkers  # noqa: E402
import harness  # noqa: E402
from harness import (Area, CaseFailed, CaseSkipped, Context, KernelLog, Runner, Tally,  # noqa: E402
                     check, with_headers)

from lab.errors import CommandFailed, CommandTimeout, GuestDied, LabError  # noqa: E402
from lab.guest import GuestSpec, Result  # noqa: E402
from lab.image import cache_lock  # noqa: E402


class FakeCommand:
    """A command that runs until it is ended."""

    def __init__(self, text: str, status: int | None = None) -> None:
        self.text = text
        self.status = status
        self.error: LabError | None = None
        self.stdout = ""
        self.stderr = "it went wrong"
        self.killed = False
        self._ended = threading.Event()

    def wait(self, timeout: float) -> int:
        """Its status, if it has ended."""
        if self.status is None:
            raise CommandTimeout(f"g0: '{self.text}' did not end within {timeout:.0f} s")
        return self.status

    def kill(self, _signum: int = 9) -> None:
        """Ends it."""
        self.killed = True
        self.status = -9


class FakeChannel:
    """Holds the reason of a death."""

    error: LabError | None = None


class FakeGuest:
    """A guest whose commands are answered from a table."""

    def __init__(self, name: str, number: int, suite: str, log_dir: Path) -> None:
        self.name = name
        self.number = number
        self.spec = GuestSpec(suite)
        self.channel = FakeChannel()
        self.alive = True
        self.console_log = log_dir / f"{name}.console"
        self.console_log.write_text("Booting\n")
        self.kernel_messages = ["[    0.1] random: crng init done"]
        self.program_messages: list[str] = []
        self.answers: dict[str, Result] = {}
        self.spawned: list[FakeCommand] = []
        self.commands: list[str] = []
        self.before_reboot: Callable[[], None] = lambda: None
        self.macs = ["02:4d:41:00:00:00"]
        self.port_opens_at = 0  # how often it is looked at before it is open

    def die(self, words: str) -> None:
        """As the lab does when a guest panics."""
        self.alive = False
        self.channel.error = GuestDied(words)

    def run(self, command: str, timeout: float = 60, check: bool = True, **_: Any) -> Result:
        """Answers a command."""
        self.commands.append(command)
        if self.channel.error is not None:
            raise self.channel.error
        if command.startswith("dmesg "):
            said = self.kernel_messages
            if " -f kern " not in command:
                said = said + self.program_messages
            return Result("\n".join(said), "", 0)
        if command.startswith("hang"):
            if timeout > 5:
                raise AssertionError("the harness would wait too long")
            time.sleep(timeout)
            raise CommandTimeout(f"{self.name}: '{command}' did not end within {timeout:.0f} s",
                                 "so far", "")
        if command.startswith("panic"):
            self.die(f"{self.name}: the guest panicked: Kernel panic - not syncing: test")
            raise self.channel.error or AssertionError
        if ":04D2 " in command:
            self.port_opens_at -= 1
            return Result("", "", int(self.port_opens_at > 0))
        if ":04D3 " in command:
            return Result("", "", 1)
        result = self.answers.get(command, Result("", "", 0))
        if check and result.status:
            raise CommandFailed(f"{self.name}: '{command}' ended with status {result.status}: "
                                f"{result.stderr}", result)
        return result

    def spawn(self, command: str, **_: Any) -> FakeCommand:
        """Starts a command that does not end by itself."""
        self.spawned.append(FakeCommand(command, 0 if "kmemleak" in command else None))
        return self.spawned[-1]

    def console(self) -> str:
        """Its console."""
        return self.console_log.read_text()

    def dmesg(self) -> str:
        """Its kernel log."""
        return "\n".join(self.kernel_messages)


class FakeManad:
    """A manad that can die."""

    def __init__(self, log_dir: Path) -> None:
        self.log = log_dir / "manad.log"
        self.log.write_text("ready\n")
        self.dead: LabError | None = None
        self.rights: LabError | None = None
        self.qps = 1
        self.cqs = 4

    def check(self) -> None:
        """Raises when it has died."""
        if self.dead is not None:
            raise self.dead

    def check_rights(self) -> None:
        """Raises when it has too many rights."""
        if self.rights is not None:
            raise self.rights

    def ctl(self, *words: str, check: bool = True) -> str:
        """status and stats."""
        self.check()
        objects = {"cqs": self.cqs, "mrs": 2}
        return json.dumps({"nics": [{"nic": "g0n0", "qps": self.qps, "objects": objects}],
                           "asked": words, "checked": check})

    def ctl_json(self, *words: str) -> Any:
        """The same, parsed."""
        return json.loads(self.ctl(*words))


class FakeLab:
    """Two guests and a manad."""

    def __init__(self, log_dir: Path, suites: tuple[str, str] = ("trixie", "forky")) -> None:
        self.log_dir = log_dir
        self.guests = [FakeGuest(f"g{i}", i, suite, log_dir) for i, suite in enumerate(suites)]
        self.manads = [FakeManad(log_dir)]
        self.relays: list[Any] = []


class HarnessTest(unittest.TestCase):
    """What the runner says."""

    def setUp(self) -> None:
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.folder = Path(temp.name)
        self.lab = FakeLab(self.folder)
        self.context = Context(self.lab, "mixed")
        self.lines: list[str] = []
        self.tally = Tally()
        self.runner = Runner(self.context, self.tally, lambda: self.folder / "kept",
                             out=self.lines.append)
        self.runner.start()
        self.area = Area("demo")

    def run_area(self) -> str:
        """Runs all cases; returns what was printed."""
        self.runner.run_area(self.area, self.area.cases)
        return "\n".join(self.lines)

    def test_a_good_case_is_ok_with_its_time_and_notes(self) -> None:
        self.area.add("it works", lambda context: context.note("12 Gb/s"))
        said = self.run_area()
        self.assertRegex(said, r"(?m)^ok 1 - mixed\.stock\.stock\.demo: it works \(\d+\.\d s\) "
                               r"\[12 Gb/s\]$")
        self.assertRegex(said, r"(?m)^ok 2 - .*demo: no kernel warning, manad alive")
        self.assertEqual((self.tally.passed, self.tally.failed), (2, 0))

    def test_a_failing_command_fails_the_case_and_the_others_go_on(self) -> None:
        self.lab.guests[0].answers["false"] = Result("", "no such thing", 3)
        self.area.add("fails", lambda context: context.a.run("false"))
        self.area.add("follows", lambda context: context.a.run("true"))
        said = self.run_area()
        self.assertRegex(said, r"(?m)^not ok 1 - .*: fails \(.* s\): g0: 'false' ended with status "
                               r"3: no such thing$")
        self.assertRegex(said, r"(?m)^ok 2 - .*: follows")
        self.assertEqual((self.tally.passed, self.tally.failed), (2, 1))

    def test_a_failure_keeps_logs_commands_and_figures(self) -> None:
        self.lab.guests[1].answers["what"] = Result("some output", "some error", 1)
        self.area.add("fails", lambda context: context.b.run("what"))
        self.run_area()
        kept = [line for line in self.lines if "kept:" in line]
        folder = Path(kept[0].split("kept: ")[1])
        self.assertIn("some output", (folder / "commands").read_text())
        self.assertIn("some error", (folder / "failure").read_text())
        self.assertEqual((folder / "g0.console").read_text(), "Booting\n")
        self.assertTrue((folder / "manad.log").exists())
        self.assertTrue((folder / "manadctl-stats-json").exists())

    def test_a_check_that_does_not_hold_is_the_message(self) -> None:
        self.area.add("checks", lambda _: check(False, "7 is not 8"))
        self.assertRegex(self.run_area(), r"(?m)^not ok 1 - .*: 7 is not 8$")

    def test_a_flaw_of_a_case_is_reported_and_ends_nothing(self) -> None:
        self.area.add("flawed", lambda _: {}["key"])
        self.area.add("follows", lambda _: None)
        said = self.run_area()
        self.assertRegex(said, r"(?m)^not ok 1 - .*: KeyError: 'key'$")
        self.assertRegex(said, r"(?m)^ok 2 - ")

    def test_a_dying_guest_fails_this_case_and_the_rest_at_once(self) -> None:
        self.area.add("panics", lambda context: context.b.run("panic"))
        self.area.add("follows", lambda context: context.a.run("true"))
        begin = time.monotonic()
        said = self.run_area()
        self.assertLess(time.monotonic() - begin, 5)
        self.assertRegex(said, r"(?m)^not ok 1 - .*: g1: the guest panicked: Kernel panic")
        self.assertRegex(said, r"(?m)^not ok 2 - .*: not run: g1: the guest panicked: Kernel panic")
        self.assertRegex(said, r"(?m)^not ok 3 - .*nothing left behind .*: not run: g1")
        self.assertEqual((self.tally.passed, self.tally.failed), (0, 3))

    def test_a_guest_that_dies_behind_another_error_is_named_first(self) -> None:
        def dies(context: Context) -> None:
            context.lab.guests[0].die("g0: QEMU ended with signal 11: no message")
            raise CaseFailed("the client got nothing")
        self.area.add("dies", dies)
        self.assertRegex(self.run_area(), r"(?m)^not ok 1 - .*: g0: QEMU ended with signal 11: no "
                                          r"message \(seen as: the client got nothing\)$")

    def test_a_dead_manad_fails_the_rest_at_once(self) -> None:
        def dies(context: Context) -> None:
            context.lab.manads[0].dead = LabError("manad ended with status -6: assertion")
            raise CaseFailed("no answer")
        self.area.add("kills manad", dies)
        self.area.add("follows", lambda context: context.a.run("true"))
        said = self.run_area()
        self.assertRegex(said, r"(?m)^not ok 1 - .*: manad ended with status -6: assertion")
        self.assertRegex(said, r"(?m)^not ok 2 - .*: not run: manad ended with status -6")

    def test_a_case_ends_at_its_deadline_and_says_what_it_waited_for(self) -> None:
        self.area.add("hangs", lambda context: context.a.run("hang", timeout=600), timeout=0.2)
        self.area.add("follows", lambda context: context.a.run("true"))
        begin = time.monotonic()
        said = self.run_area()
        self.assertLess(time.monotonic() - begin, 5)
        self.assertRegex(said, r"(?m)^not ok 1 - .*: the case did not end within 0 s while it "
                               r"waited for 'hang'$")
        self.assertRegex(said, r"(?m)^ok 2 - ")

    def test_what_a_case_fetches_first_has_its_own_time(self) -> None:
        def fetches(context: Context) -> None:
            with cache_lock("outer"), cache_lock("inner"):
                time.sleep(1)
            context.a.run("true")
        self.area.add("fetches", fetches, timeout=0.5)
        with tempfile.TemporaryDirectory() as cache, \
                unittest.mock.patch.dict("os.environ", OPENMANA_CACHE=cache):
            self.assertRegex(self.run_area(), r"(?m)^ok 1 - ")

    def test_a_step_ends_at_its_own_deadline_first(self) -> None:
        self.area.add("hangs", lambda context: context.a.run("hang", timeout=0.1))
        self.assertRegex(self.run_area(), r"(?m)^not ok 1 - .*: g0: 'hang' did not end within 0 s")

    def test_what_a_case_left_running_is_ended(self) -> None:
        def leaves(context: Context) -> None:
            context.a.spawn("server")
            raise CaseFailed("no client")
        self.area.add("leaves", leaves)
        self.run_area()
        self.assertTrue(self.lab.guests[0].spawned[0].killed)

    def test_a_server_that_ends_too_early_is_named_with_its_words(self) -> None:
        def early(context: Context) -> None:
            started = context.a.spawn("server")
            started.status = 1
            context.a.wait_listening(1234, started)
        self.area.add("early", early)
        self.assertRegex(self.run_area(), r"(?m)^not ok 1 - .*: g0: 'server' ended with status 1 "
                                          r"before it listened: it went wrong$")

    def test_a_server_is_given_time_to_listen_and_no_more(self) -> None:
        self.lab.guests[0].port_opens_at = 3  # the third look finds it
        self.area.add("late", lambda context: context.a.wait_listening(
            1234, context.a.spawn("server")))
        self.area.add("never", lambda context: context.a.wait_listening(
            1235, context.a.spawn("server"), timeout=0))
        said = self.run_area()
        self.assertRegex(said, r"(?m)^ok 1 - ")
        self.assertRegex(said, r"(?m)^not ok 2 - .*: g0: 'server' did not listen within 0 s$")

    def test_a_skip_prints_its_reason(self) -> None:
        def skips(_: Context) -> None:
            raise CaseSkipped("there is no moon tonight")
        self.area.add("skips", skips)
        self.area.add("only forky", lambda _: None, only=("forky",), reason="trixie cannot")
        said = self.run_area()
        self.assertRegex(said, r"(?m)^skip 1 - .*: skips: there is no moon tonight$")
        self.assertRegex(said, r"(?m)^skip 2 - .*: only forky: trixie cannot$")
        self.assertEqual((self.tally.skipped, self.tally.failed), (2, 0))

    def test_a_kernel_warning_is_found_and_harmless_ones_are_not(self) -> None:
        def warns(context: Context) -> None:
            context.lab.guests[0].kernel_messages += [
                "[    5.0] tsc: Unable to calibrate against PIT",
                "[    6.1] mana 0000:00:04.0: HWC: Request timed out!"]
        self.area.add("warns", warns)
        said = self.run_area()
        self.assertRegex(said, r"(?m)^ok 1 - ")
        self.assertRegex(said, r"(?m)^not ok 2 - .*: g0: kernel: mana 0000:00:04.0: HWC: Request "
                               r"timed out!$")

    def test_what_programs_write_to_the_kernel_log_is_not_of_the_kernel(self) -> None:
        def tells(context: Context) -> None:
            context.lab.guests[0].program_messages.append("[    7.0] systemd[1]: is old-fashioned")
        self.area.add("tells", tells)
        self.assertRegex(self.run_area(), r"(?m)^ok 2 - ")

    def test_a_kernel_warning_of_a_guest_that_went_afterwards_is_found(self) -> None:
        def goes(context: Context) -> None:
            context.lab.guests[0].kernel_messages.append("[    6.1] mana: it went wrong")
            context.read_kernel_logs()
            context.lab.guests[0].kernel_messages = []
        self.area.add("goes", goes)
        said = self.run_area()
        self.assertRegex(said, r"(?m)^ok 1 - ")
        self.assertRegex(said, r"(?m)^not ok 2 - .*: g0: kernel: mana: it went wrong$")

    def test_a_kernel_message_that_a_case_expects_is_harmless_on_that_guest_alone(self) -> None:
        def warns(context: Context) -> None:
            context.expect_kernel(context.a, r"mana \S+: HWC: Request timed out!")
            for guest in context.lab.guests[:2]:
                guest.kernel_messages.append("[    6.1] mana 0000:00:04.0: HWC: Request timed out!")
        self.area.add("warns", warns)
        said = self.run_area()
        self.assertNotIn("g0: kernel", said)
        self.assertRegex(said, r"(?m)^not ok 2 - .*: g1: kernel: mana 0000:00:04.0: HWC: Request "
                               r"timed out!$")

    def test_harmless_kernel_messages_are_named(self) -> None:
        def warns(context: Context) -> None:
            context.lab.guests[1].kernel_messages.append(
                "[    5.0] tsc: Unable to calibrate against PIT")
        self.area.add("warns", warns)
        self.assertRegex(self.run_area(), r"(?m)^ok 2 - .*left behind \(.*\) \[harmless: tsc: "
                                          r"Unable to calibrate against PIT\]$")

    def test_a_line_that_only_begins_harmlessly_is_a_failure(self) -> None:
        log = KernelLog()
        log.start(self.context.peers)
        self.lab.guests[0].kernel_messages.append("[ 6.1] eth0 speed is unknown, defaulting to 9!")
        self.assertEqual(len(log.new(self.context.a)), 1)

    def test_a_warning_is_reported_once(self) -> None:
        log = KernelLog()
        log.start(self.context.peers)
        self.lab.guests[0].kernel_messages.append("[    6.1] WARNING: CPU: 0 PID: 1 at x.c:1")
        self.assertEqual(log.new(self.context.a), ["WARNING: CPU: 0 PID: 1 at x.c:1"])
        self.assertEqual(log.new(self.context.a), [])

    def test_boot_messages_are_harmless_after_a_reboot_too(self) -> None:
        self.lab.guests[0].kernel_messages = ["[    0.7] random: crng init done"]
        self.area.add("reboots", lambda _: None)
        self.run_area()
        self.assertEqual(self.tally.failed, 0)

    def test_rights_that_manad_should_not_have_fail_the_area(self) -> None:
        self.lab.manads[0].rights = LabError("manad's thread nic-a: Seccomp is 0, not 2")
        self.area.add("writes", lambda _: None)
        self.assertRegex(self.run_area(),
                         r"(?m)^not ok 2 - .*: manad's thread nic-a: Seccomp is 0, not 2$")

    def test_a_program_has_each_of_its_headers_once(self) -> None:
        with tempfile.TemporaryDirectory() as temp:
            folder = Path(temp)
            (folder / "a.h").write_text("int a;\n")
            (folder / "b.h").write_text('#include "a.h"\n#include <stdio.h>\nint b;\n')
            (folder / "c.c").write_text('#include "b.h"\n#include "a.h"\n#include "mana-abi.h"\n')
            text = with_headers(folder / "c.c")
        self.assertEqual(text.count("int a;"), 1)
        self.assertTrue(text.startswith("int a;\n#include <stdio.h>\nint b;\n"))
        self.assertIn("struct mana_uapi_create_cq {", text)

    def test_two_cases_of_one_name_are_refused(self) -> None:
        self.area.add("same", lambda _: None)
        with self.assertRaises(ValueError):
            self.area.add("same", lambda _: None)


LOCKS = """[   12.000001] ======================================================
[   12.000002] WARNING: possible circular locking dependency detected
[   12.000003] 6.12.1-debug #1 Not tainted
[   12.000004] rmmod/1 is trying to acquire lock:
[   12.000005]  <TASK>
[   12.000006]  mana_ib_remove+0x1/0x2 [mana_ib]
[   12.000007]  </TASK>
"""
KASAN = """[   13.000001] ==================================================================
[   13.000002] BUG: KASAN: slab-use-after-free in mana_ib_poll_cq+0x1/0x2 [mana_ib]
[   13.000003] Read of size 8 at addr ffff888100000000 by task kworker/1
[   13.000004]  <TASK>
[   13.000005]  dump_stack_lvl+0x1/0x2
[   13.000006]  </TASK>
[   13.000007] Memory state around the buggy address:
[   13.000008] ==================================================================
[   13.000009] eth0: link up
"""
DMA = """[   14.000000] ------------[ cut here ]------------
[   14.000001] DMA-API: mana 0000:00:08.0: cacheline tracking EEXIST, overlapping mappings are not
[   14.000002] WARNING: CPU: 0 PID: 1 at add_dma_entry+0x1/0x2
[   14.000003]  {mapper}+0x3/0x4 [ib_uverbs]
[   14.000004] ---[ end trace 0000000000000000 ]---
[   14.000005] DMA-API: Mapped at:
[   14.000006]  debug_dma_map_sg+0x5/0x6
[   14.000007] eth0: link up
"""
RACE = """[   15.000000] ==================================================================
[   15.000001] BUG: KCSAN: data-race in {one} / ib_uverbs_write [ib_uverbs]
[   15.000002]
[   15.000003] write to 0xffff888100000000 of 4 bytes by task 161 on cpu 0:
[   15.000004]  {one}+0x1/0x2 [{module}]
[   15.000005]  entry_SYSCALL_64_after_hwframe+0x3/0x4
[   15.000006]
[   15.000007] read to 0xffff888100000000 of 4 bytes by task 162 on cpu 1:
[   15.000008]  ib_uverbs_write+0x5/0x6 [ib_uverbs]
[   15.000009]
[   15.000010] Reported by Kernel Concurrency Sanitizer on:
[   15.000011] CPU: 1 UID: 0 PID: 162 Comm: test
[   15.000012] ==================================================================
[   15.000013] eth0: link up
"""
LEAK = """unreferenced object 0xffff888100000000 (size 64):
  comm "modprobe", pid 1, jiffies 4294900000
  hex dump (first 32 bytes):
    00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  ................
  backtrace (crc 0):
    __kmalloc_cache_noprof+0x1/0x2
    mana_ib_probe+0x3/0x4 [mana_ib]
"""


# Linux 7.2 names the function alone, and prints more behind the trace.
UNLOCKED = """\
[   69.000001][  T161] WARNING: at napi_disable_locked+0x1/0x2, CPU#0: sh/161
[   69.000002][  T161] Call Trace:
[   69.000003][  T161]  <TASK>
[   69.000004][  T161]  {caller}+0x1/0x2 [mana]
[   69.000005][  T161]  </TASK>
[   69.000006][  T161] irq event stamp: 38233
[   69.000007][  T161] ---[ end trace 0000000000000000 ]---
"""


class DebugKernelCase(unittest.TestCase):
    """Guests with a debug kernel, and an area."""

    KERNEL = "debug"

    def setUp(self) -> None:
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.folder = Path(temp.name)
        self.lab = FakeLab(self.folder)
        for guest in self.lab.guests:
            guest.spec = GuestSpec(guest.spec.suite, kernel=self.KERNEL)
            guest.answers["cat /proc/lockdep_stats"] = Result(" debug_locks:        1\n", "", 0)
        self.context = Context(self.lab, "mixed", argparse.Namespace(kernel=self.KERNEL))
        self.lines: list[str] = []
        self.tally = Tally()
        self.area = Area("demo")
        self.runner = Runner(self.context, self.tally, lambda: self.folder / "kept",
                             out=self.lines.append)

    def run_area(self) -> str:
        """Runs all cases; returns what was printed."""
        self.runner.start()
        self.runner.run_area(self.area, self.area.cases)
        return "\n".join(self.lines)

    def say(self, text: str, guest: int = 0) -> None:
        """A guest's kernel says something."""
        with self.lab.guests[guest].console_log.open("a") as console:
            console.write(text)


class DebugKernelTest(DebugKernelCase):
    """Reports of a debug kernel fail the case in which they come, and are never passed over."""

    def test_reports_are_told_apart(self) -> None:
        found = checkers.split_reports(("[ 1.0] nothing\n" + LOCKS + KASAN).splitlines())
        self.assertEqual([report.title for report in found], [
            "WARNING: possible circular locking dependency detected",
            "BUG: KASAN: slab-use-after-free in mana_ib_poll_cq+0x1/0x2 [mana_ib]"])
        self.assertIn("Memory state", found[1].text)
        self.assertNotIn("link up", found[1].text)
        self.assertFalse(checkers.split_reports(["[ 1.0] DMA-API: preallocated 65536 entries"]))

    def test_reports_of_two_cpus_at_once_are_told_apart(self) -> None:
        def stamped(text: str, caller: str) -> list[str]:
            return [line.replace("]", f"][{caller:>5}]", 1) for line in text.splitlines()]

        mixed = [line for pair in zip(stamped(DMA.format(mapper="ib_umem_get"), "T12"),
                                      stamped(KASAN, "C1")) for line in pair]
        found = checkers.split_reports(["[   11.000000][   T1] nothing", *mixed,
                                        *stamped(KASAN, "C1")[8:]])
        self.assertEqual([report.title[:12] for report in found], ["DMA-API: man", "BUG: KASAN: "])
        self.assertTrue(all(report.whole for report in found))
        self.assertTrue(found[0].reason)
        self.assertFalse(found[1].reason)
        self.assertNotIn("mana_ib_poll_cq", found[0].text)
        self.assertNotIn("add_dma_entry", found[1].text)

    def test_a_report_that_goes_on_holds_back_those_behind_it(self) -> None:
        peer = self.context.a
        told = checkers.Checkers()
        begun = [line.replace("]", "][  T12]", 1) for line in LOCKS.splitlines(keepends=True)]
        self.say("".join(begun[:-1]) + KASAN)
        self.assertFalse(told.reports(peer))
        self.say(begun[-1])
        self.assertEqual(len(told.reports(peer)), 2)
        self.assertFalse(told.reports(peer, last=True))

    def test_a_message_is_the_same_with_its_caller(self) -> None:
        for stamp in ("[   14.000007] ", "[   14.000007][    T7] ", "[   14.000007] [    T7] "):
            self.assertEqual(harness.normal(f"{stamp}eth0: link up"), "eth0: link up")

    def test_a_report_fails_the_case_in_which_it_comes(self) -> None:
        self.area.add("good", lambda context: None)
        self.area.add("bad", lambda context: self.say(KASAN))
        self.area.add("good again", lambda context: None)
        text = self.run_area()
        self.assertRegex(text, r"not ok 2 - .*bad .*g0: kernel: BUG: KASAN: slab-use-after-free")
        self.assertEqual((self.tally.passed, self.tally.failed), (3, 1))

    def test_a_report_that_the_case_causes_fails_nothing(self) -> None:
        def case(context: Context) -> None:
            context.expect_kernel(context.a, "BUG: KASAN: slab-use-after-free in .*")
            self.say(KASAN)
            self.lab.guests[0].kernel_messages += KASAN.splitlines()[:-1]

        self.area.add("good", case)
        self.assertIn("ok 1 - ", self.run_area())
        self.assertEqual(self.tally.failed, 0)

    def test_a_report_that_the_case_causes_in_another_guest_fails_it(self) -> None:
        def case(context: Context) -> None:
            context.expect_kernel(context.a, "BUG: KASAN: slab-use-after-free in .*")
            self.say(KASAN, guest=1)

        self.area.add("bad", case)
        self.assertRegex(self.run_area(), "not ok 1 .*g1: kernel: BUG: KASAN")

    def test_a_report_stands_beside_another_failure(self) -> None:
        def bad(_context: Context) -> None:
            self.say(KASAN)
            check(False, "it went wrong")

        self.area.add("bad", bad)
        self.assertRegex(self.run_area(), "not ok 1 .*it went wrong; g0: kernel: BUG: KASAN")

    def test_a_report_of_the_boot_counts(self) -> None:
        self.say(LOCKS, guest=1)
        self.area.add("good", lambda context: None)
        self.assertRegex(self.run_area(), r"not ok 1 .*g1: kernel: WARNING: possible circular")

    def test_a_known_report_is_named_with_its_reason(self) -> None:
        def case(_context: Context) -> None:
            self.say(LOCKS)
            self.lab.guests[0].kernel_messages += LOCKS.splitlines()

        self.area.add("good", case)
        known = (("circular locking.*mana_ib_remove", "of another's code"),)
        with unittest.mock.patch.object(checkers, "KNOWN", known):
            text = self.run_area()
        self.assertEqual(self.tally.failed, 0, text)
        self.assertRegex(text, "known: WARNING: possible circular .*: of another's code")

    def test_memory_that_a_program_registers_twice_is_known(self) -> None:
        found = checkers.split_reports(DMA.format(mapper="ib_umem_get").splitlines())
        self.assertEqual(len(found), 1)
        self.assertIn("debug_dma_map_sg", found[0].text)
        self.assertNotIn("link up", found[0].text)
        self.assertTrue(found[0].reason)
        found = checkers.split_reports(DMA.format(mapper="nvme_rdma_alloc_qe").splitlines())
        self.assertIn("NVMe", found[0].reason)
        found = checkers.split_reports(DMA.format(mapper="mana_ib_map").splitlines())
        self.assertFalse(found[0].reason)

    def test_a_warning_of_linux_7_2_goes_on_behind_its_trace(self) -> None:
        for caller, known in (("mana_detach", True), ("mana_ib_remove", False)):
            lines = UNLOCKED.format(caller=caller).splitlines()
            report, = checkers.split_reports(lines)
            self.assertEqual(report.title,
                             "WARNING: at napi_disable_locked+0x1/0x2, CPU#0: sh/161")
            self.assertEqual(report.lines[-1], "---[ end trace 0000000000000000 ]---")
            self.assertTrue(report.whole)
            self.assertEqual("network interface" in report.reason, known)

    def test_the_checker_of_dma_tells_one_more_error_after_each(self) -> None:
        text = DMA.format(mapper="ib_umem_get")

        def case(_context: Context) -> None:
            self.say(text)
            self.lab.guests[0].kernel_messages += text.splitlines()[:-1]

        self.area.add("good", case)
        self.assertIn("known: DMA-API", self.run_area())
        self.assertEqual(self.tally.failed, 0)
        armed = [command for command in self.lab.guests[0].commands
                 if checkers.DMA_ERRORS in command]
        self.assertEqual(len(armed), 1)

    def test_a_leak_fails_the_area(self) -> None:
        self.area.add("good", lambda context: None)
        self.lab.guests[1].answers[f"cat {checkers.LEAKS}"] = Result(LEAK, "", 0)
        self.assertRegex(self.run_area(), "not ok 2 .*g1: kernel: memory leak: 64 bytes of "
                         "__kmalloc_cache_noprof < mana_ib_probe")

    def test_leaks_are_looked_for_before_a_reboot(self) -> None:
        def reboot(context: Context) -> None:
            guest = context.b.guest
            guest.answers[f"cat {checkers.LEAKS}"] = Result(LEAK, "", 0)
            guest.before_reboot()
            guest.answers.clear()
            guest.answers["cat /proc/lockdep_stats"] = Result(" debug_locks:        1\n", "", 0)

        self.area.add("reboot", reboot)
        self.assertRegex(self.run_area(),
                         "not ok 1 .*g1: kernel: memory leak: 64 .*before a reboot")
        self.assertEqual(self.tally.failed, 1)

    def test_checkers_that_gave_up_fail_the_area(self) -> None:
        self.area.add("good", lambda context: None)
        self.lab.guests[0].answers["cat /proc/lockdep_stats"] = Result(
            " debug_locks:        0\n", "", 0)
        self.assertRegex(self.run_area(), "not ok 2 .*g0: kernel: lockdep has given up")

    def test_lockdep_that_a_known_report_ended_is_excused_until_a_reboot(self) -> None:
        def case(context: Context) -> None:
            self.say(LOCKS.replace("  mana_ib_remove", "  uverbs_user_mmap_disassociate+0x1/0x2\n"
                                   "[   12.000006]  rdma_umap_open"))
            context.a.guest.answers["cat /proc/lockdep_stats"] = Result(
                " debug_locks:        0\n", "", 0)

        self.area.add("good", case)
        self.assertIn("known: WARNING: possible circular", self.run_area())
        self.assertEqual(self.tally.failed, 0)
        self.lab.guests[0].before_reboot()
        self.area = Area("again")
        self.area.add("good", lambda context: None)
        self.assertRegex(self.run_area(), "not ok .*g0: kernel: lockdep has given up")

    def test_cases_have_more_time(self) -> None:
        self.context.begin(10)
        left, by_case = self.context.limit(100)
        self.assertTrue(by_case)
        self.assertAlmostEqual(left, 10, delta=1)
        self.assertGreater(self.context._seconds, 10)


class RacesTest(DebugKernelCase):
    """Data races are failures where our driver has a part in them, and named where not."""

    KERNEL = "kcsan"

    def setUp(self) -> None:
        super().setUp()
        for guest in self.lab.guests:
            guest.answers[f"cat {checkers.COUNTS}"] = Result("enabled: 1\nsetup_watchpoints: 7\n",
                                                             "", 0)

    def race(self, one: str, module: str, driver: str) -> str:
        """Runs an area in which a guest reports a race; returns what was printed."""
        text = RACE.format(one=one, module=module)

        def case(_context: Context) -> None:
            self.say(text)
            self.lab.guests[0].kernel_messages += text.splitlines()[:-1]

        for guest in self.lab.guests:
            guest.spec = GuestSpec(guest.spec.suite, kernel="kcsan", driver=driver)
        self.area.add("case", case)
        return self.run_area()

    def test_a_race_of_our_driver_fails_the_case(self) -> None:
        self.assertRegex(self.race("mana_ib_modify_qp", "mana_ib", "ours"),
                         "not ok 1 .*g0: kernel: BUG: KCSAN: data-race in mana_ib_modify_qp / ib")
        self.assertEqual(self.tally.failed, 1)

    def test_a_race_of_others_is_named(self) -> None:
        text = self.race("mana_poll", "mana", "ours")
        self.assertEqual(self.tally.failed, 0, text)
        self.assertRegex(text, "known: BUG: KCSAN: .* mana_poll / .*neither side is in our driver")

    def test_a_race_of_the_stock_driver_is_named(self) -> None:
        self.assertIn("known: BUG: KCSAN: ", self.race("mana_ib_poll_cq", "mana_ib", "stock"))
        self.assertEqual(self.tally.failed, 0)

    def test_a_report_ends_with_its_last_line(self) -> None:
        found = checkers.split_reports(RACE.format(one="mana_poll", module="mana").splitlines())
        self.assertEqual(len(found), 1)
        self.assertTrue(found[0].whole)
        self.assertIn("CPU: 1", found[0].text)
        self.assertNotIn("link up", found[0].text)

    def test_a_kernel_that_watches_nothing_fails_the_area(self) -> None:
        self.area.add("good", lambda context: None)
        for words in ("enabled: 0\nsetup_watchpoints: 7\n",
                      "enabled: 1\nsetup_watchpoints: 0\n", ""):
            self.lab.guests[1].answers[f"cat {checkers.COUNTS}"] = Result(words, "", 0)
            self.assertRegex(self.run_area(), "not ok .*g1: kernel: KCSAN watches nothing")


if __name__ == "__main__":
    unittest.main()

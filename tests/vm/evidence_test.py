#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the evidence: of which sources it is, what it shows, how runs in pieces add up, and the
tables that documents have of it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import types
import unittest
import unittest.mock
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from harness import Area, Context, Runner, Tally, check  # noqa: E402
from harness_test import FakeLab  # noqa: E402

from lab import evidence, evidence_tables  # noqa: E402
from lab.evidence import CLOSING, Evidence, Recorder, Setup, files_of_area  # noqa: E402
from lab.guest import Result  # noqa: E402

GUESTS = ["guest-trixie-1 6.12"]
OURS = Setup("rdma", "trixie", "ours", "ours")


def make_tree(root: Path) -> None:
    """A small tree with something of each kind."""
    for name, text in (("device/a.cc", "a"), ("device/" "words.md", "words"), ("kernel/k.c", "k"),
                       ("providers/mana/p.c", "p"), ("docs/evidence/x.json", "{}"),
                       ("tests/vm/run.py", ""), ("tests/vm/harness.py", ""),
                       ("tests/vm/programs.py", "VERIFY = \"verify.c\"\n"),
                       ("tests/vm/verify.c", "#include \"pair.h\"\n"), ("tests/vm/pair.h", "1"),
                       ("tests/vm/areas/rdma.py", "from programs import x\n"),
                       ("tests/vm/areas/cm.py", "import re\n"), ("tools/lab/kernel/config", "c")):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run(["git", "init", "-q", os.fspath(root)], check=True)


class SourcesTest(unittest.TestCase):
    """The hash of what a case was built from."""

    def setUp(self) -> None:
        self._temp = tempfile.TemporaryDirectory()
        self.root = Path(self._temp.name)
        make_tree(self.root)

    def tearDown(self) -> None:
        self._temp.cleanup()

    def changed_by(self, name: str, setup: Setup) -> bool:
        """Whether a change of a file makes another hash."""
        before = evidence.sources(setup, self.root)
        path = self.root / name
        old = path.read_text() if path.exists() else None
        path.write_text("changed")
        after = evidence.sources(setup, self.root)
        if old is None:
            path.unlink()
        else:
            path.write_text(old)
        self.assertEqual(evidence.sources(setup, self.root), before)
        return after != before

    def test_only_what_the_case_uses_counts(self) -> None:
        stock = Setup("rdma", "trixie")
        debug = Setup("rdma", "trixie", "ours", "ours", "on", "debug")
        kcsan = Setup("rdma", "trixie", "ours", "ours", "on", "kcsan")
        for name, setup, counts in (
                ("device/a.cc", stock, True), ("device/new.cc", stock, True),
                ("device/" "words.md", stock, False), ("docs/evidence/x.json", stock, False),
                ("kernel/k.c", stock, False), ("kernel/k.c", OURS, True),
                ("providers/mana/p.c", stock, False), ("providers/mana/p.c", OURS, True),
                ("tools/lab/kernel/config", OURS, False),
                ("tools/lab/kernel/config", debug, True),
                ("tools/lab/kernel/config", kcsan, True),
                ("tools/lab/kernel/config-kcsan", debug, False),
                ("tools/lab/kernel/config-kcsan", kcsan, True),
                ("tests/vm/areas/rdma.py", stock, True), ("tests/vm/areas/cm.py", stock, False),
                ("tests/vm/pair.h", stock, True)):
            with self.subTest(name=name, setup=setup):
                self.assertEqual(self.changed_by(name, setup), counts)

    def test_an_area_is_made_of_what_it_imports_and_names(self) -> None:
        self.assertEqual(files_of_area("rdma", self.root),
                         {f"tests/vm/{name}" for name in ("areas/rdma.py", "programs.py",
                                                          "verify.c", "pair.h")})
        self.assertEqual(files_of_area("cm", self.root), {"tests/vm/areas/cm.py"})

    def test_what_is_not_in_git_has_no_hash(self) -> None:
        with tempfile.TemporaryDirectory() as name, \
                self.assertRaisesRegex(evidence.LabError, "needs a git tree"):
            evidence.sources(OURS, Path(name))


class EvidenceTest(unittest.TestCase):
    """What a file shows."""

    def setUp(self) -> None:
        self._temp = tempfile.TemporaryDirectory()
        self.folder = Path(self._temp.name)

    def tearDown(self) -> None:
        self._temp.cleanup()

    def add(self, cases: dict[str, str], of: str = "aaa", setup: Setup = OURS,
            closing: str | None = "passed", tree: str = "c0ffee") -> Evidence:
        """A run with these cases."""
        one = Evidence(setup, self.folder)
        run = one.begin(of, GUESTS, ["Linux 6.12, rdma-core 56"], tree)
        for title, result in cases.items():
            one.add(run, title, result, 1.0)
        if closing:
            one.add(run, CLOSING, closing, 0.1)
        return Evidence(setup, self.folder)

    def test_shown_is_what_passed_with_the_same_sources_and_guests(self) -> None:
        one = self.add({"a": "passed", "b": "failed", "c": "skipped"})
        self.assertTrue(one.shows("a", "aaa", GUESTS))
        self.assertTrue(one.shows("c", "aaa", GUESTS))
        self.assertFalse(one.shows("b", "aaa", GUESTS))
        self.assertFalse(one.shows("d", "aaa", GUESTS))
        self.assertFalse(one.shows("a", "bbb", GUESTS))
        self.assertFalse(one.shows("a", "aaa", ["guest-trixie-2 6.12"]))

    def test_a_run_that_left_something_behind_or_broke_off_shows_nothing(self) -> None:
        for closing in ("failed", None):
            self.assertFalse(self.add({"a": "passed"}, closing=closing).shows("a", "aaa", GUESTS))

    def test_pieces_add_up_and_the_newest_result_counts(self) -> None:
        self.add({"a": "passed", "b": "failed"})
        one = self.add({"b": "passed", "c": "passed"})
        self.assertTrue(all(one.shows(title, "aaa", GUESTS) for title in "abc"))
        self.assertEqual(len(one.runs), 2)
        one = self.add({"a": "passed", "b": "passed", "c": "passed"}, of="bbb")
        self.assertEqual(len(one.runs), 1)

    def test_a_file_that_is_broken_is_named(self) -> None:
        (self.folder / OURS.name).write_text("{")
        with self.assertRaisesRegex(evidence.LabError, OURS.name):
            Evidence(OURS, self.folder)

    def test_matrix_has_commit_and_date_and_says_what_was_not_run(self) -> None:
        self.add({"a": "passed", "b": "skipped"})
        self.add({"x": "passed"}, setup=Setup("cm", "trixie", "ours", "ours"))
        before = {"trixie stock stock on": {"passed": 109, "skipped": 17, "failed": 0,
                                            "commit": "dead", "date": "2026-01-02"}}
        lines = evidence_tables.matrix(evidence.read_all(self.folder), before)
        today = time.strftime("%Y-%m-%d", time.gmtime())
        self.assertIn(f"| trixie | ours | ours | on | 2 | 1 | 0 | `c0ffee` | {today} | without "
                      "perftest, verify, errors |", lines)
        self.assertIn("| trixie | stock | stock | on | 109 | 17 | 0 | `dead` | 2026-01-02 | of "
                      "other sources, written down by hand |", lines)
        self.assertEqual(sum("not run" in line for line in lines), 14)

    def test_matrix_tells_runs_of_different_sources(self) -> None:
        self.add({"a": "passed"})
        self.add({"b": "passed"}, of="bbb", tree="beef", closing="failed")
        lines = evidence_tables.matrix(evidence.read_all(self.folder), {})
        line = next(line for line in lines if "c0ffee" in line)
        self.assertIn("`beef`", line)
        self.assertIn("rdma of different sources", line)
        self.assertIn("rdma not clean at the end", line)

    def test_old_results_of_the_debug_kernel_go_area_by_area(self) -> None:
        self.add({"a": "passed"}, setup=Setup("rdma", "trixie", "ours", "ours", "on", "debug"))
        old = {"areas": ["rdma", "cm"], "cases": 9, "commit": "dead", "date": "2026-01-02"}
        text = "\n".join(evidence_tables.debug_kernel(evidence.read_all(self.folder),
                                                      {"trixie": [old]}))
        self.assertIn("| trixie | rdma | 1 | 0 | 0 | `c0ffee` |", text)
        self.assertIn("| trixie | cm |  |  |  | `dead` | 2026-01-02 |", text)

    def test_results_of_the_debug_kernels_are_kept_apart(self) -> None:
        self.add({"a": "passed"}, setup=Setup("rdma", "trixie", "ours", "ours", "on", "debug"))
        self.add({"a": "passed", "b": "passed"},
                 setup=Setup("cm", "trixie", "ours", "ours", "on", "kcsan"))
        files = evidence.read_all(self.folder)
        debug = "\n".join(evidence_tables.debug_kernel(files, {}))
        kcsan = "\n".join(evidence_tables.kcsan(files, {}))
        self.assertTrue("| trixie | rdma | 1 |" in debug and "| cm |" not in debug, debug)
        self.assertTrue("| trixie | cm | 2 |" in kcsan and "| rdma |" not in kcsan, kcsan)

    def test_each_command_of_a_program_is_a_row(self) -> None:
        one = Evidence(Setup("programs_x", "trixie", "ours", "ours", "off"), self.folder)
        run = one.begin("aaa", GUESTS, ["Linux 6.12, rdma-core 56"], "c0ffee")
        for title, result, words, ran in (
                ("b", "passed", "3 us", [{"program": "pong", "version": "ping-utils 1.0-1",
                                          "command": "pong -a | cat", "seen": ""},
                                         {"program": "ping", "version": "ping-utils 1.0-1",
                                          "command": "ping", "seen": "2\nhops"}]),
                ("c", "failed", "it hangs", [{"program": "tang", "version": "tang 2",
                                              "command": "tang", "seen": ""}]),
                ("d", "skipped", "not in Debian", [{"program": "zing", "version": "",
                                                    "command": "", "seen": ""}]),
                ("a port counts", "passed", "1", []), ("odd", "skipped", "needs ours", []),
                (CLOSING, "passed", "", [])):
            one.add(run, title, result, 1.0, words, ran=ran)
        self.add({"rdma is no program": "passed"})
        today = time.strftime("%Y-%m-%d", time.gmtime())
        of, at = "trixie, Linux 6.12 | ours, ext=off", f"`c0ffee`, {today}"
        self.assertEqual(evidence_tables.programs(evidence.read_all(self.folder), {})[2:], [
            f"| ping | ping-utils 1.0-1 | {of} | `ping` | 2 hops | {at} |",
            f"| pong | ping-utils 1.0-1 | {of} | `pong -a \\| cat` | 3 us | {at} |",
            f"| tang | tang 2 | {of} | `tang` | **failed**: it hangs | {at} |",
            f"| zing |  | {of} |  | not run: not in Debian | {at} |"])

    def test_python_tests_are_summed_with_their_reasons(self) -> None:
        one = Evidence(Setup("pyverbs", "forky"), self.folder)
        run = one.begin("aaa", GUESTS, ["Linux 7.2, rdma-core 65"], "c0ffee")
        for title, ok in (("test_a", 3), ("test_b", 4)):
            one.add(run, title, "passed", 1.0, data={
                "ok": ok, "skipped": 1, "failed": 1, "left_out": {},
                "failing": {"the driver cannot": [f"{title}.T.x"]}})
        text = "\n".join(evidence_tables.pyverbs(evidence.read_all(self.folder), {}))
        self.assertIn("| all | 7 | 2 | 2 |", text)
        self.assertIn("| `test_a.T.x`, `test_b.T.x` | the driver cannot |", text)
        self.assertIn("Linux 7.2, rdma-core 65, seen at `c0ffee`", text)

    def test_a_table_has_one_place_in_a_document(self) -> None:
        text = "a\n<!-- evidence: matrix -->\nold\n<!-- end of evidence -->\nb\n"
        self.assertEqual(evidence_tables.updated(text, "matrix", ["new"]),
                         text.replace("old", "new"))
        for wrong in ("a", text + text):
            with self.assertRaises(ValueError):
                evidence_tables.updated(wrong, "matrix", ["new"])


class RunTest(unittest.TestCase):
    """What a run leaves."""

    def setUp(self) -> None:
        self._temp = tempfile.TemporaryDirectory()
        self.folder = Path(self._temp.name)
        self.lab = FakeLab(self.folder)
        for guest in self.lab.guests:
            guest.image = types.SimpleNamespace(key="guest-trixie-1",  # type: ignore[attr-defined]
                                                version="6.12")
        self.area = Area("rdma")

    def tearDown(self) -> None:
        self._temp.cleanup()

    def run_area(self, until: float | None = None) -> Tally:
        """Runs the area's cases."""
        with unittest.mock.patch.object(evidence, "sources", lambda _: "aaa"):
            recorder = Recorder({"rdma": OURS}, self.folder, "c0ffee")
        tally = Tally()
        lab: Any = self.lab
        runner = Runner(Context(lab, "trixie"), tally, lambda: self.folder / "kept",
                        out=lambda _: None, recorder=recorder, until=until)
        runner.start()
        runner.run_area(self.area, self.area.cases)
        return tally

    def test_each_case_is_written_down(self) -> None:
        def figures(context: Context) -> None:
            context.note("9 Gb/s")
            context.data = {"ok": 1}

        self.area.add("good", figures, long=True)
        self.area.add("bad", lambda _: check(False, "it broke"))
        self.run_area()
        one = Evidence(OURS, self.folder)
        self.assertEqual(one.cases["good"]["result"], "passed")
        self.assertEqual(one.cases["good"]["words"], "9 Gb/s")
        self.assertEqual(one.cases["good"]["data"], {"ok": 1})
        self.assertTrue(one.cases["good"]["long"])
        self.assertEqual(one.cases["bad"]["words"], "it broke")
        self.assertTrue(one.shows("good", "aaa", GUESTS))
        self.assertFalse(one.shows("bad", "aaa", GUESTS))

    def test_programs_that_a_case_ran_are_written_down(self) -> None:
        def runs(context: Context) -> None:
            self.lab.guests[1].answers["dpkg-query -W -f '${Package} ${Version}' fio"] = Result(
                "fio 3.39-1", "", 0)
            context.ran("fio", context.b.version("fio"), "fio --name=x", "9 KiB/s" * 100)

        self.area.add("runs", runs)
        self.area.add("runs nothing", lambda _: None)
        self.area.cannot("smbd", "not in Debian")
        self.area.add("smc", lambda context: context.cannot("SMC", "no module"))
        self.run_area()
        cases = Evidence(OURS, self.folder).cases
        self.assertEqual(cases["runs"]["ran"], [{
            "program": "fio", "version": "fio 3.39-1", "command": "fio --name=x",
            "seen": ("9 KiB/s" * 100)[:300]}])
        self.assertNotIn("ran", cases["runs nothing"])
        absent = cases["smbd cannot run"]
        self.assertEqual((absent["result"], absent["words"], absent["ran"][0]["program"]),
                         ("skipped", "not in Debian", "smbd"))
        self.assertEqual((cases["smc"]["result"], cases["smc"]["words"], cases["smc"]["ran"]), (
            "skipped", "no module", [{"program": "SMC", "version": "", "command": "",
                                      "seen": ""}]))

    def test_when_the_time_is_up_the_rest_is_left_and_what_ran_is_shown(self) -> None:
        moment = time.time()
        with unittest.mock.patch("harness.time.time", lambda: moment):
            def slow(_context: Context) -> None:
                nonlocal moment
                moment += 100

            for title in ("a", "b", "c"):
                self.area.add(title, slow)
            tally = self.run_area(until=moment + 150)
        self.assertEqual(tally.left, 1)
        one = Evidence(OURS, self.folder)
        self.assertEqual([one.shows(title, "aaa", GUESTS) for title in ("a", "b", "c")],
                         [True, True, False])

    def test_what_a_dead_guest_did_not_run_is_no_evidence(self) -> None:
        self.area.add("dies", lambda _: setattr(self.lab.guests[0], "alive", False))
        self.area.add("not run", lambda _: None)
        self.run_area()
        self.assertNotIn("not run", Evidence(OURS, self.folder).cases)

    def test_missing_cases_are_listed(self) -> None:
        words = [sys.executable, HERE / "run.py", "trixie", "rdma", "--missing"]
        done = subprocess.run([*words, "--evidence", self.folder], capture_output=True, text=True,
                              timeout=60, check=True)
        self.assertIn("rdma.trixie.stock.stock.on.stock: ", done.stdout)
        env = {name: value for name, value in os.environ.items() if name != "OPENMANA_EVIDENCE"}
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False,
                              env=env)
        self.assertEqual(done.returncode, 2)


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""tools/cures: what it makes of a patch and of the end of a test; and a cure taken out of a tree of
one script."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

from test_figures import tool

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from lab.errors import LabError  # noqa: E402

cures = tool("cures")

HEAD = {"Fault": "a number is anybody's", "Preset": "asan", "Build": "gdma_test",
        "Run": "tests/gdma_test --gtest_filter=PdTest.ItStays", "Expect": "it went"}
PATCH = """
--- a/checked.py
+++ b/checked.py
@@ -1,2 +1,2 @@
 # Ends well.
-raise SystemExit(0)
+raise SystemExit("it went wrong")
"""


class Folder(unittest.TestCase):
    """A folder of patches."""

    def setUp(self) -> None:
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.base = Path(temp.name)

    def patch(self, name: str = "pd", group: str = "lifetimes", **head: str) -> Path:
        path = self.base / group / f"{name}.patch"
        path.parent.mkdir(exist_ok=True)
        lines = [f"{word}: {value}" for word, value in {**HEAD, **head}.items() if value != "-"]
        path.write_text("\n".join(lines) + "\n" + PATCH)
        return path


class PatchTest(Folder):
    """The head of a patch."""

    def refused(self, path: Path, words: str) -> None:
        with self.assertRaisesRegex(LabError, rf"^{path.name}: {words}$"):
            cures.read(path)

    def test_head_says_what_and_how(self) -> None:
        cure = cures.read(self.patch())
        self.assertEqual((cure.title, cure.preset, cure.build, cure.run[0], cure.seconds),
                         ("cure pd (lifetimes)", "asan", ("gdma_test",), "tests/gdma_test", 300))
        self.assertEqual(cure.test, "PdTest.ItStays")
        self.assertFalse(cure.needs_guests)

    def test_script_needs_no_build_but_may_need_guests(self) -> None:
        cure = cures.read(self.patch(Preset="-", Build="-", Seconds="7", Run=(
            "tests/vm/run.py trixie module --case 'a device that goes'")))
        self.assertEqual((cure.preset, cure.build, cure.seconds), ("", (), 7))
        self.assertEqual(cure.run[-1], "a device that goes")
        self.assertEqual(cure.test, "tests/vm/run.py trixie module --case 'a device that goes'")
        self.assertTrue(cure.needs_guests)

    def test_heads_that_make_no_sense_are_refused(self) -> None:
        self.refused(self.patch(Expect="-"), "its head lacks Expect")
        self.refused(self.patch(Fault="-", Run="-"), "its head lacks Fault, Run")
        self.refused(self.patch(Build="-"), "Preset and Build go together")
        self.refused(self.patch(Seconds="soon"), "Seconds is no number: soon")
        self.refused(self.patch(Colour="red"), "not a line of a head: 'Colour: red'")
        self.refused(self.patch(Expect=""), "not a line of a head: 'Expect: '")
        self.refused(self.patch(group="luck"), "no such group: luck")

    def test_those_of_one_build_follow_on_each_other(self) -> None:
        self.patch("a", Build="gdma_test", Run="tests/gdma_test --gtest_filter=B.B")
        self.patch("b", Build="base_test")
        self.patch("c", Preset="-", Build="-", Run="tests/vm/run.py trixie rdma")
        self.patch("d", "time", Build="gdma_test", Run="tests/gdma_test --gtest_filter=A.A")
        self.assertEqual([cure.name for cure in cures.read_all(self.base)], ["b", "d", "a", "c"])

    def test_cures_are_chosen_by_name_and_group(self) -> None:
        self.patch("a")
        self.patch("b", "time")
        self.patch("c", "time")
        every = cures.read_all(self.base)
        self.assertEqual(cures.chosen(every, []), every)
        self.assertEqual([cure.name for cure in cures.chosen(every, ["a", "c"])], ["a", "c"])
        self.assertEqual([cure.name for cure in cures.chosen(every, ["time"])], ["b", "c"])
        with self.assertRaisesRegex(LabError, "^no such cure or group: d, e; --list shows them$"):
            cures.chosen(every, ["e", "a", "d"])


class CheckTest(Folder):
    """What is wrong with a cure is found without a build."""

    def test_tests_are_looked_up_in_their_sources(self) -> None:
        tests = "TEST_F(PdTest,\n       ItStays) {}\nTEST_P(WireTest, Sends) @AREA.case('it goes')"

        def lacking(run: str) -> list[str]:
            found: list[str] = cures.lacking(cures.read(self.patch(Run=run)), tests)
            return found

        there = "PdTest.ItStays:Paths/WireTest.Sends/Local:*WireTest.Sends*:PdTest.*"
        self.assertEqual(lacking(f"tests/x --gtest_filter={there}"), [])
        self.assertEqual(lacking("tests/x --gtest_filter=PdTest.It:PdTest.ItStays:Pd.ItStays"),
                         ["PdTest.It", "Pd.ItStays"])
        self.assertEqual(lacking("tests/x --gtest_filter=A.B.C"), ["A.B.C"])
        self.assertEqual(lacking("tests/vm/run.py trixie rdma --case 'it goes'"), [])
        self.assertEqual(lacking("tests/vm/run.py trixie rdma --case 'it went'"), ["it went"])

    def test_lacking_groups_names_in_use_and_patches_that_do_not_apply_are_told(self) -> None:
        self.patch(Run="tests/lab/test_cures.py")
        self.patch(group="time", Run="tests/lab/test_cures.py")
        wrong = cures.check(cures.read_all(self.base))
        self.assertIn("no cure of the group quotas", wrong)
        self.assertIn("two cures pd", wrong)
        self.assertIn("cure pd (time): it cannot be taken out: error: checked.py: No such file or "
                      "directory", wrong)
        self.assertEqual(len(wrong), len(cures.GROUPS) - 2 + 1 + 2)


class VerdictTest(Folder):
    """What the end of a test without its cure means."""

    def verdict(self, status: int, said: str) -> tuple[bool, str]:
        found: tuple[bool, str] = cures.verdict(cures.read(self.patch()), cures.judge(status, said))
        return found

    def test_failure_for_its_reason_shows_the_fault(self) -> None:
        self.assertEqual(self.verdict(1, "pd_test.cc:7: Failure\n  it went, id 3\nit went again"),
                         (True, "without it PdTest.ItStays fails: it went, id 3 it went again"))

    def test_end_by_a_signal_shows_it_too(self) -> None:
        self.assertTrue(self.verdict(-6, "check failed: it went")[0])

    def test_other_ends_do_not(self) -> None:
        for status, said, words in (
                (0, "it went", "PdTest.ItStays passes without it"),
                (1, "no room", "PdTest.ItStays fails without it, but not by 'it went':\nno room"),
                (1, "[  SKIPPED ] it went", "PdTest.ItStays is skipped here"),
                (77, "it went", "PdTest.ItStays is skipped here")):
            self.assertEqual(self.verdict(status, said), (False, words))

    def test_each_of_several_cases_has_to_fail(self) -> None:
        cure = cures.read(self.patch(Run="tests/x --gtest_filter=A.A:B.B"))
        said = "it went\n[  FAILED  ] A.A (0 ms)\n"
        self.assertEqual(cures.verdict(cure, cures.judge(1, said)),
                         (False, "B.B passes without it"))
        said += "[  FAILED  ] B.B (0 ms)\n"
        self.assertEqual(cures.verdict(cure, cures.judge(1, said)),
                         (True, "without it A.A, B.B fails: it went [  FAILED  ] A.A (0 ms)"))

    def test_no_test_is_no_pass(self) -> None:
        self.assertFalse(cures.judge(0, "[==========] Running 0 tests from 0 suites.").passed)
        self.assertTrue(cures.judge(0, "[==========] Running 2 tests from 1 suite.").passed)


class TakeOutTest(Folder):
    """A whole run, on a tree of one script that needs no build."""

    def run_all(self, script: str, **head: str) -> tuple[int, str, str]:
        """How many were not shown, and what was said."""
        self.patch(Preset="-", Build="-", Run="checked.py", **head)
        tree = self.base / "tree"
        tree.mkdir()
        (tree / "checked.py").write_text(f"# Ends well.\n{script}\n")
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            wrong = cures.show(tree, cures.read_all(self.base))
        self.assertEqual((tree / "checked.py").read_text(), f"# Ends well.\n{script}\n")
        return wrong, out.getvalue(), err.getvalue()

    def test_cure_is_taken_out_shown_and_put_back(self) -> None:
        self.assertEqual(self.run_all("raise SystemExit(0)"), (
            0, "cure pd (lifetimes): without it checked.py fails: it went wrong\n", ""))

    def test_failure_with_another_reason_is_said(self) -> None:
        wrong, _, said = self.run_all("raise SystemExit(0)", Expect="it left")
        self.assertEqual((wrong, said), (1, "cure pd (lifetimes): checked.py fails without it, but "
                                         "not by 'it left':\nit went wrong\n"))

    def test_test_that_fails_with_the_cure_is_said(self) -> None:
        wrong, _, said = self.run_all("raise SystemExit('never')")
        self.assertEqual((wrong, said),
                         (1, "cure pd (lifetimes): checked.py fails with it:\nnever\n"))

    def test_test_that_does_not_end_is_ended(self) -> None:
        wrong, _, said = self.run_all("import time; time.sleep(60)", Seconds="1")
        self.assertEqual(wrong, 1)
        self.assertIn("no end within 1 s", said)

    def test_copy_has_what_the_tree_has_and_nothing_else(self) -> None:
        source, tree = self.base / "source", self.base / "copy"
        for folder in (source, tree / "old", tree / "build"):
            folder.mkdir(parents=True)
        subprocess.run(["git", "init", "-q", source], check=True)
        (source / "kept").write_text("same")
        (source / "new").write_text("new")
        (tree / "kept").write_text("same")
        (tree / "old" / "file").write_text("old")
        (tree / "build" / "object").write_text("made")
        before = (tree / "kept").stat().st_mtime_ns
        with mock.patch.object(cures, "ROOT", source):
            cures.copy_sources(tree)
        self.assertEqual(sorted(path.name for path in tree.rglob("*") if path.is_file()),
                         ["kept", "new", "object"])
        self.assertEqual((tree / "kept").stat().st_mtime_ns, before)


class CommandTest(unittest.TestCase):
    """The program itself."""

    def test_name_that_is_none_is_said_in_one_line(self) -> None:
        done = subprocess.run([str(ROOT / "tools/cures"), "luck"], text=True, capture_output=True,
                              check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (
            1, "", "cures: no such cure or group: luck; --list shows them\n"))


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""tools/upstream: series made against trees of a few lines, and tried there."""

from __future__ import annotations

import email
import io
import re
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

from lab import series, series_check, series_steps, series_table  # noqa: E402
from lab.errors import LabError  # noqa: E402

upstream = tool("upstream")

TOML = 'tree = "perftest"\ntitle = "A table"\ncover = "It says why."\n'
PATCH = """From: Somebody <somebody@example.org>
Subject: [PATCH 1/1] Perftest: Know one
 device more

Its inline data was refused.

Signed-off-by: Somebody <somebody@example.org>
---
 src/perftest_resources.c | 2 +-

--- a/src/perftest_resources.c
+++ b/src/perftest_resources.c
@@ -2,4 +2,4 @@
 one
-two
+TWO
 three
 four
"""
RESOURCES = "zero\none\ntwo\nthree\nfour\n"
SENDER = ("A Sender", "sender@example.org")


class Made(unittest.TestCase):
    """A folder with parts, a tree, and the place of a series."""

    def setUp(self) -> None:
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.base = Path(temp.name)
        self.parts = self.base / "parts"
        for where in ("lab.series.PARTS", "lab.series_steps.PARTS"):
            patcher = mock.patch(where, self.parts)
            patcher.start()
            self.addCleanup(patcher.stop)
        patcher = mock.patch("lab.series.ROOT", self.base)
        patcher.start()
        self.addCleanup(patcher.stop)
        self.tree = self.base / "tree"
        self.files({"src/perftest_resources.c": RESOURCES,
                    "configure.ac": "AC_INIT([perftest], [6.24], [x])\n"}, self.tree)

    def files(self, files: dict[str, str], base: Path) -> None:
        for name, text in files.items():
            path = base / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def part(self, patches: dict[str, str], folders: str = '["."]') -> series.Part:
        self.files({"table/part.toml": f"{TOML}patches = {folders}\n",
                    **{f"table/{name}": text for name, text in patches.items()}}, self.parts)
        return series.read_part("table")

    def make(self, part: series.Part, author: tuple[str, str] | None = None) -> list[Path]:
        with tempfile.TemporaryDirectory(dir=self.base) as work:
            return series.make_series(part, series.find_tree(self.tree, part.kind), Path(work),
                                      self.base / "out", author)


class PatchesTest(Made):
    """Patches that are kept."""

    def test_series_is_made_against_the_tree_that_is_given(self) -> None:
        made = self.make(self.part({"0001-a.patch": PATCH}))
        mail = email.message_from_bytes(made[0].read_bytes())
        self.assertEqual(mail["Subject"].replace("\n", ""),
                         "[PATCH] Perftest: Know one device more")
        self.assertIn("-two\n+TWO\n", mail.get_payload())
        self.assertEqual((self.tree / "src/perftest_resources.c").read_text(), RESOURCES)

    def test_who_sends_it_signs_it_and_nobody_else_does(self) -> None:
        part = self.part({"0001-a.patch": PATCH})
        mail = email.message_from_bytes(self.make(part, SENDER)[0].read_bytes())
        self.assertEqual(mail["From"], "A Sender <sender@example.org>")
        message = mail.get_payload().partition("\n---\n")[0]
        self.assertEqual([line for line in message.splitlines() if "Signed" in line],
                         ["Signed-off-by: A Sender <sender@example.org>"])

    def test_a_patch_goes_where_its_lines_have_moved(self) -> None:
        (self.tree / "src/perftest_resources.c").write_text("first\n" * 7 + RESOURCES)
        self.assertIn("@@ -7,6", self.make(self.part({"0001-a.patch": PATCH}))[0].read_text())

    def test_hunks_that_do_not_apply_are_named(self) -> None:
        part = self.part({"0001-a.patch": PATCH + "@@ -10,2 +10,2 @@\n nine\n-ten\n+TEN\n"})
        with self.assertRaisesRegex(
                LabError, r"(?s)^table does not fit perftest 6\.24:\n"
                r"table/0001-a\.patch: hunk 2 of src/perftest_resources\.c does not apply$"):
            self.make(part)

    def test_a_file_that_is_gone_is_named(self) -> None:
        part = self.part({"0001-a.patch": PATCH.replace("perftest_resources.c", "gone.c")})
        with self.assertRaisesRegex(LabError, "0001-a.patch: there is no src/gone.c"):
            self.make(part)

    def test_first_variant_that_fits_is_taken(self) -> None:
        part = self.part({"newer/0001-a.patch": PATCH.replace(" one", " ONE"),
                          "older/0001-a.patch": PATCH}, '["newer", "older"]')
        self.assertEqual(len(self.make(part)), 1)

    def test_wrong_trees_and_parts_are_refused_in_a_line(self) -> None:
        part = self.part({"0001-a.patch": PATCH})
        with self.assertRaisesRegex(LabError, "nowhere is no folder"):
            series.find_tree(self.base / "nowhere", "perftest")
        with self.assertRaisesRegex(LabError, "is no tree of linux: it has no Kbuild"):
            series.find_tree(self.tree, "linux")
        with self.assertRaisesRegex(LabError, "no part 'other', but table"):
            series.read_part("other")
        tree = series.Tree(self.tree, "rdma-core", "65.0")
        with self.assertRaisesRegex(LabError, "table is for perftest, and not for rdma-core"):
            series.make_series(part, tree, self.base, self.base / "out")

    def test_a_part_has_patches_or_steps(self) -> None:
        self.files({"table/part.toml": TOML}, self.parts)
        with self.assertRaisesRegex(LabError, "either patches or steps"):
            series.read_part("table")


class StepsTest(Made):
    """Files that are put into a tree in steps."""

    TOML = """tree = "rdma-core"
title = "A provider"
cover = "In steps."
covers = ["own/*.[ch]"]
replaces = "providers/x"
[map]
"own/" = ["providers/x/next/", "providers/x/"]
[defined]
NEWER = ["libibverbs/verbs.h", "newer"]
[build_file."providers/x/CMakeLists.txt"]
append = true
template = "beside.cmake"
below = "providers/x/"
indent = " "
[final]
"providers/x/CMakeLists.txt" = "own/CMakeLists.txt"
[replace_step]
subject = "x: Replace it"
body = "All of it."
[[step]]
subject = "x: Add a"
body = "First."
files = ["own/a.c"]
"""
    STEP = '[[step]]\nsubject = "x: Add b"\nbody = "Second."\nfiles = ["own/b.c"]\n'

    def setUp(self) -> None:
        super().setUp()
        for where in ("lab.series_steps.ROOT",):
            patcher = mock.patch(where, self.base)
            patcher.start()
            self.addCleanup(patcher.stop)
        self.files({"own/a.c": '#include "a.h"\n', "own/b.c": '#include "a.h"\n#include "b.h"\n',
                    "own/a.h": "#ifdef NEWER\nint newer;\n#else\nint older;\n#endif\n",
                    "own/b.h": "int b;\n"}, self.base)
        self.files({"buildlib/RDMA_BuildType.cmake": "", "libibverbs/verbs.h": "newer\n",
                    "CMakeLists.txt": 'set(PACKAGE_VERSION "65.0")\n',
                    "providers/x/CMakeLists.txt": "old\n", "providers/x/a.c": "old\n"}, self.tree)
        self.files({"x/beside.cmake": "add(@SOURCES@)\n"}, self.parts)
        self.files({"own/CMakeLists.txt": "# here: a mark\nours\n# end\nnew\n  # here\n  too\n"
                    "  # end\nlast # here\n"}, self.base)

    def part_of(self, text: str) -> series.Part:
        self.files({"x/part.toml": text}, self.parts)
        return series.read_part("x")

    def test_each_commit_builds_the_sources_so_far_with_their_headers(self) -> None:
        made = [path.read_text() for path in self.make(self.part_of(self.TOML + self.STEP))]
        self.assertEqual(len(made), 3)
        self.assertIn("+add(next/a.c)", made[0])
        self.assertIn("b/providers/x/next/a.h", made[0])
        self.assertNotIn("next/b.h", made[0])
        self.assertIn("+add(next/a.c next/b.c)", made[1])
        self.assertIn("+++ b/providers/x/next/b.h", made[1])

    def test_what_bridges_versions_is_decided_for_the_tree(self) -> None:
        made = self.make(self.part_of(self.TOML + self.STEP))[0].read_text()
        self.assertIn("+int newer;", made)
        self.assertNotIn("older", made)

    def test_words_are_those_of_the_tree(self) -> None:
        (self.base / "own/b.c").write_text('#include "b.h"\n#ifdef HERE\nuint32_t a;\n#endif\n')
        rules = ('[[rewrite]]\nmatch = \'\\buint32_t\\b\'\nby = "u32"\n'
                 'needs = ["libibverbs/verbs.h", "newer"]\n'
                 '[[rewrite]]\nmatch = "int b"\nby = "int c"\nbelow = "elsewhere/"\n'
                 '[[rewrite]]\nmatch = "int b"\nby = "int d"\nneeds = ["gone.h", ""]\n')
        made = self.make(self.part_of(
            self.TOML.replace("[defined]\n", f"{rules}[defined]\nHERE = true\n") + self.STEP))
        self.assertIn('+#include "b.h"\n+u32 a;\n', made[1].read_text())
        self.assertIn("+int b;", made[1].read_text())

    def test_last_commit_puts_it_in_place_of_what_was_there(self) -> None:
        last = self.make(self.part_of(self.TOML + self.STEP))[2].read_text()
        self.assertIn("Subject: [PATCH 3/3] x: Replace it", last)
        self.assertIn("rename from providers/x/next/b.c\nrename to providers/x/b.c", last)
        self.assertIn("-old\n", last)
        self.assertIn("+new\n+last # here\n", last)
        self.assertNotIn("ours", last)

    def test_a_file_that_no_step_has_is_named(self) -> None:
        with self.assertRaisesRegex(LabError, r"x: no step has own/b\.c, own/b\.h"):
            self.make(self.part_of(self.TOML))

    def test_conditions_on_other_names_stay(self) -> None:
        text = ("#if defined(__x86_64__)\nA\n#ifdef OURS\nB\n#elif defined(THEIRS)\nC\n#else\nD\n"
                "#endif\n#ifndef OURS\nE\n#endif\n#endif\n")
        kept = "#if defined(__x86_64__)\nA\n"
        end = "#endif\n"
        names = {"OURS": True, "THEIRS": True}
        self.assertEqual(series_steps.reduced(text, names), f"{kept}B\n{end}")
        names = {"OURS": False, "THEIRS": True}
        self.assertEqual(series_steps.reduced(text, names), f"{kept}C\nE\n{end}")
        names = {"OURS": False, "THEIRS": False}
        self.assertEqual(series_steps.reduced(text, names), f"{kept}D\nE\n{end}")


class RootOfThisMachine:
    """Runs what is for a root here, with the folders where they are."""

    def run(self, argv: list[str], log: Path, what: str, binds: dict[Path, str],
            timeout: float = 0, env: dict[str, str] | None = None) -> None:
        argv = [*argv]
        for path, place in binds.items():
            argv[2] = argv[2].replace(place, str(path))
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        with log.open("a") as file:
            file.write(done.stdout + done.stderr)
        if done.returncode:
            raise LabError(f"{what} failed")


class CheckTest(Made):
    """Trying a series."""

    MAKEFILE = "all:\n\t@cat src/perftest_resources.c; ! grep -q broken src/perftest_resources.c\n"

    def check(self, *lines: str) -> series_check.Outcome:
        """Tries a series whose commits put these lines in place of the second, one by one."""
        self.files({"autogen.sh": "#!/bin/sh\n", "configure": "#!/bin/sh\n",
                    "Makefile": self.MAKEFILE,
                    **{program: "#!/bin/sh\n" for program in (
                        "ib_send_bw", "ib_write_lat", "ib_read_bw", "raw_ethernet_bw")}},
                   self.tree)
        for path in self.tree.iterdir():
            path.chmod(0o755)
        patches, before = {}, "two"
        for number, line in enumerate(lines, 1):
            patches[f"000{number}-a.patch"] = PATCH.replace("-two", f"-{before}").replace(
                "+TWO", f"+{line}")
            before = line
        part = self.part(patches)
        work = self.base / "work"
        work.mkdir()
        with mock.patch("lab.series_check.style", return_value=[]):
            return series_check.check_series(
                part, series.find_tree(self.tree, "perftest"), self.make(part),
                RootOfThisMachine(), work, self.base / "log")  # type: ignore[arg-type]

    def test_what_a_commit_adds_is_found_in_it(self) -> None:
        (self.tree / "src/perftest_resources.c").write_text(
            RESOURCES + "a.c:4:1: warning: an old one\n")
        outcome = self.check("fine", "a.c:7:1: warning: a new one")
        self.assertEqual([commit.findings for commit in outcome.commits],
                         [[], ["a.c: warning: a new one"]])
        self.assertEqual(outcome.tests, "ended well")

    def test_a_commit_that_does_not_build_is_named_though_the_next_one_does(self) -> None:
        outcome = self.check("broken", "mended")
        self.assertEqual([bool(commit.build) for commit in outcome.commits], [True, False])
        self.assertIn("building 0001-", outcome.commits[0].build[0])

    def test_tests_that_fail_are_a_finding(self) -> None:
        with mock.patch.dict(series_check.TESTS, {"perftest": "exit 1\n"}):
            outcome = self.check("another")
        self.assertEqual(outcome.tests, "FAILED: the project's own tests failed")
        with redirect_stdout(io.StringIO()):
            self.assertEqual(upstream.report(outcome), 1)

    def test_the_tree_stays_as_it_is(self) -> None:
        self.check("another")
        self.assertEqual((self.tree / "src/perftest_resources.c").read_text(), RESOURCES)


class CommandTest(unittest.TestCase):
    """The program, and the parts that there are."""

    def run_it(self, *argv: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                status = upstream.main(list(argv))
            except SystemExit as end:
                status = int(end.code or 0)
        return status, out.getvalue(), err.getvalue()

    def test_help_and_mistakes(self) -> None:
        self.assertIn("--tree FOLDER", self.run_it("--help")[1])
        self.assertIn("which part?", self.run_it()[2])
        self.assertIn("against which tree?", self.run_it("perftest-mana")[2])
        self.assertEqual(self.run_it("perftest-mana", "--tree", "/nowhere")[::2],
                         (1, "upstream: /nowhere is no folder\n"))
        self.assertIn("not 'NAME <MAIL>': me", self.run_it("perftest-mana", "--sign", "me")[2])

    def test_parts_are_listed(self) -> None:
        status, out, _ = self.run_it("--list")
        self.assertEqual(status, 0)
        self.assertEqual([line.split()[0] for line in out.splitlines()], series.part_names())

    def test_every_source_of_a_series_of_files_is_in_a_step(self) -> None:
        for name in series.part_names():
            part = series.read_part(name)
            if part.steps:
                put = set(series_steps.with_headers(
                    file for step in part.steps for file in step.files))
                self.assertEqual(series_steps.uncovered(part, put), [], name)

    def test_every_probe_of_the_driver_is_decided_for_the_tree(self) -> None:
        decided = series.read_part("linux-extension").settings["defined"]
        probes = {name for path in (ROOT / "kernel").glob("*.[ch]")
                  for name in re.findall(r"\bHAVE_[A-Z0-9_]+", path.read_text())}
        self.assertEqual(sorted(probes - set(decided)), [])

    def test_kept_patches_are_signed_off_by_nobody(self) -> None:
        for path in series.PARTS.glob("*/*.patch"):
            with self.subTest(path=path.name):
                self.assertNotIn("Signed-off-by", path.read_text())
                message = series.message_of(path.read_text())
                self.assertLessEqual(max(map(len, message.splitlines())), 75)

    def test_document_has_what_was_found(self) -> None:
        text = series_table.DOCUMENT.read_text()
        self.assertIn(series_table.BEGIN + series_table.table() + series_table.END, text)
        for name in series.part_names():
            self.assertIn(f"`{name}`", text)


if __name__ == "__main__":
    unittest.main()

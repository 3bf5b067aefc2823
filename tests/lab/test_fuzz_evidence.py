# SPDX-License-Identifier: Apache-2.0
"""The evidence of fuzz targets: pieces are added up, findings are not forgotten."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from lab import evidence_tables, fuzz_evidence  # noqa: E402
from lab.errors import LabError  # noqa: E402


def piece(seconds: float, findings: int = 0) -> fuzz_evidence.Piece:
    """A run of a target."""
    return fuzz_evidence.Piece(seconds, 1000, 50, findings)


class FuzzEvidenceTest(unittest.TestCase):
    """In a tree of its own."""

    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)
        self.folder = self.root / "evidence"
        (self.root / "tests/fuzz").mkdir(parents=True)
        (self.root / "tests/fuzz/a.cc").write_text("int a;\n")
        (self.root / "docs.md").write_text("no source\n")
        for words in (["init", "-q"], ["add", "."],
                      ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "t"]):
            subprocess.run(["git", "-C", self.root, *words], check=True)

    def add(self, of: str, one: fuzz_evidence.Piece) -> dict[str, object]:
        return fuzz_evidence.add(self.folder, "wqe", of, one, self.root)

    def test_pieces_of_the_same_sources_are_added_up(self) -> None:
        self.add("s1", piece(100))
        row = self.add("s1", piece(50.5))
        self.assertEqual((row["pieces"], row["cpu_seconds"], row["executions"]), (2, 150.5, 2000))
        self.add("s2", piece(10))
        sums = fuzz_evidence.read_all(self.folder)["wqe"]
        self.assertEqual(list(sums), ["s1", "s2"])
        self.assertEqual(fuzz_evidence.since_finding(sums), 160.5)

    def test_a_finding_starts_the_time_anew(self) -> None:
        self.add("s1", piece(100))
        self.add("s2", piece(7, findings=1))
        self.add("s3", piece(30))
        sums = fuzz_evidence.read_all(self.folder)["wqe"]
        self.assertEqual(fuzz_evidence.since_finding(sums), 30)
        self.add("s2", piece(100))  # the same sources: it is still there
        sums = fuzz_evidence.read_all(self.folder)["wqe"]
        self.assertEqual(fuzz_evidence.since_finding(sums), 0)

    def test_sources_are_what_targets_are_built_from(self) -> None:
        before = fuzz_evidence.sources(self.root)
        (self.root / "docs.md").write_text("changed\n")
        self.assertEqual(fuzz_evidence.sources(self.root), before)
        (self.root / "tests/fuzz/a.cc").write_text("int b;\n")
        self.assertNotEqual(fuzz_evidence.sources(self.root), before)

    def test_the_table_shows_each_target(self) -> None:
        self.add("s1", piece(120))
        lines = evidence_tables.fuzz(self.folder)
        self.assertEqual(len(lines), 3)
        self.assertTrue(lines[2].startswith("| `wqe` | 2.0 | 1 | 1000 | 0 | 2.0 min | `"))

    def test_what_is_no_evidence_is_told(self) -> None:
        self.folder.mkdir()
        (self.folder / "fuzz.wqe.json").write_text("{}")
        with self.assertRaises(LabError):
            fuzz_evidence.read_all(self.folder)


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""The evidence of long runs: pieces are added up, findings are not forgotten."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from lab import evidence_tables  # noqa: E402
from lab.errors import LabError  # noqa: E402
from lab.run_evidence import FUZZ, SIMULATION, Piece, add, since_finding  # noqa: E402


def piece(seconds: float, findings: int = 0) -> Piece:
    """A run of a fuzz target."""
    return Piece(seconds, findings, {"executions": 1000}, {"coverage": 50})


class RunEvidenceTest(unittest.TestCase):
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

    def add(self, of: str, one: Piece) -> dict[str, object]:
        return add(FUZZ.path_of("wqe", self.folder), of, one, self.root)

    def test_pieces_of_the_same_sources_are_added_up(self) -> None:
        self.add("s1", piece(100))
        row = self.add("s1", piece(50.5))
        self.assertEqual((row["pieces"], row["cpu_seconds"], row["executions"], row["coverage"]),
                         (2, 150.5, 2000, 50))
        self.add("s2", piece(10))
        sums = FUZZ.read_all(self.folder)["wqe"]
        self.assertEqual(list(sums), ["s1", "s2"])
        self.assertEqual(since_finding(sums), 160.5)

    def test_a_finding_starts_the_time_anew(self) -> None:
        self.add("s1", piece(100))
        self.add("s2", piece(7, findings=1))
        self.add("s3", piece(30))
        sums = FUZZ.read_all(self.folder)["wqe"]
        self.assertEqual(since_finding(sums), 30)
        self.add("s2", piece(100))  # the same sources: it is still there
        sums = FUZZ.read_all(self.folder)["wqe"]
        self.assertEqual(since_finding(sums), 0)

    def test_sources_are_what_targets_are_built_from(self) -> None:
        before = FUZZ.sources(self.root)
        (self.root / "docs.md").write_text("changed\n")
        self.assertEqual(FUZZ.sources(self.root), before)
        (self.root / "tests/fuzz/a.cc").write_text("int b;\n")
        self.assertNotEqual(FUZZ.sources(self.root), before)

    def test_the_table_shows_each_target(self) -> None:
        self.add("s1", piece(120))
        lines = evidence_tables.fuzz(self.folder)
        self.assertEqual(len(lines), 3)
        self.assertTrue(lines[2].startswith("| `wqe` | 2.0 | 1 | 1000 | 0 | 2.0 min | `"))

    def test_simulations_have_a_table_of_their_own(self) -> None:
        amounts = {"seeds": 100, "runs": 225, "operations": 9000}
        add(SIMULATION.path_of("sim_test", self.folder), "s1", Piece(60, 0, amounts, {}), self.root)
        lines = evidence_tables.simulation(self.folder)
        self.assertTrue(lines[2].startswith("| `sim_test` | 100 | 225 | 9000 | - | 0 | 1.0 | `"))
        self.assertEqual(len(evidence_tables.fuzz(self.folder)), 2)

    def test_what_is_no_evidence_is_told(self) -> None:
        self.folder.mkdir()
        (self.folder / "fuzz.wqe.json").write_text("{}")
        with self.assertRaises(LabError):
            FUZZ.read_all(self.folder)


class SimulateTest(unittest.TestCase):
    """tools/simulate reads what the simulations print."""

    def setUp(self) -> None:
        loader = importlib.machinery.SourceFileLoader("simulate", str(ROOT / "tools/simulate"))
        spec = importlib.util.spec_from_loader("simulate", loader)
        assert spec is not None
        self.simulate = importlib.util.module_from_spec(spec)
        sys.modules["simulate"] = self.simulate
        loader.exec_module(self.simulate)

    def test_a_summary_is_read(self) -> None:
        done = self.simulate.summary("x\n300 seeds, 675 runs, 55394 operations, 244670 frames, "
                                     "0 failures; 6.6 s\nruns with\n", 0, 5.0)
        self.assertEqual((done.seeds, done.runs, done.operations, done.failures),
                         (300, 675, 55394, 0))
        self.assertEqual(done.moves, 0)

    def test_moves_are_counted_wherever_they_stand(self) -> None:
        for said in ("9 seeds, 20 runs, 70 operations, 5 frames, 17 moves, 2 worn out, 0 failures; "
                     "1 s\n", "9 seeds, 70 operations, 17 moves, 3 datagrams, 0 failures; 1 s\n"):
            self.assertEqual(self.simulate.summary(said, 0, 1.0).moves, 17)
        self.assertEqual(self.simulate.summary("2 seeds, 70 operations, 0 failures; 1 s\n", 0,
                                               1.0).moves, 0)

    def test_a_process_that_failed_has_a_failure(self) -> None:
        done = self.simulate.summary("2 seeds, 70 operations, 0 failures; 1 s\n", 1, 1.0)
        self.assertEqual((done.runs, done.failures), (6, 1))

    def test_one_that_came_to_no_end_is_told(self) -> None:
        with self.assertRaises(LabError):
            self.simulate.summary("Aborted", -6, 1.0)


if __name__ == "__main__":
    unittest.main()

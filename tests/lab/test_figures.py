# SPDX-License-Identifier: Apache-2.0
"""Figures that people see: demo's table and its three lines, bench's ratios, the documents'."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import subprocess
import sys
import unittest
from pathlib import Path
from types import ModuleType
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from lab import bench, demo, perftest, progress, tuning  # noqa: E402
from lab.errors import LabError  # noqa: E402
from lab.guest import GuestSpec  # noqa: E402


def tool(name: str) -> ModuleType:
    """A program of tools/ as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "tools" / name))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def bandwidth(*rates: float, first: int = 2) -> str:
    """The end of ib_write_bw's output: sizes that double, with rates in millions of messages. A
    rate of 0 is a row that perftest could not time."""
    return " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n" \
        + "".join(f" {first << i}          5000   {rate:.2f}   {rate * (first << i):.2f}   "
                  f"{rate:.6f}\n" for i, rate in enumerate(rates)) + "-----\n"


class Pairs:
    """perftest in guests, as demo and bench call it: answers by turns, and what was asked."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, server: object, client: object, program: str, *options: str,
                 **rest: object) -> str:
        self.asked.append((program, *options))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class PerftestTest(unittest.TestCase):
    """Rows that perftest could not time, in what demo and bench print."""

    TYPICAL = " 8       1000          4.97           84.40        6.08     \t       7.00    " \
        "\t1.10   \t\t9.00\t\t   50.00\n"

    def setUp(self) -> None:
        self.said: list[str] = []
        for module in (perftest, demo, bench, progress):
            patch = mock.patch.object(module, "say", self.said.append)
            patch.start()
            self.addCleanup(patch.stop)

    def demo(self, *answers: str, options: tuple[str, ...] = ("-F",)) -> tuple[str, Pairs]:
        """demo's table, from these answers; the first is the warm-up's."""
        pairs = Pairs(*answers)
        with mock.patch.object(demo, "perftest", pairs):
            return demo.measure(mock.Mock(), mock.Mock(), *options), pairs

    def test_rows_are_those_of_numbers(self) -> None:
        self.assertEqual(perftest.table_rows("a 1 2 3 4\n" + bandwidth(0.5)),
                         [[2, 5000, 0.5, 1, 0.5]])
        self.assertEqual(len(perftest.table_rows(self.TYPICAL)[0]), 9)

    def test_small_messages_are_timed_though_their_bandwidth_is_zero(self) -> None:
        self.assertTrue(perftest.is_timed([2, 5000, 0.0, 0.0, 0.000123]))
        self.assertFalse(perftest.is_timed([2, 5000, 0.0, 0.0, 0.0]))

    def test_latency_that_is_infinite_is_not_timed(self) -> None:
        rows = perftest.table_rows(" 8 1000 inf inf inf inf -nan inf inf\n" + self.TYPICAL)
        self.assertEqual([perftest.is_timed(row) for row in rows], [False, True])

    def test_row_that_was_not_timed_runs_again_and_it_is_said(self) -> None:
        pairs = Pairs(bandwidth(0), bandwidth(0), bandwidth(0.5))
        line = perftest.timed_line("a test", lambda: pairs(None, None, "x"))
        self.assertEqual(perftest.row_of(line or ""), [2, 5000, 0.5, 1, 0.5])
        self.assertEqual(len(pairs.asked), 3)
        self.assertEqual(self.said, ["a test: perftest could not time the CPU's counter, so it "
                                     "runs again"] * 2)

    def test_row_that_never_is_timed_is_given_up(self) -> None:
        pairs = Pairs(bandwidth(0))
        self.assertIsNone(perftest.timed_line("a test", lambda: pairs(None, None, "x")))
        self.assertEqual(len(pairs.asked), perftest.TRIES)
        self.assertIn("makes no figure", self.said[-1])

    def test_demo_warms_up_and_says_nothing_of_rows_that_were_timed(self) -> None:
        table, pairs = self.demo(bandwidth(0.1), bandwidth(0.5, 0.4))
        self.assertEqual(table, bandwidth(0.5, 0.4))
        self.assertEqual(pairs.asked, [("ib_write_bw", *demo.WARM_UP), ("ib_write_bw", "-a", "-F")])
        self.assertEqual([line for line in self.said if "perftest" in line], [])

    def test_demo_measures_a_row_again_and_says_so(self) -> None:
        table, pairs = self.demo(bandwidth(0.1), bandwidth(0.5, 0, 0.3), bandwidth(0.4, first=4),
                                 options=("-F", "-n", "100"))
        self.assertEqual(table, bandwidth(0.5, 0.4, 0.3) + "measured again, since perftest could "
                         "not time the CPU's counter: 4\n")
        self.assertEqual(pairs.asked[2:], [("ib_write_bw", "-s", "4", "-F", "-n", "100")])

    def test_demo_on_a_machine_that_cannot_time_ends(self) -> None:
        table, pairs = self.demo(bandwidth(*[0] * 20))
        self.assertEqual(len(pairs.asked), 2 + demo.MOST_REPEATS)
        self.assertIn("without a figure, since perftest could not time the CPU's counter: 2, 4, ",
                      table)
        said = demo.summary(perftest.table_rows(table), [GuestSpec()] * 2)
        self.assertIn("Reached: no figure: this machine is too busy", said[0])

    def test_demo_ends_with_what_was_reached_beside_what_and_what_is_next(self) -> None:
        rows = perftest.table_rows(bandwidth(0.25, first=2) + bandwidth(0, first=1 << 19)
                                   + bandwidth(0.01, first=1 << 20))
        with mock.patch.object(demo, "copy_speed", lambda size: size / 1e4):
            said = demo.summary(rows, [GuestSpec()] * 2)
            ours = demo.summary(rows, [GuestSpec(driver="ours", provider="ours")] * 2)
        self.assertEqual(len(said), 3)
        self.assertRegex(said[0], r"^Reached: 88 Gb/s with writes of 1 MiB, 250,000 writes of 2 "
                         r"bytes a second \(trixie with stock driver and stock provider\)\.$")
        self.assertRegex(said[1], "^Compare: memcpy of 1 MiB on this machine, measured now: 105 "
                         rf"Gb/s; Soft-RoCE .*: {demo.SOFT_ROCE} Gb/s \(docs/benchmarks.md\)")
        self.assertRegex(said[2], "^Next, .*: ./tools/manalab demo --driver ours --provider ours$")
        self.assertIn("(trixie with our driver and our provider)", ours[0])
        self.assertIn("bench --driver ours --provider ours --beside-stock", ours[2])

    def test_demo_names_the_soft_roce_of_the_document(self) -> None:
        document = (ROOT / "docs/benchmarks.md").read_text()
        row = re.search(r"^\| Soft-RoCE write \|(.*)\|$", document, re.M)
        assert row is not None
        cells = [float(cell) for cell in row[1].split("|") if cell.strip() != "-"]
        self.assertEqual(max(cells), demo.SOFT_ROCE)

    def test_speed_of_memcpy_is_of_this_world(self) -> None:
        with mock.patch.object(demo, "COPY_SECONDS", 0.001):
            self.assertTrue(1 < demo.copy_speed(1 << 20) < 100000)


class TuningTest(unittest.TestCase):
    """What bench --tuning makes of rounds."""

    def test_each_round_is_beside_its_own_and_what_was_not_timed_counts_for_none(self) -> None:
        figure = tuning.FIGURES[0]
        rounds = [{tuning.USUAL: {figure: usual}, "way": {figure: value}}
                  for usual, value in ((10.0, 20.0), (20.0, 10.0), (None, 5.0), (4.0, 4.0))]
        self.assertEqual(tuning.ratios(rounds, "way", figure), [2.0, 0.5, 1.0])
        text = tuning.table({"rounds": rounds, "ways": [tuning.USUAL, "way"]})
        self.assertIn("| way | 1.00 (0.50 to 2.00) | - |", text)
        self.assertIn("| as it is | 10.00 (4.00 to 20.00) | - |", text)

    def test_all_is_as_it_was_when_a_way_ends(self) -> None:
        lab = mock.Mock()
        lab.guests = [mock.Mock()]
        lab.guests[0].run.return_value.stdout = "1500\n"
        lab.guests[0].interface.return_value = "eth0"
        with tuning.large_mtu(lab):
            lab.guests[0].run.assert_called_with("ip link set eth0 mtu 9000", timeout=30)
        lab.guests[0].run.assert_called_with("ip link set eth0 mtu 1500", timeout=30)


class BenchTest(unittest.TestCase):
    """What bench makes of rounds."""

    def setUp(self) -> None:
        patch = mock.patch.object(bench, "say")
        patch.start()
        self.addCleanup(patch.stop)

    def routes(self, *labels: str) -> list[bench.Route]:
        return [bench.Route(label, mock.Mock(), mock.Mock(), "a") for label in labels]

    def test_each_program_is_warmed_up_once_on_each_route(self) -> None:
        pairs, quick = Pairs(bandwidth(0.5)), bench.Bench(quick=True)
        with mock.patch.object(bench, "perftest", pairs):
            for _ in range(2):
                quick.message_rate(self.routes("a", "b"))
        sizes = [asked[asked.index("-s") + 1] for asked in pairs.asked]
        self.assertEqual(sizes, [str(max(bench.SIZES))] * 2 + ["8"] * 4 * bench.ROUNDS)

    def test_bandwidth_that_rounds_to_zero_is_that_of_the_rate(self) -> None:
        with mock.patch.object(bench, "perftest_row", lambda *_: [8, 1, 0, 0.0, 0.000125]), \
                mock.patch.object(bench.Bench, "_warm_up"):
            found = bench.Bench(quick=True).bandwidth(self.routes("a"), "ib_read_bw")
        self.assertEqual(found["a"][8], [8e-6])

    def test_round_without_a_time_on_one_route_counts_for_none(self) -> None:
        measured = {"a": [1.0, None, 3.0], "b": [4.0, 5.0, 6.0]}

        def row(route: bench.Route, *_: str) -> list[float] | None:
            value = measured[route.label].pop(0)
            return None if value is None else [8, 1, 0, 0, value]

        with mock.patch.object(bench, "perftest_row", row), \
                mock.patch.object(bench.Bench, "_warm_up"):
            rates = bench.Bench(quick=True).message_rate(self.routes("a", "b"))
        self.assertEqual(rates, {"a": [1e6, 3e6], "b": [4e6, 6e6]})

    def test_comparison_that_fails_is_left_out_and_ours_is_not(self) -> None:
        failing = mock.Mock(side_effect=LabError("g1: ib_write_bw ended with status 1"))
        for slow in (True, False):
            route = bench.Route("a", mock.Mock(), mock.Mock(), "a", slow=slow)
            with mock.patch.object(bench, "perftest", failing):
                if slow:
                    rates = bench.Bench(quick=True).message_rate([route])
                    self.assertEqual(rates, {"a": []})
                else:
                    with self.assertRaises(LabError):
                        bench.Bench(quick=True).message_rate([route])

    def test_figures_of_the_documents_take_what_bench_saves(self) -> None:
        figures = tool("figures")
        path = {"bandwidth_gbps": {"ib_write_bw": {"65536": 123.4}},
                "latency_us": {"ib_write_lat": {"min": 1.0, "p50": 2.0, "p99": 3, "p99.9": 4}},
                "writes_per_second": 1e6}
        data = figures.taken({
            "commit": "abc", "time": "2026-11-25T01:02:03Z", "memcpy_gbps": {"65536": 500.0},
            "guests": [{"suite": "trixie", "cpus": 1, "accel": "tcg", "kernel": "6.12",
                        "driver": "ours", "provider": "ours"}] * 2,
            "paths": {"MANA": path, "MANA, all stock": path}}, "a machine")
        text = figures.tables(data)
        for words in ("a machine", "Commit abc, 2026-11-25", "| ours write | 123 |",
                      "| ours write | 1 | 2 | 3 | 4 |", "| ours | 1,000,000 |",
                      "| stock write | 123 |",
                      "| host memcpy | 500 |"):
            self.assertIn(words, text)
        self.assertIn("MANA, ours", figures.plot(data))

    def test_ratio_has_the_spread_of_its_rounds(self) -> None:
        found = bench.Ratios()
        found.add("x", [10.0, 30.0], [10.0, 15.0])
        self.assertEqual(found.found, {"x": {"value": 2, "low": 1, "high": 2, "rounds": 2}})

    def test_what_was_never_timed_makes_no_figure_and_no_ratio(self) -> None:
        empty = {"bandwidth_gbps": {"ib_write_bw": {}, "ib_write_bw, lists of 16": {}},
                 "latency_us": {}, "writes_per_second": []}
        path = bench.figures(empty) | {"rounds": empty}
        results = {"paths": {"MANA": path, bench.STOCK: path, "Soft-RoCE": path},
                   "memcpy_gbps": {1 << 20: 100.0}}
        results["ratios"] = bench.ratios(results)
        self.assertEqual(results["ratios"], {})
        with mock.patch("sys.stdout"):
            bench.print_tables(results)

    def test_ratios_are_of_what_was_measured_in_the_same_run(self) -> None:
        def path(gbps: list[float], latency: list[float]) -> dict[str, object]:
            rounds = {"bandwidth_gbps": {"ib_write_bw": {65536: gbps, 1 << 20: gbps}},
                      "latency_us": {"ib_write_lat": {"p50": latency}},
                      "writes_per_second": [value * 10 for value in gbps]}
            return bench.figures(rounds) | {"rounds": rounds}

        found = bench.ratios({"memcpy_gbps": {1 << 20: 40.0}, "paths": {
            "MANA": path([10.0, 20.0], [2.0, 2.0]), bench.STOCK: path([5.0, 5.0], [4.0, 6.0])}})
        self.assertEqual(found["write 1M, share of host memcpy"],
                         {"value": 0.5, "low": 0.25, "high": 0.5, "rounds": 2})
        self.assertEqual(found["ib_write_bw 64K, times stock"]["value"], 4)
        self.assertEqual(found["ib_write_lat p50, times faster than stock"],
                         {"value": 2.5, "low": 2, "high": 3, "rounds": 2})
        self.assertEqual(found["writes per second, times stock"]["high"], 4)


class TurnsTest(unittest.TestCase):
    """tools/turns: what is worse than the old build's own spread is named."""

    turns = tool("turns")

    def rows(self, old: list[float], new: list[float]) -> dict[str, object]:
        """`old`: of two runs in each round."""
        times = {"old": iter(old), "new": iter(new)}
        rows = self.turns.compare("old", "new", len(new),
                                  lambda program: {"x": next(times[program]), program: 1.0})
        return {row.name: row for row in rows}

    def test_median_above_each_round_of_the_old_one_is_worse(self) -> None:
        row = self.rows([100, 110, 100, 90, 100, 100], [111, 112, 113])["x"]
        self.assertEqual((row.old_ns, row.ratio, row.lowest, row.highest), (100, 1.12, 0.9, 1.1))
        self.assertTrue(row.worse)

    def test_median_within_the_spread_of_the_old_one_is_not(self) -> None:
        self.assertFalse(self.rows([100, 113, 100, 90, 100, 100], [111, 112, 113])["x"].worse)

    def test_what_got_faster_is_not_worse_where_the_old_one_did_too(self) -> None:
        self.assertFalse(self.rows([100, 90, 100, 90, 100, 90], [95, 95, 95])["x"].worse)

    def test_benchmarks_that_one_lacks_are_left_out(self) -> None:
        self.assertEqual(list(self.rows([100, 100], [100])), ["x"])

    def test_program_that_fails_is_named(self) -> None:
        done = subprocess.run([str(ROOT / "tools/turns"), "/bin/false", "/bin/true"], text=True,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("turns: Command '['/bin/false'", done.stderr)


if __name__ == "__main__":
    unittest.main()

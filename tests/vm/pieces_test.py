#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the parsers of the guest tests' areas, and of their command line; needs no guests."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import pyverbs_table  # noqa: E402
from areas import dpdk, errors, neighbours, pyverbs  # noqa: E402
from harness import Area, CaseFailed, Context  # noqa: E402
from harness_test import FakeLab  # noqa: E402
from programs import perftest, rows_of  # noqa: E402
from run import families  # noqa: E402

from lab.guest import Result  # noqa: E402


class PiecesTest(unittest.TestCase):
    """Parsers of the areas."""

    def test_an_area_of_a_layout_that_nobody_boots_is_refused(self) -> None:
        """Its cases would never run, and nobody would say so."""
        with self.assertRaisesRegex(ValueError, "'trio' is no layout: pair, "):
            Area("demo", layout="trio")

    def test_rows_of_perftest(self) -> None:
        text = """ #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]
 2          60             0.50               0.43               0.225456
 65536      60             9000.10            8800.20            0.140803
---------------------------------------------------------------------------------------
"""
        self.assertEqual([row[0] for row in rows_of(text)], ["2", "65536"])

    def test_a_table_of_zeros_fails_unless_perftest_knew_no_clock(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            context = Context(FakeLab(Path(name), ("forky", "forky")), "forky")
            client = unittest.mock.Mock()
            for said, good in (("Correlation coefficient r^2: 0.886816 < 0.9", True), ("", False)):
                client.run.return_value = Result(" 65536  200  0.00  0.00  0.000000\n", said, 0)
                context.begin(10)
                run = partial(perftest, context, "ib_write_bw", server=unittest.mock.Mock(),
                              client=client)
                if good:
                    self.assertEqual(len(run()), 1)
                    self.assertIn("could not tell", " ".join(context.notes))
                else:
                    self.assertRaisesRegex(CaseFailed, "nothing measured", run)

    def test_completions_are_compared_in_order(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            peer = Context(FakeLab(Path(name), ("forky", "forky")), "forky").a
            plan = errors.wanted(peer, (1, 0x162), 4)
            good = ("client send 0 status 0 vendor 0\nclient send 1 status 10 vendor 0x162\n"
                    "client send 2 status 5 vendor 0x1c7\nclient send 3 status 5 vendor 0xfff\n")
            errors.compare(peer, "client", "send", good, plan)
            for bad in (good.replace("status 10", "status 12"), good.replace("send 3", "send 2"),
                        good.replace("0x162", "0x163"), good[:-40]):
                with self.assertRaises(CaseFailed):
                    errors.compare(peer, "client", "send", bad, plan)

    def test_the_median_of_pairs_decides(self) -> None:
        def phase(messages: int) -> neighbours.Phase:
            return neighbours.Phase(messages, 1.0, neighbours.Used(0.4, 0.5))

        ratios = (0.7, 0.95, 0.79, 0.9, 0.81)
        pairs = [(phase(round(1000 * ratio)), phase(1000)) for ratio in ratios]
        self.assertEqual(neighbours.median_ratio(pairs), 0.81)
        neighbours.judge(pairs)
        pairs[4] = (phase(799), phase(1000))
        with self.assertRaisesRegex(CaseFailed, "0.799 .* below 0.8"):
            neighbours.judge(pairs)

    def test_a_control_that_burns_less_is_no_control(self) -> None:
        used = neighbours.Used(0.4, 0.5)
        neighbours.check_burnt(used, neighbours.Used(0.38, 0.49))
        neighbours.check_burnt(used, neighbours.Used(0.6, 0.7))
        with self.assertRaisesRegex(CaseFailed, "burnt 0.75 CPUs beside 0.90"):
            neighbours.check_burnt(used, neighbours.Used(0.3, 0.45))

    def test_what_a_hostile_client_has_done(self) -> None:
        first = '{"rounds": 3, "frames": 640}\n'
        self.assertEqual(neighbours.last_line(first + '{"rounds": 4, "fra'),
                         {"rounds": 3, "frames": 640})
        self.assertEqual(neighbours.last_line("{"), {})

    def test_figures_of_testpmd(self) -> None:
        text = """
  ------- Forward Stats for RX Port= 0/Queue= 0 -> TX Port= 0/Queue= 0 -------
  RX-packets: 5              TX-packets: 4              TX-dropped: 0

  ------- Forward Stats for RX Port= 0/Queue= 3 -> TX Port= 0/Queue= 3 -------
  RX-packets: 7              TX-packets: 7              TX-dropped: 0

  ---------------------- Forward statistics for port 0  ----------------------
  RX-packets: 12             RX-dropped: 0             RX-total: 12
  TX-packets: 11             TX-dropped: 0             TX-total: 11
  ----------------------------------------------------------------------------

  +++++++++++++++ Accumulated forward statistics for all ports+++++++++++++++
  RX-packets: 12             RX-dropped: 0             RX-total: 12
  TX-packets: 11             TX-dropped: 0             TX-total: 11
"""
        done = dpdk.parse(text)
        self.assertEqual((done.received, done.sent), (12, 11))
        self.assertEqual(done.queues, {0: (5, 4), 3: (7, 7)})
        with self.assertRaisesRegex(CaseFailed, "no sum of RX packets"):
            dpdk.parse("EAL: Error")

    def test_statuses_of_trixie_differ(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            context = Context(FakeLab(Path(name)), "mixed")
            self.assertEqual(errors.wanted(context.a, (0, 0x1c6), 1), [(21, (0x1c6,))])
            self.assertEqual(errors.wanted(context.b, (0, 0x1c6), 1), [(12, (0x1c6,))])

    def test_backports_have_the_provider_of_their_release(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            context = Context(FakeLab(Path(name), ("trixie-backports", "forky")), "mixed")
            self.assertEqual((context.a.suite, context.a.release), ("trixie-backports", "trixie"))
            self.assertEqual(errors.wanted(context.a, (0, 0x1c6), 1), [(21, (0x1c6,))])

    def test_our_provider_has_the_same_statuses_everywhere(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            options = argparse.Namespace(driver="ours", provider="ours", ext="on")
            context = Context(FakeLab(Path(name)), "mixed", options)
            for peer in (context.a, context.b):
                self.assertEqual(errors.wanted(peer, (0, 0x1c6), 2), [(12, ()), (5, ())])

    def test_an_area_that_needs_ours_is_skipped_without(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            for sides, lack in ((("stock", "ours", "on"), ["driver"]), (("ours", "ours", "on"), []),
                                (("ours", "stock", "off"), ["provider", "ext"])):
                options = argparse.Namespace(**dict(zip(("driver", "provider", "ext"), sides)))
                context = Context(FakeLab(Path(name)), "mixed", options)
                self.assertEqual([side for side in ("driver", "provider", "ext")
                                  if not context.has(side)], lack)

    def test_results_of_python_tests(self) -> None:
        text = """test_a (tests.test_pd.PDTest.test_a)
Does a thing ... ok
test_b (tests.test_pd.PDTest.test_b) ... some noise
skipped 'no such "verb"'
test_c (tests.test_pd.PDTest.test_c)
Does c ... ERROR
test_d (tests.test_pd.PDTest.test_d) ... FAIL
test_f (tests.test_pd.PDTest.test_f) ... Player active got: RDMA_CM_EVENT_CONNECT_ERROR
skipped 'SkipTest occurred on passive side'
test_e (tests.test_pd.PDTest.test_e)
======================================================================
ERROR: test_c (tests.test_pd.PDTest.test_c)
Does c
----------------------------------------------------------------------
Traceback (most recent call last):
  File "pd.py", line 1, in <module>
pyverbs.pyverbs_error.PyverbsRDMAError: Failed to query QP. Errno: 95, Operation not supported

======================================================================
FAIL: test_d (tests.test_pd.PDTest.test_d)
----------------------------------------------------------------------
Traceback (most recent call last):
AssertionError: 1 != 2

----------------------------------------------------------------------
Ran 4 tests in 0.003s
"""
        outcome = pyverbs.parse(text)
        self.assertEqual(outcome.results, {
            "test_pd.PDTest.test_a": "ok", "test_pd.PDTest.test_b": "skipped",
            "test_pd.PDTest.test_c": "failed", "test_pd.PDTest.test_d": "failed",
            "test_pd.PDTest.test_f": "skipped"})
        self.assertIn("Errno: 95", outcome.words["test_pd.PDTest.test_c"])
        self.assertEqual(outcome.words["test_pd.PDTest.test_d"], "AssertionError: 1 != 2")

    def test_words_of_python_tests_name_line_and_thread(self) -> None:
        text = """test_a (tests.test_x.X.test_a) ... FAIL
test_b (tests.test_x.X.test_b) ... Player active got: Failed to bind. Errno: 19, No such device
Player passive got: Failed to listen. Errno: 19, No such device
ERROR

======================================================================
FAIL: test_a (tests.test_x.X.test_a)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/usr/share/doc/rdma-core/tests/test_x.py", line 9, in test_a
    self.verify(port)
    ~~~~~~~~~~~^^^^^^
  File "/usr/share/doc/rdma-core/tests/test_x.py", line 7, in verify
    assert port.size > 4
           ^^^^^^^^^^^^^
AssertionError

======================================================================
ERROR: test_b (tests.test_x.X.test_b)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/usr/share/doc/rdma-core/tests/test_x.py", line 3, in test_b
    raise(res)
Exception: Exception in active/passive side occurred

----------------------------------------------------------------------
Ran 2 tests in 0.003s
"""
        outcome = pyverbs.parse(text)
        self.assertEqual(outcome.words, {
            "test_x.X.test_a": "assert port.size > 4: AssertionError",
            "test_x.X.test_b": "Exception: Exception in active/passive side occurred; "
                               "Failed to bind. Errno: 19, No such device; "
                               "Failed to listen. Errno: 19, No such device"})

    def test_a_known_test_that_fails_in_another_way_is_not_excused(self) -> None:
        test = "test_qp.QPTest.test_query_rc_qp"
        known = "PyverbsRDMAError: Failed to query QP. Errno: 95, Operation not supported"
        self.assertIsNotNone(pyverbs_table.reason("forky", test, known))
        for words in (known.replace("95", "5"), "AssertionError", ""):
            self.assertIsNone(pyverbs_table.reason("forky", test, words), words)
        self.assertIsNone(pyverbs_table.reason("forky", "test_pd.PDTest.test_new", known))
        self.assertIsNone(pyverbs_table.reason("bookworm", test, known))

    def test_what_keeps_writing_finds_what_is_lost(self) -> None:
        program = [sys.executable, "-B", HERE / "keep_writing.py"]
        with tempfile.TemporaryDirectory(dir=HERE) as name:
            path = Path(name) / "kept"
            with subprocess.Popen([*program, "write", path], stdin=subprocess.PIPE, text=True,
                                  stdout=subprocess.PIPE) as writer:
                assert writer.stdin is not None and writer.stdout is not None
                passes = [0]
                while not all(passes):
                    print("again", file=writer.stdin, flush=True)
                    words = writer.stdout.readline().split()
                    passes = [int(word) for word in words[3:7]]
                self.assertEqual(words[7:], ["answer", "again"])
                said, _ = writer.communicate(timeout=60)
            self.assertTrue(said.startswith("compared 192 blocks of passes"), said)
            last = said.split()[-4:]
            check = partial(subprocess.run, capture_output=True, text=True, check=False)
            done = check([*program, "check", path, *last])
            self.assertEqual(done.stdout, "checked 192 blocks, 0 of later passes\n", done.stderr)
            later = [*last[:3], str(int(last[3]) + 1)]
            self.assertIn(f"is of pass {last[3]}, and whole; pass {later[3]} was synced",
                          check([*program, "check", path, *later]).stderr)
            data = bytearray(path.read_bytes())
            for at, status in ((5000, 0), (25000, 1)):  # what was being written may be half there
                data[at] ^= 1
                path.write_bytes(data)
                self.assertEqual(check([*program, "check", path, *last]).returncode, status)

    def test_list_names_cases_by_pair_driver_provider_and_area(self) -> None:
        done = subprocess.run([sys.executable, HERE / "run.py", "forky", "cm", "verify", "--list"],
                              capture_output=True, text=True, timeout=60, check=True)
        self.assertIn("forky.stock.stock.cm: rping -V, the first guest serves "
                      "(forky, trixie-backports, newest only)", done.stdout)
        self.assertIn("forky.stock.stock.verify: PSN wraps at 2^24", done.stdout)

    def test_a_family_is_all_areas_whose_names_begin_alike(self) -> None:
        self.assertEqual(families(("cm", "kill", "kill_manad", "programs_a", "programs_b",
                                   "uverbs_fuzz")), {"programs": ("programs_a", "programs_b")})
        done = subprocess.run([sys.executable, HERE / "run.py", "trixie", "programs_fio",
                               "programs", "--list", "--long"], capture_output=True, text=True,
                              timeout=60, check=True)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), len(set(lines)))
        areas = {line.split(":")[0].split(".")[-1] for line in lines}
        self.assertEqual(areas, {path.stem for path in (HERE / "areas").glob("programs_*.py")})

    def test_bad_options_are_one_line(self) -> None:
        for words in (["forky"], ["bullseye", "rdma"], ["forky", "rdma", "--case", "("],
                      ["forky", "rdma", "--rounds", "0"], ["forky", "rdma", "--manad", "/none"]):
            done = subprocess.run([sys.executable, HERE / "run.py", *words],
                                  capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn("run.py: error: ", done.stderr.splitlines()[-1])

    def test_no_case_chosen_is_an_error(self) -> None:
        done = subprocess.run([sys.executable, HERE / "run.py", "forky", "rdma", "--case", "xyzzy"],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stderr.strip()),
                         (2, "run.py: no case matches xyzzy"))


if __name__ == "__main__":
    unittest.main()

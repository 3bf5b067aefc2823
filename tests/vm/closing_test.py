#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of what the guest tests' harness takes for left behind after an area, with a lab that is
not there."""

from __future__ import annotations

import json
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import harness  # noqa: E402
from harness import Area, Context, Runner, Tally  # noqa: E402
from harness_test import FakeLab  # noqa: E402

from lab.guest import Result  # noqa: E402

CLEAN = r"^ok 2 - .*nothing left behind"
LEFT = r"^not ok 2 - .*: left behind in manad: g0n0: {}$"


class ClosingTest(unittest.TestCase):
    """What the last check of an area says."""

    def setUp(self) -> None:
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.folder = Path(temp.name)
        self.lab = FakeLab(self.folder)
        self.manad = self.lab.manads[0]

    def pool(self, *users: int) -> None:
        """CQs of the first guest's core, with so many users each, and one of a program."""
        cqs: list[dict[str, Any]] = [
            {"ifname": "mana_0", "cqn": number, "users": count, "comm": "ib_core"}
            for number, count in enumerate(users)]
        cqs.append({"ifname": "mana_0", "cqn": 9, "users": 0, "pid": 7, "comm": "ib_write_bw"})
        self.lab.guests[0].answers[harness.LIST_CQS] = Result(
            f"mana_0 004d:41ff:fe00:0000\nrxe0 52aa:00ff:fe01:0203\n{json.dumps(cqs)}\n", "", 0)

    def closing(self, qps: int = 1, cqs: int = 4, pool: tuple[int, ...] = ()) -> str:
        """The last check of an area after which there are so many queues."""
        lines: list[str] = []

        def case(_context: Context) -> None:
            self.manad.qps, self.manad.cqs = qps, cqs
            if pool:
                self.pool(*pool)

        area = Area("demo")
        area.add("changes", case)
        runner = Runner(Context(self.lab, "mixed"), Tally(), lambda: self.folder / "kept",
                        out=lines.append)
        runner.start()
        with unittest.mock.patch.object(harness, "CLEAN_PATIENCE", 0.1):
            runner.run_area(area, area.cases)
        return next(line for line in lines if harness.CLOSING in line)

    def test_objects_left_behind_in_manad_are_found(self) -> None:
        self.assertRegex(self.closing(qps=3), LEFT.format("qps 1 -> 3"))

    def test_a_cq_of_the_cores_pool_may_go_with_its_device(self) -> None:
        self.manad.cqs = 5
        self.pool(2, 0)
        self.assertRegex(self.closing(cqs=4, pool=(2,)), CLEAN)

    def test_cqs_of_the_cores_pool_may_come(self) -> None:
        self.pool(2)
        self.assertRegex(self.closing(cqs=6, pool=(2, 0, 0)), CLEAN)

    def test_a_cq_that_is_not_of_the_pool_is_left_behind(self) -> None:
        self.pool(2)
        self.assertRegex(self.closing(cqs=6, pool=(2, 0)), LEFT.format("cqs 4 -> 5"))

    def test_a_cq_of_the_pool_that_is_in_use_is_left_behind(self) -> None:
        self.pool(2)
        self.assertRegex(self.closing(cqs=5, pool=(2, 1)), LEFT.format("cqs 4 -> 5"))


if __name__ == "__main__":
    unittest.main()

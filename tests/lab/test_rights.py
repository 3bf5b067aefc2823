# SPDX-License-Identifier: Apache-2.0
"""The rights that the lab gives to manad, and how they are looked at."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from lab import rights  # noqa: E402
from lab.errors import LabError  # noqa: E402


class RightsTest(unittest.TestCase):
    """manad as its package starts it."""

    STATUS = ("Name:\tnic-a\nUid:\t61234\t61234\t61234\t61234\n"
              "Gid:\t61234\t61234\t61234\t61234\nCapInh:\t0000000000000000\n"
              "CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n"
              "CapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\n"
              "Seccomp:\t2\n")
    USER = rights.User(61234, 61234)

    def test_a_thread_without_rights_is_right(self) -> None:
        self.assertEqual(rights.wrong_rights(self.STATUS, self.USER), [])

    def test_each_right_too_many_is_found(self) -> None:
        for old, new, words in (
                ("CapEff:\t0000000000000000", "CapEff:\t0000000000001000",
                 "CapEff is 0000000000001000, not 0000000000000000"),
                ("CapBnd:\t0000000000000000", "CapBnd:\t000001ffffffffff",
                 "CapBnd is 000001ffffffffff, not 0000000000000000"),
                ("NoNewPrivs:\t1", "NoNewPrivs:\t0", "NoNewPrivs is 0, not 1"),
                ("Seccomp:\t2\n", "Seccomp:\t0\n", "Seccomp is 0, not 2"),
                ("Seccomp:\t2\n", "", "Seccomp is not there, not 2"),
                ("Uid:\t61234\t61234", "Uid:\t61234\t0",
                 "Uid is 61234 0 61234 61234, not 61234 61234 61234 61234")):
            with self.subTest(new):
                self.assertEqual(rights.wrong_rights(self.STATUS.replace(old, new), self.USER),
                                 [words])

    def test_what_a_drop_in_grants_is_in_the_bounding_set_alone(self) -> None:
        user = rights.User(61234, 61234, (), ("net_admin",))
        granted = self.STATUS.replace("CapBnd:\t0000000000000000", "CapBnd:\t0000000000001000")
        self.assertEqual(rights.wrong_rights(granted, user), [])
        self.assertEqual(len(rights.wrong_rights(self.STATUS, user)), 1)

    def test_what_the_unit_sets_is_what_the_lab_sets(self) -> None:
        unit = (ROOT / "debian" / "manad@.service").read_text()
        self.assertIn(f"\nUMask={rights.UMASK:04o}\n", unit)
        self.assertIn(f"\nLimitNOFILE={rights.FILES}\n", unit)
        self.assertIn(f"\nSupplementaryGroups={rights.GROUP}\n", unit)
        self.assertIn(f" --socket-access :{rights.GROUP}:0660 ", unit)
        for name in rights.CAPABILITIES:
            drop_ins = "".join(path.read_text()
                               for path in (ROOT / "debian" / "examples").iterdir())
            self.assertIn(f"AmbientCapabilities=CAP_{name.upper()}\n", drop_ins)

    @unittest.skipUnless(os.geteuid() == 0, "only root can become another user")
    def test_a_program_has_these_rights_and_no_others(self) -> None:
        for granted, mask in (((), 0), (("net_admin",), 1 << 12)):
            user = rights.find_user("61234", granted)
            done = subprocess.run([*user.words(), "cat", "/proc/self/status"], check=True,
                                  capture_output=True, text=True)
            wrong = rights.wrong_rights(done.stdout, rights.User(61234, 61234, (), granted))
            # No filter yet, and the capabilities that manad gives up when it is ready.
            wanted = [f"{name} is {mask:016x}, not {0:016x}" for name in rights.SETS if mask]
            self.assertEqual(wrong, [*wanted, "Seccomp is 0, not 2"])

    def test_nobody_else_and_not_root(self) -> None:
        for name in ("root", "0", "there-is-no-such-user"):
            with self.subTest(name), self.assertRaises(LabError):
                rights.find_user(name)

    def test_a_filter_that_only_logs_is_found(self) -> None:
        with tempfile.TemporaryDirectory() as temp:
            log = Path(temp) / "log"
            for said, wrong in (("info sandbox: action=log", "its log says 'log'"),
                                ("info sandbox off: reason=\"x\"", "'sandbox off: reason=\"x\"'"),
                                ("nothing of it", "its log says 'nothing'")):
                log.write_text(f"sandbox: action=kill\n{said}\n" if "sandbox" in said else said)
                with self.subTest(said), \
                        mock.patch.object(rights, "wrong_rights", return_value=[]), \
                        self.assertRaisesRegex(LabError, wrong):
                    rights.check_rights(os.getpid(), self.USER, log)


if __name__ == "__main__":
    unittest.main()

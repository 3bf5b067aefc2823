# SPDX-License-Identifier: Apache-2.0
"""NICs come and go at a manad that may not make more system calls than it needs."""

from __future__ import annotations

import grp
import json
import os
import socket
import unittest

from running_manad import RunningManad

GROUP = grp.getgrgid(os.getegid()).gr_name  # whose sockets are other people's, too


class NicChanges(RunningManad):
    """As the documents have it."""

    def setUp(self) -> None:
        super().setUp()
        self.start("--nic", f"id=a,socket={self.folder}/a",
                   "--control", f"{self.folder}/control")

    def connects(self, name: str) -> bool:
        """Whether somebody can be a client of that socket."""
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(self.folder / name))
            except OSError:
                return False
        return True

    def test_many_come_and_go(self) -> None:
        """Each with a policy and a file of its own."""
        for count in range(20):
            added = self.manactl("nic", "add", f"id=b,socket=b,network=red,access=:{GROUP}:0660",
                                 "--policy", "ips=10.0.0.2,flow-log=flows")
            self.assertEqual((added.returncode, added.stderr), (0, ""), count)
            self.assertEqual(self.nics(), ["a", "b"])
            self.assertTrue(self.connects("b"))
            self.assertEqual((self.folder / "b").stat().st_mode & 0o777, 0o660)
            self.assertTrue((self.folder / "flows").exists())
            removed = self.manactl("nic", "remove", "b", "--force")
            self.assertEqual((removed.returncode, removed.stderr), (0, ""), count)
            self.assertEqual(self.nics(), ["a"])
            self.assertFalse((self.folder / "b").exists())
        self.assertIsNone(self.manad.poll())

    def test_what_cannot_be_is_said(self) -> None:
        """And changes nothing."""
        for words, why in (
                (("add", "id=a,socket=b"), "two NICs have the id a"),
                (("add", "id=b,socket=a"), f"socket {self.folder}/a is named twice"),
                (("add", "id=b,socket=nowhere/b"), f"{self.folder}/nowhere/b: cannot bind the "
                 "socket: No such file or directory"),
                (("add", "id=b,socket=b,colour=red"), "unknown key 'colour'"),
                (("remove", "b"), "there is no NIC 'b'")):
            result = self.manactl("nic", *words)
            self.assertEqual((result.returncode, result.stderr), (1, f"manactl: {why}\n"))
        self.assertEqual(self.nics(), ["a"])

    def test_names_are_looked_up_by_manactl(self) -> None:
        """manad would need code and programs for that which it may not have."""
        request = {"command": "nic", "action": "add",
                   "options": f"id=b,socket={self.folder}/b,access=:audio:"}
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self.folder / "control"))
            client.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(client.recv(4096))
        if "sandbox off" in self.log():
            self.skipTest("a build with sanitizers may look names up")
        self.assertEqual(answer["error"], "access: group 'audio' was not known when manad started: "
                         "its number is needed")

    def test_the_last_one_may_go(self) -> None:
        """manad waits for others."""
        self.assertEqual(self.manactl("nic", "remove", "a").returncode, 0)
        self.assertEqual(self.nics(), [])
        self.assertEqual(self.manactl("stats").returncode, 0)
        self.assertEqual(self.manactl("nic", "add", "id=b,socket=b").returncode, 0)
        self.assertTrue(self.connects("b"))


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""manactl beside a manad of another version, which the test plays."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

MANACTL = Path(os.environ.get("OPENMANA_BUILD", "")) / "tools" / "manactl"
NIC = {"nic": "a", "mac": "02:00:00:00:00:01", "link": True, "client": False, "mtu": 9000, "qps": 0,
       "socket": "/run/a.sock"}


class Played(unittest.TestCase):
    """Beside a manad that the test plays."""

    def printed(self, command: str, answer: dict[str, object]) -> str:
        """What it prints when this is the answer."""
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
            path = str(Path(folder) / "control")
            server.bind(path)
            server.listen(1)
            server.settimeout(30)

            def serve() -> None:
                client, _ = server.accept()
                with client:
                    client.recv(4096)
                    client.sendall(json.dumps({"ok": True, **answer}).encode() + b"\n")

            thread = threading.Thread(target=serve)
            thread.start()
            result = subprocess.run([MANACTL, "--control", path, command], capture_output=True,
                                    text=True, timeout=30, check=False)
            thread.join()
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout


class Status(Played):
    def status(self, nic: dict[str, object]) -> str:
        """What it prints when manad says this of its NIC."""
        return self.printed("status", {"nics": [nic]})

    def test_memory_in_mebibytes(self) -> None:
        self.assertIn(" 2/16M ", self.status({**NIC, "memory": {"used": 1 << 20 | 1,
                                                                "limit": 16 << 20}}))

    def test_an_older_manad_tells_no_memory(self) -> None:
        row = self.status(NIC).splitlines()[1]
        self.assertEqual(row.split(), ["a", NIC["mac"], "yes", "no", "9000", "0", NIC["socket"]])

    def test_network_and_vlans(self) -> None:
        row = self.status({**NIC, "network": "red", "vlan": "access 10"}).splitlines()[1]
        self.assertRegex(row, "^a +red +access 10 +02:")


class Stats(Played):
    def test_each_network_has_its_own(self) -> None:
        text = self.printed("stats", {
            "nics": [{"nic": "a", "network": "red", "counters": {"x.y.z": 1}},
                     {"nic": "b", "network": "blue", "counters": {"x.y.z": 0}}],
            "networks": [{"network": "red", "counters": {"f.s.c": 2}},
                         {"network": "blue", "counters": {"f.s.c": 3}}],
            "switch": {"f.s.c": 5}})
        self.assertEqual([line.split() for line in text.splitlines()], [
            ["a", "network", "red"], ["x.y.z", "1"], ["b", "network", "blue"],
            ["switch", "of", "network", "red"], ["f.s.c", "2"],
            ["switch", "of", "network", "blue"], ["f.s.c", "3"], ["all", "switches"],
            ["f.s.c", "5"]])

    def test_one_network_needs_no_name_and_an_older_manad_has_none(self) -> None:
        counters = {"f.s.c": 5}
        for networks in ({"networks": [{"network": "default", "counters": counters}]}, {}):
            text = self.printed("stats", {
                "nics": [{"nic": "a", "network": "default", "counters": {}}],
                "switch": counters, **networks})
            self.assertEqual([line.split() for line in text.splitlines()],
                             [["a"], ["switch"], ["f.s.c", "5"]])


if __name__ == "__main__":
    unittest.main()

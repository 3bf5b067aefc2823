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


class Status(unittest.TestCase):
    def status(self, nic: dict[str, object]) -> str:
        """What it prints when manad says this of its NIC."""
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
            path = str(Path(folder) / "control")
            server.bind(path)
            server.listen(1)
            server.settimeout(30)

            def serve() -> None:
                client, _ = server.accept()
                with client:
                    client.recv(4096)
                    client.sendall(json.dumps({"ok": True, "nics": [nic]}).encode() + b"\n")

            thread = threading.Thread(target=serve)
            thread.start()
            result = subprocess.run([MANACTL, "--control", path, "status"], capture_output=True,
                                    text=True, timeout=30, check=False)
            thread.join()
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def test_memory_in_mebibytes(self) -> None:
        self.assertIn(" 2/16M ", self.status({**NIC, "memory": {"used": 1 << 20 | 1,
                                                                "limit": 16 << 20}}))

    def test_an_older_manad_tells_no_memory(self) -> None:
        row = self.status(NIC).splitlines()[1]
        self.assertEqual(row.split(), ["a", NIC["mac"], "yes", "no", "9000", "0", NIC["socket"]])


if __name__ == "__main__":
    unittest.main()

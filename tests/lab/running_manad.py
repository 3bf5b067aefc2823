# SPDX-License-Identifier: Apache-2.0
"""A manad that runs for a test, and manactl beside it."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

BUILD = Path(os.environ.get("OPENMANA_BUILD", ""))


class RunningManad(unittest.TestCase):
    """A folder of the test's own, for a manad that is asked by `control` in it and that ends as it
    should, whatever was done to it. It runs with the filter of system calls that kills (in builds
    without sanitizers)."""

    manad: subprocess.Popen[str]

    def setUp(self) -> None:
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.folder = Path(temp.name)

    def start(self, *words: str, cwd: Path | None = None) -> None:
        """With these options, its control socket among them. Returns when it is ready."""
        with (self.folder / "log").open("w") as log:
            # pylint: disable-next=consider-using-with
            self.manad = subprocess.Popen(
                [BUILD / "device" / "manad", *words], cwd=cwd, stdout=subprocess.PIPE, stderr=log,
                text=True)
        self.addCleanup(self.end)
        assert self.manad.stdout is not None
        self.assertEqual(self.manad.stdout.readline(), "ready\n", self.log())

    def end(self) -> None:
        """By the signal of a service manager."""
        self.manad.terminate()
        status = self.manad.wait(timeout=30)
        assert self.manad.stdout is not None
        self.manad.stdout.close()
        self.assertEqual(status, 0, self.log())

    def log(self) -> str:
        """All that it logged."""
        return (self.folder / "log").read_text()

    def manactl(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Started where the sockets are."""
        return subprocess.run([BUILD / "tools" / "manactl", "--control", "control", *words],
                              cwd=self.folder, capture_output=True, text=True, timeout=30,
                              check=False)

    def nics(self) -> list[str]:
        """Their names."""
        return [row["nic"] for row in json.loads(self.manactl("--json", "status").stdout)["nics"]]

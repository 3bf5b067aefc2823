# SPDX-License-Identifier: Apache-2.0
"""The log of manad: text, JSON, to a stand-in of systemd's journal, and on a full disk."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from running_manad import BUILD

MANAD = BUILD / "device" / "manad"
# /run of the test's own, with the test's folder where the journal has its socket.
STAND_IN = ("mount -t tmpfs none /run && mkdir -p /run/systemd/journal && "
            "mount --bind {journal} /run/systemd/journal && exec {manad}")


def can_mount() -> bool:
    """Whether a test may have mounts of its own: as root, where the machine allows it."""
    return os.geteuid() == 0 and subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/run"], capture_output=True,
        check=False).returncode == 0


class Logging(unittest.TestCase):
    """A manad with one NIC, from its start to its end."""

    def setUp(self) -> None:
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.folder = Path(temp.name)

    def words(self, *more: str) -> list[str]:
        """Its command line. It runs with the filter of system calls that kills (in builds without
        sanitizers)."""
        return [str(MANAD), "--nic", f"id=vm1,socket={self.folder}/vm1", *more]

    def run_manad(self, words: list[str], stderr: IO[bytes],
                  environment: dict[str, str] | None = None) -> None:
        """It serves until SIGTERM, and ends well."""
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=stderr, text=True,
                              env={**os.environ, **(environment or {})}) as manad:
            assert manad.stdout is not None
            self.assertEqual(manad.stdout.readline(), "ready\n")
            manad.terminate()
            self.assertEqual(manad.wait(timeout=60), 0)

    def logged(self, *more: str) -> str:
        """What goes to a file."""
        with (self.folder / "log").open("wb") as log:
            self.run_manad(self.words(*more), log)
        return (self.folder / "log").read_text()


class Formats(Logging):
    """What a line looks like."""

    def test_text_has_the_time(self) -> None:
        """Unless told otherwise, where there is no journal."""
        self.assertRegex(self.logged(), r"(?m)^[0-9: .-]{23} info nic start: nic=vm1 ")

    def test_json_has_the_fields(self) -> None:
        """One object a line, and nothing else."""
        rows = [json.loads(line) for line in self.logged("--log-format", "json").splitlines()]
        start = next(row for row in rows if row.get("event") == "nic start")
        self.assertEqual(start["level"], "info")
        self.assertEqual(start["fields"]["nic"], "vm1")
        self.assertTrue(start["message"].startswith("nic start: nic=vm1 network=default"))
        self.assertRegex(start["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")

    def test_what_is_no_format_is_said(self) -> None:
        """In one line."""
        done = subprocess.run(self.words("--log-format", "xml"), capture_output=True, text=True,
                              timeout=30, check=False)
        self.assertEqual(done.stderr,
                         "manad: --log-format: 'xml' is not text, json, journal or auto\n")


@unittest.skipUnless(can_mount(), "this place has no mount namespaces")
class Journal(Logging):
    """Beside a socket that the test has where the journal has one."""

    def setUp(self) -> None:
        super().setUp()
        (self.folder / "journal").mkdir()
        self.journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.journal.close)
        self.journal.bind(str(self.folder / "journal" / "socket"))
        self.journal.setblocking(False)

    def run_beside(self, *more: str, stream: str | None = None) -> str:
        """What goes to stderr all the same. `stream`: of what the service manager says that it
        leads to the journal, by default of that stderr."""
        path = self.folder / "stderr"
        words = shlex.join(self.words(*more))
        script = STAND_IN.format(journal=self.folder / "journal", manad=words)
        with path.open("wb") as stderr:
            file = os.fstat(stderr.fileno())
            own = f"{file.st_dev}:{file.st_ino}"
            self.run_manad(["unshare", "--mount", "sh", "-c", script], stderr,
                           {"JOURNAL_STREAM": own if stream is None else stream})
        return path.read_text()

    def entries(self) -> Iterator[dict[str, str]]:
        """What came, by field."""
        while True:
            try:
                text = self.journal.recv(1 << 16).decode()
            except BlockingIOError:
                return
            yield dict(line.partition("=")[::2] for line in text.splitlines())

    def test_stderr_of_a_service_goes_there_with_fields(self) -> None:
        """So that what happened to one NIC can be found."""
        self.assertEqual(self.run_beside(), "")
        of_vm1 = [entry for entry in self.entries() if entry.get("OPENMANA_NIC") == "vm1"]
        start = next(entry for entry in of_vm1 if entry["OPENMANA_EVENT"] == "nic start")
        self.assertEqual(start["PRIORITY"], "6")
        self.assertEqual(start["SYSLOG_IDENTIFIER"], "manad")
        self.assertEqual(start["OPENMANA_NETWORK"], "default")
        self.assertTrue(start["MESSAGE"].startswith("nic start: nic=vm1 network=default mac="))

    def test_another_stderr_is_no_journal(self) -> None:
        """What was inherited from a service, and leads elsewhere by now."""
        self.assertIn("nic start: nic=vm1", self.run_beside(stream="1:2"))
        self.assertEqual(list(self.entries()), [])

    def test_who_asks_for_text_gets_text(self) -> None:
        """Wherever stderr leads."""
        self.assertIn("nic start: nic=vm1", self.run_beside("--log-format", "text"))
        self.assertEqual(list(self.entries()), [])

    def test_without_a_journal_nothing_is_lost(self) -> None:
        """Nobody listens any more: lines go to stderr."""
        self.journal.close()
        self.assertIn("nic start: nic=vm1", self.run_beside("--log-format", "journal"))


class FullDisk(Logging):
    """Nothing can be written."""

    def test_manad_serves_without_its_log(self) -> None:
        """In each format."""
        for form in ("text", "json"):
            with self.subTest(form=form), Path("/dev/full").open("wb") as full:
                self.run_manad(self.words("--log-format", form), full)

    @unittest.skipUnless(can_mount(), "this place has no mount namespaces")
    def test_a_capture_is_refused_in_one_line_and_the_rest_goes_on(self) -> None:
        """Its file is on a disk that was full before."""
        disk = self.folder / "disk"
        disk.mkdir()
        script = (f"mount -t tmpfs -o size=4k none {disk} && "
                  f"head -c 4096 /dev/zero >{disk}/rest && "
                  f"exec {shlex.join(self.words('--control', f'{self.folder}/control'))}")
        with (self.folder / "log").open("wb") as log, subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", script], stdout=subprocess.PIPE, stderr=log,
                text=True) as manad:
            try:
                assert manad.stdout is not None
                self.assertEqual(manad.stdout.readline(), "ready\n")
                refused = self.manactl("capture", "start", "vm1", str(disk / "f.pcap"))
                self.assertEqual(refused.returncode, 1)
                self.assertRegex(refused.stderr, r"\Amanactl: .*No space left on device\n\Z")
                shown = self.manactl("--json", "capture", "show")
                self.assertEqual(json.loads(shown.stdout)["rows"], [])
                self.assertIn(" up ", self.manactl("status").stdout)
            finally:
                manad.terminate()
        self.assertEqual(manad.returncode, 0)

    def manactl(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Asks the manad of the test."""
        return subprocess.run([BUILD / "tools" / "manactl", "--control", self.folder / "control",
                               *words], capture_output=True, text=True, timeout=60, check=False)


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""Figures for Prometheus, as manad serves them."""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from running_manad import BUILD, RunningManad

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "tools"))

OPEN = "application/openmetrics-text; version=1.0.0"
SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([0-9.e+-]+)$")
SUFFIX = re.compile(r"_(total|bucket|count|sum)$")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"(?:,|$)')


class UnixConnection(http.client.HTTPConnection):
    """HTTP by a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("manad", timeout=30)
        self._path = path

    def connect(self) -> None:
        """To the path, whatever the host's name."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(str(self._path))


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class Served(RunningManad):
    """A manad with some NICs and an uplink."""

    NICS = 2

    def setUp(self) -> None:
        super().setUp()
        self.port = free_port()
        nics = [word for number in range(self.NICS) for word in
                ("--nic", f"id=n{number},socket={self.folder}/n{number},network=net{number % 2}")]
        self.start(*nics, "--uplink", f"stream={self.folder}/u,listen,network=net0", "--metrics",
                   f"127.0.0.1:{self.port}", "--metrics", f"{self.folder}/m,access=::0600",
                   "--control", f"{self.folder}/control")

    def get(self, accept: str = "", path: str = "/metrics", method: str = "GET",
            unix: bool = False) -> tuple[int, str, str]:
        """Status, type and text of an answer."""
        to = UnixConnection(self.folder / "m") if unix else http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=30)
        try:
            to.request(method, path, headers={"Accept": accept} if accept else {})
            answer = to.getresponse()
            return answer.status, answer.getheader("Content-Type", ""), answer.read().decode()
        finally:
            to.close()

    def samples(self, text: str) -> dict[tuple[str, str], float]:
        """By name and labels. Each line is one, or says what those behind it are."""
        found: dict[tuple[str, str], float] = {}
        family = ""
        for line in text.splitlines():
            if line.startswith("# "):
                if line != "# EOF":
                    kind, family = line.split()[1:3]
                    self.assertIn(kind, ("HELP", "TYPE"))
                continue
            match = SAMPLE.match(line)
            assert match is not None, line
            name, labels, value = match[1], match[2] or "", match[3]
            self.assertEqual(SUFFIX.sub("", name), SUFFIX.sub("", family), line)
            self.assertEqual(LABEL.sub("", labels), "", line)
            self.assertNotIn((name, labels), found)
            found[name, labels] = float(value)
        return found


class Figures(Served):
    """What is there."""

    def test_counters_are_those_of_manactl(self) -> None:
        """Of each NIC and network, under the names of Prometheus."""
        shown = self.manactl("--json", "stats")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        stats = json.loads(shown.stdout)
        status, kind, text = self.get()
        self.assertEqual((status, kind), (200, "text/plain; version=0.0.4; charset=utf-8"))
        found = self.samples(text)
        for row in stats["nics"]:
            labels = f'nic="{row["nic"]}",network="{row["network"]}"'
            for name in row["counters"]:
                plain = "manad_" + name.removeprefix("manad.").replace(".", "_")
                self.assertTrue((plain, labels) in found or (plain + "_total", labels) in found,
                                f"{name} of {labels}")
            self.assertEqual(found["manad_nic_link_up", labels], 1)
            self.assertEqual(found["manad_nic_client_connected", labels], 0)
            for kind in ("send", "write", "read", "atomic"):
                self.assertEqual(found["manad_rnic_request_seconds_count",
                                       f'{labels},kind="{kind}"'], 0)
            self.assertEqual(found["manad_rnic_request_bytes_bucket",
                                   f'{labels},kind="datagram",le="4194304.0"'], 0)
            self.assertEqual(found["manad_rnic_qps", f'{labels},state="RTS"'], 0)
        for name in ("net0", "net1"):
            self.assertIn(("manad_fabric_switch_flooded_total", f'network="{name}"'), found)
        uplinks = [labels for name, labels in found if name == "manad_uplink_connected"]
        self.assertEqual(len(uplinks), 1)
        self.assertIn('network="net0"', uplinks[0])

    def test_a_client_shows(self) -> None:
        """As soon as it is there, and no longer than it is."""
        labels = 'nic="n0",network="net0"'
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"{self.folder}/n0")
            self.until(labels, 1)
        self.until(labels, 0)

    def until(self, labels: str, value: float) -> None:
        """The NIC has a client, or none."""
        end = time.monotonic() + 30
        while self.samples(self.get()[2])["manad_nic_client_connected", labels] != value:
            self.assertLess(time.monotonic(), end)

    def test_open_metrics_for_who_accepts_it(self) -> None:
        """By the strict parser of Prometheus' own client, where Debian's package is there."""
        status, kind, text = self.get(OPEN + ",text/plain;q=0.5", unix=True)
        self.assertEqual((status, kind), (200, OPEN + "; charset=utf-8"))
        self.assertTrue(text.endswith("\n# EOF\n"))
        self.samples(text)
        done = subprocess.run(["/usr/bin/python3", "-c", "import sys\n"
                               "from prometheus_client.openmetrics import parser\n"
                               "print(len(list(parser.text_string_to_metric_families("
                               "sys.stdin.read()))))"], input=text, capture_output=True, text=True,
                              timeout=60, check=False)
        if "No module named 'prometheus_client'" in done.stderr:
            self.skipTest("python3-prometheus-client is not installed")
        self.assertEqual(done.stderr, "")
        self.assertGreater(int(done.stdout), 100)

    def test_other_requests_are_answered_too(self) -> None:
        """With the status for it."""
        self.assertEqual(self.get(path="/")[0], 404)
        self.assertEqual(self.get(method="POST")[0], 405)
        self.assertEqual(self.get(method="HEAD")[0], 200)
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as one:
            one.sendall(b"\0nonsense\r\n\r\n" + bytes(range(256)))
        self.assertEqual(self.get()[0], 200)

    def test_who_says_nothing_keeps_nobody_waiting(self) -> None:
        """Beside connections without a request there are figures, and manactl is answered."""
        silent = [socket.create_connection(("127.0.0.1", self.port), timeout=30)
                  for _ in range(20)]
        try:
            self.assertEqual(self.get()[0], 200)
            self.assertEqual(self.get(unix=True)[0], 200)
        finally:
            for one in silent:
                one.close()


class Places(unittest.TestCase):
    """Where it cannot be served."""

    def said(self, place: str) -> str:
        """The line with which manad does not start."""
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([BUILD / "device" / "manad", "--nic", f"id=a,socket={folder}/a",
                                   "--metrics", place], capture_output=True, text=True, timeout=30,
                                  check=False)
        self.assertNotEqual(done.returncode, 0)
        return done.stderr.splitlines()[-1]

    def test_what_is_wrong_is_said(self) -> None:
        """In one line."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            place = f"127.0.0.1:{taken.getsockname()[1]}"
            self.assertEqual(self.said(place),
                             f"manad: {place}: cannot listen for HTTP: Address already in use")
        self.assertRegex(self.said("here"), "--metrics: here is neither IP:PORT nor the path")
        self.assertRegex(self.said("/nowhere/m"), "/nowhere/m: cannot bind the socket: No such")
        self.assertRegex(self.said("/tmp/m,access=x"), "access: 'x' is not USER:GROUP:MODE")


class Many(Served):
    """200 NICs."""

    NICS = 200

    def test_a_scrape_asks_no_nic_for_anything(self) -> None:
        """Their threads sleep through it: no switch to any of them."""
        def switches() -> int:
            total = 0
            for task in Path(f"/proc/{self.manad.pid}/task").iterdir():
                if (task / "comm").read_text().startswith("nic-"):
                    total += sum(int(line.split()[1]) for line in
                                 (task / "status").read_text().splitlines()
                                 if "ctxt_switches" in line)
            return total

        before = switches()
        begin = time.monotonic()
        text = self.get()[2]
        took = time.monotonic() - begin
        after = switches()
        rows = self.samples(text)
        self.assertEqual(sum(name == "manad_nic_link_up" for name, _ in rows), 200)
        self.assertEqual(after - before, 0)
        print(f"{len(rows)} figures, {len(text)} bytes, {took * 1000:.0f} ms", file=sys.stderr)


if __name__ == "__main__":
    unittest.main()

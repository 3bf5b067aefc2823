# SPDX-License-Identifier: Apache-2.0
"""Debian's Prometheus beside manad: it takes the figures, and the graphs that are shipped have
something to show."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import test_metrics

EXAMPLES = Path(__file__).resolve().parents[2] / "debian" / "examples"
DASHBOARD = json.loads((EXAMPLES / "grafana-manad.json").read_text())
CONSOLE = (EXAMPLES / "manad.html").read_text()
CONFIG = """
global: {scrape_interval: 2s, scrape_timeout: 2s}
scrape_configs:
  - job_name: manad
    static_configs: [{targets: ["127.0.0.1:%d"]}]
"""
# A test may be stopped for long between two figures, so that a rate is over all there are.
SPAN = "10m"


def queries() -> Iterator[tuple[str, str]]:
    """Each of the dashboard's, with the panel that it is of."""
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def filled(query: str) -> str:
    """With all NICs for its variables."""
    return re.sub(r"\$(network|nic|job)\b", ".*", query).replace("$__rate_interval", SPAN)


def listening_port(pid: int) -> int:
    """Of the TCP socket that a process listens at; 0 if it does not yet."""
    sockets = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(os.readlink(fd))
        except FileNotFoundError:
            continue
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, *_, inode = line.split()[:10]
        if state == "0A" and f"socket:[{inode}]" in sockets:
            return int(local.rpartition(":")[2], 16)
    return 0


@unittest.skipUnless(shutil.which("promtool"), "the package prometheus is not installed")
class TextFormat(test_metrics.Served):
    """By Prometheus' own tool."""

    def test_promtool_finds_nothing(self) -> None:
        """Neither wrong lines nor names that are not as Prometheus wants them."""
        done = subprocess.run(["promtool", "check", "metrics"], input=self.get()[2], text=True,
                              capture_output=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


@unittest.skipUnless(shutil.which("prometheus"), "the package prometheus is not installed")
class Scraped(test_metrics.Served):
    """A Prometheus that has had some figures of manad."""

    def setUp(self) -> None:
        super().setUp()
        (self.folder / "consoles").mkdir()
        shutil.copy(EXAMPLES / "manad.html", self.folder / "consoles")
        (self.folder / "prometheus.yml").write_text(CONFIG % self.port)
        with (self.folder / "prometheus.log").open("w") as log:
            # pylint: disable-next=consider-using-with
            self.prometheus = subprocess.Popen(
                ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
                 "--web.listen-address=127.0.0.1:0", "--web.console.templates=consoles",
                 "--web.console.libraries=consoles"], cwd=self.folder, stdout=log, stderr=log)
        self.addCleanup(self.end_prometheus)
        self.until("listens", lambda: listening_port(self.prometheus.pid) != 0)
        self.base = f"http://127.0.0.1:{listening_port(self.prometheus.pid)}"
        self.until("has figures", lambda: self.value(f"sum_over_time(up[{SPAN}])") >= 3)

    def end_prometheus(self) -> None:
        """Whatever it is at."""
        self.prometheus.kill()
        self.prometheus.wait(timeout=30)

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Waits for it, as long as Prometheus runs."""
        end = time.monotonic() + 100
        while not holds():
            self.assertIsNone(self.prometheus.poll(), (self.folder / "prometheus.log").read_text())
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.1)

    def fetch(self, path: str) -> str:
        """What Prometheus serves there; nothing while it is not ready."""
        try:
            with urllib.request.urlopen(self.base + path, timeout=60) as answer:
                text: str = answer.read().decode()
                return text
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise AssertionError(f"{path}: {error.code}: {error.read().decode()}") from error
            return ""

    def query(self, query: str) -> list[dict[str, Any]]:
        """The series that it gives."""
        text = self.fetch("/api/v1/query?" + urllib.parse.urlencode({"query": query}))
        if not text:
            return []
        result: list[dict[str, Any]] = json.loads(text)["data"]["result"]
        return result

    def value(self, query: str) -> float:
        """That of its one series; 0 without one."""
        return sum(float(one["value"][1]) for one in self.query(query))

    def test_each_query_of_the_dashboard_gives_series(self) -> None:
        """And so does each variable."""
        seen = 0
        for panel, query in queries():
            with self.subTest(panel=panel, query=query):
                self.assertGreater(len(self.query(filled(query))), 0)
                seen += 1
        self.assertGreater(seen, 25)
        for variable in DASHBOARD["templating"]["list"]:
            if variable["type"] == "query":
                match = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"])
                assert match is not None, variable["query"]
                series = self.query(filled(match[1]))
                self.assertTrue(series and all(match[2] in one["metric"] for one in series))

    def test_prometheus_and_manad_say_the_same(self) -> None:
        """Of NICs, of which none has a guest."""
        self.assertEqual(self.value("count(manad_nic_link_up)"), self.NICS)
        self.assertEqual(self.value("sum(manad_nic_client_connected)"), 0)
        kinds = {one["metric"]["kind"] for one in
                 self.query("sum by (kind) (manad_rnic_request_seconds_count)")}
        self.assertEqual(kinds, {"send", "write", "read", "atomic"})

    def test_the_console_page_has_all_nics(self) -> None:
        """What Prometheus itself fills in; the graphs are drawn by the reader's browser."""
        page = self.fetch("/consoles/manad.html")
        for number in range(self.NICS):
            self.assertRegex(page, rf'<a href="\?nic=n{number}">n{number}</a></td>\s*<td>net'
                                   rf'{number % 2}</td>\s*<td>up</td>\s*<td>no</td>\s*<td>[0-9.]+')
        for script in re.findall(r'(?:src|href)="(/classic/[^"]*)"', page):
            self.assertGreater(len(self.fetch(script)), 1000, script)
        self.assertIn('nic=~".*"', page)
        self.assertIn('nic=~"n1"', self.fetch("/consoles/manad.html?nic=n1"))


class Probes(unittest.TestCase):
    """Places in manad for tracers, and the script that looks at them."""

    MANAD = test_metrics.BUILD / "device" / "manad"
    SCRIPT = (EXAMPLES / "manad.bt").read_text()

    def test_each_probe_of_the_script_is_in_manad(self) -> None:
        """And the other way round."""
        notes = subprocess.run(["readelf", "--notes", "--wide", self.MANAD], text=True,
                               capture_output=True, timeout=60, check=True).stdout
        here = set(re.findall(r"Provider: openmana\s+Name: (\w+)", notes))
        self.assertEqual(here, set(re.findall(r"^usdt:.*:openmana:(\w+)$", self.SCRIPT, re.M)))

    def test_bpftrace_understands_the_script(self) -> None:
        """Without running it, which takes rights."""
        if shutil.which("bpftrace") is None:
            self.skipTest("the package bpftrace is not installed")
        if self.said_by_bpftrace("BEGIN { exit(); }").returncode != 0:
            self.skipTest("bpftrace does not work here")
        done = self.said_by_bpftrace(self.SCRIPT.replace("/usr/bin/manad", str(self.MANAD)))
        self.assertEqual(done.returncode, 0, done.stderr)

    @staticmethod
    def said_by_bpftrace(program: str) -> subprocess.CompletedProcess[str]:
        """In its mode for debugging."""
        return subprocess.run(["bpftrace", "-d", "-e", program], capture_output=True, text=True,
                              timeout=120, check=False)


class SameGraphs(unittest.TestCase):
    """The console page is the dashboard in another form."""

    def test_the_console_has_the_queries_of_the_dashboard(self) -> None:
        """In their order, all NICs or one, over a minute."""
        graphs = re.findall(r"  graph\('.*?\[\n(.*?)\n    \]", CONSOLE, re.S)
        shown = [line.strip().strip(",").strip("'") for graph in graphs
                 for line in graph.splitlines()]
        wanted = [re.sub(r"\$(network|job)\b", ".*", query).replace("$nic", "{{ $nic }}")
                  .replace("$__rate_interval", "1m") for _, query in queries()]
        self.assertEqual(shown, wanted)

    def test_titles_are_those_of_the_dashboard(self) -> None:
        """Each graph has one."""
        self.assertEqual(re.findall(r"  graph\('([^']*)'", CONSOLE),
                         [panel["title"] for panel in DASHBOARD["panels"]])


if __name__ == "__main__":
    unittest.main()

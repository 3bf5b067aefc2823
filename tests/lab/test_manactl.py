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

    def printed(self, command: str, *answers: dict[str, object],
                words: tuple[str, ...] = ()) -> str:
        """What it prints when these are the answers, each on a connection of its own."""
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
            path = str(Path(folder) / "control")
            server.bind(path)
            server.listen(1)
            server.settimeout(30)

            def serve() -> None:
                for answer in answers:
                    client, _ = server.accept()
                    with client:
                        client.recv(4096)
                        client.sendall(json.dumps({"ok": True, **answer}).encode() + b"\n")

            thread = threading.Thread(target=serve)
            thread.start()
            result = subprocess.run([MANACTL, "--control", path, command, *words],
                                    capture_output=True, text=True, timeout=30, check=False)
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

    def test_requests_have_sizes_and_times(self) -> None:
        text = self.printed("stats", {
            "nics": [{"nic": "a", "counters": {}, "requests": {
                "rnic.request.bytes": {
                    "write": {"count": 4, "sum": 70, "buckets": [[16, 3], [64, 1]]},
                    "read": {"count": 1, "sum": 1, "buckets": [[None, 1]]}},
                "rnic.request.seconds": {
                    "write": {"count": 2, "sum": 0.1, "buckets": [[2e-06, 1], [0.000128, 1]]}}}}]})
        self.assertEqual([" ".join(line.split()) for line in text.splitlines()], [
            "a", "requests: read 1 bytes: half beyond, 99 % beyond",
            "requests: write 4 bytes: half <= 16, 99 % <= 64 time: half <= 2 us, 99 % <= 128 us"])


class Watched(Played):
    """What happens in a second is what is between two answers, by the clock of manad."""

    LOOK = ("--watch", "0.01", "--count", "1")

    @staticmethod
    def stats(at: float, counters: dict[str, int], writes: int = 0) -> dict[str, object]:
        """An answer about one NIC."""
        return {"at_s": at, "switch": {"fabric.switch.flooded": 3}, "networks": [], "nics": [{
            "nic": "a", "network": "red", "counters": counters, "requests": {"rnic.request.bytes": {
                "write": {"count": writes, "sum": 0, "buckets": []}}}}]}

    def test_rates_of_counters(self) -> None:
        """Of those that rise, and of no gauge."""
        text = self.printed(
            "stats", self.stats(10, {"rnic.tx.bytes": 5, "x.y.z": 7, "nic.memory.used": 1}),
            self.stats(12, {"rnic.tx.bytes": 105, "x.y.z": 7, "nic.memory.used": 9}, writes=30),
            words=self.LOOK)
        self.assertEqual([line.split() for line in text.splitlines()], [
            ["a"], ["rnic.request.write", "15.0/s"], ["rnic.tx.bytes", "50.0/s"], ["switch"]])

    def test_as_json_one_object_a_line(self) -> None:
        """What manad said, with the rates beside it."""
        text = self.printed("stats", self.stats(10, {"a.b.c": 0}), self.stats(11, {"a.b.c": 4}),
                            self.stats(11.5, {"a.b.c": 5}),
                            words=("--json", "--watch", "0.01", "--count", "2"))
        looks = [json.loads(line) for line in text.splitlines()]
        self.assertEqual([look["interval_s"] for look in looks], [1, 0.5])
        self.assertEqual([look["nics"][0]["rates"] for look in looks], [{"a.b.c": 4}, {"a.b.c": 2}])
        self.assertEqual(looks[1]["nics"][0]["counters"], {"a.b.c": 5})
        self.assertEqual(looks[1]["switch_rates"], {})

    def test_a_nic_that_came_or_began_anew_has_no_rate_yet(self) -> None:
        """There is nothing to compare it with."""
        none = {**self.stats(10, {}), "nics": []}
        text = self.printed("stats", none, self.stats(11, {"a.b.c": 4}), words=self.LOOK)
        self.assertEqual(text.split(), ["a", "switch"])
        text = self.printed("stats", self.stats(10, {"a.b.c": 9}), self.stats(11, {"a.b.c": 4}),
                            words=self.LOOK)
        self.assertEqual(text.split(), ["a", "switch"])

    def test_status_has_a_line_for_each_nic(self) -> None:
        """Ethernet and RDMA together, in Gb/s."""
        before = {"rnic.tx.bytes": 0, "eth.tx.bytes": 0, "rnic.drop.icrc": 0, "eth.rx.no_wqe": 0,
                  "rnic.requester.retransmits": 0, "eth.rx.bytes": 0, "rnic.rx.bytes": 0}
        after = {"rnic.tx.bytes": 10**9, "eth.tx.bytes": 25 * 10**7, "rnic.drop.icrc": 4,
                 "eth.rx.no_wqe": 6, "rnic.requester.retransmits": 2, "eth.rx.bytes": 0,
                 "rnic.rx.bytes": 5 * 10**8}
        text = self.printed("status", self.stats(1, before), self.stats(3, after, writes=100),
                            {"nics": [{**NIC, "network": "red"}]}, words=self.LOOK)
        head, row = (line.split() for line in text.splitlines())
        self.assertEqual(dict(zip(head, row, strict=True)), {
            "nic": "a", "network": "red", "link": "yes", "client": "no", "qps": "0",
            "tx_gbps": "5.0", "rx_gbps": "2.0", "requests/s": "50", "drops/s": "5",
            "retries/s": "1"})

    def test_an_older_manad_is_not_watched(self) -> None:
        """Its answers say nothing of when they were."""
        with self.assertRaisesRegex(AssertionError, "this manad is too old to be watched"):
            self.printed("stats", {"nics": [], "switch": {}}, words=self.LOOK)


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""The configuration file of manad: its schema beside manad itself, and reloads."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from running_manad import BUILD, RunningManad

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
SCHEMA = json.loads((DOCS / "manad.schema.json").read_text())
NIC = SCHEMA["properties"]["nic"]["items"]["properties"]
# What a key needs beside it.
WITH = {"native": ("trunk",), "rdma-guarantee": ("limit",), "eth-guarantee": ("limit",),
        "dir": ("limit", "loss"), "flow-idle": ("flow-log",), "queue": ("limit",),
        "ecn": ("limit",), "access": ("listen",), "rekey": ("key-file",), "fdb-dev": ("fdb",),
        "jitter": ("delay",), "seed": ("loss",)}


def value(example: Any) -> str:
    """As TOML has it, which is as JSON does for what there is here."""
    return json.dumps(example)


class Checked(unittest.TestCase):
    """manad --check in a folder of the test's own."""

    def setUp(self) -> None:
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.folder = Path(temp.name)
        for name in ("key", "fdb"):
            (self.folder / name).write_text("")

    def check(self, text: str) -> subprocess.CompletedProcess[str]:
        """What it says of this file."""
        (self.folder / "c.toml").write_text(text)
        return subprocess.run([BUILD / "device" / "manad", "--config", "c.toml", "--check"],
                              cwd=self.folder, capture_output=True, text=True, timeout=30,
                              check=False)

    def assert_right(self, text: str) -> None:
        """manad takes it."""
        done = self.check(text)
        self.assertEqual((done.returncode, done.stderr), (0, ""), text)

    def assert_wrong(self, text: str, why: str) -> None:
        """manad refuses it, in one line."""
        done = self.check(text)
        self.assertEqual(done.returncode, 2, text)
        self.assertRegex(done.stderr, f"^manad: .*({why}).*\n$")


class SchemaTest(Checked):
    """Everything that the schema knows is known to manad, and nothing else."""

    def tables(self) -> Iterator[tuple[str, dict[str, Any], str]]:
        """Each kind of table: its head, its properties, and what comes before and must be there."""
        nic = '[[nic]]\nid = "a"\nsocket = "a.sock"\n'
        yield nic, {key: about for key, about in NIC.items()
                    if key not in ("id", "socket", "policy", "fault")}, ""
        yield nic + "[nic.policy]\n", NIC["policy"]["properties"], "policy"
        for head in ("[nic.fault]\n", "[[nic.fault]]\n"):
            yield nic + head, NIC["fault"]["oneOf"][0]["properties"], "fault"
        for kind in SCHEMA["properties"]["uplink"]["items"]["oneOf"]:
            keys = dict(kind["properties"])
            head = nic + f'[[uplink]]\nkind = "{keys.pop("kind")["const"]}"\n'
            for key in kind["required"][1:]:
                head += f"{key} = {value(keys.pop(key)['examples'][0])}\n"
            yield head, keys, "uplink"

    def test_each_key_with_its_example_is_right(self) -> None:
        """With those that it needs beside it."""
        seen = 0
        for head, keys, _ in self.tables():
            for key, about in keys.items():
                for example in about["examples"]:
                    text = head + f"{key} = {value(example)}\n"
                    for other in WITH.get(key, ()):
                        if other in keys:
                            text += f"{other} = {value(keys[other]['examples'][0])}\n"
                    self.assert_right(text)
                    seen += 1
        self.assertGreater(seen, 50)

    def test_other_keys_are_unknown(self) -> None:
        """In each kind of table, and outside of them."""
        for head, _, _ in self.tables():
            self.assert_wrong(head + 'colour = "red"\n', "unknown key 'colour'|colour=red")
        self.assert_wrong('colour = "red"\n', "unknown key 'colour'")

    def test_what_stands_outside_of_tables(self) -> None:
        """One file with all of it."""
        text = "".join(f"{key} = {value(about['examples'][0])}\n"
                       for key, about in SCHEMA["properties"].items() if "examples" in about)
        self.assert_right(text)

    def test_the_document_names_the_same_keys(self) -> None:
        """The tables of docs/manad.md."""
        text = (DOCS / "manad.md").read_text()
        table = text[text.index("| key of `--nic`"):]
        named = set()
        for line in table[:table.index("\n\n")].splitlines()[2:]:
            named |= set(re.findall(r"`([a-z-]+)`", line.split("|")[1]))
        self.assertEqual(named, set(NIC) - {"policy", "fault"})

    def test_the_example_of_the_document(self) -> None:
        """It is one that works."""
        text = (DOCS / "manad.md").read_text()
        example = re.search(r"```toml\n(.*?)```", text, re.S)
        assert example is not None
        self.assert_right(example.group(1).replace("/run/manad/", f"{self.folder}/")
                          .replace("/var/log/manad/", f"{self.folder}/"))


class Services(Checked):
    """As a service manager starts it."""

    def told(self, address: str) -> list[str]:
        """What it tells whom it is to tell."""
        (self.folder / "c.toml").write_text('[[nic]]\nid = "a"\nsocket = "a"\n')
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(address.replace("@", "\0", 1))
            manager.settimeout(30)
            environment = {**os.environ, "NOTIFY_SOCKET": address}
            with subprocess.Popen([BUILD / "device" / "manad", "--config", "c.toml"],
                                  cwd=self.folder, env=environment, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL) as manad:
                notices = [manager.recv(100).decode()]
                self.assertTrue((self.folder / "a").is_socket())
                manad.terminate()
                notices.append(manager.recv(100).decode())
                self.assertEqual(manad.wait(timeout=30), 0)
        return notices

    def test_it_says_when_it_is_ready_and_when_it_ends(self) -> None:
        """By a socket with a file, and by one without."""
        for address in (f"{self.folder}/notify", f"@manad-test-{os.getpid()}"):
            self.assertEqual(self.told(address), ["READY=1", "STOPPING=1"], address)


class Reloads(RunningManad):
    """A manad that runs, whose file changes."""

    def setUp(self) -> None:
        super().setUp()
        self.write('[[nic]]\nid = "a"\nsocket = "a"\n')
        self.start("--config", "c.toml", "--control", "control", cwd=self.folder)

    def write(self, text: str) -> None:
        """The file."""
        (self.folder / "c.toml").write_text(text)

    def test_by_manactl(self) -> None:
        """Under the filter of system calls that kills, in builds without sanitizers."""
        self.write('[[nic]]\nid = "a"\nsocket = "a"\n[nic.policy]\nips = ["10.0.0.1"]\n'
                   'flow-log = "flows"\n[[nic]]\nid = "b"\nsocket = "b"\nnetwork = "red"\n')
        done = self.manactl("reload")
        self.assertEqual((done.returncode, done.stdout), (
            0, "1 NICs added, 0 removed, 1 with another policy or other faults\n"), done.stderr)
        self.assertEqual(self.nics(), ["a", "b"])
        self.write('[[nic]]\nid = "b"\nsocket = "b"\nnetwork = "red"\n')
        self.assertEqual(self.manactl("reload").stdout,
                         "0 NICs added, 1 removed, 0 with another policy or other faults\n")
        self.assertEqual(self.nics(), ["b"])

    def test_by_a_signal(self) -> None:
        """SIGHUP, as services are told; the log says what came of it."""
        self.write('[[nic]]\nid = "a"\nsocket = "a"\n[[nic]]\nid = "b"\nsocket = "b"\n')
        self.manad.send_signal(signal.SIGHUP)
        self.wait_for("reload: done=\"1 NICs added")
        self.write("nic = 5\n")
        self.manad.send_signal(signal.SIGHUP)
        self.wait_for("reload refused: reason=\"c.toml:1: nic is a list of tables: [[nic]]\"")
        self.assertEqual(self.nics(), ["a", "b"])

    def wait_for(self, words: str) -> None:
        """Until they are in the log."""
        end = time.monotonic() + 30
        while words not in self.log():
            self.assertLess(time.monotonic(), end, self.log())
            time.sleep(0.02)

    def test_what_is_wrong_changes_nothing(self) -> None:
        """One clear line, and the old state."""
        for text, why in (
                ("[[nic]\n", "c.toml:1: "),
                ('[[nic]]\nid = "a"\nsocket = "a"\nmtu = 5\n', "c.toml:1: mtu=5 is not a number"),
                ('[[nic]]\nid = "a"\nsocket = "a"\nmtu = 1500\n', "NIC 'a' cannot change while"),
                ('[[nic]]\nid = "a"\nsocket = "a"\n[[nic]]\nid = "b"\nsocket = "a"\n',
                 "socket a is named twice"),
                ('pcap = "p"\n[[nic]]\nid = "a"\nsocket = "a"\n',
                 "pcap=p: cannot change while manad runs")):
            self.write(text)
            done = self.manactl("reload")
            self.assertEqual(done.returncode, 1)
            self.assertTrue(done.stderr.startswith(f"manactl: {why}"), done.stderr)
            self.assertEqual(self.nics(), ["a"])
        (self.folder / "c.toml").unlink()
        self.assertIn("c.toml: cannot read the file: No such file", self.manactl("reload").stderr)
        self.assertEqual(self.nics(), ["a"])


if __name__ == "__main__":
    unittest.main()

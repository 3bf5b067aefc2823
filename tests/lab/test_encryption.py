# SPDX-License-Identifier: Apache-2.0
"""Two manad joined by an encrypted UDP uplink, each in a network namespace of its own with a TAP
device of the host's stack behind it, and somebody on the path between them."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from lab.errors import LabError  # noqa: E402
from lab.tshark import find_tshark  # noqa: E402

BUILD = Path(os.environ.get("OPENMANA_BUILD", ROOT / "build" / "release"))
PORT = 4500
LONG = "OPENMANA_LONG" in os.environ
MARK = b"a word that nobody on the path reads"

# Reads or writes what passes an interface: argv is "capture" or "inject", interface, pcap file.
WIRE = """
import signal, socket, struct, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
wire.bind((sys.argv[2], 0))
if sys.argv[1] == "capture":
    with open(sys.argv[3], "wb", buffering=0) as file:
        file.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1))
        print("ready", flush=True)
        while True:
            frame = wire.recv(65536)
            file.write(struct.pack("<IIII", 1, 0, len(frame), len(frame)) + frame)
data = open(sys.argv[3], "rb").read()
at = 24
while at < len(data):
    size = struct.unpack_from("<I", data, at + 8)[0]
    frame = data[at + 16:at + 16 + size]
    at += 16 + size
    # What is captured here has no checksum of UDP yet, and may be several packets in one.
    if frame[12:14] == b"\\x08\\0" and frame[23] == 17 and size < 1500:
        wire.send(frame[:40] + bytes(2) + frame[42:])
"""
# Numbered datagrams: argv is address, seconds, number a second, text.
SENDER = """
import socket, sys, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
begin = time.monotonic()
number = 0
while time.monotonic() < begin + float(sys.argv[2]):
    out.sendto(number.to_bytes(8, "big") + sys.argv[4].encode() * 20, (sys.argv[1], 7000))
    number += 1
    time.sleep(max(0, begin + number / float(sys.argv[3]) - time.monotonic()))
print(number)
"""
RECEIVER = """
import signal, socket, sys
came = set()
repeated = 0
def end(*_):
    print(len(came), repeated, flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
into = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
into.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
into.bind((sys.argv[1], 7000))
print("ready", flush=True)
while True:
    number = into.recv(65536)[:8]
    repeated += number in came
    came.add(number)
"""


class Host:
    """A namespace with a manad in it."""

    def __init__(self, test: "EncryptionTest", number: int) -> None:
        self.number = number
        self.folder = Path(test.folder) / f"host{number}"
        self.folder.mkdir()
        (self.folder / "log").touch()
        self.key_file = self.folder / "key"
        self.stack = test.stack
        self.space = self.start(["unshare", "--net", "sleep", "infinity"])
        deadline = time.monotonic() + 20
        own = Path("/proc/self/ns/net").stat().st_ino
        while Path(f"/proc/{self.space.pid}/ns/net").stat().st_ino == own:
            test.assertLess(time.monotonic(), deadline, "no network namespace")
            time.sleep(0.02)

    def start(self, words: list[str], **options: object) -> "subprocess.Popen[str]":
        """A process that ends with the test."""
        process = subprocess.Popen(words, text=True, **options)  # type: ignore[call-overload]
        self.stack.callback(process.wait, 20)
        self.stack.callback(process.terminate)
        return process  # type: ignore[no-any-return]

    def inside(self, *words: str) -> list[str]:
        """A command for this namespace."""
        return ["nsenter", "-t", str(self.space.pid), "-n", *words]

    def run(self, *words: str) -> str:
        """Runs it there."""
        return subprocess.run(self.inside(*words), check=True, capture_output=True, text=True,
                              timeout=180).stdout

    def program(self, source: str, *words: str) -> "subprocess.Popen[str]":
        """Starts a program there, and waits until it says that it is ready."""
        process = self.start(self.inside(sys.executable, "-c", source, *words),
                             stdout=subprocess.PIPE)
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise AssertionError(f"{words}: not ready")
        return process

    def write_keys(self, *keys: str) -> None:
        """A new key file in the place of the old one, as an editor does it."""
        fresh = self.folder / "fresh"
        fresh.touch(mode=0o600)
        fresh.write_text("".join(f"{key}\n" for key in keys))
        fresh.rename(self.key_file)

    def start_manad(self, encrypted: bool, options: str, net: str = "192.0.2") -> None:
        """Starts it, and gives the host's stack its end of the TAP device."""
        uplink = (f"udp=local={net}.{self.number}:{PORT},remote={net}.{3 - self.number}:{PORT}"
                  + (f",key-file={self.key_file}{options}" if encrypted else ""))
        with (self.folder / "log").open("a") as log:
            self.manad = self.start(
                self.inside(str(BUILD / "device" / "manad"), "--control",
                            str(self.folder / "control"), "--nic",
                            f"id=a,socket={self.folder}/nic", "--uplink", "tap=om0", "--uplink",
                            uplink), stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while not (self.folder / "control").exists():
            if self.manad.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"manad did not start: {self.log()}")
            time.sleep(0.05)
        # One that stays, for the other host's ARP table.
        self.run("ip", "link", "set", "om0", "address", f"02:00:00:00:09:0{self.number}")
        self.run("ip", "addr", "add", f"10.9.0.{self.number}/24", "dev", "om0")
        self.run("ip", "link", "set", "om0", "mtu", "1400", "up")

    def log(self) -> str:
        """What manad said."""
        return (self.folder / "log").read_text()

    def manactl(self, *words: str) -> str:
        """Asks manad."""
        done = subprocess.run([BUILD / "tools" / "manactl", "--control", self.folder / "control",
                               *words], capture_output=True, text=True, timeout=30, check=False)
        if done.returncode:
            raise AssertionError(f"manactl {words}: {done.stderr}")
        return done.stdout

    def counter(self, name: str) -> int:
        """A counter of the encrypted uplink."""
        rows = json.loads(self.manactl("--json", "uplinks"))["uplinks"]
        return int(rows[1]["counters"][f"fabric.uplink.{name}"])


class EncryptionTest(unittest.TestCase):
    """What the hosts see, and what the path does."""

    def setUp(self) -> None:
        if os.geteuid() != 0:
            self.skipTest("needs root: network namespaces and TAP devices")
        if not Path("/dev/net/tun").exists():
            self.skipTest("the host has no /dev/net/tun")
        missing = [name for name in ("unshare", "nsenter", "ip") if shutil.which(name) is None]
        if missing:
            self.skipTest(f"the host has no {', '.join(missing)}")
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        self.a, self.b = Host(self, 1), Host(self, 2)
        self.a.run("ip", "link", "add", "path", "type", "veth", "peer", "name", "path", "netns",
                   str(self.b.space.pid))
        for host in (self.a, self.b):
            host.run("ip", "addr", "add", f"192.0.2.{host.number}/24", "dev", "path")
            host.run("ip", "link", "set", "path", "up")

    def start(self, encrypted: bool = True, options: str = "") -> list[str]:
        """Both hosts, with the same key."""
        keys = [secrets.token_hex(32) for _ in range(2)]
        for host in (self.a, self.b):
            host.write_keys(keys[0])
            host.start_manad(encrypted, options)
        return keys

    def wait_for(self, what: Callable[[], bool], text: str) -> None:
        """Until it is so."""
        deadline = time.monotonic() + 30
        while not what():
            self.assertLess(time.monotonic(), deadline, f"{text}\n{self.a.log()}\n{self.b.log()}")
            time.sleep(0.1)

    def reaches(self, seconds: float = 1.0, rate: int = 200,
                meanwhile: Callable[[], None] = lambda: None) -> tuple[int, int]:
        """Numbered datagrams from one host to the other: how many went, how many came."""
        receiver = self.b.program(RECEIVER, "10.9.0.2")
        # The first waits for ARP.
        self.a.run(sys.executable, "-c", SENDER, "10.9.0.2", "0.01", "1", "-")
        sender = self.a.start(self.a.inside(sys.executable, "-c", SENDER, "10.9.0.2", str(seconds),
                                            str(rate), MARK.decode()), stdout=subprocess.PIPE)
        meanwhile()
        sent = int(sender.communicate(timeout=seconds + 60)[0])
        time.sleep(0.3)
        receiver.terminate()
        came, repeated = map(int, receiver.communicate(timeout=20)[0].split())
        self.assertLessEqual(repeated, 1)  # that of the first
        return sent, came

    def capture(self, host: Host, while_this: Callable[[], None]) -> bytes:
        """What passes the path meanwhile."""
        file = Path(self.folder) / "path.pcap"
        capture = host.program(WIRE, "capture", "path", str(file))
        while_this()
        capture.terminate()
        capture.communicate(timeout=20)
        return file.read_bytes()

    def test_who_captures_sees_esp_alone(self) -> None:
        """And reads it with the key file."""
        keys = self.start()
        self.assertEqual(*self.reaches())
        data = self.capture(self.a, lambda: self.assertEqual(*self.reaches()))
        self.assertNotIn(MARK, data)
        at, packets = 24, 0
        while at < len(data):
            size = struct.unpack_from("<I", data, at + 8)[0]
            frame = data[at + 16:at + 16 + size]
            at += 16 + size
            if frame[12:14] == b"\x08\x00":
                self.assertEqual(struct.unpack_from(">HH", frame, 34), (PORT, PORT))
                self.assertLess(abs(int.from_bytes(frame[42:46], "big") - time.time()), 120)
                packets += 1
        self.assertGreater(packets, 200)
        lines = subprocess.run(
            [sys.executable, "-B", ROOT / "tools" / "esp-keys", Path(self.folder) / "path.pcap",
             "--key-file", self.a.key_file], capture_output=True, text=True, timeout=60,
            check=True).stdout.splitlines()
        self.assertIn('"192.0.2.1"', {line.split(",")[1] for line in lines})
        self.no_key_is_seen(keys)
        try:
            tshark = find_tshark()
        except LabError as error:
            self.skipTest(f"all but Wireshark's part: no tshark: {error}")
        table = [word for line in lines for word in ("-o", f"uat:esp_sa:{line}")]
        seen = tshark.run(Path(self.folder) / "path.pcap", "-d", f"udp.port=={PORT},udpencap", "-o",
                          "esp.enable_encryption_decode:TRUE", *table, "-Y", "udp.port == 7000",
                          "-T", "fields", "-e", "data.data")
        self.assertGreaterEqual(sum(MARK.hex() in line for line in seen), 190, seen[:3])

    def no_key_is_seen(self, keys: list[str]) -> None:
        """Not in logs, command lines, environments, or what manactl says."""
        for host in (self.a, self.b):
            process = Path("/proc") / str(host.manad.pid)
            seen = host.log() + host.manactl("--json", "uplinks") + "".join(
                (process / name).read_text() for name in ("cmdline", "environ"))
            for key in keys:
                self.assertNotIn(key[:16], seen.lower())

    def test_nothing_is_lost_while_keys_rotate(self) -> None:
        """Each second; a hundred times with OPENMANA_LONG."""
        self.start(options=",rekey=1s")
        seconds = 104.0 if LONG else 5.0
        sent, came = self.reaches(seconds, 1000)
        self.assertEqual(sent, came)
        self.assertGreaterEqual(self.a.counter("esp_rekeys"), 100 if LONG else 4)
        self.assertGreaterEqual(self.b.counter("esp_peer_rekeys"), 100 if LONG else 4)

    def test_nothing_is_lost_while_the_key_is_replaced(self) -> None:
        """In the three steps of docs/network.md; manactl has it read, and the watch does."""
        old, new = self.start()

        def replace() -> None:
            for keys in ((old, new), (new, old), (new,)):
                for host in (self.a, self.b):
                    host.write_keys(*keys)
                    host.manactl("rekey")
                time.sleep(1.2)

        sent, came = self.reaches(5, 500, replace)
        self.assertEqual(sent, came)
        for host in (self.a, self.b):
            self.assertEqual(host.log().count("key file read"), 3, host.log())
            self.assertEqual(host.counter("esp_forged"), 0)
        self.no_key_is_seen([old, new])

    def test_a_wrong_key_says_so(self) -> None:
        """And is mended without a new start."""
        _, other = self.start()
        self.assertEqual(*self.reaches())
        self.b.write_keys(other)
        self.wait_for(lambda: "key file read" in self.b.log(), "not read")
        self.assertEqual(self.reaches()[1], 0)
        self.assertGreater(self.b.counter("esp_old") + self.b.counter("esp_forged"), 100)
        self.assertEqual(self.b.log().count("esp drop"), 1, self.b.log())
        self.a.write_keys(other)
        self.wait_for(lambda: self.reaches(0.5)[1] > 0, "does not come back")
        self.assertEqual(*self.reaches())

    def test_what_comes_again_is_dropped(self) -> None:
        """A capture that is sent once more."""
        self.start()
        self.assertEqual(*self.reaches())
        self.capture(self.a, lambda: self.assertEqual(*self.reaches()))
        before = self.b.counter("rx_frames")
        self.a.run(sys.executable, "-c", WIRE, "inject", "path",
                   str(Path(self.folder) / "path.pcap"))
        self.wait_for(lambda: self.b.counter("esp_replayed") >= 200, "no replay seen")
        self.assertLess(self.b.counter("rx_frames") - before, 20)

    def test_a_manad_that_starts_anew_is_heard(self) -> None:
        """Its peer's keys are older than it takes up by itself, or soon are."""
        self.start()
        self.assertEqual(*self.reaches())
        time.sleep(11)
        self.b.manad.terminate()
        self.b.manad.wait(20)
        (self.b.folder / "control").unlink(missing_ok=True)
        self.b.start_manad(True, "")
        self.assertEqual(*self.reaches())
        self.assertGreaterEqual(self.a.counter("esp_peer_rekeys"), 2)

    def test_wireguard_under_the_uplink(self) -> None:
        """As docs/network.md has it, with wireguard-go."""
        missing = [name for name in ("wireguard-go", "wg") if shutil.which(name) is None]
        if missing:
            self.skipTest(f"the host has no {', '.join(missing)}")
        public = {}
        for host in (self.a, self.b):
            host.key_file.write_text(subprocess.run(["wg", "genkey"], check=True, text=True,
                                                    capture_output=True).stdout)
            public[host.number] = subprocess.run(
                ["wg", "pubkey"], check=True, text=True, capture_output=True,
                input=host.key_file.read_text()).stdout.strip()
        for host in (self.a, self.b):
            # Its control socket is one of the whole system.
            name = f"om{os.getpid()}-{host.number}"
            host.start(host.inside("wireguard-go", "-f", name), stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
            self.wait_for(lambda host=host, name=name: name in host.run("ip", "link"), "no tunnel")
            other = 3 - host.number
            self.wait_for(Path(f"/var/run/wireguard/{name}.sock").exists, "no control socket")
            host.run("wg", "set", name, "listen-port", "51820", "private-key", str(host.key_file),
                     "peer", public[other], "endpoint", f"192.0.2.{other}:51820", "allowed-ips",
                     f"10.99.0.{other}/32")
            host.run("ip", "addr", "add", f"10.99.0.{host.number}/24", "dev", name)
            host.run("ip", "link", "set", name, "mtu", "1420", "up")
            host.start_manad(False, "", "10.99.0")
            host.run("ip", "link", "set", "om0", "mtu", "1374")
        data = self.capture(self.a, lambda: self.assertEqual(*self.reaches()))
        self.assertNotIn(MARK, data)
        self.assertGreater(data.count(b"\xc0\x00\x02\x01\xc0\x00\x02\x02\xca\x6c\xca\x6c"), 100)

    def test_a_key_file_that_cannot_be_used_is_one_line(self) -> None:
        """At the start."""
        self.a.write_keys("no key")
        with self.assertRaisesRegex(AssertionError, "64 hex digits"):
            self.a.start_manad(True, "")
        self.b.write_keys(secrets.token_hex(32))
        self.b.key_file.chmod(0o644)
        with self.assertRaisesRegex(AssertionError, "owner alone"):
            self.b.start_manad(True, "")


if __name__ == "__main__":
    unittest.main()

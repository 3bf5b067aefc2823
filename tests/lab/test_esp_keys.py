# SPDX-License-Identifier: Apache-2.0
"""What tools/esp-keys prints has Wireshark read what an encrypted uplink sent."""

from __future__ import annotations

import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from lab.errors import LabError  # noqa: E402
from lab.tshark import find_tshark  # noqa: E402

PSK = bytes(range(32))
SPI = 0x6A000000
# As in tests/unit/esp/packet_test.cc: from 192.0.2.1 port 4500 to 192.0.2.2 port 4501.
KEY = "6f17d80480693d0f6be766be82a0be413a74de72f46e8d02abce620ad8dcc6f1f97d8bd9"
# An ARP request for 192.0.2.2, sealed by tests/unit/esp/vectors.py.
PACKET = bytes.fromhex(
    "6a00000000000007deadbeef00000007ae2154412c27fda406b3b68204f64c2ca4d9e36b43ae73d1a5a5ea660ce6"
    "55ee95cfe42f6f7782f0809aa5d4c1bf3e0571af30f47cbc430de475914c")
DECODE = ("-d", "udp.port==4501,udpencap", "-o", "esp.enable_encryption_decode:TRUE")


def ipv4(payload: bytes, fragment: int = 0) -> bytes:
    """A frame with UDP over IPv4, without checksums."""
    udp = struct.pack(">HHHH", 4500, 4501, 8 + len(payload), 0) + payload
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 0, fragment, 64, 17, 0)
    return (bytes.fromhex("0200000000bb0200000000aa0800") + ip + bytes([192, 0, 2, 1, 192, 0, 2, 2])
            + udp)


def with_checksum(frame: bytes) -> bytes:
    """The same with the checksum of its IP header."""
    words = sum(struct.unpack(">10H", frame[14:34]))
    words = (words & 0xFFFF) + (words >> 16)
    words = (words & 0xFFFF) + (words >> 16)
    return frame[:24] + struct.pack(">H", 0xFFFF - words) + frame[26:]


class EspKeysTest(unittest.TestCase):
    """The tool, and Wireshark with what it prints."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.capture = Path(folder.name) / "capture.pcap"
        self.key_file = Path(folder.name) / "key"
        self.key_file.write_text(f"# both hosts\n{PSK.hex()}\n")
        self.write([with_checksum(ipv4(PACKET))])

    def write(self, frames: list[bytes]) -> None:
        """Makes the capture of these frames."""
        header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
        self.capture.write_bytes(header + b"".join(
            struct.pack("<IIII", 1, 0, len(frame), len(frame)) + frame for frame in frames))

    def run_tool(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Runs it on the capture."""
        return subprocess.run([sys.executable, "-B", ROOT / "tools/esp-keys", self.capture,
                               "--key-file", self.key_file, *options], capture_output=True,
                              text=True, timeout=60, check=False)

    def refusal(self, *options: str) -> str:
        """The line that it says."""
        done = self.run_tool(*options)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertNotIn(PSK.hex()[:16], done.stderr)
        return done.stderr

    def test_a_line_for_each_sa(self) -> None:
        """Derived as by manad, once for each SA, whatever else is in the capture."""
        other = (SPI + 1).to_bytes(4, "big") + PACKET[4:]
        self.write([ipv4(PACKET), ipv4(other), ipv4(PACKET), ipv4(b"short"),
                    ipv4(PACKET, fragment=7), b"no IP at all, but long enough for a frame"])
        lines = self.run_tool("--port", "4501").stdout.splitlines()
        self.assertEqual(lines[0], '"IPv4","192.0.2.1","192.0.2.2","0x6a000000","AES-GCM with 16 '
                                   f'octet ICV [RFC4106]","0x{KEY}","NULL",""')
        self.assertEqual([line.split(",")[3] for line in lines], ['"0x6a000000"', '"0x6a000001"'])
        self.assertNotIn(KEY, lines[1])

    def test_what_it_cannot_do_is_one_line(self) -> None:
        """And none of them has a key in it."""
        self.assertIn("no ESP in UDP in it", self.refusal("--port", "9"))
        self.assertIn("has 1 keys", self.refusal("--key", "2"))
        self.key_file.write_text(PSK.hex()[:-1] + "x\n")
        self.assertIn("no text of keys", self.refusal())
        self.key_file.write_text(PSK.hex()[:-2] + "\n")
        self.assertIn("64 hex digits", self.refusal())
        self.capture.write_bytes(b"nothing of the kind")
        self.key_file.write_text(PSK.hex())
        self.assertIn("no pcap file", self.refusal())

    def test_wireshark_reads_it(self) -> None:
        """ESP without the line, the frame inside with it."""
        try:
            tshark = find_tshark()
        except LabError as error:
            self.skipTest(f"no tshark: {error}")
        fields = ("-T", "fields", "-e", "frame.protocols", "-e", "arp.dst.proto_ipv4")
        self.assertEqual(tshark.run(self.capture, *DECODE[:2], *fields),
                         ["eth:ethertype:ip:udp:udpencap:esp\t"])
        table = f"uat:esp_sa:{self.run_tool().stdout.strip()}"
        self.assertEqual(tshark.run(self.capture, *DECODE, "-o", table, *fields),
                         ["eth:ethertype:ip:udp:udpencap:esp:eth:ethertype:arp\t192.0.2.2"])


if __name__ == "__main__":
    unittest.main()

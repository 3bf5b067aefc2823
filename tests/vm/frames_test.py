#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The reader of captures against the frames of ROCE 1.9 and one of real hardware."""

from __future__ import annotations

import struct
import tempfile
import unittest
from pathlib import Path

from frames import FrameError, packets_of, parse, read_capture, summary

# A WRITE over IPv4, a UD SEND over IPv6, and a CNP that a ConnectX-4 Lx sent.
WRITE = bytes.fromhex(
    "020000000002020000000001" "0800" "456a004412344000" "4011a407c0000201c0000202"
    "c12312b700300000" "0a30ffff0000001280000abc" "0000700012345678" "00cafe0100000005"
    "68656c6c6f000000" "e1323f1e")
DATAGRAM = bytes.fromhex(
    "020000000002020000000001" "86dd" "66a12345002c1140" "20010db8000000000000000000000001"
    "20010db8000000000000000000000002" "d2d112b7002c0000" "64b0ffff0000000100000007"
    "8001000000000001" "526f4345763220554400 0000" "e09295cf")
NOTICE = bytes.fromhex(
    "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201000012b7002800008100ffff"
    "40000118" + "00" * 20 + "82fd002a")
TAGGED_ACK = bytes.fromhex(
    "0200000000020200000000018100600586dd66a00000001c114020010db8000000000000000000000001"
    "20010db8000000000000000000000002c12312b7001c00001100ffff00000034001234561f0007892f584004")


class FramesTest(unittest.TestCase):
    """What the reader makes of frames."""

    def test_icrc_of_known_frames(self) -> None:
        for frame in (WRITE, DATAGRAM, TAGGED_ACK):
            packet = parse(frame)
            self.assertIsNotNone(packet)
            assert packet is not None
            self.assertTrue(packet.icrc_right)

    def test_icrc_of_a_frame_of_hardware(self) -> None:
        packet = parse(NOTICE)
        assert packet is not None
        self.assertTrue(packet.icrc_right)
        self.assertEqual((packet.name, packet.qpn), ("CNP", 0x118))

    def test_fields(self) -> None:
        packet = parse(WRITE)
        assert packet is not None
        self.assertEqual((packet.source, packet.destination, packet.name, packet.qpn, packet.psn,
                          packet.payload, packet.size),
                         ("192.0.2.1", "192.0.2.2", "WRITE only", 0x12, 0xabc, 5, len(WRITE)))

    def test_every_bit_that_the_icrc_covers(self) -> None:
        free = {14 + at for at in (1, 8, 10, 11)} | {14 + 20 + 6, 14 + 20 + 7, 14 + 28 + 4}
        for byte in range(14 + 12, len(WRITE)):  # before it, lengths and protocol decide
            if byte in (14 + 22, 14 + 23, 14 + 24, 14 + 25, 14 + 28, 14 + 29):
                continue  # port, length, opcode and pad count say what the packet is
            changed = bytearray(WRITE)
            changed[byte] ^= 0x10
            try:
                packet = parse(bytes(changed))
            except FrameError:
                continue
            assert packet is not None
            self.assertEqual(packet.icrc_right, byte in free, f"byte {byte}")

    def test_what_is_not_roce_is_none(self) -> None:
        self.assertIsNone(parse(b"\xff" * 12 + b"\x08\x06" + bytes(46)))
        self.assertIsNone(parse(WRITE[:36] + b"\x00\x35" + WRITE[38:]))

    def test_lengths_that_do_not_agree(self) -> None:
        with self.assertRaises(FrameError):
            parse(WRITE[:-1])

    def test_a_capture(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "x.pcap"
            head = struct.pack("<IHHiIII", 0xa1b23c4d, 2, 4, 0, 0, 262144, 1)
            body = b"".join(struct.pack("<IIII", 5, at, len(frame), len(frame)) + frame
                            for at, frame in enumerate((WRITE, DATAGRAM, b"\xff" * 60)))
            path.write_bytes(head + body)
            self.assertEqual([time for time, _ in read_capture(path)],
                             [5000000000, 5000000001, 5000000002])
            self.assertEqual(summary(packets_of(path)), {"WRITE only": 1, "UD SEND": 1})
            path.write_bytes(head + body[:-1])
            with self.assertRaises(FrameError):
                packets_of(path)


if __name__ == "__main__":
    unittest.main()

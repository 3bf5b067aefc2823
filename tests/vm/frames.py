# SPDX-License-Identifier: Apache-2.0
"""Captures, read without any code of the device: frames, their RoCEv2 headers, and the ICRC by the
rule of the RoCEv2 annex (A17, CA17-22)."""

from __future__ import annotations

import ipaddress
import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROCE_PORT = 4791
NANOSECOND_MAGIC = 0xa1b23c4d
ETHERNET = 1

# Transports are the upper three bits of an opcode, operations of RC the lower five.
NAMES = {0x00: "SEND first", 0x01: "SEND middle", 0x02: "SEND last", 0x03: "SEND last imm",
         0x04: "SEND only", 0x05: "SEND only imm", 0x06: "WRITE first", 0x07: "WRITE middle",
         0x08: "WRITE last", 0x09: "WRITE last imm", 0x0a: "WRITE only", 0x0b: "WRITE only imm",
         0x0c: "READ request", 0x0d: "READ response first", 0x0e: "READ response middle",
         0x0f: "READ response last", 0x10: "READ response only", 0x11: "ACK",
         0x16: "SEND last inv", 0x17: "SEND only inv", 0x64: "UD SEND", 0x65: "UD SEND imm",
         0x81: "CNP"}


class FrameError(Exception):
    """A file that is no capture, or a frame that cannot be what it says."""


def read_capture(path: Path) -> Iterator[tuple[int, bytes]]:
    """(time in ns, frame) of each packet of a pcap file with nanoseconds."""
    data = path.read_bytes()
    if len(data) < 24:
        raise FrameError(f"{path.name}: no pcap header")
    order = "<" if data[:4] == NANOSECOND_MAGIC.to_bytes(4, "little") else ">"
    magic, _major, _minor, _zone, _figures, _snap, link = struct.unpack_from(order + "IHHiIII",
                                                                             data)
    if magic != NANOSECOND_MAGIC or link != ETHERNET:
        raise FrameError(f"{path.name}: not Ethernet with nanoseconds")
    at = 24
    while at < len(data):
        if len(data) - at < 16:
            raise FrameError(f"{path.name}: cut off at byte {at}")
        seconds, nanoseconds, kept, length = struct.unpack_from(order + "IIII", data, at)
        at += 16
        if kept != length or nanoseconds >= 10**9 or len(data) - at < kept:
            raise FrameError(f"{path.name}: a broken packet header at byte {at - 16}")
        yield seconds * 10**9 + nanoseconds, data[at:at + kept]
        at += kept


@dataclass(frozen=True)
class Packet:
    """A RoCEv2 packet: from its IP header to the end of its ICRC."""

    source: str
    destination: str
    opcode: int
    qpn: int
    psn: int
    payload: int
    icrc_right: bool
    size: int  # of the whole frame
    version: int
    tag: int | None = None  # of 802.1Q, the outer one
    source_mac: str = ""

    @property
    def name(self) -> str:
        """Its operation in words."""
        return NAMES.get(self.opcode, f"opcode {self.opcode:#x}")


# Bytes of the extension headers of each opcode (9.2 of the base specification).
def extension_bytes(opcode: int) -> int:
    """RETH 16, AtomicETH 28, AETH 4, immediate or key 4, DETH 8."""
    if opcode >> 5 == 3:
        return 12 if opcode == 0x65 else 8
    table = {0x03: 4, 0x05: 4, 0x06: 16, 0x09: 4, 0x0a: 16, 0x0b: 20, 0x0c: 16, 0x0d: 4, 0x0f: 4,
             0x10: 4, 0x11: 4, 0x12: 12, 0x13: 28, 0x14: 28, 0x16: 4, 0x17: 4}
    return 16 if opcode == 0x81 else table.get(opcode & 0x1f, 0)


def icrc(ip: bytes, version: int, end: int) -> bytes:
    """The ICRC of the packet that begins with its IP header, whose ICRC begins at `end`. What a
    router may change counts as ones, and so does the local route header that RoCE has not."""
    masked = bytearray(ip[:end])
    udp = 20 if version == 4 else 40
    if version == 4:
        changing = [1, 8, 10, 11]
    else:
        masked[0] |= 0x0f
        changing = [1, 2, 3, 7]
    for at in (*changing, udp + 6, udp + 7, udp + 8 + 4):
        masked[at] = 0xff
    return zlib.crc32(b"\xff" * 8 + bytes(masked)).to_bytes(4, "little")


def parse(frame: bytes) -> Packet | None:
    """The RoCEv2 packet of a frame, None if it is something else."""
    at = 12
    tag = int.from_bytes(frame[14:16], "big") if frame[12:14] == b"\x81\x00" else None
    while frame[at:at + 2] in (b"\x81\x00", b"\x88\xa8"):
        at += 4
    kind = frame[at:at + 2]
    ip = frame[at + 2:]
    if kind == b"\x08\x00" and len(ip) >= 20:
        version, udp, protocol = 4, (ip[0] & 15) * 4, ip[9]
        length = int.from_bytes(ip[2:4], "big")
        source, destination = ip[12:16], ip[16:20]
        if int.from_bytes(ip[6:8], "big") & 0x1fff:
            return None  # a later fragment
    elif kind == b"\x86\xdd" and len(ip) >= 40:
        version, udp, protocol = 6, 40, ip[6]
        length = 40 + int.from_bytes(ip[4:6], "big")
        source, destination = ip[8:24], ip[24:40]
    else:
        return None
    if protocol != 17 or int.from_bytes(ip[udp + 2:udp + 4], "big") != ROCE_PORT:
        return None
    if version == 4 and udp != 20:
        raise FrameError("a RoCE packet with IPv4 options")
    if length > len(ip) or int.from_bytes(ip[udp + 4:udp + 6], "big") != length - udp:
        raise FrameError(f"lengths of IP ({length}) and UDP do not agree")
    bth, end = udp + 8, length - 4
    opcode, flags = ip[bth], ip[bth + 1]
    pad = flags >> 4 & 3
    payload = end - bth - 12 - extension_bytes(opcode) - pad
    if payload < 0 or any(ip[end - pad:end]):
        raise FrameError(f"opcode {opcode:#x}: {payload} bytes of payload, or a pad that is not 0")
    return Packet(str(ipaddress.ip_address(source)), str(ipaddress.ip_address(destination)),
                  opcode, int.from_bytes(ip[bth + 5:bth + 8], "big"),
                  int.from_bytes(ip[bth + 9:bth + 12], "big"), payload,
                  icrc(ip, version, end) == ip[end:length], len(frame), version, tag,
                  frame[6:12].hex(":"))


def packets_of(path: Path) -> list[Packet]:
    """All RoCEv2 packets of a capture; times must not go back."""
    found = []
    last = 0
    for time, frame in read_capture(path):
        if time < last:
            raise FrameError(f"{path.name}: time goes back")
        last = time
        packet = parse(frame)
        if packet is not None:
            found.append(packet)
    return found


def summary(packets: list[Packet]) -> Counter[str]:
    """How many there are of each operation."""
    return Counter(packet.name for packet in packets)

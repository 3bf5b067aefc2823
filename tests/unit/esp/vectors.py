#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the packets of packet_test.cc and tests/lab/test_esp_keys.py: the format in Python.

Needs python3-cryptography. With python3-scapy too, it has Scapy open each of them.
"""

import hashlib
import hmac
import ipaddress
import struct
import sys

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

PSK = bytes(range(32))
IV_HIGH = 0xDEADBEEF
ARP_REQUEST = bytes.fromhex("ffffffffffff020000000001 0806 0001 0800 06 04 0001 020000000001 "
                            "c0000201 000000000000 c0000202")


def hkdf(psk: bytes, info: bytes, length: int) -> bytes:
    """RFC 5869 with SHA-256 and no salt."""
    prk = hmac.new(bytes(32), psk, hashlib.sha256).digest()
    okm = block = b""
    for number in range(1, 256):
        if len(okm) >= length:
            break
        block = hmac.new(prk, block + info + bytes([number]), hashlib.sha256).digest()
        okm += block
    return okm[:length]


def end(address: str, port: int) -> bytes:
    ip = ipaddress.ip_address(address)
    return bytes([ip.version]) + ip.packed + struct.pack(">H", port)


def derive(spi: int, sender: tuple[str, int], receiver: tuple[str, int]) -> bytes:
    return hkdf(PSK, b"OpenMANA ESP 1" + struct.pack(">I", spi) + end(*sender) + end(*receiver),
                36)


def seal(key: bytes, spi: int, number: int, next_header: int, payload: bytes) -> bytes:
    pad = bytes(range(1, 1 + -(len(payload) + 2) % 4))
    inside = payload + pad + bytes([len(pad), next_header])
    iv = struct.pack(">II", IV_HIGH, number)
    header = struct.pack(">II", spi, number)
    return header + iv + AESGCM(key[:32]).encrypt(key[32:] + iv, inside, header)


def main() -> None:
    a4, b4 = ("192.0.2.1", 4500), ("192.0.2.2", 4501)
    a6, b6 = ("2001:db8::1", 4500), ("2001:db8::2", 4501)
    for name, sender, receiver in (("4", a4, b4), ("4 back", b4, a4), ("6", a6, b6)):
        print(f"key {name}: {derive(0x6A000000, sender, receiver).hex()}")
    key = derive(0x6A000000, a4, b4)
    packets = [(seal(key, 0x6A000000, 7, 143, ARP_REQUEST), 143, ARP_REQUEST)]
    print(f"ARP request: {packets[0][0].hex()}")
    for next_header, payload in ((59, b""), (143, bytes(range(1, 15))), (17, bytes(range(20))),
                                 (143, bytes(i & 255 for i in range(61)))):
        packet = seal(key, 0x6A000000, len(packets), next_header, payload)
        packets.append((packet, next_header, payload))
        print(f"next header {next_header}, {len(payload)} bytes: {packet.hex()}")
    try:
        from scapy.layers.inet import IP, UDP
        from scapy.layers.ipsec import ESP, SecurityAssociation
    except ImportError:
        print("no Scapy: not compared with it", file=sys.stderr)
        return
    association = SecurityAssociation(ESP, spi=0x6A000000, crypt_algo="AES-GCM", crypt_key=key)
    for packet, next_header, payload in packets:
        wire = IP(src=a4[0], dst=b4[0], proto=50) / ESP(packet)
        opened = association.decrypt(IP(bytes(wire)))
        assert opened.proto == next_header, opened.proto
        assert bytes(opened.payload) == payload, bytes(opened.payload)
    del UDP
    print("Scapy opens them all", file=sys.stderr)


if __name__ == "__main__":
    main()

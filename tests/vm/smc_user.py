#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What smc-tools would do, which Debian does not have. Runs in a guest.

    smc_user.py ueid NAME             adds a user-defined EID, which SMCv2 asks for
    smc_user.py fallbacks             why connections became TCP: reason and count, a line for each
    smc_user.py groups                RDMA device and version of each link group
    smc_user.py serve ADDRESS PORT    takes one connection, says how many bytes came, their SHA-256
    smc_user.py send ADDRESS PORT N   sends N MiB, says the same
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import socket
import struct
import sys

AF_SMC = 43
NAME = b"SMC_GEN_NETLINK"
CTRL, GETFAMILY = 16, 3
GET_LINK_SMCR, GET_LGR_SMCR, GET_FBACK, ADD_UEID = 3, 2, 8, 10
ERROR, DONE = 2, 3
_libc = ctypes.CDLL(None, use_errno=True)
Tree = list[tuple[int, bytes]]


def attribute(kind: int, data: bytes) -> bytes:
    """A netlink attribute."""
    return struct.pack("=HH", 4 + len(data), kind) + data + b"\0" * (-len(data) % 4)


def attributes(data: bytes) -> Tree:
    """Netlink attributes; nested ones are given as bytes."""
    found = []
    while len(data) >= 4:
        length, kind = struct.unpack("=HH", data[:4])
        if length < 4:
            break
        found.append((kind & 0x3fff, data[4:length]))
        data = data[(length + 3) & ~3:]
    return found


class Netlink:
    """A generic netlink socket."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)
        self._socket.bind((0, 0))
        answer = self.ask(CTRL, GETFAMILY, attribute(2, NAME + b"\0"))[0]
        self.family = int(next(struct.unpack("=H", data)[0] for kind, data in answer if kind == 1))

    def ask(self, family: int, command: int, payload: bytes = b"", dump: bool = False
            ) -> list[Tree]:
        """The answers to a request."""
        body = struct.pack("=BBH", command, 1, 0) + payload
        flags = 0x301 if dump else 0x5
        self._socket.send(struct.pack("=IHHII", 16 + len(body), family, flags, 1, 0) + body)
        answers = []
        while True:
            data = self._socket.recv(1 << 16)
            while data:
                length, kind = struct.unpack("=IH", data[:6])
                if kind == ERROR and (code := struct.unpack("=i", data[16:20])[0]):
                    raise OSError(-code, os.strerror(-code))
                if kind in (ERROR, DONE):
                    return answers
                answers.append(attributes(data[20:length]))
                data = data[(length + 3) & ~3:]


def numbers(tree: Tree) -> list[int]:
    """The numbers of a nested attribute."""
    return [int.from_bytes(data, "little") for _, data in tree]


def fallbacks() -> None:
    """An answer for each reason, the server's side first; a reason and its count are 4 and 5."""
    netlink = Netlink()
    for answer in netlink.ask(netlink.family, GET_FBACK, dump=True):
        for _, nested in answer:
            found = dict(attributes(nested))
            reason, count = (int.from_bytes(found.get(kind, b""), "little") for kind in (4, 5))
            print(f"{reason:#010x} {count}")


def address(host: str, port: int) -> bytes:
    """A sockaddr_in: AF_SMC takes those of AF_INET, which Python does not know."""
    return struct.pack("=HH4s8x", socket.AF_INET, socket.htons(port), socket.inet_aton(host))


def call(name: str, *arguments: object) -> int:
    """A call of libc that must succeed."""
    result = int(getattr(_libc, name)(*arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
    return result


def serve(host: str, port: int) -> None:
    """One connection."""
    listener = socket.socket(AF_SMC, socket.SOCK_STREAM, 0)
    where = address(host, port)
    call("bind", listener.fileno(), where, len(where))
    call("listen", listener.fileno(), 1)
    print("listening", flush=True)
    number = call("accept", listener.fileno(), None, None)
    connection = socket.socket(AF_SMC, socket.SOCK_STREAM, 0, number)
    digest, total = hashlib.sha256(), 0
    while data := connection.recv(1 << 20):
        digest.update(data)
        total += len(data)
    print(total, digest.hexdigest(), flush=True)


def send(host: str, port: int, megabytes: int) -> None:
    """One connection."""
    connection = socket.socket(AF_SMC, socket.SOCK_STREAM, 0)
    where = address(host, port)
    call("connect", connection.fileno(), where, len(where))
    digest = hashlib.sha256()
    for _ in range(megabytes):
        data = os.urandom(1 << 20)
        digest.update(data)
        connection.sendall(data)
    connection.close()
    print(megabytes << 20, digest.hexdigest(), flush=True)


def main(command: str, *words: str) -> None:
    """Runs a command."""
    if command == "ueid":
        netlink = Netlink()
        netlink.ask(netlink.family, ADD_UEID, attribute(1, words[0].ljust(32).encode() + b"\0"))
    elif command == "fallbacks":
        fallbacks()
    elif command == "groups":
        netlink = Netlink()
        for answer in netlink.ask(netlink.family, GET_LGR_SMCR, dump=True):
            print(answer)
    elif command == "serve":
        serve(words[0], int(words[1]))
    else:
        send(words[0], int(words[1]), int(words[2]))


if __name__ == "__main__":
    main(*sys.argv[1:])

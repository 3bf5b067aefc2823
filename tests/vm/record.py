# SPDX-License-Identifier: Apache-2.0
"""Writes what comes and goes on an interface to a capture: record.py INTERFACE FILE. Ends at
SIGTERM."""

from __future__ import annotations

import signal
import socket
import struct
import sys
import time

EVERYTHING = 3  # ETH_P_ALL
SO_RCVBUFFORCE, BUFFER = 33, 256 << 20
SOL_PACKET, PACKET_STATISTICS = 263, 6


def record(interface: str, name: str) -> None:
    """Until it is asked to end; says so if it missed a frame."""
    ended = False

    def end(*_: object) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, end)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERYTHING)) as source, \
            open(name, "wb") as out:
        source.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
        source.bind((interface, EVERYTHING))
        source.settimeout(0.2)
        out.write(struct.pack("<IHHiIII", 0xa1b23c4d, 2, 4, 0, 0, 262144, 1))
        out.flush()
        print("ready", flush=True)
        while True:
            try:
                frame = source.recv(262144)
            except TimeoutError:
                out.flush()
                if ended:
                    break
                continue
            now = time.time_ns()
            out.write(struct.pack("<IIII", now // 10**9, now % 10**9, len(frame), len(frame)))
            out.write(frame)
        lost = struct.unpack("II", source.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]
    if lost:
        sys.exit(f"record.py: {lost} frames were lost")


if __name__ == "__main__":
    record(*sys.argv[1:])

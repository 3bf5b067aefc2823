#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the seed inputs of the fuzz targets, in corpus/<target>/.

Most targets read their input as a list of decisions, so that any bytes are a run of the target;
these get deterministic bytes of several lengths. The texts of the control target are written out.
"""

from __future__ import annotations

import random
from pathlib import Path

HERE = Path(__file__).resolve().parent
DECIDED = {"vfio_user": 60, "bar": 50, "hwc": 80, "wqe": 120, "frames": 160}
LINES = [
    "--nic\nid=a,socket=/run/a",
    "--nic\nid=a,socket=/run/a,mac=02:00:00:00:00:01,mtu=9000,speed=100000,error-cqes=asked",
    "--nic\nid=a,socket=/run/a\n--nic\nid=b,socket=/run/b\n--control\n/run/c\n--log\ndebug",
    "--nic\nid=a,socket=/run/a,mac=01:00:00:00:00:01",
    "--nic\nid=a",
    "--help",
    "--version",
]
REQUESTS = [
    '{"command":"status"}\n{"command":"stats"}\n{"command":"qps"}',
    '{"command":"stats","nic":"a"}',
    '{"command":"link","nic":"a","state":"down"}\n{"command":"link","nic":"a","state":"up"}',
    '{"command":"reset","nic":"b"}',
    '{"command":7}\n[]\n{"command":"link","nic":"c"}\n{"command":"\\ud800"}',
]


def write(target: str, number: int, data: bytes) -> None:
    """One seed."""
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{number:02}").write_bytes(data)


def main() -> None:
    """All seeds, the same each time."""
    for target, unit in DECIDED.items():
        source = random.Random(target)
        for number in range(8):
            write(target, number, source.randbytes(unit // 4 << (number // 2)))
    # Ethernet frames from the guest: steps of the kind 7, where one begins with that byte.
    source = random.Random("ethernet")
    write("hwc", 8, b"\x11" + b"".join(b"\x07" + source.randbytes(90) for _ in range(12)))
    texts = [b"\x01" + line.encode() for line in LINES]
    texts += [b"\x00" + text.encode() for text in REQUESTS]
    for number, text in enumerate(texts):
        write("control", number, text)


if __name__ == "__main__":
    main()

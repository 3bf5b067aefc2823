#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps writing to a file or a disk, and knows what must be there afterwards. Runs in a guest.

    keep_writing.py write FILE      writes until its stdin ends, then reads all back and compares
    keep_writing.py check FILE N... after a crash: what N whole passes of each worker wrote is there

Each worker writes the blocks of its own part in passes, past the page cache, and ends a pass with
an fsync(). A block says which one it is and of which pass, and the rest of it follows from that. A
line on stdin is answered with one: how many workers wait for the file now, how many passes each
has behind it, and what that line was.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
import sys
import threading

WORKERS = 4
BLOCKS = 48  # of each worker
BLOCK = 16384
HEAD = struct.Struct("<QQ")


def content(block: int, passes: int) -> bytes:
    """What a pass writes to a block."""
    head = HEAD.pack(block, passes)
    return head + (hashlib.sha256(head).digest() * (BLOCK // 32))[:BLOCK - HEAD.size]


def read(file: int, block: int, buffer: mmap.mmap) -> tuple[int, bool]:
    """The pass that a block says it is of, and whether it is all that that pass wrote."""
    count = os.preadv(file, [buffer], block * BLOCK)
    data = buffer[:]
    passes = HEAD.unpack_from(data)[1]
    return passes, count == BLOCK and data == content(block, passes)


class Worker(threading.Thread):
    """Writes its blocks in passes until it is to stop."""

    def __init__(self, file: int, number: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.file = file
        self.number = number
        self.stop = stop
        self.waits = False
        self.passes = 0  # whole ones, with their fsync()

    @property
    def blocks(self) -> range:
        """The blocks of its part."""
        return range(self.number * BLOCKS, (self.number + 1) * BLOCKS)

    def run(self) -> None:
        buffer = mmap.mmap(-1, BLOCK)
        try:
            while not self.stop.is_set():
                for block in self.blocks:
                    buffer[:] = content(block, self.passes + 1)
                    self.waits = True
                    count = os.pwritev(self.file, [buffer], block * BLOCK)
                    self.waits = False
                    if count != BLOCK:
                        raise OSError(f"{count} of {BLOCK} bytes")
                self.waits = True
                os.fsync(self.file)
                self.waits = False
                self.passes += 1
        except OSError as error:
            print(f"block {block} of pass {self.passes + 1}: {error}", file=sys.stderr, flush=True)
            os._exit(1)


def write(path: str) -> None:
    """Writes until stdin ends; then everything is what was written last."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
    stop = threading.Event()
    workers = [Worker(file, number, stop) for number in range(WORKERS)]
    for worker in workers:
        worker.start()
    for line in sys.stdin:
        waiting = sum(worker.waits for worker in workers)
        print("waiting", waiting, "passes", *(worker.passes for worker in workers),
              "answer", line.strip(), flush=True)
    stop.set()
    for worker in workers:
        worker.join()
    os.close(file)
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, BLOCK)
    for worker in workers:
        for block in worker.blocks:
            if read(file, block, buffer) != (worker.passes, True):
                sys.exit(f"block {block}: {buffer[:32].hex()}... is not that of pass "
                         f"{worker.passes}")
    print("compared", WORKERS * BLOCKS, "blocks of passes", *(worker.passes for worker in workers))


def check(path: str, passes: list[int]) -> None:
    """Each block is of no earlier pass, and whole, but for the one that each worker may have been
    writing."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, BLOCK)
    newer = 0
    for number, least in enumerate(passes):
        partial = 0
        for block in range(number * BLOCKS, (number + 1) * BLOCKS):
            found, whole = read(file, block, buffer)
            partial += not whole
            if partial > 1 or found < least:
                sys.exit(f"block {block}: {buffer[:32].hex()}... is of pass {found}, and "
                         f"{'whole' if whole else 'not whole'}; pass {least} was synced")
            newer += found > least
    print("checked", len(passes) * BLOCKS, "blocks,", newer, "of later passes")


def main() -> None:
    """Does what the command line says."""
    if sys.argv[1] == "write":
        write(sys.argv[2])
    else:
        check(sys.argv[2], [int(word) for word in sys.argv[3:]])


if __name__ == "__main__":
    main()

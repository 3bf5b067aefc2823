#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An XDP program that counts packets and passes or drops them, on an interface as long as this
program runs. Runs in a guest.

    xdp_count.py INTERFACE native|generic pass|drop

Says `attached`, and the count for each line on stdin; at its end the program is gone.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys

SYS_BPF = 321
MAP_CREATE, MAP_LOOKUP, PROG_LOAD, LINK_CREATE = 0, 1, 5, 28
MAP_ARRAY, PROG_XDP, ATTACH_XDP = 2, 6, 37
ACTIONS = {"drop": 1, "pass": 2}
MODES = {"generic": 1 << 1, "native": 1 << 2}
_libc = ctypes.CDLL(None, use_errno=True)


def bpf(command: int, attributes: bytes) -> int:
    """bpf(2)."""
    room = ctypes.create_string_buffer(attributes.ljust(128, b"\0"), 128)
    result = int(_libc.syscall(SYS_BPF, command, room, len(room)))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"bpf({command}): {os.strerror(ctypes.get_errno())}")
    return result


def instruction(code: int, target: int = 0, source: int = 0, offset: int = 0, value: int = 0
                ) -> bytes:
    """One instruction."""
    return struct.pack("<BBhi", code, target | source << 4, offset, value)


def program(counter: int, action: int) -> bytes:
    """Adds 1 to the counter, a map's element 0, and returns the action."""
    return b"".join((
        instruction(0x62, 10, offset=-4),              # *(u32 *)(r10 - 4) = 0
        instruction(0xbf, 2, 10),                      # r2 = r10
        instruction(0x07, 2, value=-4),                # r2 -= 4
        instruction(0x18, 1, 1, value=counter),        # r1 = the map
        instruction(0),
        instruction(0x85, value=1),                    # r0 = bpf_map_lookup_elem(r1, r2)
        instruction(0x15, 0, offset=2),                # if (!r0) skip two
        instruction(0xb7, 1, value=1),                 # r1 = 1
        instruction(0xdb, 0, 1),                       # *(u64 *)r0 += r1, atomically
        instruction(0xb7, 0, value=action),            # return action
        instruction(0x95)))


def main(interface: str, mode: str, action: str) -> None:
    """Attaches, and counts."""
    counter = bpf(MAP_CREATE, struct.pack("=5I", MAP_ARRAY, 4, 8, 1, 0))
    code = ctypes.create_string_buffer(program(counter, ACTIONS[action]))
    words = ctypes.create_string_buffer(b"GPL")
    head = struct.pack("=2I2Q", PROG_XDP, (len(code) - 1) // 8, ctypes.addressof(code),
                       ctypes.addressof(words))
    # log_level, log_size, log_buf, kern_version, prog_flags, prog_name, prog_ifindex
    rest = struct.pack("=2IQ2I16s2I", 0, 0, 0, 0, 0, b"xdp_count", 0, ATTACH_XDP)
    loaded = bpf(PROG_LOAD, head + rest)
    link = bpf(LINK_CREATE, struct.pack("=4I", loaded, socket.if_nametoindex(interface),
                                        ATTACH_XDP, MODES[mode]))
    print("attached", flush=True)
    key, value = ctypes.c_uint32(0), ctypes.c_uint64(0)
    for number, _ in enumerate(sys.stdin):
        bpf(MAP_LOOKUP, struct.pack("=2I2Q", counter, 0, ctypes.addressof(key),
                                    ctypes.addressof(value)))
        print(f"{value.value} counted {number}", flush=True)
    os.close(link)


if __name__ == "__main__":
    main(*sys.argv[1:])

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the provider's words to the device are on machines that are not ours: device_order.py CLANG.

A doorbell is one store of 64 bits, also where words are of 32 bits: the device would take its first
half for a whole one. On ARM the barriers towards the device are those of the outer domain, since
the inner one ends at the CPUs. Exits 1 if the compiler makes something else of dp_base.h; 77, for a
skip, if it knows none of the targets.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = """
#include "dp_base.h"
void doorbell(void *page, uint64_t value) { mana_doorbell(page, 8, value); }
uint32_t load(const uint32_t *word) { return mana_load_device(word); }
void store(uint32_t *word, uint32_t value) { mana_store_device(word, value); }
void full(void) { mana_full_barrier(); }
"""
# What of libc's headers the data path names, and nothing here calls.
STUBS = {"assert.h": "#define static_assert _Static_assert\n", "errno.h": "",
         "string.h": "void *memcpy(void *to, const void *from, __SIZE_TYPE__ bytes);\n"
                     "void *memset(void *at, int value, __SIZE_TYPE__ bytes);\n"}
# Of each target and function: what its body has to match, in this order.
WANTED = {
    "i686-linux-gnu": {
        "doorbell": r"sfence.*\n\s*(fistpll\s+8\(%e|mov(q|lps|sd)\s+%xmm\d, 8\(%e).*sfence"},
    "aarch64-linux-gnu": {
        "doorbell": r"dsb\s+st\b.*\bstr\s+x.*dsb\s+st\b",
        "load": r"\bldr\s+w.*dmb\s+oshld\b",
        "store": r"dmb\s+osh\b.*\bstr\s+w",
        "full": r"dmb\s+osh\b"},
}


def assembly(clang: str, target: str, folder: Path) -> str:
    """The bodies of the functions of SOURCE, or '' if the compiler does not know the target."""
    result = subprocess.run(
        [clang, f"--target={target}", "-O2", "-fomit-frame-pointer", "-ffreestanding", "-S", "-o",
         "-", "-x", "c", "-", f"-I{folder}", f"-I{ROOT / 'providers/mana'}",
         f"-I{ROOT / 'include'}"],
        input=SOURCE, capture_output=True, text=True, check=False)
    if result.returncode and "unable to create target" in result.stderr:
        return ""
    if result.returncode:
        sys.exit(result.stderr)
    return result.stdout


def wrong(target: str, text: str) -> list[str]:
    """What is missing in the functions of a target."""
    found = []
    for name, pattern in WANTED[target].items():
        body = re.search(rf"^{name}:[^\n]*\n(.*?)^\.Lfunc_end", text, re.M | re.S)
        if body is None or not re.search(pattern, body[1], re.S):
            found.append(f"{target}: {name}() is\n{body[1] if body else 'missing'}")
    return found


def main() -> int:
    clang = sys.argv[1]
    bad: list[str] = []
    seen = 0
    with tempfile.TemporaryDirectory() as temp:
        for name, text in STUBS.items():
            (Path(temp) / name).write_text(text)
        for target in WANTED:
            text = assembly(clang, target, Path(temp))
            if text:
                seen += 1
                bad += wrong(target, text)
            else:
                print(f"{target}: unknown to this compiler")
    if not seen:
        print("nothing was seen")
        return 77
    print("\n".join(bad) or "all there")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

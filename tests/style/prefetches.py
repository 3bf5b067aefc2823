#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Whether the compiler kept the prefetches: prefetches.py OBJDUMP PROGRAM.

GCC takes a function that only prefetches for one without effect and drops its calls, without a
word; nothing but time tells. Exits 1 if a function that is meant to ask for memory ahead does not.
"""

from __future__ import annotations

import re
import subprocess
import sys

PREFETCH = re.compile(r"\b(prefetch\w*|prfm)\b")
#: As objdump names them, less their parameters.
FUNCTIONS = [
    "openmana::gdma::Doorbells::ring32",
    "openmana::gdma::Doorbells::ring64",
    "openmana::gdma::Registers::write_all",
    "openmana::gdma::MemoryTable::prefetch",
    "openmana::gdma::Ring::prefetch",
    "openmana::rnic::Scheduler::pump",
    "openmana::rnic::copy_spans",
]


def main() -> int:
    objdump, program = sys.argv[1:]
    text = subprocess.run([objdump, "-d", "-C", "--no-show-raw-insn", program],
                          check=True, capture_output=True, text=True).stdout
    having = set()
    seen = set()
    name = ""
    for line in text.splitlines():
        header = re.match(r"[0-9a-f]+ <(.*?)\(.*>:$", line)
        if header:
            name = header[1]
            seen.add(name)
        elif line.endswith(">:"):
            name = ""
        elif PREFETCH.search(line.split("\t", 1)[-1].split("<")[0]):
            having.add(name)
    bad = [f"{name}: {'no prefetch' if name in seen else 'not found'}"
           for name in FUNCTIONS if name not in having]
    print("\n".join(bad) or "all there")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

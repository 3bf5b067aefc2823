#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Whether the provider's barriers towards the device are fences: barriers.py OBJDUMP LIBRARY.

Of a fence among threads compilers make a locked instruction on x86. QEMU without KVM executes
that as a plain one in a guest of a single CPU, and then a doorbell record may go unseen for ever.
Exits 1 if the data path has such an instruction in the place of a fence, or no fence where one has
to be.
"""

from __future__ import annotations

import re
import subprocess
import sys

FENCED = ("mana_dp_cq_arm_ring",)


def main() -> int:
    objdump, library = sys.argv[1:]
    text = subprocess.run([objdump, "-d", "--no-show-raw-insn", library], check=True,
                          capture_output=True, text=True).stdout
    bodies = dict(re.findall(r"^[0-9a-f]+ <(\w+)>:\n((?:.+\n?)*)", text, re.M))
    bad = [f"{name}: no mfence" for name in FENCED if "mfence" not in bodies.get(name, "")]
    bad += [f"{name}: a locked or in the place of a fence" for name, body in bodies.items()
            if re.search(r"\block or\w*\s+\$0x0,", body)]
    print("\n".join(bad) or "all there")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

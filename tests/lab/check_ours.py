#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Our kernel driver: no warning of gcc (W=1) and sparse with the kernel headers of a suite, or none
of checkpatch. Our provider: its verbs (tests/verbs) with the compiler and rdma-core of a suite.

    check_ours.py driver trixie|forky|trixie-backports|checkpatch
    check_ours.py provider trixie|forky|trixie-backports
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from lab import checkpatch, ours  # noqa: E402
from lab.errors import LabError  # noqa: E402
from lab.image import get_image  # noqa: E402


def driver_warnings(suite: str) -> list[str]:
    """What checkpatch or a suite's compiler says of the driver."""
    if suite != "checkpatch":
        return ours.check_driver(get_image(suite))
    files = [path for path in ours.source_files("kernel") if path.suffix in (".c", ".h")]
    return checkpatch.check(files)


def main() -> int:
    part, suite = sys.argv[1:]
    try:
        if part == "provider":
            print(ours.check_provider(get_image(suite)))
            return 0
        found = driver_warnings(suite)
    except LabError as error:
        found = [str(error)]
    print(*found, f"{len(found)} warnings or errors", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

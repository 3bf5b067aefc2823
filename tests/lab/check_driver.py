#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Our kernel driver: no warning of gcc (W=1) and sparse with the kernel headers of a suite, or none
of checkpatch.

    check_driver.py trixie|forky|checkpatch
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from lab import checkpatch  # noqa: E402
from lab.errors import LabError  # noqa: E402
from lab.image import get_image  # noqa: E402
from lab.ours import check_driver, source_files  # noqa: E402


def main() -> int:
    try:
        if sys.argv[1] == "checkpatch":
            files = [path for path in source_files("kernel") if path.suffix in (".c", ".h")]
            found = checkpatch.check(files)
        else:
            found = check_driver(get_image(sys.argv[1]))
    except LabError as error:
        found = [str(error)]
    print(*found, sep="\n")
    print(f"{len(found)} warnings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

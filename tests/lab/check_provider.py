#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The verbs of our provider (tests/verbs) with the compiler and rdma-core of a suite.

    check_provider.py trixie|forky
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from lab.errors import LabError  # noqa: E402
from lab.image import get_image  # noqa: E402
from lab.ours import check_provider  # noqa: E402


def main() -> int:
    try:
        print(check_provider(get_image(sys.argv[1])))
    except LabError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

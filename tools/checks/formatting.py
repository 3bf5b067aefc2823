# SPDX-License-Identifier: Apache-2.0
"""clang-format finds nothing to change."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from checks.tree import CXX, Finding, Tree


def check(tree: Tree) -> Iterator[Finding]:
    tool = shutil.which("clang-format-14") or shutil.which("clang-format")
    if tool is None:
        raise SystemExit("check: clang-format is missing (Debian package clang-format)")
    sources = [path for path in tree.files
               if path.suffix in CXX | {".c"} and path.parts[0] in {"device", "tests", "tools"}]
    for start in range(0, len(sources), 50):
        result = subprocess.run(
            [tool, "--dry-run", *map(str, sources[start:start + 50])],
            cwd=tree.root, check=False, capture_output=True, text=True,
        )
        for line in result.stderr.splitlines():
            found = re.match(r"(.*?):(\d+):\d+: warning: ", line)
            if found:
                yield Finding(Path(found[1]), int(found[2]), "clang-format would change this")

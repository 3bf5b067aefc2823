# SPDX-License-Identifier: Apache-2.0
"""The files that are checked, and what a rule finds in them."""

from __future__ import annotations

import functools
import subprocess
from dataclasses import dataclass
from pathlib import Path

CODE = {".h", ".cc", ".c", ".py", ".cmake", ".sh"}
CXX = {".h", ".cc"}


@dataclass(frozen=True)
class Finding:
    """What is wrong, and where. Paths are relative to the root of the tree."""

    path: Path
    line: int
    text: str
    about: str = ""  # what an exception names, if it is not the file

    @property
    def subject(self) -> str:
        return self.about or str(self.path)


class Tree:
    """Files that git knows or would add; paths are relative to the root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        listing = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"],
            cwd=root, check=True, capture_output=True, text=True,
        ).stdout.splitlines()
        self.files = [path for path in map(Path, listing)
                      if (root / path).is_file() and not (root / path).is_symlink()]

    @functools.cache
    def text(self, path: Path) -> str:
        return (self.root / path).read_text(encoding="utf-8", errors="replace")

    @functools.cache
    def lines(self, path: Path) -> list[str]:
        return self.text(path).splitlines()

    @functools.cache
    def is_code(self, path: Path) -> bool:
        if path.suffix in CODE or path.name in {"CMakeLists.txt", "Kbuild", "Makefile"}:
            return True
        with (self.root / path).open("rb") as file:
            return file.read(2) == b"#!"

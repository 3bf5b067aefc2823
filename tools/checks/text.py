# SPDX-License-Identifier: Apache-2.0
"""No unfinished business, no trailing space, no path of one machine, no over-long line."""

import re
from collections.abc import Iterator
from pathlib import Path

from checks.tree import Finding, Tree

COLUMNS = 100
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")
LOCAL_PATH = re.compile(r"(?<![\w.])/(" + "|".join(["work", "home"]) + r")/\w")
LINK_TARGET = re.compile(r"\]\([^)]*\)|<?https?://\S+")


def check(tree: Tree) -> Iterator[Finding]:
    for path in tree.files:
        if not tree.is_code(path) and path.suffix != ".md":
            continue
        for number, line in enumerate(tree.lines(path), 1):
            if UNFINISHED.search(line):
                yield Finding(path, number, "unfinished business: do it, or document the limit")
            if line != line.rstrip():
                yield Finding(path, number, "trailing space")
            if LOCAL_PATH.search(line):
                yield Finding(path, number, "a path of one machine")
        for number in long_lines(tree, path):
            yield Finding(path, number, f"line longer than {COLUMNS} columns")


def long_lines(tree: Tree, path: Path) -> Iterator[int]:
    """Of Python, and of Markdown but for table rows, code blocks and where links lead."""
    if path.suffix not in {".py", ".md"}:
        return
    code = False
    for number, line in enumerate(tree.lines(path), 1):
        if path.suffix == ".md":
            fence = line.lstrip().startswith("```")
            code ^= fence
            if fence or code or line.lstrip().startswith("|"):
                continue
            line = LINK_TARGET.sub("", line)
        if len(line) > COLUMNS:
            yield number

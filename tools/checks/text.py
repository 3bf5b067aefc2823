# SPDX-License-Identifier: Apache-2.0
"""No unfinished business, no trailing space, no path of one machine, no over-long line of code."""

import re
from collections.abc import Iterator

from checks.tree import Finding, Tree

UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")
LOCAL_PATH = re.compile(r"(?<![\w.])/(" + "|".join(["work", "home"]) + r")/\w")


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
            if path.suffix == ".py" and len(line) > 100:
                yield Finding(path, number, "line longer than 100 columns")

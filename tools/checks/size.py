# SPDX-License-Identifier: Apache-2.0
"""No file and no function is too long to be read in one go."""

from collections.abc import Iterator

from checks.source import definitions, plain
from checks.tree import Finding, Tree

FILE_LINES = {"device": 600, "kernel": 600, "providers": 600, "include": 600, "tests": 1000}
FUNCTION_LINES = 80
SOURCES = {".h", ".cc", ".c"}


def check(tree: Tree) -> Iterator[Finding]:
    for path in tree.files:
        limit = FILE_LINES.get(path.parts[0])
        if limit is None or path.suffix not in SOURCES | {".py"}:
            continue
        length = len(tree.lines(path))
        if length > limit:
            yield Finding(path, 1, f"{length} lines, and not {limit} at most")
        if path.suffix not in SOURCES:
            continue
        for definition in definitions(plain(tree.text(path))):
            length = definition.last - definition.first + 1
            if definition.function and length > FUNCTION_LINES:
                yield Finding(path, definition.first,
                              f"{definition.name} has {length} lines, and not {FUNCTION_LINES} at "
                              "most", f"{path}:{definition.name.replace(' ', '')}")

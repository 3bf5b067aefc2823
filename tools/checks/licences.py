# SPDX-License-Identifier: Apache-2.0
"""Every source file names its licence in its first two lines."""

from collections.abc import Iterator

from checks.tree import Finding, Tree


def check(tree: Tree) -> Iterator[Finding]:
    for path in tree.files:
        head = tree.lines(path)[:2] if tree.is_code(path) else None
        if head is not None and not any("SPDX-License-Identifier:" in line for line in head):
            yield Finding(path, 1, "no SPDX-License-Identifier in the first two lines")

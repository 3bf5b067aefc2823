# SPDX-License-Identifier: Apache-2.0
"""C++ headers are guarded, and namespaces follow the folders."""

from collections.abc import Iterator

from checks.tree import Finding, Tree


def check(tree: Tree) -> Iterator[Finding]:
    for path in tree.files:
        if path.parts[0] != "device" or path.suffix != ".h":
            continue
        text = tree.text(path)
        if "#pragma once" not in text:
            yield Finding(path, 1, "no #pragma once")
        if f"namespace openmana::{path.parts[1]}" not in text and "#define OM_" not in text:
            yield Finding(path, 1, f"not in namespace openmana::{path.parts[1]}")

# SPDX-License-Identifier: Apache-2.0
"""A layer of device/ includes only layers below it, and the public headers."""

import re
from collections.abc import Iterator

from checks.tree import CXX, Finding, Tree

# A layer may include itself and those named here.
LAYERS = {
    "base": set(),
    "vfio_user": {"base"},
    "pci": {"vfio_user", "base"},
    "gdma": {"pci", "base"},
    "eth": {"gdma", "pci", "base"},
    "roce": {"base"},
    "rnic": {"eth", "roce", "gdma", "pci", "base"},
    "fabric": {"rnic", "eth", "roce", "gdma", "pci", "vfio_user", "base"},
    "manad": {"fabric", "rnic", "eth", "roce", "gdma", "pci", "vfio_user", "base"},
}
INCLUDE = re.compile(r'#include "([a-z_]+)/')


def check(tree: Tree) -> Iterator[Finding]:
    for path in tree.files:
        if path.parts[0] == "include" and path.suffix == ".h":
            for number, line in enumerate(tree.lines(path), 1):
                if re.match(r'#include "', line):
                    yield Finding(path, number, "public headers include with <mana/...>")
        if path.parts[0] != "device" or path.suffix not in CXX or len(path.parts) < 3:
            continue
        layer = path.parts[1]
        for number, line in enumerate(tree.lines(path), 1):
            found = INCLUDE.match(line)
            if found and found[1] != layer and found[1] not in LAYERS.get(layer, set()):
                yield Finding(path, number, f"layer {layer} may not include {found[1]}/")

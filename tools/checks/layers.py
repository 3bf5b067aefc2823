# SPDX-License-Identifier: Apache-2.0
"""A layer of device/ names only layers below it: in what it includes, and by their namespaces.

The adapter, the control side of rnic, is for its own files alone: no other includes its header or
names its type, and places outside its functions that take something out of an `adapter` are
counted.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from checks.source import definitions, plain
from checks.tree import CXX, Finding, Tree

# A layer may name itself and those given here.
LAYERS = {
    "base": set(),
    "vfio_user": {"base"},
    "pci": {"vfio_user", "base"},
    "gdma": {"pci", "base"},
    "eth": {"gdma", "pci", "base"},
    "roce": {"base"},
    "esp": {"base"},
    "rnic": {"eth", "roce", "gdma", "pci", "base"},
    "fabric": {"rnic", "eth", "esp", "roce", "gdma", "pci", "vfio_user", "base"},
    "manad": {"fabric", "rnic", "eth", "esp", "roce", "gdma", "pci", "vfio_user", "base"},
}
INCLUDE = re.compile(r'#include "([a-z_]+)/')
NAMESPACE = re.compile(rf"(?<![\w:.>])(?:::)?(?:openmana::)?({'|'.join(LAYERS)})::")

RNIC = Path("device/rnic")
# The files of the adapter: itself, its commands, and its owner.
ADAPTER_FILES = {RNIC / name for name in ("adapter.h", "adapter.cc", "adapter_state.cc",
                                          "commands.cc", "ext_commands.cc", "modify_qp.cc",
                                          "rnic.h", "rnic.cc")}
ADAPTER_HEADER = re.compile(r'#include "rnic/adapter\.h"')
ADAPTER_TYPE = re.compile(r"\bAdapter\b")
ADAPTER = re.compile(r"\badapter_?\.\s*\w")
ADAPTER_OWN = ("Adapter::", "Rnic::")


def check(tree: Tree) -> Iterator[Finding]:
    places: list[tuple[Path, int]] = []
    for path in tree.files:
        if path.parts[0] == "include" and path.suffix == ".h":
            for number, line in enumerate(tree.lines(path), 1):
                if re.match(r'#include "', line):
                    yield Finding(path, number, "public headers include with <mana/...>")
        if path.parts[0] != "device" or path.suffix not in CXX or len(path.parts) < 3:
            continue
        layer = path.parts[1]
        allowed = LAYERS.get(layer, set()) | {layer}
        for number, line in enumerate(tree.lines(path), 1):
            found = INCLUDE.match(line)
            if found and found[1] not in allowed:
                yield Finding(path, number, f"layer {layer} may not include {found[1]}/")
            if ADAPTER_HEADER.match(line) and path not in ADAPTER_FILES:
                yield Finding(path, number, "the adapter's header is for its own files")
        text = plain(tree.text(path))
        for number, line in enumerate(text.split("\n"), 1):
            if layer == "rnic" and path not in ADAPTER_FILES and ADAPTER_TYPE.search(line):
                yield Finding(path, number, "the adapter is for its own files")
            for name in sorted({match[1] for match in NAMESPACE.finditer(line)} - allowed):
                yield Finding(path, number, f"layer {layer} may not use {name}::")
        if path.parent == RNIC:
            places += [(path, number) for number in adapter_places(text)]
    if places:
        files = len({path for path, _ in places})
        yield Finding(*places[0], f"{len(places)} places in {files} files reach into the adapter",
                      f"adapter={len(places)}")


def adapter_places(text: str) -> Iterator[int]:
    """Lines, one for each place."""
    own = [range(definition.first, definition.last + 1) for definition in definitions(text)
           if definition.name.startswith(ADAPTER_OWN)]
    for match in ADAPTER.finditer(text):
        number = text.count("\n", 0, match.start()) + 1
        if not any(number in lines for lines in own):
            yield number

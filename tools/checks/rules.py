# SPDX-License-Identifier: Apache-2.0
"""All rules, by the names that tools/check knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from checks import circles, formatting, layers, licences, names, references, size, strata, text
from checks.exceptions import Exceptions
from checks.tree import Finding, Tree

RULES: dict[str, Callable[[Tree], Iterator[Finding]]] = {
    "spdx": licences.check,
    "layers": layers.check,
    "text": text.check,
    "names": names.check,
    "circles": circles.check,
    "size": size.check,
    "strata": strata.check,
    "references": references.check,
    "format": formatting.check,
}


def findings(tree: Tree, rule: str) -> Iterator[Finding]:
    """What a rule finds, less the exceptions."""
    yield from Exceptions(tree, rule).without(RULES[rule](tree))

# SPDX-License-Identifier: Apache-2.0
"""No circle of source files in kernel/ or providers/: who is called does not call back.

A file stands above those whose functions and variables it names. Headers are left out.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from checks.source import definitions, plain
from checks.tree import Finding, Tree

FOLDERS = ("kernel", "providers")
Graph = dict[Path, dict[Path, str]]


def check(tree: Tree) -> Iterator[Finding]:
    for folder in FOLDERS:
        graph = uses(tree, [path for path in tree.files
                            if path.parts[0] == folder and path.suffix == ".c"])
        for members in circles(graph):
            way = shortest(graph, members)
            steps = [f"{a.name} uses {graph[a][b]} of {b.name}"
                     for a, b in zip(way, [*way[1:], way[0]])]
            yield Finding(way[0], 1, f"{len(members)} files make a circle: {', '.join(steps)}",
                          f"{folder}/")


def uses(tree: Tree, files: list[Path]) -> Graph:
    """Of each file: the files that it uses, with a name that shows it."""
    texts = {path: plain(tree.text(path)) for path in files}
    owner = {definition.name: path for path in files for definition in definitions(texts[path])
             if not re.search(r"\bstatic\b", definition.head)}
    graph: Graph = {path: {} for path in files}
    for path in files:
        for name in re.findall(r"(?<!->)(?<!\.)\b[a-zA-Z_]\w*\b", texts[path]):
            if owner.get(name, path) != path:
                graph[path].setdefault(owner[name], name)
    return graph


def reachable(graph: Graph, start: Path) -> set[Path]:
    found: set[Path] = set()
    waiting = [start]
    while waiting:
        for path in graph[waiting.pop()]:
            if path not in found:
                found.add(path)
                waiting.append(path)
    return found


def circles(graph: Graph) -> Iterator[set[Path]]:
    """Files that reach each other, each set once."""
    below = {path: reachable(graph, path) for path in graph}
    done: set[Path] = set()
    for path in graph:
        if path in below[path] and path not in done:
            members = {other for other in below[path] if path in below[other]}
            done |= members
            yield members


def shortest(graph: Graph, members: set[Path]) -> list[Path]:
    """A circle among them, as an example."""
    best: list[Path] = []
    for start in sorted(members):
        ways = [[start]]
        seen = {start}
        while ways and (not best or len(ways[0]) < len(best)):
            way = ways.pop(0)
            if start in graph[way[-1]]:
                best = way
                break
            for path in sorted(graph[way[-1]]):
                if path in members and path not in seen:
                    seen.add(path)
                    ways.append([*way, path])
    return best

# SPDX-License-Identifier: Apache-2.0
"""What was found in series for other projects: kept in tools/upstream.d/found.json by
`tools/upstream PART --check --record`, shown as the table of docs/upstream.md."""

from __future__ import annotations

import datetime
import json
import subprocess
from typing import Any

from .errors import LabError
from .paths import ROOT
from .series import PARTS, Part, Tree, part_names
from .series_check import Outcome

KEPT = PARTS / "found.json"
DOCUMENT = ROOT / "docs" / "upstream.md"
BEGIN, END = "<!-- found: begin -->\n", "<!-- found: end -->\n"
HEAD = ("| part | tree | commits | build | sparse | checkpatch --strict | its own tests "
        "| commit, day |\n|---|---|---|---|---|---|---|---|\n")


def kept() -> dict[str, Any]:
    """What is kept, by part."""
    return json.loads(KEPT.read_text()) if KEPT.exists() else {}


def record(part: Part, tree: Tree, outcome: Outcome) -> None:
    """Keeps what was found."""
    commit = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], cwd=ROOT, text=True,
                            capture_output=True, check=False).stdout.strip()
    commits = outcome.commits
    found = kept()
    found[part.name] = {
        "tree": f"{tree.kind} {tree.version}", "commits": len(commits),
        "build": sum(len(item.build) for item in commits),
        "sparse": tree.kind == "linux" and all(item.sparse for item in commits if item.compiled),
        "style": sum(len(item.style) for item in commits),
        "ignored": part.settings.get("ignore", []), "tests": outcome.tests, "commit": commit,
        "day": datetime.datetime.now(datetime.timezone.utc).date().isoformat()}
    KEPT.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


def _row(name: str, seen: dict[str, Any]) -> str:
    def count(number: int) -> str:
        return f"{number} findings" if number else "nothing"

    sparse = "nothing" if seen["sparse"] else "-"
    style = count(seen["style"])
    if seen["ignored"]:
        style += f" but {', '.join(seen['ignored'])}"
    return (f"| `{name}` | {seen['tree']} | {seen['commits']} | {count(seen['build'])} | {sparse} "
            f"| {style} | {seen['tests'] or '-'} | {seen['commit']}, {seen['day']} |\n")


def table() -> str:
    """The table, a row for each part that was tried."""
    found = kept()
    return HEAD + "".join(_row(name, found[name]) for name in part_names() if name in found)


def show(write: bool) -> int:
    """Prints the table, or puts it into the document."""
    if not write:
        print(table(), end="")
        return 0
    text = DOCUMENT.read_text()
    if BEGIN not in text or END not in text:
        raise LabError(f"{DOCUMENT.relative_to(ROOT)} has no place for the table")
    before, _, rest = text.partition(BEGIN)
    DOCUMENT.write_text(before + BEGIN + table() + END + rest.partition(END)[2])
    return 0

# SPDX-License-Identifier: Apache-2.0
"""What runs of the fuzz targets have shown: how much CPU time each target had, and what it found,
in small files that are committed. Time is gathered in pieces: a file adds up those of the same
sources, which are a hash of what the targets are built from."""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import LabError
from .evidence import commit, git
from .paths import ROOT

# What the targets are built from. Seeds count: they decide how far a run gets.
SOURCES = ("device", "include", "CMakeLists.txt", "CMakePresets.json", "tests/CMakeLists.txt",
           "tests/fuzz", "tests/support")
PREFIX = "fuzz."


@dataclass(frozen=True)
class Piece:
    """One run of a target."""

    cpu_seconds: float
    executions: int
    coverage: int
    findings: int


def sources(root: Path = ROOT) -> str:
    """The hash of what the targets are built from."""
    state = hashlib.sha256()
    listed = git("ls-files", "-co", "--exclude-standard", "--", *SOURCES, root=root).splitlines()
    for name in sorted(set(listed)):
        path = root / name
        if not path.is_file():
            continue
        data = path.read_bytes()
        state.update(f"{name}\0{len(data)}\0".encode() + data)
    return state.hexdigest()[:12]


def path_of(target: str, folder: Path) -> Path:
    """The file of a target."""
    return folder / f"{PREFIX}{target}.json"


def read(path: Path) -> dict[str, Any]:
    """A file: the sums of each state of the sources, the oldest first."""
    try:
        whole = json.loads(path.read_text())
        sums: dict[str, Any] = whole["sums"]
        return sums
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(f"{path} is no evidence of a fuzz target: {error!r}") from error


def read_all(folder: Path) -> dict[str, dict[str, Any]]:
    """The sums of all targets, by name."""
    return {path.name[len(PREFIX):-len(".json")]: read(path)
            for path in sorted(folder.glob(f"{PREFIX}*.json"))}


def add(folder: Path, target: str, of: str, piece: Piece, root: Path = ROOT) -> dict[str, Any]:
    """Adds a piece to those of the same sources; gives their sum."""
    path = path_of(target, folder)
    sums = read(path) if path.exists() else {}
    today = time.strftime("%Y-%m-%d", time.gmtime())
    # The latest sources stand last.
    row = sums.pop(of, {"commit": commit(root), "first": today, "pieces": 0, "cpu_seconds": 0.0,
                        "executions": 0, "coverage": 0, "findings": 0})
    row["last"] = today
    row["pieces"] += 1
    row["cpu_seconds"] = round(row["cpu_seconds"] + piece.cpu_seconds, 1)
    row["executions"] += piece.executions
    row["coverage"] = max(row["coverage"], piece.coverage)
    row["findings"] += piece.findings
    sums[of] = row
    rows = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in sums.items())
    folder.mkdir(parents=True, exist_ok=True)
    temp = path.with_suffix(f".tmp-{os.getpid()}")
    temp.write_text(f'{{\n "target": {json.dumps(target)},\n "sums": {{\n{rows}\n }}\n}}\n')
    temp.replace(path)
    return row


def since_finding(sums: dict[str, Any]) -> float:
    """The CPU seconds of all sources behind the last one with a finding."""
    seconds = 0.0
    for row in reversed(list(sums.values())):
        if row["findings"]:
            break
        seconds += row["cpu_seconds"]
    return seconds

# SPDX-License-Identifier: Apache-2.0
"""What long runs of fuzz targets and simulations have shown: how much there was of them, and what
they found, in small files that are committed. It is gathered in pieces: a file adds up those of the
same sources, which are a hash of what the programs are built from."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import LabError
from .evidence import commit, git
from .paths import ROOT

BUILT_FROM = ("device", "include", "CMakeLists.txt", "CMakePresets.json", "tests/CMakeLists.txt",
              "tests/support")


@dataclass(frozen=True)
class Kind:
    """Programs of one kind: the prefix of their files, and what they are built from."""

    prefix: str
    built_from: tuple[str, ...]

    def path_of(self, program: str, folder: Path) -> Path:
        """The file of a program."""
        return folder / f"{self.prefix}{program}.json"

    def sources(self, root: Path = ROOT) -> str:
        """The hash of what the programs are built from."""
        state = hashlib.sha256()
        listed = git("ls-files", "-co", "--exclude-standard", "--", *self.built_from, root=root)
        for name in sorted(set(listed.splitlines())):
            path = root / name
            if not path.is_file():
                continue
            data = path.read_bytes()
            state.update(f"{name}\0{len(data)}\0".encode() + data)
        return state.hexdigest()[:12]

    def read_all(self, folder: Path) -> dict[str, dict[str, Any]]:
        """The sums of all programs, by name."""
        return {path.name[len(self.prefix):-len(".json")]: read(path)
                for path in sorted(folder.glob(f"{self.prefix}*.json"))}


# Seeds of fuzz targets count: they decide how far a run gets.
FUZZ = Kind("fuzz.", (*BUILT_FROM, "tests/fuzz"))
SIMULATION = Kind("sim.", (*BUILT_FROM, "tests/sim"))


@dataclass(frozen=True)
class Piece:
    """One run of a program. `amounts` are summed up, of `peaks` the highest is kept."""

    cpu_seconds: float
    findings: int
    amounts: Mapping[str, int]
    peaks: Mapping[str, int]


def read(path: Path) -> dict[str, Any]:
    """A file: the sums of each state of the sources, the oldest first."""
    try:
        whole = json.loads(path.read_text())
        sums: dict[str, Any] = whole["sums"]
        return sums
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(f"{path} is no evidence of runs: {error!r}") from error


def add(path: Path, of: str, piece: Piece, root: Path = ROOT) -> dict[str, Any]:
    """Adds a piece to those of the same sources; gives their sum."""
    sums = read(path) if path.exists() else {}
    today = time.strftime("%Y-%m-%d", time.gmtime())
    # The latest sources stand last.
    row = sums.pop(of, {"commit": commit(root), "first": today, "pieces": 0, "cpu_seconds": 0.0,
                        "findings": 0})
    row["last"] = today
    row["pieces"] += 1
    row["cpu_seconds"] = round(row["cpu_seconds"] + piece.cpu_seconds, 1)
    row["findings"] += piece.findings
    for name, amount in piece.amounts.items():
        row[name] = row.get(name, 0) + amount
    for name, peak in piece.peaks.items():
        row[name] = max(row.get(name, 0), peak)
    sums[of] = row
    rows = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in sums.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    temp = path.with_suffix(f".tmp-{os.getpid()}")
    temp.write_text(f'{{\n "sums": {{\n{rows}\n }}\n}}\n')
    temp.replace(path)
    return row


def since_finding(sums: dict[str, Any], name: str = "cpu_seconds") -> float:
    """The sum of an amount over all sources behind the last ones with a finding."""
    amount = 0.0
    for row in reversed(list(sums.values())):
        if row["findings"]:
            break
        amount += row[name]
    return amount

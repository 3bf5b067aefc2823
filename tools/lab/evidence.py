# SPDX-License-Identifier: Apache-2.0
"""What runs of the guest tests have shown, kept in small files that are committed.

A file is of one area with one pair of guests, driver, provider, extension and kernel. It says of
each case how it ended last, and in which run: from which sources (a hash of what the case was built
from), with which guests, when. Documents and the evidence itself do not count as sources. So tests
that take hours are run in pieces, and what the same sources and guests have shown is not run again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .errors import LabError
from .paths import ROOT

FOLDER = ROOT / "docs" / "evidence"
TESTS = Path("tests/vm")
# What all cases are built from, and what those with our driver, our provider, a debug kernel are.
COMMON = ("device", "include", "CMakeLists.txt", "CMakePresets.json", "tools/lab/guest",
          "tests/vm/run.py", "tests/vm/harness.py")
OURS = {"driver": ("kernel",), "provider": ("providers", "tools/lab/patches")}
DEBUG_KERNEL = {"stock": (), "debug": ("tools/lab/kernel", ":!tools/lab/kernel/config-kcsan"),
                "kcsan": ("tools/lab/kernel",)}
# The last case of each area; what came before it is shown only if it passed.
CLOSING = "no kernel warning, manad alive, nothing left behind"
SHOWN = ("passed", "skipped")


@dataclass(frozen=True)
class Setup:
    """What a file is of. `variant`: other options that make the run another one."""

    area: str
    pair: str
    driver: str = "stock"
    provider: str = "stock"
    ext: str = "on"
    kernel: str = "stock"
    variant: str = ""

    @property
    def name(self) -> str:
        """The name of its file."""
        words = [getattr(self, part.name) for part in fields(self)]
        return ".".join(word for word in words if word) + ".json"


def git(*words: str, root: Path = ROOT) -> str:
    """What git says."""
    done = subprocess.run(["git", "-C", os.fspath(root), *words], capture_output=True, text=True,
                          timeout=120, check=False)
    if done.returncode != 0:
        raise LabError(f"evidence needs a git tree: git {words[0]}: {done.stderr.strip()}")
    return done.stdout


def files_of_area(area: str, root: Path = ROOT) -> set[str]:
    """The files in tests/vm that an area is made of: what it imports, and the programs that it
    names, with their headers."""
    folder = root / TESTS
    waiting = [f"areas/{area}.py"]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        path = folder / name
        if name in found or not path.is_file():
            continue
        found.add(name)
        text = path.read_text()
        waiting += [f"{word}.py" for word in re.findall(r"^\s*(?:from|import) (\w+)", text, re.M)]
        waiting += [f"areas/{word}.py" for line in re.findall(r"^\s*from areas import (.*)", text,
                                                              re.M)
                    for word in re.findall(r"\w+", line)]
        waiting += [f"areas/{word}.py" for word in re.findall(r"^\s*from areas\.(\w+)", text, re.M)]
        waiting += re.findall(r'"(\w+\.(?:c|h|py))"', text)
    return {os.fspath(TESTS / name) for name in found}


def sources(setup: Setup, root: Path = ROOT) -> str:
    """The hash of what the cases of a file are built from."""
    paths = [*COMMON]
    for side, more in OURS.items():
        paths += more if getattr(setup, side) == "ours" else ()
    paths += DEBUG_KERNEL[setup.kernel]
    listed = git("ls-files", "-co", "--exclude-standard", "--", *paths, root=root).splitlines()
    state = hashlib.sha256()
    for name in sorted({*listed, *files_of_area(setup.area, root)}):
        path = root / name
        if name.endswith(".md") or not path.is_file():
            continue
        data = path.read_bytes()
        state.update(f"{name}\0{len(data)}\0".encode() + data)
    return state.hexdigest()[:12]


def commit(root: Path = ROOT) -> str:
    """The commit of the tree; with a `+` if it was changed since, other than by evidence."""
    head = git("rev-parse", "--short=12", "HEAD", root=root).strip()
    status = git("status", "--porcelain", "--", ".", ":!docs", root=root)
    return head + ("+" if status.strip() else "")


class Evidence:
    """One file."""

    def __init__(self, setup: Setup, folder: Path = FOLDER) -> None:
        self.setup = setup
        self.path = folder / setup.name
        self.runs: dict[str, dict[str, Any]] = {}
        self.cases: dict[str, dict[str, Any]] = {}
        if self.path.exists():
            try:
                read = json.loads(self.path.read_text())
                self.runs, self.cases = read["runs"], read["cases"]
            except (ValueError, KeyError) as error:
                raise LabError(f"{self.path} is no evidence: {error!r}") from error

    def run_of(self, title: str) -> dict[str, Any]:
        """The run in which a case was seen last."""
        return self.runs[str(self.cases[title]["run"])]

    def shows(self, title: str, of: str, guests: list[str]) -> bool:
        """Whether a case was seen to pass, or to be skipped, with these sources and guests."""
        if title not in self.cases or self.cases[title]["result"] not in SHOWN:
            return False
        run = self.run_of(title)
        return bool(run["sources"] == of and run["guests"] == guests and run["clean"])

    def begin(self, of: str, guests: list[str], versions: list[str], tree: str) -> str:
        """A run begins; its number."""
        number = str(max((int(name) for name in self.runs), default=0) + 1)
        self.runs[number] = {"commit": tree, "sources": of, "date": time.strftime("%Y-%m-%d",
                             time.gmtime()), "guests": guests, "versions": versions,
                             "seconds": 0, "clean": False}
        return number

    def add(self, run: str, title: str, result: str, seconds: float, words: str = "",
            long: bool = False, data: Any = None, ran: Any = None) -> None:
        """How a case ended: passed, failed or skipped; and what other people's programs it ran."""
        case: dict[str, Any] = {"run": int(run), "result": result, "seconds": round(seconds, 1)}
        for name, value in (("words", words), ("long", long), ("data", data), ("ran", ran)):
            if value:
                case[name] = value
        self.cases[title] = case
        self.runs[run]["seconds"] = round(self.runs[run]["seconds"] + seconds, 1)
        if title == CLOSING:
            self.runs[run]["clean"] = result == "passed"
        self.write()

    def write(self) -> None:
        """Saves it, without runs of which nothing is left."""
        used = {str(case["run"]) for case in self.cases.values()}
        self.runs = {number: run for number, run in self.runs.items() if number in used}
        lines = ["{"]
        lines += [f' "{part.name}": {json.dumps(getattr(self.setup, part.name))},'
                  for part in fields(self.setup)]
        for name, table in (("runs", self.runs), ("cases", self.cases)):
            lines.append(f' "{name}": {{')
            rows = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in table.items()]
            lines.append(",\n".join(rows))
            lines.append(" }," if name == "runs" else " }")
        lines.append("}")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temp = self.path.with_suffix(f".tmp-{os.getpid()}")
        temp.write_text("\n".join(lines) + "\n")
        temp.replace(self.path)


class Recorder:
    """Writes down how the cases of a run end, area by area."""

    def __init__(self, setups: dict[str, Setup], folder: Path, tree: str) -> None:
        self._setups = setups
        self._folder = folder
        self._tree = tree
        # before anything is changed that may count
        self._sources = {area: sources(setup) for area, setup in setups.items()}
        self._guests: tuple[list[str], list[str]] = ([], [])
        self._open: dict[str, tuple[Evidence, str]] = {}

    def start(self, guests: Iterable[Any]) -> None:
        """The guests are up."""
        self._guests = identity(guests)

    def case(self, area: str, title: str, result: str, seconds: float, words: str = "",
             long: bool = False, data: Any = None, ran: Any = None) -> None:
        """A case of an area has ended."""
        if area not in self._open:
            evidence = Evidence(self._setups[area], self._folder)
            run = evidence.begin(self._sources[area], *self._guests, self._tree)
            self._open[area] = (evidence, run)
        evidence, run = self._open[area]
        evidence.add(run, title, result, seconds, words, long, data, ran)


def key_of(image: Any) -> str:
    """What tells guests apart: the image, and the kernel that it got from the archive."""
    return f"{image.key} {image.version}"


def identity(guests: Iterable[Any]) -> tuple[list[str], list[str]]:
    """Keys of the images of running guests, and the versions of what is in them."""
    keys, versions = [], []
    for guest in guests:
        keys.append(key_of(guest.image))
        asked = guest.run("dpkg-query -W -f '${Version}' libibverbs1", timeout=60, check=False)
        versions.append(f"Linux {guest.image.version}, rdma-core {str(asked.stdout).strip()}")
    return list(dict.fromkeys(keys)), list(dict.fromkeys(versions))


def read_all(folder: Path = FOLDER) -> list[Evidence]:
    """All files, by name."""
    found = []
    for path in sorted(folder.glob("*.json")):
        read = json.loads(path.read_text())
        if "cases" in read:
            found.append(Evidence(Setup(**{part.name: read[part.name] for part in fields(Setup)}),
                                  folder))
    return found

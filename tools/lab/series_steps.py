# SPDX-License-Identifier: Apache-2.0
"""Series that put files of this repository into another project's tree, a few with each commit.

A step names sources; the headers that they include come with the first step that needs them. What
bridges versions of the project is decided for the tree (`reduced`), and each commit's build file
has the sources so far, so that each commit compiles. `map` says where folders go. The last step may
`replace` what the tree has: the sources move to where they stay, and what was there goes."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from pathlib import Path

from .errors import LabError
from .paths import ROOT
from .series import PARTS, Part, Repository, Step

INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<((?:mana|uapi)/[^>]+)>)', re.M)
CONDITION = re.compile(r"^\s*#\s*(ifdef|ifndef|if|elif|else|endif)\b\s*(.*?)\s*(?:/\*.*)?$")
DEFINED = re.compile(r"defined\s*\(?\s*(\w+)\s*\)?")


def _known(kind: str, words: str, names: dict[str, bool]) -> bool | None:
    """Whether a condition holds; None if it is not about one of the names alone."""
    if kind in ("ifdef", "ifndef"):
        found = names.get(words)
        return found if found is None or kind == "ifdef" else not found
    plain = DEFINED.fullmatch(words.removeprefix("!").strip())
    if plain is None or plain.group(1) not in names:
        return None
    return names[plain.group(1)] != words.startswith("!")


def reduced(text: str, names: dict[str, bool]) -> str:
    """C without the conditions on `names`, which are defined or are not."""
    out: list[str] = []
    # For each open condition: is it ours, has one of its branches been taken, is this one alive.
    stack: list[tuple[bool, bool, bool]] = []
    for line in text.splitlines(keepends=True):
        match = CONDITION.match(line.rstrip("\n"))
        alive = all(item[2] for item in stack)
        if match is None:
            if alive:
                out.append(line)
            continue
        kind, words = match.groups()
        if kind in ("ifdef", "ifndef", "if"):
            holds = _known(kind, words, names)
            stack.append((holds is not None, bool(holds), holds is not False))
            if holds is None and alive:
                out.append(line)
        elif kind == "endif":
            ours, _, _ = stack.pop()
            if not ours and all(item[2] for item in stack):
                out.append(line)
        else:
            ours, taken, _ = stack[-1]
            holds = True if kind == "else" else _known("if", words, names)
            if not ours:
                if all(item[2] for item in stack[:-1]):
                    out.append(line)
            elif holds is None:
                raise LabError(f"'{line.strip()}' mixes what is decided with what is not")
            else:
                stack[-1] = (True, taken or holds, holds and not taken)
    return re.sub(r"\n{3,}", "\n\n", "".join(out))


HERE = re.compile(r"^[ \t]*# here\b.*\n(?:.*\n)*?[ \t]*# end\n", re.M)


def without_here(text: str) -> str:
    """A build file without what it needs in this repository alone: from `# here` to `# end`."""
    return HERE.sub("", text)


def included(path: Path) -> list[str]:
    """The headers of this repository that a file includes, as they are named here."""
    found = []
    for own, public in INCLUDE.findall(path.read_text()):
        name = path.parent / own if own else ROOT / "include" / public
        if name.is_file():
            found.append(name.relative_to(ROOT).as_posix())
    return found


def with_headers(sources: Iterable[str]) -> list[str]:
    """Sources, and all headers that they need."""
    found: list[str] = []
    queue = list(sources)
    while queue:
        name = queue.pop(0)
        if name not in found:
            if not (ROOT / name).is_file():
                raise LabError(f"there is no {name}")
            found.append(name)
            queue += included(ROOT / name)
    return found


class Placer:
    """Where files go, and what they are there."""

    def __init__(self, part: Part, repository: Repository) -> None:
        self.part, self.repository = part, repository
        self.folder = PARTS / part.name
        self.names = {name: self._holds(*where) if isinstance(where, list) else where
                      for name, where in part.settings.get("defined", {}).items()}
        #: (pattern, what takes its place, folder that it is for)
        self.rewrites = [
            (re.compile(rule["match"], re.M), rule["by"], rule.get("below", ""))
            for rule in part.settings.get("rewrite", [])
            if "needs" not in rule or self._holds(*rule["needs"])]

    def _holds(self, file: str, words: str) -> bool:
        path = self.repository.tree.path / file
        return path.is_file() and words in path.read_text(errors="replace")

    def place(self, name: str, final: bool = False) -> str:
        """Where a file goes."""
        for prefix, places in self.part.settings["map"].items():
            if name.startswith(prefix):
                return places[-1 if final else 0] + name.removeprefix(prefix)
        raise LabError(f"{self.part.name}: nothing says where {name} goes")

    def data(self, name: str) -> bytes:
        """What a file is there."""
        text = (ROOT / name).read_text()
        if Path(name).suffix in (".c", ".h"):
            text = reduced(text, self.names)
        for pattern, words, folder in self.rewrites:
            if name.startswith(folder):
                text = pattern.sub(words, text)
        return text.encode()

    def build_files(self, sources: list[str], base: dict[str, str]) -> dict[str, bytes]:
        """The build files of a state that has these sources."""
        files = {}
        for name, how in self.part.settings.get("build_file", {}).items():
            if "once" in how:
                text = (self.folder / how["once"]).read_text()
            else:
                suffix, indent = how.get("suffix", ".c"), how["indent"]
                placed = [self.place(source) for source in sources if source.endswith(".c")]
                items = [path.removeprefix(how["below"]).removesuffix(".c") + suffix
                         for path in placed]
                text = base.get(name, "") if how.get("append") else ""
                text += (self.folder / how["template"]).read_text().replace(
                    "@SOURCES@", indent.join(items))
            files[name] = text.encode()
        for name, (after, line) in self.part.settings.get("insert", {}).items():
            text = base[name]
            if after not in text:
                raise LabError(f"{name} has no line '{after.strip()}' to follow")
            files[name] = text.replace(after, after + line, 1).encode()
        return files


def uncovered(part: Part, put: set[str]) -> list[str]:
    """Files that the part is to have and that no step names."""
    wanted = {path.relative_to(ROOT).as_posix() for pattern in part.settings["covers"]
              for path in ROOT.glob(pattern)}
    return sorted(wanted - put)


def make_of_steps(part: Part, repository: Repository, author: tuple[str, str] | None) -> None:
    """Commits the steps of a part."""
    placer = Placer(part, repository)
    repository.take({*part.settings.get("build_file", {}), *part.settings.get("insert", {})})
    if part.settings.get("replaces"):
        repository.take({path.relative_to(repository.tree.path).as_posix()
                         for path in repository.tree.path.glob(part.settings["replaces"] + "/**/*")
                         if path.is_file()})
    base = {name: (repository.folder / name).read_text()
            for name in (*part.settings.get("build_file", {}), *part.settings.get("insert", {}))
            if (repository.folder / name).is_file()}
    put: list[str] = []
    for step in part.steps:
        new = [name for name in with_headers(step.files) if name not in put]
        put += new
        files = {placer.place(name): placer.data(name) for name in new}
        repository.put(step, files | placer.build_files(put, base), set(), author)
    missing = uncovered(part, set(put))
    if missing:
        raise LabError(f"{part.name}: no step has {', '.join(missing)}")
    if part.settings.get("replaces"):
        _replace(part, repository, placer, put, author)


def _replace(part: Part, repository: Repository, placer: Placer, put: list[str],
             author: tuple[str, str] | None) -> None:
    """The last commit: all moves to where it stays, and what was there goes."""
    final = {placer.place(name, True): placer.data(name) for name in put}
    for name, file in part.settings["final"].items():
        final[name] = without_here((ROOT / file).read_text()).encode()
    folder = repository.folder / part.settings["replaces"]
    gone = {path.relative_to(repository.folder).as_posix() for path in folder.rglob("*")
            if path.is_file()}
    words = part.settings["replace_step"]
    step = Step(words["subject"], textwrap.fill(words["body"], 72), ())
    repository.put(step, final, gone, author)

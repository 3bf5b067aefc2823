# SPDX-License-Identifier: Apache-2.0
"""Series of patches for other projects, made against a tree of theirs: tools/upstream.

A part is a folder of tools/upstream.d with `part.toml`, which says for which project it is and what
its series has: patches that are kept (`patches`, folders with one variant each: the first that fits
the tree is taken), or files of this repository that are put into the tree in steps (`step`). The
series is made in a repository of its own, which has of the tree what the series touches."""

from __future__ import annotations

import os
import re
import subprocess
import textwrap
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import LabError
from .paths import ROOT

PARTS = ROOT / "tools" / "upstream.d"
#: Projects: files that tell their trees from others.
KINDS = {"linux": ("Kbuild", "drivers/infiniband/Kconfig"),
         "rdma-core": ("buildlib/RDMA_BuildType.cmake", "libibverbs/verbs.h"),
         "perftest": ("src/perftest_resources.c", "configure.ac")}
AUTHOR = ("OpenMANA developers", "openmana@localhost")
#: The first lines of a patch in the form of a mail.
HEAD = re.compile(r"^From: (?P<name>.*?) <(?P<mail>[^>]*)>$", re.M)


@dataclass(frozen=True)
class Tree:
    """Somebody's sources."""

    path: Path
    kind: str
    version: str


@dataclass(frozen=True)
class Step:
    """A commit that puts files into the tree: where to, and what they are here."""

    subject: str
    body: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """What could go to another project."""

    name: str
    kind: str
    title: str
    cover: str
    variants: tuple[Path, ...] = ()
    steps: tuple[Step, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)


def part_names() -> list[str]:
    """The parts that there are."""
    return sorted(path.parent.name for path in PARTS.glob("*/part.toml"))


def read_part(name: str) -> Part:
    """A part by its name."""
    file = PARTS / name / "part.toml"
    if name not in part_names():
        raise LabError(f"there is no part '{name}', but {', '.join(part_names())}")
    try:
        text = tomllib.loads(file.read_text())
    except tomllib.TOMLDecodeError as error:
        raise LabError(f"{file.relative_to(ROOT)}: {error}") from error
    if text.get("tree") not in KINDS:
        raise LabError(f"{file.relative_to(ROOT)}: tree is one of {', '.join(KINDS)}")
    steps = tuple(Step(step["subject"], textwrap.fill(step["body"], 72), tuple(step["files"]))
                  for step in text.pop("step", []))
    variants = tuple((file.parent / folder).resolve() for folder in text.pop("patches", []))
    if bool(steps) == bool(variants):
        raise LabError(f"{file.relative_to(ROOT)}: either patches or steps")
    return Part(name, text.pop("tree"), text.pop("title"), text.pop("cover").strip(), variants,
                steps, text)


# -- trees


def _version(path: Path, kind: str) -> str:
    def find(file: str, pattern: str) -> str:
        found = re.search(pattern, (path / file).read_text(errors="replace"), re.M)
        return found.group(1) if found else "?"

    if kind == "linux":
        numbers = [find("Makefile", rf"^{word} *= *(.*?)$")
                   for word in ("VERSION", "PATCHLEVEL", "SUBLEVEL")]
        return ".".join(numbers) + find("Makefile", r"^EXTRAVERSION *= *(.*)$")
    if kind == "rdma-core":
        return find("CMakeLists.txt", r'^set\(PACKAGE_VERSION "(.*)"\)')
    return find("configure.ac", r"^AC_INIT\(\[[^]]*\], *\[([^]]*)\]")


def find_tree(path: Path, kind: str) -> Tree:
    """The tree of a project at a path."""
    if not path.is_dir():
        raise LabError(f"{path} is no folder")
    missing = [name for name in KINDS[kind] if not (path / name).is_file()]
    if missing:
        raise LabError(f"{path} is no tree of {kind}: it has no {missing[0]}")
    return Tree(path.resolve(), kind, _version(path, kind))


# -- the repository in which a series is made


class Repository:
    """A repository with the files of a tree that a series touches, and the series on top."""

    def __init__(self, folder: Path, tree: Tree) -> None:
        self.folder = folder
        self.tree = tree
        self._git("init", "-q", "-b", "series")
        self._commit(f"{tree.kind} {tree.version}", AUTHOR, empty=True)
        self.base = self.head()

    def _git(self, *argv: str, check: bool = True, env: dict[str, str] | None = None
             ) -> subprocess.CompletedProcess[str]:
        command = ["git", "-c", "core.autocrlf=false", "-c", "commit.gpgSign=false",
                   "-c", "core.hooksPath=/dev/null", "-c", f"user.name={AUTHOR[0]}",
                   "-c", f"user.email={AUTHOR[1]}", *argv]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True,
                              errors="replace", check=False, timeout=300,
                              env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null",
                                   "GIT_CONFIG_NOSYSTEM": "1", **(env or {})})
        if check and done.returncode:
            raise LabError(f"git {argv[0]} failed: {(done.stderr or done.stdout).strip()[-300:]}")
        return done

    def head(self) -> str:
        """The newest commit."""
        return self._git("rev-parse", "HEAD").stdout.strip()

    def _commit(self, message: str, author: tuple[str, str], empty: bool = False) -> None:
        name, mail = author
        self._git("commit", "-q", "--cleanup=verbatim", "--author", f"{name} <{mail}>",
                  *(["--allow-empty"] if empty else []), "-m", message)

    def take(self, names: set[str]) -> None:
        """Takes files of the tree, where it has them, into the first commit."""
        for name in sorted(names):
            source, target = self.tree.path / name, self.folder / name
            if not source.is_file() or target.exists():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
            target.chmod(0o755 if source.stat().st_mode & 0o111 else 0o644)
        self._git("add", "-A", "-f")
        self._git("commit", "-q", "--amend", "--no-edit", "--allow-empty")
        self.base = self.head()

    def refused(self, patch: Path) -> list[str]:
        """Which hunks of a patch do not apply."""
        done = self._git("apply", "--index", "--check", os.fspath(patch), check=False)
        if done.returncode == 0:
            return []
        done = self._git("apply", "--reject", "--verbose", os.fspath(patch), check=False)
        self._git("reset", "-q", "--hard")
        self._git("clean", "-q", "-fdx")
        return rejected_hunks(done.stderr, patch.name) or [f"{patch.name}: {done.stderr.strip()}"]

    def apply(self, patch: Path, author: tuple[str, str] | None) -> None:
        """Commits a patch that applies, with its own words."""
        text = patch.read_text()
        self._git("apply", "--index", os.fspath(patch))
        who = HEAD.search(text.replace("\n ", " ").partition("\n\n")[0])
        own = (who["name"], who["mail"]) if who else AUTHOR
        self._commit(signed(message_of(text), author), author or own)

    def put(self, step: Step, files: dict[str, bytes], gone: set[str],
            author: tuple[str, str] | None) -> None:
        """Commits files, and takes others away."""
        for name in gone:
            self._git("rm", "-q", "--", name)
        for name, data in files.items():
            target = self.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        self._git("add", "-A", "-f")
        self._commit(signed(f"{step.subject}\n\n{step.body}\n", author), author or AUTHOR)

    def write(self, out: Path, part: Part) -> list[Path]:
        """The commits as mails, with a cover letter if they are several."""
        out.mkdir(parents=True, exist_ok=True)
        for old in out.glob("[0-9][0-9][0-9][0-9]-*.patch"):
            old.unlink()
        several = self._git("rev-list", "--count", f"{self.base}..").stdout.strip() != "1"
        self._git("config", "branch.series.description", f"{part.title}\n\n{part.cover}\n")
        prefix = part.settings.get("prefix", "PATCH")
        options = ["--cover-letter", "--cover-from-description=subject"] if several else []
        self._git("format-patch", "-q", "-M", f"--subject-prefix={prefix}", *options,
                  "--no-signature", "--zero-commit", "-o", os.fspath(out.resolve()), self.base)
        return sorted(path for path in out.glob("[0-9]*.patch")
                      if not path.name.startswith("0000-"))


def message_of(patch: str) -> str:
    """The words of a patch in the form of a mail, as of a commit."""
    head, _, rest = patch.partition("\n\n")
    subject = re.search(r"^Subject: (.*(?:\n .*)*)", head, re.M)
    if subject is None:
        raise LabError("a patch without a subject")
    words = re.sub(r"^\[[^]]*\] ", "", " ".join(subject.group(1).split()))
    return f"{words}\n\n{rest.partition(chr(10) + '---' + chr(10))[0].strip()}\n"


def signed(message: str, author: tuple[str, str] | None) -> str:
    """The words with the sign-off of who sends it; without one, if nobody does."""
    if author is None:
        return message
    kept = [line for line in message.rstrip("\n").splitlines()
            if not line.startswith("Signed-off-by: ")]
    while not kept[-1]:
        kept.pop()
    return "\n".join([*kept, "", f"Signed-off-by: {author[0]} <{author[1]}>", ""])


def rejected_hunks(said: str, patch: str) -> list[str]:
    """What `git apply --reject --verbose` says of hunks that do not apply: a line for each."""
    found, file = [], ""
    for line in said.splitlines():
        if begins := re.match(r"(?:Checking|Applying) patch (.*?)(?: with .*)?\.\.\.$", line):
            file = begins.group(1)
        elif missing := re.match(r"error: (.*): No such file or directory$", line):
            found.append(f"{patch}: there is no {missing.group(1)}")
        elif hunk := re.match(r"Rejected hunk #(\d+)\.$", line):
            found.append(f"{patch}: hunk {hunk.group(1)} of {file} does not apply")
    return list(dict.fromkeys(found))


def touched(patches: list[Path]) -> set[str]:
    """The files that patches name."""
    return {name for path in patches
            for name in re.findall(r"^(?:---|\+\+\+) [ab]/(\S+)", path.read_text(), re.M)}


def _make_of_patches(part: Part, repository: Repository, author: tuple[str, str] | None) -> None:
    refused = []
    for folder in part.variants:
        patches = sorted(folder.glob("[0-9]*.patch"))
        if not patches:
            raise LabError(f"{folder} has no patches")
        repository.take(touched(patches))
        for patch in patches:
            failed = repository.refused(patch)
            if failed:
                refused += [f"{folder.name}/{line}" for line in failed]
                break
            repository.apply(patch, author)
        else:
            return
        repository._git("reset", "-q", "--hard", repository.base)
    raise LabError("\n".join([f"{part.name} does not fit {repository.tree.kind} "
                              f"{repository.tree.version}:", *refused]))


def make_series(part: Part, tree: Tree, work: Path, out: Path,
                author: tuple[str, str] | None = None) -> list[Path]:
    """Makes the series of a part against a tree; returns its patches. `work` is an empty folder."""
    if tree.kind != part.kind:
        raise LabError(f"{part.name} is for {part.kind}, and not for {tree.kind}")
    repository = Repository(work, tree)
    if part.variants:
        _make_of_patches(part, repository, author)
    else:
        from .series_steps import make_of_steps  # pylint: disable=import-outside-toplevel
        make_of_steps(part, repository, author)
    return repository.write(out, part)

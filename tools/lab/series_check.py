# SPDX-License-Identifier: Apache-2.0
"""Tries a series: applies it to a copy of the tree commit by commit, builds each of these states in
the root of tools/upstream, and gives each patch to checkpatch. What the tree's own build says of
the tree as it is counts for nothing: a finding is what a commit adds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import checkpatch, host
from .building import built, jobs
from .errors import LabError
from .image import digest
from .paths import cache_dir
from .proc import run_logged
from .roots import Root
from .series import PARTS, Part, Tree, touched

CONFIG = PARTS / "linux.config"
#: What of Linux is built before a series changes it.
MANA = "drivers/infiniband/hw/mana/"
#: buildlib/check-build wants two modules that newer Pythons lack.
SHIMS = PARTS / "shims"
#: How what is said of tests begins that fail.
FAILED = "FAILED"
FINDING = re.compile(r"^.*\b(?:[Ww]arning|[Ee]rror): .*$", re.M)
PREPARE = {
    "linux": """set -e
make -C /build/tree O=/build/out KCONFIG_ALLCONFIG=/build/config allnoconfig
make -C /build/tree O=/build/out -j"$1" CC="ccache gcc" HOSTCC="ccache gcc" prepare
""",
    "rdma-core": """set -e
cmake -S /build/tree -B /build/out -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_INSTALL_PREFIX=/usr -DENABLE_STATIC=1 \
    -DCMAKE_INSTALL_LIBDIR=lib/x86_64-linux-gnu -DCMAKE_INSTALL_SYSCONFDIR=/etc -DNO_MAN_PAGES=1
""",
    "perftest": """set -e
cd /build/tree
./autogen.sh
./configure --prefix=/usr CC="ccache gcc"
""",
}
BUILD = {
    "linux": """set -e
make -C /build/tree O=/build/out KCONFIG_ALLCONFIG=/build/config allnoconfig
make -C /build/tree O=/build/out -j"$1" CC="ccache gcc" HOSTCC="ccache gcc" W=1 C=1 \
    CF="-D__CHECK_ENDIAN__" "$2"
""",
    "rdma-core": 'ninja -C /build/out -j "$1"\n',
    "perftest": 'make -C /build/tree -j"$1"\n',
}
TESTS = {
    "rdma-core": """set -e
cd /build/tree
# With newer C++ than that its own headers are refused.
PYTHONPATH=/shims python3 buildlib/check-build --src /build/tree --build /build/out --cc gcc \
    --cxx "g++ -std=gnu++17"
echo "buildlib/check-build: nothing found"
""",
    "perftest": """set -e
for program in ib_send_bw ib_write_lat ib_read_bw raw_ethernet_bw; do
    /build/tree/$program --help >/dev/null || test $? = 1
done
""",
}


@dataclass
class Checked:
    """What was found in a commit."""

    patch: str
    style: list[str] = field(default_factory=list)
    build: list[str] = field(default_factory=list)
    compiled: bool = False
    sparse: bool = False

    @property
    def findings(self) -> list[str]:
        """All of it."""
        return [*self.style, *self.build]


@dataclass
class Outcome:
    """What was found in a series, and what the project's own tests said at its end."""

    commits: list[Checked]
    tests: str


def copy_tree(source: Path, target: Path, links: bool = True) -> None:
    """A copy whose files may be replaced, or written if they are no links."""
    for option in ("-al", "-a") if links else ("-a",):
        done = subprocess.run(["cp", option, os.fspath(source), os.fspath(target)],
                              capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        shutil.rmtree(target, ignore_errors=True)
    raise LabError(f"cannot copy {source}: {done.stderr.strip().splitlines()[-1]}")


def findings(log: str) -> Counter[str]:
    """Warnings and errors in what a build said, without the numbers of lines, which move."""
    return Counter(re.sub(r":\d+(?::\d+)?:", ":", line.strip()) for line in FINDING.findall(log))


def style(part: Part, tree: Tree, patch: Path, signed: bool) -> list[str]:
    """What checkpatch says of a patch: that of the kernel's tree, or the lab's."""
    host.ensure_packages({"perl": "perl"})
    own = tree.path / "scripts" / "checkpatch.pl"
    program = own if own.exists() else checkpatch.get_checkpatch()
    ignored = ignored_types(part, tree)
    with tempfile.TemporaryDirectory(prefix="checkpatch-") as temp:
        # Without a tree it looks for names in one all the same.
        (Path(temp) / "include").mkdir()
        where = [f"--root={tree.path}"] if own.exists() else ["--no-tree", f"--root={temp}"]
        argv = ["perl", os.fspath(program), "--strict", "--terse", "--show-types", "--no-summary",
                *where, *([] if signed else ["--no-signoff"]),
                *([f"--ignore={','.join(ignored)}"] if ignored else []), os.fspath(patch)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False,
                              cwd=temp)
    lines = [line for line in done.stdout.splitlines()
             if line and not line.startswith(checkpatch.TOTALS)]
    if done.stderr or done.returncode != (1 if lines else 0):
        raise LabError(f"checkpatch ended with status {done.returncode}: "
                       f"{(done.stderr or done.stdout).strip()[-300:]}")
    return [line.removeprefix(f"{patch}:") for line in lines]


def ignored_types(part: Part, tree: Tree) -> list[str]:
    """What does not count: by the project's own use of checkpatch, and by the part."""
    types = list(part.settings.get("ignore", []))
    own = tree.path / "buildlib" / "azp-checkpatch"
    if own.is_file():
        found = re.search(r'"--ignore",\s*"([A-Z_,]+)"', own.read_text())
        types += found.group(1).split(",") if found else []
    return types


class Builder:
    """Builds states of a copy of a tree."""

    def __init__(self, part: Part, tree: Tree, root: Root, work: Path, log: Path) -> None:
        self.part, self.tree, self.root, self.work, self.log = part, tree, root, work, log
        if tree.path.parent == cache_dir():  # Debian's, which stays as it is
            key = digest("upstream-base-1", root.key, tree.path.name, PREPARE[tree.kind],
                         BUILD[tree.kind], CONFIG)
            base = built(f"upstream-base-{tree.kind}", key, f"{tree.kind} as it is", self._base)
        else:
            base = work / "base"
            base.mkdir()
            self._base(base, log)
        # perftest is built in its tree.
        copy_tree(base / "tree", work / "tree", links=tree.kind != "perftest")
        copy_tree(base / "out", work / "out", links=False)
        self.known = findings((base / "said").read_text())
        (work / "config").write_text(self._config(*part.settings.get("config", [])))

    @staticmethod
    def _config(*more: str) -> str:
        # Kconfig warns of a symbol that is there twice.
        other = {line.partition("=")[0] for line in more}
        kept = [line for line in CONFIG.read_text().splitlines()
                if line.partition("=")[0] not in other]
        return "\n".join([*kept, *more, ""])

    def _base(self, base: Path, log: Path) -> None:
        """Builds the tree as it is. What it says is kept beside it."""
        copy_tree(self.tree.path, base / "tree", links=self.tree.kind != "perftest")
        (base / "out").mkdir()
        (base / "config").write_text(self._config())
        self._run(PREPARE[self.tree.kind], f"preparing {self.tree.kind}", base, log)
        (base / "said").write_text(self._build(f"{self.tree.kind} as it is", base, log, MANA))

    def _run(self, script: str, what: str, work: Path, log: Path, *more: str) -> str:
        start = log.stat().st_size if log.exists() else 0
        self.root.run(["sh", "-c", script, "build", jobs(), *more], log, what,
                      {work: "/build", SHIMS: "/shims"}, timeout=3600,
                      env={"CCACHE_BASEDIR": "/build"})
        with log.open(errors="replace") as file:
            file.seek(start)
            return file.read()

    def _build(self, what: str, work: Path, log: Path, folder: str) -> str:
        return self._run(BUILD[self.tree.kind], f"building {what}", work, log,
                         *([folder] if self.tree.kind == "linux" else []))

    def add(self, patch: Path, checked: Checked) -> None:
        """Builds the next state, and notes what is new there."""
        # In a repository git would look at paths from the top of that.
        run_logged(["git", "apply", os.fspath(patch)], self.log, f"applying {patch.name}",
                   env={**os.environ, "GIT_CEILING_DIRECTORIES": os.fspath(self.work)},
                   cwd=self.work / "tree")
        try:
            said = self._build(patch.name, self.work, self.log,
                               self.part.settings.get("build", MANA))
        except LabError as error:
            checked.build.append(str(error))
            return
        names = {os.path.basename(name) for name in touched([patch]) if name.endswith(".c")}
        seen = set(re.findall(r"^ +CHECK +(?:\S+/)?(\S+\.c)$", said, re.M))
        checked.compiled, checked.sparse = bool(names), names <= seen
        checked.build += sorted(findings(said) - self.known)

    def tests(self) -> str:
        """What the project's own tests say that need no network."""
        if self.tree.kind not in TESTS:
            return ""
        try:
            said = self._run(TESTS[self.tree.kind], "the project's own tests", self.work,
                             self.log).splitlines()
        except LabError as error:
            return f"{FAILED}: {error}"
        words = [line.strip() for line in said if re.match(r"Ran \d+|OK|FAILED|buildlib/", line)]
        return "; ".join(words) or "ended well"


def check_series(part: Part, tree: Tree, patches: Sequence[Path], root: Root, work: Path,
                 log: Path, signed: bool = False) -> Outcome:
    """Tries a series against a copy of the tree below `work`."""
    builder = Builder(part, tree, root, work, log)
    commits = []
    for patch in patches:
        checked = Checked(patch.name, style(part, tree, patch, signed))
        builder.add(patch, checked)
        commits.append(checked)
    return Outcome(commits, builder.tests())

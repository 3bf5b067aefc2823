# SPDX-License-Identifier: Apache-2.0
"""Programs that guest images do not have: taken from the suite's packages with the libraries that
they need, kept in the cache, and unpacked in the guests of the tests that use them: in a folder of
their own, or where they belong."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

from . import debian, host
from .errors import LabError
from .guest import Guest
from .image import cache_lock, digest, new_entry, remove_tree
from .paths import cache_dir, logs_dir
from .proc import run_logged
from .progress import Step

SPACE_NEEDED = 1_500_000_000
LIBRARIES = "usr/lib/x86_64-linux-gnu"
# Which files of a tree go into an archive, and how they are named there.
Choice = Callable[[Path, list[Path]], dict[str, Path]]
# The packages by name, in the tree that they are extracted to.
WRITE_VERSIONS = ('for deb in "$1"/var/cache/apt/archives/*.deb; do dpkg-deb -W "$deb"; done '
                  '>"$1/versions"')
# What no program may bring along to a guest.
GUESTS_OWN = re.compile(r"(ld-linux-x86-64|libc|libm)\.so\.")


def dynamic(path: Path) -> tuple[str, list[str]]:
    """The name under which a program or library is looked for, and the libraries it needs."""
    done = subprocess.run(["readelf", "-dW", os.fspath(path)], capture_output=True, text=True,
                          timeout=60, check=False)
    name = re.search(r"\(SONAME\).*\[(.*)\]", done.stdout)
    return name[1] if name else path.name, re.findall(r"\(NEEDED\).*\[(.*)\]", done.stdout)


def library(tree: Path, name: str) -> Path | None:
    """A library of the tree, also one of which the system chooses one of several (BLAS)."""
    places = [tree / LIBRARIES / name, *sorted((tree / LIBRARIES).glob(f"*/{name}"))]
    return next((place for place in places if place.exists()), None)


def closure(tree: Path, roots: list[Path], libc: bool = False) -> dict[str, Path]:
    """The files by name, with all libraries below them that the tree has; those that are the
    guest's own only with `libc`, for programs that its loader then runs."""
    found: dict[str, Path] = {}
    waiting = list(roots)
    while waiting:
        path = waiting.pop().resolve()
        name, needed = dynamic(path)
        if name in found:
            continue
        found[name] = path
        waiting += filter(None, (library(tree, one) for one in needed
                                 if libc or not GUESTS_OWN.match(one)))
    return found


def in_place(tree: Path, roots: list[Path]) -> dict[str, Path]:
    """The files by where they belong, those of folders too, with all libraries below them. A link
    to a folder (perl looks for its modules behind such a one) stays a link."""
    paths = [path for root in roots for path in (root.rglob("*") if root.is_dir() else [root])]
    files = {path: path.resolve() for path in paths if path.is_file()}
    programs = [path for path in files.values() if is_elf(path)]
    files |= {path: path for path in paths if path.is_symlink() and path.is_dir()}
    return {os.fspath(path.relative_to(tree)): what for path, what in files.items()} | {
        f"{LIBRARIES}/{name}": path for name, path in closure(tree, programs).items()
        if ".so" in name}


def is_elf(path: Path) -> bool:
    """Whether a file is a program or a library."""
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def archive(suite: str, packages: tuple[str, ...], patterns: tuple[str, ...],
            choose: Choice = closure) -> Path:
    """A tar of the files of packages that match patterns, with their libraries: in one folder, or
    with `in_place` each where it belongs, for `install`."""
    how = () if choose is closure else (choose.__name__, "with links")
    key = digest("extra-2", *how, *packages, "|", *patterns)
    final = cache_dir() / f"extra-{suite}-{key}"
    if not final.exists():
        with cache_lock(final.name):
            if not final.exists():
                _make(final, suite, packages, patterns, choose)
    return final / "files.tar"


def version(tar: Path, package: str) -> str:
    """A package that an archive is from, with its version."""
    listed = dict(line.split("\t") for line in
                  tar.with_name("versions").read_text().splitlines())
    if package not in listed:
        raise LabError(f"{tar} has nothing of {package}")
    return f"{package} {listed[package]}"


def _make(final: Path, suite: str, packages: tuple[str, ...], patterns: tuple[str, ...],
          choose: Choice) -> None:
    host.ensure_packages(*host.for_trees({"mmdebstrap": "mmdebstrap", "readelf": "binutils"}))
    host.check_space(cache_dir(), SPACE_NEEDED, packages[0])
    log = logs_dir() / f"extra-{suite}.log"
    log.unlink(missing_ok=True)
    with new_entry(final) as temp, Step(f"{suite}: fetching {', '.join(packages)} (log: {log})"):
        packed, tree = temp / "packages.tar", temp / "tree"
        debian.bootstrap(packed, suite, list(packages), log, variant="extract",
                         options=(f"--extract-hook={WRITE_VERSIONS}",))
        tree.mkdir()
        run_logged(["tar", "-xf", os.fspath(packed), "-C", os.fspath(tree), "--no-same-owner",
                    "--exclude=./dev"], log, f"unpacking {packages[0]}")
        roots: list[Path] = []
        for pattern in patterns:
            matches = sorted(tree.glob(pattern))
            if not matches:
                raise LabError(f"{', '.join(packages)} of {suite} have no {pattern}", log)
            roots += matches
        pack(choose(tree, roots), temp / "files.tar")
        (tree / "versions").rename(temp / "versions")
        packed.unlink()
        remove_tree(tree)


def pack(files: dict[str, Path], target: Path) -> None:
    """Makes an archive of chosen files."""
    with tarfile.open(target, "w") as tar:
        for name, path in sorted(files.items()):
            tar.add(path, name, recursive=False)


def unpack(guest: Guest, tar: Path, folder: str) -> None:
    """Unpacks an archive in a guest. Libraries that the guest has are the guest's own."""
    guest.put(tar, f"{folder}.tar")
    guest.run(f"mkdir -p {folder} && cd {folder} && tar -xf {folder}.tar && rm {folder}.tar && "
              f"for f in *; do [ ! -e /{LIBRARIES}/$f ] || rm $f; done", timeout=120)


def install(guest: Guest, tar: Path) -> None:
    """Puts the files of an archive of `in_place` where they belong, but for those that the guest
    has."""
    guest.put(tar, "/root/install.tar")
    guest.run("tar -xf /root/install.tar -C / --skip-old-files --keep-directory-symlink && "
              "rm /root/install.tar", timeout=120)

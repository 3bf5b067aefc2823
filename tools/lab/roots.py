# SPDX-License-Identifier: Apache-2.0
"""Build roots: for each suite a Debian tree with the headers of exactly the guest image's kernel,
compilers, and the sources of rdma-core and perftest. Cached under keys of what they are made
from."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import debian, host
from .errors import LabError
from .image import (ETHERNET_ONLY, Image, cache_lock, digest, entries, new_entry, package_list,
                    remove_tree)
from .paths import cache_dir, logs_dir
from .proc import run_logged
from .progress import Step, say

HERE = Path(__file__).resolve().parent
PACKAGES = HERE / "root" / "packages"
SPACE_NEEDED = 3_000_000_000
SOURCES = ("rdma-core", "perftest")
FETCH_SOURCES = ("set -e; mkdir -p \"$1/src\"; "
                 f"chroot \"$1\" sh -c 'cd /src && apt-get -q source --tar-only {' '.join(SOURCES)}"
                 "'; mkdir -p \"$1/build\" \"$1/ccache\"")
NO_SOURCES = 'mkdir -p "$1/build" "$1/ccache"'
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/tmp",
    "LC_ALL": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
    "CCACHE_DIR": "/ccache",
    "CCACHE_NOHASHDIR": "1",
    "CCACHE_MAXSIZE": "1G",
}


def namespace() -> list[str]:
    """The start of a command line that has mounts and processes of its own, and is root there."""
    users = [] if os.geteuid() == 0 else ["--user", "--map-root-user", "--map-auto"]
    return ["unshare", *users, "--mount", "--pid", "--fork", "--kill-child"]


@dataclass(frozen=True)
class Root:
    """A build root. `kernel` is the version whose headers it has; `binds` are host directories
    that programs see in it besides those of each call."""

    suite: str
    key: str
    path: Path
    kernel: str
    binds: tuple[tuple[Path, str], ...] = ()

    @property
    def tree(self) -> Path:
        """The Debian tree."""
        return self.path / "tree"

    def argv(self, argv: Sequence[str], binds: Mapping[Path, str] | None = None, cwd: str = "/"
             ) -> list[str]:
        """The command line that runs `argv` in the root; `binds`: host directories and where they
        are in the root. Changes to anything else are forgotten."""
        ccache = cache_dir() / "ccache"
        ccache.mkdir(exist_ok=True)
        words = [*namespace(), "/usr/bin/python3", "-B", os.fspath(HERE / "inroot.py"),
                 os.fspath(self.tree), os.fspath(self.path / "mnt"), "--cwd", cwd]
        if os.geteuid() != 0:
            words.append("--unprivileged")
        for source, target in {**dict(self.binds), **(binds or {}), ccache: "/ccache"}.items():
            words += ["--bind", os.fspath(source), target]
        return [*words, "--", *argv]

    def run(self, argv: Sequence[str], log: Path, what: str,
            binds: Mapping[Path, str] | None = None, cwd: str = "/", timeout: float = 3600.0,
            env: Mapping[str, str] | None = None) -> None:
        """Runs a program in the root, its output in `log`."""
        run_logged(self.argv(argv, binds, cwd), log, what, timeout,
                   env={**ENVIRONMENT, **(env or {})})

    def tarball(self, source: str) -> str:
        """The path, in the root, of the upstream tarball of a source package."""
        found = sorted((self.tree / "src").glob(f"{source}_*.orig.tar.*"))
        if not found:
            raise LabError(f"the build root of {self.suite} has no source of {source}")
        return f"/src/{found[-1].name}"


def _packages(image: Image) -> list[str]:
    headers = [] if image.suite in ETHERNET_ONLY else [f"linux-headers-{image.version}"]
    return [*headers, *package_list(PACKAGES.read_text())]


def _hook(image: Image) -> str:
    """Fetches the sources, but for a release that gets nothing of ours that is built with them."""
    return NO_SOURCES if image.suite in ETHERNET_ONLY else FETCH_SOURCES


def root_key(image: Image) -> str:
    """Key of the root for an image."""
    return digest("root-1", image.suite, " ".join(_packages(image)), _hook(image))


def get_root(image: Image) -> Root:
    """The build root for an image, made first when it is not in the cache."""
    key = root_key(image)
    final = cache_dir() / f"root-{image.suite}-{key}"
    if not final.exists():
        with cache_lock(f"root-{image.suite}"):
            if not final.exists():
                _make(image, final)
    return Root(image.suite, key, final, image.version)


def _make(image: Image, final: Path) -> None:
    log = logs_dir() / f"root-{image.suite}.log"
    try:
        make_root(final, image.suite, _packages(image), log, _hook(image))
    except LabError as error:
        if f"Unable to locate package linux-headers-{image.version}" in log.read_text(
                errors="replace"):
            raise LabError(
                f"the mirror no longer has the headers of the {image.suite} image's kernel "
                f"{image.version}; remove {cache_dir()}/guest-{image.suite}-* to make a "
                "new image", log) from error
        raise


def kept_root(label: str, name: str, suite: str, packages: list[str], hook: str) -> Root:
    """The root `name` of packages in the cache, made first when it is not there. `label` names its
    kind, in its key."""
    key = digest(f"{label}-1", suite, " ".join(packages), hook)
    final = cache_dir() / f"{name}-{key}"
    if not final.exists():
        with cache_lock(name):
            if not final.exists():
                make_root(final, suite, packages, logs_dir() / f"{name}.log", hook)
    return Root(suite, key, final, "")


def make_root(final: Path, suite: str, packages: list[str], log: Path, hook: str) -> None:
    """Makes the root `final` of packages; `hook` is a shell command that gets its path as $1."""
    as_root = os.geteuid() == 0
    host.ensure_packages(*host.for_trees())
    host.check_namespaces()
    host.check_space(cache_dir(), SPACE_NEEDED, f"the {suite} build root")
    log.unlink(missing_ok=True)
    with new_entry(final) as temp:
        (temp / "mnt").mkdir()
        tree = temp / ("tree" if as_root else "tree.tar")
        with Step(f"{suite}: installing the build root (log: {log})"):
            debian.bootstrap(tree, suite, packages, log, sources=True,
                             options=(f"--customize-hook={hook}",))
            if not as_root:
                (temp / "tree").mkdir()
                run_logged(["unshare", "--map-root-user", "--map-auto", "tar", "-xf",
                            os.fspath(tree), "-C", os.fspath(temp / "tree"), "--numeric-owner",
                            "--exclude=./dev/*"], log, "unpacking the build root")
                tree.unlink()
    for old in entries(final.name.rpartition("-")[0]):
        if old != final and time.time() - old.stat().st_mtime > 14 * 86400:
            remove_tree(old)
    say(f"{suite}: build root {final.name} is ready")

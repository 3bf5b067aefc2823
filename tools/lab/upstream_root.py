# SPDX-License-Identifier: Apache-2.0
"""The root in which series for other projects are made and tried: compilers, and Debian's newest
sources of those projects."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from .building import built
from .debian import WITH_BACKPORTS
from .errors import LabError
from .image import digest, package_list
from .paths import ROOT
from .proc import run_logged
from .roots import FETCH_SOURCES, Root, kept_root

PACKAGES = ROOT / "tools" / "upstream.d" / "packages"
#: The release of Debian that is made next, with the newest kernel of backports.
SUITE = "newest"
assert SUITE in WITH_BACKPORTS
KERNEL = "linux-source-*.tar.*"


def get_upstream_root(suite: str = SUITE) -> Root:
    """The root, made first when it is not in the cache."""
    return kept_root("upstream-root", f"upstream-root-{suite}", suite,
                     package_list(PACKAGES.read_text()), FETCH_SOURCES)


@dataclass(frozen=True)
class Source:
    """A source package of Debian, unpacked."""

    name: str
    version: str
    path: Path


def _archive(root: Root, kind: str) -> Path:
    """The archive of a project's sources in a root."""
    folder, pattern = ("usr/src", KERNEL) if kind == "linux" else ("src", f"{kind}_*.orig.tar.*")
    found = sorted((root.tree / folder).glob(pattern))
    if not found:
        raise LabError(f"{root.path} has no source of {kind}; remove that directory")
    return found[-1]


def source_version(root: Root, kind: str) -> str:
    """Which version Debian has of a project."""
    if kind != "linux":
        return _archive(root, kind).name.split("_")[1].split(".orig.")[0]
    status = (root.tree / "var" / "lib" / "dpkg" / "status").read_text()
    package = _archive(root, kind).name.split(".tar.")[0]
    found = re.search(rf"^Package: {re.escape(package)}\n(?:.+\n)*?Version: (\S+)", status, re.M)
    if found is None:
        raise LabError(f"{root.path} does not know its {package}; remove that directory")
    return found.group(1)


def debian_source(root: Root, kind: str) -> Source:
    """Debian's source of a project, unpacked in the cache."""
    archive, version = _archive(root, kind), source_version(root, kind)

    def make(temp: Path, log: Path) -> None:
        run_logged(["tar", "-xf", os.fspath(archive), "-C", os.fspath(temp), "--no-same-owner",
                    "--strip-components=1"], log, f"unpacking {archive.name}")

    key = digest("upstream-source-1", kind, archive.name, version)
    return Source(kind, version, built(f"upstream-{kind}", key, f"{kind} {version}", make))

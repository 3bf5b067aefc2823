# SPDX-License-Identifier: Apache-2.0
"""Where the lab keeps things: source tree, cache, run directories, logs."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from .errors import LabError

ROOT = Path(__file__).resolve().parents[2]
GUEST_FILES = Path(__file__).resolve().parent / "guest"
# A package installs the lab without the sources of manad.
IS_SOURCE_TREE = (ROOT / "CMakePresets.json").exists()
BUILD = ROOT / "build" if IS_SOURCE_TREE else Path("/usr")


def cache_dir() -> Path:
    """The directory of images, QEMU and remembered answers; OPENMANA_CACHE overrides it."""
    override = os.environ.get("OPENMANA_CACHE")
    if override:
        path = Path(override)
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        path = Path(base) / "openmana"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"cannot create the cache directory {path}: {error.strerror}") from error
    return path.resolve()


def logs_dir() -> Path:
    """Logs of runs. Those of runs that went well are removed at their end."""
    path = cache_dir() / "logs"
    path.mkdir(exist_ok=True)
    return path


def private_dir(path: Path) -> Path:
    """Makes `path` with mode 0700, or checks that it is a directory that only we can write."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = path.lstat()
    except OSError as error:
        raise LabError(f"cannot create {path}: {error.strerror}") from error
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o022:
        raise LabError(f"{path} is not a directory of this user alone")
    return path


def run_base(passable: bool = False) -> Path:
    """The directory that holds run directories (sockets). Short, for the limit of AF_UNIX. A
    `passable` one is where others can go to: not below what is this user's alone."""
    if passable:
        return private_dir(Path("/tmp") / f"openmana-{os.getuid()}")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and len(runtime) < 50 and os.path.isdir(runtime) and os.access(runtime, os.W_OK):
        return private_dir(Path(runtime) / "openmana")
    return private_dir(Path(os.environ.get("TMPDIR") or "/tmp") / f"openmana-{os.getuid()}")

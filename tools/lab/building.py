# SPDX-License-Identifier: Apache-2.0
"""What the builds of the lab share: names of cache entries, jobs, and what a failed build says."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from .errors import LabError
from .image import cache_lock, entries, new_entry
from .paths import cache_dir, logs_dir
from .progress import Step

KEPT_DAYS = 14


def jobs() -> str:
    """How many compilers run at once."""
    return str(os.cpu_count() or 1)


@contextlib.contextmanager
def explained(what: str, log: Path) -> Iterator[None]:
    """A failed build says its first error, and names the log."""
    try:
        yield
    except LabError as error:
        found = None
        with contextlib.suppress(OSError):
            found = re.search(r"^.*\b(?:error|Error)(?: [A-Z]\d+)?: .*$",
                              log.read_text(errors="replace"), re.M)
        if found is None:
            raise
        raise LabError(f"building {what} failed: {found.group(0).strip()[:200]}", log) from error


def entry(name: str, key: str) -> Path:
    """The place of a result in the cache."""
    return cache_dir() / f"{name}-{key}"


def built(name: str, key: str, what: str, make: Callable[[Path, Path], None]) -> Path:
    """The cache entry `name`-`key`. Where it is missing, `make` fills a directory that becomes it;
    its second argument is the log."""
    final = entry(name, key)
    if final.exists():
        return final
    with cache_lock(name):
        if final.exists():
            return final
        log = logs_dir() / f"{name}.log"
        log.unlink(missing_ok=True)
        with new_entry(final) as temp, explained(what, log), \
                Step(f"building {what} (log: {log})"):
            make(temp, log)
        sweep(name, final)
    return final


def sweep(name: str, kept: Path) -> None:
    """Removes results that nobody used for long."""
    for old in entries(name):
        if old != kept and time.time() - old.stat().st_mtime > KEPT_DAYS * 86400:
            shutil.rmtree(old, ignore_errors=True)


def sweep_files(name: str, kept: Path) -> None:
    """The same for results that are files and made anew in seconds."""
    for old in entries(name):
        if old != kept and time.time() - old.stat().st_mtime > 86400:
            old.unlink(missing_ok=True)


def tree_files(base: Path, target: str = "extras") -> list[tuple[str, bytes, int]]:
    """The directories, files and links below a directory as entries of an initramfs, below
    `target` there."""
    entries: list[tuple[str, bytes, int]] = []
    for path in sorted(base.rglob("*")):
        name = f"{target}/{path.relative_to(base).as_posix()}"
        if path.is_symlink():
            entries.append((name, os.readlink(path).encode(), 0o120777))
        elif path.is_dir():
            entries.append((name, b"", 0o040755))
        else:
            mode = 0o755 if path.stat().st_mode & 0o111 else 0o644
            entries.append((name, path.read_bytes(), 0o100000 | mode))
    return entries

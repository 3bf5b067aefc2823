# SPDX-License-Identifier: Apache-2.0
"""Run directories: made with a lock that lives as long as their owner, removed when it is gone."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

from .paths import logs_dir, run_base

KEEP_LOGS = 30


class RunDirectory:
    """A directory of sockets, mode 0700, held by a lock file; `close` removes it. A `passable` one
    has directories that other users can go to if they know the names."""

    def __init__(self, prefix: str = "run-", passable: bool = False) -> None:
        base = run_base(passable)
        sweep(base)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
        if passable:
            for path in (base, self.path):
                path.chmod(0o711)
        self._lock = (self.path / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._lock.write(f"{os.getpid()}\n")
        self._lock.flush()

    def close(self) -> None:
        """Removes the directory with all in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()
        try:
            self.path.parent.rmdir()  # the last one takes the base along
        except OSError:
            pass


def is_owned(path: Path) -> bool:
    """Whether the process that made this run directory still lives."""
    try:
        with (path / "lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no lock file yet: just being made, or half removed
        try:
            return time.time() - path.stat().st_mtime < 30
        except OSError:
            return False
    return False


def sweep(base: Path) -> int:
    """Removes run directories whose owner was killed. Its processes died with it (PDEATHSIG)."""
    count = 0
    for path in base.glob("*-*"):
        if path.is_dir() and not is_owned(path):
            shutil.rmtree(path, ignore_errors=True)
            count += 1
    return count


def new_log_dir(name: str) -> Path:
    """A fresh directory for the logs of one run; old ones beyond the newest are removed."""
    base = logs_dir() / "runs"
    base.mkdir(exist_ok=True)
    old = sorted((path for path in base.iterdir() if path.is_dir()),
                 key=lambda path: path.stat().st_mtime)
    for path in old[:-KEEP_LOGS]:
        if time.time() - path.stat().st_mtime > 3600:
            shutil.rmtree(path, ignore_errors=True)
    stamp = time.strftime("%m%d-%H%M%S")
    return Path(tempfile.mkdtemp(prefix=f"{stamp}-{name}-", dir=base))

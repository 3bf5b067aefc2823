# SPDX-License-Identifier: Apache-2.0
"""checkpatch: the kernel's own check of style, taken from Debian's kernel source."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from . import debian, host
from .building import built
from .errors import LabError
from .image import digest
from .proc import run_logged

SUITE = "trixie"
PACKAGE = "linux-source-6.12"
SPACE_NEEDED = 500_000_000
# The program, and the lists that it looks for beside itself.
SCRIPTS = ("checkpatch.pl", "const_structs.checkpatch", "spelling.txt")
# `--terse` ends each file with its totals.
TOTALS = "total: "


def get_checkpatch() -> Path:
    """The program, fetched once and kept in the cache."""
    def make(temp: Path, log: Path) -> None:
        host.ensure_packages(*host.for_trees({"mmdebstrap": "mmdebstrap", "xz": "xz-utils"}))
        host.check_space(temp, SPACE_NEEDED, "checkpatch")
        debian.extract(temp, SUITE, [PACKAGE], ("usr/src",), log)
        source = temp / "usr" / "src" / f"{PACKAGE}.tar.xz"
        run_logged(["tar", "-xf", os.fspath(source), "-C", os.fspath(temp), "--no-same-owner",
                    "--strip-components=2", *(f"{PACKAGE}/scripts/{name}" for name in SCRIPTS)],
                   log, f"unpacking {PACKAGE}")
        shutil.rmtree(temp / "usr")

    key = digest("checkpatch-1", SUITE, PACKAGE, *SCRIPTS)
    return built("checkpatch", key, f"checkpatch of {PACKAGE}", make) / "checkpatch.pl"


def check(files: list[Path]) -> list[str]:
    """What `checkpatch --strict` says of source files: a line for each finding. LabError if it
    could not do its work."""
    host.ensure_packages({"perl": "perl"})
    argv = ["perl", os.fspath(get_checkpatch()), "--no-tree", "--strict", "--terse",
            "--show-types", "--file", *map(os.fspath, files)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
    findings = [line for line in done.stdout.splitlines() if line and not line.startswith(TOTALS)]
    # It ends with 1 if it found something, and says nothing of files that it likes.
    if done.stderr or done.returncode != (1 if findings else 0):
        raise LabError(f"checkpatch ended with status {done.returncode}: "
                       f"{(done.stderr or done.stdout).strip()[-300:]}")
    return findings

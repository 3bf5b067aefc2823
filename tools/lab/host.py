# SPDX-License-Identifier: Apache-2.0
"""What the host must have: packages, disk space."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from .errors import LabError
from .paths import ROOT, cache_dir, logs_dir
from .proc import find_program, run_logged
from .progress import Step

# What proves that a package is there (a program, or a file) -> the Debian package.
FOR_IMAGES = {
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "gcc": "gcc",
    "/usr/include/stdio.h": "libc6-dev",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
}
FOR_USERS = {
    "newuidmap": "uidmap",
    "unshare": "util-linux",
}


def tsc_khz(cpus: str) -> int | None:
    """How fast the time stamp counter runs, in kHz, by the text of /proc/cpuinfo: what Linux calls
    a CPU's frequency where it does not measure that. Nothing if it does, or if the counter is not
    steady."""
    flags = re.search(r"^flags\s*:(.*)", cpus, re.M)
    mhz = re.search(r"^cpu MHz\s*: (\d+\.\d+)$", cpus, re.M)
    steady = flags is not None and {"constant_tsc", "nonstop_tsc"} <= set(flags[1].split())
    if mhz is None or flags is None or not steady or "aperfmperf" in flags[1].split():
        return None
    return round(float(mhz[1]) * 1000)


def missing_packages(wanted: dict[str, str]) -> list[str]:
    """Packages of `wanted` that this machine lacks."""
    missing = []
    for proof, package in wanted.items():
        there = os.path.exists(proof) if proof.startswith("/") else find_program(proof)
        if not there and package not in missing:
            missing.append(package)
    return missing


def build_packages() -> list[str]:
    """What the build and the tests need: the list that continuous integration installs."""
    text = (ROOT / ".ci" / "packages").read_text()
    return [line.strip() for line in text.splitlines() if line.strip() and line[0] != "#"]


def ensure_build_packages() -> None:
    """Like `ensure_packages`, for the build, and for guest images where there is none yet: what
    lacks is named before the build, and all at once. Elsewhere than on Debian CMake finds it."""
    if find_program("dpkg-query") is None:
        return
    names = build_packages()
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *names],
                          capture_output=True, text=True, timeout=60, check=False)
    there = {line.split()[0] for line in done.stdout.splitlines() if line.endswith(" installed")}
    missing = [name for name in names if name not in there]
    if not any(cache_dir().glob("guest-*")):
        missing += _missing(*for_trees())
    _install(list(dict.fromkeys(missing)))


def _is_debian_keyring_elsewhere() -> bool:
    return any(Path("/etc/apt/trusted.gpg.d").glob("debian-archive*"))


def ensure_packages(*groups: dict[str, str]) -> None:
    """Installs what is missing when we are root; says what is missing when we are not."""
    _install(_missing(*groups))


def _missing(*groups: dict[str, str]) -> list[str]:
    wanted: dict[str, str] = {}
    for group in groups:
        wanted.update(group)
    missing = missing_packages(wanted)
    if "debian-archive-keyring" in missing and _is_debian_keyring_elsewhere():
        missing.remove("debian-archive-keyring")
    return missing


def for_trees(wanted: dict[str, str] = FOR_IMAGES) -> tuple[dict[str, str], ...]:
    """`wanted` for making a tree of a guest's or another program's files, and what an ordinary
    user needs for that besides."""
    return (wanted,) if os.geteuid() == 0 else (wanted, FOR_USERS)


def _install(missing: list[str]) -> None:
    if not missing:
        return
    names = " ".join(missing)
    if os.geteuid() != 0 or find_program("apt-get") is None:
        raise LabError(f"missing packages: {names}; install them with: apt-get install {names}")
    log = logs_dir() / "packages.log"
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive", LC_ALL="C")
    with Step(f"installing packages: {names}"):
        install = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
        try:
            run_logged(install, log, "apt-get install", env=env)
        except LabError:  # the lists may be old or absent
            run_logged(["apt-get", "update"], log, "apt-get update", env=env)
            run_logged(install, log, f"apt-get install {names}", env=env)


def check_space(path: Path, need: int, what: str) -> None:
    """Fails when the file system of `path` has less than `need` bytes for us."""
    info = os.statvfs(path)
    free = info.f_bavail * info.f_frsize
    if free < need:
        raise LabError(f"not enough disk space for {what}: {path} has {free / 1e9:.1f} GB free, "
                       f"{need / 1e9:.1f} GB are needed")


def check_namespaces(mountinfo: str | None = None) -> None:
    """Refuses a chroot whose root is no mount point: unshare(1) cannot make mounts of its own
    there, which build roots need. Said before hours of work, not after them."""
    text = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    if not any(line.split()[4] == "/" for line in text.splitlines()):
        raise LabError("/ is no mount point, as in a plain chroot: our driver and provider cannot "
                       "be built here; bind the directory to itself (mount --bind DIR DIR) before "
                       "chroot DIR")


def python_has(module: str) -> bool:
    """Whether Debian's own Python has a module."""
    return subprocess.run(["/usr/bin/python3", "-c", f"import {module}"], capture_output=True,
                          check=False, timeout=60).returncode == 0

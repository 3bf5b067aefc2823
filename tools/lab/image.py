# SPDX-License-Identifier: Apache-2.0
"""Guest images: an ext4 image with its kernel per suite, and a small initramfs, both cached under
keys of what they are made from."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import debian, host
from .errors import LabError
from .paths import GUEST_FILES, cache_dir, logs_dir
from .proc import run_logged
from .progress import Step, say

# What `mixed` stands for, and what is made ready when no suite is named. The others have the newest
# kernel of trixie's backports, and besides what trixie has, or what forky has.
RELEASES = ("trixie", "forky")
SUITES = (*RELEASES, *debian.WITH_BACKPORTS)
# Releases whose kernels know MANA for Ethernet alone: for guests with stock software.
ETHERNET_ONLY = ("bookworm",)
# Packages that have another name in a release, and those that no other one there brings along.
RENAMED = {"bookworm": {"librdmacm1t64": "librdmacm1"}}
BESIDES = {"bookworm": ["systemd"]}
KEY_DIGITS = 12
SPACE_NEEDED = 3_000_000_000
# Documentation is left out, except the tests that rdma-core ships there.
DPKG_OPTIONS = tuple(f"--dpkgopt={option}" for option in (
    "path-exclude=/usr/share/man/*", "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/doc/*", "path-include=/usr/share/doc/rdma-core",
    "path-include=/usr/share/doc/rdma-core/*"))


@dataclass(frozen=True)
class Image:
    """A guest image ready to boot. `modules`: those of a kernel that the image itself does not
    have, brought by its initramfs; `append`: what that kernel wants on its command line."""

    suite: str
    key: str
    root: Path
    kernel: Path
    initrd: Path
    version: str
    modules: Path | None = None
    append: str = ""


def digest(*parts: bytes | str | Path) -> str:
    """A short key of texts and of the contents of files."""
    state = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else part
        if isinstance(data, str):
            data = data.encode()
        state.update(len(data).to_bytes(8, "little") + data)
    return state.hexdigest()[:KEY_DIGITS]


def entries(name: str) -> list[Path]:
    """The cache entries of a name, whatever their keys: not those of a name that begins alike."""
    return list(cache_dir().glob(f"{name}-{'[0-9a-f]' * KEY_DIGITS}"))


def package_list(text: str) -> list[str]:
    """The packages of a list with comments."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def packages(suite: str, headers: bool = False) -> list[str]:
    """The packages of an image."""
    lists = ["packages", *(["packages-headers"] if headers else [])]
    other = RENAMED.get(suite, {})
    named = [other.get(package, package) for name in lists
             for package in package_list((GUEST_FILES / name).read_text())]
    return named + BESIDES.get(suite, [])


def image_key(suite: str, headers: bool = False) -> str:
    """Key of a suite's image: all that goes into it, except the mirror's state."""
    here = Path(__file__).parent
    return digest("image-1", suite, " ".join(packages(suite, headers)), GUEST_FILES / "modules",
                  here / "stage.py", " ".join(DPKG_OPTIONS))


class _Making(threading.local):
    """What a thread has spent on cache entries, and how many it is in the middle of."""

    seconds = 0.0
    depth = 0


_making = _Making()


def making_seconds() -> float:
    """How long this thread has made cache entries, or waited for others that did: work that there
    is on a new machine alone."""
    return _making.seconds


@contextlib.contextmanager
def cache_lock(name: str) -> Iterator[None]:
    """One process at a time makes the cache entry `name`; others wait for it."""
    begin = time.monotonic()
    _making.depth += 1
    try:
        with _locked(name):
            yield
    finally:
        _making.depth -= 1
        if _making.depth == 0:
            _making.seconds += time.monotonic() - begin


@contextlib.contextmanager
def _locked(name: str) -> Iterator[None]:
    path = cache_dir() / f".{name}.lock"
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with Step(f"another lab command is making {name}; waiting for it"):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def new_entry(final: Path) -> Iterator[Path]:
    """A temporary directory that becomes the cache entry `final` when all goes well."""
    for stale in final.parent.glob(f".{final.name}.tmp-*"):
        remove_tree(stale)  # of a run that was killed; we hold the lock of this entry
    temp = Path(tempfile.mkdtemp(prefix=f".{final.name}.tmp-", dir=final.parent))
    try:
        temp.chmod(0o755)
        yield temp
        os.rename(temp, final)
    finally:
        if temp.exists():
            remove_tree(temp)


def remove_tree(path: Path) -> None:
    """Removes a tree; one with files of sub-ids is removed in the user namespace that made it.
    Nothing that is still mounted in it (a bind of /dev, say) is ever entered."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if line.split()[4].startswith(os.fspath(path) + "/"):
            raise LabError(f"{line.split()[4]} is still mounted; unmount it first")
    shutil.rmtree(path, ignore_errors=True)
    if path.exists() and os.geteuid() != 0:
        subprocess.run(["unshare", "--map-root-user", "--map-auto", "rm", "-rf", "--",
                        os.fspath(path)], check=False, capture_output=True)


def build_image(suite: str, headers: bool = False) -> Path:
    """Makes or finds an image of a suite and returns its directory."""
    name = f"guest-headers-{suite}" if headers else f"guest-{suite}"
    final = cache_dir() / f"{name}-{image_key(suite, headers)}"
    if final.exists():
        return final
    with cache_lock(name):
        if final.exists():
            return final
        host.ensure_packages(*host.for_trees())
        host.check_space(cache_dir(), SPACE_NEEDED, f"the {suite} guest image")
        log = logs_dir() / f"{name.replace('guest', 'image', 1)}.log"
        log.unlink(missing_ok=True)
        with new_entry(final) as temp:
            work = temp / "work"
            work.mkdir()
            as_root = os.geteuid() == 0
            tree = work / ("root" if as_root else "root.tar")
            with Step(f"{suite}: installing the guest's packages (log: {log})"):
                debian.bootstrap(tree, suite, packages(suite, headers), log,
                                 options=DPKG_OPTIONS)
            with Step(f"{suite}: making the guest image"):
                argv = ["/usr/bin/python3", os.fspath(Path(__file__).parent / "stage.py"),
                        os.fspath(work), os.fspath(temp), os.fspath(GUEST_FILES / "modules")]
                if not as_root:
                    argv = ["unshare", "--map-root-user", "--map-auto", *argv, os.fspath(tree)]
                run_logged(argv, log, f"making the {suite} image")
            remove_tree(work)
        for old in entries(name):
            if old != final and time.time() - old.stat().st_mtime > 14 * 86400:
                remove_tree(old)
        say(f"{suite}: image {final.name} is ready")
    return final


def cpio_entry(name: str, data: bytes, mode: int, inode: int, device: tuple[int, int] = (0, 0)
               ) -> bytes:
    """One entry of a newc archive."""
    fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, device[0], device[1], len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08X" % value for value in fields) + name.encode() + b"\0"
    head += b"\0" * (-len(head) % 4)
    return head + data + b"\0" * (-len(data) % 4)


def cpio(files: list[tuple[str, bytes, int]]) -> bytes:
    """A newc archive with a /dev and its console. A mode without a type is that of a regular
    file; the data of a symbolic link is its target."""
    entries = [("dev", b"", stat.S_IFDIR | 0o755, (0, 0)),
               ("dev/console", b"", stat.S_IFCHR | 0o600, (5, 1))]
    entries += [(name, data, mode if stat.S_IFMT(mode) else stat.S_IFREG | mode, (0, 0))
                for name, data, mode in files]
    out = b"".join(cpio_entry(name, data, mode, number + 1, device)
                   for number, (name, data, mode, device) in enumerate(entries))
    out += cpio_entry("TRAILER!!!", b"", 0, 0)
    return out + b"\0" * (-len(out) % 512)


def build_initrd(image: Path) -> Path:
    """Makes or finds the initramfs of an image: our init, the agent and a few modules."""
    key = digest("initrd-1", image.name, GUEST_FILES / "init.c", GUEST_FILES / "agent.py")
    final = cache_dir() / f"initrd-{image.name.removeprefix('guest-')}-{key}"
    if final.exists():
        return final
    with cache_lock(final.name):
        if final.exists():
            return final
        host.ensure_packages({"gcc": "gcc", "/usr/include/stdio.h": "libc6-dev"})
        log = logs_dir() / "initrd.log"
        log.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_dir(), prefix=".initrd-") as temp:
            program = Path(temp) / "init"
            run_logged(["gcc", "-static", "-Os", "-s", "-Wall", "-Wno-unused-result", "-o",
                        os.fspath(program), os.fspath(GUEST_FILES / "init.c")], log,
                       "compiling the guest's init")
            files = [("init", program.read_bytes(), 0o755),
                     ("agent.py", (GUEST_FILES / "agent.py").read_bytes(), 0o755)]
            files += [(path.name, path.read_bytes(), 0o644)
                      for path in sorted((image / "early").iterdir())]
            part = Path(temp) / "initrd"
            part.write_bytes(cpio(files))
            os.rename(part, final)
        for old in entries(f"initrd-{image.name.removeprefix('guest-')}"):
            if old != final:
                old.unlink(missing_ok=True)
    return final


def cached_image(suite: str, headers: bool = False) -> Image | None:
    """The image of a suite if it is in the cache; without its initramfs."""
    name = f"guest-headers-{suite}" if headers else f"guest-{suite}"
    base = cache_dir() / f"{name}-{image_key(suite, headers)}"
    if not (base / "kernel").exists():
        return None
    return Image(suite, base.name, base / "root.ext4", base / "vmlinuz", base / "initrd",
                 (base / "kernel").read_text().strip())


def get_image(suite: str, headers: bool = False) -> Image:
    """The image of a suite, made first when it is not in the cache. With `headers` it is another
    one, in which modules can be built: it has the headers of its kernel, and DKMS."""
    known = (*SUITES, *ETHERNET_ONLY)
    if suite not in known:
        raise LabError(f"unknown guest '{suite}'; there are {', '.join(known)}")
    base = build_image(suite, headers)
    return Image(suite, base.name, base / "root.ext4", base / "vmlinuz", build_initrd(base),
                 (base / "kernel").read_text().strip())

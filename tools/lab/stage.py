# SPDX-License-Identifier: Apache-2.0
"""Turns a Debian tree into a guest image: run as a program, as root or inside a user namespace.

    stage.py WORK OUT MODULES [TAR]

WORK/root is the tree (TAR is unpacked there first). Writes to OUT: root.ext4, vmlinuz, kernel (the
version), early/ (modules that the initramfs loads, in order, listed in early/modules).
"""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
import subprocess
import sys
from pathlib import Path

EARLY = ("virtio_pci", "virtio_blk", "virtio_console", "crc32c_generic", "ext4", "overlay")
JUNK = ("var/cache/apt", "var/lib/apt/lists", "usr/share/locale", "usr/share/man",
        "usr/share/info", "usr/share/zoneinfo", "boot", "usr/lib/python3/dist-packages/__pycache__")


def read_dep(path: Path) -> dict[str, list[str]]:
    """modules.dep: module file -> files that it needs."""
    deps = {}
    for line in path.read_text().splitlines():
        name, _, needs = line.partition(":")
        deps[name] = needs.split()
    return deps


def module_name(path: str) -> str:
    """kernel/fs/ext4/ext4.ko.xz -> ext4"""
    return os.path.basename(path).split(".ko")[0].replace("-", "_")


def wanted_modules(deps: dict[str, list[str]], prefixes: list[str]) -> set[str]:
    """Modules with one of the path prefixes, and all that they need."""
    keep: set[str] = set()
    for name, needs in deps.items():
        if any(name.removeprefix("kernel/").startswith(prefix) for prefix in prefixes):
            keep.add(name)
            keep.update(needs)
    return keep


def unpack(path: Path) -> Path:
    """Replaces a compressed file by its content; the guest need not do that at each boot."""
    if path.suffix == ".xz":
        data = lzma.decompress(path.read_bytes())
    elif path.suffix == ".gz":
        data = gzip.decompress(path.read_bytes())
    elif path.suffix == ".zst":
        data = subprocess.run(["zstd", "-dc", os.fspath(path)], check=True,
                              capture_output=True).stdout
    else:
        return path
    plain = path.with_suffix("")
    plain.write_bytes(data)
    path.unlink()
    return plain


def prepare_modules(root: Path, version: str, prefixes: list[str], early: Path) -> None:
    """Keeps the wanted modules, uncompressed; copies those of the initramfs."""
    base = root / "usr/lib/modules" / version
    if not base.exists():
        base = root / "lib/modules" / version
    keep = wanted_modules(read_dep(base / "modules.dep"), prefixes)
    for path in sorted((base / "kernel").rglob("*.ko*")):
        if os.fspath(path.relative_to(base)) in keep:
            unpack(path)
        else:
            path.unlink()
    subprocess.run(["chroot", os.fspath(root), "depmod", version], check=True)
    deps = read_dep(base / "modules.dep")
    by_name = {module_name(name): name for name in deps}
    order: list[str] = []
    for name in EARLY:
        if name in by_name:  # else it is built in
            for one in [*reversed(deps[by_name[name]]), by_name[name]]:
                if one not in order:
                    order.append(one)
    early.mkdir()
    for one in order:
        shutil.copy(base / one, early / os.path.basename(one))
    (early / "modules").write_text("".join(f"/{os.path.basename(one)}\n" for one in order))


def main(argv: list[str]) -> None:
    work, out, modules = Path(argv[1]), Path(argv[2]), Path(argv[3])
    root = work / "root"
    if len(argv) > 4:
        root.mkdir()
        subprocess.run(["tar", "-xf", argv[4], "-C", os.fspath(root), "--numeric-owner",
                        "--exclude=./dev/*"], check=True)
    kernels = sorted((root / "boot").glob("vmlinuz-*"))
    if not kernels:
        raise SystemExit("the tree has no kernel")
    version = kernels[-1].name.removeprefix("vmlinuz-")
    shutil.copy(kernels[-1], out / "vmlinuz")
    (out / "kernel").write_text(version + "\n")
    prefixes = [line.strip() for line in modules.read_text().splitlines()
                if line.strip() and not line.startswith("#")]
    prepare_modules(root, version, prefixes, out / "early")
    for path in sorted((root / "usr/share/doc/rdma-core").rglob("*.gz")):
        unpack(path)  # rdma-core's Python tests
    for name in JUNK:
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).mkdir(parents=True, exist_ok=True)
    for path in root.glob("usr/share/doc/*"):
        if path.name != "rdma-core" and path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
    for name in ("proc", "sys", "dev", "run", "tmp", "root"):
        (root / name).mkdir(exist_ok=True)
    subprocess.run(["chroot", os.fspath(root), "python3", "-m", "compileall", "-q",
                    "/usr/lib/python3.13", "/usr/lib/python3.14"],
                   check=False, stderr=subprocess.DEVNULL)
    used = int(subprocess.run(["du", "-sk", os.fspath(root)], check=True, capture_output=True,
                              text=True).stdout.split()[0])
    size = used + used // 8 + 64 * 1024
    mke2fs = shutil.which("mke2fs", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    subprocess.run([mke2fs or "mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-m", "0",
                    "-d", os.fspath(root), "-F", os.fspath(out / "root.ext4"), f"{size}k"],
                   check=True)
    shutil.rmtree(root)


if __name__ == "__main__":
    main(sys.argv)

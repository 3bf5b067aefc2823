# SPDX-License-Identifier: Apache-2.0
"""QEMU with our patches (tools/lab/qemu_patches), built from Debian's newest source of it, which is
what the lab's own QEMU is made of. Guests use it when they are asked to; all else stays stock."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

from .building import built, jobs
from .errors import LabError
from .image import digest
from .qemu import Qemu, extracted_qemu
from .roots import Root, kept_root

SUITE = "trixie-backports"
PATCHES = Path(__file__).resolve().parent / "qemu_patches"
SOURCE = "OPENMANA_QEMU_SOURCE"
PACKAGES = ("ccache", "gcc", "libc6-dev", "libglib2.0-dev", "make", "meson", "ninja-build", "patch",
            "perl-base", "pkgconf", "python3", "python3-pycotap", "python3-venv", "xz-utils",
            "zlib1g-dev")
FETCH = ('set -e; mkdir -p "$1/build" "$1/ccache" "$1/src"; chroot "$1" sh -c '
         "'cd /src && apt-get -q source --tar-only qemu'")
NO_SOURCE = 'set -e; mkdir -p "$1/build" "$1/ccache" "$1/src"'
# Guests need an emulated x86 with vfio-user, and nothing that QEMU has libraries for. What its own
# tests need of Python (the group `tooling`) is not in Debian, and firmware is not in its source.
MAKE = """set -e
mkdir /build/qemu /build/out
cd /build/qemu
tar -xf "$1" --strip-components=1
for file in /patches/*.patch; do
    echo "applying $file"
    patch -p1 <"$file"
done
sed -i '/^\\[tooling\\]/,/^$/{/ = {/d}' pythondeps.toml
sed -i 's/unpack_edk2_blobs = bzip2.found()/unpack_edk2_blobs = false/' meson.build
sed -i "/^subdir('dtb')/d" pc-bios/meson.build
cd /build/out
/build/qemu/configure --target-list=x86_64-softmmu --without-default-features --enable-system \
    --enable-tcg --disable-docs --disable-tools --disable-guest-agent --disable-download \
    --disable-install-blobs --cc="ccache gcc"
ninja -j "$2" qemu-system-x86_64
strip -o /build/qemu-system-x86_64 qemu-system-x86_64
rm -rf /build/qemu /build/out
"""


def _root() -> tuple[Root, Path]:
    """The root that it is built in, and the archive of the source."""
    given = os.environ.get(SOURCE)
    if given and not Path(given).is_file():
        raise LabError(f"{SOURCE}: there is no file {given}")
    hook = NO_SOURCE if given else FETCH
    root = kept_root("qemu-root", "qemu-root", SUITE, list(PACKAGES), hook)
    found = sorted((root.tree / "src").glob("qemu_*.orig.tar.*"))
    if not given and not found:
        raise LabError(f"{root.path} has no source of QEMU; remove that directory")
    return root, Path(given) if given else found[-1]


def patched_qemu() -> Qemu:
    """It, built first when it is not in the cache. It runs with the libraries and the firmware of
    the lab's extracted QEMU."""
    stock = extracted_qemu()
    root, source = _root()
    version = re.search(r"_(\d+\.\d+[.\d]*)", source.name)
    if version is None:
        raise LabError(f"{source.name} is no source of QEMU (qemu_VERSION.orig.tar.xz)")
    patches = sorted(PATCHES.glob("*.patch"))
    key = digest("qemu-patched-1", root.key, source.name, MAKE, *patches)

    def make(temp: Path, log: Path) -> None:
        work = temp / "work"
        work.mkdir()
        root.run(["sh", "-c", MAKE, "make", f"/source/{source.name}", jobs()], log,
                 "building QEMU", {work: "/build", source.parent: "/source", PATCHES: "/patches"})
        shutil.move(os.fspath(work / "qemu-system-x86_64"), temp)
        shutil.rmtree(work)

    final = built("qemu-patched", key, f"QEMU {version[1]} with our patches", make)
    argv = list(stock.argv)
    argv[stock.program] = os.fspath(final / "qemu-system-x86_64")
    return replace(stock, argv=tuple(argv), version=f"{version[1]}, patched")

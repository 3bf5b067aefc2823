# SPDX-License-Identifier: Apache-2.0
"""SMB over RDMA for a guest: Debian builds the kernel's server and client without SMB Direct. Here
`fs/smb` of Debian's own kernel source is built with it, for the guest's kernel, and installed in
the guest with what ksmbd-tools and cifs-utils bring."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from . import extras
from .building import built, jobs
from .debug_kernel import source_package
from .errors import LabError
from .guest import Guest
from .image import Image, digest
from .roots import get_root

MODULES = ("cifs.ko", "ksmbd.ko")
FOLDER = "/root/smb"
# What both need, in this order: as far as a kernel has it as a module.
ORDER = ("nls_ucs2_utils", "nls_utf8", "cifs_arc4", "cifs_md4", "smb_compress", "smbdirect")
# Modules of the guest's kernel package that images do not have.
FROM_PACKAGE = ("usr/lib/modules/*/kernel/fs/nls/nls_u*.ko*",)
# What the headers lack is a compiler of ASN.1. Without the kernel itself there is no BTF.
MAKE_SMB = """set -e
cd /build
tar -xf /source/files.tar -O | tar -xJ --strip-components=1 --wildcards '*/fs/smb' \
    '*/fs/nls/*.h' '*/scripts/asn1_compiler.c' \
    '*/include/linux/asn1.h' '*/include/linux/asn1_ber_bytecode.h'
kernel="/lib/modules/$1/build"
gcc -O2 -Iinclude -o "$kernel/scripts/asn1_compiler" scripts/asn1_compiler.c
make -j"$2" -C "$kernel" M=/build/fs/smb CC="ccache gcc" CONFIG_DEBUG_INFO_BTF_MODULES= \
    CONFIG_SMBFS=m CONFIG_CIFS=m CONFIG_SMB_SERVER=m CONFIG_SMBDIRECT=m \
    CONFIG_SMB_SERVER_SMBDIRECT=y CONFIG_CIFS_SMB_DIRECT=y \
    KCFLAGS="-DCONFIG_SMBDIRECT_MODULE=1 -DCONFIG_SMB_SERVER_SMBDIRECT=1 \
-DCONFIG_CIFS_SMB_DIRECT=1" modules
mkdir out
find fs/smb -name '*.ko' -exec cp -t out {} +
strip --strip-debug out/*.ko
"""


def build_modules(image: Image) -> Path:
    """A directory with the modules of fs/smb with SMB Direct, for the kernel of an image."""
    if image.modules:
        raise LabError("SMB Direct is built for Debian's kernel alone")
    root = get_root(image)
    package = source_package(image)
    source = extras.archive(image.suite, (package,), ("usr/src/linux-source-*.tar.xz",))
    version = extras.version(source, package)
    if version.split()[1].partition("-")[0] != image.version.partition("+")[0]:
        raise LabError(f"the guest's kernel is {image.version}, and the mirror has the source of "
                       f"another one: {version}")
    what = f"SMB Direct for {image.suite} ({version})"

    def make(temp: Path, log: Path) -> None:
        work = temp / "work"
        work.mkdir()
        root.run(["sh", "-c", MAKE_SMB, "make", root.kernel, jobs()], log, f"building {what}",
                 {work: "/build", source.parent: "/source"})
        for path in sorted((work / "out").iterdir()):
            shutil.move(os.fspath(path), temp / path.name)
        shutil.rmtree(work)
        if absent := [name for name in MODULES if not (temp / name).exists()]:
            raise LabError(f"{what} has no {', '.join(absent)}", log)

    return built(f"smb-{image.suite}", digest("smb-1", root.key, version, MAKE_SMB), what, make)


def programs() -> Path:
    """An archive of the daemon of ksmbd, and of what mounts."""
    return extras.archive("trixie", ("ksmbd-tools", "cifs-utils"),
                          ("usr/sbin/ksmbd.*", "usr/sbin/mount.cifs"), extras.in_place)


def install(guest: Guest) -> None:
    """Puts modules and programs in a guest; `load` and `unload` are for the modules."""
    modules = build_modules(guest.image)
    package = f"linux-image-{guest.image.version}"
    tar = extras.archive(guest.image.suite, (package,), FROM_PACKAGE)
    extras.unpack(guest, tar, FOLDER)
    for path in sorted(modules.iterdir()):
        guest.put(path, f"{FOLDER}/{path.name}")
    extras.install(guest, programs())


def load(module: str) -> str:
    """A shell command that loads `cifs` or `ksmbd` in a guest, with what that needs."""
    return (f"set -e; cd {FOLDER}\n"
            "for name in $(modinfo -F depends ./*.ko* | tr , ' '); do\n"
            "modprobe -q $name || :; done\n"
            f"for name in {' '.join(ORDER)} {module}; do\n"
            "for file in $name.ko*; do [ ! -e $file ] || grep -q \"^$name \" /proc/modules || "
            "insmod ./$file; done; done")


def unload(module: str) -> str:
    """A shell condition: it is gone, and has nothing of RDMA. Modules of character sets stay: the
    client does not give back that of the server's name (build_netname_ctxt)."""
    return (f"! grep -Eq '^({module}|smbdirect) ' /proc/modules || "
            f"{{ rmmod {module} smbdirect 2>/dev/null; false; }}")

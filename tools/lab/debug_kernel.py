# SPDX-License-Identifier: Apache-2.0
"""The debug kernels of a suite: Debian's own kernel source with the kernel's checkers and little
else, built once and kept in the cache. `debug` has KASAN, UBSAN, lockdep, kmemleak and more;
`kcsan` the detector of data races, which cannot be in one kernel with KASAN.

The configuration is `kernel/config` with `kernel/config-SUITE`, for `kcsan` with the changes of
`kernel/config-kcsan`, and nothing besides. A cache entry has `vmlinuz`, `modules` (as
`modules_install` writes them), `build` (what other modules are built against), `config`, `version`,
and `initrd`, the initramfs that brings the modules to the guest. What the configuration asks for
and the kernel does not have fails the build: a checker that is absent would find nothing."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

from .building import built, entry, jobs, sweep_files, tree_files
from .errors import LabError
from .image import Image, cache_lock, cpio, digest, get_image, package_list
from .roots import Root, kept_root

KERNELS = ("stock", "debug", "kcsan")
FILES = Path(__file__).resolve().parent / "kernel"
# KASAN goes on after its first report.
COMMAND_LINE = {"debug": "kasan_multi_shot", "kcsan": ""}
PREPARE = "mkdir -p \"$1/build\" \"$1/ccache\""
# The kernel contains who built it, and when; always the same words make the same kernel.
MAKE = ('make CC="ccache gcc" HOSTCC="ccache gcc" ARCH=x86_64 KBUILD_BUILD_TIMESTAMP=2026-01-01 '
        "KBUILD_BUILD_USER=manalab KBUILD_BUILD_HOST=openmana LOCALVERSION=-openmana-")
# KCSAN watches a sample of what is instrumented: the RDMA core, the parent, and modules that are
# built later, as ours. What other code writes is still seen, by the value that changes. The memory
# model needs the barriers of those whose locks and pages all of them use.
INSTRUMENTED = ("drivers/infiniband/%", "drivers/net/ethernet/microsoft/%")
BARRIERS = ("kernel/locking/%", "kernel/sched/%", "kernel/rcu/%", "mm/%")
MAKE_MORE = {"debug": "", "kcsan": "".join(
    f" {name}='$(if $(filter {' '.join(folders)},$(obj)/),y,n)'" for name, folders in
    (("KCSAN_SANITIZE", INSTRUMENTED), ("KCSAN_INSTRUMENT_BARRIERS", BARRIERS)))}
CONFIGURE = """set -e
mkdir /build/linux
cd /build/linux
tar -xf /usr/src/linux-source-*.tar.xz --strip-components=1
{MAKE} KCONFIG_ALLCONFIG=/build/wanted allnoconfig
"""
BUILD = """set -e
cd /build/linux
{MAKE} -j"$1" bzImage modules
{MAKE} INSTALL_MOD_PATH=/build/out INSTALL_MOD_STRIP=1 modules_install
{MAKE} run-command KBUILD_RUN_COMMAND="scripts/package/install-extmod-build /build/out/build"
{MAKE} -s kernelrelease >/build/out/version
cp .config /build/out/config
cp arch/x86/boot/bzImage /build/out/vmlinuz
"""


def scripts(kernel: str) -> tuple[str, str]:
    """What configures one of the debug kernels, and what builds it."""
    make = MAKE + kernel + MAKE_MORE[kernel]
    return CONFIGURE.replace("{MAKE}", make), BUILD.replace("{MAKE}", make)


def source_package(image: Image) -> str:
    """Debian's package with the source of an image's kernel."""
    match = re.match(r"\d+\.\d+", image.version)
    if match is None:
        raise LabError(f"the {image.suite} image's kernel has the strange version {image.version}")
    return f"linux-source-{match.group(0)}"


def settings(suite: str, kernel: str = "debug") -> str:
    """What the configuration of a suite's debug kernel asks for."""
    base = (FILES / "config").read_text() + (FILES / f"config-{suite}").read_text()
    if kernel == "debug":
        return base
    changes = (FILES / f"config-{kernel}").read_text()
    changed = set(re.findall(r"^(CONFIG_\w+)=", changes, re.M))
    return "".join(line for line in base.splitlines(keepends=True)
                   if line.partition("=")[0] not in changed) + changes


def missing_settings(wanted: str, config: str) -> list[str]:
    """Lines of `wanted` that are not so in the kernel's `config`."""
    there = dict(line.split("=", 1) for line in config.splitlines() if line.startswith("CONFIG_"))
    asked = (line.split("=", 1) for line in wanted.splitlines() if line.startswith("CONFIG_"))
    return [f"{name}={value}" for name, value in asked if there.get(name, "n") != value]


def _root(image: Image) -> Root:
    """The root that builds debug kernels: compilers, and Debian's kernel source."""
    packages = [source_package(image), *package_list((FILES / "packages").read_text())]
    return kept_root("kernel-root", f"kernel-root-{image.suite}", image.suite, packages, PREPARE)


def _source_version(root: Root, package: str) -> str:
    """The version of a package in a root."""
    status = (root.tree / "var" / "lib" / "dpkg" / "status").read_text()
    match = re.search(rf"^Package: {re.escape(package)}\n(?:.+\n)*?Version: (\S+)", status, re.M)
    if match is None:
        raise LabError(f"{root.path} has no {package}; remove that directory")
    return match.group(1)


def build_kernel(image: Image, kernel: str = "debug") -> Path:
    """The cache entry of one of the debug kernels for the suite of an image."""
    root = _root(image)
    package = source_package(image)
    source = f"{package} {_source_version(root, package)}"
    wanted = settings(image.suite, kernel)
    configure, build = scripts(kernel)
    what = f"the {kernel} kernel of {image.suite} ({source})"

    def make(temp: Path, log: Path) -> None:
        work = temp / "work"
        work.mkdir()
        (work / "wanted").write_text(wanted)
        binds = {work: "/build"}
        root.run(["sh", "-c", configure], log, f"configuring {what}", binds)
        missing = missing_settings(wanted, (work / "linux" / ".config").read_text())
        if missing:
            raise LabError(f"{source} cannot have {', '.join(missing)}, which "
                           f"{FILES / 'config'}* ask for", log)
        root.run(["sh", "-c", build, "make", jobs()], log, f"building {what}", binds,
                 timeout=4 * 3600)
        out = work / "out"
        for part in ("vmlinuz", "config", "version", "build"):
            shutil.move(os.fspath(out / part), temp / part)
        shutil.move(os.fspath(out / "lib" / "modules"), temp / "modules")
        # a link to the source, which goes now
        (temp / "modules" / _version(temp) / "build").unlink(missing_ok=True)
        shutil.rmtree(work)

    key = digest("kernel-1", root.key, source, wanted, configure, build)
    name = f"kernel-{image.suite}" if kernel == "debug" else f"kernel-{kernel}-{image.suite}"
    return built(name, key, what, make)


def _version(kernel: Path) -> str:
    return (kernel / "version").read_text().strip()


def headers(image: Image) -> Root:
    """The root in which modules for the debug kernel of an image are built."""
    kernel = image.kernel.parent
    version = _version(kernel)
    root = _root(image)
    return Root(root.suite, kernel.name, root.path, version,
                ((kernel / "build", f"/lib/modules/{version}/build"),))


def has_kcsan(image: Image) -> bool:
    """Whether the kernel of an image watches for data races."""
    return bool(image.modules) and "CONFIG_KCSAN=y" in (image.kernel.parent / "config").read_text()


def debug_image(suite: str, which: str = "debug") -> Image:
    """The image of a suite with one of the debug kernels in the place of Debian's. Builds what is
    missing."""
    image = get_image(suite)
    kernel = build_kernel(image, which)
    version = _version(kernel)
    modules = kernel / "modules" / version
    name = f"initrd-{which}-{suite}"
    final = entry(name, digest("initrd-debug-1", image.initrd.name, kernel.name))
    if not final.exists():
        with cache_lock(name):
            # What the image's own initramfs loads is built in: the list of that is empty.
            entries = [("modules", b"", 0o644), ("extras", b"", 0o040755)]
            folder = "extras"
            for part in ("usr", "lib", "modules", version):
                folder += f"/{part}"
                entries.append((folder, b"", 0o040755))
            entries += tree_files(modules, folder)
            whole = final.with_name(f".{final.name}.{os.getpid()}")
            whole.write_bytes(image.initrd.read_bytes() + cpio(entries))
            os.rename(whole, final)
        sweep_files(name, final)
    return replace(image, kernel=kernel / "vmlinuz", initrd=final, version=version,
                   modules=modules, append=COMMAND_LINE[which])


def kernel_image(suite: str, kernel: str, headers: bool = False) -> Image:
    """The image of a suite with one of KERNELS; with the headers of Debian's, if they are asked
    for."""
    return get_image(suite, headers) if kernel == "stock" else debug_image(suite, kernel)

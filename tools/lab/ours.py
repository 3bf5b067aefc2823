# SPDX-License-Identifier: Apache-2.0
"""Our own kernel driver and provider, and perftest that knows MANA: built in a suite's build root,
cached by what they are made from, and laid over the guest's image as one more initramfs.

What a guest gets is a cpio archive with a directory /extras behind its initramfs; the guest's init
puts that over the image, so that a file there hides the packaged one."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

from .building import built, entry, jobs, sweep_files, tree_files
from .debug_kernel import has_kcsan, headers
from .errors import LabError
from .image import ETHERNET_ONLY, Image, cache_lock, cpio, digest, get_image
from .paths import ROOT, cache_dir, logs_dir
from .proc import find_program, run_logged, tail
from .roots import Root, get_root

SIDES = ("stock", "ours")
LIBRARIES = "usr/lib/x86_64-linux-gnu"
PATCHES = Path(__file__).resolve().parent / "patches"
# What builds leave in a source directory.
PRODUCTS = re.compile(r".*\.(o|ko|mod|mod\.c|cmd|pyc|symvers|order|a)$|^\..*|^__pycache__$|^build$")

MAKE_DRIVER = """set -e
cd /build/kernel
make -j"$2" KVER="$1" KDIR="/lib/modules/$1/build" CC="ccache gcc"
test -f mana_ib.ko
"""
MAKE_MODULE = """set -e
make -j"$2" -C "/lib/modules/$1/build" M="/build/$3" CC="ccache gcc" modules
"""
CHECK_DRIVER = """set -e
cd /build/kernel
make -j"$2" KVER="$1" KDIR="/lib/modules/$1/build" check
"""
CONFIGURE_RDMA_CORE = """set -e
cd /build/rdma-core
tar -xf "$1" --strip-components=1
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_INSTALL_PREFIX=/usr \
    -DCMAKE_INSTALL_LIBDIR=lib/x86_64-linux-gnu -DCMAKE_INSTALL_SYSCONFDIR=/etc \
    -DNO_MAN_PAGES=1 -DNO_PYVERBS=1
ninja -C build -j "$2" ibverbs mana
"""
MAKE_PROVIDER = """set -e
cd /build
cp -a /base/. rdma-core
rm -rf rdma-core/providers/mana
cp -r providers/mana rdma-core/providers/mana
cp -r include rdma-core/providers/mana/include
ninja -C rdma-core/build -j "$1" mana
DESTDIR=/build/out cmake -P rdma-core/build/providers/mana/cmake_install.cmake
cd out
ls usr/lib/x86_64-linux-gnu/libibverbs/libmana-rdmav*.so
rm -rf /build/rdma-core
"""
# Not mana.c and import.c, the device's entry points: they need libibverbs itself.
CHECK_PROVIDER = """set -e
cd /build
newer=
if grep -q 'struct ibv_fd_arr \\*fd_arr' rdma-core/libibverbs/driver.h; then
    newer=-DMANA_NEWER_COMMANDS
fi
gcc -std=gnu11 -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined $newer \
    -isystem rdma-core/build/include -Iinclude -Iproviders/mana -o verbs_test \
    tests/verbs/*.c $(ls providers/mana/*.c | grep -v -E '/(mana|device|import)[.]c$')
./verbs_test
"""
MAKE_PERFTEST = """set -e
cd /build
tar -xf "$1" --strip-components=1
for file in /patches/*.patch; do
    echo "applying $file"
    patch -p1 <"$file"
done
./autogen.sh
./configure --prefix=/usr CC="ccache gcc"
make -j"$2"
make install-strip DESTDIR=/build/out
"""


def source_files(*folders: str) -> list[Path]:
    """The source files below some folders of the source tree, without products of builds."""
    found = []
    for folder in folders:
        if not (ROOT / folder).is_dir():
            raise LabError(f"there is no {folder}/ in {ROOT}")
        for base, names, files in os.walk(ROOT / folder):
            names[:] = sorted(name for name in names if not PRODUCTS.match(name))
            found += [Path(base) / name for name in sorted(files) if not PRODUCTS.match(name)]
    return found


def sources_digest(*folders: str) -> str:
    """Key of the sources below some folders."""
    parts: list[str | Path] = []
    for path in source_files(*folders):
        parts += [str(path.relative_to(ROOT)), path]
    return digest(*parts)


def copy_sources(target: Path, *folders: str) -> None:
    """Copies the sources below some folders to the same place below `target`."""
    for path in source_files(*folders):
        place = target / path.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)


def build_driver(image: Image, root: Root | None = None) -> Path:
    """A directory with our mana_ib.ko for the kernel of an image."""
    place = root or (headers(image) if image.modules else get_root(image))
    what = f"our mana_ib.ko for {image.suite}"

    def make(temp: Path, log: Path) -> None:
        copy_sources(temp / "work", "kernel", "include")
        place.run(["sh", "-c", MAKE_DRIVER, "make", place.kernel, jobs()], log,
                  f"building {what}", {temp / "work": "/build"})
        shutil.copy(temp / "work" / "kernel" / "mana_ib.ko", temp / "mana_ib.ko")
        shutil.rmtree(temp / "work")

    key = digest("driver-1", place.key, MAKE_DRIVER, sources_digest("kernel", "include"))
    return built(f"driver-{image.suite}", key, what, make)


def build_module(image: Image, folder: str) -> Path:
    """A directory with the module of a test, named as its folder, for the kernel of an image."""
    place = headers(image) if image.modules else get_root(image)
    name = f"{Path(folder).name}.ko"
    what = f"{name} for {image.suite}"

    def make(temp: Path, log: Path) -> None:
        copy_sources(temp / "work", folder, "include")
        place.run(["sh", "-c", MAKE_MODULE, "make", place.kernel, jobs(), folder], log,
                  f"building {what}", {temp / "work": "/build"})
        shutil.copy(temp / "work" / folder / name, temp / name)
        shutil.rmtree(temp / "work")

    key = digest("module-1", place.key, MAKE_MODULE, sources_digest(folder, "include"))
    return built(f"module-{image.suite}", key, what, make)


def check_driver(image: Image) -> list[str]:
    """What gcc's W=1 and sparse say of our driver: their warnings, none when all is well."""
    root = get_root(image)
    log = logs_dir() / f"driver-check-{image.suite}.log"
    log.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix=".check-") as temp:
        copy_sources(Path(temp), "kernel", "include")
        root.run(["sh", "-c", CHECK_DRIVER, "make", root.kernel, jobs()], log,
                 f"the check of our driver for {image.suite}", {Path(temp): "/build"})
    text = log.read_text(errors="replace")
    found = re.findall(r"^.*\b(?:warning|error): .*$", text, re.M)
    # The kernel's makefiles leave sparse out, with a word of it, when it does not suit them.
    checked = set(re.findall(r"^ +CHECK +(?:\S+/)?(\S+\.c)$", text, re.M))
    found += [f"{path.name}: not seen by sparse" for path in source_files("kernel")
              if path.suffix == ".c" and path.name not in checked]
    return [line for line in found if "the compiler differs from the one used to build" not in line]


def _rdma_core(root: Root) -> Path:
    """The rdma-core tree of a root, configured, with libibverbs built."""
    def make(temp: Path, log: Path) -> None:
        # CMake keeps absolute paths: the tree is built where providers will be built.
        root.run(["sh", "-c", CONFIGURE_RDMA_CORE, "configure", root.tarball("rdma-core"),
                  jobs()], log, "preparing rdma-core", {temp: "/build/rdma-core"})

    return built(f"rdma-core-{root.suite}", digest("rdma-core-1", root.key, CONFIGURE_RDMA_CORE),
                 f"rdma-core for {root.suite}", make)


def build_provider(image: Image, root: Root | None = None) -> Path:
    """A directory with our provider as rdma-core installs it (usr/lib/..., etc/...)."""
    place = root or get_root(image)
    what = f"our provider for {image.suite}"

    def make(temp: Path, log: Path) -> None:
        base = _rdma_core(place)
        work = temp / "work"
        copy_sources(work, "providers", "include")
        place.run(["sh", "-c", MAKE_PROVIDER, "make", jobs()], log, f"building {what}",
                  {work: "/build", base: "/base"})
        _move_out(work / "out", temp)
        shutil.rmtree(work)

    key = digest("provider-1", place.key, CONFIGURE_RDMA_CORE, MAKE_PROVIDER,
                 sources_digest("providers", "include"))
    return built(f"provider-{image.suite}", key, what, make)


def check_provider(image: Image) -> str:
    """Runs the test of our provider's verbs (tests/verbs) with a suite's compiler and rdma-core,
    under sanitizers; gives its last line, or a LabError with what went wrong."""
    root = get_root(image)
    log = logs_dir() / f"provider-check-{image.suite}.log"
    log.unlink(missing_ok=True)
    base = _rdma_core(root)
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix=".check-") as temp:
        copy_sources(Path(temp), "providers", "include", "tests/verbs")
        root.run(["sh", "-c", CHECK_PROVIDER], log, f"the test of our provider for {image.suite}",
                 {Path(temp): "/build", base: "/build/rdma-core"})
    return tail(log)


def _move_out(out: Path, target: Path) -> None:
    for path in sorted(out.iterdir()):
        shutil.move(os.fspath(path), target / path.name)


def build_perftest(image: Image, root: Root | None = None) -> Path:
    """A directory with perftest, patched to know MANA, as it installs itself."""
    place = root or get_root(image)

    def make(temp: Path, log: Path) -> None:
        work = temp / "work"
        work.mkdir()
        place.run(["sh", "-c", MAKE_PERFTEST, "make", place.tarball("perftest"), jobs()], log,
                  "building perftest", {work: "/build", PATCHES / "perftest": "/patches"})
        shutil.rmtree(work / "out" / "usr" / "share", ignore_errors=True)
        _move_out(work / "out", temp)
        shutil.rmtree(work)

    patches = sorted((PATCHES / "perftest").glob("*.patch"))
    key = digest("perftest-1", place.key, MAKE_PERFTEST, *patches)
    return built(f"perftest-{image.suite}", key, f"perftest for {image.suite}", make)


# -- what a guest gets


def check_side(what: str, value: str) -> str:
    """`stock` or `ours`, or one line that says so."""
    if value not in SIDES:
        raise LabError(f"the {what} is {' or '.join(SIDES)}, not '{value}'")
    return value


def _add_driver(image: Image, driver: Path, tree: Path, root: Root, log: Path) -> None:
    """Puts our module where DKMS would, and the indexes of modprobe made anew. The image's modules
    are read without mounting it."""
    folder = f"usr/lib/modules/{image.version}"
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix=".modules-") as temp:
        base = Path(temp) / "usr" / "lib" / "modules"
        base.mkdir(parents=True)
        if image.modules:
            shutil.copytree(image.modules, base / image.version)
        else:
            debugfs = find_program("debugfs")
            if debugfs is None:
                raise LabError("the package e2fsprogs is missing (debugfs)")
            run_logged([debugfs, "-R", f"rdump /{folder} {base}", os.fspath(image.root)], log,
                       "reading the image's modules")
        updates = base / image.version / "updates"
        updates.mkdir()
        shutil.copy(driver / "mana_ib.ko", updates / "mana_ib.ko")
        root.run(["sh", "-c", 'ln -s usr/lib /build/lib && depmod -b /build "$1"', "depmod",
                  image.version], log, "depmod", {Path(temp): "/build"})
        target = tree / folder
        target.mkdir(parents=True)
        shutil.copytree(updates, target / "updates")
        for path in (base / image.version).glob("modules.*"):
            shutil.copy(path, target / path.name)


def _check_module(path: Path, image: Image) -> None:
    """A module for another kernel would only be refused in the guest."""
    found = re.search(rb"vermagic=(\S+)", path.read_bytes())
    version = found.group(1).decode() if found else "nothing"
    if version != image.version:
        raise LabError(f"mana_ib.ko was built for {version}, the guest runs {image.version}")
    if has_kcsan(image) and b"__tsan_read" not in path.read_bytes():
        raise LabError("mana_ib.ko is not instrumented: KCSAN would see nothing of it")


def guest_initrd(image: Image, driver: str = "stock", provider: str = "stock") -> Path:
    """The initramfs of a guest: the image's own, with our parts behind it when they are asked
    for. Builds what is missing."""
    check_side("driver", driver)
    check_side("provider", provider)
    if driver == provider == "stock":
        return image.initrd
    if image.suite in ETHERNET_ONLY:
        raise LabError(f"{image.suite}'s kernel knows MANA for Ethernet alone: driver and provider "
                       "are stock")
    # Programs do not care for the kernel: their root is that of Debian's.
    root = get_root(get_image(image.suite) if image.modules else image)
    parts = []
    if driver == "ours":
        parts.append(build_driver(image))
    if provider == "ours":
        parts += [build_provider(image, root), build_perftest(image, root)]
    name = f"extras-{image.suite}"
    final = entry(name, digest("extras-1", image.key, image.initrd.name,
                                *(part.name for part in parts)))
    if final.exists():
        os.utime(final)
        return final
    with cache_lock(name):
        if final.exists():
            return final
        log = logs_dir() / f"{name}.log"
        log.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_dir(), prefix=".extras-") as temp:
            tree = Path(temp) / "tree"
            tree.mkdir()
            for part in parts:
                if (part / "mana_ib.ko").exists():
                    _check_module(part / "mana_ib.ko", image)
                    _add_driver(image, part, tree, root, log)
                else:
                    shutil.copytree(part, tree, symlinks=True, dirs_exist_ok=True)
            whole = Path(temp) / "initrd"
            entries = [("extras", b"", 0o040755), *tree_files(tree)]
            whole.write_bytes(image.initrd.read_bytes() + cpio(entries))
            os.rename(whole, final)
        sweep_files(name, final)
    return final

# SPDX-License-Identifier: Apache-2.0
"""QEMU: finding one with vfio-user-pci or extracting one from packages, and its command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import debian, host
from .errors import LabError
from .image import cache_lock, digest, new_entry
from .paths import cache_dir, logs_dir
from .proc import find_program, run_logged
from .progress import Step

MINIMUM = (10, 1)
SUITE = "trixie"
SPACE_NEEDED = 700_000_000
KEPT = ("usr/bin/qemu-system-x86_64", "usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/share/qemu",
        "usr/share/seabios")


@dataclass(frozen=True)
class Qemu:
    """A QEMU that can be run: the start of its command line, its environment, and where in the
    command line the program itself is."""

    argv: tuple[str, ...]
    version: str
    env: tuple[tuple[str, str], ...] = ()
    program: int = 0

    def environment(self) -> dict[str, str]:
        """Our environment with QEMU's own additions."""
        return {**os.environ, **dict(self.env)}


def parse_version(text: str) -> tuple[int, int] | None:
    """`QEMU emulator version 11.1.0 (Debian ...)` -> (11, 1)"""
    match = re.search(r"version (\d+)\.(\d+)", text)
    return (int(match.group(1)), int(match.group(2))) if match else None


def probe(argv: tuple[str, ...], env: tuple[tuple[str, str], ...] = ()) -> Qemu:
    """Checks a QEMU: it runs, is new enough and has the device."""
    name = argv[-3] if len(argv) > 3 else argv[0]
    full = {**os.environ, **dict(env)}
    try:
        done = subprocess.run([*argv, "--version"], capture_output=True, text=True, timeout=60,
                              check=False, env=full)
    except (OSError, subprocess.TimeoutExpired) as error:
        words = error.strerror if isinstance(error, OSError) else "no answer within 60 s"
        raise LabError(f"cannot run QEMU {name}: {words}") from error
    version = parse_version(done.stdout)
    if version is None:
        words = (done.stdout or done.stderr).strip().partition("\n")[0]
        raise LabError(f"{name} is no QEMU: '{words[:100]}'")
    text = f"{version[0]}.{version[1]}"
    if version < MINIMUM:
        raise LabError(f"QEMU {name} is version {text}; vfio-user-pci needs "
                       f"{MINIMUM[0]}.{MINIMUM[1]} or newer")
    done = subprocess.run([*argv, "-device", "help"], capture_output=True, text=True, timeout=60,
                          check=False, env=full)
    if '"vfio-user-pci"' not in done.stdout:
        raise LabError(f"QEMU {name} (version {text}) was built without vfio-user-pci")
    return Qemu(argv, text, env)


def _prune(root: Path) -> None:
    """Keeps what the emulator needs of the packages."""
    keep = [root / name for name in KEPT]
    for path in sorted(root.rglob("*"), reverse=True):
        if any(path == one or one in path.parents or path in one.parents for one in keep):
            continue
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()
    for path in (root / "usr/share/qemu").iterdir():
        if path.suffix in (".img", ".lid", ".elf", ".dtb") or "openbios" in path.name:
            path.unlink()


def extracted_qemu() -> Qemu:
    """The one of Debian's packages, extracted into the cache first when it is not there."""
    final = cache_dir() / f"qemu-{digest('qemu-1', SUITE, ' '.join(KEPT))}"
    if not final.exists():
        with cache_lock("qemu"):
            if not final.exists():
                host.ensure_packages(*host.for_trees({"mmdebstrap": "mmdebstrap"}))
                host.check_space(cache_dir(), SPACE_NEEDED, "QEMU")
                log = logs_dir() / "qemu.log"
                log.unlink(missing_ok=True)
                with new_entry(final) as temp, Step(f"fetching QEMU from {SUITE}-backports "
                                                    f"(log: {log})"):
                    tar = temp / "qemu.tar"
                    debian.bootstrap(tar, SUITE, ["qemu-system-x86", "seabios"], log,
                                     variant="extract", backports=True)
                    run_logged(["tar", "-xf", os.fspath(tar), "-C", os.fspath(temp),
                                "--no-same-owner", "--exclude=./dev"], log, "unpacking QEMU")
                    tar.unlink()
                    _prune(temp)
    libs = final / "usr/lib/x86_64-linux-gnu"
    loader = next((path for path in (final / "usr/lib64/ld-linux-x86-64.so.2",
                                     libs / "ld-linux-x86-64.so.2") if path.exists()), None)
    if loader is None:
        raise LabError(f"the cached QEMU in {final} is damaged; remove that directory")
    argv = (os.fspath(loader), "--library-path", os.fspath(libs),
            os.fspath(final / "usr/bin/qemu-system-x86_64"),
            "-L", os.fspath(final / "usr/share/seabios"), "-L", os.fspath(final / "usr/share/qemu"))
    return Qemu(argv, "cached", (("QEMU_MODULE_DIR", os.fspath(libs / "qemu")),),
                argv.index(os.fspath(final / "usr/bin/qemu-system-x86_64")))


def find_qemu() -> Qemu:
    """OPENMANA_QEMU, or the host's own when it is new enough, or the one in the cache."""
    chosen = os.environ.get("OPENMANA_QEMU")
    if chosen:
        return probe((chosen,))
    installed = find_program("qemu-system-x86_64")
    if installed:
        try:
            return probe((installed,))
        except LabError:
            pass
    return extracted_qemu()


@dataclass(frozen=True)
class Machine:
    """What one guest's QEMU is made of."""

    name: str
    kernel: Path
    initrd: Path
    root: Path
    agent_socket: Path
    qmp_socket: Path
    accel: str = "tcg"
    cpus: int = 1
    memory: int = 1024
    nics: tuple[Path, ...] = ()
    # Netdev specifications (JSON values of -netdev) and MAC addresses of virtio NICs.
    virtio: tuple[tuple[dict[str, object], str], ...] = ()
    append: str = ""
    shared_memory: bool = True
    disk: Path | None = None
    before: tuple[str, ...] = ()  # words that begin the command line
    root_ports: int = 0
    huge: bool = False  # its memory is in huge pages
    incoming: bool = False  # it waits for a guest that moves
    # Words that say its memory and its devices, in the place of our own.
    given: tuple[str, ...] = ()


def kernel_command_line(machine: Machine) -> str:
    """Kernel options of a guest. A panic resets at once; the lab sees its text on the console."""
    words = ["console=ttyS0", "quiet", "loglevel=5", "oops=panic", "panic=-1", "panic_on_warn=0",
             "mitigations=off", "net.ifnames=0", "log_buf_len=2M",
             "rcupdate.rcu_cpu_stall_timeout=120", "nowatchdog", "audit=0", "apparmor=0",
             "selinux=0", "random.trust_cpu=on",
             "no_timer_check", "tsc=reliable", f"manalab.name={machine.name}"]
    # Under TCG the counter is the host's. A guest that measures it while the host is busy may
    # find a fifth of that, and its clock runs five times too fast.
    khz = host.tsc_khz(Path("/proc/cpuinfo").read_text()) if machine.accel == "tcg" else None
    if khz is not None:
        words.append(f"tsc_early_khz={khz}")
    if machine.append:
        words.append(machine.append)
    return " ".join(words)


def _own_words(machine: Machine) -> list[str]:
    """Memory, which NICs can reach if it is shared."""
    words = ["-machine", f"q35,{'memory-backend=ram,' * machine.shared_memory}i8042=off,vmport=off,"
             "hpet=off", "-m", f"{machine.memory}M"]
    if machine.shared_memory:
        words += ["-object", f"memory-backend-memfd,id=ram,size={machine.memory}M,share=on"
                  f"{',hugetlb=on' * machine.huge}"]
    return words


def command_line(qemu: Qemu, machine: Machine) -> list[str]:
    """QEMU's arguments. The console is its stdout, which the lab reads."""
    cpu = "host" if machine.accel == "kvm" else "max,la57=off"
    accel = "tcg,thread=multi" if machine.accel == "tcg" else machine.accel
    argv = [
        *machine.before, *qemu.argv,
        "-name", machine.name,
        "-nodefaults", "-no-user-config", "-display", "none",
        *(machine.given or _own_words(machine)),
        "-accel", accel,
        "-cpu", cpu,
        "-smp", str(machine.cpus),
        "-chardev", "stdio,id=console,signal=off",
        "-serial", "chardev:console",
        "-qmp", f"unix:{machine.qmp_socket},server=on,wait=off",
        "-chardev", f"socket,id=agent,path={machine.agent_socket},server=on,wait=off",
        "-device", "virtio-serial-pci,addr=2",
        "-device", "virtserialport,chardev=agent,name=manalab",
        "-blockdev", json.dumps({"driver": "raw", "node-name": "root", "read-only": True,
                                 "file": {"driver": "file",
                                          "filename": os.fspath(machine.root),
                                          "read-only": True}}),
        "-device", "virtio-blk-pci,drive=root,addr=3",
        "-device", "virtio-rng-pci,addr=4",
        "-kernel", os.fspath(machine.kernel),
        "-initrd", os.fspath(machine.initrd),
        "-append", kernel_command_line(machine),
    ]
    if machine.disk is not None:
        argv += ["-blockdev", json.dumps({"driver": "raw", "node-name": "disk",
                                          "file": {"driver": "file",
                                                   "filename": os.fspath(machine.disk)}}),
                 "-device", "virtio-blk-pci,drive=disk,addr=5"]
    slot = 8
    for number, path in enumerate(machine.nics):
        device = {"driver": "vfio-user-pci", "id": f"nic{number}", "addr": f"{slot:x}",
                  "socket": {"type": "unix", "path": os.fspath(path)}}
        argv += ["-device", json.dumps(device)]
        slot += 1
    for number, (netdev, mac) in enumerate(machine.virtio):
        argv += ["-netdev", json.dumps({**netdev, "id": f"net{number}"}),
                 "-device", f"virtio-net-pci,netdev=net{number},mac={mac},addr={slot:x},romfile="]
        slot += 1
    for number in range(machine.root_ports):
        argv += ["-device", f"pcie-root-port,id=port{number},chassis={number + 1},"
                 f"pref64-reserve=32M,mem-reserve=32M,addr={slot:x}"]
        slot += 1
    if machine.incoming:
        argv += ["-incoming", "defer"]
    if slot > 31:
        raise LabError(f"{machine.name}: too many NICs and ports (24 at most)")
    return argv


def free_memory() -> int:
    """Available memory of the host in bytes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


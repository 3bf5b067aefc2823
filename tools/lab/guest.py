# SPDX-License-Identifier: Apache-2.0
"""One guest: its QEMU, its console, its command channel."""

from __future__ import annotations

import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .channel import REBOOT, Channel, Command
from .emulator import Arrival, Move, ask, connect, launch, words_of, write
from .errors import CommandFailed, GuestDied, LabError
from .image import ETHERNET_ONLY, Image, digest
from .paths import cache_dir
from .proc import end_group, kill_group, tail
from .qemu import Machine, Qemu

BOOT_TIMEOUT = 180.0
# Kernel messages that mean the end; stalls and lockups under load on a slow host do not.
# nor do the reports of a debug kernel, which says all it finds before the run fails.
FATAL = re.compile(r"Kernel panic|Oops:|BUG: (?!soft lockup|workqueue lockup|scheduling|K[AC]SAN: |"
                   r"sleeping function|invalid wait context|key |MAX_LOCK)"
                   r"|kernel BUG at|general protection fault")
BASE_MODULES = ("mana", "mana_ib", "ib_uverbs", "rdma_ucm")
# A kernel patches its own code behind a breakpoint. TCG now and then still runs into that when the
# kernel has done with it, and knows it no more.
OWN_PATCH = re.compile(r"Oops: int3: .*?Modules linked in:\s*\n", re.DOTALL)
CONSOLE_GRACE = 2.0
# Debian's kernel, or one of those with the kernel's checkers: CPUs and MiB of memory of a guest
# that nothing else is said of, and by how much each time-out is longer. A data race takes two CPUs.
CPUS = {"stock": 1, "debug": 1, "kcsan": 2}
MEMORY = {"stock": 1024, "debug": 3072, "kcsan": 1536}
PATIENCE = {"stock": 1.0, "debug": 6.0, "kcsan": 6.0}


@dataclass(frozen=True)
class GuestSpec:
    """What a guest is: its suite, and what it has. `nics` and `virtio` None: the lab's default.
    `uplinks` are virtio NICs on manad's switch, by QEMU's stream netdev. `driver` and
    `provider`: "stock" or "ours"; `kernel`: "stock", "debug" or "kcsan". `disk`: MiB of an empty
    disk, /dev/vdb, that outlives the guest and is there for the next one in its place. `headers`:
    modules for Debian's kernel can be built in it, with DKMS. `systemd`: it is process 1, with
    udev; else the guest has neither, and starts faster. `network`: that of manad which its NICs
    and uplinks are in; the addresses of guests count within it. `host`: which of two hosts it is
    on, if the lab has these. `root_ports`: free PCI Express ports, `port0` and so on for QMP, which
    devices can be plugged into. `huge`: its memory is in huge pages, which the host must have."""

    suite: str = "trixie"
    cpus: int = 1
    memory: int = 1024
    nics: int | None = None
    virtio: int | None = None
    append: str = ""
    driver: str = "stock"
    provider: str = "stock"
    uplinks: int = 0
    kernel: str = "stock"
    disk: int = 0
    headers: bool = False
    systemd: bool = False
    network: str = "default"
    host: int | None = None
    root_ports: int = 0
    huge: bool = False

    @property
    def command_line(self) -> str:
        """What it adds to the kernel's."""
        return f"{'manalab.init=systemd ' if self.systemd else ''}{self.append}"

    @property
    def patience(self) -> float:
        """By how much time-outs are longer than for a guest with Debian's kernel."""
        return PATIENCE[self.kernel]


@dataclass(frozen=True)
class Result:
    """How a command in a guest ended. A negative status is the signal that ended it."""

    stdout: str
    stderr: str
    status: int


class Guest:
    """A running guest. Every wait ends at once when the guest dies, and says why it died."""

    def __init__(self, name: str, number: int, spec: GuestSpec, image: Image, machine: Machine,
                 macs: list[str], virtio_macs: list[str], log_dir: Path,
                 host: int | None = None) -> None:
        self.name = name
        self.number = number
        self.host = number if host is None else host  # its number in its network
        self.spec = spec
        self.image = image
        self.machine = machine
        self.macs = macs
        self.virtio_macs = virtio_macs
        self.console_log = log_dir / f"{name}.console"
        self.qemu_log = log_dir / f"{name}.qemu"
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._lock = threading.Lock()
        self._death: LabError | None = None
        self._stopping = False
        self._panic: str | None = None
        self._console_thread: threading.Thread | None = None
        self._watch_thread: threading.Thread | None = None
        self._devices: dict[str, str] | None = None
        # Called before an orderly reboot, which ends all that the kernel knows.
        self.before_reboot: Callable[[], None] | None = None

    # -- life

    def start(self, qemu: Qemu) -> None:
        """Starts QEMU and connects to the agent's port; `wait_ready` waits for the guest."""
        self._process = launch(qemu, self.machine, self.qemu_log)
        self._console_thread = self._console_of(self._process)
        sock = self._connect(self.machine.agent_socket)
        self._channel = Channel(sock, self.name, str(self.console_log), self._channel_closed,
                                self.spec.patience)
        self._watch_thread = self._watch_of(self._process)

    def _console_of(self, process: subprocess.Popen[bytes]) -> threading.Thread:
        thread = threading.Thread(target=self._read_console, args=(process,), daemon=True,
                                  name=f"console-{self.name}")
        thread.start()
        return thread

    def _watch_of(self, process: subprocess.Popen[bytes]) -> threading.Thread:
        thread = threading.Thread(target=self._watch, args=(process,), daemon=True,
                                  name=f"watch-{self.name}")
        thread.start()
        return thread

    def _connect(self, path: Path) -> socket.socket:
        assert self._process is not None
        return connect(self._process, path, self.name, self.qemu_log)

    def move(self, qemu: Qemu, machine: Machine, how: Move = Move()) -> dict[str, Any]:
        """Moves the running guest to a new QEMU, whose NICs and sockets are those of `machine`;
        returns what the old one says of it (QMP's query-migrate). Commands go on. When it fails
        the guest stays where it is, and the new QEMU ends."""
        before = self._process
        assert before is not None
        with self.channel.held(how.timeout), \
                Arrival(qemu, machine, self.name, self.qemu_log) as new:
            said = new.receive(self.qmp, how)
            self._settle(machine, new, before)
        return said

    def write(self, path: Path, how: Move = Move()) -> dict[str, Any]:
        """Writes the guest, which was stopped (`qmp`), to a file; what QEMU says of it. The caller
        holds its channel."""
        return write(self.qmp, self.name, path, how)

    def read(self, qemu: Qemu, machine: Machine, path: Path, how: Move = Move()) -> None:
        """The guest goes on in a new QEMU, which reads it from the file, and still stands still.
        The caller holds its channel."""
        before = self._process
        assert before is not None
        with Arrival(qemu, machine, self.name, self.qemu_log) as new:
            new.read(path, how)
            self._settle(machine, new, before)

    def _settle(self, machine: Machine, new: Arrival, before: subprocess.Popen[bytes]) -> None:
        """The guest is in a new QEMU. Console and channel first give what the old ones still
        have."""
        with self._lock:
            self.machine, self._process, self.qemu_log = machine, new.process, new.log
        self.channel.follow(new.agent)
        new.stays()
        end_group(before, grace=2.0)
        assert self._console_thread is not None
        self._console_thread.join(timeout=5)
        self._console_thread = self._console_of(new.process)
        self._watch_thread = self._watch_of(new.process)
        if before.stdout is not None:
            before.stdout.close()

    def _channel_closed(self) -> None:
        """QEMU ends a moment after its sockets close; the watcher then says how it ended."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and self._death is None and not self._stopping:
            time.sleep(0.02)

    def _read_console(self, process: subprocess.Popen[bytes]) -> None:
        """Keeps the console, and looks for the kernel's last words."""
        assert process.stdout is not None
        line = b""
        with self.console_log.open("ab") as log:
            while True:
                data = process.stdout.read1(65536)
                if not data:
                    return
                log.write(data)
                log.flush()
                *lines, line = (line + data).split(b"\n")
                for one in lines:
                    text = one.decode(errors="replace").strip()
                    if FATAL.search(text) and (self._panic is None or "Kernel panic" in text):
                        first = self._panic is None
                        self._panic = re.sub(r"^\[ *[\d.]+\]\s*", "", text)
                        if first:
                            threading.Thread(target=self._end_after_panic, daemon=True).start()

    def _end_after_panic(self) -> None:
        """Gives the console time for the rest of the report, then ends the guest. (The kernel
        resets at once after a panic; a guest that comes up again would hide it.)"""
        deadline = time.monotonic() + CONSOLE_GRACE
        while time.monotonic() < deadline and "Kernel panic" not in (self._panic or ""):
            time.sleep(0.05)
        time.sleep(0.3)
        self._die(GuestDied(f"{self.name}: the guest panicked: {self._panic}", self.console_log))
        if self._process is not None:
            end_group(self._process, grace=0.2)

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        status = process.wait()
        with self._lock:
            if process is not self._process:
                return  # the guest has moved
        if self._stopping:
            self._die(GuestDied(f"{self.name}: the guest was stopped"))
            return
        if self._console_thread is not None:
            self._console_thread.join(timeout=5)
        if self._panic is not None:
            self._die(GuestDied(f"{self.name}: the guest panicked: {self._panic}",
                                self.console_log))
        elif status == 0:
            self._die(GuestDied(f"{self.name}: the guest powered off: "
                                f"{tail(self.console_log)[:160]}", self.console_log))
        else:
            how = f"status {status}" if status > 0 else f"signal {-status}"
            self._die(GuestDied(f"{self.name}: QEMU ended with {how}: {words_of(self.qemu_log)}",
                                self.qemu_log))

    def _die(self, error: LabError) -> None:
        with self._lock:
            if self._death is None:
                self._death = error
            error = self._death
        if self._channel is not None:
            self._channel.fail(error)

    def wait_ready(self, timeout: float = BOOT_TIMEOUT, modules: bool = True) -> None:
        """Waits until the agent answers, then loads the drivers."""
        self.channel.wait_boot(timeout)
        if modules:
            self.load_modules()

    def load_modules(self) -> None:
        """Loads the drivers, MANA's first, so that its interfaces are eth0 and on."""
        names = [name for name in BASE_MODULES
                 if name != "mana_ib" or self.spec.suite not in ETHERNET_ONLY]
        names += ["virtio_net"] if self.virtio_macs else []
        self._devices = None
        self.run(["modprobe", "-a", *names], timeout=120)

    @property
    def channel(self) -> Channel:
        """The command channel."""
        if self._channel is None:
            raise LabError(f"{self.name}: the guest is not running")
        return self._channel

    @property
    def alive(self) -> bool:
        """Whether its QEMU runs."""
        return self._process is not None and self._process.poll() is None and self._death is None

    @property
    def pid(self) -> int:
        """Process id of QEMU."""
        if self._process is None:
            raise LabError(f"{self.name}: the guest is not running")
        return self._process.pid

    def reboot(self, timeout: float = BOOT_TIMEOUT, modules: bool = True) -> None:
        """Reboots the guest by reboot(2) and waits until it is up again. What was set up in it
        (addresses, files) is gone."""
        if self.before_reboot is not None:
            self.before_reboot()
        old = self.channel.boot
        self.channel.send(REBOOT, 0)
        self.channel.wait_boot(timeout, old)
        if modules:
            self.load_modules()

    def fell_over_own_patch(self) -> bool:
        """Whether it panicked at a breakpoint that its kernel had set, without any module."""
        return self._panic is not None and OWN_PATCH.search(self.console()) is not None

    def kill(self) -> None:
        """Ends QEMU at once, as a crash of the VM would."""
        self._stopping = True
        if self._process is not None:
            kill_group(self._process)
        self._die(GuestDied(f"{self.name}: the guest was killed"))

    def stop(self) -> None:
        """Ends QEMU and the channel."""
        self._stopping = True
        if self._process is not None:
            end_group(self._process, grace=2.0)
        if self._channel is not None:
            self._channel.close()
        for thread in (self._watch_thread, self._console_thread):
            if thread is not None:
                thread.join(timeout=5)
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()

    def qmp(self, command: str, timeout: float = 10.0, **arguments: object) -> object:
        """One QMP command, such as `stop` and `cont`; returns its answer."""
        with self._connect(self.machine.qmp_socket) as sock:
            return ask(sock, self.name, self.qemu_log, command, arguments, timeout)

    # -- commands

    def spawn(self, command: str | list[str], *, env: dict[str, str] | None = None,
              cwd: str | None = None, pty: tuple[int, int] | None = None, stdin: bool = False,
              on_output: Callable[[int, bytes], None] | None = None) -> Command:
        """Starts a command; a string goes to `sh -c`. Its stdin is empty unless asked for."""
        argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
        started = self.channel.start(argv, env=env, cwd=cwd, pty=pty, on_output=on_output)
        if not stdin and pty is None:
            started.close_stdin()
        return started

    def run(self, command: str | list[str], timeout: float = 60.0, check: bool = True,
            input: bytes | str | None = None, env: dict[str, str] | None = None,
            cwd: str | None = None) -> Result:
        """Runs a command to its end. With `check`, a non-zero status is CommandFailed."""
        started = self.spawn(command, env=env, cwd=cwd, stdin=input is not None)
        if input is not None:
            started.write(input.encode() if isinstance(input, str) else input)
            started.close_stdin()
        status = started.wait(timeout)
        result = Result(started.stdout, started.stderr, status)
        if check and status != 0:
            words = (result.stderr or result.stdout).strip()[-400:]
            raise CommandFailed(f"{self.name}: '{started.text}' ended with status {status}: "
                                f"{words}", result)
        return result

    def put(self, data: bytes | str | Path, path: str, mode: int = 0o644) -> None:
        """Makes a file in the guest: bytes, text, or the content of a host file. A program there
        that still runs goes on with what it was."""
        content = data.read_bytes() if isinstance(data, Path) else data
        self.run(["sh", "-c", 'mkdir -p "$(dirname "$1")" && cat >"$1.new" && '
                  'chmod "$2" "$1.new" && mv -fT "$1.new" "$1"', "put", path, f"{mode:o}"],
                 input=content)

    def get(self, path: str) -> bytes:
        """Reads a file of the guest."""
        started = self.spawn(["cat", "--", path])
        if started.wait(60) != 0:
            raise LabError(f"{self.name}: {started.stderr.strip()}")
        return started.stdout_bytes

    def compile(self, source: Path, libs: tuple[str, ...] = ("-libverbs",),
                flags: tuple[str, ...] = ("-O2", "-Wall"), path: str | None = None) -> str:
        """Puts a C program into the guest, compiled there the first time, then taken from the
        cache; returns its path in the guest."""
        target = path or f"/root/{source.stem}"
        key = digest("program-1", self.image.key, source, " ".join(libs), " ".join(flags))
        cached = cache_dir() / "programs" / f"{source.stem}-{key}"
        if cached.exists():
            self.put(cached, target, 0o755)
            return target
        self.put(source, f"/tmp/{source.name}")
        self.run(["gcc", *flags, "-o", target, f"/tmp/{source.name}", *libs], timeout=180)
        cached.parent.mkdir(exist_ok=True)
        part = cached.with_suffix(f".{self.name}-{time.monotonic_ns()}")
        part.write_bytes(self.get(target))
        part.rename(cached)
        return target

    # -- what is in the guest

    def dmesg(self) -> str:
        """The kernel's log."""
        return self.run(["dmesg"], timeout=30).stdout

    def console(self) -> str:
        """What the console showed so far."""
        try:
            return self.console_log.read_text(errors="replace")
        except OSError:
            return ""

    def interface(self, nic: int = 0) -> str:
        """The network interface of a MANA NIC, found by its MAC address."""
        return self._by_mac(self.macs[nic], f"NIC {nic}")

    def virtio_interface(self, number: int = 0) -> str:
        """The network interface of a virtio NIC."""
        return self._by_mac(self.virtio_macs[number], f"virtio NIC {number}")

    def uplink_interface(self, number: int = 0) -> str:
        """The network interface of a virtio NIC on manad's switch."""
        mac = self.virtio_macs[len(self.virtio_macs) - self.spec.uplinks + number]
        return self._by_mac(mac, f"uplink {number}")

    def _by_mac(self, mac: str, what: str) -> str:
        if self._devices is None or mac not in self._devices:
            text = self.run("grep -H . /sys/class/net/*/address").stdout
            self._devices = {}
            for line in text.splitlines():
                path, _, address = line.partition(":")
                # VLAN and other upper devices share the address; the first is the NIC's own
                self._devices.setdefault(address.strip(), path.split("/")[4])
        if mac not in self._devices:
            raise LabError(f"{self.name}: no interface with address {mac} ({what})",
                           self.console_log)
        return self._devices[mac]

    def rdma_device(self, nic: int = 0) -> str:
        """The RDMA device of a MANA NIC: mana_0 and on, or as udev names it. From 7.2 on there is
        another one of raw packets, which has no GIDs."""
        interface = self.interface(nic)
        for where in ("cat $d/ports/1/gid_attrs/ndevs/0", "ls $d/device/net"):
            text = self.run("for d in /sys/class/infiniband/*; do "
                            f"echo $(basename $d) $({where} 2>/dev/null); done").stdout
            for line in text.splitlines():
                name, *interfaces = line.split()
                if interface in interfaces:
                    return name
        raise LabError(f"{self.name}: {interface} has no RDMA device", self.console_log)

    def ip(self, nic: int = 0, version: int = 4) -> str:
        """The address that `Lab.configure_network` gives to a NIC."""
        if version == 6:
            return f"fd00:{nic:x}::{self.host + 1:x}"
        return f"10.0.{nic}.{self.host + 1}"

    def virtio_ip(self, number: int = 0) -> str:
        """The address that `Lab.configure_network` gives to a virtio NIC."""
        return f"10.1.{number}.{self.number + 1}"

    def uplink_ip(self, number: int = 0, version: int = 4) -> str:
        """The address that `Lab.configure_network` gives to a virtio NIC on manad's switch: in the
        network of the MANA NICs with that number."""
        if version == 6:
            return f"fd00:{number:x}::{self.host + 101:x}"
        return f"10.0.{number}.{self.host + 101}"

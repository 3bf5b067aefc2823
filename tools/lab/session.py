# SPDX-License-Identifier: Apache-2.0
"""A lab: one manad, some guests, their networks; a context manager that owns them all."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from .debug_kernel import kernel_image
from .emulator import Move
from .errors import GuestDied, LabError
from .guest import BOOT_TIMEOUT, Guest, GuestSpec
from .hosts import INTERFACE, Hosts
from .image import get_image
from .janitor import RunDirectory, new_log_dir
from .kvm import choose_accel
from .manad import Manad, Nic
from .ours import guest_initrd
from .patched_qemu import patched_qemu
from .progress import Step, say
from .qemu import Machine, Qemu, find_qemu, free_memory
from .relay import PathFaults, Relay
from .rights import User, how_it_ended

MAX_NICS = 16
UDP_PORT = 4000  # of the first uplink between hosts
VNI = 5
MAX_VIRTIO = 8
MAX_DISK = 1 << 20  # MiB


def mac_address(kind: int, guest: int, number: int) -> str:
    """A locally administered address: kind 0 for MANA NICs, 1 for virtio ones, 2 for virtio ones
    on manad's switch."""
    return f"02:4d:41:{kind:02x}:{guest:02x}:{number:02x}"


def in_network(name: str) -> str:
    """What says so in manad's --nic and --uplink; nothing for the network of what names none."""
    return "" if name == "default" else f"network={name}"


def connected(path: Path) -> dict[str, object]:
    """A netdev that connects to a Unix socket, again and again."""
    return {"type": "stream", "server": False, "reconnect-ms": 200,
            "addr": {"type": "unix", "path": str(path)}}


def tapped(name: str) -> dict[str, object]:
    """A netdev that is a TAP device, whose frames are whole."""
    return {"type": "tap", "ifname": name, "script": "no", "downscript": "no", "vnet_hdr": False}


def free_udp_ports(count: int) -> list[int]:
    """UDP ports of the loopback interface that nobody uses."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Lab:
    """Guests with NICs.

        with Lab([GuestSpec("trixie"), GuestSpec("forky")], nics=1) as lab:
            lab.configure_network()
            print(lab.guests[0].run("ping -c 1 " + lab.guests[1].ip()).stdout)

    `nics` and `virtio` are per guest; a spec may say otherwise. virtio NICs join guests 0 and 1,
    2 and 3, and so on. `mtu` is set on the guests' interfaces by `configure_network`; `nic_options`
    (such as "mtu=1500") go to manad's --nic; without `ext` the NICs hide the extensions. `nics=0`
    needs no manad. With `split` each guest has a manad of its own, joined to the next one's by a
    UDP uplink; with `wire_mtu` there are two, each in a network namespace, as on two hosts, and
    their wire has that MTU; with `path` the way between two is as it says. With `outside` besides
    `wire_mtu` the second guest's uplinks are on a bridge, on the second host, with its end of the
    wire ("xdp": the first manad has the other end by AF_XDP) or with a VXLAN device of its kernel
    ("vxlan": the first manad has the other end of the tunnel); "taps": the uplinks of both are,
    each on its host, and there is no manad. `qemu`: "stock", or "patched"
    (patched_qemu.py). With `manad_user` each manad is started as its package does it, and what it
    writes is in `lab.output_dir`; `manad_before` are words that begin its command line.
    Logs are kept when the block ends by an exception (or with `keep_logs`), in `lab.log_dir`.
    """

    def __init__(self, guests: Sequence[GuestSpec] = (GuestSpec(), GuestSpec()), *, nics: int = 1,
                 virtio: int = 0, mtu: int | None = None, manad_args: Sequence[str] = (),
                 nic_options: str = "", ext: bool = True, name: str = "lab",
                 boot_timeout: float = BOOT_TIMEOUT, accel: str | None = None,
                 keep_logs: bool = False, manad: Path | None = None,
                 shared_memory: bool = True, modules: bool = True, split: bool = False,
                 wire_mtu: int | None = None, path: PathFaults | None = None, outside: str = "",
                 qemu: str = "stock", manad_user: User | None = None,
                 manad_before: Sequence[str] = ()) -> None:
        self.specs = list(guests)
        self._nics = nics
        self._virtio = virtio
        self._mtu = mtu
        self._manad_args = tuple(manad_args)
        self._nic_options = ",".join(filter(None, (nic_options, "" if ext else "ext=off")))
        self.ext = ext
        self._name = name
        self._boot_timeout = boot_timeout
        self._accel = accel
        self._keep_logs = keep_logs
        self._manad_binary = manad
        self._manad_user = manad_user
        self._qemu_kind = qemu
        self._manad_before = tuple(manad_before)
        self._shared_memory = shared_memory
        self._modules = modules
        self._split = split or wire_mtu is not None or path is not None
        self._path = path
        self.relays: list[Relay] = []
        self._outside = outside
        self.hosts = None if wire_mtu is None else Hosts(wire_mtu)
        self._qemu: Qemu | None = None
        self._run: RunDirectory | None = None
        self._failed = False
        self._moves = 0
        self._log_dir: Path | None = None
        self.guests: list[Guest] = []
        self.manads: list[Manad] = []
        self._check()

    def _check(self) -> None:
        if not self.specs:
            raise LabError("a lab needs at least one guest")
        for spec in self.specs:
            if not 1 <= spec.cpus <= 64:
                raise LabError(f"a guest cannot have {spec.cpus} CPUs (1 to 64)")
            if spec.headers and spec.kernel != "stock":
                raise LabError("only a guest with Debian's own kernel can have its headers")
            if not 256 <= spec.memory <= 1 << 20:
                raise LabError(f"a guest cannot have {spec.memory} MiB of memory (256 or more)")
            count = self._nics if spec.nics is None else spec.nics
            if not 0 <= count <= MAX_NICS:
                raise LabError(f"a guest cannot have {count} NICs (0 to {MAX_NICS})")
            wires = self._virtio if spec.virtio is None else spec.virtio
            if not 0 <= wires <= MAX_VIRTIO:
                raise LabError(f"a guest cannot have {wires} virtio NICs (0 to {MAX_VIRTIO})")
            if not 0 <= spec.disk <= MAX_DISK:
                raise LabError(f"a guest cannot have a disk of {spec.disk} MiB (0 to {MAX_DISK})")
        if self.hosts is not None and set(map(self._place, range(len(self.specs)))) != {0, 1}:
            raise LabError("a wire joins two hosts, each of which needs a guest")
        if self._outside not in ("", "xdp", "vxlan", "taps"):
            raise LabError(f"no way to the outside is called {self._outside}")
        if self._outside and self.hosts is None:
            raise LabError("what is outside is on the wire between two hosts")
        if self.hosts is not None and self._path is not None:
            raise LabError("two hosts have a wire, not a path through the loopback interface")
        if self._mtu is not None and not 1280 <= self._mtu <= 9000:
            raise LabError(f"MTU {self._mtu} is out of range (1280 to 9000)")

    @property
    def manad(self) -> Manad | None:
        """The (first) manad, None without NICs."""
        return self.manads[0] if self.manads else None

    def manad_of(self, guest: int) -> Manad:
        """The manad that a guest's NICs belong to."""
        if not self.manads:
            raise LabError("this lab has no NICs, so no manad")
        return self.manads[self._place(guest)]

    def _place(self, guest: int) -> int:
        """The number of the manad that a guest's NICs belong to."""
        host = self.specs[guest].host
        if host is not None:
            return host
        return guest if self._split else 0

    @property
    def qemu(self) -> Qemu:
        """That its guests run in."""
        if self._qemu is None:
            raise LabError("the lab is not running")
        return self._qemu

    @property
    def log_dir(self) -> Path:
        """Where the logs of this lab are."""
        if self._log_dir is None:
            raise LabError("the lab is not running")
        return self._log_dir

    @property
    def output_dir(self) -> Path:
        """Where manad can write files."""
        return self.log_dir if self._manad_user is None else self.run_dir / "manad" / "files"

    @property
    def run_dir(self) -> Path:
        """Where the sockets of this lab are."""
        if self._run is None:
            raise LabError("the lab is not running")
        return self._run.path

    # -- life

    def __enter__(self) -> Lab:
        try:
            self.start()
        except BaseException:
            self._failed = True
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._failed = kind is not None and not issubclass(kind, (KeyboardInterrupt, SystemExit))
        self.stop()

    def start(self) -> None:
        """Makes what is missing, starts manad and the guests, waits until they are up."""
        kinds = dict.fromkeys((spec.suite, spec.kernel, spec.headers) for spec in self.specs)
        known = {kind: kernel_image(*kind) for kind in kinds}
        images = {spec: known[spec.suite, spec.kernel, spec.headers] for spec in self.specs}
        initrds = {spec: guest_initrd(images[spec], spec.driver, spec.provider)
                   for spec in self.specs}
        need = sum(spec.memory for spec in self.specs) << 20
        if need > free_memory():
            raise LabError(f"not enough memory: the guests have {need >> 20} MiB, "
                           f"the host has {free_memory() >> 20} MiB available")
        qemu = patched_qemu() if self._qemu_kind == "patched" else find_qemu()
        accel = self._accel or choose_accel(qemu, get_image(self.specs[0].suite))
        self._log_dir = new_log_dir(self._name)
        user = self._manad_user
        self._run = RunDirectory(passable=user is not None)
        run = self._run.path
        served = run  # where manad makes sockets
        if user is not None:
            served = user.folder(run / "manad", 0o711)
            user.folder(served / "files", 0o700)
        if self.hosts is not None:
            self.hosts.start()
        places = 1 + max(map(self._place, range(len(self.specs))))
        nics: list[list[Nic]] = [[] for _ in range(places)]
        args = [list(self._manad_args) for _ in range(places)]
        for number, spec in enumerate(self.specs):
            name = f"g{number}"
            host = sum(earlier.network == spec.network for earlier in self.specs[:number])
            mine = [Nic(f"{name}n{i}", served / f"{name}n{i}.sock", mac_address(0, host, i),
                        ",".join(filter(None, (self._nic_options, in_network(spec.network)))))
                    for i in range(self._nics if spec.nics is None else spec.nics)]
            place = self._place(number)
            nics[place] += mine
            wires = self._virtio if spec.virtio is None else spec.virtio
            virtio_macs = [mac_address(1, number, i) for i in range(wires)]
            virtio = [(self._wire(number, i), mac) for i, mac in enumerate(virtio_macs)]
            for i in range(spec.uplinks):
                virtio_macs.append(mac_address(2, host, i))
                if self._outside:
                    virtio.append((tapped(f"{name}u{i}"), virtio_macs[-1]))
                    continue
                path = served / f"{name}u{i}.sock"
                args[place] += ["--uplink", ",".join(filter(None, (
                    f"stream={path},listen", in_network(spec.network))))]
                virtio.append((connected(path), virtio_macs[-1]))
            disk = None
            if spec.disk:
                disk = run / f"{name}.disk"
                with disk.open("wb") as file:
                    file.truncate(spec.disk << 20)
            image = images[spec]
            machine = Machine(
                name=name, kernel=image.kernel, initrd=initrds[spec], root=image.root,
                agent_socket=run / f"{name}.agent", qmp_socket=run / f"{name}.qmp", accel=accel,
                cpus=spec.cpus, memory=spec.memory, nics=tuple(nic.socket for nic in mine),
                virtio=tuple(virtio),
                append=f"{image.append} {spec.command_line}".strip(),
                shared_memory=self._shared_memory, disk=disk, root_ports=spec.root_ports,
                huge=spec.huge,
                before=self.hosts.words(number) if self._outside and self.hosts is not None else ())
            self.guests.append(Guest(name, number, spec, image, machine,
                                     [nic.mac for nic in mine], virtio_macs, self._log_dir,
                                     host))
        if self._outside and self.hosts is not None:
            if self._outside != "taps":
                args[0] += ["--uplink", self._outside_uplink(self.hosts)]
            port = self.hosts.vxlan(1, VNI) if self._outside == "vxlan" else INTERFACE
            for host in (0, 1) if self._outside == "taps" else (1,):
                self.hosts.bridge(host, port, *(f"g{host}u{i}"
                                                for i in range(self.specs[host].uplinks)))
        for before in () if self._outside else range(len(nics) - 1):
            networks = dict.fromkeys(spec.network for spec in self.specs)
            for number, network in enumerate(networks):
                for own, (local, remote) in zip((before, before + 1), self._udp_ends(number)):
                    args[own] += ["--uplink", ",".join(filter(None, (
                        f"udp=local={local},remote={remote}", in_network(network))))]
        for index, mine in enumerate(nics):
            if not mine and "--uplink" not in args[index]:
                continue
            suffix = str(index) if places > 1 else ""
            say(f"starting manad with {len(mine)} NICs")
            self.manads.append(Manad(mine, served / f"control{suffix}.sock",
                                     self._log_dir / f"manad{suffix}.log", tuple(args[index]),
                                     self._manad_binary, user, self._words_before(index)))
            self.manads[-1].start()
        self._qemu = qemu
        suites = ", ".join(spec.suite + f" {spec.kernel}" * (spec.kernel != "stock")
                           for spec in self.specs)
        with Step(f"booting {len(self.guests)} guest(s) ({suites}; {accel})"):
            for guest in self.guests:
                guest.start(qemu)
            self.each(self._bring_up)

    def _outside_uplink(self, hosts: Hosts) -> str:
        """What the first manad has of the wire."""
        if self._outside == "xdp":
            return f"xdp={INTERFACE}"
        return f"vxlan=local={hosts.address(0)},vni={VNI},remote={hosts.address(1)}"

    def _udp_ends(self, network: int) -> tuple[tuple[str, str], tuple[str, str]]:
        """Of both ends of the uplink of a network, its own address and that of its other end."""
        if self.hosts is not None:
            first, second = (f"{self.hosts.address(host)}:{UDP_PORT + network}"
                             for host in range(2))
        else:
            first, second = (f"127.0.0.1:{port}" for port in free_udp_ports(2))
        if self._path is None:
            return (first, second), (second, first)
        self.relays.append(Relay((first, second), self._path))
        beside = self.relays[-1].beside
        return (first, beside[0]), (second, beside[1])

    def _words_before(self, manad: int) -> tuple[str, ...]:
        """What begins the command line of a manad."""
        return (*(() if self.hosts is None else self.hosts.words(manad)), *self._manad_before)

    def _bring_up(self, guest: Guest) -> None:
        """Waits for a guest. One whose kernel fell victim to TCG starts once more."""
        try:
            guest.wait_ready(self._boot_timeout, self._modules)
        except GuestDied:
            if not guest.fell_over_own_patch():
                raise
            guest.console_log.rename(guest.console_log.with_suffix(".console-before"))
            say(f"{guest.name}: its kernel met a breakpoint of its own under TCG, before any "
                f"module was there; starting it again (log: {guest.console_log}-before)")
            self.replace(guest.number)

    def replace(self, number: int) -> Guest:
        """Ends a guest, and starts a new one in its place with the same NICs and disk."""
        assert self._qemu is not None
        old = self.guests[number]
        old.stop()
        fresh = Guest(old.name, number, old.spec, old.image, old.machine, old.macs,
                      old.virtio_macs, self.log_dir, old.host)
        fresh.start(self._qemu)
        self.guests[number] = fresh
        fresh.wait_ready(self._boot_timeout, self._modules)
        return fresh

    def move(self, number: int, place: int, how: Move = Move(), **changes: str
             ) -> dict[str, Any]:
        """Moves a running guest to another manad by QEMU's live migration; returns what the old
        QEMU says of it (query-migrate). `changes` are what the new NICs have otherwise than the
        old ones. When it fails the guest stays, and the other manad has no NIC of it."""
        assert self._qemu is not None
        guest = self.guests[number]
        source, target = self.manad_of(number), self.manads[place]
        if source is target:
            raise LabError(f"{guest.name} is there already")
        old = self._nics_of(guest, source)
        machine, new = self._elsewhere(guest, old, **changes)
        try:
            for nic in new:
                target.add_nic(nic, "incoming=on")
            said = guest.move(self._qemu, machine, how)
        except BaseException:
            target.remove_nics(new)
            raise
        source.remove_nics(old)
        self.specs[number] = guest.spec = replace(guest.spec, host=place)
        return said

    def snapshot(self, folder: Path) -> list[dict[str, Any]]:
        """Writes all guests of two hosts to files of a folder, all of them standing still, and has
        each go on from its file, in a new QEMU on the other host; what the old QEMUs say."""
        assert self._qemu is not None
        said = []
        with ExitStack() as held:
            for guest in self.guests:
                held.enter_context(guest.channel.held(Move().timeout))
            for guest in self.guests:
                guest.qmp("stop")
            for guest in self.guests:
                said.append(guest.write(folder / guest.name))
            for number, guest in enumerate(self.guests):
                source, place = self.manad_of(number), 1 - self._place(number)
                old = self._nics_of(guest, source)
                machine, new = self._elsewhere(guest, old)
                for nic in new:
                    self.manads[place].add_nic(nic, "incoming=on")
                guest.read(self._qemu, machine, folder / guest.name)
                source.remove_nics(old)
                self.specs[number] = guest.spec = replace(guest.spec, host=place)
            for guest in self.guests:
                guest.qmp("cont")
        return said

    @staticmethod
    def _nics_of(guest: Guest, manad: Manad) -> list[Nic]:
        return [nic for nic in manad.nics if nic.socket in guest.machine.nics]

    def _elsewhere(self, guest: Guest, old: list[Nic], **changes: str
                   ) -> tuple[Machine, list[Nic]]:
        """A machine like that of a guest with sockets of its own, and its NICs."""
        self._moves += 1
        new = [replace(nic, socket=nic.socket.with_name(f"{nic.name}-{self._moves}.sock"),
                       **changes) for nic in old]
        run = self.run_dir / f"{guest.name}-{self._moves}"
        return replace(guest.machine, nics=tuple(nic.socket for nic in new),
                       agent_socket=run.with_suffix(".agent"),
                       qmp_socket=run.with_suffix(".qmp")), new

    def _wire(self, guest: int, number: int) -> dict[str, object]:
        """One end of the cable between the guests of a pair."""
        path = self.run_dir / f"wire{guest // 2}n{number}.sock"
        if guest % 2 == 0:
            return {"type": "stream", "server": True,
                    "addr": {"type": "unix", "path": str(path)}}
        return connected(path)

    def stop(self) -> None:
        """Ends the guests and manad, removes the sockets. Logs stay after a failure."""
        statuses: list[tuple[int | None, Manad]] = []
        bad: list[tuple[int, Manad]] = []
        try:
            for guest in self.guests:
                guest.stop()
            statuses = [(manad.stop(), manad) for manad in self.manads]
        finally:
            if self.hosts is not None:
                self.hosts.stop()
            for relay in self.relays:
                relay.stop()
            self.relays.clear()
            bad = [(status, manad) for status, manad in statuses if status]
            keep = self._failed or self._keep_logs or bool(bad)
            if self._run is not None:
                if keep:
                    self._keep_output()
                self._run.close()
                self._run = None
            if self._log_dir is not None and not keep:
                shutil.rmtree(self._log_dir, ignore_errors=True)
        if bad and not self._failed:
            status, manad = bad[0]
            raise LabError(how_it_ended(status, manad.pid), manad.log)

    def _keep_output(self) -> None:
        """What manad wrote goes to the logs."""
        if self._manad_user is not None and self._log_dir is not None and self.output_dir.exists():
            shutil.copytree(self.output_dir, self._log_dir, dirs_exist_ok=True)

    def each(self, action: Any) -> list[Any]:
        """Calls `action(guest)` for all guests at once; the first error is raised when all are
        done."""
        results: list[Any] = [None] * len(self.guests)
        errors: list[BaseException] = []

        def work(index: int, guest: Guest) -> None:
            try:
                results[index] = action(guest)
            except BaseException as error:  # raised below, in the caller's thread
                errors.append(error)

        threads = [threading.Thread(target=work, args=(index, guest), daemon=True)
                   for index, guest in enumerate(self.guests)]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
                if errors:
                    break
        if errors:
            for manad in self.manads:
                manad.check()
            raise errors[0]
        return results

    # -- use

    def configure_network(self, guests: Sequence[Guest] | None = None) -> None:
        """Brings the NICs up with the addresses of `Guest.ip` and waits for their carrier. Call it
        again, for one guest, after its reboot."""
        for guest in guests if guests is not None else self.guests:
            lines = ["set -e"]
            mtu = f" mtu {self._mtu}" if self._mtu is not None else ""
            names = []
            for nic in range(len(guest.macs)):
                name = guest.interface(nic)
                names.append(name)
                lines += [f"ip link set {name}{mtu} up",
                          f"ip addr replace {guest.ip(nic)}/24 dev {name}",
                          f"ip -6 addr replace {guest.ip(nic, 6)}/64 dev {name} nodad"]
            for number in range(len(guest.virtio_macs) - guest.spec.uplinks):
                name = guest.virtio_interface(number)
                names.append(name)
                lines += [f"ip link set {name}{mtu} up",
                          f"ip addr replace {guest.virtio_ip(number)}/24 dev {name}"]
            for number in range(guest.spec.uplinks):
                name = guest.uplink_interface(number)
                names.append(name)
                lines += [f"ip link set {name}{mtu} up",
                          f"ip addr replace {guest.uplink_ip(number)}/24 dev {name}",
                          f"ip -6 addr replace {guest.uplink_ip(number, 6)}/64 dev {name} nodad"]
            lines += ["i=0", f"for n in {' '.join(names)}; do",
                      'until [ "$(cat /sys/class/net/$n/carrier)" = 1 ]; do sleep 0.05; '
                      'i=$((i+1)); [ $i -lt 400 ] || { echo "$n has no carrier" >&2; exit 1; }',
                      "done; done"]
            if len(names) > 1:
                # One subnet on all of them: each answers for its own address alone, and believes
                # a request that comes from another of its guest.
                lines += [f"echo 1 >/proc/sys/net/ipv4/conf/all/{setting}"
                          for setting in ("arp_ignore", "accept_local")]
            if names:
                guest.run("\n".join(lines), timeout=60)

    def manactl(self, *args: str, check: bool = True, timeout: float = 20.0, guest: int = 0
                ) -> str:
        """Runs manactl against the manad of a guest; returns its output."""
        return self.manad_of(guest).ctl(*args, check=check, timeout=timeout)

    def stats(self, *args: str, guest: int = 0) -> Any:
        """`manactl stats --json` of the manad of a guest, parsed."""
        return self.manad_of(guest).ctl_json("stats", *args)

# SPDX-License-Identifier: Apache-2.0
"""A lab: one manad, some guests, their networks; a context manager that owns them all."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from .errors import LabError
from .guest import BOOT_TIMEOUT, Guest, GuestSpec
from .image import get_image
from .janitor import RunDirectory, new_log_dir
from .kvm import choose_accel
from .manad import Manad, Nic
from .ours import guest_initrd
from .progress import Step, say
from .qemu import Machine, find_qemu, free_memory

MAX_NICS = 16
MAX_VIRTIO = 8


def mac_address(kind: int, guest: int, number: int) -> str:
    """A locally administered address: kind 0 for MANA NICs, 1 for virtio ones."""
    return f"02:4d:41:{kind:02x}:{guest:02x}:{number:02x}"


class Lab:
    """Guests with NICs.

        with Lab([GuestSpec("trixie"), GuestSpec("forky")], nics=1) as lab:
            lab.configure_network()
            print(lab.guests[0].run("ping -c 1 " + lab.guests[1].ip()).stdout)

    `nics` and `virtio` are per guest; a spec may say otherwise. virtio NICs join guests 0 and 1,
    2 and 3, and so on. `mtu` is set on the guests' interfaces by `configure_network`; `nic_options`
    (such as "mtu=1500") go to manad's --nic; without `ext` the NICs hide the extensions. `nics=0`
    needs no manad. Logs are kept when the block
    ends by an exception (or with `keep_logs`), in `lab.log_dir`.
    """

    def __init__(self, guests: Sequence[GuestSpec] = (GuestSpec(), GuestSpec()), *, nics: int = 1,
                 virtio: int = 0, mtu: int | None = None, manad_args: Sequence[str] = (),
                 nic_options: str = "", ext: bool = True, name: str = "lab",
                 boot_timeout: float = BOOT_TIMEOUT, accel: str | None = None,
                 keep_logs: bool = False, manad: Path | None = None,
                 shared_memory: bool = True, modules: bool = True) -> None:
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
        self._shared_memory = shared_memory
        self._modules = modules
        self._run: RunDirectory | None = None
        self._failed = False
        self._log_dir: Path | None = None
        self.guests: list[Guest] = []
        self.manad: Manad | None = None
        self._check()

    def _check(self) -> None:
        if not self.specs:
            raise LabError("a lab needs at least one guest")
        for spec in self.specs:
            if not 1 <= spec.cpus <= 64:
                raise LabError(f"a guest cannot have {spec.cpus} CPUs (1 to 64)")
            if not 256 <= spec.memory <= 1 << 20:
                raise LabError(f"a guest cannot have {spec.memory} MiB of memory (256 or more)")
            count = self._nics if spec.nics is None else spec.nics
            if not 0 <= count <= MAX_NICS:
                raise LabError(f"a guest cannot have {count} NICs (0 to {MAX_NICS})")
            wires = self._virtio if spec.virtio is None else spec.virtio
            if not 0 <= wires <= MAX_VIRTIO:
                raise LabError(f"a guest cannot have {wires} virtio NICs (0 to {MAX_VIRTIO})")
        if self._mtu is not None and not 1500 <= self._mtu <= 9000:
            raise LabError(f"MTU {self._mtu} is out of range (1500 to 9000)")

    @property
    def log_dir(self) -> Path:
        """Where the logs of this lab are."""
        if self._log_dir is None:
            raise LabError("the lab is not running")
        return self._log_dir

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
        images = {suite: get_image(suite) for suite in dict.fromkeys(s.suite for s in self.specs)}
        initrds = {spec: guest_initrd(images[spec.suite], spec.driver, spec.provider)
                   for spec in self.specs}
        need = sum(spec.memory for spec in self.specs) << 20
        if need > free_memory():
            raise LabError(f"not enough memory: the guests have {need >> 20} MiB, "
                           f"the host has {free_memory() >> 20} MiB available")
        qemu = find_qemu()
        accel = self._accel or choose_accel(qemu, next(iter(images.values())))
        self._log_dir = new_log_dir(self._name)
        self._run = RunDirectory()
        run = self._run.path
        nics: list[Nic] = []
        for number, spec in enumerate(self.specs):
            name = f"g{number}"
            mine = [Nic(f"{name}n{i}", run / f"{name}n{i}.sock", mac_address(0, number, i),
                        self._nic_options)
                    for i in range(self._nics if spec.nics is None else spec.nics)]
            nics += mine
            wires = self._virtio if spec.virtio is None else spec.virtio
            virtio_macs = [mac_address(1, number, i) for i in range(wires)]
            image = images[spec.suite]
            machine = Machine(
                name=name, kernel=image.kernel, initrd=initrds[spec], root=image.root,
                agent_socket=run / f"{name}.agent", qmp_socket=run / f"{name}.qmp", accel=accel,
                cpus=spec.cpus, memory=spec.memory, nics=tuple(nic.socket for nic in mine),
                virtio=tuple((self._wire(number, i), mac) for i, mac in enumerate(virtio_macs)),
                append=spec.append, shared_memory=self._shared_memory)
            self.guests.append(Guest(name, number, spec, image, machine,
                                     [nic.mac for nic in mine], virtio_macs, self._log_dir))
        if nics:
            self.manad = Manad(nics, run / "control.sock", self._log_dir / "manad.log",
                               self._manad_args, self._manad_binary)
            say(f"starting manad with {len(nics)} NICs")
            self.manad.start()
        suites = ", ".join(spec.suite for spec in self.specs)
        with Step(f"booting {len(self.guests)} guest(s) ({suites}; {accel})"):
            for guest in self.guests:
                guest.start(qemu)
            self.each(lambda guest: guest.wait_ready(self._boot_timeout, self._modules))

    def _wire(self, guest: int, number: int) -> dict[str, object]:
        """One end of the cable between the guests of a pair."""
        path = self.run_dir / f"wire{guest // 2}n{number}.sock"
        if guest % 2 == 0:
            return {"type": "stream", "server": True,
                    "addr": {"type": "unix", "path": str(path)}}
        return {"type": "stream", "server": False, "reconnect-ms": 200,
                "addr": {"type": "unix", "path": str(path)}}

    def stop(self) -> None:
        """Ends the guests and manad, removes the sockets. Logs stay after a failure."""
        status = None
        try:
            for guest in self.guests:
                guest.stop()
            if self.manad is not None:
                status = self.manad.stop()
        finally:
            if self._run is not None:
                self._run.close()
                self._run = None
            bad_end = status not in (None, 0)
            if self._log_dir is not None and not (self._failed or self._keep_logs or bad_end):
                shutil.rmtree(self._log_dir, ignore_errors=True)
        if bad_end and not self._failed:
            raise LabError(f"manad ended with status {status}", self.log_dir / "manad.log")

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
            if self.manad is not None:
                self.manad.check()
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
            for number in range(len(guest.virtio_macs)):
                name = guest.virtio_interface(number)
                names.append(name)
                lines += [f"ip link set {name}{mtu} up",
                          f"ip addr replace {guest.virtio_ip(number)}/24 dev {name}"]
            lines += ["i=0", f"for n in {' '.join(names)}; do",
                      'until [ "$(cat /sys/class/net/$n/carrier)" = 1 ]; do sleep 0.05; '
                      'i=$((i+1)); [ $i -lt 400 ] || { echo "$n has no carrier" >&2; exit 1; }',
                      "done; done"]
            if names:
                guest.run("\n".join(lines), timeout=60)

    def manactl(self, *args: str, check: bool = True, timeout: float = 20.0) -> str:
        """Runs manactl against this lab's manad; returns its output."""
        if self.manad is None:
            raise LabError("this lab has no NICs, so no manad")
        return self.manad.ctl(*args, check=check, timeout=timeout)

    def stats(self, *args: str) -> Any:
        """`manactl stats --json`, parsed."""
        if self.manad is None:
            raise LabError("this lab has no NICs, so no manad")
        return self.manad.ctl_json("stats", *args)

# SPDX-License-Identifier: Apache-2.0
"""QEMU's own migration over RDMA, from a guest to the other: a virtual machine in each."""

from __future__ import annotations

import re
import time
from typing import Any

from harness import Area, CaseFailed, Context, Peer, check

from lab import extras

AREA = Area("programs_qemu")
FOLDER = "/root/qemu"
MEMORY = 48  # MiB of the machine
DATA = 12  # MiB of these that nobody can guess
LIMIT = 420.0  # fetches QEMU


class Machine:
    """A QEMU in a guest, with a monitor on stdin; it stands still."""

    def __init__(self, context: Context, peer: Peer, *words: str) -> None:
        self.peer = peer
        self._seen = 0
        self.process = peer.spawn(
            f"cd {FOLDER} && LD_LIBRARY_PATH={FOLDER} exec ./qemu-system-x86_64 -M pc -accel tcg "
            f"-m {MEMORY} -nodefaults -display none -vga none -bios bios-256k.bin -S "
            f"-monitor stdio {' '.join(words)}", stdin=True)
        self.process.wait_output("(qemu)", 120)

    def says(self, command: str, timeout: float = 60.0) -> str:
        """The answer to a command."""
        before = len(self.process.stdout)
        self.process.write(command.encode() + b"\n")
        deadline = time.monotonic() + timeout
        while not re.search(r"\n\(qemu\) $", text := self.process.stdout[before:]):
            if time.monotonic() > deadline or self.process.status is not None:
                raise CaseFailed(f"{self.peer.name}: QEMU did not answer '{command}': {text[-200:]}"
                                 f" {self.process.stderr[-200:]}")
            time.sleep(0.1)
        return str(text)

    def memory(self) -> str:
        """A digest of the machine's memory."""
        self.says(f'pmemsave 0 {MEMORY << 20} "/tmp/memory"', 120)
        return str(self.peer.out("sha256sum /tmp/memory; rm /tmp/memory").split()[0])


def status(machine: Machine) -> tuple[str, str]:
    """What has become of a migration, and all that QEMU says of it."""
    said = machine.says("info migrate")
    found = re.search(r"^(?:Migration s|S)tatus: (\w+)", said, re.M)
    return found[1] if found else "none", said


@AREA.case("QEMU migrates a machine over RDMA, whose memory is then the same", timeout=LIMIT,
           long=True)
def migration(context: Context) -> None:
    if not context.has("driver") and any(peer.suite == "trixie" for peer in context.peers):
        context.cannot("QEMU", "the stock driver of kernel 6.12 has no QP1, so no connection "
                       "manager")
    target, source = context.a, context.b
    tar = extras.archive("trixie", ("qemu-system-x86", "seabios"),
                         ("usr/bin/qemu-system-x86_64", "usr/share/seabios/bios-256k.bin"))
    for peer in (target, source):
        extras.unpack(peer.guest, tar, FOLDER)
    port = context.port()
    uri = f"rdma:{target.ip()}:{port}"
    context.ran("QEMU", extras.version(tar, "qemu-system-x86"),
                f"qemu-system-x86_64 -incoming {uri}; migrate {uri}")
    source.run(f"head -c {DATA << 20} /dev/urandom >/tmp/data")
    there = Machine(context, target, f"-incoming {uri}")
    here = Machine(context, source, "-device loader,file=/tmp/data,addr=0x1000000,force-raw=on")
    target.until(f"rdma resource show cm_id | grep LISTEN | grep -q ':{port} '",
                 "QEMU does not listen", 30)
    before = source.counters()
    here.says(f"migrate -d {uri}", 120)
    end = time.monotonic() + 120
    found, said = status(here)
    while found not in ("completed", "failed"):
        check(time.monotonic() < end, f"the migration goes on: {said[-300:]}")
        time.sleep(0.5)
        found, said = status(here)
    check(found == "completed", f"the migration {found}: {said[-300:]} {here.process.stderr[-300:]}"
          f" {there.process.stderr[-300:]}")
    moved = source.counters()["rnic.tx.bytes"] - before["rnic.tx.bytes"]
    check(moved > DATA << 20, f"{moved} bytes went by RDMA")
    digests = [machine.memory() for machine in (here, there)]
    check(digests[0] == digests[1], f"the memory is another: {digests}")
    for machine in (here, there):
        machine.process.write(b"quit\n")
        machine.peer.finish(machine.process, 30)
    context.note(f"{moved} bytes by RDMA for {MEMORY} MiB of memory, the same on both sides")

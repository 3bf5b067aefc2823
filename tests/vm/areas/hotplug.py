# SPDX-License-Identifier: Apache-2.0
"""NICs that are plugged into a running guest and out of it again, made in manad before and ended
behind, while the guests' other NICs are in traffic."""

from __future__ import annotations

import os
import time
from pathlib import Path

from areas import lifecycle, vlan
from harness import Area, CaseFailed, Context, Peer, check, skip
from programs import gbits, rows_of

from lab.errors import LabError

AREA = Area("hotplug", layout="plug")
ROUNDS = int(os.environ.get("OPENMANA_VM_ROUNDS", "3"))
NAME = "plug"
MAC = "02:4d:41:04:00:00"
ADDRESS = {"a": "10.9.0.1", "b": "10.9.0.2"}  # a network of its own on the other guest's NIC
SETTLED = 3  # rounds after which nothing grows
GROWTH = 4 << 20


def patched(context: Context) -> None:
    """QEMU 11.1 as it is ends when a vfio-user device with MSI-X is plugged out, and migrates
    guests without the state of their devices."""
    if context.options.qemu != "patched":
        skip("needs --qemu patched")


def plug(context: Context, **properties: str) -> None:
    """Makes a NIC, and plugs it in."""
    peer = context.b
    place = Path(context.lab.manad_of(peer.index).control).with_name(f"{NAME}.sock")
    peer.manactl("nic", "add", f"id={NAME},socket={place},mac={MAC}")
    peer.guest.qmp("device_add", driver="vfio-user-pci", id=NAME, bus="port0",
                   socket={"type": "unix", "path": str(place)}, **properties)


def unplug(context: Context) -> None:
    """Asks the guest for it, waits until the guest has let it go, and ends it."""
    peer = context.b
    peer.guest.qmp("device_del", id=NAME)
    end = time.monotonic() + 60 * peer.guest.spec.patience
    while any(row["name"] == NAME
              for row in peer.guest.qmp("qom-list", path="/machine/peripheral")):
        check(time.monotonic() < end, "the guest does not let the NIC go")
        time.sleep(0.1)
    # QEMU has taken it from the bus, and disconnects a moment later.
    while True:
        try:
            peer.manactl("nic", "remove", NAME)
            return
        except LabError as error:
            check("has a client" in str(error) and time.monotonic() < end, str(error))
        time.sleep(0.1)


def interface(peer: Peer) -> str:
    """The interface of the NIC that was plugged in, when it is there."""
    find = f"grep -l '{MAC}' /sys/class/net/*/address"
    peer.until(find, "the NIC does not come", 30)
    return peer.out(find).split("/")[4]


def device(peer: Peer) -> tuple[str, int]:
    """Its RDMA device, and there the index of the GID of its address."""
    files = "/sys/class/infiniband/*/ports/1/gids/*"
    find = f"grep -ls {vlan.ipv4_gid(ADDRESS['b'])} {files} | grep ."
    peer.until(find, "the RDMA device of the new NIC does not come", 20)
    path = peer.out(find).split()[0].split("/")
    return path[4], int(path[-1])


def use(context: Context) -> str:
    """TCP's and RDMA's way through the new NIC."""
    a, b = context.a, context.b
    name = interface(b)
    b.run(f"ip link set {name} up && ip addr replace {ADDRESS['b']}/24 dev {name}")
    b.until(f"ping -c 1 -W 1 -I {name} {ADDRESS['a']}", "no ping by the new NIC", 20)
    rdma, index = device(b)
    port = context.port()
    words = f"-F -s 65536 -n 200 -p {port}"
    own = vlan.index_of(a, a.interface, ADDRESS["a"])
    server = a.spawn(f"ib_write_bw -d {a.rdma} -x {own} {words}")
    a.wait_listening(port, server)
    done = b.run(f"ib_write_bw -d {rdma} -x {index} {words} {ADDRESS['a']}")
    a.finish(server)
    return gbits(rows_of(done.stdout)[0])


def in_kernel(peer: Peer) -> int:
    """Bytes of a guest's kernel that leaks would be in."""
    peer.run("sync; echo 3 >/proc/sys/vm/drop_caches")
    kinds = "|".join(("SUnreclaim", "VmallocUsed", "Percpu"))
    return 1024 * sum(int(line.split()[1]) for line in
                      peer.out(f"grep -E '^({kinds}):' /proc/meminfo").splitlines())


def of_manad(context: Context) -> tuple[int, int]:
    """Open files of manad, and bytes of its own."""
    process = Path("/proc", str(context.lab.manad_of(context.b.index).pid))
    own = next(int(line.split()[1]) for line in (process / "status").read_text().splitlines()
               if line.startswith("RssAnon:"))
    return len(list((process / "fd").iterdir())), own * 1024


@AREA.case("plugged in, used and plugged out while others are in traffic", smoke=True,
           timeout=120.0 + 40 * ROUNDS)
def rounds(context: Context) -> None:
    patched(context)
    a, b = context.a, context.b
    a.run(f"ip addr replace {ADDRESS['a']}/24 dev {a.interface}")
    server, client = lifecycle.traffic(context, seconds=100_000)
    before: tuple[int, tuple[int, int]] | None = None
    seen = ""
    for number in range(ROUNDS):
        try:
            plug(context)
            seen = use(context)
            flood = b.spawn(f"ping -f -q -s 1400 -I {interface(b)} {ADDRESS['a']} >/dev/null 2>&1")
            b.run("sleep 0.3")
            unplug(context)
            flood.kill()
            b.finish(flood, check=False)
            for end in (server, client):
                check(end.status is None, f"the others' ib_write_bw has ended: {end.stdout[-300:]} "
                      f"{end.stderr[-300:]}")
        except CaseFailed as error:
            raise CaseFailed(f"round {number + 1} of {ROUNDS}: {error}") from error
        if number + 1 == SETTLED:
            before = in_kernel(b), of_manad(context)
    if before is None or ROUNDS <= SETTLED:
        context.note(f"{ROUNDS} rounds, {seen}")
        return
    kernel, (files, own) = in_kernel(b), of_manad(context)
    end = time.monotonic() + 10  # a connection of manactl may just be going
    while files > before[1][0] and time.monotonic() < end:
        time.sleep(0.2)
        files, own = of_manad(context)
    grown = kernel - before[0], own - before[1][1]
    check(files <= before[1][0], f"manad has {files} files open, {before[1][0]} before")
    check(max(grown) < GROWTH, f"the guest's kernel has grown by {grown[0]} bytes, manad by "
          f"{grown[1]}")
    context.note(f"{ROUNDS} rounds, {seen}; the guest's kernel {grown[0] >> 10:+} KiB, "
                 f"manad {grown[1] >> 10:+} KiB")


@AREA.case("plugged out under a program that uses it: the program hears of it, the next NIC works")
def under_a_program(context: Context) -> None:
    patched(context)
    if not context.has("driver"):
        skip("the stock driver lets a device go when its last user has ended")
    a, b = context.a, context.b
    a.run(f"ip addr replace {ADDRESS['a']}/24 dev {a.interface}")
    plug(context)
    use(context)
    rdma, _ = device(b)
    watcher = b.spawn(f"exec stdbuf -oL ibv_asyncwatch -d {rdma}")
    watcher.wait_output("async event FD", 20)
    unplug(context)
    watcher.wait_output("event_type", 20)
    watcher.kill()
    b.finish(watcher, check=False)
    plug(context)
    context.note(use(context))
    unplug(context)


@AREA.case("refused in one line each: live update; migration and snapshots with a NIC that may not",
           smoke=True)
def refused(context: Context) -> None:
    patched(context)
    guest = context.b.guest
    place = str(context.lab.run_dir / "moved")

    def migrate(mode: str, reason: str) -> None:
        guest.qmp("migrate-set-parameters", mode=mode)
        try:
            guest.qmp("migrate", uri=f"file:{place}")
        except LabError as error:
            check(reason in str(error), f"{mode}: {error}")
        else:
            raise CaseFailed(f"a migration ({mode}) is begun")
        finally:
            guest.qmp("migrate-set-parameters", mode="normal")

    migrate("cpr-reboot", "CPR does not support vfio-user devices")
    plug(context, **{"enable-migration": "off"})
    reason = "Migration is disabled for VFIO device"
    migrate("normal", reason)
    said = guest.qmp("human-monitor-command", **{"command-line": "savevm first"})
    check(reason in str(said), f"savevm: {said}")
    interface(context.b)
    unplug(context)
    lifecycle.works(context)

# SPDX-License-Identifier: Apache-2.0
"""Names of RDMA devices in a guest with systemd and udev, whose rule of rdma-core renames them by
their place on the PCI bus. From 7.2 on a NIC has two: of RoCE, and of raw packets."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from harness import Area, Context, Peer, check, skip

AREA = Area("naming", layout="systemd")
CLASS = "/sys/class/infiniband"
ROCE, RAW = "roce", "rdma"  # what rdma_rename begins a name with: RDMA of no known kind is "rdma"


def devices(peer: Peer) -> dict[str, list[str]]:
    """The RDMA devices of each PCI function."""
    peer.run("udevadm settle --timeout 60", timeout=90)
    found: dict[str, list[str]] = {}
    for line in peer.out(f"for d in {CLASS}/*; do echo $(basename $d) $(readlink $d/device); "
                         "done").splitlines():
        name, place = line.split()
        found.setdefault(PurePosixPath(place).name, []).append(name)
    return found


def check_names(peer: Peer) -> dict[str, list[str]]:
    """Each device is named by its function, and one of RDMA and one of raw packets differ."""
    found = devices(peer)
    check(len(found) == 2, f"RDMA devices of {len(found)} of two NICs: {found}")
    kinds = [ROCE] if peer.release == "trixie" and "backports" not in peer.suite else [RAW, ROCE]
    for place, names in found.items():
        bus, slot = (int(text, 16) for text in re.split("[:.]", place)[1:3])
        wanted = [f"{kind}p{bus}s{slot}" for kind in kinds]
        check(sorted(names) == wanted, f"{place} has {sorted(names)}, not {wanted}")
    failed = peer.out("journalctl -b --no-pager -q | grep -i 'rename.*fail' || true")
    check(not failed, f"the journal: {failed[:300]}")
    return found


def reload(peer: Peer, options: str = "") -> None:
    """The RDMA driver, as somebody who tries another one."""
    peer.run(f"rmmod mana_ib && modprobe mana_ib {options}", timeout=90)


@AREA.case("systemd and udev run, and every device has a name of its own, that it keeps",
           smoke=True)
def stable(context: Context) -> None:
    peer = context.a
    check(peer.out("cat /proc/1/comm").strip() == "systemd", "process 1 is another")
    state = peer.run("systemctl is-system-running --wait", check=False, timeout=90).stdout.strip()
    check(state == "running", f"systemd is {state}: "
          + peer.out("systemctl --failed --no-legend --plain"))
    before = check_names(peer)
    for name in (name for names in before.values() for name in names):
        check(f"hca_id:\t{name}" in peer.out(f"ibv_devinfo -d {name}"), f"{name} is not to be had")
    reload(peer)
    after = check_names(peer)
    check({place: sorted(names) for place, names in before.items()}
          == {place: sorted(names) for place, names in after.items()},
          f"names were {before} and are {after}")
    context.note(", ".join(sorted(name for names in after.values() for name in names)))


@AREA.case("rdma_cm and verbs by the names that udev gave")
def used(context: Context) -> None:
    a, b = context.a, context.b
    port = context.port()
    program = f"ibv_rc_pingpong -p {port} -n 100 -g 1"
    listener = a.spawn(f"exec {program} -d {a.rdma}")
    a.wait_listening(port, listener)
    b.run(f"{program} -d {b.rdma} {a.ip()}")
    a.finish(listener, 30)
    check(a.rdma.startswith(ROCE) and b.rdma.startswith(ROCE), f"names: {a.rdma}, {b.rdma}")


def one_each(peer: Peer) -> None:
    """What the RDMA plugin of Kubernetes wants of a PCI function."""
    found = devices(peer)
    for place, names in found.items():
        check(len(names) == 1 and names[0].startswith(ROCE), f"{place} has {names}")
    check(len(found) == 2, f"there are {found}")


@AREA.case("one device of a function: the raw one is unbound, or (ours) not made at all")
def alone(context: Context) -> None:
    peer = context.a
    raw = peer.out("ls /sys/bus/auxiliary/devices | grep '^mana.eth' || true").split()
    if not raw:
        skip("this kernel makes one device of a NIC")
    driver = peer.out("ls -d /sys/bus/auxiliary/drivers/mana_ib*").strip()
    try:
        for name in raw:
            peer.run(f"echo {name} >{driver}/unbind")
        one_each(peer)
        for name in raw:
            peer.run(f"echo {name} >{driver}/bind")
        check_names(peer)
        if context.has("driver"):
            reload(peer, "raw_devices=0")
            one_each(peer)
    finally:
        reload(peer)
    check_names(peer)

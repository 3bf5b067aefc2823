# SPDX-License-Identifier: Apache-2.0
"""SRP: the kernel's target and initiator connect by rdma_cm, as RoCE has no subnet management."""

from __future__ import annotations

from areas import lifecycle, ulp
from harness import Area, Context, Peer, check
from programs import configure, quick_rdma

AREA = Area("programs_storage", needs=("driver",))
LIMIT = 240.0
PORT = 5555
DISK = f"{ulp.TARGET}/core/iblock_0/disk"
SRPT = f"{ulp.TARGET}/srpt"
MESSAGES = r"ib_srpt:? .*|Rounding down aligned max_sectors .*|scsi host\d+: +(ib_srp|REJ).*"


def guid(peer: Peer) -> str:
    """The device's GUID, the name of its target port."""
    return peer.out(f"cat /sys/class/infiniband/{peer.rdma}/node_guid").strip()


def export_srp(peer: Peer, initiator: str) -> None:
    """A target with a RAM disk behind it, which listens by rdma_cm."""
    ulp.ram_disk(peer)
    group = f"{SRPT}/{guid(peer)}/{guid(peer)}"
    peer.run(f"""set -e
modprobe -a target_core_mod target_core_iblock ib_srpt
mkdir -p {DISK}
echo udev_path={ulp.RAM} >{DISK}/control
echo 1 >{DISK}/enable
mkdir -p {SRPT}
echo {PORT} >{SRPT}/discovery_auth/rdma_cm_port
mkdir -p {group}/lun/lun_0
ln -s {DISK} {group}/lun/lun_0/disk
echo 1 >{group}/enable
mkdir {group}/acls/{initiator}
mkdir {group}/acls/{initiator}/lun_0
ln -s {group}/lun/lun_0 {group}/acls/{initiator}/lun_0/disk""", timeout=60)


def withdraw_srp(peer: Peer, initiator: str) -> None:
    """Takes all of it down."""
    group = f"{SRPT}/{guid(peer)}/{guid(peer)}"
    peer.run(f"""echo 0 >{group}/enable
cd {group} && rm -f acls/{initiator}/lun_0/disk lun/lun_0/disk
rmdir acls/{initiator}/lun_0 acls/{initiator} lun/lun_0
cd / && rmdir {group} {SRPT}/{guid(peer)} {SRPT} {DISK}
rmmod ib_srpt target_core_iblock target_core_mod""", timeout=60, check=False)


@AREA.case("SRP by rdma_cm: a file system written, read back and compared", timeout=LIMIT,
           smoke=True)
def srp(context: Context) -> None:
    server, client = context.a, context.b
    for peer in (server, client):
        context.expect_kernel(peer, MESSAGES)
    # ib_srpt takes for the initiator's name the address that the connection came to.
    name = server.ip()
    export_srp(server, name)
    try:
        number = guid(server).replace(":", "")
        target = f"id_ext={number},ioc_guid={number},dest={server.ip()}:{PORT}"
        context.ran("SRP (ib_srp, ib_srpt)", client.version("linux-image-amd64"),
                    f"echo {target} >/sys/class/infiniband_srp/srp-{client.rdma}-1/add_target")
        before = client.counters()
        client.run("modprobe -a ib_srp sd_mod")
        client.run(f"echo {target} >/sys/class/infiniband_srp/srp-{client.rdma}-1/add_target",
                   timeout=90)
        client.until("ls /dev/sd? >/dev/null 2>&1", "no SCSI disk appeared", 30)
        ulp.file_system(client, client.out("ls /dev/sd?").split()[0])
        client.run("for port in /sys/class/srp_remote_ports/*/delete; do echo 1 >$port; done")
        client.until("! ls /dev/sd? >/dev/null 2>&1", "the disk stays", 30)
        client.run("rmmod ib_srp")
        after = client.counters()
        moved = sum(after[name] - before[name] for name in ("rnic.tx.bytes", "rnic.rx.bytes"))
        check(moved > 1 << 20, f"{moved} bytes by RDMA")
        context.note(f"all compared, {moved} bytes by RDMA")
    finally:
        withdraw_srp(server, name)
        lifecycle.reload_rdma(server)  # the core keeps CQs for its users
        configure(context, server)
    quick_rdma(context)


AREA.cannot("tgt (iSER, SRP)", "tgtd 1.0.85 connects, and answers the login of the kernel's "
            "initiator with \"target not found\" (class 2, detail 3), over Soft-RoCE as well; it "
            "has no SRP over RDMA")
AREA.cannot("9P over RDMA", "the kernel's client (9pnet_rdma) has no server: Debian's diod is "
            "built without RDMA, and neither u9fs nor QEMU has 9P over RDMA")

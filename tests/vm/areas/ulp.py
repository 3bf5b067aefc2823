# SPDX-License-Identifier: Apache-2.0
"""Kernel users of RDMA between two guests: NVMe over RDMA, NFS over RDMA, iSER, RDS. The server is
the first guest, with a RAM disk; what is written over the network is read back and compared."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from areas.lifecycle import address, reload_rdma, replace, works
from areas.module import RESET_MESSAGES, bring_back, device_number
from harness import Area, Context, Peer, check
from programs import configure

AREA = Area("ulp", needs=("driver",))
NVMET = "/sys/kernel/config/nvmet"
TARGET = "/sys/kernel/config/target"
NAME = "openmana"
IQN = "iqn.2026-01.org.openmana:disk"
UUID = "6f70656e-6d61-4e61-8000-0000756c7000"
RAM = "/dev/ram0"
EXPORT = "/srv/nfs"
MOUNT = "/mnt/ulp"
MEGABYTES = 96


def ram_disk(peer: Peer) -> None:
    """/dev/ram0."""
    peer.run(f"[ -e /dev/ram0 ] || modprobe brd rd_nr=1 rd_size={MEGABYTES << 10}")
    peer.run("mountpoint -q /sys/kernel/config || { modprobe configfs; "
             "mount -t configfs configfs /sys/kernel/config; }")


def export_nvme(peer: Peer, options: str = "", disk: str = RAM) -> None:
    """An NVMe target with a disk behind it that is always the same to its hosts; `options` are
    those of nvmet_rdma."""
    ram_disk(peer)
    peer.run(f"""set -e
modprobe nvmet
modprobe nvmet_rdma {options}
cd {NVMET}
mkdir subsystems/{NAME}
echo 1 >subsystems/{NAME}/attr_allow_any_host
mkdir subsystems/{NAME}/namespaces/1
echo {disk} >subsystems/{NAME}/namespaces/1/device_path
echo {UUID} >subsystems/{NAME}/namespaces/1/device_uuid
echo 1 >subsystems/{NAME}/namespaces/1/enable
mkdir ports/1
echo rdma >ports/1/addr_trtype
echo ipv4 >ports/1/addr_adrfam
echo {peer.ip()} >ports/1/addr_traddr
echo 4420 >ports/1/addr_trsvcid
ln -s {NVMET}/subsystems/{NAME} ports/1/subsystems/{NAME}
""")


def withdraw_nvme(peer: Peer) -> None:
    """Takes all of it down again."""
    peer.run(f"""set -e
cd {NVMET}
rm -f ports/1/subsystems/{NAME}
rmdir ports/1
echo 0 >subsystems/{NAME}/namespaces/1/enable
rmdir subsystems/{NAME}/namespaces/1 subsystems/{NAME}
rmmod nvmet_rdma nvmet
""", timeout=90)


def connect_nvme(peer: Peer, server: Peer, patience: float = 90) -> str:
    """Connects a host to the target, which it gives up after `patience` seconds without it;
    returns the block device."""
    peer.run("modprobe nvme_rdma")
    words = (f"transport=rdma,traddr={server.ip()},trsvcid=4420,nqn={NAME},nr_io_queues=2,"
             f"queue_size=32,reconnect_delay=1,ctrl_loss_tmo={patience:.0f},keep_alive_tmo=3")
    peer.run(f"echo '{words}' >/dev/nvme-fabrics", timeout=60)
    peer.until("ls /dev/nvme*n1 >/dev/null 2>&1", "no NVMe disk appeared", 20)
    check(peer.out("cat /sys/class/nvme/*/transport") == "rdma\n", "the disk is not over RDMA")
    return peer.out("ls /dev/nvme*n1").split()[0]


def disconnect_nvme(peer: Peer) -> None:
    """Ends the host's connection."""
    peer.run("echo 1 >$(ls /sys/class/nvme/*/delete_controller)", timeout=60)
    peer.until("! ls /dev/nvme*n1 >/dev/null 2>&1", "the NVMe disk stays", 20)


@contextmanager
def nvme(context: Context) -> Iterator[str]:
    """A disk of the first guest in the second one."""
    export_nvme(context.a)
    try:
        yield connect_nvme(context.b, context.a)
        disconnect_nvme(context.b)
    finally:
        withdraw_nvme(context.a)


def file_system(peer: Peer, disk: str) -> None:
    """Makes a file system, writes, unmounts, reads back and compares; then fio with its own
    verification."""
    peer.run(f"mkfs.ext4 -q -F {disk} && mkdir -p {MOUNT} && mount {disk} {MOUNT}", timeout=60)
    try:
        written = write_files(peer)
        peer.run(f"umount {MOUNT} && echo 3 >/proc/sys/vm/drop_caches && mount {disk} {MOUNT}",
                 timeout=60)
        check(sums(peer) == written, f"{peer.name}: what was read back is not what was written")
        fio(peer)
    finally:
        peer.run(f"umount {MOUNT}", timeout=60)
    peer.run(f"e2fsck -fn {disk}", timeout=60)


def write_files(peer: Peer) -> str:
    """Some files of random bytes and odd sizes; returns their sums, computed before writing."""
    peer.run("mkdir -p /tmp/ulp; for size in 1 511 4096 65537 1000003 12000001; do "
             "head -c $size /dev/urandom >/tmp/ulp/$size; done")
    wanted = peer.out("cd /tmp/ulp && sha256sum *")
    peer.run(f"cp /tmp/ulp/* {MOUNT}/ && sync", timeout=90)
    return wanted


def sums(peer: Peer) -> str:
    """Sums of the files on the mounted file system."""
    return peer.out(f"cd {MOUNT} && sha256sum [0-9]*", timeout=90)


def fio(peer: Peer) -> None:
    """Random writes of several sizes, each block verified."""
    peer.run(f"fio --name=v --directory={MOUNT} --size=12m --rw=randwrite --bsrange=512-64k "
             "--verify=crc32c --verify_fatal=1 --ioengine=psync --direct=0 --fsync_on_close=1 "
             "--minimal >/dev/null", timeout=150)


@AREA.case("NVMe over RDMA: a file system written, read back and compared", timeout=300.0,
           smoke=True)
def nvme_files(context: Context) -> None:
    with nvme(context) as disk:
        file_system(context.b, disk)


@AREA.case("NVMe over RDMA: raw disk, fio with verification and a queue of 16", timeout=300.0)
def nvme_raw(context: Context) -> None:
    with nvme(context) as disk:
        context.b.run(f"fio --name=v --filename={disk} --size=32m --rw=randwrite --bs=16k "
                      "--iodepth=16 --ioengine=libaio --direct=1 --verify=crc32c "
                      "--verify_fatal=1 --minimal >/dev/null", timeout=200)


@AREA.case("NVMe over RDMA: the host's guest crashes, another takes over the disk", timeout=420.0)
def nvme_crash(context: Context) -> None:
    a, b = context.a, context.b
    export_nvme(a)
    try:
        disk = connect_nvme(b, a)
        b.run(f"mkfs.ext4 -q -F {disk} && mkdir -p {MOUNT} && mount {disk} {MOUNT}", timeout=60)
        written = write_files(b)
        b.spawn(f"dd if=/dev/zero of={MOUNT}/more bs=64k oflag=direct")
        b.run("sleep 1")
        b.guest.kill()
        replace(context, b)
        context.end()
        configure(context, b)
        disk = connect_nvme(b, a)
        b.run(f"mkdir -p {MOUNT} && mount {disk} {MOUNT}", timeout=60)
        check(sums(b) == written, "what was synced before the crash is not there")
        b.run(f"umount {MOUNT} && e2fsck -fn {disk}", timeout=60)
        disconnect_nvme(b)
    finally:
        withdraw_nvme(a)


@AREA.case("NVMe over RDMA: a target with shared receives leaves a NIC that was reset",
           timeout=300.0)
def nvme_lost(context: Context) -> None:
    """Who drains a queue pair with an SRQ waits a minute for the event that nothing comes any more;
    a device that was given up sends none."""
    a, b = context.a, context.b
    context.expect_kernel(a, RESET_MESSAGES)
    context.expect_kernel(a, r"nvmet: ctrl \d+ (keep-alive timer .*|fatal error .*)")
    context.expect_kernel(b, r"nvme nvme\d+: .*|block nvme\w+: .*")
    export_nvme(a, "use_srq=1")
    try:
        connect_nvme(b, a)
        check("srqn" in a.out("rdma resource show srq"), "the target has no SRQ")
        number = device_number(a)
        a.run(f"echo 1 >/sys/bus/pci/devices/{address(a)}/reset")
        begin = time.monotonic()
    finally:
        withdraw_nvme(a)
    seconds = time.monotonic() - begin
    context.note(f"{seconds:.0f} s")
    check(seconds < 75 * context.patience, f"the target left the device after {seconds:.0f} s")
    disconnect_nvme(b)
    bring_back(a, number)
    a.until("[ -n \"$(ls -A /sys/class/infiniband)\" ]", "the RDMA device did not come back", 30)
    reload_rdma(b)  # the core keeps CQs for its users
    works(context, a, b)


def export_nfs(peer: Peer, disk: str = RAM, again: bool = False) -> None:
    """A file system on a disk, served over RDMA. `again`: it is there, and clients may come for
    what they had of it."""
    ram_disk(peer)
    peer.run(f"""set -e
modprobe -a nfsd rpcrdma
{"" if again else f"mkfs.ext4 -q -F {disk}"}
mkdir -p {EXPORT} /var/lib/nfs/v4recovery
mount {disk} {EXPORT}
mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
echo '{EXPORT} *(rw,no_root_squash,fsid=0,insecure,no_subtree_check)' >/etc/exports
exportfs -ra
rpc.mountd -N 2 -N 3
""", timeout=90)
    start_nfs(peer, again)


def start_nfs(peer: Peer, again: bool = False) -> None:
    """Starts the server, whose exports are known by then. A kernel that keeps no list of clients
    cannot end the time for their claims early; it lets them wait some seconds."""
    peer.run(f"""set -e
rpc.nfsd -N 3 -G 10 -L 10 --rdma=20049 2
{"" if again else "echo Y >/proc/fs/nfsd/v4_end_grace || true"}
grep -q rdma /proc/fs/nfsd/portlist
""", timeout=90)


def stop_nfs(peer: Peer) -> None:
    """Stops the server; the exports stay."""
    peer.run("rpc.nfsd 0", timeout=60)


def withdraw_nfs(peer: Peer) -> None:
    """Takes all of it down."""
    stop_nfs(peer)
    peer.run(f"exportfs -ua; kill $(pidof rpc.mountd); sleep 0.5; umount {EXPORT}", timeout=60)


def mount_nfs(peer: Peer, server: Peer, options: str = "", at: str = MOUNT) -> None:
    """Mounts what the server exports."""
    peer.run(f"modprobe -a nfsv4 rpcrdma; mkdir -p {at}")
    peer.run(f"mount -t nfs4 -o proto=rdma,port=20049,vers=4.2{options} {server.ip()}:/ {at}",
             timeout=120)
    check("proto=rdma" in peer.out(f"grep {at} /proc/mounts"), "the mount is not over RDMA")
    transports = peer.out("grep 'xprt:' /proc/self/mountstats").split("\n")[:-1]
    check(transports and all(line.split()[1] == "rdma" for line in transports),
          f"transports of NFS: {transports}")


@AREA.case("NFS over RDMA: files written, read back and compared on both sides", timeout=300.0)
def nfs(context: Context) -> None:
    a, b = context.a, context.b
    export_nfs(a)
    try:
        mount_nfs(b, a)
        written = write_files(b)
        b.run(f"umount {MOUNT}", timeout=60)
        mount_nfs(b, a)
        check(sums(b) == written, "what was read back is not what was written")
        check(a.out(f"cd {EXPORT} && sha256sum [0-9]*") == written,
              "the server's files are not what was written")
        fio(b)
        b.run(f"umount {MOUNT}", timeout=60)
    finally:
        b.run(f"umount -f {MOUNT}", timeout=60, check=False)
        withdraw_nfs(a)


GROUP = f"{TARGET}/iscsi/{IQN}/tpgt_1"


def export_iser(peer: Peer, disk: str = RAM) -> None:
    """An iSER target with a disk behind it."""
    ram_disk(peer)
    peer.run(f"""set -e
modprobe -a target_core_mod target_core_iblock iscsi_target_mod ib_isert
mkdir -p {TARGET}/core/iblock_0/disk
echo udev_path={disk} >{TARGET}/core/iblock_0/disk/control
echo {UUID} >{TARGET}/core/iblock_0/disk/wwn/vpd_unit_serial
echo 1 >{TARGET}/core/iblock_0/disk/enable
mkdir -p {TARGET}/iscsi
mkdir -p {GROUP}/lun/lun_0 {GROUP}/np/{peer.ip()}:3260
ln -s {TARGET}/core/iblock_0/disk {GROUP}/lun/lun_0/disk
echo 1 >{GROUP}/np/{peer.ip()}:3260/iser
for setting in authentication=0 generate_node_acls=1 cache_dynamic_acls=1 demo_mode_write_protect=0
do
    echo ${{setting#*=}} >{GROUP}/attrib/${{setting%=*}}
done
echo 1 >{GROUP}/enable
""", timeout=60)


def withdraw_iser(peer: Peer) -> None:
    """Takes all of it down again."""
    peer.run(f"""cd {GROUP} && echo 0 >enable
rm -f lun/lun_0/disk; rmdir np/{peer.ip()}:3260 lun/lun_0; rmdir {GROUP} {TARGET}/iscsi/{IQN} \
{TARGET}/core/iblock_0/disk
rmmod ib_isert iscsi_target_mod target_core_iblock target_core_mod""", timeout=60, check=False)


def connect_iser(peer: Peer, server: Peer) -> str:
    """Logs in to the target, which may be away for long; returns the block device."""
    node = f"iscsiadm -m node -T {IQN} -p {server.ip()}:3260"
    peer.run(f"""set -e
modprobe -a iscsi_tcp ib_iser sd_mod || modprobe -a ib_iser sd_mod
mkdir -p /etc/iscsi /run/lock/iscsi
echo InitiatorName=iqn.2026-01.org.openmana:host >/etc/iscsi/initiatorname.iscsi
pidof iscsid >/dev/null || iscsid
{node} -o new
{node} -o update -n iface.transport_name -v iser
{node} -o update -n node.session.timeo.replacement_timeout -v 1800
{node} --login
""", timeout=90)
    check(peer.out("iscsiadm -m session").startswith("iser: "), "the session is not over RDMA")
    peer.until("ls /dev/sd? >/dev/null 2>&1", "no SCSI disk appeared", 30)
    return peer.out("ls /dev/sd?").split()[0]


def disconnect_iser(peer: Peer) -> None:
    """Logs out."""
    peer.run(f"iscsiadm -m node -T {IQN} --logout", timeout=60)


@contextmanager
def iser_host(peer: Peer) -> Iterator[None]:
    """Leaves no session and no iscsid behind."""
    try:
        yield
    finally:
        peer.run("iscsiadm -m session && timeout 60 iscsiadm -m session --logout; iscsiadm -k 0",
                 timeout=90, check=False)


@AREA.case("iSER: a file system written, read back and compared", timeout=300.0)
def iser(context: Context) -> None:
    a, b = context.a, context.b
    export_iser(a)
    try:
        with iser_host(b):
            file_system(b, connect_iser(b, a))
            disconnect_iser(b)
    finally:
        withdraw_iser(a)


RDS = """
import hashlib, socket, sys
role, own, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
sock = socket.socket(21, socket.SOCK_SEQPACKET)
SOL_RDS, SO_RDS_TRANSPORT, RDS_TRANS_IB = 276, 8, 0
sock.setsockopt(SOL_RDS, SO_RDS_TRANSPORT, RDS_TRANS_IB)  # not TCP, nor what bind() finds
sock.bind((own, port))
def message(number):
    seed = hashlib.sha256(b"%d" % number).digest()
    return (b"%10d" % number + seed * 2048)[:11 + number * 977 % 60000]
def receive():
    data, sender = sock.recvfrom(1 << 20)
    number = int(data[:10])
    if data != message(number):
        sys.exit("message %d is wrong: %d bytes" % (number, len(data)))
    return number, sender
if role == "server":  # message 0 is the last one
    print("ready", flush=True)
    number = 1
    while number:
        number, sender = receive()
        sock.sendto(message(number), sender[:2])
else:
    other, count = (sys.argv[4], int(sys.argv[5])), int(sys.argv[6])
    for number in [*range(1, count + 1), 0]:
        sock.sendto(message(number), other)
        if receive()[0] != number:
            sys.exit("not the answer to message %d" % number)
        if number % 20 == 0:
            print("answered", number, flush=True)
print("compared")
"""


def rds_program(*peers: Peer) -> None:
    """/root/rds.py, and the modules."""
    for peer in peers:
        peer.run("modprobe -a rds rds_rdma", timeout=60)
        peer.guest.put(RDS, "/root/rds.py")


def rds_server(peer: Peer, port: int) -> Any:
    """Answers messages until the last one."""
    server = peer.spawn(f"exec python3 /root/rds.py server {peer.ip()} {port}")
    server.wait_output("ready", 30)
    return server


def rds_end(context: Context) -> None:
    """Its connections stay as long as the module, which does not unload while they are there."""
    context.read_kernel_logs()
    for peer in context.peers:
        peer.guest.reboot()
    configure(context, *context.peers)


@AREA.case("RDS: messages there and back, compared", timeout=200.0)
def rds(context: Context) -> None:
    a, b = context.a, context.b
    rds_program(a, b)
    port = context.port()
    server = rds_server(a, port)
    said = b.out(f"python3 /root/rds.py client {b.ip()} {port} {a.ip()} {port} 100", timeout=120)
    a.finish(server, 60)
    check("compared" in said and "compared" in server.stdout, f"RDS: {said} {server.stdout}")
    info = b.out("cat /proc/net/rds* 2>/dev/null; lsmod | grep rds_rdma")
    check("rds_rdma" in info, "the RDMA transport of RDS is not loaded")
    rds_end(context)

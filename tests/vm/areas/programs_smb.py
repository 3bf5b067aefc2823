# SPDX-License-Identifier: Apache-2.0
"""SMB Direct: the kernel's SMB server (ksmbd) and client (cifs) by RDMA. Debian's kernels have both
without it; they are built of Debian's source with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from areas import ulp
from harness import Area, Context, Peer, check
from programs import configure, quick_rdma

from lab import extras, smb
from lab.errors import LabError

AREA = Area("programs_smb", needs=("driver",))
LIMIT = 1500.0  # the first case builds the modules, and fetches the programs
SHARE = "/srv/smb"
USER, PASSWORD = "root", "openmana"
PORT = 445  # of SMB Direct with RoCE and InfiniBand
# What they say of every connection, as if of errors. The client tries iWARP's port first.
MESSAGES = (r"ksmbd: smb_direct: disconnected|"
            r"CIFS: VFS: (RDMA transport established|_smbd_get_connection:\d+ "
            r"(rdma_connect failed port=5445|connect to \S+:5445 failed: -ENODEV))")
CONFIG = f"""[global]
\tserver string = openmana
\tserver signing = disabled
[lab]
\tpath = {SHARE}
\tread only = no
"""


@contextmanager
def served(context: Context, peer: Peer) -> Iterator[None]:
    """A share on a file system in memory."""
    ulp.ram_disk(peer)
    peer.run(f"mkfs.ext4 -q -F {ulp.RAM} && mkdir -p {SHARE} /etc/ksmbd && "
             f"mount {ulp.RAM} {SHARE} && chmod 777 {SHARE}", timeout=60)
    peer.guest.put(CONFIG, "/etc/ksmbd/ksmbd.conf", 0o644)
    try:
        peer.run(smb.load("ksmbd"), timeout=60)
        peer.run(f"ksmbd.adduser -a -p {PASSWORD} {USER}")
        daemon = peer.spawn("exec ksmbd.mountd -n")
        peer.wait_listening(PORT, daemon)
        peer.until(f"rdma resource show cm_id | grep LISTEN | grep -q ':{PORT} '",
                   "ksmbd does not listen by rdma_cm", 30)
        yield
    finally:
        peer.run("ksmbd.control -s", timeout=60, check=False)
        peer.until(smb.unload("ksmbd"), "ksmbd stays", 30)
        peer.run(f"umount {SHARE}", check=False)


@AREA.case("SMB Direct: a file system mounted by RDMA, written, read back and compared",
           timeout=LIMIT, long=True)
def files(context: Context) -> None:
    server, client = context.a, context.b
    if context.kernel != "stock":
        context.cannot("SMB Direct (ksmbd, cifs)", "the debug kernels have nothing of SMB")
    try:
        for peer in (server, client):
            smb.install(peer.guest)
            context.expect_kernel(peer, MESSAGES)
    except LabError as error:
        context.cannot("SMB Direct (ksmbd, cifs)", str(error))
    options = f"rdma,vers=3.1.1,username={USER},password={PASSWORD}"
    context.ran("SMB Direct (ksmbd, cifs)", extras.version(smb.programs(), "ksmbd-tools"),
                f"mount.cifs //{server.ip()}/lab {ulp.MOUNT} -o {options}")
    mount = f"mkdir -p {ulp.MOUNT} && {context.programs[-1]['command']}"
    with served(context, server):
        before = client.counters()
        client.run(smb.load("cifs"), timeout=60)
        client.run(mount, timeout=90)
        try:
            written = ulp.write_files(client)
            client.run(f"umount {ulp.MOUNT} && echo 3 >/proc/sys/vm/drop_caches && {mount}",
                       timeout=90)
            middle = client.counters()
            check(ulp.sums(client) == written, "what was read back is not what was written")
            there = server.out(f"cd {SHARE} && sha256sum [0-9]*")
            check(there == written, "on the server there is not what was written")
            after = client.counters()
            ulp.fio(client)
        finally:
            client.run(f"umount {ulp.MOUNT}", timeout=60, check=False)
        client.until(smb.unload("cifs"), "cifs stays", 30)
    size = sum(int(line.split()[1]) for line in written.splitlines())
    sent = middle["rnic.tx.bytes"] - before["rnic.tx.bytes"]
    came = after["rnic.rx.bytes"] - middle["rnic.rx.bytes"]
    reads = middle["rnic.rx.reads"] - before["rnic.rx.reads"]
    writes = after["rnic.rx.writes"] - middle["rnic.rx.writes"]
    check(sent >= size and came >= size and reads and writes, f"of files of {size} bytes {sent} "
          f"were sent by RDMA, {came} came; the server did {reads} READs and {writes} WRITEs")
    context.note(f"{size} bytes in files compared: {sent} sent by RDMA ({reads} READs), {came} "
                 f"came ({writes} WRITEs); fio verified")
    configure(context, server, client)
    quick_rdma(context)

# SPDX-License-Identifier: Apache-2.0
"""Kernel users of RDMA when one end goes under I/O: servers that are restarted, guests that crash.
The server is the first guest, with a disk that the next guest in its place has again. What writes
all the time, and knows what must be there, is keep_writing.py."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from areas import ulp
from areas.lifecycle import reload_rdma, replace
from harness import Area, Context, Peer, check
from lab.errors import LabError
from programs import configure

AREA = Area("ulp_crash", needs=("driver",))
DISK = "/dev/vdb"
FILE = f"{ulp.MOUNT}/kept"
# What hosts say of a target that is away, targets of hosts that come too early or are gone, a new
# NFS server of clients that the old one knew, and RDS of both ends that connect at once.
NVME_HOST = r"nvme nvme\d+: .*|block nvme\w+: .*"
ISER_HOST = (r"connection\d+:\d+: (detected conn error \(\d+\)|ping timeout .*)|"
             r"iser: iser_cleanup_handler: .*")
ISER_TARGET = (r"Unable to locate Target Portal Group on .*|iSCSI Login negotiation failed\.|"
               r"isert: isert_get_login_rx: .* interrupted before got login req")
NFS_SERVER = r"NFSD: Failed to remove expired client state directory \w+"
RDS_CONNECTION = r"RDS/RDMA: conn <.*> rejected, dropping connection"
SOURCE = Path(__file__).resolve().parents[1] / "keep_writing.py"
PROGRAM = "/root/keep_writing.py"


@dataclass(frozen=True)
class Answer:
    """What the program says of itself: workers that wait, and the whole passes of each."""

    waiting: int
    passes: tuple[int, ...]

    def beyond(self, other: Answer) -> bool:
        """Whether each worker has another pass behind it."""
        return all(mine > theirs for mine, theirs in zip(self.passes, other.passes))


class Writer:
    """keep_writing.py at work in a guest."""

    def __init__(self, context: Context, peer: Peer, path: str) -> None:
        peer.guest.put(SOURCE, PROGRAM)
        self._peer = peer
        self._patience = context.patience
        self._asked = 0
        self._started = peer.spawn(["python3", PROGRAM, "write", path], stdin=True)

    def ask(self) -> Answer:
        """How far it is."""
        self._asked += 1
        end = f"answer {self._asked}\n"
        self._started.write(f"{self._asked}\n".encode())
        self._started.wait_output(end, 30)
        found = re.search(rf"waiting (\d+) passes ([\d ]+) {end}", self._started.stdout)
        check(found, f"{self._peer.name}: it said {self._started.stdout[-200:]}")
        assert found is not None
        return Answer(int(found[1]), tuple(map(int, found[2].split())))

    def goes_on(self, timeout: float = 60.0) -> Answer:
        """Waits until all of it has gone on, and is in the middle of I/O."""
        first = self.ask()
        end = time.monotonic() + timeout * self._patience
        while True:
            now = self.ask()
            if now.waiting and now.beyond(first):
                return now
            check(time.monotonic() < end, f"{self._peer.name}: writing does not go on: {first}, "
                  f"after {timeout * self._patience:.0f} s {now}")
            time.sleep(0.1)

    def stands(self, timeout: float = 30.0) -> None:
        """Waits until all of it has waited for some seconds: what it wrote to is away."""
        end = time.monotonic() + timeout * self._patience
        last = self.ask()
        while True:
            time.sleep(2 * self._patience)
            now = self.ask()
            if now == last and now.waiting == len(now.passes):
                return
            check(time.monotonic() < end, f"{self._peer.name}: writing does not stop: {now}")
            last = now

    def fails(self, timeout: float = 60.0) -> None:
        """It ends with an error of the file, and soon."""
        status = self._peer.finish(self._started, timeout, check=False)
        said = self._started.stderr
        check(status == 1 and re.search(r"block \d+ of pass \d+: \[Errno \d+\]", said),
              f"{self._peer.name}: the program ended with status {status}: {said[-300:]}")

    def finish(self) -> Answer:
        """Ends it; everything is what was written last."""
        last = self.ask()
        self._started.close_stdin()
        self._peer.finish(self._started, 120)
        check("compared" in self._started.stdout, f"{self._peer.name}: nothing was compared")
        return last


def is_there(peer: Peer, path: str, least: Answer) -> None:
    """What whole passes wrote is there."""
    peer.guest.put(SOURCE, PROGRAM)
    peer.run(["python3", PROGRAM, "check", path, *map(str, least.passes)], timeout=90)


def write_for_a_while(context: Context, peer: Peer, path: str) -> Answer:
    """Writes some passes and compares them."""
    writer = Writer(context, peer, path)
    writer.goes_on()
    return writer.finish()


@contextmanager
def crashed(context: Context, peer: Peer) -> Iterator[None]:
    """A guest is killed, as a crash would end it; afterwards a new one is in its place."""
    peer.guest.kill()
    try:
        yield
    finally:
        replace(context, peer)
        configure(context, peer)


@contextmanager
def served(context: Context, export: Callable[..., None], withdraw: Callable[[Peer], None]
           ) -> Iterator[None]:
    """The first guest serves its disk. What follows a failure does not hide it."""
    export(context.a, disk=DISK)
    try:
        yield
    except BaseException:
        with suppress(LabError):
            withdraw(context.a)
        raise
    withdraw(context.a)
    for peer in context.peers:
        reload_rdma(peer)  # nobody uses it any more, but the core keeps CQs for its users
    context.read_kernel_logs()  # the next case may end the guest that survived this one


@contextmanager
def mounted(peer: Peer, server: Peer, options: str = "") -> Iterator[None]:
    """The server's export is mounted; it is gone afterwards, whatever happened."""
    ulp.mount_nfs(peer, server, options)
    try:
        yield
        peer.run(f"umount {ulp.MOUNT}", timeout=60)
    finally:
        peer.run(f"umount -f {ulp.MOUNT} 2>/dev/null; umount -l {ulp.MOUNT} 2>/dev/null",
                 timeout=60, check=False)


def whole(server: Peer) -> None:
    """The file system of the server's disk, which nobody uses."""
    server.run(f"e2fsck -fn {DISK}", timeout=60)


@AREA.case("NFS over RDMA: the server goes and comes back under I/O", timeout=300.0)
def nfs_restart(context: Context) -> None:
    a, b = context.a, context.b
    with served(context, ulp.export_nfs, ulp.withdraw_nfs):
        with mounted(b, a):
            writer = Writer(context, b, FILE)
            writer.goes_on()
            for _ in range(2):
                ulp.stop_nfs(a)
                writer.stands()
                ulp.start_nfs(a, again=True)
                writer.goes_on(90)
            last = writer.finish()
        is_there(a, f"{ulp.EXPORT}/kept", last)
    whole(a)


@AREA.case("NFS over RDMA: the client's guest crashes in I/O, another one finds what was synced",
           timeout=420.0)
def nfs_client_crash(context: Context) -> None:
    a, b = context.a, context.b
    with served(context, ulp.export_nfs, ulp.withdraw_nfs):
        ulp.mount_nfs(b, a)
        written = ulp.write_files(b)
        synced = Writer(context, b, FILE).goes_on()
        with crashed(context, b):
            is_there(a, f"{ulp.EXPORT}/kept", synced)
        with mounted(b, a):
            check(ulp.sums(b) == written, "what was synced before the crash is not there")
            is_there(b, FILE, synced)
            write_for_a_while(context, b, FILE)
    whole(a)


@AREA.case("NFS over RDMA: the server's guest crashes under I/O, which goes on with another one",
           timeout=420.0)
def nfs_server_crash(context: Context) -> None:
    a, b = context.a, context.b
    context.expect_kernel(a, NFS_SERVER)
    with served(context, ulp.export_nfs, ulp.withdraw_nfs):
        with mounted(b, a):
            writer = Writer(context, b, FILE)
            synced = writer.goes_on()
            with crashed(context, a):
                writer.stands()
            ulp.export_nfs(a, DISK, again=True)
            is_there(a, f"{ulp.EXPORT}/kept", synced)
            writer.goes_on(150)
            writer.finish()
    whole(a)


@AREA.case("NFS over RDMA: the server's guest crashes: a soft mount says so, umount -f ends what "
           "waits, a new mount works", timeout=420.0)
def nfs_given_up(context: Context) -> None:
    a, b = context.a, context.b
    soft = "/mnt/soft"
    context.expect_kernel(a, NFS_SERVER)
    with served(context, ulp.export_nfs, ulp.withdraw_nfs):
        with mounted(b, a):
            ulp.mount_nfs(b, a, ",soft,timeo=30,retrans=1,nosharecache", soft)
            writer = Writer(context, b, FILE)
            synced = writer.goes_on()
            with crashed(context, a):
                writer.stands()
                result = b.run(f"head -c 1 {soft}/kept", timeout=90, check=False)
                check(result.status == 1 and "error" in result.stderr,
                      f"a soft mount said {result.stdout} {result.stderr}")
                for at in (soft, ulp.MOUNT):  # each ends what waits, the last one finds it unused
                    b.until(f"umount -f {at} 2>/dev/null; ! grep -q ' {at} ' /proc/mounts",
                            f"{at} stays", 60)
                writer.fails()
            ulp.export_nfs(a, DISK, again=True)
            ulp.mount_nfs(b, a)
            is_there(b, FILE, synced)
            write_for_a_while(context, b, FILE)
    whole(a)


@AREA.case("NVMe over RDMA: the target goes and comes back under I/O", timeout=300.0)
def nvme_restart(context: Context) -> None:
    a, b = context.a, context.b
    link = f"{ulp.NVMET}/ports/1/subsystems/{ulp.NAME}"
    context.expect_kernel(b, NVME_HOST)
    with served(context, ulp.export_nvme, ulp.withdraw_nvme):
        writer = Writer(context, b, ulp.connect_nvme(b, a))
        for _ in range(2):
            writer.goes_on()
            a.run(f"rm {link}", timeout=60)
            writer.stands()
            a.run(f"ln -s {ulp.NVMET}/subsystems/{ulp.NAME} {link}", timeout=60)
        writer.goes_on()
        last = writer.finish()
        ulp.disconnect_nvme(b)
        is_there(a, DISK, last)


@AREA.case("NVMe over RDMA: the target's guest crashes under I/O, which goes on with another one",
           timeout=420.0)
def nvme_target_crash(context: Context) -> None:
    a, b = context.a, context.b
    context.expect_kernel(b, NVME_HOST)
    with served(context, ulp.export_nvme, ulp.withdraw_nvme):
        disk = ulp.connect_nvme(b, a, patience=180 * context.patience)
        writer = Writer(context, b, disk)
        synced = writer.goes_on()
        with crashed(context, a):
            writer.stands()
            b.until('[ "$(cat /sys/class/nvme/*/state)" = connecting ]',
                    "the host did not notice", 30)
        is_there(a, DISK, synced)
        ulp.export_nvme(a, disk=DISK)
        writer.goes_on(150)  # a try that began without anybody there has to end first
        last = writer.finish()
        ulp.disconnect_nvme(b)
        is_there(a, DISK, last)


@AREA.case("NVMe over RDMA: the target's guest crashes, I/O fails in time, a new connection finds "
           "what was synced", timeout=540.0)
def nvme_target_lost(context: Context) -> None:
    """The host tries once more before it gives up, which takes the connection manager a minute and
    more when nobody answers."""
    a, b = context.a, context.b
    context.expect_kernel(b, NVME_HOST)
    with served(context, ulp.export_nvme, ulp.withdraw_nvme):
        writer = Writer(context, b, ulp.connect_nvme(b, a, patience=1))
        synced = writer.goes_on()
        with crashed(context, a):
            writer.fails(240)
            b.until("! ls /dev/nvme*n1 /sys/class/nvme/* >/dev/null 2>&1", "the disk stays", 30)
        ulp.export_nvme(a, disk=DISK)
        disk = ulp.connect_nvme(b, a)
        is_there(b, disk, synced)
        write_for_a_while(context, b, disk)
        ulp.disconnect_nvme(b)


@AREA.case("iSER: the target goes and comes back under I/O", timeout=300.0)
def iser_restart(context: Context) -> None:
    a, b = context.a, context.b
    context.expect_kernel(b, ISER_HOST)
    context.expect_kernel(a, ISER_TARGET)
    with served(context, ulp.export_iser, ulp.withdraw_iser):
        with ulp.iser_host(b):
            writer = Writer(context, b, ulp.connect_iser(b, a))
            writer.goes_on()
            a.run(f"echo 0 >{ulp.GROUP}/enable", timeout=60)
            writer.stands()
            a.run(f"echo 1 >{ulp.GROUP}/enable")
            writer.goes_on(90)
            last = writer.finish()
            ulp.disconnect_iser(b)
        is_there(a, DISK, last)


@AREA.case("iSER: the target's guest crashes under I/O, which goes on with another one",
           timeout=420.0)
def iser_target_crash(context: Context) -> None:
    a, b = context.a, context.b
    context.expect_kernel(b, ISER_HOST)
    context.expect_kernel(a, ISER_TARGET)
    with served(context, ulp.export_iser, ulp.withdraw_iser):
        with ulp.iser_host(b):
            writer = Writer(context, b, ulp.connect_iser(b, a))
            synced = writer.goes_on()
            with crashed(context, a):
                writer.stands()
            is_there(a, DISK, synced)
            ulp.export_iser(a, DISK)
            writer.goes_on(150)
            writer.finish()
            ulp.disconnect_iser(b)


@AREA.case("iSER: the initiator's guest crashes in I/O, another one finds what was synced",
           timeout=420.0)
def iser_initiator_crash(context: Context) -> None:
    a, b = context.a, context.b
    context.expect_kernel(a, ISER_TARGET)
    with served(context, ulp.export_iser, ulp.withdraw_iser):
        synced = Writer(context, b, ulp.connect_iser(b, a)).goes_on()
        with crashed(context, b):
            pass
        with ulp.iser_host(b):
            disk = ulp.connect_iser(b, a)
            is_there(b, disk, synced)
            write_for_a_while(context, b, disk)
            ulp.disconnect_iser(b)


@AREA.case("RDS: a guest crashes among messages, the other one answers the next", timeout=420.0)
def rds_crash(context: Context) -> None:
    a, b = context.a, context.b
    for peer in (a, b):
        context.expect_kernel(peer, RDS_CONNECTION)
    ulp.rds_program(a, b)
    port = context.port()
    server = ulp.rds_server(a, port)

    def client(count: int) -> list[str]:
        return ["python3", "/root/rds.py", "client", b.ip(), str(context.port()), a.ip(),
                str(port), str(count)]

    messages = b.spawn(client(1000000))
    messages.wait_output("answered 100\n", 60)
    with crashed(context, b):
        check(isinstance(messages.error, LabError), "the messages were at their end")
        check(server.status is None, f"the server ended: {server.stderr}")
    ulp.rds_program(b)
    check("compared" in b.out(client(100), timeout=120), "RDS: nothing was compared")
    a.finish(server, 60)
    ulp.rds_end(context)

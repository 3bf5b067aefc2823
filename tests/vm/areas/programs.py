# SPDX-License-Identifier: Apache-2.0
"""Programs that use verbs and that no one here wrote, from Debian's packages.

UCX: what MPI and many others stand on. `ucx_perftest` runs over datagrams (`ud`) and over
connections (`rc`, which it makes by datagrams), and over no other transport, so that what is seen
is the NIC's.

fio: its engine `rdma` connects by rdma_cm and allows no RNR retry. With the verb `send` the server
keeps as many receives as the client has messages under way, and posts each one again when it has
seen what came: the client, whose messages are acknowledged before that, is often ahead of it.

Exporters, and perftest with counters: they read `ports/N/counters` of every RDMA device there is.
"""

from __future__ import annotations

import json
import re
import time
from functools import partial
from typing import Any

from harness import Area, CaseFailed, Context, Peer, check, skip
from programs import perftest as bandwidth
from programs import configure, gid_index, ping

from lab import extras

AREA = Area("programs", needs=("driver", "provider"))
FOLDER = "/root/ucx"
# forky's libucx0 (1.23.0~rc1-1) is built without verbs: trixie's runs there, too.
SUITE = "trixie"
PACKAGES = ("ucx-utils",)
FILES = ("usr/bin/ucx_perftest", "usr/bin/ucx_info", "usr/lib/x86_64-linux-gnu/ucx/libuct_ib.so.0")
# Runs a command in a terminal; forky's guests have no script(1).
TERMINAL = ("python3 -c 'import os, pty, sys; "
            "sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))'")
LIMIT = 600.0  # the first case may fetch the packages
# Protocols change with the size of a message; the biggest is cut into many packets.
SIZES = (1, 8192, 4 << 20)
UCP_TESTS = ("tag_lat", "tag_bw", "tag_sync_lat", "stream_lat", "stream_bw", "ucp_am_lat",
             "ucp_am_bw", "ucp_put_lat", "ucp_put_bw", "ucp_get")
ATOMICS = ("ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap")


def install(peer: Peer) -> None:
    """UCX's programs and libraries in a guest."""
    if peer.run(f"test -x {FOLDER}/ucx_perftest", check=False).status != 0:
        extras.unpack(peer.guest, extras.archive(SUITE, PACKAGES, FILES), FOLDER)


def environment(peer: Peer, transports: str) -> str:
    """UCX's settings, in front of a command."""
    return (f"LD_LIBRARY_PATH={FOLDER} UCX_MODULE_DIR={FOLDER} UCX_TLS={transports} "
            f"UCX_NET_DEVICES={peer.rdma}:1 UCX_WARN_UNUSED_ENV_VARS=n")


def perftest(context: Context, transports: str, *options: str, timeout: float = 120.0) -> list[str]:
    """ucx_perftest between both guests, in a terminal, as its user has one: what its table says of
    all iterations."""
    server, client = context.a, context.b
    for peer in (server, client):
        install(peer)
    port = context.port()

    def command(peer: Peer, *words: str) -> str:
        return " ".join([environment(peer, transports), TERMINAL, f"{FOLDER}/ucx_perftest", "-p",
                         str(port), *words, "</dev/null"])

    listener = server.spawn(command(server))
    server.wait_listening(port, listener)
    done = client.run(command(client, *options, server.ip()), timeout=timeout, check=False)
    said = re.sub(r"[\r\n]+", "\n", done.stdout)
    if done.status != 0 or "ERROR" in said:
        raise CaseFailed(f"{client.name}: ucx_perftest {' '.join(options)} over {transports} ended "
                         f"with status {done.status}: {said.strip()[-400:]}")
    server.finish(listener, 30)
    rows = re.findall(r"^Final:.*", said, re.M)
    check(rows, f"ucx_perftest {' '.join(options)} over {transports} printed no result: "
          f"{said.strip()[-400:]}")
    return str(rows[-1]).split()


def ucx(transports: str, test: str, sizes: tuple[int, ...], iterations: int, context: Context
        ) -> None:
    """One test of ucx_perftest over each of some sizes."""
    if not context.has("ext"):
        skip("UCX's rc takes its receives from an SRQ, and its ud arms CQs for solicited events "
             "alone: the public ABI has neither")
    figures = []
    for size in sizes:
        count = max(20, iterations if size < 65536 else iterations // 20)
        row = perftest(context, transports, "-t", test, "-s", str(size), "-n", str(count), "-w",
                       "10")
        figures.append(f"{size} B: {row[2]} us")
    context.note(", ".join(figures))


def fio_command(peer: Peer, *words: str) -> str:
    """fio with the engine `rdma`."""
    return " ".join(["fio", "--name=rdma", "--ioengine=rdma", "--iodepth=16", "--thread",
                     "--output-format=json", *words, "</dev/null"])


def fio_report(said: str) -> Any:
    """The job of its report, behind the lines that it prints before."""
    return json.loads(said[said.index("{"):])["jobs"][0]


def fio(verb: str, block: str, megabytes: int, context: Context) -> None:
    """Moves bytes from client to server (`read`: back); both ends count the same."""
    server, client = context.a, context.b
    port = context.port()
    size = (f"--port={port}", f"--bs={block}", f"--size={megabytes}m")
    listener = server.spawn(fio_command(server, "--rw=read", *size))
    server.until(f"rdma resource show cm_id | grep LISTEN | grep -q ':{port} '",
                 "fio does not listen", 30)
    done = client.run(fio_command(client, f"--hostname={server.ip()}", f"--verb={verb}",
                                  "--rw=write", *size), timeout=100, check=False)
    if done.status != 0:
        raise CaseFailed(f"{client.name}: fio --verb={verb} ended with status {done.status}: "
                         f"{(done.stderr + done.stdout).strip()[-400:]}")
    server.finish(listener, 30)
    sent = fio_report(done.stdout)
    check(sent["error"] == 0, f"fio --verb={verb}: error {sent['error']}")
    moved = sent["write"]["io_bytes"]
    check(moved == megabytes << 20, f"fio --verb={verb}: the client moved {moved} bytes")
    if verb == "send":
        got = fio_report(listener.stdout)["read"]["io_bytes"]
        check(got == moved, f"fio --verb=send: the server got {got} of {moved} bytes")
    context.note(f"{sent['write']['bw']} KiB/s")


for _verb in ("send", "write", "read"):
    AREA.add(f"fio --ioengine=rdma --verb={_verb}, 64 KiB, 16 under way",
             partial(fio, _verb, "64k", 64), timeout=240.0, smoke=_verb == "send")
AREA.add("fio --ioengine=rdma --verb=send, 4 KiB, 16 under way", partial(fio, "send", "4k", 16),
         timeout=240.0)
for _transports in ("ud", "rc", "rc,ud"):
    AREA.add(f"ucx_perftest -t tag_lat over {_transports}",
             partial(ucx, f"{_transports},self", "tag_lat", SIZES, 1000), timeout=LIMIT)
for _transports in ("ud", "rc"):
    for _test in UCP_TESTS:
        if _test != "tag_lat":
            AREA.add(f"ucx_perftest -t {_test} over {_transports}",
                     partial(ucx, f"{_transports},self", _test, SIZES, 1000), timeout=LIMIT,
                     long=True)
    for _test in ATOMICS:
        AREA.add(f"ucx_perftest -t {_test} over {_transports}",
                 partial(ucx, f"{_transports},self", _test, (8,), 1000), timeout=LIMIT, long=True)


EXPORTER = "/root/exporter"
SCRAPE = ("python3 -c 'import sys, urllib.request; "
          "print(urllib.request.urlopen(sys.argv[1], timeout=60).read().decode())'")
MESSAGE, MESSAGES = 65536, 500
# The port's own figures follow the last packet within this time (kernel/pma.c).
SETTLED = 0.1


def start_exporter(context: Context, peer: Peer) -> int:
    """Debian's node_exporter with the InfiniBand collector alone; the port that it listens at."""
    program = f"{EXPORTER}/prometheus-node-exporter"
    if peer.run(f"test -x {program}", check=False).status != 0:
        extras.unpack(peer.guest, extras.archive("trixie", ("prometheus-node-exporter",),
                                                 ("usr/bin/prometheus-node-exporter",)), EXPORTER)
    port = context.port()
    exporter = peer.spawn([program, "--collector.disable-defaults", "--collector.infiniband",
                           f"--web.listen-address=127.0.0.1:{port}"])
    peer.wait_listening(port, exporter)
    return port


def scrape(peer: Peer, port: int) -> dict[tuple[str, str], float]:
    """What the exporter says: name of a metric, device -> value. Its collector must succeed."""
    time.sleep(SETTLED)
    text = peer.out(f"{SCRAPE} http://127.0.0.1:{port}/metrics", timeout=90)
    success = re.search(r'^node_scrape_collector_success{collector="infiniband"} (\d)$', text, re.M)
    check(success and success[1] == "1", f"{peer.name}: the exporter's collector of InfiniBand "
          f"failed: {success[0] if success else text[-300:]}")
    return {(name, device): float(value) for name, device, value in re.findall(
        r'^node_infiniband_(\w+?)(?:_total)?{device="(\w+)",port="1"} (\S+)$', text, re.M)}


def moved(peer: Peer, before: dict[tuple[str, str], float], after: dict[tuple[str, str], float],
          name: str, device: str, least: float) -> float:
    """By how much a counter of a device rose; it must have by `least`."""
    check((name, device) in before, f"{peer.name}: the exporter has no {name} of {device}, only "
          f"{sorted(one for one, other in before if other == device)}")
    by = after[name, device] - before[name, device]
    check(by >= least, f"{peer.name}: {name} of {device} rose by {by:.0f}, not by {least:.0f}")
    return by


@AREA.case("node_exporter's InfiniBand collector succeeds, and its counters move", timeout=LIMIT,
           smoke=True)
def exporter(context: Context) -> None:
    server, client = context.a, context.b
    ports = {peer.index: start_exporter(context, peer) for peer in (server, client)}
    before = {peer.index: scrape(peer, ports[peer.index]) for peer in (server, client)}
    bandwidth(context, "ib_write_bw", "-s", str(MESSAGE), "-n", str(MESSAGES))
    ping(client, server.ip(), count=10)
    for peer, data, packets in (
            (client, "port_data_transmitted_bytes", "port_packets_transmitted"),
            (server, "port_data_received_bytes", "port_packets_received")):
        old, new = before[peer.index], scrape(peer, ports[peer.index])
        by = moved(peer, old, new, data, peer.rdma, MESSAGE * MESSAGES)
        moved(peer, old, new, packets, peer.rdma, MESSAGES)
        context.note(f"{peer.name}: {data} rose by {by:.0f}")
        # 7.2 has a device for raw packets beside it, whose port is the interface's.
        for device in peer.out("ls /sys/class/infiniband").split():
            if device.startswith("manae_"):
                moved(peer, old, new, data, device, 10 * 64)
                for name in (packets, packets.replace("port_packets", "unicast_packets")):
                    moved(peer, old, new, name, device, 10)


@AREA.case("perftest reports what it moved by counters of the port (-W)", smoke=True)
def reported(context: Context) -> None:
    names = ("port_xmit_data", "port_rcv_packets", "port_xmit_wait", "symbol_error")
    port = context.port()
    words = ["ib_write_bw", "-F", "-s", str(MESSAGE), "-n", str(MESSAGES), "-p", str(port), "-W",
             ",".join(f"counters/{name}" for name in names)]
    server, client = context.a, context.b
    listener = server.spawn([*words, "-d", server.rdma])
    server.wait_listening(port, listener)
    done = client.run([*words, "-d", client.rdma, server.ip()], timeout=90, check=False)
    check(done.status == 0, f"{client.name}: {' '.join(words)} ended with status {done.status}: "
          f"{(done.stderr or done.stdout).strip()[-300:]}")
    server.finish(listener, 30)
    for peer, said, name, least in (
            (client, done.stdout, "port_xmit_data", MESSAGE * MESSAGES // 4),
            (server, listener.stdout, "port_rcv_packets", MESSAGES)):
        found = {one: int(value) for one, value in
                 re.findall(r"counters/(\w+)=(\d+)$", said, re.M)}
        check(set(found) == set(names), f"{peer.name}: of {names} perftest reports {found}")
        check(found[name] >= least, f"{peer.name}: {name} rose by {found[name]}, not by {least}")


def counter(peer: Peer, name: str, device: str | None = None) -> int:
    """A counter of the port, as sysfs has it."""
    time.sleep(SETTLED)
    return int(peer.out(f"cat /sys/class/infiniband/{device or peer.rdma}/ports/1/counters/{name}"))


@AREA.case("a port counts how often its link went down")
def link_downed(context: Context) -> None:
    peer = context.b
    before = counter(peer, "link_downed")
    carrier = f"/sys/class/net/{peer.interface}/carrier"
    if peer.suite == "trixie":  # 6.12 does not listen to the device, but sets it down itself
        peer.run(f"ip link set {peer.interface} down")
    else:
        peer.manactl("link", peer.in_manad, "down")
        peer.until(f"grep -qx 0 {carrier}", "the link stays up")
    try:
        after = counter(peer, "link_downed")
    finally:
        if peer.suite == "trixie":
            peer.run(f"ip link set {peer.interface} up")
        else:
            peer.manactl("link", peer.in_manad, "up")
            peer.until(f"grep -qx 1 {carrier}", "the link stays down")
        configure(context, peer)
    check(after == before + 1, f"{peer.name}: link_downed was {before} and is {after}")


DIAGS = "/root/diags"
UNSUPPORTED = "status 0xc"  # method or attribute


@AREA.case("perfquery comes as far as with Soft-RoCE, and no neighbour is told a port's counters",
           timeout=LIMIT)
def perfquery(context: Context) -> None:
    """perfquery knows ports of InfiniBand alone. A datagram of our own asks."""
    peer, other = context.b, context.a
    extras.unpack(peer.guest, extras.archive("trixie", ("infiniband-diags",),
                                             ("usr/sbin/perfquery",)), DIAGS)
    peer.run("modprobe ib_umad")
    umad = peer.out(f"grep -lx {peer.rdma} /sys/class/infiniband_mad/umad*/ibdev").split("/")[4]
    peer.run(f"modprobe rdma_rxe && rdma link add rxe9 type rxe netdev {peer.interface}")
    said = {}
    try:
        for name in (peer.rdma, "rxe9"):
            done = peer.run(f"LD_LIBRARY_PATH={DIAGS} {DIAGS}/perfquery -C {name} -P 1",
                            check=False)
            text = (done.stdout + done.stderr).replace(name, "DEVICE")
            said[name] = (done.status, re.sub(r"\[\d+\]", "[PID]", text).strip())
    finally:
        peer.run("rdma link delete rxe9")
    check(said[peer.rdma] == said["rxe9"], f"perfquery says of {peer.rdma} what it does not say of "
          f"Soft-RoCE: {said}")
    context.note(f"perfquery: {said[peer.rdma][1][-200:]}")
    # Over IPv4 the kernel compares the answer's source with what is no GID, and finds no question.
    ping(peer, other.ip(6))  # the kernel gives its neighbour a second
    asked = peer.out([context.program(peer, "pma_get.c"), f"/dev/infiniband/{umad}",
                      str(gid_index(peer, 6)), other.ip(6)])
    check(asked.strip() == UNSUPPORTED, f"{peer.name} asked {other.name} for the counters of its "
          f"port, and was told: {asked.strip()}; expected {UNSUPPORTED}")

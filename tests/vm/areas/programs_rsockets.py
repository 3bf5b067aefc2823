# SPDX-License-Identifier: Apache-2.0
"""Programs for TCP over rsockets: librspreload of rdma-core makes rsockets of their sockets.

What it does not know of a program's calls (epoll, accept4() and some more) is in rsocket_calls.c,
and so is what keeps programs from two faults of rsockets with which they wait for ever, with
Soft-RoCE as well: until rdma-core 63 rpoll() counts a caller whose time is up as one that waits,
and a connection that is made while the program goes on is made by two threads without a lock.

rpoll() looks at its CQs after five seconds, or a half, if no event came. Here it waits longer than
a case may take, so that a lost event fails the case."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from harness import Area, Context, Peer, check

from lab import extras

AREA = Area("programs_rsockets")
PRELOAD = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"
LIMIT = 300.0  # a case may fetch packages
CONFIG = "/etc/rdma/rsocket"
REQUESTS, CLIENTS, VALUE = 1000, 8, 2000
REDIS, MEMCACHED, MEMCSLAP = "/root/redis", "/root/memcached", "/root/memcslap"
MEGABYTES = 200


def ready(context: Context, program: str) -> None:
    """Skips where there are no rsockets, or none that can send."""
    if not context.has("provider"):
        context.cannot(program, "rsockets send inline data without a key; the stock provider "
                       "grants inline data and then sends by key")
    if not context.has("driver") and any(peer.suite == "trixie" for peer in context.peers):
        context.cannot(program, "the stock driver of kernel 6.12 has no QP1, so no connection "
                       "manager")


def unpacked(peer: Peer, packages: tuple[str, ...], files: tuple[str, ...], folder: str) -> str:
    """Programs of packages in a guest; gives the first package with its version."""
    tar = extras.archive("trixie", packages, files)
    if peer.run(f"test -d {folder}", check=False).status != 0:
        extras.unpack(peer.guest, tar, folder)
    return extras.version(tar, packages[0])


def over_rsockets(peer: Peer, folder: str = "") -> str:
    """Words in front of a program whose sockets are to be rsockets."""
    source = Path(__file__).resolve().parents[1] / "rsocket_calls.c"
    calls = peer.guest.compile(source, (), ("-O2", "-Wall", "-Wextra", "-Werror", "-std=gnu11",
                                              "-shared", "-fPIC"))
    peer.run(f"mkdir -p {CONFIG} && echo {LIMIT * 1000:.0f} >{CONFIG}/wake_up_interval")
    return f"LD_LIBRARY_PATH={folder} LD_PRELOAD={calls}:{PRELOAD}"


def wait_listening(peer: Peer, port: int, started: Any) -> None:
    """Waits until a program listens, by rdma_cm and not by TCP."""
    peer.until(f"rdma resource show cm_id | grep LISTEN | grep -q ':{port} '",
               f"'{started.text}' does not listen by rdma_cm", 30)


def by_rdma(before: dict[str, int], after: dict[str, int], least: int) -> str:
    """How many bytes came and went by RDMA, in words; at least so many must have."""
    moved = sum(after[name] - before[name] for name in ("rnic.rx.bytes", "rnic.tx.bytes"))
    check(moved >= least, f"{moved} bytes by RDMA, expected at least {least}")
    return f"{moved} bytes by RDMA"


@AREA.case("redis-server and redis-benchmark", timeout=LIMIT, smoke=True)
def redis(context: Context) -> None:
    ready(context, "redis over rsockets")
    server, client = context.a, context.b
    for peer in (server, client):
        said = unpacked(peer, ("redis-server", "redis-tools"), ("usr/bin/redis-*",), REDIS)
        peer.run(f"ln -sf redis-check-rdb {REDIS}/redis-server")
    port = context.port()
    listener = server.spawn(f"cd {REDIS} && {over_rsockets(server, REDIS)} ./redis-server --port "
                            f"{port} --bind {server.ip()} --protected-mode no --save '' "
                            "--appendonly no")
    wait_listening(server, port, listener)
    command = (f"redis-benchmark -h {server.ip()} -p {port} -n {REQUESTS} -c {CLIENTS} "
               f"-t ping,set,get,lpush -d {VALUE}")
    context.ran("redis over rsockets", said, f"LD_PRELOAD=librspreload.so {command}")
    before = client.counters()
    done = client.run(f"cd {REDIS} && {over_rsockets(client, REDIS)} ./{command} --csv",
                      timeout=150)
    rows = re.findall(r'^"([^"]+)","([\d.]+)"', done.stdout, re.M)
    check(len(rows) == 5, f"redis-benchmark made {len(rows)} tests: {done.stdout[-300:]}")
    moved = by_rdma(before, client.counters(), 2 * REQUESTS * VALUE)
    # What a value was is what it is.
    text = "".join(chr(ord("a") + number % 26) for number in range(70000))
    client.guest.put(text, "/tmp/value")
    cli = f"cd {REDIS} && {over_rsockets(client, REDIS)} ./redis-cli -h {server.ip()} -p {port}"
    client.run(f"{cli} -x set value </tmp/value")
    check(client.out(f"{cli} get value").strip() == text, "the value of 70,000 bytes is another")
    context.note(", ".join(f"{name}: {float(rate):.0f}/s" for name, rate in rows)
                 + f", {moved}")


@AREA.case("memcached and memcslap", timeout=LIMIT)
def memcached(context: Context) -> None:
    """Four threads of the server, eight of the client."""
    ready(context, "memcached over rsockets")
    server, client = context.a, context.b
    said = unpacked(server, ("memcached",), ("usr/bin/memcached",), MEMCACHED)
    unpacked(client, ("libmemcached-tools",), ("usr/bin/memcslap", "usr/bin/memcstat"), MEMCSLAP)
    port = context.port()
    listener = server.spawn(f"cd {MEMCACHED} && EVENT_NOEPOLL=1 {over_rsockets(server, MEMCACHED)} "
                            f"./memcached -u root -l {server.ip()} -p {port} -U 0 -t 4")
    wait_listening(server, port, listener)
    command = (f"memcslap --servers={server.ip()}:{port} --concurrency={CLIENTS} "
               f"--execute-number={REQUESTS}")
    context.ran("memcached over rsockets", said,
                f"LD_PRELOAD=librspreload.so {command} --test=get")
    before = client.counters()
    one = "; ".join(f"timeout 70 ./{command} --test={test} 2>&1" for test in ("set", "get"))
    done = client.run(f"cd {MEMCSLAP} && export {over_rsockets(client, MEMCSLAP)}; {one}",
                      timeout=150)
    check("Fatal" not in done.stdout and "TIMEOUT" not in done.stdout,
          f"memcslap: {done.stdout[-300:]}")
    times = re.findall(rf"Time to (set|get)\s+(\d+) keys by\s+{CLIENTS} threads:\s+([\d.]+)",
                       done.stdout)
    check(len(times) == 2 and all(int(keys) == CLIENTS * REQUESTS for _, keys, _ in times),
          f"memcslap made {len(times)} of 2 tests: {done.stdout[-300:]}")
    moved = by_rdma(before, client.counters(), 2 * REQUESTS * 100)
    stats = dict(re.findall(r"^\s+(\w+): (\d+)$", client.out(
        f"cd {MEMCSLAP} && {over_rsockets(client, MEMCSLAP)} ./memcstat "
        f"--servers={server.ip()}:{port}"), re.M))
    check(int(stats["cmd_get"]) >= REQUESTS and stats["get_misses"] == "0",
          f"memcached counts {stats['cmd_get']} gets, {stats['get_misses']} of them missed")
    context.note(f"{stats['cmd_set']} set, {stats['cmd_get']} got, none missed, "
                 f"{moved}")


@AREA.case("iperf3", timeout=LIMIT)
def iperf3(context: Context) -> None:
    ready(context, "iperf3 over rsockets")
    server, client = context.a, context.b
    port = context.port()
    listener = server.spawn(f"{over_rsockets(server)} exec iperf3 -s -1 -B {server.ip()} -p {port}")
    wait_listening(server, port, listener)
    command = f"iperf3 -c {server.ip()} -p {port} -n {MEGABYTES}M"
    context.ran("iperf3 over rsockets", client.version("iperf3"),
                f"LD_PRELOAD=librspreload.so {command}")
    before = client.counters()
    done = client.run(f"{over_rsockets(client)} exec {command}", timeout=90)
    server.finish(listener, 30)
    received = re.search(r"([\d.]+) MBytes\s+([\d.]+ \wbits/sec)\s+receiver", done.stdout)
    check(received is not None and float(received[1]) >= MEGABYTES,
          f"iperf3 did not move {MEGABYTES} MB: {done.stdout[-300:]}")
    moved = by_rdma(before, client.counters(), MEGABYTES << 20)
    context.note(f"{received[2]}, {moved}")


AREA.cannot("valkey over RDMA", "Debian builds valkey-server without it, in trixie and in forky: "
            "it says \"No RDMA building support\"")

# SPDX-License-Identifier: Apache-2.0
"""A new manad goes on in the place of the one that serves the guests, again and again, while they
are in full traffic: nothing is lost, nothing fails, and nobody notices but by the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from areas import ulp
from areas.cm import ONLY, wait_cm_listening
from harness import Area, Context, check, skip
from programs import quick_rdma

AREA = Area("upgrade")
SECONDS = 10  # of traffic at a time
PAUSE = 0.3  # between two upgrades
# What TCP carries. To sum it up takes an emulated CPU longer than to send it.
TCP_DATA = "for i in $(seq 8); do cat /tmp/upgrade; done"
BINS = (5, 10, 20, 50, 100)  # ms, of the histogram

# What starts traffic between the guests, and gives its two ends.
Start = Callable[[Context], tuple[Any, Any]]


def histogram(times: list[float], bins: tuple[int, ...] = BINS, unit: str = "ms") -> str:
    """How many took how long, in words."""
    edges = (0, *bins)
    counts = [sum(low <= value < high for value in times)
              for low, high in zip(edges, (*bins, float("inf")))]
    names = [f"{low} to {high} {unit}" for low, high in zip(edges, bins)]
    names.append(f"from {bins[-1]} {unit}")
    ordered = sorted(times)
    return (", ".join(f"{name}: {count}" for name, count in zip(names, counts) if count)
            + f"; median {ordered[len(ordered) // 2]:.1f} {unit}, max {ordered[-1]:.1f} {unit}")


def perftest_pair(tool: str, options: str, context: Context) -> tuple[Any, Any]:
    """A program of perftest for some seconds."""
    a, b = context.a, context.b
    port = context.port()
    words = f"-F -D {SECONDS} -p {port} {options}"
    server = a.spawn(f"exec {tool} -d {a.rdma} {words}")
    a.wait_listening(port, server)
    return server, b.spawn(f"exec {tool} -d {b.rdma} {words} {a.ip()}")


def rping_pair(context: Context) -> tuple[Any, Any]:
    """rping, which compares all data."""
    a, b = context.a, context.b
    words = f"-a {a.ip()} -p {context.port()} -C 3000 -V -S 4000"
    server = a.spawn(f"exec rping -s {words}")
    wait_cm_listening(a, server.text)
    return server, b.spawn(f"exec rping -c {words}")


def tcp_pair(context: Context) -> tuple[Any, Any]:
    """Random bytes over TCP, which the server sums up."""
    a, b = context.a, context.b
    port = context.port()
    b.run("[ -s /tmp/upgrade ] || head -c 16777216 /dev/urandom >/tmp/upgrade")
    sink = a.spawn(f"socat -u TCP4-LISTEN:{port},reuseaddr - | md5sum")
    a.wait_listening(port, sink)
    return sink, b.spawn(f"({TCP_DATA}) | socat -u - TCP4:{a.ip()}:{port}")


def fio_pair(disk: str, context: Context) -> tuple[Any, Any]:
    """fio writes to a disk of the other guest and reads all of it back, each block verified."""
    idle = context.a.spawn("exec sleep 1")
    return idle, context.b.spawn(
        f"exec fio --name=v --filename={disk} --size=32m --rw=randwrite --bs=16k --iodepth=16 "
        "--ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 --loops=4 --minimal "
        ">/dev/null")


def upgraded(start: Start, summed_up: bool, context: Context) -> None:
    """Traffic, and upgrades as long as it lasts; again until there were enough of them."""
    rounds = context.options.rounds
    done = 0
    blackouts: list[float] = []
    manad = context.lab.manad_of(context.a.index)
    while done < rounds:
        server, client = start(context)
        time.sleep(1)
        while done < rounds and client.status is None:
            taken = manad.upgrade()
            time.sleep(PAUSE)
            if client.status is None:  # or it was none in traffic
                done += 1
                blackouts += taken.values()
        context.b.finish(client, SECONDS * 6)
        context.a.finish(server, 60)
        if summed_up:
            sent = context.b.out(f"({TCP_DATA}) | md5sum", timeout=120)
            check(sent == server.stdout,
                  "the bytes that arrived over TCP are not those that were sent")
    quick_rdma(context)
    context.note(f"{done} upgrades; {histogram(blackouts)}")


@AREA.case("upgrades of manad in full traffic: NVMe over RDMA, each block verified", timeout=600.0)
def nvme(context: Context) -> None:
    if not context.has("driver"):
        skip("kernel users of RDMA need our driver")
    with ulp.nvme(context) as disk:
        upgraded(partial(fio_pair, disk), False, context)


def add(title: str, start: Start, summed_up: bool = False, **options: Any) -> None:
    """A case for one kind of traffic."""
    AREA.add(f"upgrades of manad in full traffic: {title}", partial(upgraded, start, summed_up),
             timeout=600.0, **options)


add("ib_write_bw", partial(perftest_pair, "ib_write_bw", "-s 65536"))
add("ib_send_bw", partial(perftest_pair, "ib_send_bw", "-s 65536"))
add("ib_write_bw of 16 queue pairs, both ways",
    partial(perftest_pair, "ib_write_bw", "-s 8192 -q 16 -b"))
add("rping, whose data is verified", rping_pair, **ONLY)
add("TCP, whose data is verified", tcp_pair, summed_up=True)

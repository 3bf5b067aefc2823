# SPDX-License-Identifier: Apache-2.0
"""What stock software does not offer on MANA: UC and UD, SRQ, atomics, inline data, the extended
post-send API, multicast; by perftest that knows MANA, rdma-core's pingpongs and programs.

The titles are the command lines, so that a failed one can be run by hand.
"""

from __future__ import annotations

import json
import time
from functools import partial
from typing import Any

from areas.lifecycle import traffic
from harness import Area, Context, Peer, check
from programs import ALL_SIZES, gbits, gid_index, perftest

AREA = Area("verbs", needs=("driver", "provider", "ext"))
UD_SIZES = 10  # -a: 2 bytes to the path MTU of 1024
CONNECTIONS = {"ib_write": ("RC", "UC"), "ib_read": ("RC",), "ib_send": ("RC", "UC", "UD"),
               "ib_atomic": ("RC",)}


def run(tool: str, options: tuple[str, ...], sizes: int, context: Context) -> None:
    """One perftest pair."""
    plain = tuple(option for option in options if option != "-R")
    rows = perftest(context, tool, *plain, rdma_cm="-R" in options, sizes=sizes)
    if tool.endswith("_bw"):
        context.note(gbits(max(rows, key=lambda row: float(row[3]))))
    else:
        context.note(f"{rows[0][4]} us")


def add(tool: str, *options: str, sizes: int = 1, long: bool = False, smoke: bool = False) -> None:
    """A case for one command line."""
    AREA.add(" ".join((tool, *options)), partial(run, tool, options, sizes), long=long, smoke=smoke)


# For each run of continuous integration with ours: each option once or twice.
add("ib_atomic_bw", "-A", "FETCH_AND_ADD", "-n", "500", smoke=True)
add("ib_atomic_bw", "-A", "CMP_AND_SWAP", "-n", "500", "-q", "8")
add("ib_atomic_lat", "-A", "CMP_AND_SWAP", "-n", "200")
add("ib_send_bw", "-c", "UD", "-a", "-n", "100", sizes=UD_SIZES, smoke=True)
add("ib_send_lat", "-c", "UD", "-s", "64", "-n", "200", "-e")
add("ib_write_bw", "-c", "UC", "-a", "-n", "60", sizes=ALL_SIZES)
add("ib_write_lat", "-c", "UC", "-s", "8", "-n", "200")
add("ib_send_bw", "-c", "UC", "-s", "4096", "-n", "300", smoke=True)
add("ib_send_bw", "--use-srq", "-s", "4096", "-n", "300", "-q", "8", smoke=True)
add("ib_send_bw", "--use-srq", "-c", "UD", "-s", "1024", "-n", "1000")
add("ib_send_lat", "--use-srq", "-s", "64", "-n", "200", "-e")
add("ib_write_bw", "-I", "128", "-s", "64", "-n", "1000", smoke=True)
add("ib_write_lat", "-I", "128", "-s", "64", "-n", "500")
add("ib_send_lat", "-I", "128", "-a", "-n", "60", sizes=ALL_SIZES)
add("ib_write_bw", "--use_old_post_send", "-s", "65536", "-n", "300", smoke=True)
add("ib_write_bw", "-q", "64", "-s", "16384", "-n", "100", "-N")
add("ib_read_bw", "--use_old_post_send", "-s", "65536", "-n", "300")
add("ib_send_bw", "-c", "UD", "-s", "1024", "-n", "300", "-R")
add("ib_send_bw", "-R", "--use-srq", "-s", "4096", "-n", "300")

# Every combination that perftest offers.
for _base, _kinds in CONNECTIONS.items():
    for _kind in _kinds:
        for _what in ("bw", "lat"):
            _tool = f"{_base}_{_what}"
            for _events in ((), ("-e",)):
                if _events and _base == "ib_write":
                    continue  # perftest has no events on WRITE
                for _cm in ((), ("-R",)):
                    if _cm and _kind == "UC":
                        continue  # librdmacm has no UC
                    for _srq in ((), ("--use-srq",)):
                        if _srq and _base != "ib_send":
                            continue
                        if _srq and _cm and (_kind, _what) == ("UD", "lat"):
                            continue  # posts a receive to the queue pair, which has none
                        for _inline in ((), ("-I", "0"), ("-I", "200")):
                            if _inline and _base in ("ib_read", "ib_atomic"):
                                continue
                            for _post in ((), ("--use_old_post_send",)):
                                _count = ("-n", "1000") if _srq else ("-n", "20")
                                _rest = (*(("-s", "128") if _base != "ib_atomic" else ()),
                                         *_events, *_cm, *_srq, *_inline, *_post)
                                add(_tool, "-c", _kind, *_count, *_rest, long=True)
                                if _what == "lat":
                                    continue
                                if _srq and _kind != "RC":
                                    # More senders than receives, and who finds none is not told:
                                    # for so many seconds, then, which perftest does without -e.
                                    if _events:
                                        continue
                                    _count = ("-D", "2")
                                add(_tool, "-c", _kind, *_count, *_rest, "-q", "64", "-N",
                                    long=True)


def pingpong(program: str, options: str, context: Context) -> None:
    """A pingpong program, which compares the received data with -c."""
    port = context.port()
    a, b = context.a, context.b
    words = f"-p {port} -c {options}"
    listener = a.spawn(f"exec {program} -d {a.rdma} -g {gid_index(a, 4)} {words}")
    a.wait_listening(port, listener)
    result = b.run(f"{program} -d {b.rdma} -g {gid_index(b, 4)} {words} {a.ip()}")
    a.finish(listener, 30)
    check("usec/iter" in result.stdout, f"{program} {options}: {result.stdout[-200:]}")
    check("invalid data" not in result.stdout + listener.stdout,
          f"{program} {options}: the received data is wrong")


for _program in ("ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong"):
    AREA.add(f"{_program} -c", partial(pingpong, _program, "-n 300"),
             smoke=_program == "ibv_srq_pingpong")
    AREA.add(f"{_program} -c with events", partial(pingpong, _program, "-n 200 -e"))
AREA.add("ibv_rc_pingpong -c with time stamps", partial(pingpong, "ibv_rc_pingpong", "-n 200 -t"))
AREA.add("ibv_rc_pingpong -c with the new post send", partial(pingpong, "ibv_rc_pingpong",
                                                             "-n 200 -N"))
AREA.add("ibv_srq_pingpong -c with 64 queue pairs", partial(pingpong, "ibv_srq_pingpong",
                                                           "-n 2000 -q 64 -r 1000"))


# What the guest shows of its port, and manad's counter of the same.
PORT = {"tx_bytes": "rnic.tx.bytes", "rx_bytes": "rnic.rx.bytes", "tx_packets": "rnic.tx.packets",
        "rx_packets": "rnic.rx.packets", "rx_write_requests": "rnic.rx.writes"}
PORT_ONLY = {"nak_invalid_reads", "general_hardware_errors", "current_rate"}


def port_counters(peer: Peer) -> dict[str, Any]:
    """What `rdma statistic` and sysfs say of the port, which must be what manad counts: what bound
    queue pairs count is in there once."""
    shown: dict[str, Any] = {}
    for source in ("netlink", "sysfs"):
        before = peer.counters()
        if source == "netlink":
            shown = json.loads(peer.out(f"rdma -j statistic show link {peer.rdma}/1"))[0]
        else:
            folder = f"/sys/class/infiniband/{peer.rdma}/ports/1/hw_counters"
            shown |= {name: int(peer.out(f"sleep 0.1; cat {folder}/{name}")) for name in PORT}
        after = peer.counters()
        for name, counter in PORT.items():
            check(before[counter] <= shown[name] <= after[counter],
                  f"{source}: {name} of the port is {shown[name]}, in manad between "
                  f"{before[counter]} and {after[counter]}")
    return shown


@AREA.case("rdma statistic: counters of a program's queue pairs, bound by themselves and by hand")
def qp_counters(context: Context) -> None:
    peer = context.b
    link = f"link {peer.rdma}/1"
    gone = f"! rdma statistic qp show {link} | grep -q cntn"

    def counters() -> list[dict[str, Any]]:
        rows = json.loads(peer.out("rdma -j statistic qp show"))
        return [row for row in rows if row and row["ifname"] == peer.rdma]

    peer.run(f"rdma statistic qp set {link} auto type on")
    try:
        traffic(context)
        shown = counters()
        check(len(shown) == 1 and shown[0]["lqpn"], f"not one counter with queue pairs: {shown}")
        before = shown[0]
        time.sleep(0.5)
        after = counters()[0]
        for name in ("tx_bytes", "tx_packets"):
            check(after[name] > before[name], f"{name} of the counter stands still: {after}")
        check(not PORT_ONLY & after.keys(), f"the counter has what a port alone has: {after}")
        port = port_counters(peer)
        missing = port.keys() - after.keys() - PORT_ONLY - {"port"}
        check(not missing, f"the counter has no {missing}")
        context.end()
        peer.until(gone, "the counter outlives its queue pair", 20)
        check(port_counters(peer)["tx_bytes"] >= after["tx_bytes"],
              "the port lost what its queue pair counted")
        peer.run(f"rdma statistic qp set {link} auto off")

        traffic(context)
        rows = json.loads(peer.out(f"rdma -j resource show qp {link}"))
        qpn = next(row["lqpn"] for row in rows if row["type"] == "RC")
        peer.run(f"rdma statistic qp bind {link} lqpn {qpn}")
        shown = counters()
        check(len(shown) == 1 and shown[0]["lqpn"] == [qpn], f"QP {qpn} is not bound: {shown}")
        port_counters(peer)
        peer.run(f"rdma statistic qp unbind {link} cntn {shown[0]['cntn']} lqpn {qpn}")
        peer.until(gone, "the counter outlives its last queue pair", 20)
        port_counters(peer)
    finally:
        context.end()
        peer.run(f"rdma statistic qp set {link} auto off", check=False)

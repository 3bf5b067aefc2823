# SPDX-License-Identifier: Apache-2.0
"""The RDMA connection manager, which the stock driver offers from kernel 7.2 on (forky)."""

from __future__ import annotations

from functools import partial

from harness import Area, Context, Peer, check, skip
from programs import ALL_SIZES, gbits, perftest

from lab.debian import WITH_BACKPORTS

AREA = Area("cm")
ONLY = {"only": ("forky", *WITH_BACKPORTS),
        "reason": "the stock driver of kernel 6.12 has no QP1, so no connection manager"}


def wait_cm_listening(peer: Peer, text: str) -> None:
    """Waits until a program listens with rdma_cm."""
    peer.until("rdma resource show cm_id | grep -q LISTEN", f"'{text}' does not listen", 30)


# rping of rdma-core 65 polls for an event of the connection manager and then waits for it
# (cm_thread), for ever if rdma_destroy_id() took it back meanwhile: at its end, when its queue pair
# is gone. That says nothing about anybody else, so such a run is ended and made again.
STUCK = 75
WATCHED = """{command} & pid=$!
while kill -0 $pid 2>/dev/null; do
    if grep -qs ucma_get_event /proc/$pid/task/*/wchan &&
            ! rdma resource show qp | grep -q "pid $pid "; then
        kill $pid
        exit {stuck}
    fi
    sleep 0.1
done
wait $pid"""
TRIES = 4


def watched(peer: Peer, command: str) -> str:
    """The command as a peer is to run it. rping of rdma-core 56 waits for events all the time."""
    if peer.release == "trixie":
        return f"exec {command}"
    return WATCHED.format(command=command, stuck=STUCK)


def rping(options: str, context: Context, swap: bool = False, version: int = 4, count: int = 30
          ) -> None:
    """rping, with data check; both ends must exit with 0."""
    tries = (rping_ends(options, context, swap, version, count) for _ in range(TRIES))
    check(any(tries), f"rping waited {TRIES} times for an event that was taken back")


def rping_ends(options: str, context: Context, swap: bool, version: int, count: int) -> bool:
    """One rping of a server and a client. False if one of them is STUCK."""
    server, client = (context.b, context.a) if swap else (context.a, context.b)
    words = f"-a {server.ip(version)} -p {context.port()} -C {count} {options}"
    listener = server.spawn(watched(server, f"rping -s {words}"))
    wait_cm_listening(server, "rping -s")
    result = client.run(watched(client, f"rping -c {words}"), timeout=60, check=False)
    status = server.finish(listener, 30, check=False)
    check(result.status in (0, STUCK), f"rping -c: exit status {result.status}: {result.stderr}")
    check(status in (0, STUCK), f"rping -s: exit status {status}: {listener.stderr}")
    if STUCK in (status, result.status):
        return False
    if "-v" in options.split():
        check(result.stdout.count("ping data: rdma-ping-") == count,
              f"rping -v showed {result.stdout.count('ping data')} of {count} pings")
    return True


AREA.add("rping -V, the first guest serves", partial(rping, "-V -S 4000"), smoke=True,
         **ONLY)
AREA.add("rping -V, the second guest serves", partial(rping, "-V -S 65000", swap=True), **ONLY)
AREA.add("rping -V -v", partial(rping, "-V -v -S 64"), **ONLY)
AREA.add("rping over IPv6", partial(rping, "-V", version=6, count=10), **ONLY)


def ucmatose(options: str, context: Context) -> None:
    """ucmatose connects, transfers and disconnects."""
    a, b = context.a, context.b
    port = context.port()
    listener = a.spawn(f"exec ucmatose -p {port} {options}")
    wait_cm_listening(a, listener.text)
    result = b.run(f"ucmatose -s {a.ip()} -p {port} {options}", timeout=90)
    a.finish(listener, 40)
    check("test complete" in result.stdout and "return status 0" in result.stdout,
          f"ucmatose {options}: {result.stdout[-300:]}")


AREA.add("ucmatose", partial(ucmatose, ""), **ONLY)
AREA.add("ucmatose with 8 connections of 20 messages", partial(ucmatose, "-c 8 -C 20 -S 3000"),
         **ONLY)


@AREA.case("a connection that nobody listens for is refused", smoke=True, **ONLY)
def refused(context: Context) -> None:
    result = context.b.run(f"rping -c -a {context.a.ip()} -p {context.port()} -C 1", timeout=60,
                           check=False)
    check(result.status != 0, "rping to a port without a listener succeeded")
    check("REJECTED" in result.stdout + result.stderr.upper(),
          f"rping was not refused: {result.stdout} {result.stderr}")


def perftest_cm(tool: str, options: tuple[str, ...], sizes: int, context: Context) -> None:
    """perftest with -R."""
    rows = perftest(context, tool, *options, rdma_cm=True, sizes=sizes)
    if tool.endswith("_bw"):
        context.note(gbits(max(rows, key=lambda row: float(row[3]))))


for _tool, _options, _sizes in (
        ("ib_write_bw", ("-a", "-n", "60"), ALL_SIZES),
        ("ib_read_bw", ("-s", "65536", "-n", "300"), 1),
        ("ib_send_bw", ("-s", "65536", "-n", "300", "-b"), 1),
        ("ib_write_lat", ("-s", "8", "-n", "200"), 1),
        ("ib_send_lat", ("-s", "8", "-n", "200", "-e"), 1),
        ("ib_write_bw", ("-q", "8", "-s", "16384", "-n", "200", "-N"), 1)):
    AREA.add(f"{_tool} {' '.join(_options)} -R", partial(perftest_cm, _tool, _options, _sizes),
             smoke=_tool == "ib_read_bw", **ONLY)


def needs(context: Context, what: str, *sides: str) -> None:
    """Skips what only some software offers to programs."""
    if not all(context.has(side) for side in sides):
        skip(f"{what}: needs our {', '.join(sides)}")


@AREA.case("udaddy")
def udaddy(context: Context) -> None:
    needs(context, "UD queue pairs of programs", "driver", "provider")
    a, b = context.a, context.b
    listener = a.spawn("exec udaddy -c 2 -C 20 -S 900")
    wait_cm_listening(a, listener.text)
    result = b.run(f"udaddy -s {a.ip()} -c 2 -C 20 -S 900", timeout=60)
    a.finish(listener, 30)
    check("return status 0" in result.stdout, f"udaddy: {result.stdout[-300:]}")


@AREA.case("mckey: multicast between two programs")
def mckey(context: Context) -> None:
    needs(context, "multicast", "driver", "provider", "ext")
    a, b = context.a, context.b
    group = "239.55.0.1"
    receiver = a.spawn(f"exec stdbuf -oL mckey -m {group} -b {a.ip()} -C 20 -S 900")
    receiver.wait_output("joined", 30)
    result = b.run(f"mckey -m {group} -b {b.ip()} -s -C 20 -S 900", timeout=60)
    a.finish(receiver, 30)
    check("return status 0" in result.stdout and "return status 0" in receiver.stdout,
          f"mckey: {result.stdout[-200:]} {receiver.stdout[-200:]}")


def streams(program: str, context: Context) -> None:
    """rsockets, with the data compared."""
    if not context.has("provider"):
        skip("rsockets send inline data without a key; the stock provider grants inline data and "
             "then sends by key")
    a, b = context.a, context.b
    port = context.port()
    listener = a.spawn(f"exec {program} -p {port} -T v")
    wait_cm_listening(a, listener.text)
    b.run(f"{program} -s {a.ip()} -p {port} -T v", timeout=300)
    a.finish(listener, 30)


for _program in ("rstream", "riostream"):
    AREA.add(f"{_program}, data compared", partial(streams, _program), timeout=360.0, **ONLY)

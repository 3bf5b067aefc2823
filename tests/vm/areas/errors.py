# SPDX-License-Identifier: Apache-2.0
"""Errors as the stock providers report them (RNIC 3.9), by rdma_errors.c, and two of the kernel's,
by qkey.c and qp_ends.c."""

from __future__ import annotations

import errno
import json
import re
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from harness import Area, CaseFailed, Context, Peer, check, skip

AREA = Area("errors")

RECEIVES = 3
SENDS = 4
FLUSH = (5, (0x1c7, 0xfff))  # the device's code, and the provider's for the rest of a queue
QP_FATAL, ACCESS_ERROR = 1, 3  # enum ibv_event_type
ANY: tuple[int, ...] = ()  # vendor codes are those of the stock format; ours may have its own

# Vendor code -> status. trixie's libmana (rdma-core 56.1 with Debian's patches) knows some codes
# under other statuses than forky's, and has no retry-exceeded statuses.
STATUS = {0x161: 11, 0x162: 10, 0x163: 11, 0x102: 1, 0x206: 4, 0x207: 4, 0x208: 4, 0x143: 4,
          0x183: 8, 0x1c3: 4, 0x1c6: 12, 0x164: 13}
STATUS_TRIXIE = {**STATUS, 0x143: 8, 0x1c3: 8, 0x1c6: 21, 0x164: 21}
# Queue pairs of the extension say what the verbs define (docs/extensions.md, "Completions").
STATUS_EXTENDED = {**STATUS, 0x161: 9, 0x183: 4}


@dataclass(frozen=True)
class Expected:
    """Vendor codes of the failing work, by queue: how many successes come before it; 0 as a code:
    the queue is only flushed; None: it is not touched."""

    client_sends: tuple[int, int]  # (successes, code)
    server_receives: tuple[int, int] | None = None
    client_receives: tuple[int, int] | None = (0, 0)


REMOTE_ACCESS = Expected((1, 0x162), (0, 0))
REMOTE_ACCESS_AT_ONCE = Expected((0, 0x162), (0, 0))

MODES: dict[str, tuple[str, Expected]] = {
    "wrong-rkey": ("WRITE with a wrong rkey", REMOTE_ACCESS),
    "wrong-rkey-read": ("READ with a wrong rkey", REMOTE_ACCESS),
    "out-of-bounds": ("WRITE beyond the end of a region", REMOTE_ACCESS),
    "out-of-bounds-read": ("READ beyond the end of a region", REMOTE_ACCESS),
    "below-start": ("WRITE before the start of a region", REMOTE_ACCESS),
    "no-remote-write": ("WRITE to a region without that right", REMOTE_ACCESS_AT_ONCE),
    "no-remote-read": ("READ of a region without that right", REMOTE_ACCESS_AT_ONCE),
    "remote-pd": ("WRITE to a region of another PD", REMOTE_ACCESS_AT_ONCE),
    "local-key": ("WRITE from an unknown key", Expected((1, 0x208))),
    "local-bounds": ("WRITE from beyond the end of a region", Expected((1, 0x207))),
    "local-pd": ("WRITE from a region of another PD", Expected((1, 0x208))),
    "scatter-key": ("READ into an unknown key", Expected((1, 0x143))),
    "scatter-no-write": ("READ into a region without local write", Expected((1, 0x183))),
    "scatter-bounds": ("READ beyond the end of the local region", Expected((1, 0x1c3))),
    "rnr": ("SEND to nobody who receives, RNR retries used up", Expected((0, 0x164))),
    "long-message": ("SEND longer than the receive", Expected((1, 0x161), (1, 0x102))),
    "receive-key": ("SEND to a receive with an unknown key", Expected((0, 0x163), (0, 0x143))),
    "closed-peer": ("WRITE to a queue pair that is gone, retries used up", Expected((0, 0x1c6))),
    "to-err": ("queue pair to ERR: both queues are flushed in order", Expected((0, 0))),
}


def extended(host: Peer | Context) -> bool:
    """Whether the queues of this run's programs are those of the extension."""
    return all(host.has(side) for side in ("driver", "provider", "ext"))


def status_of(peer: Peer, code: int) -> int:
    """The status that a peer's provider makes of the device's vendor code."""
    if extended(peer):
        return STATUS_EXTENDED[code]
    stock_trixie = peer.release == "trixie" and not peer.has("provider")
    return (STATUS_TRIXIE if stock_trixie else STATUS)[code]


def wanted(peer: Peer, plan: tuple[int, int] | None, count: int
           ) -> list[tuple[int, tuple[int, ...]]]:
    """Status and allowed vendor codes of each completion of a queue."""
    if plan is None:
        return []
    good, code = plan
    ours = peer.has("provider")
    queue: list[tuple[int, tuple[int, ...]]] = [(0, ANY if ours else (0,))] * good
    if code:
        queue.append((status_of(peer, code), ANY if ours else (code,)))
    return queue + [(5, ANY) if ours else FLUSH] * (count - len(queue))


def compare(peer: Peer, role: str, queue: str, said: str,
            expected: list[tuple[int, tuple[int, ...]]]) -> None:
    """Completions of one queue, in order."""
    found = [(int(number), int(status), int(vendor, 16)) for number, status, vendor in
             re.findall(rf"^{role} {queue} (\d+) status (\d+) vendor (0x[0-9a-f]+|0)", said, re.M)]
    shown = ", ".join(f"{number}: {status}/{vendor:#x}" for number, status, vendor in found)
    check([number for number, _, _ in found] == list(range(len(expected))),
          f"{role} ({peer.suite}): the {queue} queue completed [{shown}], expected "
          f"{len(expected)} in order")
    for (number, status, vendor), (right, codes) in zip(found, expected):
        check(status == right and (codes == ANY or vendor in codes),
              f"{role} ({peer.suite}): {queue} {number} has status {status}, vendor {vendor:#x}; "
              f"expected {right}, {' or '.join(map(hex, codes)) or 'any'}; all: [{shown}]")


def start(context: Context, mode: str, options: tuple[str, ...]) -> tuple[str, str, int]:
    """Runs the program at both ends; returns what they said, and the server's status."""
    a, b = context.a, context.b
    port = context.port()
    words = ["--port", str(port), "--mode", mode, *options]
    server = a.spawn([context.program(a, "rdma_errors.c"), "--dev", a.rdma, "--server", *words])
    a.wait_listening(port, server)
    client = b.run([context.program(b, "rdma_errors.c"), "--dev", b.rdma, "--host", a.ip(),
                    *words], timeout=90, check=False)
    status = a.finish(server, 60, check=False)
    if client.status != 0:
        raise CaseFailed(f"rdma_errors --mode {mode}: client: {client.stderr.strip()}; "
                         f"server: {server.stderr.strip()}; "
                         f"{client.stdout.strip().replace(chr(10), ', ')}")
    return client.stdout, server.stdout, status


def run(mode: str, options: tuple[str, ...], context: Context) -> None:
    """One error; afterwards both queue pairs must work again."""
    expected = MODES[mode][1]
    client, server, status = start(context, mode, ("--recover", *options))
    check(status == 0, f"rdma_errors --mode {mode}: the server ended with status {status}")
    compare(context.b, "client", "send", client,
            wanted(context.b, expected.client_sends, SENDS))
    compare(context.b, "client", "receive", client,
            wanted(context.b, expected.client_receives, RECEIVES))
    compare(context.a, "server", "receive", server,
            wanted(context.a, expected.server_receives, RECEIVES))
    check("missing" not in client + server, f"{mode}: completions are missing")
    if mode != "closed-peer":
        check("client recovered" in client and "server recovered" in server,
              f"{mode}: the queue pairs did not work after RESET")


for _mode, (_title, _) in MODES.items():
    AREA.add(_title, partial(run, _mode, ()),
             smoke=_mode in ("wrong-rkey", "local-bounds", "rnr", "to-err"))
for _mode in ("wrong-rkey", "local-bounds", "long-message", "wrong-rkey-read"):
    AREA.add(f"{MODES[_mode][0]}, messages of several packets",
             partial(run, _mode, ("--length", "5000")))
for _mode in ("wrong-rkey", "local-key", "to-err"):
    AREA.add(f"{MODES[_mode][0]}, the failing request unsignaled",
             partial(run, _mode, ("--unsignaled",)))
for _mode in ("wrong-rkey", "long-message", "to-err", "scatter-bounds"):
    AREA.add(f"{MODES[_mode][0]}, one CQ for both queues", partial(run, _mode, ("--one-cq",)))
# Each once more with all that may make a difference, which says so if it makes none.
for _mode in MODES:
    AREA.add(f"{MODES[_mode][0]}, unsignaled, of several packets, one CQ for both queues",
             partial(run, _mode, ("--unsignaled", "--length", "5000", "--one-cq")))


def told_by_event(mode: str, context: Context) -> None:
    """An error of a responder with no receive to blame: an event is all that tells of it."""
    client, server, status = start(context, mode, ("--no-receives",))
    check(status == 0, f"rdma_errors --mode {mode}: the server ended with status {status}")
    compare(context.b, "client", "send", client,
            wanted(context.b, MODES[mode][1].client_sends, SENDS))
    events = re.findall(r"^server event (\d+)$", server, re.M)
    right = ACCESS_ERROR if extended(context.a) else QP_FATAL
    check(events == [str(right)], f"{mode}: the server had events {events}, expected one {right}")


for _mode in ("wrong-rkey", "wrong-rkey-read"):
    AREA.add(f"{MODES[_mode][0]}, no receive at the peer: told by an event",
             partial(told_by_event, _mode))


def stream(mode: str, code: int, context: Context) -> None:
    """The peer's memory, or the peer, goes away in full traffic."""
    client, server, status = start(context, mode, ())
    status_wanted = status_of(context.b, code)
    first = re.search(r"client send first status (\d+) vendor (\S+)", client)
    check(first, f"{mode}: no error in {client}")
    assert first is not None
    check(int(first.group(1)) == status_wanted
          and (context.has("provider") or int(first.group(2), 16) == code),
          f"{mode}: the first error has status {first.group(1)}, vendor {first.group(2)}; expected "
          f"{status_wanted}, {code:#x}")
    rest = re.findall(r"client send rest status (\d+) vendor (\S+)", client)
    check(all(int(one) == 5 for one, _ in rest), f"{mode}: after the error: {rest}")
    compare(context.b, "client", "receive", client, wanted(context.b, (0, 0), RECEIVES))
    if mode == "killed-peer":
        check("server dies" in server and status in (-9, 137), f"{mode}: server status {status}")
    else:
        check("server untouched" in server and status == 0, f"{mode}: server: {server}")
        compare(context.a, "server", "receive", server,
                wanted(context.a, (0, 0), RECEIVES))


@AREA.case("memory unmapped in full traffic: the region goes on, what is mapped there next is safe")
def unmapped(context: Context) -> None:
    client, server, status = start(context, "unmap-in-traffic", ())
    check("client undisturbed" in client, f"the traffic was disturbed: {client}")
    check("server untouched" in server and status == 0, f"server: {server}")


def traffic(context: Context, background: bool = True, timeout: int = 60) -> tuple[Any, Any]:
    """WRITEs from b to a, and an ib_write_bw of four queue pairs both ways; to be ended by who
    calls this. Returns the ends of the WRITEs when they flow."""
    a, b = context.a, context.b
    seconds = round(timeout * context.patience)
    if background:
        port = context.port()
        words = f"-F -b -q 4 -D {seconds} -s 32768 -p {port}"
        listener = a.spawn(f"exec ib_write_bw -d {a.rdma} {words}")
        a.wait_listening(port, listener)
        b.spawn(f"exec ib_write_bw -d {b.rdma} {words} {a.ip()}")
    port = context.port()
    words = ["--port", str(port), "--mode", "lost-peer", "--length", "8192", "--timeout",
             str(seconds)]
    server = a.spawn([context.program(a, "rdma_errors.c"), "--dev", a.rdma, "--server", *words])
    a.wait_listening(port, server)
    client = b.spawn([context.program(b, "rdma_errors.c"), "--dev", b.rdma, "--host", a.ip(),
                      *words])
    client.wait_output("client told", 30)
    wanted_pairs = 5 if background else 1
    begin = time.monotonic()
    looks: list[str] = []
    while True:
        pairs = messages_sent(b)
        if sum(sent > 0 for sent in pairs.values()) >= wanted_pairs:
            return server, client
        looks.append(f"{pairs} at {time.monotonic() - begin:.1f} s")
        check(time.monotonic() < begin + 60, f"of {wanted_pairs} queue pairs not all are at work: "
              f"{'; '.join(looks[:3] + looks[-3:])} ({len(looks)} looks)")
        time.sleep(0.2)


def messages_sent(peer: Peer) -> dict[int, int]:
    """By the RC queue pairs of a NIC, by QPN."""
    pairs = json.loads(peer.manactl("--json", "stats", peer.in_manad, "--qp"))["qps"]
    return {one["qpn"]: one["tx_messages"] for one in pairs if one["type"] == "RC"}


def lost(context: Context, client: Any, peer: Peer | None = None) -> None:
    """The client of `traffic` must see its retries used up, and flushes after that."""
    peer = peer or context.b
    peer.finish(client, 40)
    said = client.stdout
    first = re.search(r"client send first status (\d+) vendor (\S+)", said)
    check(first and (int(first.group(1)), int(first.group(2), 16)) ==
          (status_of(peer, 0x1c6), 0x1c6), f"the first error is not retry exceeded: {said[:300]}")
    rest = re.findall(r"client send rest status (\d+)", said)
    check(rest and all(one == "5" for one in rest), f"after the error: {rest}")
    compare(peer, "client", "receive", said, wanted(peer, (0, 0), RECEIVES))


AREA.add("region deregistered in full traffic", partial(stream, "dereg-in-traffic", 0x162))
AREA.add("peer killed in full traffic, retries used up", partial(stream, "killed-peer", 0x1c6))


def overrun(context: Context) -> None:
    """More completions than the CQ holds, and nobody who looks. The extension knows how far a CQ is
    read: its QP ends with the first that is lost, and the peer's retries are used up. Asked for 64,
    our provider makes a ring of 128, so that is the 129th."""
    client, server, status = start(context, "cq-overrun", ("--recover",))
    check(status == 0, f"cq-overrun: the server ended with status {status}: {server}")
    word = "told by an event" if extended(context) else "seen by the poll"
    check(f"server overrun {word}" in server, f"cq-overrun: {server}")
    sent = re.search(r"^client sent (\d+) of (\d+), status (\d+)$", client, re.M)
    check(sent is not None, f"cq-overrun: {client}")
    right = (129, 12) if extended(context) else (int(sent[2]), 0)
    check((int(sent[1]), int(sent[3])) == right, f"cq-overrun: {sent[0]}, expected {right}")
    check("client recovered" in client and "server recovered" in server,
          f"cq-overrun: no traffic afterwards: {client} {server}")


AREA.add("CQ overrun: the owner is told, and all else goes on", overrun)


def privileged_qkey(context: Context) -> None:
    """A Q_Key with the high bit is for who has CAP_NET_RAW, unless the system's switch lets
    everybody. The kernel's uverbs look at the attribute before they ask the driver, whatever the
    kind of queue pair: where programs have no UD ones, an RC one is asked with, and what the driver
    says of it then is not looked at."""
    peer = context.a
    kind = "ud" if extended(context) else "rc"

    def ask(who: str) -> tuple[int, int]:
        said = peer.out([context.program(peer, "qkey.c"), peer.rdma, kind, who])
        found = re.fullmatch(r"privileged (\d+) common (\d+)\n", said)
        if found is None:
            raise CaseFailed(f"qkey.c as {who} said {said!r}")
        return int(found[1]), int(found[2])

    def allowed(what: str, answers: tuple[int, ...]) -> None:
        wrong = any(answers) if kind == "ud" else errno.EPERM in answers
        check(not wrong, f"{what}, {kind}: errors {answers}")

    privileged, common = ask("user")
    check(privileged == errno.EPERM, f"a user's privileged Q_Key, {kind}: error {privileged}")
    allowed("a user's common Q_Key", (common,))
    allowed("root's Q_Keys", ask("root"))
    switch = "rdma system set privileged-qkey"
    peer.run(f"{switch} on")
    try:
        allowed("a user's Q_Keys, all may", ask("user"))
    finally:
        peer.run(f"{switch} off")
    context.note(kind)


AREA.add("a Q_Key with the high bit without CAP_NET_RAW", privileged_qkey, smoke=True)


def ends_meanwhile(context: Context) -> None:
    """A queue pair that its peer's error ends is in ERR, whatever is asked of it at the same time:
    the driver learns of the end of one in the public format by an event, in an interrupt."""
    if not context.has("driver"):
        skip("stock drivers know no states of queue pairs")
    peer = context.b
    said = peer.out([context.program(peer, "qp_ends.c"), peer.rdma, "20"], timeout=90)
    context.note(said.strip())


AREA.add("a queue pair that ends while it is modified and queried is in ERR", ends_meanwhile,
         timeout=100)

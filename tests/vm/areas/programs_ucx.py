# SPDX-License-Identifier: Apache-2.0
"""UCX: what MPI and many others stand on. `ucx_perftest` runs over datagrams (`ud`) and over
connections (`rc`, which it makes by datagrams), and over no other transport, so that what is seen
is the NIC's: all tests of its upper layer (UCP), which chooses how it sends, and of the lower one
(UCT), which is told.
"""

from __future__ import annotations

import re
from functools import partial

from areas import vlan
from harness import Area, CaseFailed, Context, Peer, check, skip
from programs import captured

from lab import extras

AREA = Area("programs_ucx", needs=("driver", "provider"))
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
UCP_TESTS = ("tag_lat", "tag_bw", "tag_sync_lat", "tag_sync_bw", "stream_lat", "stream_bw",
             "ucp_am_lat", "ucp_am_bw", "ucp_put_lat", "ucp_put_bw", "ucp_get")
ATOMICS = ("ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap")
# These have fences, for which UCX chooses a flush of the remote side, if nobody says otherwise.
# Over rc it has that with mlx5's direct verbs alone ("flush(remote) is not supported").
FENCED = ("ucp_put_bw", *ATOMICS)
# How the lower layer sends, and how much of it: in a request, copied, or from where it is.
# A message has a header of 8 bytes.
MESSAGES = (("short", 8), ("bcopy", 8), ("bcopy", 4096), ("zcopy", 4096))
WRITES = (("short", 1), ("short", 8), ("bcopy", 1), ("bcopy", 8192), ("zcopy", 1),
          ("zcopy", 4 << 20))
READS = (("bcopy", 8192), ("zcopy", 8192), ("zcopy", 4 << 20))
UCT_TESTS: dict[str, dict[str, tuple[tuple[str, int], ...]]] = {
    "rc_verbs": {"am_lat": MESSAGES, "am_bw": MESSAGES, "put_lat": WRITES, "put_bw": WRITES,
                 "get": READS, "get_bw": READS,
                 **{test: (("short", 8),) for test in ("add_lat", "add_mr", "fadd", "cswap")}},
    "ud_verbs": {"am_lat": MESSAGES[:2], "am_bw": MESSAGES[:2]}}


def install(peer: Peer) -> None:
    """UCX's programs and libraries in a guest."""
    if peer.run(f"test -x {FOLDER}/ucx_perftest", check=False).status != 0:
        extras.unpack(peer.guest, extras.archive(SUITE, PACKAGES, FILES), FOLDER)


def settings(peer: Peer, transports: str) -> str:
    """What a user says to UCX, in front of a command."""
    return f"UCX_TLS={transports} UCX_NET_DEVICES={peer.rdma}:1"


def perftest(context: Context, said_before: str, *options: str, of_both: str = "",
             timeout: float = 120.0) -> list[str]:
    """ucx_perftest between both guests, with settings and options that both ends have, in a
    terminal, as its user has one: what its table says of all iterations."""
    server, client = context.a, context.b
    for peer in (server, client):
        install(peer)
    port = context.port()

    def command(*words: str) -> str:
        return " ".join([f"LD_LIBRARY_PATH={FOLDER} UCX_MODULE_DIR={FOLDER} {said_before} "
                         f"UCX_WARN_UNUSED_ENV_VARS=n {TERMINAL} {FOLDER}/ucx_perftest -p {port} "
                         f"{of_both}", *words, "</dev/null"])

    listener = server.spawn(command())
    server.wait_listening(port, listener)
    done = client.run(command(*options, server.ip()), timeout=timeout, check=False)
    said = re.sub(r"[\r\n]+", "\n", done.stdout)
    what = " ".join(filter(None, (said_before, "ucx_perftest", of_both, *options)))
    if done.status != 0 or "ERROR" in said:
        raise CaseFailed(f"{client.name}: {what} ended with status {done.status}: "
                         f"{said.strip()[-400:]}")
    server.finish(listener, 30)
    rows = re.findall(r"^Final:.*", said, re.M)
    check(rows, f"{what} printed no result: {said.strip()[-400:]}")
    return str(rows[-1]).split()


def says(context: Context, command: str, transports: str) -> None:
    """The row of a case; skips what the NIC does not have."""
    context.ran("ucx_perftest", extras.version(extras.archive(SUITE, PACKAGES, FILES), "ucx-utils"),
                f"{command} {context.a.ip()}")
    if not context.has("ext") and "rc" in transports:
        skip("UCX's rc takes its receives from an SRQ, which the public ABI does not have")


def iterations(size: int) -> str:
    """How often a message of a size is sent."""
    return "1000" if size < 65536 else "50"


def ucp(transports: str, test: str, sizes: tuple[int, ...], context: Context) -> None:
    """One test of the upper layer over each of some sizes."""
    before = settings(context.b, transports)
    if test in FENCED and "rc" in transports:
        before += " UCX_FENCE_MODE=weak"
    size_of_all = sizes[0] if len(sizes) == 1 else "BYTES"
    says(context, f"{before} ucx_perftest -t {test} -s {size_of_all}", transports)
    figures = []
    for size in sizes:
        row = perftest(context, before, "-t", test, "-s", str(size), "-n", iterations(size), "-w",
                       "10")
        figures.append(f"{size} B: {row[2]} us")
    context.note(", ".join(figures))


def uct(transport: str, test: str, ways: tuple[tuple[str, int], ...], context: Context) -> None:
    """One test of the lower layer in each of some ways."""
    device = f"-d {context.b.rdma}:1 -x {transport}"
    says(context, f"ucx_perftest {device} -t {test} -D LAYOUT -s BYTES", transport)
    figures = []
    for layout, size in ways:
        row = perftest(context, "", "-t", test, "-D", layout, "-s", str(size), "-n",
                       iterations(size), "-w", "10", of_both=device)
        figures.append(f"{layout} {size} B: {row[2]} us")
    context.note(", ".join(figures))


def over_vlan(transports: str, context: Context) -> None:
    """Between the VLAN's addresses: all packets are tagged, with the priority that was asked for,
    also UCX's answers to what it learnt from completions."""
    with vlan.tagged(context) as (index, other):
        check(index == other, f"the GIDs have different indexes: {index}, {other}")
        before = (f"{settings(context.b, transports)} UCX_IB_GID_INDEX={index} "
                  f"UCX_IB_SL={vlan.PRIORITY}")
        says(context, f"{before} ucx_perftest -t tag_lat -s 8192", transports)
        with captured(*context.peers, folder=context.lab.output_dir) as files:
            perftest(context, before, "-t", "tag_lat", "-s", "8192", "-n", "100", "-w", "10")
        vlan.watched(context, files, vlan.PRIORITY, transports)


for _transports in ("ud", "rc", "rc,ud"):
    for _test in (*UCP_TESTS, *ATOMICS):
        AREA.add(f"ucx_perftest -t {_test} over {_transports}",
                 partial(ucp, f"{_transports},self", _test, SIZES if _test in UCP_TESTS else (8,)),
                 timeout=LIMIT, long=_test != "tag_lat",
                 smoke=_test == "tag_lat" and _transports == "rc,ud")
    AREA.add(f"ucx_perftest over VLAN interfaces and {_transports}, with a service level",
             partial(over_vlan, f"{_transports},self"), timeout=LIMIT)
for _transport, _tests in UCT_TESTS.items():
    for _test, _ways in _tests.items():
        AREA.add(f"ucx_perftest -x {_transport} -t {_test}",
                 partial(uct, _transport, _test, _ways), timeout=LIMIT, long=True)
AREA.cannot("ucx_perftest -x rc_verbs -t swap",
            "verbs have fetch-and-add and compare-and-swap alone")

# SPDX-License-Identifier: Apache-2.0
"""UCX: what MPI and many others stand on. `ucx_perftest` runs over datagrams (`ud`) and over
connections (`rc`, which it makes by datagrams), and over no other transport, so that what is seen
is the NIC's.
"""

from __future__ import annotations

import re
from functools import partial

from harness import Area, CaseFailed, Context, Peer, check, skip

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
UCP_TESTS = ("tag_lat", "tag_bw", "tag_sync_lat", "stream_lat", "stream_bw", "ucp_am_lat",
             "ucp_am_bw", "ucp_put_lat", "ucp_put_bw", "ucp_get")
ATOMICS = ("ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap")


def install(peer: Peer) -> None:
    """UCX's programs and libraries in a guest."""
    if peer.run(f"test -x {FOLDER}/ucx_perftest", check=False).status != 0:
        extras.unpack(peer.guest, extras.archive(SUITE, PACKAGES, FILES), FOLDER)


def settings(peer: Peer, transports: str) -> str:
    """What a user says to UCX, in front of a command."""
    return f"UCX_TLS={transports} UCX_NET_DEVICES={peer.rdma}:1"


def environment(peer: Peer, transports: str) -> str:
    """The same, and where its files are."""
    return (f"LD_LIBRARY_PATH={FOLDER} UCX_MODULE_DIR={FOLDER} {settings(peer, transports)} "
            "UCX_WARN_UNUSED_ENV_VARS=n")


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
    context.ran("ucx_perftest", extras.version(extras.archive(SUITE, PACKAGES, FILES), "ucx-utils"),
                f"{settings(context.b, transports)} ucx_perftest -t {test} -s "
                f"{sizes[0] if len(sizes) == 1 else 'BYTES'} {context.a.ip()}")
    for size in sizes:
        count = max(20, iterations if size < 65536 else iterations // 20)
        row = perftest(context, transports, "-t", test, "-s", str(size), "-n", str(count), "-w",
                       "10")
        figures.append(f"{size} B: {row[2]} us")
    context.note(", ".join(figures))


for _transports in ("ud", "rc", "rc,ud"):
    AREA.add(f"ucx_perftest -t tag_lat over {_transports}",
             partial(ucx, f"{_transports},self", "tag_lat", SIZES, 1000), timeout=LIMIT,
             smoke=_transports == "rc,ud")
for _transports in ("ud", "rc"):
    for _test in UCP_TESTS:
        if _test != "tag_lat":
            AREA.add(f"ucx_perftest -t {_test} over {_transports}",
                     partial(ucx, f"{_transports},self", _test, SIZES, 1000), timeout=LIMIT,
                     long=True)
    for _test in ATOMICS:
        AREA.add(f"ucx_perftest -t {_test} over {_transports}",
                 partial(ucx, f"{_transports},self", _test, (8,), 1000), timeout=LIMIT, long=True)

# SPDX-License-Identifier: Apache-2.0
"""MPI and what it stands on, one rank in each guest: Open MPI over UCX and over libfabric, MPICH
over UCX, libfabric itself.

NetPIPE compares what arrives with what was sent, hpcc its results with what they should be. No
transport but the one that a case names is allowed, and the device must have moved as many bytes.

All is Debian's of trixie, in guests with forky too, whose libucx0 has no verbs; it is put where it
belongs, for paths are compiled in. `mpirun` starts its remote ranks by ssh, which the guests do not
have: a script hands the command to a shell of the other guest.
"""

from __future__ import annotations

import re
import shlex
from functools import partial

from areas import cm
from harness import Area, CaseFailed, Context, Peer, check, skip

from lab import extras

AREA = Area("programs_mpi")
LIMIT = 600.0  # the first case may fetch the packages
LIBRARIES = "usr/lib/x86_64-linux-gnu"
UCX = f"{LIBRARIES}/ucx/libuct_ib.so.0"
OPENMPI = (("openmpi-bin", "netpipe-openmpi", "hpcc", "libfabric-bin"),
           ("usr/bin/mpirun.openmpi", "usr/bin/prterun", "usr/bin/prted", "usr/bin/NPopenmpi",
            "usr/bin/hpcc", "usr/share/doc/hpcc/examples/_hpccinf.txt", "usr/bin/fi_pingpong",
            "etc/openmpi", "usr/share/openmpi", "usr/share/prte", f"{LIBRARIES}/openmpi",
            f"{LIBRARIES}/pmix2", UCX))
MPICH = (("mpich", "netpipe-mpich2"),
         ("usr/bin/mpiexec.hydra", "usr/bin/hydra_pmi_proxy", "usr/bin/NPmpich2", UCX))
FOLDER = "/root/mpi"
# As ssh: a host and words for a shell there, behind options that it does not need.
AGENT = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
echo "$*" | exec socat -t 3600 - TCP:$host:$AGENT_PORT
"""
AGENT_SERVER = "socat -t 3600 TCP-LISTEN:{},reuseaddr,fork EXEC:'sh -s'"
AGENT_SETTINGS = (f"PRTE_MCA_plm_ssh_agent={FOLDER}/agent HYDRA_LAUNCHER=ssh "
                  f"HYDRA_LAUNCHER_EXEC={FOLDER}/agent")
FINGER_PORT = 47592  # fi_pingpong's
BIGGEST = 4 << 20
SIZES = 44  # of NetPIPE, up to the biggest
NO_SRQ = "UCX's rc takes its receives from an SRQ, which the public ABI does not have"
# The NIC's way for each MPI: settings of mpirun.
BY_UCX = "--mca pml ucx -x UCX_TLS={} -x UCX_NET_DEVICES={}:1"
BY_LIBFABRIC = "--mca pml cm --mca mtl ofi -x FI_PROVIDER='{}'"


def install(context: Context, packages: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
    """Programs of MPI in both guests, and how one of them reaches the other."""
    tar = extras.archive("trixie", *packages, extras.in_place)
    names = "".join(f"{peer.ip()} {peer.name}\n" for peer in (context.a, context.b))
    for peer in (context.a, context.b):
        if peer.run(f"test -e /{packages[1][0]}", check=False).status != 0:
            extras.install(peer.guest, tar)
        peer.run(f"mkdir -p {FOLDER} && grep -q {context.a.ip()} /etc/hosts || printf %s "
                 f"{shlex.quote(names)} >>/etc/hosts")
        peer.guest.put(AGENT, f"{FOLDER}/agent", 0o755)


def version(packages: tuple[tuple[str, ...], tuple[str, ...]], package: str) -> str:
    """A package with its version."""
    return extras.version(extras.archive("trixie", *packages, extras.in_place), package)


def over_ucx(context: Context, transports: str) -> None:
    """Skips what UCX does not do with this software."""
    if lack := [side for side in ("driver", "provider") if not context.has(side)]:
        skip(f"UCX makes its connections by UD, which needs our {' and '.join(lack)}")
    if not context.has("ext") and "rc" in transports:
        skip(NO_SRQ)


def few_peers(context: Context) -> str:
    """A setting for rxm: its CQ is for 256 peers otherwise, more than the public ABI's are."""
    return "" if context.has("driver") and context.has("ext") else "FI_UNIVERSE_SIZE=2"


def by(context: Context, way: str, *words: str) -> str:
    """mpirun with one rank in each guest; `way`: `ucx` or `libfabric`."""
    peer = context.b
    settings = BY_UCX.format(*words, peer.rdma) if way == "ucx" else BY_LIBFABRIC.format(*words)
    if way != "ucx" and (few := few_peers(context)):
        settings += f" -x {few}"
    return (f"mpirun.openmpi --allow-run-as-root -np 2 --map-by ppr:1:node --host "
            f"{context.a.name},{peer.name} {settings}")


def run(context: Context, command: str, least: int, timeout: float = 120.0) -> str:
    """Runs an MPI program from the second guest; the devices must have moved `least` bytes each
    way."""
    peers = (context.a, context.b)
    before = {peer.index: peer.counters() for peer in peers}
    port = context.port()
    remote = context.a.spawn(AGENT_SERVER.format(port))
    context.a.wait_listening(port, remote)
    done = context.b.run(f"cd {FOLDER} && export AGENT_PORT={port} {AGENT_SETTINGS} && {command} "
                         "</dev/null 2>&1",
                         timeout=timeout, check=False)
    if done.status != 0:
        raise CaseFailed(f"{context.b.name}: '{command}' ended with status {done.status}: "
                         f"{done.stdout.strip()[-400:]}")
    for peer in peers:
        after = peer.counters()
        for name in ("rnic.tx.bytes", "rnic.rx.bytes"):
            by_rdma = after[name] - before[peer.index][name]
            check(by_rdma >= least, f"{peer.name}: '{command}' moved {by_rdma} bytes by {name}, "
                  f"not {least}")
    return str(done.stdout)


def netpipe(context: Context, mpirun: str, program: str, package: str, rounds: int = 3) -> None:
    """NetPIPE: each size's bytes are compared; then it measures."""
    context.ran(program, package, f"{mpirun} {program} -i -l 1 -u {BIGGEST} -n {rounds} -p 0")
    said = run(context, context.programs[-1]["command"], BIGGEST * rounds)
    sizes = [int(size) for size in re.findall(
        r"^ *\d+: +(\d+) bytes +\d+ times --> +Integrity check passed *$", said, re.M)]
    check(len(sizes) == SIZES and sizes[0] == 1 and sizes[-1] == BIGGEST,
          f"{program} verified {len(sizes)} sizes of {SIZES}: {said.strip()[-400:]}")
    said = run(context, f"{mpirun} {program} -l 1 -u 1048576 -n 20 -p 0 -o /dev/null", 1 << 20)
    rows = re.findall(r"^ *\d+: +(\d+) bytes .*--> +(\S+) Mbps in +(\S+) usec", said, re.M)
    check(rows, f"{program} measured nothing: {said.strip()[-400:]}")
    context.note(f"{len(sizes)} sizes from 1 B to {BIGGEST} B verified; {rows[0][0]} B: "
                 f"{rows[0][2]} us, {rows[-1][0]} B: {rows[-1][1]} Mb/s")


def netpipe_ucx(transports: str, context: Context) -> None:
    """NetPIPE over Open MPI over UCX."""
    mpirun = by(context, "ucx", f"{transports},self")
    context.ran("NPopenmpi", version(OPENMPI, "netpipe-openmpi"), f"{mpirun} NPopenmpi")
    over_ucx(context, transports)
    context.programs.clear()
    install(context, OPENMPI)
    netpipe(context, mpirun, "NPopenmpi", version(OPENMPI, "netpipe-openmpi"))


def netpipe_libfabric(provider: str, context: Context) -> None:
    """NetPIPE over Open MPI over libfabric."""
    install(context, OPENMPI)
    netpipe(context, by(context, "libfabric", provider), "NPopenmpi",
            version(OPENMPI, "netpipe-openmpi"))


def netpipe_mpich(transports: str, context: Context) -> None:
    """NetPIPE over MPICH, which Debian builds with UCX."""
    peer = context.b
    mpirun = (f"mpiexec.hydra -n 2 -ppn 1 -hosts {context.a.name},{peer.name} "
              f"-genv UCX_TLS {transports},self -genv UCX_NET_DEVICES {peer.rdma}:1")
    context.ran("NPmpich2", version(MPICH, "netpipe-mpich2"), f"{mpirun} NPmpich2")
    over_ucx(context, transports)
    context.programs.clear()
    install(context, MPICH)
    netpipe(context, mpirun, "NPmpich2", version(MPICH, "netpipe-mpich2"))


def hpcc(way: str, words: str, size: int, context: Context) -> None:
    """hpcc with its package's own input, but for the size of the problem and two ranks. It checks
    what comes of each of its parts."""
    mpirun = by(context, way, words)
    context.ran("hpcc", version(OPENMPI, "hpcc"), f"{mpirun} hpcc")
    if way == "ucx":
        over_ucx(context, words)
    install(context, OPENMPI)
    for peer in (context.a, context.b):
        peer.run(f"cd {FOLDER} && rm -f hpccoutf.txt && sed -e 's/^1000 /{size} /' -e "
                 "'s/^2  *Ps/1 Ps/' /usr/share/doc/hpcc/examples/_hpccinf.txt >hpccinf.txt && "
                 f"grep -q '^{size} .*Ns' hpccinf.txt && grep -q '^1 Ps' hpccinf.txt")
    run(context, f"{mpirun} hpcc", size * size, timeout=300)
    report = context.b.out(f"cat {FOLDER}/hpccoutf.txt")
    sums = {end: [int(count) for count in re.findall(
        rf"(\d+) tests completed and {end} residual checks", report)] for end in
        ("passed", "failed")}
    summary = dict(re.findall(r"^(\w+)=(\S+)$", report, re.M))
    check(len(sums["passed"]) == 2 and all(sums["passed"]) and not any(sums["failed"])
          and re.search(r"\.\.\. PASSED$", report, re.M) and "FAILED" not in report,
          f"of hpcc's tests of HPL and PTRANS passed {sums['passed']}, failed {sums['failed']}")
    wrong = {name: summary.get(name) for name, value in
             (("Success", "1"), ("MPIRandomAccess_Errors", "0"),
              ("MPIRandomAccess_LCG_Errors", "0")) if summary.get(name) != value}
    check(not wrong, f"hpcc says {wrong}")
    for name, most in (("MPIFFT_maxErr", 1e-9), ("PTRANS_residual", 16.0)):
        check(0 <= float(summary[name]) < most, f"hpcc: {name} is {summary[name]}")
    passed = " and ".join(map(str, sums["passed"]))
    context.note(f"residual checks of PTRANS and HPL: {passed} passed, 0 failed; "
                 f"MPIRandomAccess_Errors=0, HPL_Tflops={summary['HPL_Tflops']}")


def fi_pingpong(provider: str, endpoint: str, context: Context) -> None:
    """libfabric's own program, which compares what arrives."""
    server, client = context.a, context.b
    command = f"fi_pingpong -p '{provider}' -e {endpoint} -c -S all -I 10"
    if "rxm" in provider and (few := few_peers(context)):
        command = f"{few} {command}"
    context.ran("fi_pingpong", version(OPENMPI, "libfabric-bin"), f"{command} {server.ip()}")
    if endpoint == "dgram" or "rxd" in provider:
        cm.needs(context, "UD queue pairs of programs", "driver", "provider")
    install(context, OPENMPI)
    listener = server.spawn(command)
    server.wait_listening(FINGER_PORT, listener)
    done = client.run(f"{command} {server.ip()} 2>&1", timeout=120, check=False)
    rows = re.findall(r"^(\S+) +10 +=10 +\S+ +\S+s +(\S+) +(\S+)", done.stdout, re.M)
    check(done.status == 0 and rows, f"{client.name}: {command} ended with status {done.status}: "
          f"{done.stdout.strip()[-400:]}")
    server.finish(listener, 30)
    context.note(f"{len(rows)} sizes, {rows[0][0]} B: {rows[0][2]} us, {rows[-1][0]}: "
                 f"{rows[-1][1]} MB/s")


# Connections of stock drivers are for kernels with QP1.
BY_CM = {"only": ("forky", "trixie-backports", "newest"),
         "reason": "the stock driver of 6.12 has no QP1, so no connection manager"}
for _transports in ("rc", "ud", "rc,ud"):
    AREA.add(f"NetPIPE over Open MPI over UCX, {_transports}", partial(netpipe_ucx, _transports),
             timeout=LIMIT, smoke=_transports == "rc,ud")
AREA.add("NetPIPE over Open MPI over libfabric, verbs;ofi_rxm",
         partial(netpipe_libfabric, "verbs;ofi_rxm"), timeout=LIMIT, smoke=True, **BY_CM)
for _transports in ("rc", "ud"):
    AREA.add(f"NetPIPE over MPICH over UCX, {_transports}", partial(netpipe_mpich, _transports),
             timeout=LIMIT)
AREA.add("hpcc over Open MPI over UCX, rc", partial(hpcc, "ucx", "rc,self", 400), timeout=LIMIT)
AREA.add("hpcc over Open MPI over UCX, ud", partial(hpcc, "ucx", "ud,self", 400), timeout=LIMIT)
AREA.add("hpcc over Open MPI over libfabric, verbs;ofi_rxm",
         partial(hpcc, "libfabric", "verbs;ofi_rxm", 400), timeout=LIMIT, **BY_CM)
for _provider, _endpoint in (("verbs", "msg"), ("verbs", "dgram"), ("verbs;ofi_rxm", "rdm"),
                             ("verbs;ofi_rxd", "rdm")):
    AREA.add(f"fi_pingpong -p '{_provider}' -e {_endpoint}",
             partial(fi_pingpong, _provider, _endpoint), timeout=LIMIT, **BY_CM)
AREA.cannot("NPopenmpi2", "it hands MPI_Win_create a null info object, which Open MPI refuses with "
            "MPI_ERR_INFO over any transport (netpipe-openmpi 3.7.2-9.1 with Open MPI 5.0.7)")
AREA.cannot("OSU micro-benchmarks", "Debian does not carry them")
AREA.cannot("Intel MPI Benchmarks", "Debian does not carry them")

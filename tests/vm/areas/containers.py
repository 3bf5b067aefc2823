# SPDX-License-Identifier: Apache-2.0
"""Containers of podman and of containerd in two guests with systemd, as docs/kubernetes.md starts
them: with the RDMA device files, an interface by macvlan, ipvlan or host-device (of CNI's plugins
or podman's netavark), the memlock limit, and limits of the rdma cgroup. A container's root is an
overlay of the guest's own, since there is no registry of images."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from areas import cm
from areas.vlan import ipv4_gid
from harness import ROOT, Area, Context, Peer, check
from programs import under_policy

from lab import extras

AREA = Area("containers", layout="nodes")
PACKAGES = ("podman", "crun", "conmon", "netavark", "containerd", "runc",
            "containernetworking-plugins")
PLUGINS = ("macvlan", "ipvlan", "host-device", "static", "loopback")
FILES = ("usr/bin/podman", "usr/bin/crun", "usr/bin/conmon", "usr/lib/podman/netavark",
         "usr/share/containers", "etc/containers", "usr/bin/containerd", "usr/bin/ctr",
         "usr/bin/containerd-shim-runc-v2", "usr/sbin/runc",
         "usr/lib/systemd/system/containerd.service",
         *(f"usr/lib/cni/{plugin}" for plugin in PLUGINS))
SHOWN = ("podman", "containerd", "containernetworking-plugins")
KINDS = ("macvlan", "ipvlan", "host-device")
PLACE = "/run/pods"  # of what the containers have for a root
CONFIG = "/etc/cni/net.d/10-pods.conf"  # the one that ctr takes
NAME = "pod"
INTERFACE = "eth0"
NODE_SCRIPT = ROOT / "docs" / "kubernetes" / "node-config.sh"
SIZE = 64 << 10
BIG = 16 << 20  # of a region, more than systemd's memlock limit of 8 MiB
TOO_BIG = ("Couldn't allocate MR", "failed to create mr")
PATIENCE = 300  # runtimes are large programs for an emulated CPU
# These guests have no D-Bus, by which systemd would make the cgroups, and an overlay for a root,
# above which podman's own storage cannot be one.
PODMAN = '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\n'
STORAGE = ('[storage]\ndriver = "vfs"\nrunroot = "/run/containers/storage"\n'
           'graphroot = "/var/lib/containers/storage"\n')
# In the container: DEVICE GID WORDS... Runs the words with the index of the GID, when it is there.
WITH_INDEX = """#!/bin/sh
gids=/sys/class/infiniband/$1/ports/1/gids
wanted=$2
shift 2
for try in $(seq 100); do
    for index in $(seq 0 15); do
        [ "$(cat $gids/$index)" != "$wanted" ] || exec "$@" -x $index
    done
    sleep 0.1
done
echo "no GID $wanted" >&2
exit 1
"""
# In the container: DEVICE. Opens it, and makes protection domains, until that is refused, or there
# are 8.
UNTIL_REFUSED = """import json, sys
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
held = []
def until_refused(make):
    for count in range(8):
        try:
            held.append(make())
        except PyverbsRDMAError as error:
            return [count, str(error)]
    return [8, ""]
opened = until_refused(lambda: Context(name=sys.argv[1]))
made = until_refused(lambda: PD(held[0]))
with open("/sys/fs/cgroup/rdma.current") as file:
    print(json.dumps({"contexts": opened, "domains": made, "current": file.read().strip()}))
"""


def address(peer: Peer) -> str:
    """Of the container of a guest."""
    return f"10.77.0.{peer.index + 1}"


def ready(peer: Peer) -> None:
    """What Debian's packages install, and a root for a container."""
    if peer.run(f"test -e {PLACE}/root/bin", check=False).status == 0:
        return
    extras.install(peer.guest, extras.archive(peer.suite, PACKAGES, FILES, extras.in_place))
    peer.guest.put(PODMAN, "/etc/containers/containers.conf")
    peer.guest.put(STORAGE, "/etc/containers/storage.conf")
    peer.run(f"mkdir -p /opt/cni /etc/cni/net.d {PLACE}/upper {PLACE}/work {PLACE}/root && "
             "ln -sfn /usr/lib/cni /opt/cni/bin && mount -t overlay overlay "
             f"-o lowerdir=/,upperdir={PLACE}/upper,workdir={PLACE}/work {PLACE}/root && "
             f"mkdir -p {PLACE}/root/run/netns")
    peer.guest.put(WITH_INDEX, f"{PLACE}/root/with-index")
    peer.guest.put(UNTIL_REFUSED, f"{PLACE}/root/until-refused.py")
    peer.run("systemctl daemon-reload && systemctl start containerd", timeout=90)


def programs(context: Context) -> None:
    """For the evidence: what was run."""
    tar = extras.archive(context.a.suite, PACKAGES, FILES, extras.in_place)
    context.note(", ".join(extras.version(tar, package) for package in SHOWN))


def plugin_config(peer: Peer, kind: str) -> dict[str, Any]:
    """A network of CNI with one container in each guest."""
    own = {"macvlan": {"master": peer.interface, "mode": "bridge"},
           "ipvlan": {"master": peer.interface, "mode": "l2"},
           "host-device": {"device": peer.interface}}
    return {"cniVersion": "0.4.0", "name": "pods", "type": kind, **own[kind],
            "ipam": {"type": "static", "addresses": [{"address": f"{address(peer)}/16"}]}}


def plugin(peer: Peer, kind: str, command: str) -> str:
    """Words that call a plugin for a namespace by hand, as a runtime does."""
    return (f"CNI_COMMAND={command} CNI_CONTAINERID={NAME} CNI_NETNS=/run/netns/{NAME} "
            f"CNI_IFNAME={INTERFACE} CNI_PATH=/usr/lib/cni /usr/lib/cni/{kind} <{CONFIG}")


@contextlib.contextmanager
def network(context: Context, peer: Peer, engine: str, kind: str) -> Iterator[str]:
    """The option of an engine by which a container has such an interface."""
    peer.guest.put(json.dumps(plugin_config(peer, kind)), CONFIG)
    with contextlib.ExitStack() as stack:
        if kind == "macvlan":
            stack.enter_context(under_policy(peer, "macs=any"))
        if kind == "host-device":
            # The interface comes back without its addresses.
            stack.callback(context.lab.configure_network, [peer.guest])
        if engine == "containerd":
            yield "--cni"
        elif kind == "host-device":
            stack.callback(peer.run, f"{plugin(peer, kind, 'DEL')}; ip netns del {NAME}",
                           check=False)
            peer.run(f"ip netns add {NAME} && {plugin(peer, kind, 'ADD')}")
            yield f"--network ns:/run/netns/{NAME}"
        else:
            stack.callback(peer.run, "podman network rm -f pods", check=False)
            # One may be left of a case that ran out of time.
            peer.run("podman network rm -f pods", check=False)
            peer.run(f"podman network create -d {kind} -o parent={peer.interface} "
                     "--subnet 10.77.0.0/16 pods")
            yield f"--network pods:ip={address(peer)}"


def container(engine: str, options: str, words: str) -> str:
    """A command line that runs words in a container, which has the RDMA device files."""
    if engine == "podman":
        return (f"podman run --rm --name {NAME} {options} --device /dev/infiniband "
                f"--rootfs {PLACE}/root {words}")
    return (f"ctr run --rm --env PATH=/usr/sbin:/usr/bin {options} --device /dev/infiniband "
            f"--rootfs {PLACE}/root {NAME} {words}")


def end(peer: Peer, engine: str) -> None:
    """A container that is there although its case is over."""
    peer.run(f"podman rm -f -t 0 {NAME}" if engine == "podman" else
             f"ctr task kill -s KILL {NAME}; sleep 1; ctr task rm {NAME}; ctr container rm {NAME}",
             check=False)


def write(context: Context, engine: str, options: list[str], size: int = SIZE,
          before: str = "") -> str:
    """ib_write_bw between the containers; what the client said. Its errors are the caller's."""
    a, b = context.a, context.b
    port = context.port()
    server, client = (before + container(
        engine, options[peer.index], f"sh /with-index {peer.rdma} {ipv4_gid(address(peer))} "
        f"ib_write_bw -F -d {peer.rdma} -s {size} -n 5 -p {port}") for peer in (a, b))
    listener = a.spawn(server)
    try:
        a.until(f"sleep 1; pid=$(pgrep -x ib_write_bw) && grep -qs ':{port:04X} 0*:0000 0A' "
                "/proc/$pid/net/tcp /proc/$pid/net/tcp6", f"'{server}' does not listen",
                PATIENCE)
        done = b.run(f"{client} {address(a)}", timeout=PATIENCE, check=False)
        said = str(done.stdout + done.stderr)
        if done.status == 0:
            a.finish(listener, PATIENCE)
            check(f" {size} " in said, f"no result: {said}")
        return said
    finally:
        for peer in (a, b):
            end(peer, engine)


def bandwidth(engine: str, kind: str, context: Context) -> None:
    """One size that fits the memlock limit."""
    if kind != "host-device":
        cm.needs(context, "RoCE of a pod", "driver", "provider",
                 *(("ext",) if kind == "macvlan" else ()))
    with contextlib.ExitStack() as stack:
        options = []
        for peer in context.peers:
            ready(peer)
            options.append(stack.enter_context(network(context, peer, engine, kind)))
        said = write(context, engine, options)
    check("MiB/sec" in said and f" {SIZE} " in said, f"ib_write_bw: {said}")
    programs(context)


for _engine in ("podman", "containerd"):
    for _kind in KINDS:
        AREA.add(f"{_engine}, {_kind}: ib_write_bw between containers of two guests",
                 partial(bandwidth, _engine, _kind), timeout=1200,
                 smoke=(_engine, _kind) == ("containerd", "host-device"))


def refused(said: str, what: str) -> None:
    """A region beyond the limit was refused, by the words that docs/kubernetes.md names."""
    check(any(words in said for words in TOO_BIG), f"{what}: {said}")


@AREA.case("memlock: containers at the default limit and without one", timeout=2400)
def limited(context: Context) -> None:
    with contextlib.ExitStack() as stack:
        options = []
        for peer in context.peers:
            ready(peer)
            options.append(stack.enter_context(network(context, peer, "podman", "host-device")))
        # As a service has it, and so its containers.
        limit = context.a.out("systemctl show -P DefaultLimitMEMLOCK").strip()
        check(limit == str(8 << 20), f"the default limit is {limit}")
        service = f"prlimit --memlock={limit}:{limit} "
        refused(write(context, "podman", options, BIG, service), "podman at the default")
        unlimited = [f"{words} --ulimit memlock=-1:-1" for words in options]
        said = write(context, "podman", unlimited, BIG, service)
        check(f" {BIG} " in said, f"podman without a limit: {said}")
    with contextlib.ExitStack() as stack:
        options = [stack.enter_context(network(context, peer, "containerd", "host-device"))
                   for peer in context.peers]
        refused(write(context, "containerd", options, BIG), "containerd at the default")
        for peer in context.peers:
            peer.guest.put("[Service]\nExecStart=/usr/bin/sleep infinity\n",
                           "/etc/systemd/system/kubelet.service")
            peer.run("systemctl daemon-reload && systemctl start kubelet")
            peer.guest.put(NODE_SCRIPT, "/run/node-config.sh")
            done = peer.run("sh -s </run/node-config.sh", timeout=180, check=False)
            check(done.status == 0,
                  f"{peer.name}: node-config.sh: {done.stdout}{done.stderr}")
        said = write(context, "containerd", options, BIG)
        check(f" {BIG} " in said, f"containerd without a limit: {said}")


@AREA.case("the rdma cgroup refuses one context and one object more", timeout=900)
def few(context: Context) -> None:
    peer = context.a
    ready(peer)
    limits = f"--network none --cgroup-conf=rdma.max='{peer.rdma} hca_handle=2 hca_object=5'"
    line = container("podman", limits, f"python3 /until-refused.py {peer.rdma}")
    said = peer.run(line, timeout=PATIENCE, check=False).stderr
    check("controller `rdma` is not available" in said, f"without the controller: {said}")
    for group in ("/sys/fs/cgroup", "/sys/fs/cgroup/libpod_parent"):
        peer.run(f"echo +rdma >{group}/cgroup.subtree_control")
    seen = json.loads(peer.out(line, timeout=PATIENCE))
    again = "Resource temporarily unavailable"
    check(seen["contexts"][0] == 2 and again in seen["contexts"][1], f"contexts: {seen}")
    check(seen["domains"][0] == 5 and again in seen["domains"][1], f"objects: {seen}")
    check(seen["current"] == f"{peer.rdma} hca_handle=2 hca_object=5", f"in use: {seen}")
    context.note(f"at most 2 contexts and 5 objects: {again}")


@AREA.case("a container without the device files has no RDMA, whatever it makes itself",
           timeout=900)
def without(context: Context) -> None:
    peer = context.a
    ready(peer)
    number = peer.out("stat -c '%Hr %Lr' /dev/infiniband/uverbs0").strip()
    words = (f"sh -c 'ibv_devinfo; ls /dev/infiniband; mkdir -p /dev/infiniband && mknod "
             f"/dev/infiniband/uverbs0 c {number} && ibv_devinfo -d {peer.rdma}; "
             "cat /dev/infiniband/uverbs0'")
    line = container("podman", "--network none --cap-add MKNOD", words)
    done = peer.run(line.replace("--device /dev/infiniband ", ""), timeout=PATIENCE, check=False)
    said = str(done.stdout + done.stderr)
    check("hca_id" not in said and "Operation not permitted" in said, f"it has: {said}")

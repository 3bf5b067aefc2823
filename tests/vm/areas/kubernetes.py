# SPDX-License-Identifier: Apache-2.0
"""A node as docs/kubernetes.md makes it: a guest with systemd runs the script of its DaemonSet,
beside stand-ins for containerd and the kubelet, and has what Node Feature Discovery and the RDMA
shared device plugin look for, by their published rules. Neither of these is in Debian."""

from __future__ import annotations

import json
import re

from harness import ROOT, Area, CaseFailed, Context, Peer, check

AREA = Area("kubernetes", layout="systemd")
FILES = ROOT / "docs" / "kubernetes"
SCRIPT = "/run/node-config.sh"
UNITS = ("containerd", "kubelet")
# What the plugin asks of each device (its requiredRdmaDevices).
REQUIRED = ("rdma_cm", "umad", "uverbs")
BIG = 16 << 20  # of a region, more than a memlock limit of 8 MiB


def stand_in(peer: Peer) -> None:
    """Services with the names that the script looks for."""
    for unit in UNITS:
        peer.guest.put("[Service]\nExecStart=/usr/bin/sleep infinity\nLimitMEMLOCK=8M\n",
                       f"/etc/systemd/system/{unit}.service")
    peer.run(f"systemctl daemon-reload && systemctl start {' '.join(UNITS)}")


def configure(peer: Peer) -> str:
    """Runs the script as the DaemonSet does; what it says."""
    peer.guest.put(FILES / "node-config.sh", SCRIPT)
    done = peer.run(f"sh -s <{SCRIPT}", timeout=120, check=False)
    check(done.status == 0, f"{peer.name}: node-config.sh: {done.stdout}{done.stderr}")
    return str(done.stdout)


def shown(peer: Peer, name: str) -> list[str]:
    """A property of the services."""
    return [peer.out(f"systemctl show -P {name} {unit}.service").strip() for unit in UNITS]


@AREA.case("the node's script: modules, limits, services, and nothing twice", smoke=True)
def configured(context: Context) -> None:
    peer = context.a
    stand_in(peer)
    before = shown(peer, "MainPID")
    check(re.search(r"^mana-node-config: ready:( \w+)+$", configure(peer), re.M),
          "it does not say that it is ready")
    loaded = peer.out("lsmod")
    for module in ("mana_ib", "ib_uverbs", "ib_umad", "rdma_ucm"):
        check(re.search(rf"^{module} ", loaded, re.M), f"{module} is not loaded")
    check(peer.out("cat /etc/modules-load.d/mana-rdma.conf").split() == ["ib_umad", "rdma_ucm"],
          "the modules are not loaded at the next boot")
    check(shown(peer, "LimitMEMLOCK") == ["infinity"] * len(UNITS), "the limits stay")
    for unit in UNITS:
        limits = peer.out(f"cat /proc/$(systemctl show -P MainPID {unit})/limits")
        check(re.search(r"^Max locked memory +unlimited +unlimited", limits, re.M),
              f"{unit}: {limits}")
    after = shown(peer, "MainPID")
    check(not set(before) & set(after), "services with the old limit still run")
    configure(peer)
    check(shown(peer, "MainPID") == after, "services are restarted again")


@AREA.case("a node without a NIC, or without a module, says so")
def refused(context: Context) -> None:
    peer = context.a
    peer.guest.put(FILES / "node-config.sh", SCRIPT)
    names = peer.out("ls /sys/bus/auxiliary/devices | grep '^mana' || true").split()
    driver = peer.out("ls -d /sys/bus/auxiliary/drivers/mana_ib* | head -1").strip()
    try:
        peer.run("; ".join(f"echo {name} >{driver}/unbind" for name in names))
        done = peer.run(f"sh -s <{SCRIPT}", check=False)
        check(done.status == 1 and "no RDMA device: is there a MANA NIC?" in done.stderr,
              f"{done.status}: {done.stderr}")
    finally:
        peer.run("; ".join(f"echo {name} >{driver}/bind" for name in names))
    done = peer.run(f"sed s/ib_umad/ib_none/ {SCRIPT} | sh -s", check=False)
    check(done.status == 1 and "there is no module ib_none in kernel" in done.stderr,
          f"{done.status}: {done.stderr}")


def functions(peer: Peer) -> dict[str, tuple[str, str, str]]:
    """Vendor, class and driver of each PCI function."""
    lines = peer.out("cd /sys/bus/pci/devices; for d in *; do echo $d $(cat $d/vendor) "
                     "$(cat $d/class) $(basename $(readlink $d/driver || echo none)); done")
    return {name: (vendor[2:], kind[2:], driver)
            for name, vendor, kind, driver in map(str.split, lines.splitlines())}


def labels(peer: Peer) -> set[str]:
    """What Node Feature Discovery makes of the configuration that we ship."""
    text = (FILES / "node-feature-discovery.yaml").read_text()
    classes = json.loads(re.search(r"deviceClassWhitelist: (\[.*\])", text)[1])  # type: ignore
    check("deviceLabelFields: [vendor]" in text, "labels are not by vendor")
    return {f"pci-{vendor}.present" for vendor, kind, _ in functions(peer).values()
            if any(kind.startswith(prefix) for prefix in classes)}


def device_files(peer: Peer, function: str) -> list[str]:
    """The device files of a function's RDMA devices, as the plugin's library gathers them."""
    return peer.out(f"""
for rdma in $(ls /sys/bus/pci/devices/{function}/infiniband 2>/dev/null); do
    for kind in infiniband_verbs infiniband_mad; do
        for one in /sys/class/$kind/*/ibdev; do
            [ "$(cat $one 2>/dev/null)" != $rdma ] || basename $(dirname $one)
        done
    done
    [ ! -c /dev/infiniband/rdma_cm ] || echo rdma_cm
done""").split()


@AREA.case("labels of Node Feature Discovery, and what the device plugin selects", smoke=True)
def selected(context: Context) -> None:
    peer = context.a
    stand_in(peer)
    configure(peer)
    check("pci-1414.present" in labels(peer), f"labels: {labels(peer)}")
    for name in ("node-config.yaml", "device-plugin.yaml"):
        check("feature.node.kubernetes.io/pci-1414.present" in (FILES / name).read_text(),
              f"{name} does not ask for the label")
    config = json.loads((FILES / "device-plugin-config.json").read_text())["configList"][0]
    wanted = config["selectors"]
    found = {name: device_files(peer, name)
             for name, (vendor, kind, driver) in functions(peer).items()
             if kind.startswith("02") and vendor in wanted["vendors"]
             and driver in wanted["drivers"]}
    check(len(found) == 2, f"selected are {found}")
    for name, files in found.items():
        missing = [one for one in REQUIRED if not any(one in file for file in files)]
        # The stock driver of 6.12 has no QP 1, and so no umad.
        if missing == ["umad"] and not context.has("driver") and peer.suite == "trixie":
            context.note(f"{name}: the plugin refuses it, there is no umad")
            continue
        check(not missing, f"{name}: {files} lack {missing}")
        context.note(f"{name}: {' '.join(sorted(set(files)))}")


@AREA.case("memlock: what a process without rights registers at 8 MiB and without a limit")
def limited(context: Context) -> None:
    a, b = context.a, context.b
    stand_in(a)
    configure(a)
    nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all prlimit "

    def run(limit: str) -> str:
        port = context.port()
        program = f"ib_write_bw -F -s {BIG} -n 5 -p {port}"
        listener = a.spawn(f"exec {program} -d {a.rdma}")
        a.wait_listening(port, listener)
        done = b.run(f"{nobody} --memlock={limit} {program} -d {b.rdma} {a.ip()}", check=False)
        if done.status == 0:
            a.finish(listener)
        else:
            listener.kill()
        return str(done.stdout + done.stderr)

    refused_text = run(f"{8 << 20}:{8 << 20}")
    if "Couldn't allocate MR" not in refused_text and "failed to create mr" not in refused_text:
        raise CaseFailed(f"at 8 MiB: {refused_text}")
    check(str(BIG) in run("unlimited:unlimited"), "without a limit it does not run")

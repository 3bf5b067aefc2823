# SPDX-License-Identifier: Apache-2.0
"""The module as DKMS installs, upgrades and removes it: what it builds for the guest's kernel, when
the packages are tried in the suite's build root, takes the stock module's place in a guest, is
replaced by another version, and goes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from areas.lifecycle import reload_rdma, works
from harness import ROOT, Area, Context, Peer, check, skip

from lab.ours import sources_digest
from lab.paths import BUILD
from lab.progress import Step

AREA = Area("dkms")
FOLDER = "updates/dkms"
PACKAGES_TIMEOUT = 3600


def modules(suite: str) -> dict[str, Path]:
    """What DKMS built, by what it was built for: `installed` and `upgraded`."""
    output = BUILD / "packages" / suite
    stamp = output / "modules" / "sources"
    digest = sources_digest("kernel", "include")
    if not stamp.exists() or stamp.read_text() != digest:
        with Step(f"{suite}: building and trying the packages"):
            subprocess.run([sys.executable, "-B", ROOT / "tools" / "package", suite, "--test",
                            "--output", output], check=True, timeout=PACKAGES_TIMEOUT,
                           stdout=subprocess.DEVNULL)
        stamp.write_text(digest)
    return {name: next((output / "modules" / name).iterdir())
            for name in ("installed", "upgraded")}


def field(peer: Peer, name: str) -> str:
    """A field of the module that modprobe takes."""
    return peer.out(f"modinfo -F {name} mana_ib").strip()


def loaded(context: Context, peer: Peer, ours: bool) -> str:
    """Loads the module that modprobe takes, which has to work; returns its version."""
    version = field(peer, "version")
    check((f"/{FOLDER}/" in field(peer, "filename")) == ours,
          f"{peer.name}: modprobe takes {field(peer, 'filename')}")
    reload_rdma(peer)
    # not every kernel computes it for modules without a version
    running = peer.run("cat /sys/module/mana_ib/srcversion", check=False).stdout.strip()
    check(running == field(peer, "srcversion"),
          f"{peer.name}: the module that runs has the source version {running}")
    peer.until("[ -n \"$(ls -A /sys/class/infiniband)\" ]", "no RDMA device", 20)
    works(context, peer)
    return version


@AREA.case("installed, upgraded and removed", timeout=300.0 + PACKAGES_TIMEOUT)
def dkms(context: Context) -> None:
    peer = context.b
    if context.has("driver"):
        skip("the guest has our module already; DKMS replaces the stock one")
    if context.kernel != "stock":
        skip("the packages are tried with the headers of Debian's kernel")
    built = modules(peer.suite)
    folder = f"/lib/modules/{peer.guest.image.version}/{FOLDER}"
    check(field(peer, "version") == "", f"{peer.name}: the stock module has a version")
    versions = []
    for path in (built["installed"], built["upgraded"]):
        peer.guest.put(path, f"{folder}/{path.name}")
        peer.run("depmod -a", timeout=120)
        versions.append(loaded(context, peer, ours=True))
    check(versions[1] == f"{versions[0]}.1", f"{peer.name}: versions {versions}")
    peer.run(f"rm -r {folder} && depmod -a", timeout=120)
    check(loaded(context, peer, ours=False) == "", f"{peer.name}: not the stock module")
    context.note(f"versions {', '.join(versions)}, then the stock module")

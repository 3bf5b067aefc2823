# SPDX-License-Identifier: Apache-2.0
"""The driver's Debian package in a guest that has the headers of its kernel: DKMS builds the module
there, modprobe takes it instead of the stock one, an upgrade of the package replaces it, and with
the package it goes."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

from areas.lifecycle import reload_rdma, works
from areas.perftest import pingpong
from harness import ROOT, Area, Context, Peer, check, skip

from lab.ours import sources_digest
from lab.paths import BUILD
from lab.progress import Step

AREA = Area("dkms", layout="headers")
PACKAGE = "openmana-dkms"
FOLDER = "updates/dkms"
PACKAGES_TIMEOUT = 3600
# A guest without KVM compiles for minutes, on a busy host for much longer.
BUILD_TIMEOUT = 3600


def packages(suite: str, name: str = PACKAGE, parts: tuple[str, ...] = ("kernel", "include")
             ) -> tuple[Path, Path]:
    """A package that is made from these parts, the driver's or another, and that of an upgrade."""
    output = BUILD / "packages" / suite
    stamp = output / f"sources-{name}"
    digest = sources_digest(*parts, "debian")
    if not stamp.exists() or stamp.read_text() != digest:
        with Step(f"{suite}: building and trying the packages"):
            subprocess.run([sys.executable, "-B", ROOT / "tools" / "package", suite, "--test",
                            "--output", output], check=True, timeout=PACKAGES_TIMEOUT,
                           stdout=subprocess.DEVNULL)
        stamp.write_text(digest)
    first, second = (next(folder.glob(f"{name}_*.deb"))
                     for folder in (output, output / "upgrade"))
    return first, second


def field(peer: Peer, name: str) -> str:
    """A field of the module that modprobe takes."""
    return peer.out(f"modinfo -F {name} mana_ib").strip()


def running(peer: Peer, name: str) -> str:
    """A field of the module that is loaded."""
    return str(peer.run(f"cat /sys/module/mana_ib/{name}", check=False).stdout).strip()


def files(peer: Peer) -> list[str]:
    """All that is where the package, DKMS and depmod put things."""
    text = peer.out("find /etc /usr/src /usr/share/doc /usr/lib/modules /var/lib/dkms "
                    "! -name '*.pyc' | sort", timeout=120)
    return text.splitlines()


def status(peer: Peer) -> list[str]:
    """What DKMS says of our module, a line for each version and kernel."""
    return peer.out("dkms status openmana", timeout=120).splitlines()


def unknown(peer: Peer, when: str) -> None:
    """DKMS has nothing of ours."""
    lines = status(peer)
    check(not lines, f"{peer.name}: {when} dkms knows {lines}")


def install(context: Context, peer: Peer, package: Path) -> str:
    """Installs a package, whose module DKMS builds; returns the version of that."""
    place = f"/tmp/{package.name}"
    peer.guest.put(package, place)
    begin = time.monotonic()
    peer.run(["dpkg", "--install", place], timeout=BUILD_TIMEOUT)
    context.note(f"{package.name.split('_')[1]} built in {time.monotonic() - begin:.0f} s")
    version = field(peer, "version")
    lines = status(peer)
    wanted = rf"openmana/{re.escape(version)}, {re.escape(peer.guest.image.version)}, .*: installed"
    check(len(lines) == 1 and re.match(wanted, lines[0]),
          f"{peer.name}: modprobe takes version '{version}', dkms says {lines}")
    return version


def loaded(context: Context, peer: Peer, ours: bool) -> None:
    """Loads the module that modprobe takes, which has to be ours or not, and has to work."""
    path = field(peer, "filename")
    check((f"/{FOLDER}/" in path) == ours, f"{peer.name}: modprobe takes {path}")
    reload_rdma(peer)
    for name in ("version", "srcversion"):  # the stock module may have neither
        check(running(peer, name) == field(peer, name),
              f"{peer.name}: the module that runs has the {name} '{running(peer, name)}'")
    peer.until("[ -n \"$(ls -A /sys/class/infiniband)\" ]", "no RDMA device", 20)
    works(context, peer)
    links = peer.out("rdma link show")
    check("state ACTIVE" in links, f"{peer.name}: rdma link: {links.strip()}")
    pingpong("-n 300 -e -c", context)


@AREA.case("installed, upgraded, removed and purged",
           timeout=PACKAGES_TIMEOUT + 2 * BUILD_TIMEOUT + 1800)
def dkms(context: Context) -> None:
    peer = context.b
    if context.has("driver"):
        skip("the guest has our module already; DKMS replaces the stock one")
    if context.kernel != "stock":
        skip("the guest has the headers of Debian's kernel")
    first, second = packages(peer.suite)
    before = files(peer)
    check(field(peer, "version") == "", f"{peer.name}: the stock module has a version")
    unknown(peer, "before")

    old = install(context, peer, first)
    loaded(context, peer, ours=True)
    new = install(context, peer, second)
    check(new == f"{old}.1", f"{peer.name}: {new} came after {old}")
    check(running(peer, "version") == old, f"{peer.name}: the upgrade took the running module")
    loaded(context, peer, ours=True)

    for action in ("--remove", "--purge"):
        peer.run(["dpkg", action, PACKAGE], timeout=300)
        unknown(peer, f"after {action}")
        left = sorted(set(files(peer)) ^ set(before))
        check(not left, f"{peer.name}: after {action} there are, or are not: {left[:5]}")
    known = peer.run(f"dpkg-query --show {PACKAGE}", check=False)
    check(known.status != 0, f"{peer.name}: dpkg still knows {known.stdout.strip()}")
    loaded(context, peer, ours=False)
    context.note(f"versions {old}, {new}, then the stock module")

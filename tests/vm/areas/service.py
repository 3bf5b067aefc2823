# SPDX-License-Identifier: Apache-2.0
"""manad as its Debian package installs it: the unit manad@ under a systemd, in a guest, as it is
and with each of its drop-ins. It serves its clients and nobody else, without a capability; its
monitor has those that it takes to serve anew."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from areas.dkms import PACKAGES_TIMEOUT, packages
from harness import ROOT, Area, Context, Peer, check

from lab import extras
from lab.image import get_image
from lab.rights import CAPABILITIES, SETS, User, wrong_rights
from lab.roots import get_root

AREA = Area("service")
PACKAGE = "manad"
PARTS = ("device", "include", "tools")
PROGRAM = "service.py"
FOLDER = "/opt/service"  # others can read it
DEVICE = "1414:00ba"
LIMIT = 300.0


def libraries(suite: str, package: Path, folder: Path) -> Path:
    """A tar of the libraries that the programs of a package need; guests have no apt."""
    subprocess.run(["dpkg-deb", "--extract", package, folder / "tree"], check=True, timeout=60)
    programs = sorted((folder / "tree" / "usr" / "bin").iterdir())
    found = extras.closure(get_root(get_image(suite)).tree, programs)
    result = folder / "libraries.tar"
    with tarfile.open(result, "w") as tar:
        for name, path in sorted(found.items()):
            if path not in programs:
                tar.add(path, name)
    return result


def install(peer: Peer) -> None:
    """The package and what it needs."""
    package, _ = packages(peer.suite, PACKAGE, PARTS)
    with tempfile.TemporaryDirectory() as temp:
        extras.unpack(peer.guest, libraries(peer.suite, package, Path(temp)),
                      "/usr/local/lib/manad")
    place = f"{FOLDER}/{package.name}"
    peer.guest.put(package, place)
    peer.run("echo /usr/local/lib/manad >/etc/ld.so.conf.d/manad.conf && ldconfig")
    peer.run(["dpkg", "--install", "--force-depends", place], timeout=120)
    for path in (ROOT / "debian" / "examples").iterdir():
        peer.guest.put(path, f"{FOLDER}/{path.name}")
    peer.guest.put(ROOT / "tests" / "vm" / PROGRAM, f"{FOLDER}/{PROGRAM}")
    # As udev has it.
    peer.run("modprobe tun && chmod 666 /dev/net/tun")


def judge(facts: dict[str, Any]) -> None:
    """What must be so of a manad that systemd started."""
    what = facts["drop_in"] or "as installed"

    def right(condition: object, words: str) -> None:
        check(condition, f"manad@lab, {what}: {words}")

    user, group = (int(re.search(rf"^{name}:\t(\d+)", facts["threads"][0], re.M)[1])  # type: ignore
                   for name in ("Uid", "Gid"))
    right(user > 0, "it is root")
    wanted = User(user, group, (), tuple(filter(None, [facts["capability"]])))
    for status in facts["threads"]:
        wrong = wrong_rights(status, wanted)
        right(not wrong, f"thread {status.split()[1]}: {'; '.join(wrong)}")
    # The monitor has a filter as well, systemd's.
    kept = "".join(f"{1 << CAPABILITIES[name]:016x}" for name in wanted.capabilities)
    wrong = wrong_rights(facts["monitor"], wanted)
    right(facts["monitor"].startswith("Name:\tmanad-monitor\n"), f"its main process: "
          f"{facts['monitor']}")
    right(wrong == [f"{name} is {kept}, not {0:016x}" for name in SETS if kept],
          f"its monitor: {'; '.join(wrong)}")
    right("sandbox: action=kill" in facts["log"], f"its log: {facts['log']}")
    right(facts["clients"] == [DEVICE] * 2, f"clients of the group kvm saw {facts['clients']}")
    for name in ("stranger", "control"):
        right("Permission denied" in facts[name], f"{name}: {facts[name]}")
    right(facts["nics"] == ["a", "b"], f"manactl sees the NICs {facts['nics']}")
    right(facts["files"].endswith(" 600"), f"its capture: {facts['files']}")
    right("Read-only" in facts["outside"], f"a capture in /etc: {facts['outside'] or 'is made'}")
    right(facts["facts"]["NRestarts"] == "0", f"it restarted: {facts['facts']}")
    right(facts["ended"] == {"Result": "success", "ExecMainStatus": "0",
                             "ActiveState": "inactive"}, f"its end: {facts['ended']}")
    right(not facts["left"], f"left behind: {facts['left']}")


@AREA.case("the packaged unit serves, with each drop-in too, and has no rights",
           timeout=PACKAGES_TIMEOUT + LIMIT, long=True)
def unit(context: Context) -> None:
    peer = context.b
    install(peer)
    said = peer.out(f"python3 -B {FOLDER}/{PROGRAM} {FOLDER}", timeout=LIMIT)
    reports = [json.loads(line) for line in said.splitlines()]
    for facts in reports:
        judge(facts)
    check([facts["drop_in"] for facts in reports] == ["", "tap.conf", "low-port.conf"],
          "not all were looked at")
    for facts in reports:
        context.note(f"{facts['drop_in'] or 'as installed'}: {len(facts['threads'])} threads, "
                     f"uplinks {', '.join(facts['uplinks'])}")

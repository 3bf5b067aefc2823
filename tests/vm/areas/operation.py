# SPDX-License-Identifier: Apache-2.0
"""manad's Debian package in a guest that a systemd has booted, with its journal: the unit started
from the configuration that it ships, two clients in traffic (traffic_client), and beside them all
that an operator does: NICs that come and go, a policy that changes by reload, and an upgrade of the
package."""

from __future__ import annotations

import contextlib
import json
import re
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from areas import service
from areas.dkms import PACKAGES_TIMEOUT, packages
from harness import ROOT, Area, Context, Peer, check

from lab import extras
from lab.manad import find_binary

AREA = Area("operation", layout="systemd")
UNIT = "manad@lab"
SOCKETS = "/run/manad/lab"
CONFIG = "/etc/manad/lab.toml"
EXAMPLE = ROOT / "debian" / "examples" / "two-guests.toml"
CLIENT = "traffic_client"
TRAFFIC = "/opt/traffic"
MANACTL = f"manactl --control {SOCKETS}/control.sock"
TIMEOUT = PACKAGES_TIMEOUT + 1200.0


def client(folder: Path) -> Path:
    """A tar of the program that is two guests, with the libraries of the host that built it."""
    result = folder / "client.tar"
    with tarfile.open(result, "w") as tar:
        for name, path in extras.closure(Path("/"), [find_binary(CLIENT)]).items():
            tar.add(path, name)
    return result


def ready(peer: Peer) -> None:
    """The package, once in a guest, and the unit with NICs for two clients that it knows."""
    if peer.run(f"test -e {TRAFFIC}", check=False).status != 0:
        service.install(peer)
        with tempfile.TemporaryDirectory() as temp:
            tar = client(Path(temp))
            peer.guest.put(tar, f"{TRAFFIC}.tar")
        peer.run(f"mkdir {TRAFFIC} && tar -xf {TRAFFIC}.tar -C {TRAFFIC} && rm {TRAFFIC}.tar")
        peer.run("systemctl daemon-reload")
    text = EXAMPLE.read_text()
    for number, name in enumerate("ab", start=1):
        line = f'id = "{name}"\n'
        text = text.replace(line, f'{line}mac = "02:00:00:00:00:0{number}"\n')
    peer.guest.put(text, CONFIG)
    peer.guest.put(f"MANAD_OPTIONS=--config {CONFIG}\n", "/etc/manad/lab.conf")
    peer.run(f"systemctl restart {UNIT}", timeout=90)


@contextlib.contextmanager
def traffic(context: Context, peer: Peer) -> Iterator[Any]:
    """Two clients that WRITE, READ and compare; when it ends, nothing of that has failed."""
    started = peer.spawn(f"LD_LIBRARY_PATH={TRAFFIC} exec {TRAFFIC}/{CLIENT} {SOCKETS}/a.sock "
                         f"{SOCKETS}/b.sock", stdin=True)
    started.wait_output("in traffic", 60)
    yield started
    check(started.status is None, f"the traffic ended: {started.stdout}{started.stderr}")
    started.close_stdin()
    peer.finish(started, 90)
    rounds, longest = re.search(r"rounds=(\d+) longest_ms=([\d.]+)",  # type: ignore[misc]
                                started.stdout).groups()
    check(int(rounds) > 10, f"only {rounds} rounds")
    context.note(f"{rounds} rounds of WRITE and READ, the longest {longest} ms")


def shown(peer: Peer) -> dict[str, str]:
    """What systemd says of the unit."""
    text = peer.out(f"systemctl show {UNIT} -p MainPID,ActiveState,SubState,NRestarts")
    return dict(line.split("=", 1) for line in text.splitlines())


def serves(peer: Peer, pid: str) -> None:
    """The unit is up, with this process, and was never restarted."""
    state = shown(peer)
    check(state == {"MainPID": pid, "ActiveState": "active", "SubState": "running",
                    "NRestarts": "0"}, f"{UNIT}: {state}, not process {pid}")


def journal(peer: Peer, *matches: str) -> list[dict[str, Any]]:
    """The lines of the unit that match."""
    peer.run("journalctl --sync", timeout=60)
    text = peer.out(f"journalctl -b -u {UNIT} {' '.join(matches)} -o json --no-pager -q")
    return [json.loads(line) for line in text.splitlines()]


def nics(peer: Peer) -> list[str]:
    """That manactl sees."""
    return [nic["nic"] for nic in json.loads(peer.out(f"{MANACTL} --json status"))["nics"]]


@AREA.case("NICs come and go and a policy changes by reload, while two clients are in traffic",
           timeout=TIMEOUT, long=True)
def changes(context: Context) -> None:
    peer = context.a
    ready(peer)
    pid = shown(peer)["MainPID"]
    look = f"python3 -B {service.FOLDER}/{service.PROGRAM} --client {SOCKETS}/c.sock"
    with traffic(context, peer):
        for _ in range(5):
            peer.run(f"{MANACTL} nic add id=c,socket={SOCKETS}/c.sock,access=:kvm:0660 "
                     "--policy ips=10.0.0.3")
            check(nics(peer) == ["a", "b", "c"], f"NICs: {nics(peer)}")
            check(peer.out(look).strip() == service.DEVICE, "the new NIC does not answer")
            peer.run(f"{MANACTL} nic remove c")
            check(nics(peer) == ["a", "b"], f"NICs: {nics(peer)}")
        peer.run(f"sed -i 's/10.0.0.2/10.0.0.2\", \"10.0.0.9/' {CONFIG} && "
                 f"systemctl reload {UNIT}")
        peer.until(f"{MANACTL} --json policy show | grep -q 10.0.0.9", "the policy stays", 20)
        # What is wrong changes nothing.
        peer.run(f"cp {CONFIG} /run/good && echo 'colour = 1' >>{CONFIG} && "
                 f"systemctl reload {UNIT} && sleep 2 && cp /run/good {CONFIG}")
        check(nics(peer) == ["a", "b"], f"NICs after a wrong file: {nics(peer)}")
    serves(peer, pid)
    of_c = journal(peer, "OPENMANA_NIC=c")
    events = [line.get("OPENMANA_EVENT") for line in of_c]
    check(events.count("nic start") == 5 and events.count("nic stop") == 5,
          f"the journal has of NIC c: {events}")
    check(all(" nic=c" in line["MESSAGE"] for line in of_c), f"others too: {of_c}")
    check(len(journal(peer, "OPENMANA_EVENT=reload")) == 1, "no reload in the journal")
    refused = journal(peer, '"OPENMANA_EVENT=reload refused"')
    check(len(refused) == 1 and "colour" in refused[0]["MESSAGE"], f"a wrong file: {refused}")


@AREA.case("an upgrade of the package leaves manad alone, while two clients are in traffic",
           timeout=TIMEOUT, long=True)
def upgraded(context: Context) -> None:
    peer = context.a
    ready(peer)
    _, newer = packages(peer.suite, service.PACKAGE, service.PARTS)
    place = f"{service.FOLDER}/{newer.name}"
    peer.guest.put(newer, place)
    pid = shown(peer)["MainPID"]
    with traffic(context, peer):
        peer.run(["dpkg", "--install", "--force-depends", place], timeout=180)
        serves(peer, pid)
        check("(deleted)" in peer.out(f"readlink /proc/{pid}/exe"), "its program is the same")

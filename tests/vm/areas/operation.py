# SPDX-License-Identifier: Apache-2.0
"""manad's Debian package in a guest that a systemd has booted, with its journal: the unit started
from the configuration that it ships, two clients in traffic (traffic_client), and beside them all
that an operator does: NICs that come and go, a policy that changes by reload, an upgrade of the
package with needrestart after it, and then of the program. And what befalls a service: the process
that serves is killed, for whatever reason, and so is the monitor."""

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
PERL = ("usr/share/perl", "usr/share/perl5", "usr/lib/x86_64-linux-gnu/perl",
        "usr/lib/x86_64-linux-gnu/perl5")
NEEDRESTART = ("usr/sbin/needrestart", "etc/needrestart", "usr/lib/needrestart", *PERL)
# Restarts all services whose program is not the one on the disk any more, but for the lab's own.
RESTART_ALL = "needrestart -l -r a -m a -u NeedRestart::UI::stdio </dev/null 2>&1"
NOT_THE_AGENT = "$nrconf{override_rc}{qr(^manalab-agent)} = 0;\n"
# A service that nothing protects, of a program that is another one by then.
PLAIN = "plain.service"
PLAIN_UNIT = "[Service]\nExecStart=/usr/local/bin/plain infinity\n"
# Warnings of the kernel, but for its report of a process that it has ended for memory.
OTHER_WARNINGS = ("dmesg -f kern -l emerg,alert,crit,err,warn | "
                  "sed '/ invoked oom-killer/,/ Memory cgroup out of memory/d'")


def client(folder: Path) -> Path:
    """A tar of the program that is two guests, with all libraries of the host that built it, which
    may be older or newer than the guest."""
    result = folder / "client.tar"
    with tarfile.open(result, "w") as tar:
        for name, path in extras.closure(Path("/"), [find_binary(CLIENT)], libc=True).items():
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
    started = peer.spawn(f"exec {TRAFFIC}/ld-linux-x86-64.so.2 --library-path {TRAFFIC} "
                         f"{TRAFFIC}/{CLIENT} {SOCKETS}/a.sock {SOCKETS}/b.sock", stdin=True)
    started.wait_output("in traffic", 60)
    yield started
    check(started.status is None, f"the traffic ended: {started.stdout}{started.stderr}")
    started.close_stdin()
    peer.finish(started, 90)
    found = re.search(r"rounds=(\d+) longest_ms=([\d.]+)", started.stdout)
    rounds, longest = found.groups() if found else ("0", "")
    check(int(rounds) > 10, f"few rounds of traffic: {started.stdout}")
    context.note(f"{rounds} rounds of WRITE and READ, the longest {longest} ms")


def shown(peer: Peer) -> dict[str, str]:
    """What systemd says of the unit."""
    text = peer.out(f"systemctl show {UNIT} -p MainPID,ActiveState,SubState,NRestarts")
    return dict(line.split("=", 1) for line in text.splitlines())


def serves(peer: Peer, main: str) -> str:
    """The unit is up, with this main process, and was never restarted. The process that serves."""
    state = shown(peer)
    check(state == {"MainPID": main, "ActiveState": "active", "SubState": "running",
                    "NRestarts": "0"}, f"{UNIT}: {state}, not process {main}")
    pids = peer.out(f"pgrep -x -P {main} manad").split()
    check(len(pids) == 1, f"{UNIT}: the processes {pids} serve")
    return pids[0]


def ends(peer: Peer) -> None:
    """The unit, when it is asked to, with all that it was."""
    peer.run(f"systemctl stop {UNIT}", timeout=90)
    ended = peer.out(f"systemctl show {UNIT} -p Result,ExecMainStatus,ActiveState").split()
    check(sorted(ended) == ["ActiveState=inactive", "ExecMainStatus=0", "Result=success"],
          f"its end: {ended}")
    left = peer.out(f"pgrep -a manad; ls -A {SOCKETS} 2>/dev/null; true").strip()
    check(not left, f"left behind: {left}")


@contextlib.contextmanager
def staying(context: Context, peer: Peer, limit: float) -> Iterator[None]:
    """A client that asks all the time, and waits for no answer longer than so many seconds."""
    started = peer.spawn(f"exec python3 -B {service.FOLDER}/{service.PROGRAM} --stay "
                         f"{SOCKETS}/a.sock", stdin=True)
    started.wait_output(f"stays at {service.DEVICE}", 60)
    yield
    check(started.status is None, f"the client ended: {started.stdout}{started.stderr}")
    started.close_stdin()
    peer.finish(started, 60)
    found = re.search(r"asked=(\d+) longest_ms=([\d.]+)", started.stdout)
    check(found, f"the client says {started.stdout}")
    asked, longest = found.groups()  # type: ignore[union-attr]
    check(float(longest) < limit * 1000, f"the client waited {longest} ms for an answer")
    context.note(f"{asked} answers to a client that stayed, the longest behind {longest} ms")


def killed(peer: Peer, main: str) -> str:
    """The process that serves is killed. The next one."""
    before = serves(peer, main)
    peer.run(f"kill -9 {before}")
    peer.until(f"pid=$(pgrep -x -P {main} manad) && [ $pid != {before} ] && "
               f"{MANACTL} status >/dev/null", "nobody goes on", 20)
    return serves(peer, main)


def crashes(peer: Peer, monitor: str) -> list[str]:
    """What a monitor says of them in the journal."""
    return [line["MESSAGE"]
            for line in journal(peer, f"_PID={monitor}", "OPENMANA_EVENT=manad crash")]


def going_on(peer: Peer, main: str) -> str:
    """`manactl upgrade`: who is served by the main process is by another one then. That."""
    before = serves(peer, main)
    said = peer.out(f"{MANACTL} upgrade", timeout=60).strip()
    found = re.match(rf"manad {before} goes on as (\d+): ", said)
    check(found, f"manactl upgrade: {said}")
    peer.until(f"[ $(systemctl show -P MainPID {UNIT}) != {main} ]",
               "systemd does not know the new process", 20)
    after = shown(peer)["MainPID"]
    check(serves(peer, after) == found[1], f"{said}, and it is not the unit's")  # type: ignore
    for pid in (before, main):
        peer.until(f"! test -e /proc/{pid}", f"the old process {pid} stays", 20)
    return after


def journal(peer: Peer, *matches: str) -> list[dict[str, Any]]:
    """The lines of the unit that match."""
    peer.run("journalctl --sync", timeout=60)
    text = peer.out(["journalctl", "-b", "-u", UNIT, *matches, "-o", "json", "--no-pager", "-q"])
    return [json.loads(line) for line in text.splitlines()]


def nics(peer: Peer) -> list[str]:
    """That manactl sees."""
    return [nic["nic"] for nic in json.loads(peer.out(f"{MANACTL} --json status"))["nics"]]


def allow(peer: Peer, address: str) -> None:
    """Another address for NIC b, by the file and a reload."""
    peer.run(f"sed -i 's/10.0.0.2/10.0.0.2\", \"{address}/' {CONFIG} && systemctl reload {UNIT}")
    peer.until(f"{MANACTL} --json policy show | grep -q {address}", "the policy stays", 20)


def upgrade_package(peer: Peer, pid: str) -> None:
    """Another version of the package, installed while that process serves."""
    serving = serves(peer, pid)
    _, newer = packages(peer.suite, service.PACKAGE, service.PARTS)
    place = f"{service.FOLDER}/{newer.name}"
    peer.guest.put(newer, place)
    peer.run(["dpkg", "--install", "--force-depends", place], timeout=180)
    check(serves(peer, pid) == serving, "another process serves")
    for one in (pid, serving):
        check(program(peer, one) == "/usr/bin/manad (deleted)", "its program is the same")


def program(peer: Peer, pid: str) -> str:
    """The file that a process runs."""
    return peer.out(f"readlink /proc/{pid}/exe").strip()


def plain(peer: Peer) -> str:
    """The process of the service that nothing protects."""
    return peer.out(f"systemctl show -P MainPID {PLAIN}").strip()


def needrestart(peer: Peer) -> tuple[str, str]:
    """needrestart from Debian, in the guest, and the plain service, whose program has just been
    replaced: its process before that."""
    tar = extras.archive(peer.suite, ("needrestart",), NEEDRESTART, extras.in_place)
    if peer.run("test -e /usr/sbin/needrestart", check=False).status != 0:
        extras.install(peer.guest, tar)
        peer.guest.put(NOT_THE_AGENT, "/etc/needrestart/conf.d/lab.conf")
        peer.guest.put(PLAIN_UNIT, f"/etc/systemd/system/{PLAIN}")
    peer.run("cp /bin/sleep /usr/local/bin/plain && systemctl daemon-reload && "
             f"systemctl restart {PLAIN}")
    before = plain(peer)
    peer.run("cp /bin/sleep /usr/local/bin/new && mv /usr/local/bin/new /usr/local/bin/plain")
    return extras.version(tar, "needrestart"), before


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
        allow(peer, "10.0.0.9")
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
    refused = journal(peer, "OPENMANA_EVENT=reload refused")
    check(len(refused) == 1 and "colour" in refused[0]["MESSAGE"], f"a wrong file: {refused}")


@AREA.case("an upgrade of the package and needrestart leave manad alone, while two clients are in "
           "traffic", timeout=TIMEOUT, long=True)
def left_alone(context: Context) -> None:
    peer = context.a
    ready(peer)
    version, before = needrestart(peer)
    pid = shown(peer)["MainPID"]
    deferred = f"systemctl restart {UNIT}.service"
    with traffic(context, peer):
        upgrade_package(peer, pid)
        said = peer.out(RESTART_ALL, timeout=180)
        serves(peer, pid)
    check(plain(peer) != before, f"needrestart restarts nothing: {said}")
    check(deferred in said.partition("Service restarts being deferred:")[2],
          f"needrestart does not say that it leaves {UNIT} alone: {said}")
    context.note(f"{version} restarted {PLAIN}, and not {UNIT}")
    # So it is our file that it heeds.
    peer.run("mv /etc/needrestart/conf.d/manad.conf /run/")
    said = peer.out(RESTART_ALL, timeout=180)
    peer.run("mv /run/manad.conf /etc/needrestart/conf.d/")
    check(shown(peer)["MainPID"] != pid, f"without our file it leaves {UNIT} alone, too: {said}")


@AREA.case("manactl upgrade: the new program goes on in traffic, as the unit's main process",
           timeout=TIMEOUT, long=True)
def goes_on(context: Context) -> None:
    peer = context.a
    ready(peer)
    first = shown(peer)["MainPID"]
    serving = [serves(peer, first)]
    with traffic(context, peer):
        upgrade_package(peer, first)
        second = going_on(peer, first)
        serving.append(serves(peer, second))
        for pid in (second, serving[1]):
            check(program(peer, pid) == "/usr/bin/manad", "the new process has the old program")
        allow(peer, "10.0.0.9")
        check(nics(peer) == ["a", "b"], f"NICs: {nics(peer)}")
        check(serves(peer, second) == serving[1], "another process serves")
    context.note(peer.out(f"{MANACTL} upgrade --last").strip())
    ends(peer)
    for pid, match in ((serving[0], "upgrade start"), (serving[0], "hand over"),
                       (serving[1], "reload"), (serving[1], "manad stop")):
        lines = journal(peer, f"_PID={pid}", f"OPENMANA_EVENT={match}")
        check(len(lines) == 1, f"the journal has of process {pid} {match}: {lines}")


@AREA.case("kill -9 of the process that serves: the unit stays, and another one serves within 1 s",
           timeout=TIMEOUT, long=True)
def crash(context: Context) -> None:
    peer = context.a
    ready(peer)
    first = shown(peer)["MainPID"]
    with staying(context, peer, 1.0):
        pids = [serves(peer, first)]
        for _ in range(3):
            pids.append(killed(peer, first))
        # Nor does the next program mind, of which the same is true.
        second = going_on(peer, first)
        pids.append(serves(peer, second))
        pids.append(killed(peer, second))
    said = [*crashes(peer, first), *crashes(peer, second)]
    wanted = [f"manad crash: pid={pid} signal=9" for pid in (*pids[:3], pids[4])]
    check(said == wanted, f"the journal has of the monitors {said}, not {wanted}")
    for pid in (*pids[1:4], pids[5]):
        lines = journal(peer, f"_PID={pid}", "OPENMANA_EVENT=manad recover")
        check(len(lines) == 1, f"the journal has of process {pid}: {lines}")
    ends(peer)


@AREA.case("the kernel ends a process of the unit to have memory: the unit stays",
           timeout=TIMEOUT, long=True)
def out_of_memory(context: Context) -> None:
    peer = context.a
    ready(peer)
    main = shown(peer)["MainPID"]
    group = f"/sys/fs/cgroup{peer.out(f'systemctl show -P ControlGroup {UNIT}').strip()}"
    warnings = peer.out(OTHER_WARNINGS)
    with staying(context, peer, 10.0):
        before = serves(peer, main)
        peer.run(f"systemctl set-property --runtime {UNIT} MemoryMax=256M MemorySwapMax=0")
        # One that asks for all of it, beside manad, and is the first to go.
        peer.run(f"echo $$ >{group}/cgroup.procs && echo 1000 >/proc/self/oom_score_adj && "
                 "tail /dev/zero", check=False)
        peer.until(f"grep -q '^oom_kill [1-9]' {group}/memory.events", "nothing was ended")
        peer.until(f"journalctl -b -u {UNIT} -q | grep -q 'by the OOM killer'",
                   "systemd does not notice", 20)
        check(serves(peer, main) == before, "another process serves")
    ends(peer)
    peer.run(f"systemctl revert {UNIT}")
    check(peer.out(OTHER_WARNINGS) == warnings, "the kernel warns of something else")
    peer.run("dmesg --clear")


@AREA.case("kill -9 of the monitor: the unit starts anew", timeout=TIMEOUT, long=True)
def monitor_gone(context: Context) -> None:
    peer = context.a
    ready(peer)
    first = shown(peer)["MainPID"]
    serving = serves(peer, first)
    peer.run(f"kill -9 {first}")
    peer.until(f"[ $(systemctl show -P NRestarts {UNIT}) = 1 ] && {MANACTL} status >/dev/null",
               "it does not start anew", 60)
    check(peer.run(f"test -e /proc/{serving}", check=False).status != 0, "the old process stays")
    check(peer.out(f"python3 -B {service.FOLDER}/{service.PROGRAM} --client {SOCKETS}/a.sock"
                   ).strip() == service.DEVICE, "its NIC does not answer")
    ends(peer)

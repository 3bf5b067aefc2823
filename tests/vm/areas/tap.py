# SPDX-License-Identifier: Apache-2.0
"""A guest and the host's own network stack, joined by a TAP uplink. manad, the TAP device and what
talks through it are in a network namespace of their own: the rest of the host sees none of it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from harness import Area, Context, check
from programs import ping

AREA = Area("tap", layout="tap")
INTERFACE = "omtap0"
ADDRESS = {4: "10.0.0.254", 6: "fd00::fe"}
SIZE = 2 << 20

RECEIVER = """
import hashlib, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
listener = socket.create_server((sys.argv[1], int(sys.argv[2])), family=family)
print("listening", flush=True)
stream = listener.accept()[0]
data = hashlib.sha256()
while part := stream.recv(65536):
    data.update(part)
print(data.hexdigest())
"""
SENDER = """
import hashlib, os, socket, sys
data = os.urandom(int(sys.argv[3]))
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 20) as stream:
    stream.sendall(data)
print(hashlib.sha256(data).hexdigest())
"""


def in_namespace(context: Context, words: list[str]) -> list[str]:
    """A command of the host in manad's network namespace."""
    process = context.lab.manad_of(0).pid
    enter = ["nsenter", "-t", str(process), "-n"]
    own, other = (Path(f"/proc/{name}/ns/user").stat().st_ino for name in ("self", process))
    if own != other:
        enter += ["-U", "--preserve-credentials"]
    return [*enter, *words]


def host(context: Context, *words: str) -> str:
    """Runs a command of the host there; returns its output."""
    done = subprocess.run(in_namespace(context, list(words)), capture_output=True, text=True,
                          timeout=60, check=False)
    check(done.returncode == 0, f"host: {' '.join(words)[:80]}: {done.stderr.strip()[-300:]}")
    return done.stdout


def uplink(context: Context) -> dict[str, object]:
    """What manactl says of the uplink."""
    rows = json.loads(context.a.manactl("--json", "uplinks"))["uplinks"]
    return dict(rows[0])


def addressed(context: Context) -> None:
    """Gives the host's end its addresses."""
    for version, length in ((4, "24"), (6, "64")):
        host(context, "ip", "addr", "replace", f"{ADDRESS[version]}/{length}", "dev", INTERFACE,
             *(("nodad",) if version == 6 else ()))
    host(context, "ip", "link", "set", INTERFACE, "up")


@contextmanager
def receiver(context: Context, address: str, port: int) -> Iterator["subprocess.Popen[str]"]:
    """A server of the host that prints the hash of what it got."""
    words = ["python3", "-c", RECEIVER, address, str(port)]
    with subprocess.Popen(in_namespace(context, words), stdout=subprocess.PIPE,
                          text=True) as server:
        try:
            assert server.stdout is not None
            check(server.stdout.readline() == "listening\n", "the host's server does not listen")
            yield server
        finally:
            server.kill()


def stack(version: int, context: Context) -> None:
    """ping, and TCP both ways with data that is compared."""
    addressed(context)
    guest, address = context.a, ADDRESS[version]
    name = address if version == 4 else f"[{address}]"
    check(uplink(context)["uplink"] == f"tap={INTERFACE}", f"uplink: {uplink(context)}")
    ping(guest, address)
    ping(guest, address, size=1400)
    port = context.port()
    with receiver(context, address, port) as server:
        guest.run(f"head -c {SIZE} /dev/urandom >/tmp/tap-data && "
                  f"socat -u OPEN:/tmp/tap-data TCP{version}:{name}:{port}")
        got = server.communicate(timeout=30)[0].strip()
    sent = guest.out("sha256sum </tmp/tap-data").split()[0]
    check(got == sent, f"guest to host: {got} arrived of {sent}")
    port = context.port()
    sink = guest.spawn(f"socat -u TCP{version}-LISTEN:{port},reuseaddr - | sha256sum")
    guest.wait_listening(port, sink)
    sent = host(context, "python3", "-c", SENDER, guest.ip(version), str(port), str(SIZE)).strip()
    guest.finish(sink, 30)
    check(sink.stdout.split()[0] == sent, f"host to guest: {sink.stdout.split()[0]} of {sent}")
    counters = uplink(context)["counters"]
    context.note(f"uplink: {counters}")


for _version in (4, 6):
    AREA.add(f"ping and TCP between a guest and the host's stack, IPv{_version}",
             partial(stack, _version))


@AREA.case("a TAP device that is deleted is said so")
def deleted(context: Context) -> None:
    addressed(context)
    check(uplink(context)["connected"] is True, f"uplink: {uplink(context)}")
    host(context, "ip", "link", "delete", INTERFACE)
    end = time.monotonic() + 10
    while uplink(context)["connected"]:
        check(time.monotonic() < end, "the uplink is connected to a device that is gone")
        time.sleep(0.2)
    log = Path(context.lab.manad_of(0).log).read_text()
    check("the TAP device was deleted" in log, "nothing in manad's log")
    ping(context.a, ADDRESS[4], count=1, expect=False)

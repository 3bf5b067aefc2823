#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""manad's systemd unit under a systemd, in a guest where its package is installed:

    service.py FOLDER

FOLDER has the drop-ins of debian/examples. A systemd is started in namespaces of its own, with the
units that manad@.service names and no others, since the guest itself has none. manad is served as
installed, then with each drop-in. Prints a line of JSON for each: what /proc says of its monitor
and of the threads that serve, and what its clients saw. Ends with 1 and words if something does not
work at all.

    service.py --client SOCKET
    service.py --stay SOCKET

is a client that says which device it sees; and one that stays and asks again and again until its
standard input ends, and then prints how often and the longest that it waited for an answer.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import glob
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

UNIT = "manad@lab.service"
PACKAGED = "/usr/lib/systemd/system/manad@.service"
CONFIG = "/etc/manad/lab.conf"
SYSTEMD = "/usr/lib/systemd/systemd"
GENERATORS = b"/usr/lib/systemd/system-generators"
UNITS = "/run/units"
PLACE = "/run/manad/lab"
LOGS = "/var/log/manad/lab"
PATIENCE = 120.0
STRANGER = 61999  # a user that is nobody
NICS = f"--nic id=a,socket={PLACE}/a.sock --nic id=b,socket={PLACE}/b.sock"
# What is told of a thread.
RIGHTS = ("Name:", "Uid:", "Gid:", "Cap", "NoNewPrivs:", "Seccomp:")
# What the unit names, and what a systemd starts with. Each is there and does nothing.
EMPTY = ("sysinit", "basic", "network", "multi-user", "shutdown", "lab")
# What each run has besides the unit: drop-in, options, capability.
RUNS = (("", f"{NICS} --uplink udp=local=127.0.0.1:14791,remote=127.0.0.1:14792 "
             f"--uplink stream={PLACE}/wire,listen --pcap {LOGS}/all.pcap", ""),
        ("tap.conf", f"{NICS} --uplink tap=omtap0", "net_admin"),
        ("low-port.conf", f"{NICS} --uplink udp=local=127.0.0.1:791,remote=127.0.0.1:792",
         "net_bind_service"))


def fail(words: str) -> None:
    raise SystemExit(f"service: {words}")


def write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def boot() -> None:
    """Becomes process 1 of the namespaces."""
    libc = ctypes.CDLL(None, use_errno=True)
    # What would make units of others, and tell the kernel's log of each, is hidden.
    for kind, where in ((b"proc", b"/proc"), (b"tmpfs", b"/run"), (b"tmpfs", GENERATORS),
                        (b"cgroup2", b"/sys/fs/cgroup")):
        os.makedirs(where, exist_ok=True)
        if kind == b"cgroup2":  # nothing is mounted on itself
            libc.umount2(where, 2)
        if libc.mount(kind, where, kind, 0, None):
            fail(f"cannot mount {where.decode()}: {os.strerror(ctypes.get_errno())}")
    for name in EMPTY:
        write(f"{UNITS}/{name}.target", "[Unit]\nDefaultDependencies=no\n")
    os.symlink(PACKAGED, f"{UNITS}/manad@.service")
    os.mkdir("/run/lab")
    # Nobody keeps a journal here.
    write(f"{UNITS}/{UNIT}.d/log.conf",
          "[Service]\nStandardOutput=null\nStandardError=append:/run/lab/log\n")
    os.execve(SYSTEMD, [SYSTEMD, "--system", "--unit=lab.target", "--log-target=console",
                        "--show-status=no"],
              {"container": "lab", "SYSTEMD_UNIT_PATH": UNITS,
               "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})


class Systemd:
    """A running systemd."""

    def __init__(self) -> None:
        group = "/sys/fs/cgroup/service"
        os.makedirs(group, exist_ok=True)

        def join() -> None:
            write(f"{group}/cgroup.procs", "0")

        self._outer = subprocess.Popen(
            ["unshare", "--cgroup", "--pid", "--mount", "--net", "--fork", "--kill-child",
             sys.executable, "-B", __file__, "--boot"], preexec_fn=join)
        children = f"/proc/{self._outer.pid}/task/{self._outer.pid}/children"
        self.pid = int(until(lambda: open(children, encoding="ascii").read().split(),
                             "systemd was not started")[0])
        self.root = f"/proc/{self.pid}/root"
        until(lambda: os.path.exists(f"{self.root}/run/systemd/private"), "systemd is not up")
        self.run("ip", "link", "set", "lo", "up")

    def run(self, *words: str, check: bool = True) -> str:
        """A command beside it."""
        enter = ["nsenter", "-t", str(self.pid), "-m", "-p", "-n", "-r", "-w"]
        done = subprocess.run([*enter, *words],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=PATIENCE, check=False)
        if check and done.returncode != 0:
            shown = self.run("systemctl", "show", UNIT, "-p", "Result,ExecMainStatus", check=False)
            fail(f"{' '.join(words)} ended with status {done.returncode}: {done.stdout[-600:]}; "
                 f"{shown}; {self.log()}")
        return done.stdout.strip()

    def log(self) -> str:
        """What manad wrote."""
        with contextlib.suppress(OSError), \
                open(f"{self.root}/run/lab/log", encoding="utf-8") as file:
            return file.read()[-2000:]
        return ""

    def end(self) -> None:
        """With all that it started."""
        self._outer.send_signal(signal.SIGKILL)
        self._outer.wait()


def until(look, words: str):
    """Waits for what a function finds."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError):
            found = look()
            if found:
                return found
        if time.monotonic() > deadline:
            fail(words)
        time.sleep(0.1)


def call(stream: socket.socket, command: int, payload: bytes, fd: int = -1) -> bytes:
    """One vfio-user message and its answer."""
    message = struct.pack("<HHIII", 1, command, 16 + len(payload), 0, 0) + payload
    fds = [] if fd < 0 else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
    stream.sendmsg([message], fds)
    answer = stream.recv(16, socket.MSG_WAITALL)
    _, _, size, flags, error = struct.unpack("<HHIII", answer)
    rest = stream.recv(size - 16, socket.MSG_WAITALL) if size > 16 else b""
    if flags & 0x20:
        fail(f"command {command}: {os.strerror(error)}")
    return rest


def device(stream: socket.socket) -> str:
    """Who it is, in its configuration space."""
    answer = call(stream, 9, struct.pack("<QII", 0, 7, 4))
    return "%04x:%04x" % struct.unpack("<HH", answer[16:20])


def attach(path: str) -> socket.socket:
    """What QEMU does first: memory for the device."""
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(30)
    stream.connect(path)
    call(stream, 1, struct.pack("<HH", 0, 0) + b'{"capabilities":{"max_msg_fds":8}}\0')
    size = 1 << 22
    memory = os.memfd_create("ram")
    os.ftruncate(memory, size)
    call(stream, 2, struct.pack("<IIQQQ", 32, 3, 0, 1 << 32, size), memory)
    return stream


def client(path: str) -> None:
    """Says what it sees."""
    print(device(attach(path)))


def stay(path: str) -> None:
    """Asks until its input ends."""
    stream = attach(path)
    first = device(stream)
    print(f"stays at {first}", flush=True)
    asked, longest = 0, 0.0
    while not select.select([sys.stdin], [], [], 0.005)[0]:
        begin = time.monotonic()
        if device(stream) != first:
            fail("it is another device now")
        asked, longest = asked + 1, max(longest, time.monotonic() - begin)
    print(f"asked={asked} longest_ms={longest * 1000:.1f}")


def as_user(user: int, group: str, *words: str) -> list[str]:
    return ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", *words]


def serving(systemd: Systemd, monitor: int) -> int:
    """The child of the main process that serves; the others have names of their own."""
    place = f"{systemd.root}/proc"
    with open(f"{place}/{monitor}/task/{monitor}/children", encoding="ascii") as file:
        children = file.read().split()
    for child in children:
        with open(f"{place}/{child}/comm", encoding="ascii") as file:
            if file.read() == "manad\n":
                return int(child)
    fail(f"the main process {monitor} has no child that serves, but {children}")


def observe(systemd: Systemd) -> dict[str, object]:
    """What is to be known of a manad that serves."""
    shown = systemd.run("systemctl", "show", UNIT, "-p", "MainPID,ActiveState,NRestarts")
    facts = dict(line.split("=", 1) for line in shown.splitlines())
    main = int(facts["MainPID"])
    log = until(lambda: "sandbox" in (text := systemd.log()) and
                glob.glob(f"{systemd.root}{PLACE}/*.sock") and text, "manad is not ready")
    with open(f"{systemd.root}/proc/{main}/status", encoding="utf-8") as file:
        monitor = "".join(line for line in file if line.startswith(RIGHTS))
    pid = serving(systemd, main)
    threads = []
    for path in glob.glob(f"{systemd.root}/proc/{pid}/task/*/status"):
        with open(path, encoding="utf-8") as file:
            threads.append("".join(line for line in file if line.startswith(RIGHTS)))
    ask = [sys.executable, "-B", __file__, "--client"]
    kvm = [systemd.run(*as_user(STRANGER, "kvm", *ask, f"{PLACE}/{nic}.sock")) for nic in "ab"]
    other = systemd.run(*as_user(STRANGER, str(STRANGER), *ask, f"{PLACE}/a.sock"), check=False)
    control = systemd.run(*as_user(STRANGER, "kvm", "manactl", "--control",
                                   f"{PLACE}/control.sock", "status"), check=False)
    manactl = ["manactl", "--control", f"{PLACE}/control.sock"]
    status = systemd.run(*manactl, "--json", "status")
    uplinks = systemd.run(*manactl, "--json", "uplinks")
    systemd.run(*manactl, "capture", "start", "a", f"{LOGS}/a.pcap")
    systemd.run(*manactl, "capture", "stop", "a")
    outside = systemd.run(*manactl, "capture", "start", "a", "/etc/manad/a.pcap", check=False)
    files = systemd.run("stat", "-L", "-c", "%n %U %a", f"{LOGS}/a.pcap")
    return {"monitor": monitor, "threads": threads, "log": log, "clients": kvm, "stranger": other,
            "control": control, "nics": [nic["nic"] for nic in json.loads(status)["nics"]],
            "uplinks": [row["uplink"] for row in json.loads(uplinks)["uplinks"]],
            "outside": outside, "files": files, "facts": facts}


def serve(systemd: Systemd, drop_in: str, options: str, folder: str) -> dict[str, object]:
    """Starts it, looks at it, stops it."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(f"{systemd.root}/run/lab/log")
    place = f"{systemd.root}{UNITS}/{UNIT}.d"
    for old in glob.glob(f"{place}/*.conf"):
        if not old.endswith("/log.conf"):
            os.remove(old)
    if drop_in:
        shutil.copy(f"{folder}/{drop_in}", place)
    write(f"{systemd.root}{CONFIG}", f"MANAD_OPTIONS={options}\n")
    systemd.run("systemctl", "daemon-reload")
    systemd.run("systemctl", "start", UNIT)
    facts = observe(systemd)
    systemd.run("systemctl", "stop", UNIT)
    ended = systemd.run("systemctl", "show", UNIT, "-p", "Result,ExecMainStatus,ActiveState")
    facts["ended"] = dict(line.split("=", 1) for line in ended.splitlines())
    facts["left"] = glob.glob(f"{systemd.root}{PLACE}/*")
    return facts


def main() -> None:
    if sys.argv[1:] == ["--boot"]:
        boot()
    if sys.argv[1:2] in (["--client"], ["--stay"]):
        try:
            (client if sys.argv[1] == "--client" else stay)(sys.argv[2])
        except OSError as error:
            fail(f"{sys.argv[2]}: {error.strerror}")
        return
    folder = sys.argv[1]
    systemd = Systemd()
    try:
        for drop_in, options, capability in RUNS:
            facts = serve(systemd, drop_in, options, folder)
            print(json.dumps({"drop_in": drop_in, "capability": capability, **facts}), flush=True)
    finally:
        systemd.end()


if __name__ == "__main__":
    main()

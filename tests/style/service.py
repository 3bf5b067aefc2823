#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Whether manad's systemd unit is as tight as docs/security.md says: service.py.

Its exposure, as systemd-analyze counts it, is below 2.0, with a drop-in below what stands here. It
grants no capability; each drop-in names those that it grants. The documents that it names are in
the package. What the sandbox of manad allows, the unit allows too. It has a monitor, and hears the
process that serves beside it, but where an uplink can have none. Exits 1 if something is wrong, 77
if systemd-analyze is not there. tests/vm/areas/service.py runs it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "debian" / "manad@.service"
EXAMPLES = ROOT / "debian" / "examples"
PACKAGED = ROOT / "debian" / "manad.docs"
RULES = ROOT / "debian" / "rules"
SANDBOX = ROOT / "device" / "manad" / "sandbox.cc"
LIMIT = 2.0
# With a monitor more than the main process may tell systemd something: 0.2 of these. That of XDP
# has none, and gives what opens an interface to the process that does.
LIMITS = {"low-port.conf": 2.2, "tap.conf": 2.2, "xdp.conf": 2.6}
# What each drop-in grants.
GRANTS = {"tap.conf": "CAP_NET_ADMIN", "low-port.conf": "CAP_NET_BIND_SERVICE",
          "xdp.conf": "CAP_NET_ADMIN CAP_NET_RAW CAP_BPF"}
# How manad gives up its rights: libcap-ng, base/unix_socket.cc, libseccomp; what it makes before.
STARTING = {"capget", "capset", "prctl", "fchmod", "umask", "fchownat", "seccomp", "io_setup",
            "signalfd4", "epoll_create1", "eventfd2", "inotify_init1",
            "inotify_add_watch", "bind", "listen", "setsockopt", "execve",
            "clone", "wait4", "pidfd_open", "pipe2", "dup3", "close_range",  # manad-starter
            "rt_sigprocmask", "rt_sigtimedwait", "kill", "getppid"}  # manad-monitor
SKIPPED = 77
# What stays writable with ProtectSystem=strict and PrivateDevices=yes.
SHARED = "-/dev/shm -/dev/mqueue"
# How the monitor is there, and the process that serves may tell systemd what it does.
MONITOR = {"Type": "notify", "NotifyAccess": "all", "Environment": "MANAD_MONITOR=on",
           "OOMPolicy": "continue"}
UNMONITORED = "xdp.conf"
WITHOUT = {"Environment": "MANAD_MONITOR=off", "NotifyAccess": "main"}


def analyze(*words: str) -> str:
    return subprocess.run(["systemd-analyze", "--no-pager", *words], check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout


def settings(text: str, name: str) -> list[str]:
    """The values of a setting, in their order."""
    return re.findall(rf"^{name}=(.*)$", text, re.M)


def exposure(folder: Path, drop_in: Path | None = None) -> float:
    """What systemd-analyze says of the unit, and of a drop-in with it."""
    unit = folder / "manad@test.service"
    unit.write_text(UNIT.read_text() + (drop_in.read_text() if drop_in else ""))
    said = analyze("security", "--offline=yes", str(unit))
    found = re.search(r"Overall exposure level.*: ([\d.]+)", said)
    if not found:
        raise SystemExit(f"service: systemd-analyze does not tell: {said}")
    return float(found[1])


def members(word: str) -> set[str]:
    """The system calls of a word of SystemCallFilter=."""
    if not word.startswith("@"):
        return {word}
    lines = analyze("syscall-filter", word).splitlines()[1:]
    names = [line.strip() for line in lines if line.startswith("    ") and "#" not in line]
    return set().union(*(members(name) for name in names)) if names else set()


def allowed(text: str) -> set[str]:
    calls: set[str] = set()
    for value in settings(text, "SystemCallFilter"):
        listed = set().union(*(members(word) for word in value.lstrip("~").split()))
        calls = calls - listed if value.startswith("~") else calls | listed
    return calls


def check_documents(text: str) -> list[str]:
    """A document is named by its path in the package, or by that here with a section of it."""
    packaged = PACKAGED.read_text().split()
    wrong = ["debian/rules lets documents be compressed"] if "dh_compress -X.md" not in \
        RULES.read_text() else []
    for name in re.findall(r"/usr/share/doc/manad/(\S+)", text):
        if f"docs/{name}" not in packaged:
            wrong.append(f"docs/{name} is not in the package")
    comment = re.sub(r"\n# ", " ", text)
    for path, section in re.findall(r'(docs/\S+\.md), "([^"]+)"', comment):
        if f"\n## {section}\n" not in (ROOT / path).read_text():
            wrong.append(f"{path} has no section '{section}'")
    return wrong


def check_unit(text: str, level: float) -> list[str]:
    wrong = [] if level < LIMIT else [f"exposure {level}, not below {LIMIT}"]
    wrong += [f"{name} is not empty" for name in ("CapabilityBoundingSet", "AmbientCapabilities")
              if settings(text, name) != [""]]
    if settings(text, "InaccessiblePaths") != [SHARED]:
        wrong.append(f"InaccessiblePaths is not {SHARED}")
    needed = set(re.findall(r"SCMP_SYS\((\w+)\)", SANDBOX.read_text())) | STARTING
    missing = sorted(needed - allowed(text))
    return wrong + ([f"SystemCallFilter lacks {' '.join(missing)}"] if missing else [])


def check_monitor(text: str) -> list[str]:
    wrong = [f"{name} is not {value}" for name, value in MONITOR.items()
             if settings(text, name) != [value]]
    if not any(" --monitor ${MANAD_MONITOR} " in line for line in settings(text, "ExecStart")):
        wrong.append("ExecStart does not heed MANAD_MONITOR")
    for name in GRANTS:
        drop_in = (EXAMPLES / name).read_text()
        for setting, value in WITHOUT.items():
            wanted = [value] if name == UNMONITORED else []
            if settings(drop_in, setting) != wanted:
                wrong.append(f"{name}: {setting} is not {' '.join(wanted) or 'that of the unit'}")
    return wrong


def check_drop_in(path: Path, level: float) -> list[str]:
    text = path.read_text()
    limit = LIMITS[path.name]
    wrong = [] if level < limit else [f"{path.name}: exposure {level}, not below {limit}"]
    return wrong + [f"{path.name}: {name} is not {GRANTS[path.name]}"
            for name in ("CapabilityBoundingSet", "AmbientCapabilities")
            if settings(text, name) != [GRANTS[path.name]]]


def main() -> int:
    if not shutil.which("systemd-analyze"):
        print("service: skipped: systemd-analyze is not installed")
        return SKIPPED
    text = UNIT.read_text()
    drop_ins = [EXAMPLES / name for name in sorted(GRANTS)]
    with tempfile.TemporaryDirectory() as temp:
        level = exposure(Path(temp))
        wrong = check_unit(text, level) + check_monitor(text) + check_documents(text)
        levels = {path.name: exposure(Path(temp), path) for path in drop_ins}
    for path in drop_ins:
        wrong += check_drop_in(path, levels[path.name])
    for line in wrong:
        print(f"service: {line}")
    print(f"service: exposure {level}; with " +
          ", ".join(f"{name} {value}" for name, value in levels.items()))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Whether manad's systemd unit is as tight as docs/security.md says: service.py.

Its exposure, as systemd-analyze counts it, is below 2.0, with each drop-in too but for one that
gives more. It grants no capability; each drop-in names those that it grants. The documents that it
names are in the package. What the sandbox of manad allows, the unit allows too. Exits 1 if
something is wrong, 77 if systemd-analyze is not there. tests/vm/areas/service.py runs it.
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
LIMITS = {"xdp.conf": 2.6}  # it gives what opens an interface to the process that does
# What each drop-in grants.
GRANTS = {"tap.conf": "CAP_NET_ADMIN", "low-port.conf": "CAP_NET_BIND_SERVICE",
          "xdp.conf": "CAP_NET_ADMIN CAP_NET_RAW CAP_BPF"}
# How manad gives up its rights: libcap-ng, base/unix_socket.cc, libseccomp; what it makes before.
STARTING = {"capget", "capset", "prctl", "fchmod", "umask", "fchownat", "seccomp", "io_setup",
            "signalfd4", "epoll_create1", "eventfd2", "inotify_init1",
            "inotify_add_watch", "bind", "listen", "setsockopt", "execve",
            "clone", "wait4", "pidfd_open", "pipe2", "dup3", "close_range"}  # manad-starter
SKIPPED = 77
# What stays writable with ProtectSystem=strict and PrivateDevices=yes.
SHARED = "-/dev/shm -/dev/mqueue"


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


def check_drop_in(path: Path, level: float) -> list[str]:
    text = path.read_text()
    limit = LIMITS.get(path.name, LIMIT)
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
        wrong = check_unit(text, level) + check_documents(text)
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

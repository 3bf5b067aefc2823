# SPDX-License-Identifier: Apache-2.0
"""manad with the rights that its package gives it: the words that start it so, as systemd does it
for debian/manad@.service, and what /proc says of the rights that it then has."""

from __future__ import annotations

import grp
import os
import pwd
import re
import resource
import signal
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .errors import LabError
from .proc import find_program

# What the unit sets.
UMASK = 0o077
FILES = 65536
GROUP = "kvm"
# Numbers of linux/capability.h, by what the drop-ins in debian/examples grant.
CAPABILITIES = {"net_bind_service": 10, "net_admin": 12}
SETS = ("CapInh", "CapPrm", "CapEff", "CapAmb")


@dataclass(frozen=True)
class User:
    """Whom manad is started as. `capabilities`: those that a drop-in grants until it is ready."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    capabilities: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """Begin a command line whose program then has these rights. It dies with the lab."""
        tools = [find_program(name) for name in ("prlimit", "setpriv")]
        if None in tools:
            raise LabError("the package util-linux is missing")
        granted = "".join(f",+{name}" for name in self.capabilities)
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        files = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
        groups = ",".join(map(str, self.groups))
        return [str(tools[0]), f"--nofile={files}:{files}", "--",
                str(tools[1]), f"--reuid={self.uid}", f"--regid={self.gid}",
                f"--groups={groups}" if groups else "--clear-groups", "--no-new-privs",
                f"--inh-caps=-all{granted}", f"--ambient-caps=-all{granted}",
                f"--bounding-set=-all{granted}", "--pdeathsig=SIGKILL", "--"]

    @property
    def options(self) -> tuple[str, ...]:
        """What the unit's command line has besides the control socket."""
        return ("--socket-access", f":{self.groups[0]}:0660") if self.groups else ()

    def folder(self, path: Path, mode: int) -> Path:
        """Makes a directory of this user."""
        path.mkdir()
        os.chown(path, self.uid, self.gid)
        path.chmod(mode)
        return path


def find_user(name: str, capabilities: Iterable[str] = ()) -> User:
    """A user by name or number, as the unit's is: of the group kvm, if there is one, and of no
    other."""
    if os.geteuid() != 0:
        raise LabError("only root can start manad as another user")
    try:
        uid, gid = (int(name),) * 2 if name.isdigit() else pwd.getpwnam(name)[2:4]
    except KeyError as error:
        raise LabError(f"there is no user {name}") from error
    if uid == 0:
        raise LabError("manad is to be started as a user that is not root")
    try:
        groups: tuple[int, ...] = (grp.getgrnam(GROUP).gr_gid,)
    except KeyError:
        groups = ()
    return User(uid, gid, groups, tuple(capabilities))


def wrong_rights(status: str, user: User) -> list[str]:
    """What a thread's /proc/PID/task/TID/status says that is not as it should be once manad is
    ready."""
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    bounding = sum(1 << CAPABILITIES[name] for name in user.capabilities)
    wanted = {"Uid": "\t".join([str(user.uid)] * 4), "Gid": "\t".join([str(user.gid)] * 4),
              **{name: f"{0:016x}" for name in SETS}, "CapBnd": f"{bounding:016x}",
              "NoNewPrivs": "1", "Seccomp": "2"}
    return [f"{name} is {lines.get(name, 'not there')}, not {value}".replace("\t", " ")
            for name, value in wanted.items() if lines.get(name) != value]


def check_rights(pid: int, user: User, log: Path) -> None:
    """Raises if a thread of manad has more rights than it should, or a call that its filter does
    not let through would not kill it."""
    for task in sorted(Path(f"/proc/{pid}/task").iterdir()):
        try:
            status = (task / "status").read_text()
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
        wrong = wrong_rights(status, user)
        if wrong:
            name = status.partition("\n")[0].partition("\t")[2]
            raise LabError(f"manad's thread {name}: {'; '.join(wrong)}", log)
    said = re.findall(r"sandbox: action=(\w+)|(sandbox off.*)", log.read_text(errors="replace"))
    if not said or said[-1] != ("kill", ""):
        words = " ".join(filter(None, said[-1])) if said else "nothing"
        raise LabError(f"manad's filter of system calls has not the action kill; its log says "
                       f"'{words}'", log)


def refused_call(pid: int) -> str:
    """The system call for which the kernel killed a process, if its log can be read and tells."""
    dmesg = find_program("dmesg")
    if dmesg is None:
        return ""
    done = subprocess.run([dmesg], capture_output=True, text=True, errors="replace", timeout=20,
                          check=False)
    found = re.findall(rf"type=1326 .* pid={pid} .*\bsig={int(signal.SIGSYS)}\b.* syscall=(\d+)",
                       done.stdout)
    return f", number {found[-1]}" if found else ""


def how_it_ended(status: int, pid: int) -> str:
    """An exit status of manad in words."""
    if status >= 0:
        return f"manad ended with status {status}"
    if -status == signal.SIGSYS:
        return ("manad was killed by SIGSYS: it made a system call that its filter does not let "
                f"through{refused_call(pid)}")
    return f"manad was killed by signal {-status} ({signal.strsignal(-status)})"

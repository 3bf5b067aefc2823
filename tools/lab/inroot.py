# SPDX-License-Identifier: Apache-2.0
"""Runs a program in a root tree, in namespaces of its own: run as a program, by unshare(1).

    inroot.py TREE MOUNTPOINT [--unprivileged] [--bind HOST ROOT]... [--cwd DIR] -- ARGV...

TREE is below an overlay whose upper layer is a tmpfs, so it is never changed, and any number of
programs may use it at once. Directories that are bound are the host's. /proc is there, which
kernel builds need (objtool), and a small /dev. All of it is gone when the program ends.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys

MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2); ends the process with one line when it fails."""
    if _libc.mount(source.encode(), target.encode(), kind.encode() or None, flags,
                   data.encode() or None):
        raise SystemExit(f"inroot: cannot mount {kind or source} on {target}: "
                         f"{os.strerror(ctypes.get_errno())}")


def make_root(tree: str, mountpoint: str, unprivileged: bool) -> str:
    """Mounts a throw-away copy of the tree; returns its path."""
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    mount("tmpfs", mountpoint, "tmpfs", data="mode=0755")
    for name in ("upper", "work", "root"):
        os.mkdir(f"{mountpoint}/{name}")
    root = f"{mountpoint}/root"
    # Without the right to set trusted attributes the overlay keeps its own in user ones.
    own = ",userxattr" if unprivileged else ""
    mount("overlay", root, "overlay",
          data=f"lowerdir={tree},upperdir={mountpoint}/upper,workdir={mountpoint}/work{own}")
    for name in ("proc", "dev", "tmp", "run"):
        os.makedirs(f"{root}/{name}", exist_ok=True)
    mount("proc", f"{root}/proc", "proc")
    mount("tmpfs", f"{root}/dev", "tmpfs", data="mode=0755")
    for name in DEVICES:
        with open(f"{root}/dev/{name}", "w", encoding="ascii"):
            pass
        mount(f"/dev/{name}", f"{root}/dev/{name}", flags=MS_BIND)
    os.symlink("/proc/self/fd", f"{root}/dev/fd")
    os.mkdir(f"{root}/dev/shm")
    for name in ("tmp", "run"):
        mount("tmpfs", f"{root}/{name}", "tmpfs", data="mode=1777")
    return root


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="inroot.py")
    parser.add_argument("tree")
    parser.add_argument("mountpoint")
    parser.add_argument("--unprivileged", action="store_true")
    parser.add_argument("--bind", nargs=2, action="append", default=[])
    parser.add_argument("--cwd", default="/")
    split = argv.index("--")
    args = parser.parse_args(argv[:split])
    command = argv[split + 1:]
    root = make_root(args.tree, args.mountpoint, args.unprivileged)
    for host, inside in args.bind:
        os.makedirs(root + inside, exist_ok=True)
        mount(host, root + inside, flags=MS_BIND | MS_REC)
    os.chroot(root)
    os.chdir(args.cwd)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])

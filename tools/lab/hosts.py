# SPDX-License-Identifier: Apache-2.0
"""Two hosts on this one: network namespaces joined by a veth pair, for all but the CPU and the
disk."""

from __future__ import annotations

import json
import os
import subprocess

from .errors import LabError
from .proc import end_group, spawn

INTERFACE = "wire"


class Hosts:
    """Two network namespaces with an interface `wire` each; `start` makes them, `stop` ends them,
    as does the end of this process. Needs root."""

    def __init__(self, mtu: int) -> None:
        if not 1280 <= mtu <= 65535:
            raise LabError(f"a wire cannot have an MTU of {mtu} (1280 to 65535)")
        self.mtu = mtu
        self._keepers: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Makes both, with their wire up."""
        if os.geteuid() != 0:
            raise LabError("network namespaces for two hosts can be made by root alone")
        for _ in range(2):
            keeper = spawn(["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"],
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            self._keepers.append(keeper)
            assert keeper.stdout is not None
            if not keeper.stdout.readline():
                raise LabError("cannot make a network namespace")
        first, second = self._keepers
        self._ip("link", "add", INTERFACE, "mtu", str(self.mtu), "netns", str(first.pid),
                 "type", "veth", "peer", INTERFACE, "mtu", str(self.mtu), "netns", str(second.pid))
        for number in range(2):
            for words in (f"link set lo up; link set {INTERFACE} up",
                          f"address add {self.address(number)}/24 dev {INTERFACE}",
                          f"address add {self.address6(number)}/64 dev {INTERFACE} nodad"):
                for line in words.split(";"):
                    self._ip(*line.split(), host=number)

    def stop(self) -> None:
        """Ends them, and with them the wire."""
        for keeper in self._keepers:
            end_group(keeper, grace=0.5)
            if keeper.stdout is not None:
                keeper.stdout.close()
        self._keepers.clear()

    def words(self, host: int) -> tuple[str, ...]:
        """Words that begin the command line of a program on a host."""
        return ("nsenter", f"--net=/proc/{self._keepers[host].pid}/ns/net", "--")

    @staticmethod
    def address(host: int) -> str:
        """Of its end of the wire, IPv4."""
        return f"192.0.2.{host + 1}"

    @staticmethod
    def address6(host: int) -> str:
        """The same, IPv6."""
        return f"2001:db8::{host + 1}"

    def run(self, host: int, *argv: str) -> str:
        """Runs a program on a host to its end; its output."""
        done = subprocess.run([*self.words(host), *argv], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            raise LabError(f"{' '.join(argv)} failed on host {host}: {done.stderr.strip()[-300:]}")
        return done.stdout

    def vxlan(self, host: int, vni: int) -> str:
        """A VXLAN device of a host, whose other end is on the other one; its name. What it takes
        leaves room for the headers around."""
        name = f"vxlan{vni}"
        self._ip("link", "add", name, "mtu", str(self.mtu - 50), "type", "vxlan", "id", str(vni),
                 "dstport", "4789", "local", self.address(host), "remote", self.address(1 - host),
                 host=host)
        return name

    def bridge(self, host: int, port: str, *taps: str) -> None:
        """Joins a port of a host to new TAP devices, which take what it does."""
        mtu = json.loads(self.run(host, "ip", "-j", "link", "show", port))[0]["mtu"]
        self._ip("link", "add", "bridge", "type", "bridge", host=host)
        for tap in taps:
            self._ip("tuntap", "add", "dev", tap, "mode", "tap", host=host)
            self._ip("link", "set", tap, "mtu", str(mtu), host=host)
        for one in (port, *taps):
            self._ip("link", "set", one, "master", "bridge", "up", host=host)
        self._ip("link", "set", "bridge", "up", host=host)

    def _ip(self, *words: str, host: int | None = None) -> None:
        before = () if host is None else self.words(host)
        done = subprocess.run([*before, "ip", *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise LabError(f"ip {' '.join(words)} failed: {done.stderr.strip()}")

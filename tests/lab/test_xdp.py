# SPDX-License-Identifier: Apache-2.0
"""manad on an interface of the host by AF_XDP: two network namespaces with a veth pair, and TAP
devices of manad in the place of guests."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import types
import unittest
from pathlib import Path
from typing import cast

from test_vxlan import PATIENCE, PORT, Manad, Namespace, send, serve, whole_packets

GUESTS = ("198.51.100.1", "198.51.100.2")
HOSTS = ("192.0.2.1", "192.0.2.2")


# A TAP device can be made by whoever becomes another user, as udev has it.
OPEN_TUN = ("unshare", "--mount", "sh", "-ec", "mount -t tmpfs tmpfs /dev/net; "
            "mknod -m 666 /dev/net/tun c 10 200; exec \"$@\"", "open_tun")


class XdpManad(Manad):
    """With an uplink on the wire."""

    def uplink(self) -> dict[str, object]:
        found = json.loads(self.ctl("--json", "uplinks"))["uplinks"]
        return next(row for row in found if row["uplink"].startswith("xdp="))


def why_not() -> str:
    """Why the tests cannot run here; empty if they can."""
    if os.geteuid() != 0:
        return "network namespaces are made by root alone"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "there is no /dev/net/tun"
    try:
        socket.socket(44, socket.SOCK_RAW).close()  # AF_XDP
    except OSError as error:
        return f"no AF_XDP here: {error}"
    return ""


@unittest.skipIf(why_not(), why_not())
class XdpTest(unittest.TestCase):
    """The first namespace has manad; what is at the other end of the wire is each test's."""

    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="xdp-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.near, self.far = Namespace(), Namespace()
        self.addCleanup(self.near.end)
        self.addCleanup(self.far.end)
        self.wire()

    def wire(self) -> None:
        subprocess.run(["ip", "link", "add", "wire", "netns", str(self.near.keeper.pid), "type",
                        "veth", "peer", "wire", "netns", str(self.far.keeper.pid)], check=True)
        for where, address in zip((self.near, self.far), HOSTS, strict=True):
            where.ip("link set lo up")
            where.ip("link set wire up")
            where.ip(f"addr add {address}/24 dev wire")
            where.role(whole_packets, "wire")

    def manad(self, where: Namespace, address: str, *more: str, uplink: str = "") -> XdpManad:
        folder = tempfile.mkdtemp(dir=self.folder)
        os.chmod(self.folder, 0o755)
        os.chmod(folder, 0o777)
        place = types.SimpleNamespace(words=(*where.words, *OPEN_TUN))
        manad = XdpManad(cast(Namespace, place), folder, "--uplink", "tap=guest", "--uplink",
                         f"xdp=wire{uplink}", *more)
        self.addCleanup(lambda: manad.end())
        where.ip(f"addr add {address}/24 dev guest")
        where.ip("link set guest up")
        return manad

    def carries(self, sender: Namespace, receiver: Namespace, source: str, target: str) -> None:
        """TCP, with what comes compared."""
        server = receiver.start(serve, target, str(PORT))
        sent = sender.role(send, target, str(PORT), source)
        output, _ = server.communicate(timeout=PATIENCE)
        self.assertEqual(output, sent)

    def both_ways(self, first: str, second: str) -> None:
        self.carries(self.near, self.far, first, second)
        self.carries(self.far, self.near, second, first)

    def lost_nothing(self, manad: XdpManad) -> None:
        counters = manad.uplink()["counters"]
        assert isinstance(counters, dict)
        lost = {name: value for name, value in counters.items() if value and re.search(
            "dropped|full|large|invalid|lost|errors", name)}
        self.assertEqual(lost, {})

    def test_ours_with_ours(self) -> None:
        manads = [self.manad(where, address) for where, address in
                  zip((self.near, self.far), GUESTS, strict=True)]
        self.both_ways(*GUESTS)
        for manad in manads:
            self.lost_nothing(manad)

    def test_a_host_is_a_peer_and_ours_keeps_its_network(self) -> None:
        manad = self.manad(self.near, GUESTS[0])
        self.far.ip(f"addr add {GUESTS[1]}/24 dev wire")
        self.both_ways(*GUESTS)
        # The host that manad runs on is reached as before, both at once.
        self.both_ways(*HOSTS)
        self.lost_nothing(manad)

    def test_generic(self) -> None:
        manad = self.manad(self.near, GUESTS[0], uplink=",mode=generic")
        manad.says("uplink xdp:", "program=generic")
        self.far.ip(f"addr add {GUESTS[1]}/24 dev wire")
        self.both_ways(*GUESTS)

    def test_a_user_without_rights_has_it_back(self) -> None:
        """manad has no capability any more when the interface is there again."""
        manad = self.manad(self.near, GUESTS[0], "--user", "nobody")
        manad.says("privileges: uid=", "capabilities=none")
        for pid in (manad.process.pid, *self.children(manad.process.pid)):
            status = Path(f"/proc/{pid}/status").read_text()
            self.assertIn("\nNoNewPrivs:\t1\n", status)
            self.assertNotRegex(status, r"(?m)^Uid:\s.*\b0\b")
        self.near.ip("link del wire")
        manad.says("uplink end:", "reason=\"the interface is gone\"")
        manad.until(lambda: not manad.uplink()["connected"])
        self.wire()
        manad.says("uplink again:")
        manad.until(lambda: bool(manad.uplink()["connected"]))
        self.far.ip(f"addr add {GUESTS[1]}/24 dev wire")
        self.both_ways(*GUESTS)
        self.assertEqual(len(re.findall("uplink end:", manad.log.read_text())), 1)

    @staticmethod
    def children(pid: int) -> list[int]:
        return [int(word) for word in
                Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def test_what_cannot_be_is_said_in_a_line(self) -> None:
        def refusal(*options: str, words: tuple[str, ...] = ()) -> str:
            done = subprocess.run(
                [*self.near.words, *words, os.environ["OPENMANA_BUILD"] + "/device/manad", "--nic",
                 f"id=a,socket={self.folder}/a", *options], capture_output=True, text=True,
                check=False, timeout=PATIENCE)
            self.assertEqual(done.returncode, 1, done.stderr)
            return done.stderr.splitlines()[-1]
        self.assertEqual(refusal("--uplink", "xdp=nothing"),
                         "manad: xdp=nothing: there is no such interface")
        self.assertEqual(refusal("--uplink", "xdp=wire,queues=9"),
                         "manad: xdp=wire: the interface has fewer queues")
        self.assertEqual(refusal("--uplink", "xdp=wire,mode=zero-copy"), "manad: xdp=wire: its "
                         "driver cannot do without copies: mode=auto")
        without = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--reuid", "65534",
                   "--clear-groups")
        os.chmod(self.folder, 0o777)
        self.assertEqual(refusal("--uplink", "xdp=wire", words=without), "manad: xdp=wire: an XDP "
                         "program takes CAP_BPF and CAP_NET_ADMIN")
        self.manad(self.near, GUESTS[0])
        self.assertEqual(refusal("--uplink", "xdp=wire"),
                         "manad: xdp=wire: another program has a queue of the interface")

    def test_an_mtu_that_does_not_fit_is_said(self) -> None:
        manad = self.manad(self.near, GUESTS[0], "--nic",
                           f"id=b,mtu=9000,socket={self.folder}/b")
        manad.says("frames are too large:", "uplink=xdp=wire ", "nic_mtu=9000", "fits=1500")
        status = json.loads(manad.ctl("--json", "status"))
        self.assertEqual({row["nic"]: row["mtu"] for row in status["nics"]},
                         {"a": 1500, "b": 9000})

    def test_nothing_of_it_stays(self) -> None:
        manad = self.manad(self.near, GUESTS[0])
        shown = self.near.run("ip", "-d", "link", "show", "wire")
        self.assertIn("promiscuity 1", shown)
        self.assertIn("prog/xdp", shown)
        children = self.children(manad.process.pid)
        self.assertEqual(len(children), 1)
        manad.process.kill()
        manad.process.wait()
        manad.end = lambda: None  # type: ignore[method-assign]
        deadline = 100
        while deadline and "prog/xdp" in (shown := self.near.run("ip", "-d", "link", "show",
                                                                 "wire")):
            deadline -= 1
        self.assertIn("promiscuity 0", shown)
        self.assertNotIn("prog/xdp", shown)


if __name__ == "__main__":
    unittest.main()

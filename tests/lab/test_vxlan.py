# SPDX-License-Identifier: Apache-2.0
"""manad as an end of VXLAN tunnels, with Linux's own device or Open vSwitch at the other one: two
network namespaces with a veth pair, and a TAP device of manad in the place of a guest."""

from __future__ import annotations

import array
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path

BUILD = Path(os.environ.get("OPENMANA_BUILD", ""))
PATIENCE = 30.0
BYTES = 4 << 20
INNER = ("198.51.100.1", "198.51.100.2")
VNI = 5
PORT = 7000
SIOCETHTOOL, ETHTOOL_STXCSUM = 0x8946, 0x17


# What runs inside a namespace: this file with the name of a function and its arguments.

def serve(address: str, port: str) -> None:
    """Takes one TCP connection and prints the digest of what comes."""
    with socket.create_server((address, int(port))) as server:
        server.settimeout(PATIENCE)
        print("ready", flush=True)
        client, _ = server.accept()
        digest = hashlib.sha256()
        with client:
            client.settimeout(PATIENCE)
            while part := client.recv(65536):
                digest.update(part)
        print(digest.hexdigest(), flush=True)


def send(address: str, port: str, source: str) -> None:
    """Sends pseudo-random bytes by TCP and prints their digest."""
    data = os.urandom(BYTES)
    with socket.create_connection((address, int(port)), PATIENCE, (source, 0)) as client:
        client.sendall(data)
    print(hashlib.sha256(data).hexdigest(), flush=True)


def datagram(address: str, port: str, size: str) -> None:
    """Sends UDP datagrams of a size that the host must not cut."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, 10, 3)  # IP_MTU_DISCOVER, IP_PMTUDISC_PROBE
        for _ in range(3):
            with contextlib.suppress(OSError):
                sender.sendto(bytes(int(size)), (address, int(port)))


def listen(address: str, port: str, count: str) -> None:
    """Prints size and TOS of UDP datagrams."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.IPPROTO_IP, 13, 1)  # IP_RECVTOS
        receiver.bind((address, int(port)))
        receiver.settimeout(PATIENCE)
        print("ready", flush=True)
        for _ in range(int(count)):
            data, control, _, _ = receiver.recvmsg(65536, 64)
            print(len(data), control[0][2][0], flush=True)


def marked(outer: str, source: str, mac: str, tos: str, inner_tos: str) -> None:
    """Sends a datagram of the tunnel by hand: with this TOS outside, and a UDP packet with another
    one inside."""
    payload = b"x" * 100
    udp = struct.pack(">HHHH", 1, PORT, 8 + len(payload), 0) + payload
    header = struct.pack(">BBHHHBBH4s4s", 0x45, int(inner_tos), 20 + len(udp), 1, 0, 64, 17, 0,
                         socket.inet_aton(INNER[1]), socket.inet_aton(INNER[0]))
    total = sum(struct.unpack(">10H", header))
    total = (total & 0xffff) + (total >> 16)
    total = (total & 0xffff) + (total >> 16)
    header = header[:10] + struct.pack(">H", ~total & 0xffff) + header[12:]
    frame = bytes.fromhex(mac.replace(":", "")) + bytes.fromhex("020000000077") + b"\x08\x00"
    family = socket.AF_INET6 if ":" in outer else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        if family == socket.AF_INET6:
            sender.setsockopt(socket.IPPROTO_IPV6, 67, int(tos))  # IPV6_TCLASS
        else:
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, int(tos))
        sender.bind((source, 0))
        sender.sendto(struct.pack(">II", 0x08000000, VNI << 8) + frame + header + udp,
                      (outer, 4789))


def whole_packets(interface: str) -> None:
    """No checksums and segments left to a card that is not there (docs/network.md)."""
    command = array.array("I", (ETHTOOL_STXCSUM, 0))
    request = struct.pack("16sP", interface.encode(), command.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCETHTOOL, request.ljust(40, b"\0"))


ROLES: dict[str, Callable[..., None]] = {role.__name__: role for role in (
    serve, send, datagram, listen, marked, whole_packets)}


class Namespace:
    """A network namespace, as long as its keeper lives."""

    def __init__(self) -> None:
        self.keeper = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep 600"],
                                       stdout=subprocess.PIPE)
        assert self.keeper.stdout is not None
        self.keeper.stdout.readline()
        self.words = ("nsenter", f"--net=/proc/{self.keeper.pid}/ns/net", "--")

    def end(self) -> None:
        self.keeper.kill()
        self.keeper.wait()
        assert self.keeper.stdout is not None
        self.keeper.stdout.close()

    def run(self, *argv: str) -> str:
        done = subprocess.run([*self.words, *argv], capture_output=True, text=True, check=False,
                              timeout=2 * PATIENCE)
        if done.returncode != 0:
            raise AssertionError(f"{' '.join(argv)}: {done.stdout}{done.stderr}")
        return done.stdout

    def ip(self, line: str) -> None:
        self.run("ip", *line.split())

    def role(self, function: Callable[..., None], *arguments: str) -> str:
        return self.run(sys.executable, "-B", __file__, function.__name__, *arguments)

    def start(self, function: Callable[..., None], *arguments: str) -> subprocess.Popen[str]:
        """Begins one that says when it is ready."""
        program = subprocess.Popen([*self.words, sys.executable, "-B", __file__,
                                    function.__name__, *arguments],
                                   stdout=subprocess.PIPE, text=True)
        assert program.stdout is not None
        if program.stdout.readline() != "ready\n":
            raise AssertionError(f"{function.__name__} does not begin")
        return program


class Manad:
    """manad in a namespace."""

    def __init__(self, where: Namespace, folder: str, *options: str) -> None:
        self.log = Path(folder) / "log"
        self.control = f"{folder}/control"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*where.words, str(BUILD / "device/manad"), "--nic", f"id=a,socket={folder}/a",
                 "--control", self.control, *options], stdout=log, stderr=log)
        self.until(lambda: "ready" in self.log.read_text())

    def until(self, done: Callable[[], bool]) -> None:
        """Waits for something that is seen."""
        end = time.monotonic() + PATIENCE
        while not done():
            if time.monotonic() > end or self.process.poll() is not None:
                raise AssertionError(self.log.read_text())
            time.sleep(0.05)

    def said(self, *words: str) -> bool:
        """Whether there is a line with all these words."""
        return any(all(word in line for word in words)
                   for line in self.log.read_text().splitlines())

    def says(self, *words: str) -> None:
        """Waits for it."""
        self.until(lambda: self.said(*words))

    def ctl(self, *words: str) -> str:
        return subprocess.run([str(BUILD / "tools/manactl"), "--control", self.control, *words],
                              capture_output=True, text=True, check=True).stdout

    def uplink(self) -> dict[str, object]:
        found = json.loads(self.ctl("--json", "uplinks"))["uplinks"]
        return next(row for row in found if row["uplink"].startswith("vxlan="))

    def counter(self, name: str) -> int:
        counters = self.uplink()["counters"]
        assert isinstance(counters, dict)
        return int(counters[name])

    def end(self) -> None:
        self.process.terminate()
        status = self.process.wait(PATIENCE)
        if status != 0:
            raise AssertionError(f"status {status}: {self.log.read_text()}")


class Switch:
    """Open vSwitch in a namespace, with files of its own."""

    PROGRAMS = ("ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl")
    PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/lib/openvswitch-switch"

    @classmethod
    def missing(cls) -> str:
        """The first program that is not here; empty if there are all."""
        return next((name for name in cls.PROGRAMS if not shutil.which(name, path=cls.PATH)), "")

    def __init__(self, where: Namespace, folder: str) -> None:
        self.where, self.folder = where, folder
        self.environment = {**os.environ, "PATH": self.PATH, "OVS_RUNDIR": folder,
                            "OVS_LOGDIR": folder}
        schema = Path(os.environ.get("OVS_PKGDATADIR", "/usr/share/openvswitch"),
                      "vswitch.ovsschema")
        self.run("ovsdb-tool", "create", f"{folder}/db", str(schema))
        socket_path = f"{folder}/db.sock"
        self.database = f"unix:{socket_path}"
        self.programs: list[subprocess.Popen[bytes]] = []
        self.begin("ovsdb-server", f"--remote=punix:{socket_path}", f"{folder}/db")
        end = time.monotonic() + PATIENCE
        while not os.path.exists(socket_path) and time.monotonic() < end:
            time.sleep(0.05)
        try:
            self.ctl("--no-wait init")
        except AssertionError:
            self.end()
            raise
        self.begin("ovs-vswitchd", self.database)

    def run(self, *argv: str) -> None:
        done = subprocess.run([*self.where.words, *argv], env=self.environment, text=True,
                              capture_output=True, check=False, timeout=PATIENCE)
        if done.returncode != 0:
            raise AssertionError(f"{' '.join(argv)}: {done.stdout}{done.stderr}")

    def ctl(self, line: str) -> None:
        self.run("ovs-vsctl", f"--db={self.database}", "--timeout=20", *line.split())

    def begin(self, *argv: str) -> None:
        with open(f"{self.folder}/{argv[0]}.log", "w") as log:
            self.programs.append(subprocess.Popen([*self.where.words, *argv], stdout=log,
                                                  stderr=log, env=self.environment))

    def end(self) -> None:
        for program in reversed(self.programs):
            program.terminate()
            program.wait(PATIENCE)


def why_not() -> str:
    """Why the tests cannot run here; empty if they can."""
    if os.geteuid() != 0:
        return "network namespaces are made by root alone"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "there is no /dev/net/tun"
    probe = subprocess.run(["unshare", "--net", "ip", "link", "add", "x", "type", "vxlan", "id",
                            "1", "dstport", "4789"], capture_output=True, check=False)
    return "" if probe.returncode == 0 else "this kernel has no vxlan device"


@unittest.skipIf(why_not(), why_not())
class TunnelTest(unittest.TestCase):
    """The first namespace has manad and its TAP device, the second the other end."""

    OUTER = ("192.0.2.1", "192.0.2.2")
    LENGTH = 24
    AROUND = 50

    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="vxlan-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.near, self.far = Namespace(), Namespace()
        self.addCleanup(self.near.end)
        self.addCleanup(self.far.end)
        subprocess.run(["ip", "link", "add", "wire", "netns", str(self.near.keeper.pid), "type",
                        "veth", "peer", "wire", "netns", str(self.far.keeper.pid)], check=True)
        for where, address in zip((self.near, self.far), self.OUTER, strict=True):
            where.ip("link set lo up")
            where.ip("link set wire up")
            self.address(where, address)
        self.far.role(whole_packets, "wire")
        self.local, self.remote = self.OUTER

    def address(self, where: Namespace, address: str) -> None:
        where.ip(f"addr add {address}/{self.LENGTH} dev wire" + " nodad" * (":" in address))

    def other_end(self, more: str = "") -> None:
        """Linux's device."""
        self.far.ip(f"link add vx5 type vxlan id {VNI} dstport 4789 local {self.remote} "
                    f"remote {self.local} {more}")
        self.far.ip(f"link set vx5 up mtu {1500 - self.AROUND}")
        self.far.ip(f"addr add {INNER[1]}/24 dev vx5")

    def manad(self, *more: str, uplink: str = "") -> Manad:
        manad = Manad(self.near, self.folder, "--uplink", "tap=guest", "--uplink",
                      f"vxlan=local={self.local},vni={VNI}{uplink}", *more)
        self.addCleanup(manad.end)
        self.near.ip(f"addr add {INNER[0]}/24 dev guest")
        self.near.ip(f"link set guest up mtu {1500 - self.AROUND}")
        return manad

    def peers(self, **more: str) -> Manad:
        return self.manad(uplink=f",remote={self.remote}", **more)

    def carries(self, sender: Namespace, receiver: Namespace, source: str, target: str) -> None:
        """TCP, with what comes compared."""
        server = receiver.start(serve, target, str(PORT))
        sent = sender.role(send, target, str(PORT), source)
        output, _ = server.communicate(timeout=PATIENCE)
        self.assertEqual(output, sent)

    def test_tcp_both_ways(self) -> None:
        self.other_end()
        manad = self.peers()
        self.carries(self.near, self.far, *INNER)
        self.carries(self.far, self.near, *reversed(INNER))
        self.assertEqual(manad.counter("fabric.vxlan.too_large"), 0)
        self.assertRegex(manad.ctl("fdb"), rf"(?m)^\S+ dev vxlan5 dst {self.remote} port 4789 "
                                           "src_vni 5 self$")

    def test_a_mark_outside_arrives_inside(self) -> None:
        manad = self.peers()
        mac = json.loads(self.near.run("ip", "-j", "link", "show", "guest"))[0]["address"]
        listener = self.near.start(listen, INNER[0], str(PORT), "2")
        for tos, inner in ((3, 2), (3, 0), (2, 0xba)):
            self.far.role(marked, self.local, self.remote, mac, str(tos), str(inner))
        output, _ = listener.communicate(timeout=PATIENCE)
        self.assertEqual(output, "100 3\n100 186\n")
        self.assertEqual(manad.counter("fabric.vxlan.ecn_marked"), 1)
        self.assertEqual(manad.counter("fabric.vxlan.ecn_dropped"), 1)

    def test_a_packet_that_is_too_large_has_its_line(self) -> None:
        self.other_end()
        manad = self.peers()
        self.near.ip("link set guest mtu 1500")
        self.near.role(datagram, INNER[1], str(PORT), "1472")
        manad.says("vxlan too large:", f"peer={self.remote} ", f"packet={1500 + self.AROUND} ",
                   "path_mtu=1500 ", f"guest_mtu={1500 - self.AROUND}")
        self.assertGreater(manad.counter("fabric.vxlan.too_large"), 0)
        # The rest goes on.
        self.near.ip(f"link set guest mtu {1500 - self.AROUND}")
        self.carries(self.near, self.far, *INNER)

    def test_an_interface_that_goes_away_and_comes_back(self) -> None:
        self.other_end()
        manad = self.peers()
        self.carries(self.near, self.far, *INNER)
        self.near.ip(f"addr del {self.local}/{self.LENGTH} dev wire")
        self.near.ip("link set wire down")
        self.near.role(datagram, INNER[1], str(PORT), "100")
        manad.says("vxlan send:", "reason=")
        self.assertFalse(manad.uplink()["connected"])
        self.near.ip("link set wire up")
        self.address(self.near, self.local)
        self.carries(self.near, self.far, *INNER)
        self.assertTrue(manad.uplink()["connected"])
        lines = re.findall("vxlan send:.*reason", manad.log.read_text())
        self.assertEqual(len(lines), 1, lines)

    def test_a_host_that_is_not_there(self) -> None:
        nobody = re.sub("2$", "9", self.remote)
        manad = self.manad(uplink=f",remote={self.remote}+{nobody}")
        with contextlib.suppress(AssertionError):
            self.near.role(datagram, INNER[1], str(PORT), "100")

        def told() -> bool:
            """Of what waits for a neighbour that does not answer not all has its error."""
            self.near.role(datagram, "255.255.255.255", str(PORT), "100")
            return manad.said("vxlan unreachable:", f"peer={nobody} ")

        manad.until(told)
        self.assertTrue(manad.uplink()["connected"])

    def test_what_bridge_fdb_shows_feeds_the_table(self) -> None:
        """As another program, such as FRR, would: here the entries of a device of Linux."""
        self.other_end()
        table = Path(self.folder) / "table"
        manad = self.manad(uplink=f",learn=off,fdb={table}")
        self.near.ip(f"link add vx5 type vxlan id {VNI} dstport 4790 local {self.local} nolearning")
        station = json.loads(self.far.run("ip", "-j", "link", "show", "vx5"))[0]["address"]

        def feed(*entries: str) -> None:
            for entry in entries:
                self.near.run("bridge", "fdb", "append", *entry.split(), "dev", "vx5")
            new = table.with_suffix(".new")
            new.write_text(self.near.run("bridge", "fdb", "show", "dev", "vx5"))
            reads = manad.counter("fabric.fdb.reads")
            new.rename(table)
            manad.until(lambda: manad.counter("fabric.fdb.reads") == reads + 1)

        # A station alone: nobody hears who asks for its address.
        feed(f"{station} dst {self.remote}")
        self.near.ip(f"neigh add {INNER[1]} lladdr {station} dev guest nud permanent")
        self.carries(self.near, self.far, *INNER)
        self.assertEqual(manad.counter("fabric.vxlan.flooded"), 0)
        self.near.ip("neigh flush dev guest nud permanent")
        feed(f"00:00:00:00:00:00 dst {self.remote}")
        self.carries(self.near, self.far, *INNER)
        self.assertGreater(manad.counter("fabric.vxlan.flooded"), 0)
        self.assertEqual(manad.counter("fabric.fdb.learned"), 0)
        # A broken one changes nothing.
        with table.open("a") as broken:
            broken.write("02:00:00:00:00:07 dts 1.2.3.4\n")
        manad.says("fdb kept:", "'dts' is not a word of bridge fdb")
        self.carries(self.far, self.near, *reversed(INNER))

    def test_open_vswitch(self) -> None:
        """Its datapath in user space, on a bridge of its own for the wire, as it needs one."""
        if missing := Switch.missing():
            self.skipTest(f"no {missing} here (Debian: openvswitch-switch)")
        self.near.role(whole_packets, "wire")  # it takes frames as they are
        switch = Switch(self.far, self.folder)
        self.addCleanup(switch.end)
        switch.ctl("add-br phy -- set bridge phy datapath_type=netdev -- add-port phy wire")
        switch.ctl("add-br br0 -- set bridge br0 datapath_type=netdev -- add-port br0 vx5 -- set "
                   f"interface vx5 type=vxlan options:remote_ip={json.dumps(self.local)} "
                   f"options:local_ip={json.dumps(self.remote)} options:key={VNI}")
        self.far.ip("addr flush dev wire")
        self.far.ip("link set phy up")
        self.far.ip(f"addr add {self.remote}/{self.LENGTH} dev phy"
                    + " nodad" * (":" in self.local))
        self.far.ip(f"link set br0 up mtu {1500 - self.AROUND}")
        self.far.ip(f"addr add {INNER[1]}/24 dev br0")
        self.peers()
        self.carries(self.near, self.far, *INNER)
        self.carries(self.far, self.near, *reversed(INNER))


class Tunnel6Test(TunnelTest):
    """The same with IPv6 outside."""

    OUTER = ("2001:db8::1", "2001:db8::2")
    LENGTH = 64
    AROUND = 70


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in ROLES:
        ROLES[sys.argv[1]](*sys.argv[2:])
    else:
        unittest.main()

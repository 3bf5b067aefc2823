# SPDX-License-Identifier: Apache-2.0
"""The example for libvirt: a domain whose NIC a hook makes and ends, under Debian's libvirt with a
QEMU that has vfio-user-pci. libvirtd runs with directories of its own, in a mount namespace."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
import unittest
import xml.etree.ElementTree as ET
from pathlib import Path

from running_manad import BUILD, RunningManad

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from lab.channel import Channel  # noqa: E402
from lab.errors import LabError  # noqa: E402
from lab.guest import BOOT_TIMEOUT  # noqa: E402
from lab.image import get_image  # noqa: E402
from lab.qemu import Machine, find_qemu, kernel_command_line  # noqa: E402

EXAMPLES = ROOT / "debian" / "examples"
QEMU = "{http://libvirt.org/schemas/domain/qemu/1.0}"
MANAD = "{urn:openmana:manad}"
PATIENCE = BOOT_TIMEOUT  # for all that may be slow on a busy machine
# Everything that libvirtd writes is in directories of its own. The package libvirt-daemon-system
# would have made the user.
NAMESPACE = r"""
for place in /etc/libvirt /run/libvirt /var/lib/libvirt /var/log/libvirt /var/cache/libvirt; do
    mkdir -p $place
    mount -t tmpfs tmpfs $place
done
for file in passwd:64055:0::/:/bin/false group:64055:; do
    name=${file%%:*}
    cp /etc/$name /run/libvirt/$name
    echo "libvirt-qemu:x:${file#*:}" >>/run/libvirt/$name
    mount --bind /run/libvirt/$name /etc/$name
done
mkdir -p /etc/libvirt/hooks/qemu.d
cp "$1" /etc/libvirt/hooks/qemu.d/manad
cat >/etc/libvirt/qemu.conf <<END
user = "root"
group = "root"
security_driver = "none"
cgroup_controllers = []
namespaces = []
dynamic_ownership = 0
remember_owner = 0
stdio_handler = "file"
END
cat >/etc/libvirt/libvirtd.conf <<END
auth_unix_ro = "none"
auth_unix_rw = "none"
unix_sock_dir = "$2"
host_uuid = "$3"
END
exec libvirtd --pid-file /run/libvirt/libvirtd.pid
"""


def missing() -> str:
    """What is not here; empty if all is."""
    if os.geteuid() != 0:
        return "libvirtd in a mount namespace needs root"
    absent = [name for name in ("libvirtd", "virsh") if not shutil.which(name)]
    return f"no {' and no '.join(absent)} here (Debian: libvirt-daemon, libvirt-clients)" \
        if absent else ""


class Libvirt:
    """libvirtd on a host of its own, as far as it knows."""

    def __init__(self, folder: Path, number: int, path: str) -> None:
        folder.mkdir()
        self.uri = f"qemu+unix:///system?socket={folder}/libvirt-sock"
        self.log = folder / "libvirtd.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                ["unshare", "--mount", "sh", "-ec", NAMESPACE, "libvirtd",
                 str(EXAMPLES / "libvirt-hook"), str(folder),
                 f"6d616e61-0000-4000-8000-00000000000{number}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "PATH": path})

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A program where it is, to its end."""
        return subprocess.run(["nsenter", f"--mount=/proc/{self.process.pid}/ns/mnt", "--", *words],
                              capture_output=True, text=True, timeout=PATIENCE, check=False)

    def virsh(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The same of virsh."""
        return self.run("virsh", "--quiet", "--connect", self.uri, *words)

    def copy(self, source: Path, target: str) -> None:
        """Into one of its directories."""
        done = self.run("install", "-D", "-m", "600", str(source), target)
        assert done.returncode == 0, done.stderr

    def ready(self) -> None:
        """Waits until it answers."""
        end = time.monotonic() + PATIENCE
        while self.virsh("list").returncode != 0:
            if time.monotonic() > end or self.process.poll() is not None:
                raise AssertionError(self.log.read_text())
            time.sleep(0.2)

    def end(self) -> None:
        """Its domains, and then itself."""
        for name in self.virsh("list", "--name").stdout.split():
            self.virsh("destroy", name)
        self.process.terminate()
        self.process.wait(30)


@unittest.skipIf(missing(), missing())
class LibvirtTest(RunningManad):
    """A host with manad and libvirt."""

    def setUp(self) -> None:
        super().setUp()
        self.folder.chmod(0o755)
        self.control = self.folder / "control"
        self.path_of_nic = self.folder / "guest.sock"
        try:
            qemu, image = find_qemu(), get_image("trixie")
        except LabError as error:
            self.skipTest(str(error))
        self.emulator = self.folder / "qemu"
        self.emulator.write_text("#!/bin/sh\n" + "".join(
            f"export {name}={value}\n" for name, value in qemu.env)
            + f"exec {' '.join(qemu.argv)} \"$@\"\n")
        self.emulator.chmod(0o755)
        self.machine = Machine("guest", image.kernel, image.initrd, image.root,
                               self.folder / "none", self.folder / "none")
        programs = self.folder / "bin"
        programs.mkdir()
        (programs / "manactl").symlink_to(BUILD / "tools" / "manactl")
        self.path = f"{programs}:{os.environ.get('PATH', '')}"
        self.start("--control", str(self.control))
        self.host = self.libvirt(1)
        self.domain = self.folder / "domain.xml"
        self.domain.write_text(self.description())
        self.says_nothing(self.host.virsh("define", str(self.domain)))

    def libvirt(self, number: int) -> Libvirt:
        """Another one."""
        host = Libvirt(self.folder / f"host{number}", number, self.path)
        self.addCleanup(host.end)
        host.ready()
        return host

    def description(self) -> str:
        """The example's, for this machine: no KVM, and one of the lab's guests."""
        tree = ET.parse(EXAMPLES / "libvirt-domain.xml")
        domain = tree.getroot()
        domain.set("type", "qemu")
        ET.SubElement(domain, "uuid").text = "6d616e61-0000-4000-8000-000000000100"

        def of(path: str) -> ET.Element:
            found = domain.find(path)
            assert found is not None, path
            return found

        of("devices/emulator").text = str(self.emulator)
        of(f"metadata/{MANAD}nics").set("control", str(self.control))
        disk = of("devices/disk")
        of("devices/disk/source").set("file", str(self.machine.root))
        ET.SubElement(disk, "readonly")
        for name, text in (("kernel", str(self.machine.kernel)),
                           ("initrd", str(self.machine.initrd)),
                           ("cmdline", kernel_command_line(self.machine))):
            ET.SubElement(of("os"), name).text = text
        serial = of("devices/serial")
        serial.set("type", "file")
        ET.SubElement(serial, "source", path=str(self.folder / "console"))
        channel = ET.SubElement(of("devices"), "channel", type="unix")
        ET.SubElement(channel, "source", mode="bind", path=str(self.folder / "agent"))
        ET.SubElement(channel, "target", type="virtio", name="manalab")
        for argument in domain.iter(f"{QEMU}arg"):
            argument.set("value", argument.get("value", "").replace(
                "/run/manad/libvirt/guest.sock", str(self.path_of_nic)))
        return ET.tostring(domain, encoding="unicode")

    def in_guest(self, command: str) -> str:
        """What a command of the guest prints."""
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(str(self.folder / "agent"))
            channel = Channel(stream, "guest", str(self.folder / "console"), lambda: None, 1.0)
            channel.wait_boot(PATIENCE)
            started = channel.start(["sh", "-c", command])
            started.close_stdin()
            self.assertEqual(started.wait(PATIENCE), 0, started.stderr)
            channel.close()
            return started.stdout

    def says_nothing(self, done: subprocess.CompletedProcess[str]) -> None:
        """It ended well."""
        self.assertEqual(done.returncode, 0, done.stderr + self.host.log.read_text())

    def refuses(self, done: subprocess.CompletedProcess[str], reason: str) -> None:
        """It failed, and libvirt's message has the hook's one line."""
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stderr.replace("\n", " "), reason)

    def nothing_is_left(self, host: Libvirt | None = None) -> None:
        """No NIC, socket, or domain that runs."""
        self.assertEqual(self.nics(), [])
        self.assertFalse(self.path_of_nic.exists())
        self.assertEqual((host or self.host).virsh("list", "--name").stdout.strip(), "")

    def test_a_domain_has_its_nic_while_it_runs(self) -> None:
        """Made as its metadata says, driven by the guest's driver, gone with it."""
        self.says_nothing(self.host.virsh("start", "guest"))
        nic = json.loads(self.manactl("--json", "status").stdout)["nics"][0]
        self.assertEqual((nic["nic"], nic["mac"]), ("guest-mana0", "02:00:00:00:00:01"))
        self.assertIn("10.0.0.1", self.manactl("policy", "show").stdout)
        self.assertIn("mana_0", self.in_guest(
            "modprobe -a mana mana_ib && ls /sys/class/infiniband"))
        self.says_nothing(self.host.virsh("destroy", "guest"))
        self.nothing_is_left()
        # And again, with what a run that did not end well has left.
        self.assertEqual(self.manactl("nic", "add", f"id=guest-mana0,socket={self.path_of_nic}"
                                      ).returncode, 0)
        self.says_nothing(self.host.virsh("start", "guest"))
        self.says_nothing(self.host.virsh("destroy", "guest"))
        self.nothing_is_left()

    def saved(self) -> bytes:
        """A file as `virsh save` makes it, up to where QEMU's part begins. This libvirt and QEMU
        may be too far apart to make one (QEMU 11.1 takes no `detach`, as libvirt 9 says it)."""
        text = self.host.virsh("dumpxml", "guest", "--migratable").stdout.encode() + b"\0"
        return b"LibvirtQemudSave" + struct.pack("<5I56x", 2, len(text), 1, 0, 0) + text

    def test_what_was_saved_is_not_restored(self) -> None:
        self.says_nothing(self.host.virsh("start", "guest"))
        if self.host.virsh("save", "guest", str(self.folder / "first")).returncode != 0:
            self.assertEqual(self.host.virsh("domstate", "guest").stdout.strip(), "running")
            self.says_nothing(self.host.virsh("destroy", "guest"))
        self.nothing_is_left()
        file = self.folder / "saved"
        file.write_bytes(self.saved())
        self.refuses(self.host.virsh("restore", str(file)),
                     "manad: guest has a NIC of manad .*cannot be restored")
        self.nothing_is_left()
        self.host.copy(file, "/var/lib/libvirt/qemu/save/guest.save")
        self.refuses(self.host.virsh("start", "guest"),
                     "manad: guest has a NIC of manad .*cannot be restored")
        self.nothing_is_left()
        self.says_nothing(self.host.virsh("start", "guest", "--force-boot"))
        self.says_nothing(self.host.virsh("destroy", "guest"))
        self.nothing_is_left()

    def test_a_migration_is_refused_where_it_goes(self) -> None:
        self.says_nothing(self.host.virsh("start", "guest"))
        other = self.libvirt(2)
        self.refuses(self.host.virsh("migrate", "--live", "guest", other.uri),
                     "manad: guest has a NIC of manad .*cannot be migrated")
        self.assertEqual(self.host.virsh("domstate", "guest").stdout.strip(), "running")
        self.assertEqual(other.virsh("list", "--all", "--name").stdout.strip(), "")
        self.assertEqual(self.nics(), ["guest-mana0"])
        self.says_nothing(self.host.virsh("destroy", "guest"))
        self.nothing_is_left()

    def test_a_domain_whose_nic_cannot_be_made_does_not_start(self) -> None:
        text = self.domain.read_text()
        for wrong, reason in (
                (text.replace("02:00:00:00:00:01", "01:00:00:00:00:01"), "a unicast address"),
                (text.replace(str(self.path_of_nic), str(self.folder / "none" / "s")), "none/s: "),
                (text.replace(f'"{self.control}"', '"/nowhere"'), "/nowhere"),
                (text.replace('nic id="mana0"', 'nic id="mana7"'),
                 "no vfio-user-pci of the domain has the id 'mana7'")):
            with self.subTest(reason):
                self.assertNotEqual(wrong, text)
                self.domain.write_text(wrong)
                self.says_nothing(self.host.virsh("define", str(self.domain)))
                self.refuses(self.host.virsh("start", "guest"), f"manad: .*{reason}")
                self.nothing_is_left()


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/manad.md as they stand there: manad by hand, and QEMU with a guest whose NIC
is one of the configuration that the package ships, served as its unit starts it. /run is one of the
test's own, in a mount namespace."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from lab.errors import LabError  # noqa: E402
from lab.guest import Guest, GuestSpec  # noqa: E402
from lab.image import get_image  # noqa: E402
from lab.manad import find_binary  # noqa: E402
from lab.qemu import Machine, Qemu, command_line, find_qemu  # noqa: E402
from lab.rights import UMASK, find_user  # noqa: E402

DOCUMENT = ROOT / "docs" / "manad.md"
UNIT = ROOT / "debian" / "manad@.service"
EXAMPLE = ROOT / "debian" / "examples" / "two-guests.toml"
NAME = "lab"  # of the unit, in the example
SOMEBODY = "61234"
CLONE_NEWNS = 0x20000
PATIENCE = 60.0


def command(program: str) -> list[str]:
    """The first block of the document that is a command of this program."""
    for block in re.findall(r"^```\n(.*?)^```", DOCUMENT.read_text(), re.M | re.S):
        words = shlex.split(block.replace("\\\n", " "))
        if words[0] == program:
            return words
    raise AssertionError(f"{DOCUMENT.name} shows no command of {program}")


def of_the_unit(file: Path) -> list[str]:
    """The arguments that systemd gives manad for the example, whose own words say how; the file is
    elsewhere."""
    options = re.search(r"MANAD_OPTIONS=(--config) \S+:", EXAMPLE.read_text())
    start = re.search(r"^ExecStart=/usr/bin/manad (.*) \$MANAD_OPTIONS$", UNIT.read_text(), re.M)
    monitor = re.search(r"^Environment=MANAD_MONITOR=(on|off)$", UNIT.read_text(), re.M)
    assert options and start and monitor, "unit or example are others"
    words = start[1].replace("%i", NAME).replace("${MANAD_MONITOR}", monitor[1])
    return [*words.split(), options[1], str(file)]


class CommandLineTest(unittest.TestCase):
    """What the lab says of a guest's memory."""

    def words(self, **options: Any) -> list[str]:
        here = Path("x")
        machine = Machine("g0", here, here, here, here, here, **options)
        return command_line(Qemu(("qemu",), "11.1"), machine)

    def test_it_is_in_huge_pages(self) -> None:
        self.assertIn("memory-backend-memfd,id=ram,size=1024M,share=on,hugetlb=on",
                      self.words(huge=True))

    def test_somebody_else_says_it(self) -> None:
        argv = self.words(given=("-m", "2G"))
        self.assertEqual([argv[at + 1] for at, word in enumerate(argv) if word == "-m"], ["2G"])
        self.assertFalse({"-machine", "-object"} & set(argv))


@unittest.skipIf(os.geteuid() != 0, "a mount namespace, and another user in it, need root")
class QemuCommandTest(unittest.TestCase):
    """Somebody who does what the document says."""

    @classmethod
    def setUpClass(cls) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNS):
            raise unittest.SkipTest("no mount namespace here")
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)

    def setUp(self) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", "/run"], check=True)
        self.addCleanup(lambda: subprocess.run(["umount", "--lazy", "/run"], check=True))
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.folder = Path(temp.name)

    def serve(self, argv: list[str], umask: int = -1) -> None:
        """A manad that is ready; it ends with the test, as it should."""
        log = self.folder / "manad.log"
        with log.open("w") as file:
            manad = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=file, text=True,
                                     umask=umask)

        def end() -> None:
            manad.terminate()
            self.assertEqual(manad.wait(timeout=30), 0, log.read_text())
            assert manad.stdout is not None
            manad.stdout.close()

        self.addCleanup(end)
        assert manad.stdout is not None
        self.assertEqual(manad.stdout.readline(), "ready\n", log.read_text())

    def nics(self, control: str) -> dict[str, dict[str, object]]:
        """What manactl says of each."""
        said = subprocess.run([find_binary("manactl"), "--control", control, "--json", "status"],
                              check=True, capture_output=True, text=True, timeout=30).stdout
        return {nic["nic"]: nic for nic in json.loads(said)["nics"]}

    def test_manad_by_hand(self) -> None:
        words = command("manad")
        control = words[words.index("--control") + 1]
        Path(control).parent.mkdir(parents=True)
        self.serve([str(find_binary("manad")), *words[1:]])
        self.assertEqual(sorted(self.nics(control)), ["a", "b"])

    def test_a_guest_has_a_nic_of_the_packaged_configuration(self) -> None:
        words = command("qemu-system-x86_64")
        self.assertEqual(words.pop(), "...")  # what makes a guest of it, which is the lab's
        try:
            qemu, image = find_qemu(), get_image("trixie")
        except LabError as error:
            self.skipTest(str(error))
        user = find_user(SOMEBODY)
        Path("/run/manad").mkdir()
        user.folder(Path("/run/manad", NAME), 0o711)
        program = Path("/run/bin/manad")
        program.parent.mkdir()
        shutil.copy(find_binary("manad"), program)
        example = Path("/run/example.toml")
        shutil.copy(EXAMPLE, example)
        example.chmod(0o644)
        arguments = of_the_unit(example)
        if not user.groups:  # no group kvm here
            at = arguments.index("--socket-access")
            del arguments[at:at + 2]
        self.serve([*user.words(), str(program), *arguments], umask=UMASK)

        machine = Machine("guest", image.kernel, image.initrd, image.root, self.folder / "agent",
                          self.folder / "qmp", given=tuple(words[1:]))
        guest = Guest("guest", 0, GuestSpec("trixie"), image, machine, [], [], self.folder)
        self.addCleanup(guest.stop)
        guest.start(qemu)
        guest.wait_ready()
        nic = self.nics(f"/run/manad/{NAME}/control.sock")["a"]
        self.assertTrue(nic["client"], nic)
        found = guest.run(f"grep -l {nic['mac']} /sys/class/net/*/address").stdout
        name = found.split("/")[4]
        self.assertIn("driver: mana\n", guest.run(f"ethtool -i {name}").stdout)
        guest.run(f"ip link set {name} up")
        end = time.monotonic() + PATIENCE
        while guest.run(f"cat /sys/class/net/{name}/carrier").stdout.strip() != "1":
            self.assertLess(time.monotonic(), end, "no link")
        self.assertIn("mana_0", guest.run("ls /sys/class/infiniband").stdout)


if __name__ == "__main__":
    unittest.main()

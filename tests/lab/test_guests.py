# SPDX-License-Identifier: Apache-2.0
"""The lab with guests that misbehave: each fails with the right words, and nothing stays behind.

The guests have no MANA NIC, so these tests hold whatever the device does.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
MANALAB = ROOT / "tools" / "manalab"
sys.path.insert(0, str(ROOT / "tools"))

from lab import channel  # noqa: E402
from lab.errors import (CommandFailed, CommandTimeout, GuestDied, GuestTimeout,  # noqa: E402
                        LabError)
from lab.guest import GuestSpec  # noqa: E402
from lab.session import Lab  # noqa: E402


def processes_of(directory: str) -> list[int]:
    """Processes whose command line names a path below `directory`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if directory.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


class RunningGuest(unittest.TestCase):
    """One guest for all of these."""

    lab: Lab

    @classmethod
    def setUpClass(cls) -> None:
        cls.lab = Lab([GuestSpec("trixie")], nics=0, name="lab-tests")
        cls.enterClassContext(cls.lab)

    def setUp(self) -> None:
        self.guest = self.lab.guests[0]

    def test_output_and_status(self) -> None:
        result = self.guest.run("echo out; echo err >&2; exit 7", check=False)
        self.assertEqual((result.stdout, result.stderr, result.status), ("out\n", "err\n", 7))
        self.assertEqual(self.guest.run("kill -TERM $$", check=False).status, -15)

    def test_failure_has_the_commands_words(self) -> None:
        with self.assertRaisesRegex(CommandFailed, "g0: .*status 2: .*No such file"):
            self.guest.run("ls /does/not/exist")
        self.assertEqual(self.guest.run(["no-such-program"], check=False).status, 127)

    def test_input_of_megabytes_comes_back(self) -> None:
        data = os.urandom(3 << 20)
        started = self.guest.spawn(["cat"], stdin=True)
        started.write(data)
        started.close_stdin()
        self.assertEqual(started.wait(60), 0)
        self.assertEqual(started.stdout_bytes, data)

    def test_files_both_ways(self) -> None:
        data = os.urandom(100000)
        self.guest.put(data, "/tmp/deep/er/file", 0o750)
        self.assertEqual(self.guest.get("/tmp/deep/er/file"), data)
        self.assertEqual(self.guest.run("stat -c %a /tmp/deep/er/file").stdout, "750\n")

    def test_program_that_runs_can_be_put_anew(self) -> None:
        self.guest.put(self.guest.get("/bin/sleep"), "/tmp/sleeper", 0o755)
        sleeper = self.guest.spawn(["/tmp/sleeper", "3456"])
        self.guest.run("until pidof sleeper; do sleep 0.1; done")
        self.guest.put(b"#!/bin/sh\necho new\n", "/tmp/sleeper", 0o755)
        self.assertEqual(self.guest.run("/tmp/sleeper").stdout, "new\n")
        self.assertIsNone(sleeper.status)
        sleeper.kill()

    def test_commands_run_side_by_side(self) -> None:
        slow = self.guest.spawn("until [ -e /tmp/go ]; do sleep 0.1; done; echo slow")
        self.guest.run("touch /tmp/go")
        self.assertEqual(slow.wait(60), 0)
        self.assertEqual(slow.stdout, "slow\n")

    def test_background_child_does_not_hold_the_command(self) -> None:
        self.assertEqual(self.guest.run("echo a; sleep 5678 & ", timeout=60).stdout, "a\n")
        self.assertEqual(self.guest.run("pkill -f 'sleep 567[8]'").status, 0)

    def test_timeout_keeps_the_output_and_the_guest(self) -> None:
        with self.assertRaisesRegex(CommandTimeout, "did not end within 5 s") as caught:
            self.guest.run("echo before; sleep 4321", timeout=5)
        self.assertEqual(caught.exception.stdout, "before\n")
        self.assertEqual(self.guest.run("pgrep -fc '[s]leep 4321'", check=False).stdout, "0\n")

    def test_guest_that_stops_is_said_to_hang(self) -> None:
        self.guest.qmp("stop")
        try:
            with mock.patch.object(channel, "KILL_GRACE", 1.0):
                with self.assertRaisesRegex(GuestTimeout, "does not answer; it hangs; log: .*con"):
                    self.guest.run("true", timeout=1)
        finally:
            self.guest.qmp("cont")
        self.guest.run("true")

    def test_program_is_compiled_once(self) -> None:
        with tempfile.TemporaryDirectory() as temp:
            source = Path(temp) / "probe.c"
            source.write_text(f"/* {time.time()} */\n#include <infiniband/verbs.h>\n"
                              "#include <stdio.h>\nint main(void)\n"
                              "{ puts(ibv_wc_status_str(0)); return 0; }\n")
            path = self.guest.compile(source)
            self.assertEqual(self.guest.run([path]).stdout, "success\n")
            self.guest.run(["rm", "/tmp/probe.c", path])
            self.guest.compile(source)
            self.guest.run(["test", "-x", path, "-a", "!", "-e", "/tmp/probe.c"])

    def test_kernel_has_the_drivers(self) -> None:
        text = self.guest.run("cut -d' ' -f1 /proc/modules").stdout.split()
        for name in ("mana", "mana_ib", "ib_uverbs", "rdma_ucm"):
            self.assertIn(name, text)


class DyingGuest(unittest.TestCase):
    """A guest of its own for each."""

    def boot(self, **options: object) -> Lab:
        lab = Lab([GuestSpec("trixie", memory=512)], nics=0, name="lab-tests",
                  **options)  # type: ignore[arg-type]
        self.enterContext(lab)
        return lab

    def test_reboot_then_panic(self) -> None:
        guest = self.boot().guests[0]
        guest.run("touch /tmp/mark")
        guest.reboot()
        self.assertNotEqual(guest.run("test -e /tmp/mark", check=False).status, 0)
        with self.assertRaisesRegex(GuestDied, "g0: the guest panicked: Kernel panic - not "
                                    "syncing: sysrq triggered crash; log: .*g0.console"):
            guest.run("echo c >/proc/sysrq-trigger; sleep 100", timeout=90)
        with self.assertRaisesRegex(GuestDied, "panicked"):
            guest.run("true")
        self.assertIn("sysrq triggered crash", guest.console())

    def test_killed_qemu(self) -> None:
        lab = self.boot()
        guest = lab.guests[0]
        command = guest.spawn("sleep 100")
        os.kill(guest.pid, signal.SIGKILL)
        with self.assertRaisesRegex(GuestDied, "g0: QEMU ended with signal 9"):
            command.wait(60)

    def test_guest_that_powers_off(self) -> None:
        guest = self.boot().guests[0]
        command = guest.spawn("sleep 100")
        guest.spawn("echo o >/proc/sysrq-trigger")
        with self.assertRaisesRegex(GuestDied, "g0: the guest powered off"):
            command.wait(60)

    def test_guest_that_never_boots(self) -> None:
        with self.assertRaisesRegex(GuestDied, "g0: the guest panicked: Kernel panic"):
            with Lab([GuestSpec("trixie", memory=512, append="rdinit=/nothing root=/dev/nothing")],
                     nics=0, name="lab-tests"):
                self.fail("it came up")


class UnsharedMemory(unittest.TestCase):
    """A guest whose memory manad cannot reach."""

    def test_guest_and_manad_say_so(self) -> None:
        with Lab([GuestSpec("trixie", memory=512)], name="lab-tests", shared_memory=False,
                 keep_logs=True) as lab:
            self.addCleanup(shutil.rmtree, lab.log_dir)
            with self.assertRaisesRegex(LabError, "g0: no interface with address 02:4d:41:00:00:00 "
                                        r"\(NIC 0\); log: .*g0.console"):
                lab.configure_network()
            self.assertIn("guest memory seems not to be shared: nic=g0n0",
                          (lab.log_dir / "manad.log").read_text())


class NothingStays(unittest.TestCase):
    """Signals at any moment leave no process, no socket, no directory."""

    def check(self, signum: int, delay: float, manad: str = "") -> None:
        """A lab gets a signal, in a command of its guest or after a delay. `manad`: a script in
        its place."""
        with tempfile.TemporaryDirectory() as temp, tempfile.TemporaryDirectory() as other:
            options = "nics=0"
            if manad:
                program = Path(other) / "manad"
                program.write_text(manad)
                program.chmod(0o755)
                options = f"nics=1, manad='{program}'"
            code = ("import sys; sys.path.insert(0, sys.argv[1])\n"
                    "from lab.session import Lab\nfrom lab.guest import GuestSpec\n"
                    "from lab.proc import exit_on_signals\n"
                    "import time\nexit_on_signals()\n"
                    f"with Lab([GuestSpec('trixie', memory=512)], {options}, name='signal') "
                    "as lab:\n"
                    "    print(lab.guests[0].pid, flush=True)\n"
                    "    lab.guests[0].run('sleep 100', timeout=100)\n")
            process = subprocess.Popen(["/usr/bin/python3", "-B", "-c", code,
                                        str(ROOT / "tools")], stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, start_new_session=True,
                                       env={**os.environ, "XDG_RUNTIME_DIR": temp})
            assert process.stdout is not None
            try:
                if delay:
                    time.sleep(delay)
                else:
                    self.assertTrue(process.stdout.readline())
                process.send_signal(signum)
                self.assertNotEqual(process.wait(timeout=30), 0)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
                process.stdout.close()
            deadline = time.monotonic() + 10
            while processes_of(temp) and time.monotonic() < deadline:
                time.sleep(0.05)
            self.assertEqual(processes_of(temp), [])
            if signum != signal.SIGKILL:
                self.assertEqual(os.listdir(temp), [])

    def test_ctrl_c_in_a_command(self) -> None:
        self.check(signal.SIGINT, 0)

    def test_ctrl_c_during_boot(self) -> None:
        self.check(signal.SIGINT, 2.0)

    def test_ctrl_c_before_manad_is_ready(self) -> None:
        self.check(signal.SIGINT, 2.0, "#!/bin/sh\nsleep 600\n")

    def test_ctrl_c_in_up(self) -> None:
        with tempfile.TemporaryDirectory() as temp:
            process = subprocess.Popen(
                [str(MANALAB), "-q", "up", "--guests", "1", "--nics", "0", "--memory", "512"],
                env={**os.environ, "XDG_RUNTIME_DIR": temp}, stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE, text=True, start_new_session=True)
            deadline = time.monotonic() + 60
            while not any("qemu" in Path(f"/proc/{pid}/cmdline").read_text()
                          for pid in processes_of(temp)):
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
            self.assertEqual((process.returncode, said), (130, "manalab: interrupted\n"))
            self.assertEqual(processes_of(temp), [])
            self.assertEqual(os.listdir(temp), [])

    def test_terminate(self) -> None:
        self.check(signal.SIGTERM, 0)

    def test_kill(self) -> None:
        self.check(signal.SIGKILL, 0)


class BackgroundLab(unittest.TestCase):
    """up, run, status, down as a user has them."""

    def test_life(self) -> None:
        temp = self.enterContext(tempfile.TemporaryDirectory())
        env = {**os.environ, "XDG_RUNTIME_DIR": temp}

        def manalab(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
            return subprocess.run([str(MANALAB), "-q", *args], env=env, input=stdin, text=True,
                                  capture_output=True, timeout=180, check=False)

        done = manalab("up", "--guests", "1", "--nics", "0", "--memory", "512")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.addCleanup(manalab, "down", "--all")
        self.assertRegex(manalab("up", "--nics", "0").stderr, "already running")
        self.assertRegex(manalab("status").stdout, r"g0 +up, trixie, 6\.")
        done = manalab("run", "g0", "cat; echo err >&2; exit 5", stdin="text")
        self.assertEqual((done.stdout, done.stderr, done.returncode), ("text", "err\n", 5))
        self.assertEqual(manalab("shell", "g0", stdin="hostname\n").stdout, "g0\n")
        self.assertRegex(manalab("run", "g5", "true").stderr, "there is no guest 5")
        with open(os.devnull, "rb") as nothing:  # input that nobody takes hides no answer
            done = subprocess.run([str(MANALAB), "shell", "g7"], env=env, stdin=nothing, text=True,
                                  capture_output=True, timeout=60, check=False)
        self.assertRegex(done.stderr, "there is no guest 7")
        done = manalab("run", "--timeout", "1", "g0", "sleep", "100")
        self.assertRegex(done.stderr, "did not end in time")
        self.assertNotEqual(done.returncode, 0)
        done = manalab("down")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(processes_of(temp), [])
        self.assertEqual(os.listdir(temp), [])


if __name__ == "__main__":
    unittest.main()

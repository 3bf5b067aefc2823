# SPDX-License-Identifier: Apache-2.0
"""KVM is used only where it is proven to work: /dev/kvm may be there and a VM may be created, yet
never run. The proof is a guest kernel that says who it is within a few seconds."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from pathlib import Path

from .errors import LabError
from .image import Image, digest
from .paths import cache_dir
from .proc import end_group, spawn
from .progress import say
from .qemu import Qemu

MARKER = b"Linux version"
PATIENCE = 8.0


def _boots(qemu: Qemu, image: Image) -> bool:
    argv = [*qemu.argv, "-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35",
            "-accel", "kvm", "-cpu", "host", "-m", "512M", "-no-reboot",
            "-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
            "-kernel", os.fspath(image.kernel), "-append", "console=ttyS0 panic=-1"]
    process = spawn(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL, env=qemu.environment())
    assert process.stdout is not None
    deadline = time.monotonic() + PATIENCE
    seen = b""
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while MARKER not in seen:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    return False
                data = os.read(process.stdout.fileno(), 65536)
                if not data:
                    return False
                seen += data
        return True
    finally:
        end_group(process, grace=0)
        process.stdout.close()


def _host_key() -> str:
    words = [os.uname().release]
    try:
        text = Path("/proc/cpuinfo").read_text()
        words += [line for line in text.splitlines() if line.startswith("model name")][:1]
        words.append(Path("/proc/sys/kernel/random/boot_id").read_text())
    except OSError:
        pass
    return digest("kvm-2", *words)


def choose_accel(qemu: Qemu, image: Image) -> str:
    """`kvm` or `tcg`. OPENMANA_ACCEL decides without a trial; an answer is remembered until the
    host boots again."""
    forced = os.environ.get("OPENMANA_ACCEL")
    if forced in ("kvm", "tcg"):
        return forced
    if forced:
        raise LabError(f"OPENMANA_ACCEL is '{forced}'; it can be tcg or kvm")
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    answer = cache_dir() / f"accel-{_host_key()}"
    try:
        known = answer.read_text().strip()
        if known in ("kvm", "tcg"):
            return known
    except OSError:
        pass
    say("trying KVM")
    accel = "kvm" if _boots(qemu, image) else "tcg"
    say("KVM works" if accel == "kvm" else "KVM does not work here; using TCG")
    for old in cache_dir().glob("accel-*"):
        old.unlink(missing_ok=True)
    answer.write_text(accel + "\n")
    return accel

# SPDX-License-Identifier: Apache-2.0
"""manalab prepare: everything that guests need, made before it is needed."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence

from . import host
from .errors import LabError
from .image import get_image
from .kvm import choose_accel
from .ours import guest_initrd
from .paths import ROOT
from .proc import end_group, spawn
from .progress import is_quiet
from .qemu import find_qemu

MANALAB = ROOT / "tools" / "manalab"


def run(suites: Sequence[str], driver: str, provider: str) -> int:
    """Makes, or finds in the cache, the image of each suite, QEMU, the answer whether KVM works,
    and our driver and provider where they are asked for."""
    images = [get_image(suite) for suite in suites]
    qemu = find_qemu()
    if images:
        choose_accel(qemu, images[0])
    for image in images:
        guest_initrd(image, driver, provider)
    return 0


@contextlib.contextmanager
def beside(suites: Sequence[str], driver: str = "stock", provider: str = "stock"
           ) -> Iterator[None]:
    """Prepares guests in another process while the block runs, and waits for it at the block's
    end. A block that fails ends it: images are fetched while compilers work, and neither waits
    for the other's failure."""
    if "ours" in (driver, provider):
        host.check_namespaces()
    host.ensure_packages(*host.for_trees())  # not two package managers at once
    process = spawn([sys.executable, os.fspath(MANALAB), *(["-q"] if is_quiet() else []),
                     "prepare", *suites, "--driver", driver, "--provider", provider])
    try:
        yield
        status = process.wait()
    finally:
        end_group(process, grace=30)  # mmdebstrap takes its time to unmount
    if status != 0:
        raise LabError("the guests could not be prepared: the line above says why")

# SPDX-License-Identifier: Apache-2.0
"""What rdma-core's Python tests cannot do with the stock mana driver and provider, and why.

Each entry: suites, a pattern of test names (module.Class.test), the reason with its evidence. The
evidence is in the stock software: a verb that driver or provider does not have, or that answers
before the device is asked. A failure that no entry covers is the device's.
"""

from __future__ import annotations

import re

BOTH = ("trixie", "forky")

# Modules of the package that are not for this hardware.
OTHER_HARDWARE = re.compile(r"test_(mlx5_|efa|irdma|cuda)")

# (suites, pattern, reason)
KNOWN: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (BOTH, r"test_cq\.CQAPITest\.test_create_cq_bad_flow$",
     "the driver takes any completion vector, modulo the number of its EQs, and does not limit the "
     "entries of an RDMA CQ"),
    (BOTH, r"test_device\.DeviceTest\.test_query_device(_ex)?$",
     "the driver leaves sys_image_guid and other attributes 0"),
)

# Modules that may crash after their last test, in the clean-up of Python's objects.
CRASHES: tuple[tuple[tuple[str, ...], str, str], ...] = (
)


def reason(suite: str, test: str) -> str | None:
    """Why a test fails whatever the device does, or None."""
    for suites, pattern, text in KNOWN:
        if suite in suites and re.search(pattern, test):
            return text
    return None


def crash_reason(suite: str, module: str) -> str | None:
    """Why a module may crash at its end, or None."""
    for suites, pattern, text in CRASHES:
        if suite in suites and re.search(pattern, module):
            return text
    return None

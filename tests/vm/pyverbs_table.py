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
     "the driver never sets sys_image_guid"),
    (BOTH, r"test_flow\.FlowTest\.|test_qp\.QPTest\.\w*_raw_qp|test_rss_traffic\.",
     "the provider makes raw packet QPs only in a parent domain and with the application's own "
     "buffers (EINVAL)"),
    (BOTH, r"test_qp\.QPTest\.\w*_uc_qp", "the provider has no UC queue pairs (EINVAL)"),
    (BOTH, r"test_mr\.MWTest\.test_mw_type2",
     "the provider refuses to post bind MW, local invalidate and send with invalidate (EINVAL)"),
)

# Errors that libibverbs or the provider gives without asking the device: (suites, words, reason)
KNOWN_WORDS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (BOTH, r"Failed to query QP\. Errno: 95", "the provider has no query QP"),
    (BOTH, r"Failed to Bind MW\. Errno: 95", "the provider has no bind MW"),
)

# Modules that may crash after their last test, in the clean-up of Python's objects.
CRASHES: tuple[tuple[tuple[str, ...], str, str], ...] = (
)


def reason(suite: str, test: str, words: str = "") -> str | None:
    """Why a test, which failed with these words, fails whatever the device does, or None."""
    for table, subject in ((KNOWN, test), (KNOWN_WORDS, words)):
        for suites, pattern, text in table:
            if suite in suites and re.search(pattern, subject):
                return text
    return None


def crash_reason(suite: str, module: str) -> str | None:
    """Why a module may crash at its end, or None."""
    for suites, pattern, text in CRASHES:
        if suite in suites and re.search(pattern, module):
            return text
    return None

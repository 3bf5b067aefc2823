# SPDX-License-Identifier: Apache-2.0
"""What rdma-core's Python tests cannot do with the stock mana driver and provider, and why.

Each entry: suites, a pattern of test names (module.Class.test), a pattern of the words in which the
test fails (the line of the test or the error with its errno), the reason. The reason is in the
stock software: a verb that driver or provider does not have, or that answers before the device is
asked. A failure that no entry covers, of a test that is listed with other words too, is the
device's.
"""

from __future__ import annotations

import re

TRIXIE = ("trixie",)  # Linux 6.12
FORKY = ("forky",)  # Linux 7.2
RDMA_CORE_56 = ("trixie", "trixie-backports")
RDMA_CORE_65 = ("forky", "newest")
ALL = RDMA_CORE_56 + RDMA_CORE_65

# Modules of the package that are not for this hardware.
OTHER_HARDWARE = re.compile(r"test_(mlx5_|efa|irdma|cuda)")

# (suites, tests, words, reason)
KNOWN: tuple[tuple[tuple[str, ...], str, str, str], ...] = (
    (ALL, r"test_cq\.CQAPITest\.test_create_cq_bad_flow",
     r"^AssertionError: PyverbsRDMAError not raised",
     "the driver takes any completion vector, modulo the number of its EQs, and does not limit the "
     "entries of an RDMA CQ"),
    (ALL, r"test_device\.DeviceTest\.test_query_device(_ex)?",
     r"^assert attr\.sys_image_guid != 0: AssertionError", "the driver never sets sys_image_guid"),
    (TRIXIE, r"test_device\.DeviceTest\.test_query_port",
     r"^assert attr\.max_msg_sz > 0x1000: AssertionError", "the driver never sets max_msg_sz"),
    (ALL, r"test_flow\.FlowTest\.\w+|test_qp\.QPTest\.\w*_raw_qp\w*|"
     r"test_rss_traffic\.RSSTrafficTest\.\w+", r"Failed to create QP\. Errno: 22,",
     "the provider makes raw packet QPs only in a parent domain and with the application's own "
     "buffers (EINVAL)"),
    (FORKY, r"test_qp\.QPTest\.\w*_uc_qp\w*", r"Failed to create QP\. Errno: 22,",
     "the provider has no UC queue pairs (EINVAL)"),
    (ALL, r"test_mr\.MRTest\.test_mr(ex)?_rereg_(addr|atomic|pd)|"
     r"test_qp\.QPTest\.test_query_rc_qp|test_qp\.RCQPTest\.test_modify_rc_qp_rd_atomic",
     r"Failed to query QP\. Errno: 95,", "the provider has no query QP"),
    (RDMA_CORE_65, r"test_mr\.MWTest\.test_(mw_type1|invalidate_mw_type1|mw_ex_type1)",
     r"Failed to Bind MW\. Errno: 95,", "the provider has no bind MW"),
    (RDMA_CORE_65, r"test_mr\.MWTest\.test_mw_type2\w*", r"Failed to post send\. Errno: 22,",
     "the provider refuses to post bind MW, local invalidate and send with invalidate (EINVAL)"),
    (TRIXIE, r"test_mr\.MRTest\.test_mr_rereg_atomic|test_mr\.MWTest\.\w+|"
     r"test_qpex\.QpExTestCase\.test_qp_ex_rc_bind_mw",
     r"Failed to register a MR\. length: 1024, access flags: (9|17|19)\. Errno: 22,",
     "the driver registers no memory for remote atomics or memory windows (EINVAL)"),
    (TRIXIE, r"test_rdmacm\.CMTestCase\.\w+",
     r"Failed to (Bind ID|create CM ID)\. Errno: 19, No such device",
     "the driver has no QP1, so the RDMA connection manager does not know the device"),
)

# The same with our driver and provider: nothing.
OURS: tuple[tuple[tuple[str, ...], str, str, str], ...] = ()

# Modules whose process may crash in stock software: (suites, modules, how, reason)
CRASHES: tuple[tuple[tuple[str, ...], str, str, str], ...] = (
    (RDMA_CORE_56, r"test_parent_domain|test_qpex", r"^status 139 in libibverbs\.so\.",
     "Python frees objects of tests that were skipped or failed after their device is closed; "
     "libibverbs does not stand that"),
)


# Tests that are skipped with our driver and provider: (suites, tests, what they say, reason)
SKIPS: tuple[tuple[tuple[str, ...], str, str, str], ...] = (
    (ALL, r"test_odp\..*|.*\bodp\w*", r"", "on-demand paging: the NIC pins all memory"),
    (ALL, r".*xrc\w*", r"", "XRC: the NIC has no such transport"),
    (ALL, r"test_tag_matching\..*", r"", "tag matching: the NIC has none"),
    (ALL, r"test_phc_timestamp\..*", r"", "the NIC's clock is not a PTP clock of the kernel"),
    (ALL, r"test_dmah\..*", r"", "DMA handles: the NIC has no steering tags"),
    (ALL, r".*", r"CC PD is not supported|CC_DMA_BOUNCE", "confidential guests: this is none"),
    (ALL, r".*", r"Create QP type 8 is not supported|Create Raw Packet QP",
     "a raw packet QP has no creation flags"),
    (ALL, r".*rate_limit\w*", r"", "a queue pair has no rate limit"),
    (ALL, r"test_qpex\..*_(flush|flush_type_violate|atomic_write)", r"",
     "flush and atomic write: the NIC has neither"),
    (RDMA_CORE_65, r"test_mr\..*", r"DM dmabuf export is not supported",
     "device memory is not exported as a dma-buf"),
    (ALL, r".*", r"SRQ resize is not supported", "an SRQ keeps its size"),
    (ALL, r".*", r"not supported on Infiniband|[Ll]ink layer|InfiniBand|GRH|pkey",
     "for InfiniBand link layers"),
    (ALL, r".*", r"[Ff]ile system|huge ?page|cuda|CUDA|udmabuf|dri|DRM|GPU",
     "the guest has no such memory"),
)


def _find(table: tuple[tuple[tuple[str, ...], str, str, str], ...], suite: str, name: str,
          words: str) -> str | None:
    for suites, pattern, said, text in table:
        if suite in suites and re.fullmatch(pattern, name) and re.search(said, words):
            return text
    return None


def reason(suite: str, test: str, words: str, ours: bool = False) -> str | None:
    """Why a test, which failed with these words, fails whatever the device does, or None."""
    return _find(OURS if ours else KNOWN, suite, test, words)


def skip_reason(suite: str, test: str, words: str) -> str | None:
    """Why a test is skipped with our driver and provider, or None."""
    return _find(SKIPS, suite, test, words)


def crash_reason(suite: str, module: str, how: str) -> str | None:
    """Why a module may crash in this way, or None."""
    return _find(CRASHES, suite, module, how)

# SPDX-License-Identifier: Apache-2.0
"""What rdma-core's buildlib/check-build wants of a module that Debian's Python has no more."""

from __future__ import annotations


def parse_version(text: str) -> tuple[int, ...]:
    """A version, to be compared with others."""
    return tuple(int(part) for part in text.split("."))

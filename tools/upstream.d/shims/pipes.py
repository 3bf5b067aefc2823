# SPDX-License-Identifier: Apache-2.0
"""What rdma-core's buildlib/check-build wants of a module that Python 3.13 has no more."""

from shlex import quote

__all__ = ["quote"]

# SPDX-License-Identifier: Apache-2.0
"""The areas of the guest tests: each module has one `AREA`, a `harness.Area`."""

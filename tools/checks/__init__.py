# SPDX-License-Identifier: Apache-2.0
"""The rules of tools/check, one file each. A rule takes the tree and yields what it finds."""

# SPDX-License-Identifier: Apache-2.0
"""The OpenMANA lab: guests in QEMU, each with NICs of one manad."""

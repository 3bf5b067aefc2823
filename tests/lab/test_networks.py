# SPDX-License-Identifier: Apache-2.0
"""Guests in networks of manad: which the command line gives them, and their addresses."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from lab import cli  # noqa: E402
from lab.errors import LabError  # noqa: E402
from lab.guest import Guest, GuestSpec  # noqa: E402
from lab.session import in_network  # noqa: E402


def networks(*words: str) -> list[str]:
    """Those of the guests that `manalab up` starts."""
    return [spec.network for spec in cli.guest_specs(cli.make_parser().parse_args(["up", *words]))]


class Networks(unittest.TestCase):
    def test_each_guest_has_one(self) -> None:
        self.assertEqual(networks(), ["default", "default"])
        self.assertEqual(networks("--network", "red"), ["red", "red"])
        self.assertEqual(networks("--guests", "4", "--network", "red,blue"),
                         ["red", "blue", "red", "blue"])

    def test_what_is_no_name_is_refused(self) -> None:
        for words, why in (("a,b,c", "names 3 guests, there are 2"), ("a b", "is not a name"),
                           ("", "is not a name"), ("x" * 33, "is not a name")):
            with self.assertRaisesRegex(LabError, why):
                networks("--network", words)

    def test_manad_is_told_of_all_but_the_usual_one(self) -> None:
        self.assertEqual(in_network("red"), "network=red")
        self.assertEqual(in_network("default"), "")

    def test_addresses_count_within_a_network(self) -> None:
        guests = [Guest(f"g{number}", number, GuestSpec(), mock.Mock(), mock.Mock(), [], [],
                        Path("/tmp"), host) for number, host in ((0, None), (2, 0), (3, 1))]
        self.assertEqual([guest.ip() for guest in guests], ["10.0.0.1", "10.0.0.1", "10.0.0.2"])
        self.assertEqual([guest.ip(1, 6) for guest in guests],
                         ["fd00:1::1", "fd00:1::1", "fd00:1::2"])


if __name__ == "__main__":
    unittest.main()

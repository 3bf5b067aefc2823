# SPDX-License-Identifier: Apache-2.0
"""Commands that the documents show: their programs exist, and manalab knows their options."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from lab import cli  # noqa: E402

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```\n(.*?)^```", re.M | re.S)


def commands() -> Iterator[tuple[str, list[str]]]:
    """Each command in a block of code, with the document that shows it."""
    for document in DOCUMENTS:
        for block in BLOCK.findall(document.read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                words = line.partition("   #")[0].strip()
                with contextlib.suppress(ValueError):  # a line of output with a quote in it
                    if words:
                        yield document.name, shlex.split(words.partition(" < ")[0])


class CommandsTest(unittest.TestCase):
    """What a reader would type."""

    def test_programs_of_the_tree_are_there(self) -> None:
        seen = 0
        for document, words in commands():
            if re.match(r"(\./)?(tools|tests|providers)/", words[0]):
                seen += 1
                with self.subTest(document=document, command=words):
                    self.assertTrue(os.access(ROOT / words[0], os.X_OK))
        self.assertGreater(seen, 20)

    def test_manalab_takes_them(self) -> None:
        seen = 0
        for document, words in commands():
            if words[0].endswith("/manalab"):
                seen += 1
                said = io.StringIO()
                with self.subTest(document=document, command=words), \
                        contextlib.redirect_stderr(said):
                    try:
                        cli.make_parser().parse_args(words[1:])
                    except SystemExit:
                        self.fail(said.getvalue())
        self.assertGreater(seen, 12)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check fails where it has to, on small trees made up for it."""

from __future__ import annotations

import subprocess
import tempfile
import unittest
from pathlib import Path

CHECK = Path(__file__).resolve().parent.parent.parent / "tools" / "check"


class Rules(unittest.TestCase):
    def check(self, rule: str, files: dict[str, str]) -> list[str]:
        """The findings of one rule in a tree with these files, without their mark."""
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory)
            subprocess.run(["git", "init", "-q", str(root)], check=True)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
            result = subprocess.run([str(CHECK), "--root", str(root), rule], check=False,
                                    capture_output=True, text=True)
        self.assertEqual(result.stderr, "")
        findings = [line.removesuffix(f" [{rule}]") for line in result.stdout.splitlines()[:-1]]
        self.assertEqual(result.returncode, 1 if findings else 0)
        return findings


class Text(Rules):
    def test_long_lines(self) -> None:
        line = "word " * 20 + "."
        self.assertEqual(self.check("text", {"a.md": f"{line}\n- {line}\n{line[1:]}\n"}),
                         ["a.md:1: line longer than 100 columns",
                          "a.md:2: line longer than 100 columns"])

    def test_tables_code_and_links_may_be_long(self) -> None:
        line = "word " * 20 + "."
        link = "[text](" + "a" * 90 + ")"
        self.assertEqual(self.check("text", {
            "a.md": f"| {line} |\n```\n{line}\n```\nsee {link} and https://{'b' * 90}\n"}), [])

    def test_what_is_not_to_be_in_a_line(self) -> None:
        self.assertEqual(self.check("text", {"a.py": "# TO" + "DO\nb = 1 \n# /ho" + "me/me/x\n"}),
                         ["a.py:1: unfinished business: do it, or document the limit",
                          "a.py:2: trailing space", "a.py:3: a path of one machine"])


class References(Rules):
    SPEC = {
        "docs/spec/gdma.md": "# GDMA\n## 3. Queues\n### 3.10 Arming\n1. Now.\n2. Later.\n"
                             "## Appendix B. Bytes\n",
        "docs/spec/rnic.md": "# RNIC\n## 3. Work queues\n### 3.9 Errors\n- a. first\n- b. then\n"
                             "### 3.12 Doorbells\nSee §3.9.\n",
        "docs/spec/roce.md": "# ROCE\n## 4. Responder\n### 4.4 NAKs\n(class J)\n## 10. Cases\n"
                             "### 10.7 Others\n| 139 | EcnMarking |\n| 140 | Cnp |\n"
                             "### 10.8 Invariants\n1. One.\n2. Two.\n",
        "docs/guide.md": "# Guide\n## The way in\n",
    }

    def findings(self, text: str, name: str = "device/a.h") -> list[str]:
        return self.check("references", self.SPEC | {name: text})

    def test_what_is_there_is_fine(self) -> None:
        self.assertEqual(self.findings(
            "/// RNIC 3.9, and GDMA 3.10 rule 2; RNIC 3, 3.9-3.12; GDMA Appendix B; ROCE 4\n"
            "/// and 10.7; rules a and b of RNIC 3.9; class J of ROCE 4.4; invariants 1 to 2;\n"
            "// ROCE 10: 139, 140\n"
            "// Linux 6.12 (RNIC 3.9; 7.2 does not); case 139 of ROCE 10.7; docs/guide.md\n"), [])

    def test_a_section_that_is_not_there(self) -> None:
        self.assertEqual(self.findings("// fine\n// see RNIC 3.4.\n"),
                         ["device/a.h:2: there is no RNIC 3.4"])

    def test_a_list_over_two_lines(self) -> None:
        self.assertEqual(self.findings(" * (GDMA 3, 3.10,\n * 3.11)\n", "kernel/a.c"),
                         ["kernel/a.c:1: there is no GDMA 3.11"])

    def test_ends_of_a_range(self) -> None:
        self.assertEqual(self.findings("RNIC 3.8-3.9, RNIC 3.9 to 3.13\n", "docs/a.md"),
                         ["docs/a.md:1: there is no RNIC 3.8",
                          "docs/a.md:1: there is no RNIC 3.13"])

    def test_a_section_of_the_same_document(self) -> None:
        self.assertEqual(self.findings("## 1. A\n§1 and §2.4\n", "docs/spec/gdma.md"),
                         ["docs/spec/gdma.md:2: there is no §2.4 here"])

    def test_rules_classes_cases_and_invariants(self) -> None:
        for text, wrong in {"GDMA 3.10 rule 3": "GDMA 3.10 has no 3",
                            "rules a and c of RNIC 3.9": "RNIC 3.9 has no c",
                            "class K of ROCE 4.4": "ROCE 4.4 has no K",
                            "case 138 of ROCE 10.7": "ROCE 10.7 has no 138",
                            "cases 139 to 141 of its catalogue": "ROCE 10 has no 141",
                            "ROCE 10.7, case 141": "ROCE 10.7 has no 141",
                            "ROCE 10: 139, 142": "ROCE 10 has no 142",
                            "invariant 3": "ROCE 10.8 has no 3"}.items():
            with self.subTest(text):
                self.assertEqual(self.findings(f"// {text}\n"), [f"device/a.h:1: {wrong}"])

    def test_documents_and_headings(self) -> None:
        self.assertEqual(self.findings("# docs/none.md\n", "tools/a.py"),
                         ["tools/a.py:1: there is no docs/none.md"])
        self.assertEqual(self.findings("[a](guide.md#the-way-in) [b](guide.md#the-way-out)\n"
                                       "[c](#here)\n", "docs/a.md"),
                         ["docs/a.md:1: guide.md has no heading #the-way-out",
                          "docs/a.md:2: there is no heading #here here"])


if __name__ == "__main__":
    unittest.main()

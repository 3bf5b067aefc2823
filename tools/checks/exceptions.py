# SPDX-License-Identifier: Apache-2.0
"""The exceptions from the rules: exceptions.txt, a line each."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from checks.tree import Finding, Tree

LIST = Path("tools/checks/exceptions.txt")


class Exceptions:
    """Of one rule. A line is rule, subject (a file, or what a finding names) and reason."""

    def __init__(self, tree: Tree, rule: str) -> None:
        self.lines: dict[str, int] = {}
        self.faults: list[Finding] = []
        for number, line in enumerate(tree.lines(LIST) if LIST in tree.files else [], 1):
            words = line.split(None, 2)
            if words and words[0] == rule:
                self.lines[words[1]] = number
                if len(words) < 3:
                    self.faults.append(Finding(LIST, number, "an exception without its reason"))

    def without(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """What is left of the findings, and exceptions that nothing needs any more."""
        unused = dict(self.lines)
        for finding in findings:
            if finding.subject in self.lines:
                unused.pop(finding.subject, None)
            else:
                yield finding
        for subject, number in unused.items():
            yield Finding(LIST, number, f"not needed any more: {subject}; remove the line")
        yield from self.faults

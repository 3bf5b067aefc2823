#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The table of docs/transport-tests.md: which test shows which case of the transport's catalogue.

A test names its cases in the comment right above it, as `// ROCE 10: 15, 16`. Compares the table
with the sources, or with --write makes it anew. Exits 1 if they differ, or if a case has neither a
test nor a reason.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TABLE = ROOT / "docs" / "transport-tests.md"
CATALOGUE = ROOT / "docs" / "spec" / "roce.md"
#: Cases without a test of their own, or with more to say.
NOTES = {
    64: "10,000 seeds by hand, 2,000 in CI",
    98: "queued, since the driver of Linux 6.12 does not pass on the requester's limit",
    102: "stock CQs: the device does not know the consumer's index; the host sees the overrun",
    106: "drivers rely on every transition being taken",
    113: "served at once; the event of extended queue pairs only",
    115: "the event of extended queue pairs only",
    117: "UD queues of the stock ABI have no error completions and no SQE",
    125: "uverbs' check, before the driver or the device hears of it; stock: of an RC queue pair",
}
#: Those that a program of its own shows.
PROGRAMS = {64: "sim.seeds", 120: "sim.seeds",
            125: "tests/vm: errors, a Q_Key with the high bit without CAP_NET_RAW"}
MARK = re.compile(r"// ROCE 10: ([\d, ]+)$")
TEST = re.compile(r"TEST(?:_F|_P)?\((\w+),\s*(\w+)\)")
HEAD = """# The transport's test cases

For those who change the transport. Which test shows which case of the catalogue in
[ROCE 10](spec/roce.md#10-test-catalogue) (153 cases, in its order). A test names its cases in the
comment above it (`ROCE 10: 15, 16`);
`tests/style/transport_cases.py --write` makes this table of those comments, and `ctest -L style`
fails when they differ.

The 14 invariants of ROCE 10.8 are checked in every run of `sim_test`, after each event and for
each frame, but for the ninth, which is about atomics: `ext_sim_test` checks that one, and of the
others those about frames, timers and counters with extended queue pairs.

| case | tests | note |
|---|---|---|
"""


def catalogue() -> list[int]:
    """The cases of ROCE 10."""
    chapter = CATALOGUE.read_text(encoding="utf-8").partition("\n## 10. ")[2].partition("\n## ")[0]
    return [int(number) for number in re.findall(r"^\| (\d+) \|", chapter, re.M)]


def tests_by_case() -> dict[int, list[str]]:
    found: dict[int, list[str]] = {case: [] for case in catalogue()}
    for path in sorted((ROOT / "tests").rglob("*_test.cc")):
        marked: list[int] = []
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if mark := MARK.match(line):
                marked = [int(case) for case in mark[1].split(",")]
                if wrong := [case for case in marked if case not in found]:
                    sys.exit(f"{path.relative_to(ROOT)}:{number}: no such case: {wrong}")
            elif marked:
                test = TEST.match(line)
                if not test:
                    sys.exit(f"{path.relative_to(ROOT)}:{number}: a mark with no test behind it")
                for case in marked:
                    found[case].append(f"{test[1]}.{test[2]}")
                marked = []
    return found


def main() -> int:
    text = HEAD
    missing = []
    for case, tests in tests_by_case().items():
        programs = [PROGRAMS[case]] if case in PROGRAMS else []
        names = [f"`{name}`" for name in tests + programs]
        note = NOTES.get(case, "")
        if not names and not note:
            missing.append(case)
        text += f"| {case} | {', '.join(names) or '-'} | {note} |\n"
    if missing:
        print(f"cases without a test or a reason: {missing}", file=sys.stderr)
        return 1
    if "--write" in sys.argv[1:]:
        TABLE.write_text(text, encoding="utf-8")
        return 0
    if not TABLE.exists() or TABLE.read_text(encoding="utf-8") != text:
        print("docs/transport-tests.md differs from the tests: run tests/style/transport_cases.py "
              "--write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

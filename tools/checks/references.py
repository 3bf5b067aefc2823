# SPDX-License-Identifier: Apache-2.0
"""What comments and documents cite exists.

Sections of docs/spec (`RNIC 3.4`, also in lists and ranges; in those documents `§3.4` is one of the
same), their rules, rows and classes (`RNIC 3.9 rule 1`), cases and invariants of ROCE 10, and
Markdown files with their headings.
"""

import bisect
import functools
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from checks.tree import Finding, Tree

SPEC = Path("docs/spec")
DOCUMENTS = {"GDMA": SPEC / "gdma.md", "RNIC": SPEC / "rnic.md", "ROCE": SPEC / "roce.md"}
CATALOGUE = "10"  # of ROCE: its test cases
INVARIANTS = "10.8"
#: Its references are wrong on purpose.
OWN_TEST = Path("tests/style/check_test.py")

SECTION = r"\d+(?:\.\d+)*"
HEADING = re.compile(rf"(#+) (?:({SECTION})\.?|(Appendix [A-Z])\.) ")


def listed(item: str) -> str:
    """One, or several as in `3.3-3.6, 7.2 and 8`."""
    return rf"{item}(?:(?:, (?:and |to )?|-| and | to ){item})*(?![\w/])"


NAME = rf"({'|'.join(DOCUMENTS)})"
ITEM = r"(?:[0-9]+|[a-zA-Z]\b)"
REFERENCE = re.compile(rf"\b{NAME} ({listed(SECTION)}|Appendix [A-Z])")
OWN = re.compile(rf"§({SECTION})")
ITEMS = re.compile(rf"\b{NAME} ({SECTION}),? (?:rules?|rows?|class) ({listed(ITEM)})")
ITEMS_OF = re.compile(rf"\b(?:[Rr]ules?|[Rr]ows?|[Cc]lass|[Cc]hecks?) ({listed(ITEM)})"
                      rf" of {NAME} ({SECTION})")
CASES = re.compile(rf"\bROCE ({CATALOGUE}(?:\.\d+)?)(?:, cases?|:) ({listed('[0-9]+')})")
CASES_OF = re.compile(rf"\b[Cc]ases? ({listed('[0-9]+')})"
                      rf" of (?:ROCE |its )?({CATALOGUE}\.\d+|catalogue)")
NAMED_INVARIANTS = re.compile(rf"\b[Ii]nvariants? ({listed('[0-9]+')})")
MARKDOWN = re.compile(r"(?<![\w./*{}-])((?:[\w.-]+/|\.\./)*[\w.-]*\w\.md)\b"
                      r'(?:#([\w-]+)|,? "([A-Z][\w -]+)")?')
OWN_HEADING = re.compile(r"\]\(#([\w-]+)\)")
COMMENT = re.compile(r"^\s*(?://[/!]?<?|/\*\*?|\*(?!/)|#)?\s?")


class Specification:
    """The text of each section of a document, with those below it."""

    def __init__(self, tree: Tree, path: Path) -> None:
        self.sections: dict[str, str] = {}
        open_sections: list[tuple[int, str]] = []
        for line in tree.lines(path) if path in tree.files else []:
            if heading := HEADING.match(line):
                depth, number = len(heading[1]), heading[2] or heading[3]
                open_sections = [item for item in open_sections if item[0] < depth]
                open_sections.append((depth, number))
                self.sections[number] = ""
            for _, number in open_sections:
                self.sections[number] += line + "\n"

    def has(self, section: str, item: str) -> bool:
        """A row of a table, an entry of a list, or a class that the section names."""
        return re.search(rf"^\| {item} \||^ *(?:- )?{item}\. |\bclass {item}\b",
                         self.sections.get(section, ""), re.MULTILINE) is not None


class Joined:
    """A file as one line without comment marks, since what it cites may stand on two lines."""

    def __init__(self, tree: Tree, path: Path) -> None:
        parts = [line.strip() if path.suffix == ".md" else COMMENT.sub("", line).rstrip()
                 for line in tree.lines(path)]
        self.text = " ".join(parts)
        self.starts = [0]
        for part in parts:
            self.starts.append(self.starts[-1] + len(part) + 1)

    def line(self, position: int) -> int:
        return bisect.bisect_right(self.starts, position)


def numbers(text: str) -> list[str]:
    return [text] if text.startswith("App") else re.split(r"(?:, | )(?:and |to )?|-", text)


def span(text: str) -> list[str]:
    """As numbers(), with what lies within its ranges."""
    full = re.sub(r"(\d+)(?:-| to )(\d+)",
                  lambda m: ", ".join(map(str, range(int(m[1]), int(m[2]) + 1))), text)
    return numbers(full)


def slug(heading: str) -> str:
    """As GitHub names it in links."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def headings(tree: Tree, path: Path) -> set[str]:
    return {slug(line.lstrip("#")) for line in tree.lines(path) if line.startswith("#")}


def check(tree: Tree) -> Iterator[Finding]:
    specs = {name: Specification(tree, path) for name, path in DOCUMENTS.items()}
    known = {path.as_posix() for path in tree.files}
    for path in tree.files:
        if path != OWN_TEST and (tree.is_code(path) or path.suffix == ".md"):
            file = Joined(tree, path)
            for position, text in [*wrong_sections(specs, path, file.text),
                                   *wrong_items(specs, file.text),
                                   *wrong_files(tree, known, path, file.text)]:
                yield Finding(path, file.line(position), text)


Wrong = Iterator[tuple[int, str]]


def wrong_sections(specs: dict[str, Specification], path: Path, text: str) -> Wrong:
    for match in REFERENCE.finditer(text):
        for number in numbers(match[2]):
            if number not in specs[match[1]].sections:
                yield match.start(), f"there is no {match[1]} {number}"
    for name in [name for name, document in DOCUMENTS.items() if document == path]:
        for match in OWN.finditer(text):
            if match[1] not in specs[name].sections:
                yield match.start(), f"there is no §{match[1]} here"


def wrong_items(specs: dict[str, Specification], text: str) -> Wrong:
    wanted = [(match.start(), match[1], match[2], match[3]) for match in ITEMS.finditer(text)]
    wanted += [(match.start(), match[2], match[3], match[1]) for match in ITEMS_OF.finditer(text)]
    wanted += [(match.start(), "ROCE", match[1], match[2]) for match in CASES.finditer(text)]
    wanted += [(match.start(), "ROCE", match[2].replace("catalogue", CATALOGUE), match[1])
               for match in CASES_OF.finditer(text)]
    wanted += [(match.start(), "ROCE", INVARIANTS, match[1])
               for match in NAMED_INVARIANTS.finditer(text)]
    for position, name, section, items in wanted:
        for item in span(items):
            if section in specs[name].sections and not specs[name].has(section, item):
                yield position, f"{name} {section} has no {item}"


def wrong_files(tree: Tree, known: set[str], path: Path, text: str) -> Wrong:
    for match in MARKDOWN.finditer(text):
        target = next((target for base in (path.parent, Path(), Path("docs"))
                       if (target := normal(base, match[1])) in known), None)
        # In code a bare name may be a file that it makes.
        if target is None and (path.suffix == ".md" or "/" in match[1]):
            yield match.start(), f"there is no {match[1]}"
        elif (heading := match[2] or slug(match[3] or "")) and target and \
                heading not in headings(tree, Path(target)):
            yield match.start(), f"{match[1]} has no heading #{heading}"
    if path.suffix == ".md":
        for match in OWN_HEADING.finditer(text):
            if match[1] not in headings(tree, path):
                yield match.start(), f"there is no heading #{match[1]} here"


@functools.cache
def normal(base: Path, name: str) -> str:
    """The name seen from `base`, without "..": as git lists it."""
    parts: list[str] = []
    for part in (base / PurePosixPath(name)).parts:
        if part == ".." and parts:
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)

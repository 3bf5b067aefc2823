# SPDX-License-Identifier: Apache-2.0
"""C and C++ without a compiler: text without comments, and what is defined outside of functions.

Made for clang-formatted code. Its limits: of `#if ... #else` only the first branch is seen; what a
macro makes is not; the brace of a body has a blank or a line's end before it, that of an
initializer in a constructor has none.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass

# A raw string, a comment, a string, a character (but no digit separator).
OPAQUE = re.compile(r'R"(\w*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"'
                    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.DOTALL)
CONTAINER = re.compile(r'(?:inline )?(?:namespace|class|struct|union|enum|extern "")(?!\w)[^()=]*$')
ACCESS = re.compile(r"\s*(?:(?:public|private|protected):\s*)*")


@dataclass(frozen=True)
class Definition:
    """A function outside of functions, or a variable outside of everything."""

    name: str
    head: str  # what stands before its body or its end, in one line
    first: int  # lines
    last: int
    function: bool


def plain(text: str) -> str:
    """The text without comments, literals and preprocessor lines; lines stay where they are."""
    def blank(match: re.Match[str]) -> str:
        return ('""' if match[0][0] in "R\"'" else " ") + "\n" * match[0].count("\n")
    kept = []
    branches: list[bool] = []  # of each open #if: whether its first branch has ended
    continued = False
    for line in OPAQUE.sub(blank, text).split("\n"):
        directive = None if continued else re.match(r"\s*#\s*(\w+)", line)
        if directive and directive[1].startswith("if"):
            branches.append(False)
        elif directive and directive[1] in {"else", "elif"}:
            branches[-1:] = [True]
        elif directive and directive[1] == "endif":
            branches[-1:] = []
        hidden = continued or directive is not None
        continued = hidden and line.endswith("\\")
        kept.append("" if hidden or any(branches) else line)
    return "\n".join(kept)


def definitions(text: str) -> Iterator[Definition]:
    """Of plain() text."""
    ends = [match.start() for match in re.finditer("\n", text)]
    blocks: list[str] = []  # what each open brace belongs to: "outer", "body" or "inner"
    begin = 0  # of the declaration that is read
    body = ("", 0)  # head and start of the function that is read

    def line(position: int) -> int:
        return bisect.bisect_left(ends, position) + 1

    for match in re.finditer(r"[{};]", text):
        at = match.start()
        outside = all(block == "outer" for block in blocks)
        access = ACCESS.match(text, begin)
        start = access.end() if access else begin
        head = re.sub(r"\s+", " ", text[start:at]).strip() if outside else ""
        if match[0] == "{":
            if outside and CONTAINER.match(without_extras(head)):
                blocks.append("outer")
                begin = at + 1
            elif outside and text[at - 1].isspace() and is_function(head):
                blocks.append("body")
                body = (head, start)
            else:
                blocks.append("inner")
        elif match[0] == "}" and blocks:
            block = blocks.pop()
            if block == "body":
                yield Definition(name_of(body[0]), body[0], line(body[1]), line(at), True)
            if block != "inner":
                begin = at + 1
        elif match[0] == ";" and outside:
            if not blocks and (name := variable(head)):
                yield Definition(name, head, line(start), line(at), False)
            begin = at + 1


def without_extras(head: str) -> str:
    """Without template parameters and attributes."""
    return re.sub(r"^template ?<.*?> (?=\w)|\[\[.*?\]\] ?|__attribute__ ?\(\(.*?\)\) ?", "", head)


def is_function(head: str) -> bool:
    """Parameters, and neither an open parenthesis nor an initializer."""
    bare = re.sub(r"operator ?[^\s\w(]+", "operator", without_extras(head))
    while (less := re.sub(r"\([^()]*\)|\[[^\[\]]*\]", "", bare)) != bare:
        bare = less
    return "(" in head and "(" not in bare and "=" not in bare


def name_of(head: str) -> str:
    """The name before the parameters; of TEST_F(A, B) all of it."""
    found = re.search(r"((?:\w+(?:<[^()]*>)?::)*(?:operator ?[^(]+|operator\(\)|~?\w+)) ?\(",
                      without_extras(head))
    name = found[1] if found else head
    return without_extras(head) if re.fullmatch(r"[A-Z][A-Z_]+", name) else name


def variable(head: str) -> str | None:
    """The name of the variable that is defined, if one is."""
    declared = re.sub(r"\[[^\]]*\]|\s*=.*", "", head).strip()
    words = re.fullmatch(r"(?!(?:typedef|extern|using|friend)\b)((?:[\w:<>,]+[\s*]+)+)(\w+)",
                         declared)
    if words is None or re.fullmatch(r"(?:struct|union|enum|class) ", words[1]):
        return None
    return words[2]

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Whether the provider's man pages say what its header says, and build: man_pages.py [PANDOC].

Each exported symbol has a page, each page is installed and headed by its own name, each prototype
and each structure that a page shows is that of manadv.h. With pandoc, which rdma-core makes man
pages with, they are built, and a warning is a failure. Exits 1 if something is wrong.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PROVIDER = Path(__file__).resolve().parents[2] / "providers" / "mana"
PAGES = PROVIDER / "man"


def plain(code: str) -> str:
    """C without comments and layout."""
    words = " ".join(re.sub(r"/\*.*?\*/", " ", code, flags=re.S).split())
    return re.sub(r"\s*([*(){},;])\s*", r"\1", words)


def check_page(path: Path, header: str) -> list[str]:
    """What is wrong with a page: its head, its sections, what it shows of the header."""
    text = path.read_text()
    name, section = path.name.split(".")[:2]
    bad = []
    front = dict(re.findall(r'^(\w+): "?(.*?)"?$', text.split("\n---\n")[0], re.M))
    if front.get("title", "").lower() != name or front.get("section") != section:
        bad.append(f"it is headed {front.get('title')}({front.get('section')})")
    bad += [f"no {field}" for field in ("date", "footer", "header") if not front.get(field)]
    wanted = {"NAME", "DESCRIPTION", "SEE ALSO"}
    if section == "3":
        wanted |= {"SYNOPSIS", "RETURN VALUE"}
        if name not in re.findall(r"(\w+)\(", "".join(re.findall(r"```c\n(.*?)```", text, re.S))):
            bad.append(f"it shows no prototype of {name}")
    bad += [f"no {title}" for title in sorted(wanted - set(re.findall(r"^# (.*)$", text, re.M)))]
    if f"# NAME\n\n{name} - " not in text:
        bad.append("NAME does not begin with its name")
    code = "\n".join(re.findall(r"```c\n(.*?)```", text, re.S))
    shown = re.findall(r"^(?:struct \w+ \{.*?^\};|\w[^;{}#]*\(.*?\);)", code, re.S | re.M)
    bad += [f"not in the header: {plain(item)}" for item in shown if plain(item) not in header]
    for other, number in re.findall(r"\*(manadv\w*)\((\d)\)\*", text):
        if not (PAGES / f"{other}.{number}.md").exists():
            bad.append(f"{other}({number}) is not there")
    return bad


def main() -> int:
    header = plain((PROVIDER / "manadv.h").read_text())
    exported = re.findall(r"^\t\t(\w+);$", (PROVIDER / "libmana.map").read_text(), re.M)
    installed = set(re.findall(r"^  (\S+\.md)$", (PAGES / "CMakeLists.txt").read_text(), re.M))
    pages = sorted(PAGES.glob("*.md"))
    bad = [f"{name}: no man page" for name in exported if not (PAGES / f"{name}.3.md").exists()]
    for name in sorted(installed ^ {path.name for path in pages}):
        bad.append(f"{name}: in CMakeLists.txt or in the directory, not in both")
    for path in pages:
        bad += [f"{path.name}: {line}" for line in check_page(path, header)]
        if len(sys.argv) > 1:
            made = subprocess.run([sys.argv[1], "-s", "-t", "man", "--fail-if-warnings", path],
                                  capture_output=True, text=True)
            if made.returncode or not re.search(r"^\.TH ", made.stdout, re.M):
                bad.append(f"{path.name}: {made.stderr.strip() or 'no man page came out'}")
    if len(sys.argv) == 1:
        print("without pandoc the pages are looked at, not built")
    print("\n".join(bad) or f"{len(pages)} pages: all right")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

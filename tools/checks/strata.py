# SPDX-License-Identifier: Apache-2.0
"""What the kernel driver keeps in one place stays there (docs/kernel.md, "Strata")."""

import re
from collections.abc import Iterator

from checks.source import plain
from checks.tree import Finding, Tree

# What it is, how it looks, and the files of kernel/ that may have it.
PLACES = (
    ("a message layout", re.compile(r"\bmana_hw_\w+_(?:req|resp)\b"),
     re.compile(r"(?:cmd_\w+|hwc)\.[ch]")),
    ("the parent's structures", re.compile(r"\bgc->|\bdev->(?:gc|gdev|eth)\b"),
     re.compile(r"parent\.c|compat\.h")),
    ("a copy from or to user space",
     re.compile(r"\b(?:copy_(?:from|to)_user|ib_copy_(?:from|to)_udata|clear_user"
                r"|_?ib_copy_validate_\w+|_?ib_respond_\w*udata|_?uverbs_copy_\w+)\b"),
     re.compile(r"udata\.c|compat\.h")),
    ("a kernel's oddity", re.compile(r"^\s*#.*\bHAVE_[A-Z]"), re.compile(r"compat\.h")),
)


def check(tree: Tree) -> Iterator[Finding]:
    for path in tree.files:
        if path.parts[0] != "kernel" or path.suffix not in {".c", ".h"}:
            continue
        text = plain(tree.text(path)).split("\n")
        for number, lines in enumerate(zip(text, tree.lines(path)), 1):
            for what, pattern, files in PLACES:
                # Directives are not in plain text.
                line = lines[pattern.pattern.startswith("^")]
                if pattern.search(line) and not files.fullmatch(path.name):
                    yield Finding(path, number, f"{what} outside {files.pattern}")

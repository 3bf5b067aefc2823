# SPDX-License-Identifier: Apache-2.0
"""What posting and polling cost a program in a guest, in instructions, counted by callgrind."""

from __future__ import annotations

import re

from . import extras
from .errors import LabError
from .guest import Guest
from .paths import GUEST_FILES
from .progress import Step

PACKAGES = ("valgrind",)
FILES = ("usr/bin/valgrind.bin", "usr/libexec/valgrind/callgrind-amd64-linux",
         "usr/libexec/valgrind/default.supp", "usr/libexec/valgrind/vgpreload_core-amd64-linux.so")
FOLDER = "/root/callgrind"
ROUNDS = 4
# Polls that find nothing count too; so many of the completions are let pass.
MOST_VAIN = 0.05
TRIES = 5
# Functions of post_cost.c, and what they are for people.
COUNTED = {"post_write": "post a write", "post_list": "post a write, in a list of 16",
           "post_send": "post a send", "post_receive": "post a receive",
           "poll_send": "poll a send", "poll_receive": "poll a receive"}


def count(guest: Guest) -> dict[str, float]:
    """Instructions for each work request or completion, by what is done with it."""
    extras.unpack(guest, extras.archive(guest.spec.suite, PACKAGES, FILES), FOLDER)
    program = guest.compile(GUEST_FILES / "post_cost.c")
    found = {}
    with Step(f"{guest.name}: instructions of posting and polling", every=30):
        for function, words in COUNTED.items():
            found[words] = _count_one(guest, program, function)
    return found


def _count_one(guest: Guest, program: str, function: str) -> float:
    for _ in range(TRIES):
        done = guest.run(
            [f"{FOLDER}/valgrind.bin", "--tool=callgrind", "--callgrind-out-file=/dev/null",
             f"--toggle-collect={function}", program, guest.rdma_device(), str(ROUNDS)],
            env={"VALGRIND_LIB": FOLDER}, timeout=180)
        instructions = re.search(r"Collected *: *(\d+)", done.stderr)
        requests = re.search(rf"^{function} (\d+)$", done.stdout, re.M)
        vain = re.search(r"^vain (\d+)$", done.stdout, re.M)
        if not instructions or not requests or not vain or int(instructions[1]) == 0:
            raise LabError(f"{guest.name}: callgrind counted nothing of {function}: "
                           f"{done.stderr.strip()[-300:]}")
        if not function.startswith("poll") or int(vain[1]) <= int(requests[1]) * MOST_VAIN:
            return int(instructions[1]) / int(requests[1])
    raise LabError(f"{guest.name}: {vain[1]} polls of post_cost found nothing; is the host busy?")

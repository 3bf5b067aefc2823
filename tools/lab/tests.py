# SPDX-License-Identifier: Apache-2.0
"""manalab test: builds the presets and runs one ctest over all."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import host
from .build import configure_and_build, configured
from .errors import LabError
from .evidence import FOLDER
from .image import RELEASES
from .paths import BUILD, IS_SOURCE_TREE
from .prepare import beside
from .prepare import run as prepare
from .proc import end_group, find_program, spawn
from .progress import say

PRESETS = ("release", "asan")
LONG_PRESETS = (*PRESETS, "fuzz")  # the replays of asan are enough for each run
# Tests whose results are kept, and which are run in pieces.
GUESTS = "^vm"


def join(presets: tuple[str, ...]) -> Path:
    """Makes build/all, a ctest directory over the builds of several presets."""
    folder = BUILD / "all"
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["# Made by manalab test."]
    lines += [f'subdirs("{(BUILD / preset).as_posix()}")' for preset in presets]
    (folder / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")
    return folder


def ctest_arguments(args: argparse.Namespace, folder: Path, jobs: int) -> list[str]:
    """ctest's command line."""
    argv = ["--test-dir", os.fspath(folder), "-j", str(jobs)]
    argv += ["-N"] if args.list else ["--output-on-failure", "--no-tests=error"]
    if args.label:
        argv += ["-L", args.label]
    if not args.long:
        argv += ["-LE", "-long$"]
    if args.filter:
        argv += ["-R", args.filter]
    if args.exclude:
        argv += ["-E", args.exclude]
    return argv


def run(args: argparse.Namespace) -> int:
    """Builds, prepares what guests need, runs ctest; returns ctest's status."""
    for name in ("label", "filter", "exclude"):
        text = getattr(args, name)
        try:
            re.compile(text or "")
        except re.error as error:
            raise LabError(f"--{name} {text}: {error}") from error
    if not IS_SOURCE_TREE:
        raise LabError("tests need a source tree, not an installed lab")
    host.ensure_build_packages()
    ctest = find_program("ctest")
    if ctest is None:
        raise LabError("ctest is missing; install the package cmake")
    jobs = args.jobs or os.cpu_count() or 1
    if args.missing:
        return list_missing(ctest, args, jobs)
    kept = {}
    if args.minutes is not None:
        kept["OPENMANA_UNTIL"] = str(int(time.time() + args.minutes * 60))
    if args.long or args.minutes is not None:
        kept["OPENMANA_EVIDENCE"] = os.fspath(FOLDER)
        kept["OPENMANA_RESUME"] = "" if args.again else "1"
    only_guests = args.minutes is not None and args.label is None
    if only_guests:
        args.label = GUESTS
    presets = LONG_PRESETS if args.long else PRESETS
    if only_guests or args.no_asan:
        presets = PRESETS[:1]
    # Which tests need guests is known when they are built; all of them together do.
    everything = not (args.list or args.label or args.filter or args.exclude)
    with beside(RELEASES, "ours", "ours") if everything else contextlib.nullcontext():
        for preset in presets:
            configure_and_build(preset, ("manad", "manactl") if only_guests else (), jobs)
    folder = join(presets)
    if not everything and not args.list and needs_guests(ctest, args, folder):
        prepare(RELEASES, "ours", "ours")
    say("running ctest" if not args.list else "listing the tests")
    sides = {f"OPENMANA_{side.upper()}": value for side in ("driver", "provider", "ext")
             if (value := getattr(args, side))}
    process = spawn([ctest, *ctest_arguments(args, folder, jobs)],
                    env={**os.environ, **sides, **kept})
    try:
        status = process.wait()
        if kept:
            say("what the guests have shown is in docs/evidence; see what is missing with "
                "--missing, and commit it with tools/evidence tables")
        return status
    except BaseException:
        end_group(process, grace=10)
        raise
    finally:
        end_group(process, grace=0)


def list_missing(ctest: str, args: argparse.Namespace, jobs: int) -> int:
    """Prints the cases of the chosen tests with guests that the evidence does not show."""
    folder = configured(PRESETS[0])
    listing = argparse.Namespace(**{**vars(args), "list": True, "label": args.label or GUESTS})
    done = subprocess.run([ctest, *ctest_arguments(listing, folder, 1), "--show-only=json-v1"],
                          capture_output=True, text=True, timeout=300, check=False)
    try:
        commands = [test["command"] for test in json.loads(done.stdout)["tests"]]
    except (ValueError, KeyError) as error:
        raise LabError(f"ctest does not list its tests: {done.stderr.strip()[-200:]}") from error
    # only run.py's: the harness has tests of its own
    commands = [command for command in commands if Path(command[1]).name == "run.py"]
    with ThreadPoolExecutor(jobs) as pool:
        lists = list(pool.map(missing_of, commands))
    missing = list(dict.fromkeys(line for lines in lists for line in lines))
    for line in missing:
        print(line)
    say(f"{len(missing)} cases are not shown by the present sources and guests")
    return 0


def missing_of(command: list[str]) -> list[str]:
    """What run.py says is missing."""
    done = subprocess.run([*command, "--missing", "--evidence", os.fspath(FOLDER)],
                          capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise LabError(f"{' '.join(command[1:])} --missing: {done.stderr.strip()[-300:]}")
    return done.stdout.splitlines()


def needs_guests(ctest: str, args: argparse.Namespace, folder: Path) -> bool:
    """Whether a chosen test has a label that begins with vm."""
    listing = argparse.Namespace(**{**vars(args), "list": True})
    try:
        done = subprocess.run([ctest, *ctest_arguments(listing, folder, 1),
                               "--show-only=json-v1"], capture_output=True, text=True,
                              timeout=300, check=False)
    except subprocess.TimeoutExpired as error:
        raise LabError("ctest does not list its tests") from error
    return '"vm' in done.stdout

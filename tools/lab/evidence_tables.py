# SPDX-License-Identifier: Apache-2.0
"""The tables that documents have of the evidence: made from its files alone, so that nothing of the
kind is written by hand. Results from before there was evidence are in `before.json`, with the
commit that wrote them down; a table shows them where there is nothing newer."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from . import run_evidence
from .evidence import CLOSING, FOLDER, Evidence, read_all
from .image import ETHERNET_ONLY, RELEASES, SUITES
from .paths import ROOT

BEFORE = "before.json"
MATRIX_AREAS = ("rdma", "perftest", "verify", "errors", "cm")
SIDES = ("stock", "ours")
SUITES_AND_MIXED = (*SUITES, *ETHERNET_ONLY, "mixed")
BEGIN = "<!-- evidence: {} -->"
END = "<!-- end of evidence -->"


def read_before(folder: Path) -> dict[str, Any]:
    """Results that were written down by hand, by table."""
    path = folder / BEFORE
    return dict(json.loads(path.read_text())) if path.exists() else {}


def counted(files: Iterable[Evidence], long: bool) -> Counter[str]:
    """How the cases ended, of the long runs or without them."""
    return Counter(case["result"] for one in files for title, case in one.cases.items()
                   if title != CLOSING and (long or not case.get("long")))


def origin(files: Iterable[Evidence]) -> tuple[str, str]:
    """Commits and dates of what files have, newest last."""
    runs = sorted((run["date"], run["commit"]) for one in files for run in one.runs.values())
    commits = list(dict.fromkeys(f"`{commit}`" for _, commit in runs))
    dates = [date for date, _ in runs]
    span = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return ", ".join(commits), span


def one_source(files: Iterable[Evidence], area: bool = True) -> str:
    """A remark if the runs of a file are of more than one state of its sources."""
    mixed = [one.setup.area for one in files
             if len({run["sources"] for run in one.runs.values()}) > 1]
    unclean = [one.setup.area for one in files
               if not all(run["clean"] for run in one.runs.values())]
    words = [f"{', '.join(mixed) if area else ''} of different sources".strip()] if mixed else []
    words += [f"{', '.join(unclean) if area else ''} not clean at the end".strip()] \
        if unclean else []
    return "; ".join(words)


def row(*cells: object) -> str:
    """One line of a table."""
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def head(*cells: str) -> list[str]:
    """The first lines of a table."""
    return [row(*cells), "|" + "---|" * len(cells)]


def matrix(files: list[Evidence], before: dict[str, Any]) -> list[str]:
    """Stock and ours, extensions on and off, of the areas that all of them have."""
    lines = head("suite", "driver", "provider", "ext", "passed", "skipped", "failed", "commit",
                 "date", "remark")
    for pair in SUITES:
        for driver in SIDES:
            for provider in SIDES:
                for ext in ("on", "off"):
                    of = (pair, driver, provider, ext)
                    mine = [one for one in files if one.setup.area in MATRIX_AREAS
                            and (one.setup.pair, one.setup.driver, one.setup.provider,
                                 one.setup.ext) == of
                            and one.setup.kernel == "stock" and not one.setup.variant]
                    if mine or pair in RELEASES or " ".join(of) in before:
                        lines.append(matrix_row(of, mine, before.get(" ".join(of))))
    return lines


def matrix_row(of: tuple[str, ...], mine: list[Evidence], old: dict[str, Any] | None) -> str:
    """One setup of the matrix."""
    if mine:
        counts = counted(mine, False)
        absent = [area for area in MATRIX_AREAS if area not in {one.setup.area for one in mine}]
        remark = "; ".join(filter(None, (one_source(mine), "without " + ", ".join(absent)
                                         if absent else "")))
        return row(*of, counts["passed"], counts["skipped"], counts["failed"], *origin(mine),
                   remark)
    if old:
        return row(*of, old["passed"], old["skipped"], old["failed"], f"`{old['commit']}`",
                   old["date"], "of other sources, written down by hand")
    return row(*of, "", "", "", "", "", "not run")


def debug_kernel(files: list[Evidence], before: dict[str, Any], kernel: str = "debug"
                 ) -> list[str]:
    """What a kernel with checkers has seen, area by area."""
    lines = head("suite", "areas", "passed", "skipped", "failed", "commit", "date", "remark")
    for pair in SUITES:
        mine = [one for one in files if one.setup.kernel == kernel and one.setup.pair == pair
                and one.setup.driver == "ours" and one.setup.provider == "ours"]
        for one in mine:
            counts = counted([one], True)
            words = filter(None, (one.setup.variant, one_source([one], area=False),
                                  "" if one.setup.ext == "on" else "ext=off"))
            lines.append(row(pair, one.setup.area, counts["passed"], counts["skipped"],
                             counts["failed"], *origin([one]), "; ".join(words)))
        known = {one.setup.area for one in mine}
        for old in before.get(pair, ()):
            areas = [area for area in old["areas"] if area not in known]
            if areas:
                count = old["cases"] if areas == old["areas"] else ""
                lines.append(row(pair, ", ".join(areas), count, "", "", f"`{old['commit']}`",
                                 old["date"], "of other sources, written down by hand"))
    return lines


def kcsan(files: list[Evidence], before: dict[str, Any]) -> list[str]:
    """The same of the kernel that looks for data races."""
    return debug_kernel(files, before, "kcsan")


def pyverbs(files: list[Evidence], before: dict[str, Any]) -> list[str]:
    """rdma-core's Python tests, file by file, for each setup that was run."""
    parts: dict[tuple[str, ...], tuple[str, dict[str, Any]]] = {}
    for name, old in before.items():
        words = f"{old['versions']}, seen at `{old['commit']}`, {old['date']} (of other sources)"
        parts[tuple(name.split())] = (words, old["modules"])
    for one in files:
        if one.setup.area == "pyverbs" and one.setup.kernel == "stock" and not one.setup.variant:
            run = max(one.runs.values(), key=lambda run: str(run["date"]))
            commits, dates = origin([one])
            words = f"{', '.join(run['versions'])}, seen at {commits}, {dates}"
            if remark := one_source([one], area=False):
                words += f" ({remark})"
            of = (one.setup.pair, one.setup.driver, one.setup.provider, one.setup.ext)
            parts[of] = (words, {title: case["data"] for title, case in one.cases.items()
                                 if "data" in case})
    lines: list[str] = []
    for of in sorted(parts):
        pair, driver, provider, ext = of
        words, modules = parts[of]
        lines += ["", f"## {pair}: {driver} driver, {provider} provider, extensions {ext}", "",
                  f"{words[0].upper()}{words[1:]}.", "", *pyverbs_part(modules)]
    return lines[1:]


def pyverbs_part(modules: dict[str, Any]) -> list[str]:
    """The tables of one setup."""
    lines = head("file", "ok", "skipped", "failed", "remark")
    for name in sorted(modules):
        one = modules[name]
        lines.append(row(name, one["ok"], one["skipped"], one["failed"], one.get("remark", "")))
    lines.append(row("all", *(sum(one[what] for one in modules.values())
                              for what in ("ok", "skipped", "failed")), ""))
    for title, key in (("failing", "failing"), ("skipped", "left_out")):
        why: dict[str, list[str]] = {}
        for one in modules.values():
            for reason, tests in one[key].items():
                why.setdefault(reason, []).extend(tests)
        if why:
            lines += ["", *head(f"{title} tests", "because")]
            lines += [row(", ".join(f"`{test}`" for test in sorted(tests)), reason)
                      for reason, tests in sorted(why.items())]
    return lines


def guest_of(one: Evidence, title: str) -> str:
    """The suite and the kernel that a case ran on."""
    kernels = ", ".join(words.partition(",")[0] for words in one.run_of(title)["versions"])
    words = [one.setup.pair, kernels, *({one.setup.kernel} - {"stock"})]
    return ", ".join(filter(None, words))


def programs_of(one: Evidence, title: str) -> list[dict[str, str]]:
    """What a case says of the programs that it ran, if it ran any."""
    case = one.cases[title]
    said = {"passed": "", "failed": "**failed**: ", "skipped": "not run: "}[case["result"]]
    words = case.get("words", "")
    return [{**row, "seen": said + words if said else row["seen"] or words}
            for row in case.get("ran", ())]


def cell(text: str) -> str:
    """Words that someone else wrote, in a table."""
    return " ".join(text.split()).replace("|", "\\|")


def programs(files: list[Evidence], _before: dict[str, Any]) -> list[str]:
    """Programs that no one here wrote: each command that the cases ran, and what was seen."""
    found = []
    for one in files:
        of = one.setup
        sides = of.driver if of.driver == of.provider else f"{of.driver}, {of.provider}"
        for title in one.cases:
            run = one.run_of(title)
            for ran in programs_of(one, title):
                command = f"`{cell(ran['command'])}`" if ran["command"] else ""
                found.append((ran["program"].lower(), command, SUITES_AND_MIXED.index(of.pair),
                              of.name, row(cell(ran["program"]), cell(ran["version"]),
                                           guest_of(one, title), f"{sides}, ext={of.ext}", command,
                                           cell(ran["seen"]), f"`{run['commit']}`, {run['date']}")))
    lines = head("program", "version", "guest", "driver, provider", "command", "what was seen",
                 "at")
    return lines + [last[-1] for last in sorted(found)]


def fuzz(folder: Path) -> list[str]:
    """The CPU time of each fuzz target, with the sources that it had last and with all since it
    found something."""
    lines = head("target", "CPU minutes", "pieces", "runs", "findings", "without a finding, all "
                 "sources", "commit", "date")
    for target, sums in run_evidence.FUZZ.read_all(folder).items():
        last = list(sums.values())[-1]
        dates = [last["first"], last["last"]]
        lines.append(row(f"`{target}`", f"{last['cpu_seconds'] / 60:.1f}", last["pieces"],
                         last["executions"], last["findings"],
                         f"{run_evidence.since_finding(sums) / 60:.1f} min",
                         f"`{last['commit']}`", " to ".join(dict.fromkeys(dates))))
    return lines


def simulation(folder: Path) -> list[str]:
    """The runs of each simulation, with the sources that it had last."""
    lines = head("simulation", "seeds", "runs", "operations", "moves", "failures", "CPU minutes",
                 "commit", "date")
    for program, sums in run_evidence.SIMULATION.read_all(folder).items():
        last = list(sums.values())[-1]
        dates = [last["first"], last["last"]]
        lines.append(row(f"`{program}`", last["seeds"], last["runs"], last["operations"],
                         last.get("moves", "-"), last["findings"],
                         f"{last['cpu_seconds'] / 60:.1f}", f"`{last['commit']}`",
                         " to ".join(dict.fromkeys(dates))))
    return lines


# Of files of their own.
OF_RUNS: dict[str, Callable[[Path], list[str]]] = {"fuzz": fuzz, "simulation": simulation}
TABLES: dict[str, Callable[[list[Evidence], dict[str, Any]], list[str]]] = {
    "matrix": matrix, "debug-kernel": debug_kernel, "kcsan": kcsan, "pyverbs": pyverbs,
    "programs": programs}
DOCUMENTS = {"docs/testing.md": ("matrix", "debug-kernel", "kcsan", "simulation", "fuzz"),
             "docs/pyverbs.md": ("pyverbs",), "docs/programs.md": ("programs",)}


def updated(text: str, table: str, lines: list[str]) -> str:
    """A document with a table in the place of the old one."""
    begin = BEGIN.format(table)
    pattern = re.escape(begin) + r"\n.*?" + re.escape(END)
    if len(re.findall(pattern, text, re.S)) != 1:
        raise ValueError(f"no single place for the table {table}")
    whole = "\n".join([begin, *lines, END])
    return re.sub(pattern, lambda _: whole, text, flags=re.S)


def documents(folder: Path = FOLDER, root: Path = ROOT) -> dict[Path, tuple[str, str]]:
    """What documents say, and what they should."""
    files = read_all(folder)
    before = read_before(folder)
    found = {}
    for name, tables in DOCUMENTS.items():
        old = new = (root / name).read_text()
        for table in tables:
            lines = OF_RUNS[table](folder) if table in OF_RUNS \
                else TABLES[table](files, before.get(table, {}))
            new = updated(new, table, lines)
        found[root / name] = (old, new)
    return found

# SPDX-License-Identifier: Apache-2.0
"""rdma-core's own Python tests, file by file, with both ends on one NIC.

What stock driver or provider cannot do is listed in pyverbs_table.py, with the words in which each
test says so; every other failure is the device's, and so is every command that it refuses. A file
whose process crashes is run again test by test.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyverbs_table
from harness import Area, Context, Peer, check, skip

AREA = Area("pyverbs", layout="one")
FOLDER = "/usr/share/doc/rdma-core/tests"
MODULES = ("addr", "atomic", "buf", "cq", "cq_events", "cqex", "device", "dmah", "flow", "fork",
           "mr", "odp", "parent_domain", "pd", "phc_timestamp", "qp", "qpex", "rdmacm",
           "relaxed_ordering", "rss_traffic", "shared_pd", "srq", "tag_matching")
# Some tests hand their objects to processes, which Python 3.14 does not start by fork of itself.
RUN_TESTS = (
    "python3 -c 'import multiprocessing, runpy; multiprocessing.set_start_method(\"fork\"); "
    f"runpy.run_path(\"{FOLDER}/run_tests.py\", run_name=\"__main__\")'"
)
# "test_x (tests.test_y.Class.test_x)", perhaps the first line of its docstring, " ... ok"
HEADER = re.compile(r"^(test_\w+) \(tests\.(test_\w+)\.(\w+)(?:\.test_\w+)?\)", re.M)
RESULT = re.compile(r"^(ok|FAIL|ERROR|skipped ['\"](.*)['\"]|expected failure)$", re.M)


@dataclass
class Outcome:
    """How the tests of a module ended."""

    results: dict[str, str] = field(default_factory=dict)  # test -> ok, failed, skipped, crashed
    words: dict[str, str] = field(default_factory=dict)  # test -> why
    crash: str = ""


def words_of(text: str, test: str) -> str:
    """What a test says of its failure: the last line of its traceback (a bare exception with the
    line of the test that raised it), then what the threads of the test said."""
    name, _, place = test.rpartition(".")
    cls = name.rpartition(".")[2]
    for block in re.split(r"^={20,}$", text, flags=re.M):
        if not re.match(rf"\s*(FAIL|ERROR): {place} \(tests\.\w+\.{cls}\b", block):
            continue
        parts = re.split(r"^-{20,}$", block, flags=re.M)
        lines = [line.strip() for line in parts[1].splitlines() if line.strip()] \
            if len(parts) > 1 else []
        if not lines:
            return ""
        sources = [line for before, line in zip(lines, lines[1:])
                   if re.match(r'File ".*/tests/', before) and not line.startswith("File ")]
        bare = re.fullmatch(r"[\w.]+", lines[-1]) and sources
        return (f"{sources[-1]}: {lines[-1]}" if bare else lines[-1])[:200]
    return ""


def parse(text: str) -> Outcome:
    """The output of unittest -v."""
    outcome = Outcome()
    shown = re.split(r"^={20,}$|^-{20,}$", text, maxsplit=1, flags=re.M)[0]
    headers = list(HEADER.finditer(shown))
    for header, following in zip(headers, [*headers[1:], None]):
        chunk = shown[header.end():following.start() if following else len(shown)]
        _, _, chunk = chunk.partition(" ... ")
        found = RESULT.search(chunk)
        if found is None:
            continue  # the process ended in this test
        test = f"{header[2]}.{header[3]}.{header[1]}"
        if found[1].startswith("skipped"):
            outcome.results[test] = "skipped"
            outcome.words[test] = found[2]
        elif found[1] in ("FAIL", "ERROR"):
            outcome.results[test] = "failed"
            said = re.findall(r"Player \w+ got: (.*)", chunk)
            outcome.words[test] = "; ".join(
                word for word in (words_of(text, test), *sorted(set(said))) if word)
        else:
            outcome.results[test] = "ok"
    # set-up of a class that fails has a line of its own
    for found in re.finditer(r"^setUpClass \(tests\.(\S+)\) \.\.\. (ERROR|skipped '(.*)')", text,
                             re.M):
        outcome.results[found[1] + ".setUpClass"] = \
            "skipped" if found[2].startswith("skipped") else "failed"
        outcome.words[found[1] + ".setUpClass"] = found[3] or "ERROR"
    return outcome


def names_of(peer: Peer, module: str) -> list[str]:
    """All tests of a module."""
    text = peer.out(f"cd {FOLDER} && {RUN_TESTS} --dev {peer.rdma} --list-tests "
                    f"2>/dev/null | grep '^tests[.]{module}[.]'", timeout=120)
    return text.split()


def run_tests(peer: Peer, what: str, timeout: float) -> tuple[str, int]:
    """Output and status of one process."""
    result = peer.run(f"cd {FOLDER} && timeout {timeout:.0f} {RUN_TESTS} "
                      f"--dev {peer.rdma} --gid 1 -v tests.{what} 2>&1", timeout=timeout + 30,
                      check=False)
    return result.stdout, result.status


def library(peer: Peer) -> str:
    """Where the last process that crashed did so, by the kernel's log."""
    found = re.findall(r"python3\[\d+\]: segfault .* in (\S+?)\[", peer.out("dmesg"))
    return f" in {found[-1]}" if found else ""


def refused(context: Context) -> int:
    """Commands that the device did not carry out."""
    return sum(nic["counters"][f"gdma.hwc.{name}"]
               for nic in context.lab.stats("--all")["nics"] for name in ("failed", "malformed"))


def is_stock(context: Context) -> bool:
    """Whether driver and provider are the distribution's."""
    return not context.has("driver") and not context.has("provider")


def reason(context: Context, test: str, words: str) -> str | None:
    """Why a test fails whatever the device does; with ours as with stock software alone."""
    ours = all(context.has(side) for side in ("driver", "provider", "ext"))
    if not ours and not is_stock(context):
        return None
    return pyverbs_table.reason(context.a.suite, test, words, ours)


def crash_reason(context: Context, module: str, how: str) -> str | None:
    """Why a module may crash in this way, or None."""
    return pyverbs_table.crash_reason(context.a.suite, module, how)


def skip_reason(context: Context, test: str, words: str) -> str | None:
    """Why a test is skipped with ours, or None."""
    return pyverbs_table.skip_reason(context.a.suite, test, words)


def unexplained_skips(context: Context, outcome: Outcome) -> list[str]:
    """Tests that ours leave out for no known reason. Stock software has no such list."""
    if not all(context.has(side) for side in ("driver", "provider", "ext")):
        return []
    return [test for test, result in outcome.results.items() if result == "skipped"
            and not skip_reason(context, test, outcome.words.get(test, ""))]


def run(module: str, context: Context) -> None:
    """One file."""
    peer = context.a
    if peer.run(f"test -e {FOLDER}/{module}.py", check=False).status != 0:
        skip(f"rdma-core of {peer.suite} has no {module}.py")
    before = refused(context)
    text, status = run_tests(peer, module, 240)
    outcome = parse(text)
    if status not in (0, 1):
        ended = re.search(r"^Ran \d+ tests? in", text, re.M)
        how = "took longer than 240 s" if status == 124 else f"status {status}{library(peer)}"
        outcome.crash = f"{how}, {'after' if ended else 'before'} its last test"
        if not ended:
            for test in names_of(peer, module):
                name = test.removeprefix("tests.")
                if outcome.results.get(name, "failed") != "failed":
                    continue  # the words of those that failed come at the end only
                one, ended_with = run_tests(peer, name, 60)
                parsed = parse(one)
                outcome.results.update(parsed.results)
                outcome.words.update(parsed.words)
                if name not in parsed.results:
                    outcome.results[name] = "crashed"
                    outcome.words[name] = f"status {ended_with}"
    context.data = evidence(context, module, outcome)
    check(outcome.results or outcome.crash, f"no test ran: {text[-300:]}")
    wrong = [f"{test} ({outcome.words.get(test, '')})" for test, result in outcome.results.items()
             if result in ("failed", "crashed")
             and not reason(context, test, outcome.words.get(test, ""))]
    wrong += [f"{test} is skipped: {outcome.words.get(test, '')}"
              for test in unexplained_skips(context, outcome)]
    if outcome.crash and not crash_reason(context, module, outcome.crash):
        wrong.append(f"{module} crashed: {outcome.crash}")
    counts = Counter(outcome.results.values())
    context.note(", ".join(f"{count} {result}" for result, count in sorted(counts.items())))
    if (commands := refused(context) - before) != 0:
        # our driver and provider leave it to the device to refuse what a test does wrong
        if is_stock(context):
            wrong.append(f"the device refused {commands} commands")
        else:
            context.note(f"{commands} commands refused")
    check(not wrong, "; ".join(wrong))


def evidence(context: Context, module: str, outcome: Outcome) -> dict[str, Any]:
    """What the table in the document says of a file."""
    counts = Counter(outcome.results.values())
    bad = [test for test, result in outcome.results.items() if result in ("failed", "crashed")]
    data: dict[str, Any] = {"ok": counts["ok"], "skipped": counts["skipped"], "failed": len(bad),
                            "failing": {}, "left_out": {}}
    for test in bad:
        words = outcome.words.get(test, "")
        why = reason(context, test, words) or f"**not explained**: {words}"
        data["failing"].setdefault(why, []).append(test)
    for test, result in outcome.results.items():
        if result == "skipped" and not is_stock(context):
            words = outcome.words.get(test, "")
            why = skip_reason(context, test, words) or f"**not explained**: {words}"
            data["left_out"].setdefault(why, []).append(test)
    if outcome.crash:
        why = crash_reason(context, module, outcome.crash) or "not explained"
        data["remark"] = f"process: {outcome.crash} ({why})"
    return data


for _module in MODULES:
    AREA.add(f"test_{_module}", partial(run, f"test_{_module}"), timeout=900.0)

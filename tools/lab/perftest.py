# SPDX-License-Identifier: Apache-2.0
"""perftest between two guests: a pair of programs, its table, and rows that it could not time.

perftest counts the CPU's cycles and needs to know how long one takes. On a busy machine it cannot
tell: rates are then 0 and latencies infinite, and with -F it says nothing. Such a row is
measured again.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable

from .channel import Command
from .errors import CommandTimeout, LabError
from .guest import Guest
from .progress import say

PERFTEST_PORT = 18515
# How often a row is measured until perftest can time it.
TRIES = 4
RATE_COLUMNS = 5  # bytes, iterations, peak, average, messages; a table of latencies has more
NUMBER = re.compile(r"-?(\d+(\.\d+)?(e[+-]?\d+)?|inf|nan)")


def wait_listening(server: Guest, listener: Command, port: int, rdma_cm: bool = False,
                   timeout: float = 30.0) -> None:
    """Waits until a server takes connections: on a TCP port, or with the RDMA connection
    manager."""
    probe = ("rdma resource show cm_id | grep -q LISTEN" if rdma_cm
             else f"ss -Hltn 'sport = :{port}' | grep -q .")
    waiter = server.spawn(f"until {probe}; do sleep 0.05; done")
    deadline = time.monotonic() + timeout
    try:
        while waiter.status is None:
            if listener.status is not None:
                raise LabError(f"{server.name}: '{listener.text}' ended with status "
                               f"{listener.status}: "
                               f"{(listener.stderr or listener.stdout).strip()[-300:]}",
                               server.console_log)
            if server.channel.error is not None:
                raise server.channel.error
            if time.monotonic() > deadline:
                raise LabError(f"{server.name}: '{listener.text}' did not listen within "
                               f"{timeout:.0f} s", server.console_log)
            time.sleep(0.05)
    finally:
        if waiter.status is None and server.alive:
            waiter.kill()


def perftest(server: Guest, client: Guest, program: str, *options: str, timeout: float = 120.0,
             server_device: str | None = None, client_device: str | None = None,
             address: str | None = None) -> str:
    """Runs a perftest pair to its end; returns the client's output."""
    common = [program, *options]
    listener = server.spawn([*common, "-d", server_device or server.rdma_device()])
    try:
        wait_listening(server, listener, PERFTEST_PORT, rdma_cm="-R" in options)
        caller = client.spawn([*common, "-d", client_device or client.rdma_device(),
                               address or server.ip()])
        try:
            status = caller.wait(timeout)
        except CommandTimeout as error:
            raise LabError(f"{error.message}; it wrote: {error.stdout.strip()[-300:]}",
                           client.console_log) from error
        if status != 0:
            words = (caller.stderr.strip() or caller.stdout.strip())[-300:]
            raise LabError(f"{client.name}: {program} ended with status {status}: {words}",
                           client.console_log)
        if listener.wait(30) != 0:
            raise LabError(f"{server.name}: {program} ended with status {listener.status}: "
                           f"{listener.stderr.strip()[-300:]}", server.console_log)
    finally:
        if listener.status is None and server.alive:
            listener.kill()
    return caller.stdout


def row_of(line: str) -> list[float] | None:
    """The numbers of a row of a table, None for any other line."""
    words = line.split()
    if len(words) < RATE_COLUMNS or not all(NUMBER.fullmatch(word) for word in words):
        return None
    return [float(word) for word in words]


def table_rows(text: str) -> list[list[float]]:
    """The rows of numbers of a perftest table."""
    return [row for line in text.splitlines() if (row := row_of(line)) is not None]


def is_timed(row: list[float]) -> bool:
    """Whether perftest could time a row. Only the rate of messages tells it of a bandwidth: one of
    small messages may well be 0.00."""
    return all(map(math.isfinite, row)) and (len(row) != RATE_COLUMNS or row[4] > 0)


def timed_line(name: str, run: Callable[[], str], tries: int = TRIES) -> str | None:
    """The last row, as it stands, of a test that is run until perftest can time it; None if it
    never could."""
    for attempt in range(tries):
        lines = [line for line in run().splitlines() if row_of(line) is not None]
        if not lines:
            raise LabError(f"{name} printed no table")
        row = row_of(lines[-1])
        if row is not None and is_timed(row):
            return lines[-1]
        say(f"{name}: perftest could not time the CPU's counter, "
            + ("which makes no figure" if attempt + 1 == tries else "so it runs again"))
    return None


def mend(table: str, again: Callable[[int], str | None]) -> tuple[str, list[int], list[int]]:
    """The table with each row that perftest could not time in place of the one that `again` gives
    for its size; the sizes of those that were found so, and of those that were not."""
    lines, found, missing = table.splitlines(keepends=True), [], []
    for number, line in enumerate(lines):
        row = row_of(line)
        if row is None or is_timed(row):
            continue
        size = int(row[0])
        fresh = again(size)
        if fresh is None:
            missing.append(size)
        else:
            found.append(size)
            lines[number] = fresh + "\n"
    return "".join(lines), found, missing

# SPDX-License-Identifier: Apache-2.0
"""Progress as plain lines with elapsed seconds, on stderr, so that stdout stays for results."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

_START = time.monotonic()
_quiet = False
_lock = threading.Lock()


def set_quiet(quiet: bool) -> None:
    """Turns the progress lines off or on for the whole process."""
    global _quiet
    _quiet = quiet


def is_quiet() -> bool:
    """Whether they are off."""
    return _quiet


def say(text: str) -> None:
    """Prints one progress line."""
    if _quiet:
        return
    with _lock:
        print(f"[{time.monotonic() - _START:7.1f}s] {text}", file=sys.stderr, flush=True)


class Step:
    """A step that takes long: says that it begins, that it still runs (every `every` seconds),
    and that it is done."""

    def __init__(self, text: str, every: float = 15.0) -> None:
        self._text = text
        self._every = every
        self._begin = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Step:
        say(self._text)
        self._begin = time.monotonic()
        self._thread = threading.Thread(target=self._tick, daemon=True, name="progress")
        self._thread.start()
        return self

    def _tick(self) -> None:
        while not self._stop.wait(self._every):
            say(f"{self._text}: still at it, {time.monotonic() - self._begin:.0f} s")

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        took = time.monotonic() - self._begin
        if kind is None:
            if took >= 1:
                say(f"{self._text}: done in {took:.1f} s")
        else:
            say(f"{self._text}: failed after {took:.1f} s")

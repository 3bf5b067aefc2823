# SPDX-License-Identifier: Apache-2.0
"""Errors of the lab. Each one is a single line that says what failed and, where there is one,
which log has the details."""

from __future__ import annotations

import os


class LabError(Exception):
    """Something asked of the lab could not be done. `log` is the file to read next."""

    def __init__(self, message: str, log: str | os.PathLike[str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.log = os.fspath(log) if log is not None else None

    def __str__(self) -> str:
        return f"{self.message}; log: {self.log}" if self.log else self.message


class GuestDied(LabError):
    """The guest panicked, or its QEMU ended, or its command channel closed."""


class GuestTimeout(LabError):
    """The guest did not answer in time."""


class CommandTimeout(LabError):
    """A command in a guest did not end in time and was killed. Holds what it had written."""

    def __init__(self, message: str, stdout: str = "", stderr: str = "") -> None:
        super().__init__(message)
        self.stdout = stdout
        self.stderr = stderr


class CommandFailed(LabError):
    """A command in a guest ended with a non-zero status."""

    def __init__(self, message: str, result: object) -> None:
        super().__init__(message)
        self.result = result

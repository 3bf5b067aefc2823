# SPDX-License-Identifier: Apache-2.0
"""Child processes: started in a group of their own, killed by the kernel when we die, ended by
group."""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from .errors import LabError

# PR_SET_PDEATHSIG belongs to the thread that forked: the child is killed when that *thread* ends.
# So all children are started by one thread that lives as long as the process.
_jobs: queue.SimpleQueue[tuple[Future[Any], list[str], int, dict[str, Any]]] = queue.SimpleQueue()
_starter_lock = threading.Lock()
_starter: threading.Thread | None = None
_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


def _prepare(nice: int) -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    if nice:
        with contextlib.suppress(PermissionError):
            os.nice(nice)


def _start_loop() -> None:
    while True:
        future, argv, nice, kwargs = _jobs.get()
        try:
            # Of our session: where the scheduler groups tasks by session ("autogroup"), nice values
            # count among those of one session only.
            future.set_result(subprocess.Popen(argv, process_group=0,
                                               preexec_fn=lambda: _prepare(nice), **kwargs))
        except BaseException as error:  # handed over to the waiting thread
            future.set_exception(error)
        del future, argv, nice, kwargs


def spawn(argv: list[str], nice: int = 0, **kwargs: Any) -> subprocess.Popen[bytes]:
    """Popen in its own process group; the child dies when this process dies, however it dies.

    `nice` is added to its nice value, as far as that is allowed."""
    global _starter
    with _starter_lock:
        if _starter is None or not _starter.is_alive():
            _starter = threading.Thread(target=_start_loop, daemon=True, name="starter")
            _starter.start()
    future: Future[Any] = Future()
    _jobs.put((future, [os.fspath(arg) for arg in argv], nice, kwargs))
    try:
        return future.result()
    except FileNotFoundError as error:
        raise LabError(f"cannot run {argv[0]}: no such program") from error
    except OSError as error:
        raise LabError(f"cannot run {argv[0]}: {error.strerror}") from error


def end_group(process: subprocess.Popen[bytes], grace: float = 3.0) -> None:
    """Ends the process and its whole group: SIGTERM, then SIGKILL after `grace` seconds."""
    for signum, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
        try:
            os.killpg(process.pid, signum)
        except (ProcessLookupError, PermissionError):
            pass
        try:
            process.wait(timeout=patience)
            break
        except subprocess.TimeoutExpired:
            continue
    try:
        os.killpg(process.pid, signal.SIGKILL)  # whatever it left behind in its group
    except (ProcessLookupError, PermissionError):
        pass


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and its whole group as a crash would, with SIGKILL and nothing before."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()


def tail(path: Path, lines: int = 1) -> str:
    """The last non-empty lines of a log, for an error message."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return ""
    kept = [line.strip() for line in text.splitlines() if line.strip()]
    return "\n".join(kept[-lines:])


def run_logged(argv: list[str], log: Path, what: str, timeout: float = 3600.0,
               env: dict[str, str] | None = None, cwd: Path | None = None,
               echo: bool = False) -> None:
    """Runs a host command with its output in `log`. Raises one clear line when it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    env = {**(os.environ if env is None else env), "PATH": program_path()}
    with log.open("ab") as out:
        out.write(("+ " + " ".join(map(str, argv)) + "\n").encode())
        out.flush()
        process = spawn(argv, stdin=subprocess.DEVNULL,
                        stdout=None if echo else out, stderr=None if echo else subprocess.STDOUT,
                        env=env, cwd=cwd)
        try:
            status = process.wait(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise LabError(f"{what} did not end within {timeout:.0f} s", log) from error
        finally:
            end_group(process, grace=30)  # mmdebstrap takes its time to unmount
    if status != 0:
        last = tail(log)
        if os.environ.get("CI"):  # nobody can open the log there
            lines = log.read_text(errors="replace").splitlines()[-80:]
            print(*lines, sep="\n", file=sys.stderr)
        raise LabError(f"{what} failed (status {status}): {last[:160]}", log)


def program_path() -> str:
    """PATH with the sbin directories, which an ordinary user's may lack."""
    return os.environ.get("PATH", "") + os.pathsep + "/usr/sbin:/sbin"


def find_program(name: str) -> str | None:
    """Finds a program, also in the sbin directories."""
    return shutil.which(name, path=program_path())


def exit_on_signals() -> None:
    """Turns SIGTERM and SIGHUP into SystemExit, so that context managers clean up."""
    def handler(signum: int, _frame: object) -> None:
        sys.exit(128 + signum)
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, handler)

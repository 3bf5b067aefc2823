# SPDX-License-Identifier: Apache-2.0
"""Building manad, manactl and the tests with CMake's presets."""

from __future__ import annotations

import os
from pathlib import Path

from . import host
from .errors import LabError
from .manad import find_binary
from .paths import BUILD, IS_SOURCE_TREE, ROOT, logs_dir
from .proc import find_program, run_logged
from .progress import Step

SPACE_NEEDED = 500_000_000


def configured(preset: str) -> Path:
    """The directory of a preset, configured when that was not done."""
    cmake = find_program("cmake")
    if cmake is None:
        raise LabError("the package cmake is missing")
    if not any((BUILD / preset / name).exists() for name in ("build.ninja", "Makefile")):
        with Step(f"configuring preset {preset}"):
            run_logged([cmake, "--preset", preset], logs_dir() / f"build-{preset}.log",
                       f"cmake --preset {preset}", cwd=ROOT)
    return BUILD / preset


def configure_and_build(preset: str, targets: tuple[str, ...] = (), jobs: int | None = None
                        ) -> None:
    """Configures a preset when that was not done, and builds some targets, or all."""
    if not IS_SOURCE_TREE:
        raise LabError(f"{ROOT} is no source tree; only one of those can be built and tested")
    cmake = find_program("cmake")
    if cmake is None:
        raise LabError("the package cmake is missing")
    host.check_space(ROOT, SPACE_NEEDED, "the build")
    log = logs_dir() / f"build-{preset}.log"
    log.unlink(missing_ok=True)
    configured(preset)
    argv = [cmake, "--build", os.fspath(BUILD / preset), "-j", str(jobs or os.cpu_count() or 1)]
    if targets:
        argv += ["--target", *targets]
    with Step(f"building preset {preset} (log: {log})"):
        run_logged(argv, log, f"building preset {preset}", cwd=ROOT)


def build_for_evidence(*more: str) -> None:
    """Brings the build that a test uses up to its sources, so that the evidence is of these, with
    `more` programs that it uses besides manad."""
    folder = os.environ.get("OPENMANA_BUILD")
    if not folder:
        ensure_manad()
        if more:
            configure_and_build("release", more)
        return
    cmake = find_program("cmake")
    if cmake is None:
        raise LabError("the package cmake is missing")
    with Step(f"building manad in {folder}"):
        run_logged([cmake, "--build", folder, "--target", "manad", "manactl", *more],
                   logs_dir() / "build-evidence.log", "building manad")


def ensure_manad() -> None:
    """Builds manad and manactl, unless OPENMANA_BUILD names a build that has them, or the lab is
    installed and has those of its packages."""
    if os.environ.get("OPENMANA_BUILD") or not IS_SOURCE_TREE:
        for name in ("manad", "manactl"):
            find_binary(name)
        return
    host.ensure_build_packages()
    configure_and_build("release", ("manad", "manactl"))

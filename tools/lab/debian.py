# SPDX-License-Identifier: Apache-2.0
"""Debian trees: the mirror, keys and settings of the machine's own apt, given to mmdebstrap."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from .errors import LabError
from .proc import find_program, run_logged

KEYRINGS = (
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
    "/etc/apt/trusted.gpg.d",
)
# Settings that say how to reach a mirror. All others are of no use in a new tree.
COPIED_SETTINGS = re.compile(r"^Acquire::(http|https|Retries|ForceIPv|Check-Date)\b", re.IGNORECASE)
BACKPORTS = "-backports"
# Suites that are a release with what the backports of some release have newer, and these.
WITH_BACKPORTS = {"trixie-backports": ("trixie", "trixie-backports"),
                  "newest": ("forky", "trixie-backports")}
# What is newer in backports, as if it were the release's.
PREFER = ("printf 'Package: *\\nPin: release n={suite}\\nPin-Priority: 500\\n' "
          '>"$1/etc/apt/preferences.d/backports"')
TARGET_FORMAT = "$(CREATED_BY)|$(REPO_URI)|$(ORIGIN)|$(LABEL)|$(SIGNED_BY)"


@dataclass(frozen=True)
class Mirror:
    """Where packages come from, as the machine's apt has it."""

    uri: str
    keyring: str
    settings: tuple[str, ...] = field(default=())

    def lines(self, suites: list[str], sources: bool = False) -> list[str]:
        """One-line entries of suites, with their source packages if these are wanted."""
        kinds = ["deb", "deb-src"] if sources else ["deb"]
        return [f"{kind} {self.uri} {name} main" for name in suites for kind in kinds]


def release_of(suite: str) -> str:
    """The release that a suite is, or is made of."""
    return WITH_BACKPORTS.get(suite, (suite,))[0]


def parse_index_targets(text: str) -> tuple[str, str] | None:
    """Debian's main archive among apt's index targets: (uri, key file or "")."""
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) != 5 or fields[0] != "Packages":
            continue
        _, uri, origin, label, signed_by = fields
        if origin == "Debian" and label == "Debian" and re.match(r"^(https?|file|copy|mirror)",
                                                                 uri):
            return uri.rstrip("/"), signed_by if signed_by.startswith("/") else ""
    return None


def parse_sources(text: str) -> str | None:
    """The first archive URI that looks like Debian's main one, from the text of sources files of
    either format. For a machine whose lists were never fetched."""
    for line in text.splitlines():
        match = re.match(r"^\s*(?:deb(?:\s+\[[^]]*\])?|URIs:)\s+(\S+)", line)
        if match and match.group(1).rstrip("/").endswith("/debian"):
            return match.group(1).rstrip("/")
    return None


def parse_settings(text: str) -> list[str]:
    """The settings worth copying from the output of `apt-config dump`."""
    found = []
    for line in text.splitlines():
        match = re.match(r'^(\S+) "(.*)";$', line)
        if match and match.group(2) and COPIED_SETTINGS.match(match.group(1)):
            found.append(line.rstrip(";"))
    return found


def _output(argv: list[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def find_mirror() -> Mirror:
    """The mirror of this machine. OPENMANA_MIRROR (a URI) overrides it."""
    uri, keyring = os.environ.get("OPENMANA_MIRROR", "").rstrip("/"), ""
    if not uri:
        found = parse_index_targets(_output(["apt-get", "indextargets", "--format",
                                             TARGET_FORMAT]))
        if found is not None:
            uri, keyring = found
        else:
            text = ""
            base = Path("/etc/apt")
            for path in [base / "sources.list", *sorted((base / "sources.list.d").glob("*"))]:
                if path.suffix in (".list", ".sources") and path.is_file():
                    text += path.read_text(errors="replace") + "\n"
            uri = parse_sources(text) or ""
    if not uri:
        raise LabError("apt on this machine has no Debian mirror; "
                       "set OPENMANA_MIRROR to the address of one")
    if not keyring or not os.path.exists(keyring):
        keyring = next((path for path in KEYRINGS if os.path.exists(path)), "")
    if not keyring:
        raise LabError("no Debian archive keys on this machine; "
                       "install the package debian-archive-keyring")
    return Mirror(uri, keyring, tuple(parse_settings(_output(["apt-config", "dump"]))))


def bootstrap_mode() -> str:
    """mmdebstrap's mode: `root` for root, `unshare` for a user who may have a user namespace."""
    if os.geteuid() == 0:
        return "root"
    if find_program("newuidmap") is None:
        raise LabError("an ordinary user needs the package uidmap (newuidmap) to make images; "
                       "install it, or run this once as root with the same OPENMANA_CACHE")
    done = subprocess.run(["unshare", "--map-root-user", "--map-auto", "true"],
                          capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        raise LabError("this user cannot create a user namespace with sub-ids "
                       f"({done.stderr.strip()}); see /etc/subuid, or run this once as root")
    return "unshare"


def bootstrap(target: Path, suite: str, packages: list[str], log: Path, *, variant: str = "apt",
              backports: bool = False, sources: bool = False, options: tuple[str, ...] = ()
              ) -> None:
    """Makes a tree of `packages`, as a directory or, when `target` ends in .tar, an archive. With
    `sources`, apt there knows source packages too. With `backports`, those of the suite are apt's
    default release."""
    program = find_program("mmdebstrap")
    if program is None:
        raise LabError("the package mmdebstrap is missing; install it with apt")
    suite, *newer = WITH_BACKPORTS.get(suite, (suite,))
    mirror = find_mirror()
    settings = [*mirror.settings, 'Acquire::Check-Valid-Until "false"',
                'Acquire::Languages "none"']
    if backports:
        newer = [f"{suite}{BACKPORTS}"]
        settings.append(f'APT::Default-Release "{newer[0]}"')
    argv = [program, f"--mode={bootstrap_mode()}", f"--variant={variant}",
            f"--include={','.join(packages)}", f"--keyring={mirror.keyring}"]
    argv += [f"--aptopt={setting}" for setting in settings]
    if newer and not backports:
        # Not by the default release: outside of that apt finds no source package.
        argv.append(f"--setup-hook={PREFER.format(suite=newer[0])}")
    argv += [*options, suite, os.fspath(target), *mirror.lines([suite, *newer], sources)]
    # With INITRD=No the kernel package does not make an initramfs that nobody uses.
    env = dict(os.environ, LC_ALL="C", INITRD="No")
    run_logged(argv, log, f"mmdebstrap of {suite}", env=env)


def extract(target: Path, suite: str, packages: list[str], kept: tuple[str, ...], log: Path
            ) -> None:
    """Puts the files `kept` (paths below /) of `packages` and of what these depend on into the
    directory `target`. Nothing is installed."""
    archive = target / "packages.tar"
    bootstrap(archive, suite, packages, log, variant="extract")
    run_logged(["tar", "-xf", os.fspath(archive), "-C", os.fspath(target), "--no-same-owner",
                *(f"./{name}" for name in kept)], log, f"unpacking {' '.join(packages)}")
    archive.unlink()

# SPDX-License-Identifier: Apache-2.0
"""tshark: the host's own, or one extracted from packages, to decode captures."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import debian, host
from .errors import LabError
from .image import cache_lock, digest, new_entry
from .paths import cache_dir, logs_dir
from .proc import find_program
from .progress import Step

SUITE = "trixie"
SPACE_NEEDED = 500_000_000
KEPT = ("usr/bin/tshark", "usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/share/wireshark")
# Guesses at the protocol in an RDMA message take data for what it is not.
GUESSES = ("eth_over_ib", "mellanox_eoib", "rpcrdma_infiniband", "smb_direct_infiniband",
           "nvme_rdma", "lnet_ib", "iser_infiniband", "sdp_infiniband", "fc_infiniband")
# Checksums are complete in our captures, so they are checked; RoCEv2 over IPv6 has none in UDP.
PREFERENCES = (*(word for name in GUESSES for word in ("--disable-heuristic", name)),
               "-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE", "-o",
               "udp.check_checksum:TRUE", "-o", "udp.ignore_ipv6_zero_checksum:TRUE")
EXPERT_ERROR = 0x800000


@dataclass(frozen=True)
class Tshark:
    """A tshark that can be run."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()

    def run(self, capture: Path, *options: str, timeout: float = 120.0) -> list[str]:
        """Decodes a capture; returns the lines that it prints."""
        try:
            done = subprocess.run([*self.argv, "-n", "-r", os.fspath(capture), *PREFERENCES,
                                   *options], capture_output=True, text=True, timeout=timeout,
                                  check=False, env={**os.environ, **dict(self.env)})
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LabError(f"tshark of {capture.name}: {error}") from error
        words = [line for line in done.stderr.splitlines() if not line.startswith("Running as")]
        if done.returncode != 0 or words:
            raise LabError(f"tshark of {capture.name} ended with status {done.returncode}: "
                           f"{' '.join(words)[:300]}")
        return done.stdout.splitlines()

    def errors(self, capture: Path) -> list[str]:
        """The packets that it calls malformed or wrong, a line each."""
        return self.run(capture, "-Y",
                        f"_ws.malformed or _ws.short or _ws.expert.severity >= {EXPERT_ERROR}")


def _cached() -> Tshark:
    final = cache_dir() / f"tshark-{digest('tshark-1', SUITE, ' '.join(KEPT))}"
    if not final.exists():
        with cache_lock("tshark"):
            if not final.exists():
                host.ensure_packages(*host.for_trees({"mmdebstrap": "mmdebstrap"}))
                host.check_space(cache_dir(), SPACE_NEEDED, "tshark")
                log = logs_dir() / "tshark.log"
                log.unlink(missing_ok=True)
                with new_entry(final) as temp, Step(f"fetching tshark from {SUITE} (log: {log})"):
                    debian.extract(temp, SUITE, ["tshark"], KEPT, log)
    libs = final / "usr/lib/x86_64-linux-gnu"
    loader = final / "usr/lib64/ld-linux-x86-64.so.2"
    if not loader.exists():
        loader = libs / "ld-linux-x86-64.so.2"
    if not loader.exists():
        raise LabError(f"the cached tshark in {final} is damaged; remove that directory")
    return Tshark((os.fspath(loader), "--library-path", os.fspath(libs),
                   os.fspath(final / "usr/bin/tshark")),
                  (("WIRESHARK_DATA_DIR", os.fspath(final / "usr/share/wireshark")),
                   ("WIRESHARK_PLUGIN_DIR", os.fspath(libs / "wireshark/plugins"))))


def find_tshark() -> Tshark:
    """OPENMANA_TSHARK, or the host's own, or the one in the cache."""
    program = os.environ.get("OPENMANA_TSHARK") or find_program("tshark")
    return Tshark((program,)) if program else _cached()

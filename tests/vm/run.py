#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Guest tests: areas of cases in QEMU guests with Debian kernels and rdma-core, with the stock
RDMA driver and provider or with ours.

    run.py PAIR AREA...        PAIR: trixie, forky, trixie-backports, newest, mixed (server trixie,
                               client forky), or bookworm (Ethernet alone)

The areas of one call share the guests of one boot (areas with another layout get a boot of their
own). Exit status: 0 when every case passed or was skipped with its reason, 77 if there was no time
for some (--until), 1 otherwise.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from harness import (LAYOUTS, Area, Case, Context, LabError, Runner, SoftPeer,  # noqa: E402
                     Tally, ThirdNic)

from lab.build import build_for_evidence  # noqa: E402
from lab.debug_kernel import KERNELS, kernel_image  # noqa: E402
from lab.evidence import Evidence, Recorder, Setup, commit, key_of, sources  # noqa: E402
from lab.guest import CPUS, MEMORY, PATIENCE, GuestSpec  # noqa: E402
from lab.image import ETHERNET_ONLY, RELEASES, SUITES, cached_image  # noqa: E402
from lab.janitor import new_log_dir  # noqa: E402
from lab.proc import exit_on_signals  # noqa: E402
from lab.progress import set_quiet  # noqa: E402
from lab.rights import User, find_user  # noqa: E402
from lab.relay import FAR  # noqa: E402
from lab.session import Lab  # noqa: E402

PAIRS = {**{suite: (suite, suite) for suite in (*SUITES, *ETHERNET_ONLY)}, "mixed": RELEASES}
DISK = 128  # MiB
WIRE_MTU = 9000  # of the wire between two hosts
OUT_OF_TIME = 77  # ctest takes it for skipped
XDP_FAMILY = 44  # AF_XDP
# Layouts with Soft-RoCE on the other host, and the MTU there: frames by AF_XDP have several
# buffers, those in a tunnel leave room for its headers and a tag.
OUTSIDE = {"xdp": WIRE_MTU, "vxlan": WIRE_MTU - 54}
AREAS = tuple(sorted(path.stem for path in (HERE / "areas").glob("*.py")
                     if path.stem != "__init__"))


def families(areas: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Several areas whose names begin alike, by what these begin with, where that is no area."""
    found: dict[str, tuple[str, ...]] = {}
    for area in areas:
        prefix = area.partition("_")[0]
        members = tuple(one for one in areas if one.startswith(f"{prefix}_"))
        if len(members) > 1 and prefix not in areas:
            found[prefix] = members
    return found


FAMILIES = families(AREAS)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="run.py", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("pair", choices=PAIRS, help="suites of the guests")
    parser.add_argument("area", nargs="+", choices=(*AREAS, *FAMILIES), metavar="AREA",
                        help=f"what is tested: {', '.join(AREAS)}; or all areas of a family: "
                        f"{', '.join(FAMILIES)}")
    parser.add_argument("--list", action="store_true", help="print the cases, run none")
    parser.add_argument("--case", metavar="REGEX", help="only cases whose title matches")
    parser.add_argument("--long", action="store_true", help="the full matrices too")
    parser.add_argument("--smoke", action="store_true", help="of each area only the few cases that "
                        "say whether anything works; areas without such cases run whole")
    parser.add_argument("--rounds", type=int, default=3, metavar="N",
                        help="rounds of each lifecycle case (default 3)")
    parser.add_argument("--wire", choices=("capture", "udp", "far"),
                        help="take the local path away: capture all frames, or give each guest a "
                        "manad of its own, joined by UDP; far: through a path of 10 ms that loses "
                        "1 %% of all datagrams and changes the order of 1 %%")
    parser.add_argument("--cpus", type=int, metavar="N",
                        help=f"CPUs of each guest (default {CPUS['stock']}, with --kernel kcsan "
                        f"{CPUS['kcsan']}; 2 give two Ethernet queues)")
    for side, what in (("driver", "RDMA driver"), ("provider", "libibverbs provider")):
        parser.add_argument(f"--{side}", choices=("stock", "ours"),
                            default=os.environ.get(f"OPENMANA_{side.upper()}", "stock"),
                            help=f"the guests' {what} (default: stock, or "
                            f"OPENMANA_{side.upper()})")
    parser.add_argument("--ext", choices=("on", "off"),
                        default=os.environ.get("OPENMANA_EXT", "on"),
                        help="whether the NICs offer the extensions (default: on, or "
                        "OPENMANA_EXT)")
    parser.add_argument("--kernel", choices=KERNELS, default="stock",
                        help="the guests' kernel: Debian's, debug with KASAN, lockdep and the "
                        "kernel's other checkers, or kcsan with the detector of data races, whose "
                        "reports fail the run; these are some times slower, so time-outs are "
                        f"{PATIENCE['debug']:.0f} times as long (default: stock)")
    parser.add_argument("--qemu", choices=("stock", "patched"), default="stock",
                        help="patched: with tools/lab/qemu_patches, built from source first")
    parser.add_argument("--append", metavar="WORDS", default="",
                        help="more words for the guests' kernel command line")
    parser.add_argument("--manad", type=Path, metavar="PATH",
                        default=os.environ.get("OPENMANA_MANAD"),
                        help="this manad instead of the build's (or set OPENMANA_MANAD)")
    parser.add_argument("--manad-user", metavar="USER",
                        default=os.environ.get("OPENMANA_MANAD_USER") or None,
                        help="start manad as its package does: as this user (a name, or a number "
                        "that need not be anybody's), without a capability, and see that it stays "
                        "so; only for root (or set OPENMANA_MANAD_USER)")
    parser.add_argument("--manad-arg", action="append", default=[], metavar="ARG",
                        help="one more argument for manad; repeatable")
    parser.add_argument("--evidence", type=Path, metavar="DIR",
                        default=os.environ.get("OPENMANA_EVIDENCE"),
                        help="keep in files there (docs/evidence) what the cases showed, unless "
                        "--manad, --manad-arg or --append is given (default: OPENMANA_EVIDENCE, or "
                        "nowhere)")
    parser.add_argument("--resume", action="store_true",
                        default=bool(os.environ.get("OPENMANA_RESUME")),
                        help="leave out what the evidence shows of the same sources and guests")
    parser.add_argument("--until", type=float, metavar="SECONDS",
                        default=os.environ.get("OPENMANA_UNTIL"),
                        help="begin no case after this time (as date +%%s says it)")
    parser.add_argument("--missing", action="store_true",
                        help="list the cases that the evidence does not show, run none")
    parser.add_argument("--keep-logs", action="store_true", help="keep the logs of a good run too")
    parser.add_argument("--quiet", action="store_true", help="no progress lines")
    arguments = parser.parse_args()
    arguments.cpus = arguments.cpus or CPUS[arguments.kernel]
    if arguments.rounds < 1:
        parser.error("--rounds needs a number above 0")
    if arguments.case is not None:
        try:
            re.compile(arguments.case)
        except re.error as error:
            parser.error(f"--case {arguments.case}: {error}")
    if arguments.manad is not None or arguments.manad_arg or arguments.append:
        arguments.evidence = None  # of what only this run has
    if arguments.evidence is None and (arguments.resume or arguments.missing):
        parser.error("--resume and --missing need --evidence, and neither --manad, --manad-arg "
                     "nor --append")
    if arguments.manad_user is not None:
        try:
            find_user(arguments.manad_user)
        except LabError as error:
            parser.error(f"--manad-user {arguments.manad_user}: {error}")
    if arguments.manad is not None and not os.access(arguments.manad, os.X_OK):
        parser.error(f"--manad {arguments.manad}: no such program")
    return arguments


def chosen(area: Area, arguments: argparse.Namespace) -> list[Case]:
    """The cases of an area that are to run."""
    few = arguments.smoke and any(case.smoke for case in area.cases)
    return [case for case in area.cases
            if (arguments.long or not case.long) and (case.smoke or not few)
            and (arguments.case is None or re.search(arguments.case, case.title))]


def setup_of(area: str, arguments: argparse.Namespace) -> Setup:
    """Of which file of the evidence a run is."""
    variant = [arguments.wire] if arguments.wire else []
    usual = {"cpus": CPUS[arguments.kernel], "rounds": 3}
    variant += [f"{name}-{getattr(arguments, name)}" for name in usual
                if getattr(arguments, name) != usual[name]]
    variant += ["patched-qemu"] if arguments.qemu == "patched" else []
    variant += ["packaged"] if arguments.manad_user is not None else []
    return Setup(area, arguments.pair, arguments.driver, arguments.provider, arguments.ext,
                 arguments.kernel, "-".join(variant))


def not_shown(area: Area, arguments: argparse.Namespace, guests: list[str] | None) -> list[Case]:
    """The chosen cases that the evidence does not show; guests None: with whichever guests."""
    setup = setup_of(area.name, arguments)
    evidence = Evidence(setup, arguments.evidence)
    of = sources(setup)
    return [case for case in chosen(area, arguments) if case.title not in evidence.cases
            or not evidence.shows(case.title, of, evidence.run_of(case.title)["guests"]
                                  if guests is None else guests)]


def run_layout(layout: str, areas: list[Area], arguments: argparse.Namespace, tally: Tally,
               runner_number: int) -> int:
    """Boots the guests of a layout and runs its areas. Returns the number of the last case."""
    user = None
    if arguments.manad_user is not None:  # as debian/examples/tap.conf has it
        user = find_user(arguments.manad_user, ("net_admin",) if layout == "tap" else ())
    before = own_network(user) if layout == "tap" else []
    missing = ""
    if layout == "tap" and not before:
        missing = "no network namespace or no /dev/net/tun here"
    if layout in ("hosts", "move") and os.geteuid() != 0:
        missing = "two hosts on this one can be made by root alone"
    if layout in OUTSIDE:
        missing = no_outside(layout)
    if missing:
        for area in areas:
            for case in chosen(area, arguments):
                tally.skipped += 1
                runner_number += 1
                print(f"skip {runner_number} - {arguments.pair}.{area.name}: {case.title}: "
                      f"{missing}", flush=True)
        return runner_number
    suites = PAIRS[arguments.pair]
    kernel = {"kernel": arguments.kernel, "memory": MEMORY[arguments.kernel],
              "append": arguments.append}
    ours = {"driver": arguments.driver, "provider": arguments.provider, **kernel}
    disk = DISK if layout == "pair" else 0
    specs = [GuestSpec(suite, cpus=arguments.cpus, disk=disk, **ours) for suite in suites]
    ends = ((0, 0), (1, 0))
    nics = 1
    far = layout == "far" or (arguments.wire == "far" and layout == "pair")
    split = far or layout == "split" or (arguments.wire == "udp" and layout == "pair")
    kinds = {}
    pcap = Path(os.devnull) if arguments.wire == "capture" else None
    if layout == "one":
        specs = [GuestSpec(suites[-1], cpus=max(2, arguments.cpus), **ours)]
        ends = ((0, 0), (0, 0))
        nics = 2
    if layout == "plug":
        specs[1] = replace(specs[1], root_ports=1)
    if layout == "systemd":
        specs = [GuestSpec(suites[-1], cpus=max(2, arguments.cpus), systemd=True, **ours)]
        ends = ((0, 0), (0, 1))
        nics = 2
    if layout == "nodes":  # what is installed in them is in memory, too
        specs = [replace(spec, systemd=True, cpus=max(2, arguments.cpus),
                         memory=max(1536, spec.memory)) for spec in specs]
    if layout == "headers" and arguments.kernel == "stock":
        # compilers want more memory, and what they write is in memory too
        specs[1] = replace(specs[1], headers=True, cpus=max(2, arguments.cpus), memory=2048)
    if layout == "soft" or layout in OUTSIDE:
        specs[1] = GuestSpec(suites[1], cpus=arguments.cpus, nics=0, uplinks=1, **kernel)
        kinds[1] = SoftPeer
    if layout == "move":
        specs = [replace(spec, host=host) for host, spec in enumerate(specs)]
        specs.append(replace(specs[1]))
    if layout in ("networks", "hosts"):
        specs = [replace(spec, network=name, host=host if layout == "hosts" else None)
                 for name in ("red", "blue") for host, spec in enumerate(specs)]
    if layout == "tap":
        specs = specs[-1:]
    todo = {area.name: chosen(area, arguments) for area in areas}
    if arguments.resume:
        images = [kernel_image(spec.suite, spec.kernel, spec.headers) for spec in specs]
        todo = {area.name: not_shown(area, arguments, list(dict.fromkeys(map(key_of, images))))
                for area in areas}
    count = sum(map(len, todo.values()))
    shown = sum(len(chosen(area, arguments)) for area in areas) - count
    if shown:
        print(f"shown before, by the same sources and guests: {shown} cases", flush=True)
    if not count:
        return runner_number
    if arguments.until is not None and time.time() >= arguments.until:
        tally.left += count
        return runner_number
    recorder = None
    if arguments.evidence is not None:
        build_for_evidence(*{"third": ("hostile_client",), "networks": ("hostile_client",),
                             "systemd": ("traffic_client",)}.get(layout, ()))
        recorder = Recorder({area.name: setup_of(area.name, arguments) for area in areas},
                            arguments.evidence, commit())
    folder: list[Path] = []

    def keep() -> Path:
        if not folder:
            folder.append(new_log_dir(f"vm-{arguments.pair}"))
        return folder[0]

    with tempfile.TemporaryDirectory(prefix="openmana-vm-") as temp:
        place = Path(temp)  # for what manad makes
        if user is not None:
            place.chmod(0o711)
            place = user.folder(place / "manad", 0o711)
        if layout == "soft" or layout in OUTSIDE:
            pcap = place / "switch.pcap"
        manad_args = [*arguments.manad_arg]
        if pcap is not None and layout not in OUTSIDE:  # there the wire is recorded
            manad_args += ["--pcap", str(pcap)]
        if layout == "monitored":
            manad_args += ["--monitor", "on"]
        if layout == "tap":
            ends = ((0, 0), (0, 0))
            manad_args += ["--uplink", "tap=omtap%d"]
        third = ThirdNic(place / "third.sock") if layout == "third" else None
        manad_args += ["--nic", third.argument()] if third is not None else []
        return run_lab(Lab(specs, nics=nics, name=f"vm-{arguments.pair}", manad=arguments.manad,
                           manad_args=manad_args, keep_logs=arguments.keep_logs, split=split,
                           path=FAR if far else None,
                           ext=arguments.ext == "on", manad_user=user, manad_before=before,
                           mtu=OUTSIDE.get(layout),
                           wire_mtu=WIRE_MTU if layout in ("hosts", "move", *OUTSIDE) else None,
                           qemu=arguments.qemu,
                           outside=layout if layout in OUTSIDE else ""),
                       lambda lab: Context(lab, arguments.pair, arguments, ends, kinds, pcap,
                                           third),
                       keep, [(area, todo[area.name]) for area in areas], tally, runner_number,
                       recorder, arguments.until)


def no_outside(layout: str) -> str:
    """Why manad can have no such wire here; empty if it can."""
    if os.geteuid() != 0:
        return "network namespaces for two hosts can be made by root alone"
    if layout != "xdp":
        return ""
    try:
        socket.socket(XDP_FAMILY, socket.SOCK_RAW).close()
    except OSError as error:
        return f"no AF_XDP here: {error}"
    return ""


def own_network(user: User | None = None) -> list[str]:
    """Words that run a program with a network of its own, as root or as anybody; none if that
    cannot be, or it could have no TAP device there. A `user` that manad becomes may open the
    device, as udev has it."""
    words = ["unshare", "--net", *(() if os.geteuid() == 0 else ("--user", "--map-root-user"))]
    if user is not None:
        words += ["--mount", "sh", "-ec", "mount -t tmpfs tmpfs /dev/net; "
                  "mknod -m 666 /dev/net/tun c 10 200; exec \"$@\"", "own_network"]
    done = subprocess.run([*words, "test", "-w", "/dev/net/tun"], check=False, capture_output=True)
    return words if done.returncode == 0 else []


def run_lab(lab: Lab, make_context: Callable[[Lab], Context], keep: Callable[[], Path],
            areas: list[tuple[Area, list[Case]]], tally: Tally, runner_number: int,
            recorder: Recorder | None, until: float | None) -> int:
    """Boots a lab and runs areas in it. Returns the number of the last case."""
    with lab:
        context = make_context(lab)
        runner = Runner(context, tally, keep, runner_number, recorder=recorder, until=until)
        runner.start()
        lab.configure_network()
        for area, cases in areas:
            runner.run_area(area, cases)
        return runner.number


def list_missing(areas: list[Area], arguments: argparse.Namespace) -> None:
    """Prints the cases that the evidence does not show. Guests that are not in the cache may be
    any."""
    suites = PAIRS[arguments.pair]
    for area in areas:
        ones = suites[-1:] if area.layout in ("one", "systemd", "tap") else suites
        images = [cached_image(suite) for suite in ones]
        guests = None
        if None not in images and arguments.kernel == "stock" and area.layout != "headers":
            guests = list(dict.fromkeys(key_of(image) for image in images))
        missing = not_shown(area, arguments, guests)
        for case in missing:
            print(f"{setup_of(area.name, arguments).name.removesuffix('.json')}: {case.title}")


def main() -> int:
    """Runs what was asked for."""
    arguments = parse()
    exit_on_signals()
    set_quiet(arguments.quiet)
    os.environ["OPENMANA_VM_ROUNDS"] = str(arguments.rounds)
    areas = [importlib.import_module(f"areas.{name}").AREA
             for name in dict.fromkeys(member for name in arguments.area
                                       for member in FAMILIES.get(name, (name,)))]
    if arguments.list:
        for area in areas:
            for case in chosen(area, arguments):
                suites = f" ({', '.join(case.only)} only)" if case.only else ""
                print(f"{arguments.pair}.{arguments.driver}.{arguments.provider}.{area.name}: "
                      f"{case.title}{suites}")
        return 0
    if arguments.missing:
        list_missing(areas, arguments)
        return 0
    if not any(chosen(area, arguments) for area in areas):
        print(f"run.py: no case matches {arguments.case}", file=sys.stderr)
        return 2
    tally = Tally()
    begin = time.monotonic()
    number = 0
    for layout in LAYOUTS:
        mine = [area for area in areas if area.layout == layout and chosen(area, arguments)]
        if not mine:
            continue
        try:
            number = run_layout(layout, mine, arguments, tally, number)
        except LabError as error:
            tally.failed += 1
            number += 1
            names = ", ".join(area.name for area in mine)
            tally.failures.append(f"{arguments.pair}: lab of {names}")
            print(f"not ok {number} - {arguments.pair}: lab of {names}: {error}", flush=True)
    skipped = f", {tally.skipped} skipped" if tally.skipped else ""
    skipped += f", {tally.left} left, since the time was up" if tally.left else ""
    print(f"{tally.passed} passed, {tally.failed} failed{skipped} "
          f"({time.monotonic() - begin:.0f} s)", flush=True)
    for name in tally.failures:
        print(f"failed: {name}")
    if tally.failed:
        return 1
    return OUT_OF_TIME if tally.left else 0


if __name__ == "__main__":
    sys.exit(main())

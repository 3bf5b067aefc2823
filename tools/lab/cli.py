# SPDX-License-Identifier: Apache-2.0
"""The command line of manalab."""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

from . import progress
from .debug_kernel import KERNELS
from .errors import LabError
from .guest import CPUS, MEMORY, GuestSpec
from .image import ETHERNET_ONLY, RELEASES, SUITES, get_image
from .ours import SIDES, check_side
from .proc import exit_on_signals

CHOICES = (*SUITES, *ETHERNET_ONLY, "mixed")


def positive(text: str) -> int:
    """An argparse type: a whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no number") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value


def guest_specs(args: argparse.Namespace) -> list[GuestSpec]:
    """The guests that the options ask for."""
    names: list[str] = []
    for value in args.guest or ["trixie"]:
        names += value.split(",")
    for name in names:
        if name not in CHOICES:
            raise LabError(f"unknown guest '{name}'; there are {', '.join(CHOICES)}")
    if names == ["mixed"]:
        names = list(RELEASES)
        repeat = True
    elif "mixed" in names:
        raise LabError("'mixed' stands alone; name each guest instead")
    else:
        repeat = len(names) == 1
    count = args.guests or (2 if repeat else len(names))
    if not repeat and count != len(names):
        raise LabError(f"--guests {count} does not fit the {len(names)} guests that --guest names")
    if count > 64:
        raise LabError(f"{count} guests are too many (64 at most)")
    drivers, providers = args.driver.split(","), args.provider.split(",")
    for what, values in (("driver", drivers), ("provider", providers)):
        for value in values:
            check_side(what, value)
        if len(values) > count:
            raise LabError(f"--{what} names {len(values)} guests, there are {count}")
    networks = args.network.split(",")
    if len(networks) > count:
        raise LabError(f"--network names {len(networks)} guests, there are {count}")
    for name in networks:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,32}", name):
            raise LabError(f"--network: '{name}' is not a name of 1 to 32 letters, digits, '-', "
                           "'_' and '.'")
    return [GuestSpec(names[index % len(names)], args.cpus or CPUS[args.kernel],
                      args.memory or MEMORY[args.kernel], driver=drivers[index % len(drivers)],
                      provider=providers[index % len(providers)], kernel=args.kernel,
                      systemd=args.systemd, network=networks[index % len(networks)])
            for index in range(count)]


def add_guest_options(parser: argparse.ArgumentParser, virtio: bool = True) -> None:
    """Options that say which guests."""
    parser.add_argument("--guest", action="append", metavar="NAME",
                        help=f"{', '.join(CHOICES[:-1])} or mixed ({' and '.join(RELEASES)} by "
                        "turns); repeat it or give a,b to name each guest (default: trixie)")
    parser.add_argument("--guests", type=positive, metavar="N",
                        help="how many guests (default: 2)")
    parser.add_argument("--cpus", type=positive,
                        help=f"CPUs of a guest (default: {CPUS['stock']}, {CPUS['kcsan']} with "
                        "--kernel kcsan)")
    parser.add_argument("--memory", type=positive, metavar="MIB",
                        help="memory of a guest in MiB (default: "
                        f"{MEMORY['stock']}, {MEMORY['debug']} with --kernel debug, "
                        f"{MEMORY['kcsan']} with kcsan)")
    parser.add_argument("--mtu", type=positive, help="MTU of the interfaces (default: 1500)")
    parser.add_argument("--driver", default="stock", metavar="WHOSE",
                        help="the guests' RDMA driver: stock or ours, or a,b for each guest "
                        "(default: stock)")
    parser.add_argument("--provider", default="stock", metavar="WHOSE",
                        help="the guests' libibverbs provider, in the same way (default: stock)")
    parser.add_argument("--ext", choices=("on", "off"), default="on",
                        help="whether the NICs offer the extensions (default: on)")
    parser.add_argument("--kernel", choices=KERNELS, default="stock",
                        help="Debian's kernel, or one built from Debian's source: debug with "
                        "KASAN, lockdep and the kernel's other checkers, kcsan with the detector "
                        "of data races (default: stock)")
    parser.add_argument("--network", default="default", metavar="NAME",
                        help="the network of manad that the guests' NICs are in, or a,b for each "
                        "guest; guests of different networks have the same addresses (default: "
                        "default)")
    parser.add_argument("--systemd", action="store_true",
                        help="systemd is process 1 of the guests, with udev (default: neither)")
    if virtio:
        parser.add_argument("--nics", type=int, default=1, metavar="N",
                            help="MANA NICs of a guest (default: 1; 0: none)")
        parser.add_argument("--virtio", type=int, default=0, metavar="N",
                            help="virtio-net NICs between the guests of a pair (default: 0)")


def add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", default="default",
                        help="name of the lab, for several at once (default: default)")


def make_parser() -> argparse.ArgumentParser:
    """All commands and options."""
    parser = argparse.ArgumentParser(
        prog="manalab", description="Virtual machines with MANA RDMA NICs: see docs/lab.md.")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress lines")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="two guests, ib_write_bw between them",
                               description="Sets everything up, boots two guests and shows "
                               "ib_write_bw -a -F between them.")
    add_guest_options(demo, virtio=False)
    demo.add_argument("--iterations", type=positive, default=None,
                      help="ib_write_bw's -n (default: its own)")

    up = commands.add_parser("up", help="start a lab and leave it running",
                             description="Starts guests with NICs and addresses, and leaves them "
                             "running until 'manalab down'.")
    add_guest_options(up)
    add_name(up)
    up.add_argument("--manad-arg", action="append", default=[], metavar="ARG",
                    help="another argument for manad (repeatable; write --manad-arg=--opt)")
    up.add_argument("--no-network", action="store_true", help="leave the interfaces down")

    run = commands.add_parser("run", help="run a command in a guest of a running lab",
                              description="Runs a command in a guest; its output and exit "
                              "status are this command's.")
    add_name(run)
    run.add_argument("--timeout", type=positive, default=None, metavar="S",
                     help="end it after S seconds (default: never)")
    run.add_argument("target", metavar="GUEST", help="g0, g1, ... or 0, 1, ...")
    run.add_argument("argv", nargs=argparse.REMAINDER, metavar="COMMAND",
                     help="the command; one word with spaces goes to sh -c")

    shell = commands.add_parser("shell", help="a shell in a guest of a running lab",
                                description="An interactive shell in a guest.")
    add_name(shell)
    shell.add_argument("target", metavar="GUEST", nargs="?", default="g0",
                       help="g0, g1, ... (default: g0)")

    down = commands.add_parser("down", help="stop a running lab",
                               description="Stops the guests and manad of a lab.")
    add_name(down)
    down.add_argument("--all", action="store_true", help="all labs of this user")

    status = commands.add_parser("status", help="what runs",
                                 description="Shows the running labs, their guests and NICs.")
    status.add_argument("--json", action="store_true", help="as JSON")

    test = commands.add_parser("test", help="build and run the tests",
                               description="Builds the presets release and asan and runs "
                               "ctest over all; ends with ctest's summary and has its status.")
    test.add_argument("--long", action="store_true", help="also tests labelled *-long, "
                      "and the fuzzers")
    test.add_argument("--label", metavar="REGEX", help="only tests with such a label")
    test.add_argument("--filter", metavar="REGEX", help="only tests with such a name")
    test.add_argument("--exclude", metavar="REGEX", help="no tests with such a name")
    test.add_argument("--jobs", type=positive, default=None,
                      help="builds and tests at once (default: CPUs)")
    test.add_argument("--no-asan", action="store_true",
                      help="leave the preset asan out, and with it the unit tests")
    test.add_argument("--list", action="store_true", help="only list the tests")
    test.add_argument("--minutes", type=positive, metavar="N", help="tests with guests alone, and "
                      "no case begins after N minutes: the next time goes on there")
    test.add_argument("--again", action="store_true", help="with --long or --minutes: also what "
                      "docs/evidence shows of the same sources and guests")
    test.add_argument("--missing", action="store_true", help="list the cases with guests that "
                      "docs/evidence does not show, run none")
    for side in ("driver", "provider"):
        test.add_argument(f"--{side}", choices=SIDES, help=f"the {side} of guest tests that do "
                          "not name one themselves")
    test.add_argument("--ext", choices=("on", "off"), help="the same for the extensions")

    bench = commands.add_parser("bench", help="MANA beside Soft-RoCE, TCP and memcpy",
                                description="Measures bandwidth, latency and message rate of "
                                "MANA, Soft-RoCE, TCP and memcpy in one run; saves JSON and a "
                                "plot.")
    add_guest_options(bench, virtio=False)
    bench.add_argument("--output", type=Path, default=Path("bench-results"), metavar="DIR",
                       help="where to save (default: bench-results)")
    bench.add_argument("--quick", action="store_true", help="fewer sizes and iterations")
    bench.add_argument("--no-plot", action="store_true", help="save no plot")
    bench.add_argument("--beside-stock", action="store_true", help="with ours: measures two "
                       "guests with stock driver and provider too, by turns, and counts the "
                       "instructions of posting and polling of both")
    bench.add_argument("--two-hosts", action="store_true", help="measures guests on two hosts "
                       "(network namespaces, joined by a wire of --mtu) beside guests on one, a "
                       "plain UDP sender on that wire, and Soft-RoCE on two hosts; for root; "
                       "saves hosts.json")
    bench.add_argument("--tuning", action="store_true", help="measures what can be set, each "
                       "beside what the lab has, by turns: interrupts and their moderation, the "
                       "MTU, huge pages, manad's CPUs; with --cpus 2, for root; saves tuning.json")

    migrate = commands.add_parser("migrate", help="a guest moves while ib_write_bw runs to it",
                                  description="Two guests on two hosts (network namespaces, each "
                                  "with a manad): the second moves to the other host and back by "
                                  "live migration, with the lab's own build of QEMU, while the "
                                  "first writes to it. Saves bandwidth over time as JSON and a "
                                  "plot. For root.")
    add_guest_options(migrate, virtio=False)
    migrate.add_argument("--moves", type=positive, default=4, metavar="N",
                         help="how often it moves (default: 4)")
    migrate.add_argument("--output", type=Path, default=Path("migrate-results"), metavar="DIR",
                         help="where to save (default: migrate-results)")
    migrate.add_argument("--no-plot", action="store_true", help="save no plot")

    prepare = commands.add_parser("prepare", help="make what guests need, run none",
                                  description="Makes what the cache does not have: the image of "
                                  "each suite, QEMU, and our driver and provider. What demo, up "
                                  "and test would do at their start.")
    prepare.add_argument("suites", choices=SUITES, nargs="*", metavar="SUITE",
                         help=f"{', '.join(SUITES)} (default: {' and '.join(RELEASES)})")
    for side in ("driver", "provider"):
        prepare.add_argument(f"--{side}", choices=SIDES, default="stock",
                             help=f"whose {side} (default: stock)")

    kernel = commands.add_parser("kernel", help="build a debug kernel of a suite",
                                 description="Builds the kernel of --kernel debug (or kcsan), if "
                                 "the cache does not have it, and prints where it is.")
    kernel.add_argument("suite", choices=SUITES, nargs="?", default=SUITES[0],
                        help=f"whose kernel source (default: {SUITES[0]})")
    kernel.add_argument("--variant", choices=KERNELS[1:], default=KERNELS[1],
                        help=f"which of them (default: {KERNELS[1]})")

    serve = commands.add_parser("_serve")
    add_guest_options(serve)
    add_name(serve)
    serve.add_argument("--manad-arg", action="append", default=[])
    serve.add_argument("--no-network", action="store_true")
    commands._choices_actions = [action for action in commands._choices_actions
                                 if action.dest != "_serve"]
    commands.metavar = "COMMAND"
    return parser


def dispatch(args: argparse.Namespace) -> int:
    """Runs the chosen command; returns the exit status. Modules are loaded when needed."""
    if args.command == "demo":
        from . import demo
        return demo.run(guest_specs(args), args.mtu, args.iterations, args.ext == "on")
    if args.command == "test":
        from . import tests
        return tests.run(args)
    if args.command == "bench":
        if args.two_hosts:
            from . import two_hosts
            return two_hosts.run(guest_specs(args), args.mtu, args.output, args.quick,
                                 args.ext == "on")
        if args.tuning:
            from . import tuning
            return tuning.run(guest_specs(args), args.mtu, args.output, args.quick,
                              args.ext == "on")
        from . import bench
        return bench.run(guest_specs(args), args.mtu, args.output, args.quick, not args.no_plot,
                         args.ext == "on", args.beside_stock)
    if args.command == "migrate":
        from . import migrate
        return migrate.run(guest_specs(args), args.mtu, args.moves, args.output,
                           not args.no_plot, args.ext == "on")
    if args.command == "prepare":
        from . import prepare
        return prepare.run(list(dict.fromkeys(args.suites or RELEASES)), args.driver, args.provider)
    if args.command == "kernel":
        from . import debug_kernel
        print(debug_kernel.build_kernel(get_image(args.suite), args.variant))
        return 0
    from . import supervisor
    if args.command == "up":
        return supervisor.up(args, guest_specs(args))
    if args.command == "_serve":
        return supervisor.serve(args, guest_specs(args))
    if args.command == "run":
        return supervisor.run(args.name, args.target, args.argv, args.timeout)
    if args.command == "shell":
        return supervisor.shell(args.name, args.target)
    if args.command == "down":
        return supervisor.down(None if args.all else args.name)
    if args.command == "status":
        return supervisor.status(args.json)
    raise LabError(f"unknown command {args.command}")


def main(argv: list[str]) -> int:
    """Runs manalab; every failure is one line on stderr and a non-zero status."""
    args = make_parser().parse_args(argv)
    progress.set_quiet(args.quiet)
    exit_on_signals()
    try:
        return dispatch(args)
    except LabError as error:
        print(f"manalab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("manalab: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except OSError as error:
        print(f"manalab: {error}", file=sys.stderr)
        return 1

# SPDX-License-Identifier: Apache-2.0
"""Every byte and every completion, by rdma_verify.c."""

from __future__ import annotations

from functools import partial

from harness import Area, Context
from programs import set_mtu, verify

AREA = Area("verify")


def run(options: tuple[str, ...], sges: bool, netdev_mtu: int, context: Context) -> None:
    """rdma_verify with options."""
    if netdev_mtu != 1500:
        set_mtu(netdev_mtu, *context.peers)
    try:
        said = verify(context, *options, sges=sges)
    finally:
        if netdev_mtu != 1500:
            set_mtu(1500, *context.peers)
    context.note(said.strip().removeprefix("verified: "))


def add(title: str, *options: str, sges: bool = False, mtu: int = 1500, long: bool = False,
        smoke: bool = False) -> None:
    """A case."""
    AREA.add(title, partial(run, options, sges, mtu), long=long, smoke=smoke)


for _name, _option in (("a message", "--spoil"), ("the bytes beside a message", "--spoil-gap")):
    def spoilt(option: str, context: Context) -> None:
        """The program must see a wrong byte, or the other cases mean nothing."""
        verify(context, "--rounds", "3", "--max", "4096", "--min", "64", "--ops",
               "write,send,write_imm", expect=1, server_options=(option,))

    AREA.add(f"a byte spoilt in {_name} is seen", partial(spoilt, _option))

add("all operations, sizes 0 to 8 MiB at all edges", "--seed", "11", "--batch", "2",
    "--align", "1", smoke=True)
add("random sizes at odd addresses, both directions at once", "--seed", "12", "--rounds", "60",
    "--batch", "24", "--max", "70000", "--both", "--align", "3")
add("many SGEs", "--seed", "13", "--rounds", "60", "--batch", "16", "--max", "40000", "--both",
    "--align", "7", sges=True)
add("64 queue pairs", "--seed", "14", "--rounds", "20", "--batch", "100", "--qps", "64", "--both",
    "--max", "20000", smoke=True)
add("post lists of 16, one CQ for both directions", "--seed", "15", "--rounds", "40", "--batch",
    "64", "--list", "16", "--one-cq", "--both", "--max", "9000")
add("PSN wraps at 2^24", "--seed", "16", "--rounds", "20", "--batch", "8", "--max", "65536",
    "--psn", "0xfffff0", "--both")
add("PSN wraps inside large messages", "--seed", "17", "--rounds", "6", "--batch", "2", "--min",
    "1000000", "--max", "3000000", "--psn", "0xfff800")
add("completion events", "--seed", "18", "--rounds", "40", "--batch", "8", "--max", "5000",
    "--events", "--both", smoke=True)
add("queue pairs that signal all", "--seed", "19", "--rounds", "30", "--batch", "16", "--max",
    "5000", "--signal-all", "--both", "--qps", "4")
add("fenced WRITEs of what a READ before them fetched", "--seed", "20", "--rounds", "40",
    "--batch", "16", "--ops", "fence", "--max", "100000", "--both")
add("path MTU 4096 with jumbo frames", "--seed", "21", "--rounds", "40", "--batch", "16", "--max",
    "300000", "--mtu", "4096", "--both", "--align", "5", mtu=9000)
add("path MTU 256", "--seed", "22", "--rounds", "40", "--batch", "16", "--max", "40000", "--mtu",
    "256", "--both")
add("over IPv6", "--seed", "23", "--rounds", "20", "--batch", "16", "--max", "40000", "--family",
    "6", "--both")
add("many short messages, mostly unsignaled", "--seed", "24", "--rounds", "60", "--batch", "100",
    "--max", "64", "--both", "--list", "8")

for _mtu, _net in (("512", 1500), ("2048", 9000), ("4096", 9000)):
    add(f"all operations at all edges, path MTU {_mtu}", "--seed", "31", "--batch", "3", "--mtu",
        _mtu, "--align", "9", "--both", sges=True, mtu=_net, long=True)
for _seed in range(40, 50):
    add(f"long random run, seed {_seed}", "--seed", str(_seed), "--rounds", "300", "--batch", "32",
        "--max", "200000", "--both", "--qps", "8", "--list", "4", "--align", str(_seed),
        sges=True, long=True)

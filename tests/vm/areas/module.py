# SPDX-License-Identifier: Apache-2.0
"""Our kernel module: what it says of itself, and that it goes at any time, in full traffic too."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial

from areas.cm import rping
from areas.lifecycle import address, traffic, works
from checkers import plain, split_reports
from harness import Area, Context, Peer, check, skip
from lab.errors import CommandTimeout
from programs import configure

AREA = Area("module", needs=("driver",))
ROUNDS = int(os.environ.get("OPENMANA_VM_ROUNDS", "3"))
AUXILIARY = "/sys/bus/auxiliary/drivers"


@AREA.case("modinfo names description, licence, author, alias and version", smoke=True)
def modinfo(context: Context) -> None:
    for peer in context.peers:
        text = peer.out("modinfo mana_ib")
        fields = dict(re.findall(r"^(\w+):\s+(.*)$", text, re.M))
        for name in ("filename", "description", "license", "author", "version", "vermagic",
                     "depends"):
            check(fields.get(name), f"{peer.name}: modinfo has no {name}: {text}")
        check("/updates/" in fields["filename"], f"{peer.name}: {fields['filename']} is not ours")
        check(fields["license"] in ("GPL", "GPL v2", "Dual BSD/GPL"),
              f"{peer.name}: licence {fields['license']}")
        check(re.search(r"^alias:\s+auxiliary:mana\.rdma$", text, re.M),
              f"{peer.name}: no alias for the auxiliary device: {text}")
        # 7.2 has what it takes of ib_uverbs in ib_core
        check({"mana", "ib_core"} <= set(fields["depends"].split(",")),
              f"{peer.name}: depends on {fields['depends']}")


@AREA.case("the kernel log has nothing but the module's own plain lines")
def dmesg(context: Context) -> None:
    for peer in context.peers:
        text = peer.out("dmesg").splitlines()
        known = {words for report in split_reports(text) if report.reason
                 for words in report.lines}  # about the core, and of areas before this one
        lines = [line for line in text if plain(line) not in known]
        bad = [line for line in lines if re.search(
            r"BUG|WARNING|Oops|Call Trace|KASAN|UBSAN|lockdep|refcount_t|use-after|leaked", line)
               and not re.search(r"rcu:\s+RCU .* enabled", line)]  # a debug kernel, when it boots
        check(not bad, f"{peer.name}: {'; '.join(bad[:5])}")
        # 7.2's core has a line for each change of the link, and areas before this one make some
        mine = [line for line in lines
                if re.search(r"\bmana_ib\b|\bmana_\d+:", line)
                and not re.search(r"Port: \d+ Link (ACTIVE|DOWN)$", line)]
        check(len(mine) <= 12, f"{peer.name}: {len(mine)} lines, among them {mine[:12]}")


@AREA.case("sysfs shows a device like any other")
def sysfs(context: Context) -> None:
    for peer in context.peers:
        base = f"/sys/class/infiniband/{peer.rdma}"
        for name, wanted in (("node_type", r"1: CA"), ("fw_ver", r"\S+"),
                             ("node_guid", r"[\da-f:]+"), ("ports/1/state", r"4: ACTIVE"),
                             ("ports/1/link_layer", "Ethernet"),
                             ("ports/1/gids/0", r"fe80:.*"),
                             ("ports/1/gid_attrs/types/0", "RoCE v2")):
            text = peer.out(f"cat {base}/{name}").strip()
            check(re.fullmatch(wanted, text), f"{peer.name}: {name} is '{text}'")
        if peer.has("provider"):  # the stock one asks for no version
            told = re.search(r"fw_ver:\s+(\S+)", peer.out(f"ibv_devinfo -d {peer.rdma}"))
            firmware = peer.out(f"cat {base}/fw_ver").strip()
            check(told and told[1] == firmware and firmware != "0.0.0",
                  f"{peer.name}: fw_ver is {firmware}, to programs {told and told[1]}")
        check(peer.out(f"readlink -f {base}/device/driver").strip().endswith("/mana")
              or "mana_ib" in peer.out(f"readlink -f {base}/device/driver"),
              f"{peer.name}: the device has no driver in sysfs")


@AREA.case("tracepoints tell of requests, states and the kernel's queues", smoke=True)
def traces(context: Context) -> None:
    base = "/sys/kernel/tracing"
    if context.a.run(f"test -d {base}", check=False).status:
        skip("a kernel without tracing")
    for peer in context.peers:
        peer.run(f"echo >{base}/trace && echo 1 >{base}/events/mana_ib/enable")
    rping("-S 64", context)
    for peer in context.peers:
        text = peer.out(f"echo 0 >{base}/events/mana_ib/enable; cat {base}/trace")
        for event in (r"hwc_req: dev=mana_\d opcode=0x\w+ status=0x0 err=0",
                      r"qp_state: dev=mana_\d qpn=0x\w+ from=0 to=1 err=0",
                      r"wqe_post: dev=mana_\d qpn=0x1 queue=sq offset=0x\w+ opcode=2",
                      r"cqe: dev=mana_\d cqn=0x\w+ offset=0x\w+ queue=rq id=0x1"):
            check(re.search(rf" {event}$", text, re.M),
                  f"{peer.name}: no '{event}' in: {text[-2000:]}")


@AREA.case("load and unload, many rounds", timeout=60.0 + 12 * ROUNDS)
def load_and_unload(context: Context) -> None:
    peer = context.b
    before = peer.out("grep -E '^(Slab|SUnreclaim)' /proc/meminfo")
    peer.run(f"for i in $(seq {ROUNDS}); do rmmod mana_ib && modprobe mana_ib || exit 1; "
             "[ -n \"$(ls /sys/class/infiniband)\" ] || { echo no device in round $i >&2; "
             "exit 1; }; done", timeout=40.0 + 12 * ROUNDS)
    works(context, peer)
    context.note(f"{ROUNDS} rounds; before: {' '.join(before.split())}")


def take_auxiliary(peer: Peer) -> str:
    """Takes the RDMA device from its driver. The command that gives it back."""
    name = peer.out("ls /sys/bus/auxiliary/devices | grep mana.rdma").split()[0]
    driver = peer.out(f"basename $(ls -d {AUXILIARY}/*mana*/)").strip()
    peer.run(f"echo {name} >{AUXILIARY}/{driver}/unbind", timeout=60)
    return f"echo {name} >{AUXILIARY}/{driver}/bind"


def unbind_auxiliary(peer: Peer) -> None:
    """Takes the RDMA device from its driver, and gives it back."""
    give_back = take_auxiliary(peer)
    peer.run(f"sleep 1 && {give_back}", timeout=60)


def unbind_pci(peer: Peer) -> None:
    """The same with the whole function."""
    at = address(peer)
    peer.run(f"echo {at} >/sys/bus/pci/drivers/mana/unbind && sleep 1 && "
             f"echo {at} >/sys/bus/pci/drivers/mana/bind", timeout=60)


def unplug(peer: Peer) -> None:
    """The function leaves the bus, and is found again."""
    at = address(peer)
    peer.run(f"echo 1 >/sys/bus/pci/devices/{at}/remove && sleep 1 && "
             "echo 1 >/sys/bus/pci/rescan", timeout=60)


def sleep(peer: Peer) -> None:
    """Suspends the guest and wakes it. Without the test mode nobody would wake it."""
    states = peer.out("cat /sys/power/state").split()
    check("freeze" in states, f"{peer.name} cannot sleep: {states}")
    peer.run("echo devices >/sys/power/pm_test && echo freeze >/sys/power/state; slept=$?; "
             "echo none >/sys/power/pm_test; exit $slept", timeout=120)


# What mana and mana_ib say when the device does not know their queues any more, and what a debug
# kernel says of memory of the parent's (docs/kernel.md, "Known gaps").
RESET_MESSAGES = (r"mana \S+( eth\d+)?: (HWC: Request timed out!|Command 0x\w+ timed out: \d+ ms|"
                  r"Command 0x\w+ failed with status: 0x0, err: -110|resetting|reset done|"
                  r"(Failed to|test_eq failed).*: -110\b.*|Gf stats wk handler: .* timed out\.|"
                  r"mana_ib: (request 0x\w+: no answer|the device is cut off from memory))|"
                  r"DMA-API: pci \S+ device driver has pending DMA allocations while released .*")
BUS_MASTER = 4  # in the command register
RECOVERY = 150.0  # 30 s until the parent gives a request up, then it ends and starts the device


def device_number(peer: Peer) -> int:
    """The number of the RDMA device, which no later one gets again; 0 if there is none."""
    found = re.search(r"^(\d+): mana_", peer.out("rdma dev show"), re.M)
    return int(found[1]) if found else 0


def reset(peer: Peer) -> None:
    """FLR under the driver's feet. The parent of 6.12 does nothing about it: the function is bound
    anew. That of 7.2 resets a silent device by itself, and has to be let do it (docs/kernel.md)."""
    before = device_number(peer)
    peer.run(f"echo 1 >/sys/bus/pci/devices/{address(peer)}/reset && sleep 2", timeout=60)
    bring_back(peer, before)


def bring_back(peer: Peer, before: int) -> None:
    """After the reset of a device that had this number."""
    if peer.suite == "trixie":
        peer.run(f"echo 1 >/sys/bus/pci/devices/{address(peer)}/remove && "
                 "echo 1 >/sys/bus/pci/rescan", timeout=120)
        return
    peer.until(f"[ $(rdma dev show | sed -n 's/^\\([0-9]*\\): mana_.*/\\1/p') -gt {before} ] "
               "2>/dev/null", "the parent driver did not bring the device back", RECOVERY)


@AREA.case("a device that does not answer is cut off from memory", timeout=300.0)
def cut_off(context: Context) -> None:
    """Before anything is given back that it may write to. The parent of 7.2 starts it anew too soon
    to see that."""
    b = context.b
    if b.suite != "trixie":
        skip("the parent driver resets the device")
    context.expect_kernel(b, RESET_MESSAGES)
    number = device_number(b)
    command = f"od -An -tu2 -j4 -N2 /sys/bus/pci/devices/{address(b)}/config"
    check(int(b.out(command)) & BUS_MASTER, "a driver runs a function that does not master the bus")
    b.run(f"echo 1 >/sys/bus/pci/devices/{address(b)}/reset")
    check(int(b.out(command)) & BUS_MASTER, "the reset took the bus from the function")
    b.run(f"ibv_devinfo -d {b.rdma}", check=False, timeout=60)
    b.until("dmesg | grep -q 'mana_ib: request .*: no answer'", "the device answered", RECOVERY)
    b.until(f"[ $(( $({command}) & {BUS_MASTER} )) = 0 ]", "the function still masters the bus", 20)
    check("keeping memory" not in b.out("dmesg"), "memory is kept")
    bring_back(b, number)
    b.until("[ -n \"$(ls -A /sys/class/infiniband)\" ]", "the RDMA device did not come back", 30)
    configure(context, b)
    works(context, b)


def in_traffic(action: Callable[[Peer], None], context: Context) -> None:
    """The device goes in full RDMA traffic while another program waits for events."""
    a, b = context.a, context.b
    server, client = traffic(context)
    watcher = b.spawn(f"exec stdbuf -oL ibv_asyncwatch -d {b.rdma}")
    watcher.wait_output("async event FD", 20)
    if action is reset:
        context.expect_kernel(b, RESET_MESSAGES)
    action(b)
    try:
        watcher.wait_output("event_type", 20)
    except CommandTimeout:
        check(False, "no async event came to the program that waits for one")
    # perftest spins on its CQ: it must be possible to end it, and to end it leaves nothing
    for peer, started in ((b, client), (a, server), (b, watcher)):
        if started.status is None:
            started.kill()
        peer.finish(started, 20, check=False)
    b.until("[ -n \"$(ls -A /sys/class/infiniband)\" ]", "the RDMA device did not come back", 30)
    configure(context, b)
    works(context, b)


for _title, _action in (("driver unbound from the RDMA device", unbind_auxiliary),
                        ("driver unbound from the function", unbind_pci),
                        ("hot unplug", unplug), ("function level reset", reset),
                        ("guest suspended and woken", sleep)):
    AREA.add(f"{_title} in full traffic", partial(in_traffic, _action), timeout=300.0)

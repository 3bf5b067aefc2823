#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the seed inputs of the fuzz targets, in corpus/<target>/.

Most targets read their input as a list of decisions, so that any bytes are a run of the target;
these get deterministic bytes of several lengths. The texts of the control target are written out.
Of `hwc` there is a seed for each command, made from the table of the hostile driver: what it needs,
then the command itself, so that the device does it; hwc_reach.cc looks.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
TABLE = HERE.parent / "support" / "hostile_commands.cc"
DECIDED = {"vfio_user": 60, "bar": 50, "hwc": 80, "wqe": 120, "memory": 120, "frames": 160,
           "uplink": 160, "esp": 160, "state": 160}
LINES = [
    "--nic\nid=a,socket=/run/a",
    "--nic\nid=a,socket=/run/a,mac=02:00:00:00:00:01,mtu=9000,speed=100000,error-cqes=asked",
    "--nic\nid=a,socket=/run/a\n--nic\nid=b,socket=/run/b\n--control\n/run/c\n--log\ndebug",
    "--nic\nid=a,socket=/run/a,mac=01:00:00:00:00:01",
    "--nic\nid=a",
    "--help",
    "--version",
]
REQUESTS = [
    '{"command":"status"}\n{"command":"stats"}\n{"command":"qps"}',
    '{"command":"stats","nic":"a"}',
    '{"command":"link","nic":"a","state":"down"}\n{"command":"link","nic":"a","state":"up"}',
    '{"command":"reset","nic":"b"}',
    '{"command":7}\n[]\n{"command":"link","nic":"c"}\n{"command":"\\ud800"}',
]


# For the hardware channel: the first byte (what is set up: 1 Ethernet, 2 all objects), and entries
# of the table by opcode, "#1" being the second one of it, with the bytes of fields that are not to
# be plain. A field that takes an object has the latest one of its kind, with 1 the one before.
REGION = "CREATE_DMA_REGION"
TWO = f"{REGION} {REGION}"
CHAINS = (
    (0, "VERIFY_DRIVER_VERSION QUERY_MAX_RESOURCES LIST_DEVICES QUERY_HWC_TIMEOUT"),
    (0, "REGISTER_DEVICE#1 DEREGISTER_DEVICE#1"),
    (0, "GENERATE_TEST_EQE"),
    (0, f"{REGION} CREATE_QUEUE DISABLE_QUEUE"),
    (0, "ALLOCATE_RESOURCE_RANGE DESTROY_RESOURCE_RANGE"),
    (0, f"{REGION}#1 DMA_REGION_ADD_PAGES DESTROY_DMA_REGION"),
    (0, f"{REGION} CREATE_MR DESTROY_MR CREATE_PD DESTROY_PD"),
    (0, "ALLOC_DM DESTROY_DM ALLOC_DM CREATE_MR#1"),
    (0, f"{REGION} CREATE_MR#2 CREATE_MR#3 CREATE_MR#4"),
    (1, "ETH_QUERY_DEV_CONFIG ETH_QUERY_GF_STAT ETH_QUERY_VPORT_CONFIG ETH_QUERY_LINK_CONFIG"
        " ETH_QUERY_PHY_STAT ETH_SET_BW_CLAMP:speed=5 ETH_CONFIG_VPORT_TX"),
    (1, f"{TWO} ETH_CREATE_WQ_OBJ:cq_region=1 ETH_CONFIG_VPORT_RX ETH_FENCE_RQ"
        " ETH_DESTROY_WQ_OBJ"),
    (0, "RNIC_QUERY_CAPS RNIC_CONFIG_ADDRESS RNIC_CONFIG_MAC RNIC_QUERY_VF_COUNTERS"
        " RNIC_QUERY_DEVICE_COUNTERS RNIC_DESTROY_ADAPTER RNIC_CREATE_ADAPTER"),
    (0, f"{REGION} RNIC_CREATE_CQ RNIC_DESTROY_CQ"),
    (0, f"{REGION} RNIC_CREATE_CQ {TWO} RNIC_CREATE_UD_QP:rq_region=1 RNIC_SET_QP_STATE:state=1"
        " RNIC_DESTROY_UD_QP"),
    (0, f"{REGION} RNIC_CREATE_CQ {TWO} {TWO} RNIC_CREATE_RC_QP:regions[1]=1,regions[3]=2,"
        "regions[4]=3 RNIC_SET_QP_STATE:state=1 RNIC_DESTROY_RC_QP"),
    (0, f"{REGION} RNIC_CREATE_CQ {TWO} {REGION} RNIC_CREATE_UC_QP:regions[1]=1,regions[2]=2"),
    (2, f"EXT_QUERY_CAPS {REGION} EXT_CREATE_CQ {REGION} EXT_RESIZE_CQ"),
    (2, f"{REGION} EXT_CREATE_QP EXT_QUERY_QP EXT_QUERY_QP_COUNTERS EXT_DESTROY_QP {REGION}"
        " EXT_CREATE_QP#1"),
    (2, f"{REGION} CREATE_MR {REGION} EXT_MODIFY_MR ALLOC_DM EXT_COPY_DM"),
    (2, "CREATE_PD#1 EXT_GRANT_SOURCE EXT_REVOKE_SOURCE"),
    (2, f"{REGION} EXT_CREATE_SRQ EXT_MODIFY_SRQ EXT_QUERY_SRQ EXT_DESTROY_SRQ"),
    (2, "EXT_ATTACH_MULTICAST EXT_DETACH_MULTICAST"),
    (1, f"{TWO} EXT_CREATE_PACKET_WQ:cq_region=1 EXT_ADD_FLOW EXT_REMOVE_FLOW EXT_CREATE_SPREAD"
        " EXT_ADD_FLOW#1 EXT_DESTROY_SPREAD"),
    (2, "EXT_CONFIG_ADDRESS EXT_CONFIG_ADDRESS:operation=2"),
    (2, f"{REGION} EXT_CREATE_QP EXT_SET_QP_STATE:base.state=1 EXT_DESTROY_QP"),
)
# The driver asks once more before it sends these.
ENDS_ALL = ("DEREGISTER_DEVICE", "DISABLE_QUEUE", "RNIC_DESTROY_ADAPTER")
REQUEST = b"\x03"  # a step of hwc_fuzz.cc: a command of the table
ANY_NUMBER = 240  # of a field: none of those that are meant for it


def arguments(text: str) -> list[str]:
    """What is between commas that are in no brackets."""
    found, depth = [""], 0
    for char in text:
        depth += (char in "([{<") - (char in ")]}>")
        if char == "," and depth == 0:
            found.append("")
        else:
            found[-1] += char
    return [" ".join(one.split()) for one in found]


def enclosed(text: str, start: int) -> str:
    """What is in the brackets that open at `start`."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if depth == 0:
            return text[start + 1:at]
    raise ValueError("brackets that do not close")


def read_table() -> tuple[list[str], list[list[tuple[str, str]]]]:
    """The commands of the hostile driver in their order: opcode, name and kind of each field."""
    text = TABLE.read_text()
    text = text[text.index("gdma_commands"):]
    opcodes, fields = [], []
    for match in re.finditer(r"\bCOMMAND\(", text):
        opcode, *_, wanted, _ = arguments(enclosed(text, match.end() - 1))
        row = []
        for field in arguments(wanted[1:-1]):
            if not field:
                continue
            words = arguments(enclosed(field, field.index("(")))
            kind = next(word for word in words if re.fullmatch(r"k[A-Z]\w*", word))
            row.append((words[0], kind))
        opcodes.append(opcode.removeprefix("MANA_HW_"))
        fields.append(row)
    return opcodes, fields


def command(word: str, opcodes: list[str], fields: list[list[tuple[str, str]]]) -> bytes:
    """The decisions of hwc_fuzz.cc that send an entry of the table."""
    name, _, values = word.partition(":")
    name, _, place = name.partition("#")
    entry = [at for at, opcode in enumerate(opcodes) if opcode == name][int(place or 0)]
    chosen = dict(value.split("=") for value in values.split(",") if value)
    data = REQUEST + bytes([entry]) + (b"\xff" if name in ENDS_ALL else b"")
    for field, kind in fields[entry]:
        value = int(chosen.pop(field, 0))
        if kind in ("kSmall", "kNumber"):
            # Behind the first byte: a number below 64 is itself.
            data += bytes([ANY_NUMBER, value]) if value else b"\0" + b"\0" * (kind == "kNumber")
        else:
            data += bytes([value])
    if chosen:
        raise ValueError(f"{name} has no {', '.join(chosen)}")
    return data + bytes(3)  # no byte of the header is wrong, the length is right, sent as others


def write(target: str, number: int, data: bytes) -> None:
    """One seed."""
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{number:02}").write_bytes(data)


def main() -> None:
    """All seeds, the same each time."""
    for target, unit in DECIDED.items():
        source = random.Random(target)
        for number in range(8):
            write(target, number, source.randbytes(unit // 4 << (number // 2)))
    # Ethernet frames from the guest: steps of the kind 7, where one begins with that byte.
    source = random.Random("ethernet")
    write("hwc", 8, b"\x11" + b"".join(b"\x07" + source.randbytes(90) for _ in range(12)))
    opcodes, fields = read_table()
    for number, (setup, words) in enumerate(CHAINS):
        data = b"".join(command(word, opcodes, fields) for word in words.split())
        write("hwc", 10 + number, bytes([setup]) + data)
    texts = [b"\x01" + line.encode() for line in LINES]
    texts += [b"\x00" + text.encode() for text in REQUESTS]
    for number, text in enumerate(texts):
        write("control", number, text)


if __name__ == "__main__":
    main()

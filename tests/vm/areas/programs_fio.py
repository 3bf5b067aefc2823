# SPDX-License-Identifier: Apache-2.0
"""fio's engine `rdma`: it connects by rdma_cm and allows no RNR retry. With the verb `send` the
server keeps as many receives as the client has messages under way, and posts each one again when it
has seen what came: the client, whose messages are acknowledged before that, is often ahead of it.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from harness import Area, CaseFailed, Context, Peer, check

AREA = Area("programs_fio", needs=("driver", "provider"))
QUIET = "--output-format=json </dev/null"


def fio_command(peer: Peer, *words: str) -> str:
    """fio with the engine `rdma`."""
    return " ".join(["fio", "--name=rdma", "--ioengine=rdma", "--iodepth=16", "--thread", *words])


def fio_report(said: str) -> Any:
    """The job of its report, behind the lines that it prints before."""
    return json.loads(said[said.index("{"):])["jobs"][0]


def fio(verb: str, block: str, megabytes: int, context: Context) -> None:
    """Moves bytes from client to server (`read`: back); both ends count the same."""
    server, client = context.a, context.b
    port = context.port()
    size = (f"--port={port}", f"--bs={block}", f"--size={megabytes}m")
    listener = server.spawn(f"{fio_command(server, '--rw=read', *size)} {QUIET}")
    server.until(f"rdma resource show cm_id | grep LISTEN | grep -q ':{port} '",
                 "fio does not listen", 30)
    command = fio_command(client, f"--hostname={server.ip()}", f"--verb={verb}", "--rw=write",
                          *size)
    context.ran("fio", client.version("fio"), command)
    done = client.run(f"{command} {QUIET}", timeout=100, check=False)
    if done.status != 0:
        raise CaseFailed(f"{client.name}: fio --verb={verb} ended with status {done.status}: "
                         f"{(done.stderr + done.stdout).strip()[-400:]}")
    server.finish(listener, 30)
    sent = fio_report(done.stdout)
    check(sent["error"] == 0, f"fio --verb={verb}: error {sent['error']}")
    moved = sent["write"]["io_bytes"]
    check(moved == megabytes << 20, f"fio --verb={verb}: the client moved {moved} bytes")
    if verb == "send":
        got = fio_report(listener.stdout)["read"]["io_bytes"]
        check(got == moved, f"fio --verb=send: the server got {got} of {moved} bytes")
    context.note(f"{sent['write']['bw']} KiB/s")


for _verb in ("send", "write", "read"):
    AREA.add(f"fio --ioengine=rdma --verb={_verb}, 64 KiB, 16 under way",
             partial(fio, _verb, "64k", 64), timeout=240.0, smoke=_verb == "send")
AREA.add("fio --ioengine=rdma --verb=send, 4 KiB, 16 under way", partial(fio, "send", "4k", 16),
         timeout=240.0)

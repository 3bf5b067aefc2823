# SPDX-License-Identifier: Apache-2.0
"""Memory regions on dma-bufs of Debian's kernels, by dmabuf.c: pages of a memfd (udmabuf), the same
page by page in another order, and the system heap."""

from __future__ import annotations

from functools import partial

from harness import Area, CaseFailed, Context, check

AREA = Area("dmabuf", needs=("driver", "provider"))
KINDS = {"udmabuf": "a udmabuf is written, read and sent from; errors; deregistration",
         "shuffled": "a udmabuf of pages in another order",
         "heap": "a buffer of /dev/dma_heap/system"}


def run(kind: str, context: Context) -> None:
    """The program at both ends; the server's buffer is the dma-buf."""
    a, b = context.a, context.b
    port = context.port()
    words = ["--port", str(port), "--kind", kind]
    server = a.spawn([context.program(a, "dmabuf.c"), "--dev", a.rdma, "--server", *words])
    a.wait_listening(port, server)
    client = b.run([context.program(b, "dmabuf.c"), "--dev", b.rdma, "--host", a.ip(), *words],
                   timeout=90, check=False)
    status = a.finish(server, 60, check=False)
    if client.status or status:
        raise CaseFailed(f"dmabuf --kind {kind}: server {status}: {server.stderr.strip()}; client "
                         f"{client.status}: {client.stderr.strip()}")
    check(server.stdout.startswith(f"{kind}: "), f"the server said {server.stdout!r}")


for _kind, _title in KINDS.items():
    AREA.add(_title, partial(run, _kind), smoke=_kind == "udmabuf")

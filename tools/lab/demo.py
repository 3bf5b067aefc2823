# SPDX-License-Identifier: Apache-2.0
"""manalab demo: ib_write_bw between two guests."""

from __future__ import annotations

import sys
import time

from .build import ensure_manad
from .channel import Command
from .errors import CommandTimeout, LabError
from .guest import Guest, GuestSpec
from .progress import Step, say
from .session import Lab

PERFTEST_PORT = 18515


def wait_listening(server: Guest, listener: Command, port: int, rdma_cm: bool = False,
                   timeout: float = 30.0) -> None:
    """Waits until a server takes connections: on a TCP port, or with the RDMA connection
    manager."""
    probe = ("rdma resource show cm_id | grep -q LISTEN" if rdma_cm
             else f"ss -Hltn 'sport = :{port}' | grep -q .")
    waiter = server.spawn(f"until {probe}; do sleep 0.05; done")
    deadline = time.monotonic() + timeout
    try:
        while waiter.status is None:
            if listener.status is not None:
                raise LabError(f"{server.name}: '{listener.text}' ended with status "
                               f"{listener.status}: "
                               f"{(listener.stderr or listener.stdout).strip()[-300:]}",
                               server.console_log)
            if server.channel.error is not None:
                raise server.channel.error
            if time.monotonic() > deadline:
                raise LabError(f"{server.name}: '{listener.text}' did not listen within "
                               f"{timeout:.0f} s", server.console_log)
            time.sleep(0.05)
    finally:
        if waiter.status is None and server.alive:
            waiter.kill()


def perftest(server: Guest, client: Guest, program: str, *options: str, timeout: float = 120.0,
             server_device: str | None = None, client_device: str | None = None,
             address: str | None = None) -> str:
    """Runs a perftest pair to its end; returns the client's output."""
    common = [program, *options]
    listener = server.spawn([*common, "-d", server_device or server.rdma_device()])
    try:
        wait_listening(server, listener, PERFTEST_PORT, rdma_cm="-R" in options)
        caller = client.spawn([*common, "-d", client_device or client.rdma_device(),
                               address or server.ip()])
        try:
            status = caller.wait(timeout)
        except CommandTimeout as error:
            raise LabError(f"{error.message}; it wrote: {error.stdout.strip()[-300:]}",
                           client.console_log) from error
        if status != 0:
            words = (caller.stderr.strip() or caller.stdout.strip())[-300:]
            raise LabError(f"{client.name}: {program} ended with status {status}: {words}",
                           client.console_log)
        if listener.wait(30) != 0:
            raise LabError(f"{server.name}: {program} ended with status {listener.status}: "
                           f"{listener.stderr.strip()[-300:]}", server.console_log)
    finally:
        if listener.status is None and server.alive:
            listener.kill()
    return caller.stdout


def run(specs: list[GuestSpec], mtu: int | None, iterations: int | None, ext: bool = True
        ) -> int:
    """Everything from nothing to the table."""
    if len(specs) < 2:
        raise LabError("the demo needs two guests")
    # refuses what makes no sense, before work
    whole = Lab(specs, nics=1, mtu=mtu, ext=ext, name="demo")
    ensure_manad()
    with whole as lab:
        lab.configure_network()
        server, client = lab.guests[0], lab.guests[1]
        say(f"{client.name}: {client.interface()} {client.ip()}, {client.rdma_device()}; "
            f"{server.name}: {server.interface()} {server.ip()}, {server.rdma_device()}")
        options = ["-a", "-F"] + (["-n", str(iterations)] if iterations else [])
        with Step(f"ib_write_bw {' '.join(options)} from {client.name} to {server.name}"):
            table = perftest(server, client, "ib_write_bw", *options, timeout=600)
    sys.stdout.write(table)
    return 0

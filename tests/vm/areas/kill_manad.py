# SPDX-License-Identifier: Apache-2.0
"""The peer's manad is killed in full RDMA traffic over a UDP uplink, and comes back."""

from __future__ import annotations

from areas import errors, kill, lifecycle
from harness import Area, CaseFailed, Context, check
from programs import configure, quick_rdma

AREA = Area("kill_manad", layout="split")


def one_round(context: Context) -> None:
    """Traffic from b to a, the end of a's manad, and traffic again."""
    victim, survivor = context.a, context.b
    _, client = errors.traffic(context)
    daemon = context.lab.manad_of(victim.index)
    before = context.lab.manad_of(survivor.index).pid
    daemon.kill()
    errors.lost(context, client)
    survivor.until("! pidof ib_write_bw >/dev/null", "ib_write_bw goes on without its peer", 30)
    check(context.lab.manad_of(survivor.index).pid == before, "the other manad was started anew")
    victim.guest.kill()  # QEMU has no second connection to a device server
    daemon.start()
    lifecycle.replace(context, victim)
    configure(context, victim)
    quick_rdma(context)


@AREA.case("manad killed in full RDMA traffic: retries used up, the next one is found",
           timeout=60.0 + 40 * kill.ROUNDS)
def killed(context: Context) -> None:
    first = None
    for number in range(kill.ROUNDS):
        try:
            one_round(context)
        except CaseFailed as error:
            raise CaseFailed(f"round {number + 1} of {kill.ROUNDS}: {error}") from error
        if first is None:
            first = kill.Footprint.of(context, context.b)
    context.note(f"{kill.ROUNDS} rounds")
    if first is not None:  # of the manad that lives through all of it
        kill.no_growth(context, context.b, first, kill.ROUNDS - 1)

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mana/ext.h>
#include <mana/ext_eth.h>

#include <cstring>

#include "support/eth_guest.h"
#include "unit/fabric/nic_fixture.h"

namespace openmana::fabric::nic_test {

/// The packet queues of a NIC: a send queue, and a receive queue that a rule gives everything.
struct PacketQueues {
    explicit PacketQueues(Machine& machine) : guest(machine.host.hwc()) {
        machine.nic.ethernet().allow_packets(true);
        OM_CHECK(guest.probe());
        guest.packets = true;
        tx = *guest.create_tx();
        rx = *guest.create_rx(1600);
        for (int i = 0; i < 4; ++i) guest.post_buffer(rx);
        const auto all =
            Request(MANA_HW_EXT_ADD_FLOW, 168, 40, 2).put<std::uint64_t>(40, rx.object);
        OM_CHECK(machine.host.hwc().call(all).ok());
    }
    static base::Frame frame(const base::MacAddr& to, const base::MacAddr& from) {
        base::Frame out(60);
        std::memcpy(out.data(), to.data(), to.size());
        std::memcpy(out.data() + 6, from.data(), from.size());
        out[12] = std::byte{0x88};
        out[13] = std::byte{0xb5};
        return out;
    }

    ::openmana::test::EthGuest guest;
    ::openmana::test::EthTx tx;
    ::openmana::test::EthRx rx;
};

}  // namespace openmana::fabric::nic_test

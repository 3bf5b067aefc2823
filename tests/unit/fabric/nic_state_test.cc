// SPDX-License-Identifier: Apache-2.0
// The state of a whole NIC: one that has read it goes on where the other was, what is broken is
// refused and leaves a NIC without anything, and files of earlier versions are read for ever.
#include <gtest/gtest.h>
#include <mana/eth.h>
#include <mana/ext_eth.h>
#include <mana/queue.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/endian.h"
#include "base/state.h"
#include "support/eth_guest.h"
#include "support/ext_host.h"
#include "support/state_damage.h"
#include "unit/fabric/nic_fixture.h"

namespace openmana::fabric::nic_test {
namespace {

/// Of the first version of everything: a NIC with a driver, a connected RC queue pair with a
/// request under way, and an address. Kept as it was written.
const std::string kGolden = OPENMANA_SOURCE_DIR "/tests/unit/fabric/states/nic-1.state";

class NicStateTest : public NicTest {
protected:
    [[nodiscard]] std::vector<std::byte> state_of(const Machine& machine) const {
        return written(machine.nic);
    }
    /// Into a NIC of its own switch, which is made for it.
    base::Result<void> load(std::span<const std::byte> state, std::uint8_t number = 1,
                            bool extensions = true) {
        Switch elsewhere(world);
        SimExecutor executor(world);
        FakeIrq irq;
        NicConfig config = nic_config(number);
        config.extensions = extensions;
        Nic nic(executor, *memory, irq, elsewhere, config);
        auto in = base::StateReader::open(state, world.now());
        if (!in) return tl::unexpected(in.error());
        const auto loaded = nic.load(*in);
        counts = nic.function().object_counts();
        if (loaded) again = written(nic);
        world.run_until_idle();
        return loaded;
    }
    [[nodiscard]] std::vector<std::byte> written(const Nic& nic) const {
        return ::openmana::test::written(world.now(),
                                         [&](base::StateWriter& out) { nic.save(out); })
            .bytes;
    }
    /// The state of a NIC whose driver has negotiated the extension, as if it had not.
    [[nodiscard]] static std::vector<std::byte> not_negotiated(std::vector<std::byte> state) {
        constexpr std::size_t kPartHead = 16;
        constexpr std::size_t kCounter = 16;
        const auto part = std::ranges::search(state, std::as_bytes(std::span("RNIC", 4)));
        auto at = static_cast<std::size_t>(part.begin() - state.begin()) + kPartHead;
        at += 4 + kCounter * base::load_le<std::uint32_t>(&state[at]);
        EXPECT_EQ(state[at], std::byte{1}) << "there is an adapter";
        EXPECT_EQ(state[at + 1], std::byte{1});
        state[at + 1] = std::byte{0};
        return ::openmana::test::with_head(std::span(state).subspan(24));
    }
    /// A request that nobody has answered, and one that waits behind it.
    void leave_under_way() {
        connect(a, b);
        b.nic.set_link(false);
        SendWr request;
        request.opcode = MANA_HW_RNIC_WQE_WRITE;
        request.sges = {{a.buffer.value(), gdma::Key(a.mr.lkey), 3000}};
        request.remote_address = b.buffer.value();
        request.rkey = b.mr.rkey;
        for (int i = 0; i < 2; ++i) ASSERT_TRUE(a.host.post_send(*a.qp, request));
    }

    /// By a NIC with ext=off, and by no other.
    void is_refused_without_extensions(std::span<const std::byte> state, const char* which,
                                       std::uint8_t number = 1) {
        const auto with = load(state, number);
        EXPECT_TRUE(with) << which << ": " << with.error().text;
        const auto without = load(state, number, false);
        ASSERT_FALSE(without) << which;
        EXPECT_STREQ(without.error().text, "extensions that this NIC does not have") << which;
        EXPECT_EQ(counts, gdma::ObjectCounts()) << which;
    }

    base::GuestMemory* memory = &a.memory;  ///< of the guest whose NIC it is
    gdma::ObjectCounts counts;
    std::vector<std::byte> again;
};

TEST_F(NicStateTest, WhoHasReadItWritesTheSame) {
    leave_under_way();
    const auto state = state_of(a);
    const auto loaded = load(state);
    ASSERT_TRUE(loaded) << loaded.error().text;
    EXPECT_EQ(again, state);
    EXPECT_EQ(counts, a.nic.function().object_counts());
}

// What a guest or a peer says wrongly is no reason to refuse the state of the NIC to which it was
// said, and with it an upgrade.
TEST_F(NicStateTest, ACqThatIsArmedForEntriesBeforeItsFirstIsRead) {
    a.host.hwc().ring_moderation(
        a.host.device.page, a.send_cq.id,
        MANA_HW_DB_MODERATION_USEC_VALID | 100ULL << MANA_HW_DB_MODERATION_USEC_SHIFT);
    a.host.hwc().ring_cq(a.host.device.page, a.send_cq.id, 1404,
                         true);  // 256 entries; the next to come is number 256
    const auto loaded = load(state_of(a));
    EXPECT_TRUE(loaded) << loaded.error().text;
}

TEST_F(NicStateTest, APacketThatIsTooLongAndWaitsBehindAnotherIsRead) {
    connect(a, b);
    const std::vector<std::byte> payload(60000);
    roce::Packet packet;
    packet.destination_mac = a.host.mac();
    packet.source_mac = b.host.mac();
    packet.source = b.host.gid();
    packet.destination = a.host.gid();
    packet.opcode = roce::Opcode::kSendOnly;
    packet.destination_qpn = roce::Qpn(a.qp->qpn());
    packet.psn = roce::Psn(0x900);
    for (const std::size_t length : {std::size_t{64}, payload.size()}) {
        packet.payload = std::span(payload).first(length);
        base::Frame frame;
        roce::encode(packet, frame);
        a.nic.deliver(frame);
        world.run_until_idle();
        ++packet.psn;
    }
    const auto state = state_of(a);
    ASSERT_GT(state.size(), payload.size());
    const auto loaded = load(state);
    EXPECT_TRUE(loaded) << loaded.error().text;
}

/// Each by itself, as only who writes a state by hand has it.
TEST_F(NicStateTest, ExtensionsThatANicDoesNotHaveAreNotToBeHadByAState) {
    EXPECT_TRUE(load(state_of(a), 1, false)) << "it has none";
    a.nic.ethernet().allow_packets(true);
    is_refused_without_extensions(state_of(a), "packet queues");
    a.nic.ethernet().allow_packets(false);
    a.nic.function().key_changes().allow_fast_registration(true);
    is_refused_without_extensions(state_of(a), "fast registration");
}

/// The same of what a driver makes with packet queues, which are allowed while it does.
TEST_F(NicStateTest, PacketQueuesThatANicDoesNotHaveAreNotToBeHadByAState) {
    ::openmana::test::EthGuest guest(a.host.hwc());
    ASSERT_TRUE(guest.probe());
    guest.packets = true;
    const auto is_refused = [&](const char* which) {
        a.nic.ethernet().allow_packets(false);
        is_refused_without_extensions(state_of(a), which);
        a.nic.ethernet().allow_packets(true);
    };
    a.nic.ethernet().allow_packets(true);
    const auto tx = guest.create_tx();
    ASSERT_TRUE(tx);
    is_refused("send queue for packets");
    ASSERT_TRUE(guest.destroy(MANA_HW_ETH_SQ, tx->object).ok());
    const auto rx = guest.create_rx(1600);
    ASSERT_TRUE(rx);
    is_refused("receive queue for packets");
    const auto spread = a.host.hwc().call(Request(MANA_HW_EXT_CREATE_SPREAD, 600, 40, 2)
                                              .put<std::uint32_t>(44, 1)
                                              .put<std::uint64_t>(88, rx->object));
    ASSERT_TRUE(spread.ok());
    // It stays when its queues end.
    ASSERT_TRUE(guest.destroy(MANA_HW_ETH_RQ, rx->object).ok());
    is_refused("spread over packet queues");
}

/// And of what it makes for RDMA, of which the state does not say that it was negotiated.
TEST_F(NicStateTest, RdmaObjectsThatANicDoesNotHaveAreNotToBeHadByAState) {
    constexpr std::uint8_t kNumber = 3;
    Machine c(world, network, kNumber, 0, true);
    memory = &c.memory;
    ::openmana::test::ExtHost ext(c.host);
    c.nic.ethernet().allow_packets(false);
    c.nic.function().key_changes().allow_fast_registration(false);
    is_refused_without_extensions(state_of(c), "negotiation", kNumber);
    const auto is_refused = [&](const char* which) {
        is_refused_without_extensions(not_negotiated(state_of(c)), which, kNumber);
    };
    EXPECT_TRUE(load(not_negotiated(state_of(c)), kNumber, false)) << "it has none";
    const roce::Address tagged(c.host.gid(), 10);
    ASSERT_TRUE(ext.config_address(tagged, true));
    is_refused("address in a VLAN");
    ASSERT_TRUE(ext.config_address(tagged, false));
    const auto cq = ext.create_cq();
    ASSERT_TRUE(cq);
    is_refused("CQ with a record");
    const auto qp = ext.create_qp(*cq, *cq);
    ASSERT_TRUE(qp);
    is_refused("extended queue pair");
    ASSERT_TRUE(ext.destroy_qp(*qp) && ext.destroy_cq(*cq));
    EXPECT_TRUE(load(not_negotiated(state_of(c)), kNumber, false)) << "it has none again";
    ASSERT_TRUE(ext.create_srq());
    is_refused("shared receive queue");
}

TEST_F(NicStateTest, ALinkThatTheOperatorHasTakenDownStaysSoWhateverAClientBrings) {
    const auto state = state_of(a);
    Switch elsewhere(world);
    SimExecutor executor(world);
    FakeIrq irq;
    Nic nic(executor, a.memory, irq, elsewhere, nic_config(1));
    nic.set_link(false);
    nic.stop();
    auto in = base::StateReader::open(state, world.now());
    ASSERT_TRUE(in);
    ASSERT_TRUE(nic.load(*in));
    EXPECT_TRUE(nic.ethernet().link()) << "as the guest knows it";
    nic.start();
    EXPECT_FALSE(nic.link());
    EXPECT_FALSE(nic.ethernet().link()) << "it is told";
}

TEST_F(NicStateTest, ThatOfANicWithAnotherMacAddressIsRefused) {
    const auto loaded = load(state_of(a), 3);
    ASSERT_FALSE(loaded);
    EXPECT_STREQ(loaded.error().text, "state of a NIC with another MAC address");
    EXPECT_EQ(counts, gdma::ObjectCounts());
}

// Each part is told to be of version 9: none is taken, and nothing of it stays.
TEST_F(NicStateTest, ThatOfANewerBuildIsRefusedWhole) {
    const auto state = state_of(a);
    for (const std::string tag : {"NIC ", "GDMA", "TABL", "ETH ", "RNIC"}) {
        const auto text = std::as_bytes(std::span(tag));
        const auto found = std::ranges::search(state, text);
        ASSERT_FALSE(found.empty()) << tag;
        auto newer = state;
        newer[static_cast<std::size_t>(found.begin() - state.begin()) + tag.size()] = std::byte{9};
        newer = ::openmana::test::with_head(std::span(newer).subspan(24));
        const auto loaded = load(newer);
        ASSERT_FALSE(loaded) << tag;
        EXPECT_STREQ(loaded.error().text, "part of a newer version") << tag;
        EXPECT_EQ(counts, gdma::ObjectCounts()) << tag;
    }
}

// A state that anybody may have made: any byte is another. It is refused, or it is that of a NIC
// that works.
TEST_F(NicStateTest, AnyByteMayBeAnother) {
    leave_under_way();
    const auto state = state_of(a);
    base::Random random(27);
    unsigned refused = 0;
    for (int i = 0; i < 400; ++i) {
        auto broken = state;
        const std::size_t at = 24 + random.below(broken.size() - 24);
        broken[at] = static_cast<std::byte>(random.next());
        const auto loaded = load(::openmana::test::with_head(std::span(broken).subspan(24)));
        if (loaded) continue;
        ++refused;
        EXPECT_EQ(counts, gdma::ObjectCounts()) << at;
    }
    EXPECT_GT(refused, 100);
}

TEST_F(NicStateTest, TheFirstVersionIsRead) {
    if (const char* const target = std::getenv("OPENMANA_WRITE_STATE"); target != nullptr) {
        leave_under_way();
        const auto state = state_of(a);
        std::ofstream(target, std::ios::binary)
            .write(reinterpret_cast<const char*>(state.data()),
                   static_cast<std::streamsize>(state.size()));
    }
    std::ifstream file(kGolden, std::ios::binary);
    ASSERT_TRUE(file) << kGolden;
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const auto loaded = load(std::as_bytes(std::span(text)));
    ASSERT_TRUE(loaded) << loaded.error().text;
    EXPECT_EQ(counts.eqs, 3);
    EXPECT_EQ(counts.cqs, 3);
    EXPECT_EQ(counts.keys, 3);
}

}  // namespace
}  // namespace openmana::fabric::nic_test

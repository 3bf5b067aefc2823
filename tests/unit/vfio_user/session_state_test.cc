// SPDX-License-Identifier: Apache-2.0
// A conversation that goes on in another process, wherever it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "support/state_damage.h"
#include "support/vfio_user_client.h"
#include "unit/vfio_user/fake_backend.h"
#include "vfio_user/session.h"
#include "vfio_user/version.h"

namespace openmana::vfio_user {
namespace {

using base::StateReader;
using base::StateWriter;
using base::UniqueFd;
using test::read_state;
using test::Written;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::IsEmpty;

/// One side of a conversation, with what is behind it.
struct Side {
    FakeBackend backend;
    Counters counters;
    Session session{backend, counters, "nic"};

    bool feed(std::span<const std::byte> data, std::vector<UniqueFd> fds = {}) {
        const auto room = session.receive_room();
        EXPECT_LE(data.size(), room.size());
        std::copy(data.begin(), data.end(), room.begin());
        return session.receive(data.size(), fds).has_value();
    }
    std::vector<std::byte> take_output() {
        const auto output = session.output();
        std::vector<std::byte> result(output.begin(), output.end());
        session.sent(output.size());
        return result;
    }
    [[nodiscard]] Written state() const {
        return test::written({}, [&](StateWriter& out) { session.save(out); });
    }
    /// The reason of a refusal, or "".
    std::string load(const Written& state) {
        const auto read = read_state(state, {}, [&](StateReader& in) { session.load(in); });
        return read ? "" : read.error().text;
    }
};

template <typename T>
std::vector<std::byte> message(std::uint16_t id, Command command, const T& payload) {
    std::vector<std::byte> result;
    put_message(result, id, command, 0, std::as_bytes(std::span(&payload, 1)));
    return result;
}
const std::vector<std::byte> kHello = message(1, Command::kVersion, VersionHead{});
const std::vector<std::byte> kMap =
    message(2, Command::kDmaMap, DmaMapRequest{32, 3, 0, 0x1000, 0x1000});

class SessionStateTest : public testing::Test {
protected:
    void negotiate() {
        ASSERT_TRUE(side.feed(kHello));
        (void)side.take_output();
    }
    Side side;
    Side other;
};

TEST_F(SessionStateTest, ThereIsNoSecondHello) {
    negotiate();
    ASSERT_EQ(other.load(side.state()), "");
    ASSERT_TRUE(other.feed(message(2, Command::kDeviceReset, std::uint8_t{0})));
    EXPECT_THAT(other.backend.take(), ElementsAre("reset"));
}

TEST_F(SessionStateTest, AClientThatSaidNothingYetIsStillToBegin) {
    ASSERT_EQ(other.load(side.state()), "");
    EXPECT_FALSE(other.feed(message(2, Command::kDeviceReset, std::uint8_t{0})));
}

TEST_F(SessionStateTest, TheLongestReadIsThatWhichWasAgreedOn) {
    std::vector<std::byte> hello;
    Writer writer(hello);
    writer.put(VersionHead{});
    writer.put_bytes(std::as_bytes(std::span("{\"capabilities\":{\"max_data_xfer_size\":4096}}")));
    std::vector<std::byte> bytes;
    put_message(bytes, 1, Command::kVersion, 0, hello);
    ASSERT_TRUE(side.feed(bytes));
    (void)side.take_output();
    ASSERT_EQ(other.load(side.state()), "");
    ASSERT_TRUE(other.feed(message(2, Command::kRegionRead, RegionAccess{0, 0, 4097})));
    EXPECT_THAT(other.backend.take(), IsEmpty());
    ASSERT_TRUE(other.feed(message(3, Command::kRegionRead, RegionAccess{0, 0, 4096})));
    EXPECT_THAT(other.backend.take(), ElementsAre("read 0 0x0 4096"));
}

TEST_F(SessionStateTest, AMessageGoesOnWhereItWasCutWithItsDescriptor) {
    for (std::size_t cut = 1; cut < kMap.size(); ++cut) {
        Side before;
        Side after;
        ASSERT_TRUE(before.feed(kHello));
        (void)before.take_output();
        std::vector<UniqueFd> fds;
        fds.push_back(test::make_memfd(0x1000));
        ASSERT_TRUE(before.feed(std::span(kMap).first(cut), std::move(fds)));
        ASSERT_EQ(after.load(before.state()), "") << cut;
        ASSERT_TRUE(after.feed(std::span(kMap).subspan(cut)));
        EXPECT_THAT(after.backend.take(), ElementsAre("map 0x1000 0x1000 offset=0x0 rw fd=true"));
        EXPECT_THAT(before.backend.take(), IsEmpty());
    }
}

TEST_F(SessionStateTest, RepliesThatTheClientDidNotTakeAreSent) {
    negotiate();
    ASSERT_TRUE(side.feed(kMap));
    const std::vector<std::byte> reply(side.session.output().begin(), side.session.output().end());
    side.session.sent(5);
    ASSERT_EQ(other.load(side.state()), "");
    EXPECT_THAT(other.take_output(), ElementsAreArray(std::span(reply).subspan(5)));
}

TEST_F(SessionStateTest, ABacklogIsHandledThereAndOnce) {
    negotiate();
    // Each is answered with 200 KiB, so that the third waits for room, with what is behind it.
    std::vector<std::byte> all;
    for (std::uint16_t id = 2; id < 6; ++id) {
        const auto one = message(id, Command::kRegionRead, RegionAccess{id, 0, 200 * 1024});
        all.insert(all.end(), one.begin(), one.end());
    }
    all.insert(all.end(), kMap.begin(), kMap.end());
    std::vector<UniqueFd> fds;
    fds.push_back(test::make_memfd(0x1000));
    ASSERT_TRUE(side.feed(all, std::move(fds)));
    ASSERT_TRUE(side.session.backlog());
    EXPECT_THAT(side.backend.take(), ElementsAre("read 0 0x2 204800", "read 0 0x3 204800"));
    ASSERT_EQ(other.load(side.state()), "");
    ASSERT_TRUE(other.session.backlog());
    EXPECT_EQ(other.take_output().size(), 2 * (sizeof(Header) + sizeof(RegionAccess) + 204800));
    ASSERT_TRUE(other.session.resume());
    (void)other.take_output();
    if (other.session.backlog()) {
        ASSERT_TRUE(other.session.resume());
    }
    EXPECT_THAT(other.backend.take(), ElementsAre("read 0 0x4 204800", "read 0 0x5 204800",
                                                  "map 0x1000 0x1000 offset=0x0 rw fd=true"));
    // Where it was written it can go on as well.
    (void)side.take_output();
    ASSERT_TRUE(side.session.resume());
    EXPECT_THAT(side.backend.take(), ElementsAre("read 0 0x4 204800", "read 0 0x5 204800"));
}

TEST_F(SessionStateTest, WhatNoClientCanHaveSentIsRefused) {
    const auto refused = [&](bool backlog, std::span<const std::byte> input, std::size_t output,
                             std::uint64_t max_read = 4096) {
        const Written state = test::written({}, [&](StateWriter& out) {
            out.begin("SESS", 1);
            out(true, max_read, backlog);
            out.bytes(input);
            out.count(0);
            out.count(0);
            out.bytes(std::vector<std::byte>(output));
            out.end();
        });
        return Side().load(state);
    };
    EXPECT_EQ(refused(false, {}, 0), "");
    EXPECT_EQ(refused(false, kMap, 0), "messages that are not handled");
    EXPECT_EQ(refused(true, kMap, 0), "");
    EXPECT_EQ(refused(true, std::vector<std::byte>(2U << 20), 0), "messages that are not handled");
    EXPECT_EQ(refused(false, {}, 2U << 20), "more replies than there may be");
    EXPECT_EQ(refused(false, {}, 0, 1ULL << 40), "longer reads than are offered");
}

TEST_F(SessionStateTest, DamageIsRefusedOrGivesASessionThatCanBeUsed) {
    negotiate();
    std::vector<UniqueFd> fds;
    fds.push_back(test::make_memfd(0x1000));
    ASSERT_TRUE(side.feed(std::span(kMap).first(20), std::move(fds)));
    const Written good = side.state();
    FakeBackend backend;  // its memory is large: one for all
    Counters counters;
    test::for_each_damage(good.bytes, [&](const std::vector<std::byte>& bytes, const auto&) {
        Session target(backend, counters, "nic");
        const auto read =
            read_state({bytes, good.descriptors}, {}, [&](StateReader& in) { target.load(in); });
        if (!read) return;
        target.sent(target.output().size());
        if (target.backlog() && !target.resume()) return;
        if (target.backlog()) return;
        const auto rest = std::span(kMap).subspan(20);
        std::copy(rest.begin(), rest.end(), target.receive_room().begin());
        (void)target.receive(rest.size(), {});
    });
}

}  // namespace
}  // namespace openmana::vfio_user

// SPDX-License-Identifier: Apache-2.0
#include "fabric/port_path.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "unit/fabric/frames.h"

namespace openmana::fabric {
namespace {

using namespace std::chrono_literals;
using ::openmana::test::SimExecutor;
using ::openmana::test::SimWorld;
using test::FrameMaker;
using test::gid;
using test::number_of;
using test::numbered;

class RecordingTap final : public FrameTap {
public:
    void frame(std::span<const std::byte> frame) override { seen.push_back(number_of(frame)); }
    std::vector<std::uint32_t> seen;
};

class RecordingSink final : public FlowSink {
public:
    void line(std::string_view text) override { lines.emplace_back(text); }
    std::vector<std::string> lines;
};

class PortPathTest : public ::testing::Test, public PortPath::Exits {
protected:
    void to_network(base::Frame frame) override { network.push_back(number_of(frame)); }
    void to_guest(base::FrameView frame) override { guest.push_back(number_of(frame)); }
    std::size_t to_guest_now(base::FrameViews frames) override {
        if (!open) return 0;
        for (const base::FrameView frame : frames) to_guest(frame);
        return frames.size();
    }
    void from_network(base::FrameView frame) { path.from_network(base::FrameViews(&frame, 1)); }
    void stages_changed() override { ++changes; }
    void policy(const PolicyConfig& config, std::shared_ptr<FlowSink> sink = nullptr) {
        path.set_policy(config, std::move(sink), {});
    }
    std::uint64_t counter(const std::string& name) const {
        std::uint64_t result = 999;
        path.visit_counters([&](const base::CounterInfo& info, std::uint64_t value) {
            if (name == info.name) result = value;
        });
        return result;
    }

    SimWorld world;
    SimExecutor executor{world};
    std::vector<std::uint32_t> network;
    std::vector<std::uint32_t> guest;
    bool open = true;
    int changes = 0;
    PortPath path{executor, "a", test::kMacA, *this};
};

TEST_F(PortPathTest, WithoutStagesFramesPassAtOnceAndNobodyNeedsPackets) {
    EXPECT_FALSE(path.needs_packets());
    path.from_guest(numbered(1));
    from_network(numbered(2));
    EXPECT_EQ(network, std::vector<std::uint32_t>{1});
    EXPECT_EQ(guest, std::vector<std::uint32_t>{2});
}

TEST_F(PortPathTest, FramesForAClosedNicWaitAndNoneGoesPastThem) {
    from_network(numbered(1));
    open = false;
    from_network(numbered(2));
    from_network(numbered(3));
    EXPECT_EQ(guest, std::vector<std::uint32_t>{1});
    open = true;
    from_network(numbered(4));
    EXPECT_EQ(guest, std::vector<std::uint32_t>{1}) << "two wait";
    world.run_until_idle();
    EXPECT_EQ(guest, (std::vector<std::uint32_t>{1, 2, 3, 4}));
    from_network(numbered(5));
    EXPECT_EQ(guest.size(), 5U) << "nobody waits";
    EXPECT_FALSE(path.needs_packets());
}

TEST_F(PortPathTest, EachStageNeedsPacketsWhileItIsThere) {
    FaultConfig faults;
    faults.loss_ppm = 1;
    path.set_faults(Direction::kReceive, faults);
    EXPECT_TRUE(path.needs_packets());
    path.set_faults(Direction::kReceive, {});
    EXPECT_FALSE(path.needs_packets());
    path.set_faults(Direction::kTransmit, FaultConfig{});
    EXPECT_FALSE(path.needs_packets()) << "no fault in it";

    path.set_capture(std::make_shared<RecordingTap>());
    EXPECT_TRUE(path.needs_packets());
    path.set_capture(nullptr);
    EXPECT_FALSE(path.needs_packets());

    PolicyConfig config;
    policy(config);
    EXPECT_FALSE(path.needs_packets()) << "allows everything";
    config.shaper.classes[0].limit = 1000;
    policy(config);
    EXPECT_TRUE(path.needs_packets());
    path.set_policy({}, nullptr, {});
    EXPECT_FALSE(path.needs_packets());
    config = {};
    config.flow_log = "file";
    policy(config, std::make_shared<RecordingSink>());
    EXPECT_TRUE(path.needs_packets());
}

TEST_F(PortPathTest, APolicyOfAddressesNeedsNoPackets) {
    const rnic::Ends own{gid("10.0.0.1"), gid("10.0.0.2"), test::kMacA, test::kMacB};
    rnic::Ends foreign = own;
    foreign.source = gid("10.0.0.9");
    EXPECT_TRUE(path.passes_rdma(foreign));
    PolicyConfig config;
    config.check_mac = true;
    config.addresses = {*Prefix::parse("10.0.0.1")};
    policy(config);
    EXPECT_FALSE(path.needs_packets());
    EXPECT_TRUE(path.passes_rdma(own));
    EXPECT_FALSE(path.passes_rdma(foreign));
    path.set_capture(std::make_shared<RecordingTap>());
    EXPECT_FALSE(path.passes_rdma(own)) << "a stage looks at each packet";
    path.set_capture(nullptr);
    EXPECT_TRUE(path.passes_rdma(own));
    path.set_policy({}, nullptr, {});
    EXPECT_TRUE(path.passes_rdma(foreign));
}

TEST_F(PortPathTest, APolicyThatIsReplacedIsNeverAbsent) {
    struct LastLook final : FlowSink {
        explicit LastLook(const PortPath& at) : path(at) {}
        ~LastLook() override { EXPECT_EQ(path.standing(gid("10.0.0.9")), Standing::kForbidden); }
        void line(std::string_view) override {}
        const PortPath& path;
    };
    PolicyConfig config;
    config.addresses = {*Prefix::parse("10.0.0.1")};
    policy(config, std::make_shared<LastLook>(path));
    config.addresses = {*Prefix::parse("10.0.0.2")};
    policy(config);
}

TEST_F(PortPathTest, EveryChangeOfAStageIsTold) {
    const auto told = [&](auto&& change) {
        const int before = changes;
        change();
        return changes > before;
    };
    EXPECT_TRUE(told([&] { path.set_capture(std::make_shared<RecordingTap>()); }));
    EXPECT_TRUE(told([&] { path.set_capture(nullptr); }));
    EXPECT_TRUE(told([&] { policy({}); }));
    EXPECT_TRUE(told([&] { path.set_policy({}, nullptr, {}); }));
    EXPECT_TRUE(told([&] { path.set_faults(Direction::kReceive, FaultConfig{}); }));
}

TEST_F(PortPathTest, ReceivedFramesGoThroughTheExecutor) {
    path.set_capture(std::make_shared<RecordingTap>());
    from_network(numbered(1));
    from_network(numbered(2));
    EXPECT_TRUE(guest.empty());
    world.run_until_idle();
    EXPECT_EQ(guest, (std::vector<std::uint32_t>{1, 2}));
}

TEST_F(PortPathTest, CaptureSeesWhatComesThrough) {
    const auto tap = std::make_shared<RecordingTap>();
    path.set_capture(tap);
    FaultConfig faults;
    faults.loss_ppm = 1000000;
    path.set_faults(Direction::kTransmit, faults);
    path.from_guest(numbered(1));
    from_network(numbered(2));
    world.run_until_idle();
    EXPECT_EQ(tap->seen, std::vector<std::uint32_t>{2});
    EXPECT_TRUE(network.empty());
    EXPECT_EQ(counter("fabric.fault.lost"), 1u);
}

TEST_F(PortPathTest, DirectionsHaveFaultsOfTheirOwn) {
    FaultConfig faults;
    faults.loss_ppm = 500000;
    path.set_faults(Direction::kTransmit, faults);
    path.set_faults(Direction::kReceive, faults);
    for (std::uint32_t i = 0; i < 100; ++i) {
        path.from_guest(numbered(i));
        from_network(numbered(i));
    }
    world.run_until_idle();
    EXPECT_NE(network, guest);
    EXPECT_EQ(path.faults(Direction::kReceive)->loss_ppm, 500000u);
}

TEST_F(PortPathTest, PolicyComesFirstAndCounts) {
    PolicyConfig config;
    config.acl = *Acl::parse("deny rx udp to any port 2000");
    const auto sink = std::make_shared<RecordingSink>();
    config.flow_log = "file";
    policy(config, sink);
    from_network(numbered(1));
    path.from_guest(numbered(2));
    world.run_until_idle();
    EXPECT_TRUE(guest.empty());
    EXPECT_EQ(network, std::vector<std::uint32_t>{2});
    EXPECT_EQ(counter("fabric.policy.denied"), 1u);
    EXPECT_EQ(counter("fabric.flow.started"), 2u);
    path.set_policy({}, nullptr, {});
    EXPECT_EQ(sink->lines.size(), 4u);
    EXPECT_EQ(counter("fabric.flow.ended"), 2u);
}

class OldFlowsTest : public PortPathTest {
protected:
    static constexpr std::uint16_t kFlows = 200;
    OldFlowsTest() {
        PolicyConfig config;
        config.flow_log = "file";
        policy(config, sink);
        FrameMaker out;
        for (std::uint16_t i = 0; i < kFlows; ++i) path.from_guest(out.udp(i, 53, 20));
        path.set_policy({}, nullptr, {});
    }
    std::uint64_t ended() const { return counter("fabric.flow.ended"); }
    const std::shared_ptr<RecordingSink> sink = std::make_shared<RecordingSink>();
};

TEST_F(OldFlowsTest, EndInTurns) {
    EXPECT_EQ(ended(), FlowLog::kEndsATurn) << "of one turn";
    world.advance(1us);
    EXPECT_EQ(ended(), kFlows);
    ASSERT_EQ(sink->lines.size(), 2U * kFlows);
    EXPECT_EQ(nlohmann::json::parse(sink->lines.back())["reason"], "policy changed");
    EXPECT_EQ(sink.use_count(), 1) << "the file is closed";
}

TEST_F(OldFlowsTest, EndBeforeAStateIsWritten) {
    path.flush();
    EXPECT_EQ(ended(), kFlows);
    EXPECT_EQ(sink.use_count(), 1);
}

TEST_F(PortPathTest, TheFlowLogHasNoFrameThatTheRateLimitDropped) {
    PolicyConfig config;
    config.flow_log = "file";
    config.shaper.limit = 800000;
    config.shaper.queue_bytes = 64U << 10;
    config.shape[0] = config.shape[1] = true;
    const auto sink = std::make_shared<RecordingSink>();
    policy(config, sink);
    for (std::uint32_t i = 0; i < 200; ++i) {
        path.from_guest(numbered(i, 1042));
        from_network(numbered(i, 1042));
    }
    world.run_until_idle();
    EXPECT_GT(counter("fabric.shaper.dropped"), 100u);
    path.set_policy({}, nullptr, {});  // what waits goes out
    ASSERT_EQ(sink->lines.size(), 4u);
    std::uint64_t dropped = 0;
    for (const std::string& line : sink->lines) {
        const auto entry = nlohmann::json::parse(line);
        if (entry["event"] != "end") continue;
        const bool sent = entry["tx_frames"] != 0;
        const std::string way = sent ? "tx" : "rx";
        const std::size_t passed = sent ? network.size() : guest.size();
        EXPECT_EQ(entry[way + "_frames"], passed);
        EXPECT_EQ(entry[way + "_bytes"], passed * 1042);
        EXPECT_EQ(entry[way + "_payload"], passed * 1000);
        dropped += entry["dropped"].get<std::uint64_t>();
    }
    EXPECT_EQ(dropped, counter("fabric.shaper.dropped"));
}

TEST_F(PortPathTest, ChangingAStageLosesNoFrame) {
    FaultConfig faults;
    faults.delay = 1s;
    path.set_faults(Direction::kTransmit, faults);
    PolicyConfig config;
    config.shaper.limit = 8000;
    policy(config);
    for (std::uint32_t i = 0; i < 10; ++i) path.from_guest(numbered(i));
    EXPECT_TRUE(network.empty());
    path.set_policy({}, nullptr, {});
    path.set_faults(Direction::kTransmit, {});
    EXPECT_EQ(network.size(), 10u);
    EXPECT_TRUE(std::is_sorted(network.begin(), network.end()));
}

TEST_F(PortPathTest, RateLimitIsForTheDirectionsNamed) {
    PolicyConfig config;
    config.shaper.limit = 8000;
    config.shape[0] = false;
    config.shape[1] = true;
    policy(config);
    for (std::uint32_t i = 0; i < 10; ++i) path.from_guest(numbered(i, 1000));
    for (std::uint32_t i = 0; i < 10; ++i) from_network(numbered(i, 1000));
    world.run_until_idle();
    EXPECT_EQ(network.size(), 10u);
    EXPECT_EQ(guest.size(), 1u);
    world.advance(4500ms);
    EXPECT_EQ(guest.size(), 5u);
}

TEST_F(PortPathTest, WhatWaitsForTheThreadIsMarkedThenDropped) {
    path.set_capture(std::make_shared<RecordingTap>());
    FrameMaker maker;
    maker.ecn = 2;
    const base::Frame big = maker.udp(1, 2, 60000);
    const std::size_t cost = big.size() + base::FrameQueue::kFrameCost;
    const std::size_t fits = PortPath::kMaxWaitingBytes / cost;
    for (std::size_t i = 0; i < fits + 3; ++i) from_network(big);
    EXPECT_EQ(counter("fabric.port.queue_full"), 3u);
    EXPECT_EQ(counter("fabric.port.queue_marked"), fits - PortPath::kMarkWaitingBytes / cost - 1);
    world.run_until_idle();
    EXPECT_EQ(guest.size(), fits);
}

/// Each turn of the executor, in which others have theirs, takes so many and no more.
TEST_F(PortPathTest, AFloodKeepsTheThreadForOneChunkATurn) {
    constexpr std::uint32_t kFrames = 1000;
    open = false;
    for (std::uint32_t i = 0; i < kFrames; ++i) from_network(numbered(i));
    open = true;
    std::size_t turns = 0;
    for (std::size_t before = 0; executor.run_once(); before = guest.size(), ++turns) {
        EXPECT_LE(guest.size() - before, base::FrameQueue::kChunkFrames);
        if (turns == 0) from_network(numbered(kFrames));  // behind all the others
    }
    EXPECT_GE(turns, kFrames / base::FrameQueue::kChunkFrames);
    ASSERT_EQ(guest.size(), kFrames + 1);
    for (std::uint32_t i = 0; i <= kFrames; ++i) EXPECT_EQ(guest[i], i);
}

TEST_F(PortPathTest, APostedFrameDoesNotOutliveThePath) {
    auto other = std::make_unique<PortPath>(executor, "b", test::kMacB, *this);
    other->set_capture(std::make_shared<RecordingTap>());
    const base::Frame frame = numbered(1);
    const base::FrameView view = frame;
    other->from_network(base::FrameViews(&view, 1));
    other.reset();
    world.run_until_idle();
    EXPECT_TRUE(guest.empty());
}

}  // namespace
}  // namespace openmana::fabric

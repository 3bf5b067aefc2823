// SPDX-License-Identifier: Apache-2.0
#include "fabric/vlan_edge.h"

#include <gtest/gtest.h>

#include "support/hex.h"
#include "unit/fabric/frames.h"

namespace openmana::fabric {
namespace {

using ::openmana::test::from_hex;
using ::openmana::test::to_hex;

constexpr const char* kMacs = "020000000002 020000000001 ";

VlanConfig trunk(std::initializer_list<roce::Vlan> vlans, roce::Vlan native = roce::kNoVlan) {
    VlanConfig config;
    config.all = false;
    config.native = native;
    for (const roce::Vlan vlan : vlans) config.tagged.set(vlan);
    return config;
}

/// What becomes of a frame with these bytes behind its MAC addresses: those that it has then, or
/// "dropped".
std::string into_network(const VlanConfig& config, const std::string& bytes) {
    base::Frame frame = from_hex(kMacs + bytes);
    return VlanEdge(config).to_network(frame) ? to_hex(frame).substr(24) : "dropped";
}
std::string into_guest(const VlanConfig& config, const std::string& bytes) {
    const base::Frame frame = from_hex(kMacs + bytes);
    const base::FrameView view = frame;
    const VlanEdge edge(config);
    const FramesAtGuest at_guest(edge, base::FrameViews(&view, 1));
    return at_guest.all().empty() ? "dropped" : to_hex(at_guest.all()[0]).substr(24);
}

TEST(VlanEdgeTest, WithoutVlansEverythingPassesAsItIs) {
    const VlanConfig all;
    for (const char* bytes : {"0800aabb", "8100000a0800aabb", "810060000800aabb",
                              "88a8000a8100000b0800", "8100", "81000fff0800"}) {
        EXPECT_EQ(into_network(all, bytes), bytes);
        EXPECT_EQ(into_guest(all, bytes), bytes);
    }
    for (const roce::Vlan vlan : {0, 10, 4094}) {
        EXPECT_EQ(VlanEdge(all).to_network(vlan), vlan);
        EXPECT_EQ(VlanEdge(all).to_guest(vlan), vlan);
    }
}

TEST(VlanEdgeTest, AccessPutsATagOnAndTakesItOff) {
    const VlanConfig ten = VlanConfig::access(10);
    EXPECT_EQ(into_network(ten, "0800aabb"), "8100000a0800aabb");
    EXPECT_EQ(into_guest(ten, "8100000a0800aabb"), "0800aabb");
    EXPECT_EQ(into_guest(ten, "8100e00a0800aabb"), "0800aabb") << "whatever its priority is";
    EXPECT_EQ(into_network(ten, "0800"), "8100000a0800") << "with no byte behind it";
}

TEST(VlanEdgeTest, APriorityStaysWithAFrameInTheNetwork) {
    EXPECT_EQ(into_network(VlanConfig::access(10), "8100b0000800aabb"), "8100b00a0800aabb");
    EXPECT_EQ(into_network(trunk({20}, 10), "8100b0000800aabb"), "8100b00a0800aabb");
    EXPECT_EQ(into_network(trunk({20}), "8100b0000800aabb"), "dropped");
    EXPECT_EQ(into_network(trunk({20}), "8100b0140800aabb"), "8100b0140800aabb");
    EXPECT_EQ(into_guest(trunk({20}), "8100b0140800aabb"), "8100b0140800aabb");
}

TEST(VlanEdgeTest, AccessSendsAndGetsNoTags) {
    const VlanConfig ten = VlanConfig::access(10);
    for (const char* bytes :
         {"8100000a0800aabb", "810000140800aabb", "88a8000a0800aabb", "88a800000800aabb", "8100",
          "8100000a", "810000008100000a0800", "8100000088a8000a0800", "", "08"})
        EXPECT_EQ(into_network(ten, bytes), "dropped") << bytes;
    for (const char* bytes :
         {"0800aabb", "810000140800aabb", "810000000800aabb", "88a8000a0800aabb", "8100",
          "8100000a", "8100000a810000140800", "8100000a810000000800", "8100000a88a800140800", ""})
        EXPECT_EQ(into_guest(ten, bytes), "dropped") << bytes;
}

TEST(VlanEdgeTest, ATrunkPassesItsTagsAlone) {
    const VlanConfig some = trunk({10, 20});
    for (const char* bytes :
         {"8100000a0800aabb", "8100600a0800aabb", "810000140800aabb", "8100000a8100001e0800"}) {
        EXPECT_EQ(into_network(some, bytes), bytes);
        EXPECT_EQ(into_guest(some, bytes), bytes);
    }
    for (const char* bytes : {"0800aabb", "8100000b0800aabb", "810000000800aabb", "81000fff0800",
                              "88a8000a0800aabb", "8100000b8100000a0800"}) {
        EXPECT_EQ(into_network(some, bytes), "dropped") << bytes;
        EXPECT_EQ(into_guest(some, bytes), "dropped") << bytes;
    }
}

TEST(VlanEdgeTest, TheNativeVlanOfATrunkHasNoTagAtTheGuest) {
    const VlanConfig some = trunk({10}, 5);
    EXPECT_EQ(into_network(some, "0800aabb"), "810000050800aabb");
    EXPECT_EQ(into_guest(some, "810000050800aabb"), "0800aabb");
    EXPECT_EQ(into_network(some, "810000050800aabb"), "dropped");
    EXPECT_EQ(into_network(some, "8100000a0800aabb"), "8100000a0800aabb");
}

/// Who is in VLAN 5 cannot have the edge uncover a tag of VLAN 10.
TEST(VlanEdgeTest, NobodyHopsBehindATagThatIsTakenOff) {
    EXPECT_EQ(into_guest(trunk({10}, 5), "810000058100000a0800aabb"), "dropped");
    EXPECT_EQ(into_network(trunk({10}, 5), "810000008100000a0800aabb"), "dropped");
}

TEST(VlanEdgeTest, AddressesFollowTheFrames) {
    const VlanEdge access(VlanConfig::access(10));
    EXPECT_EQ(access.to_network(roce::kNoVlan), 10);
    EXPECT_EQ(access.to_network(10), std::nullopt);
    EXPECT_EQ(access.to_guest(10), roce::kNoVlan);
    EXPECT_EQ(access.to_guest(roce::kNoVlan), std::nullopt);
    EXPECT_EQ(access.to_guest(11), std::nullopt);
    const VlanEdge some(trunk({10, 20}, 5));
    EXPECT_EQ(some.to_network(roce::kNoVlan), 5);
    EXPECT_EQ(some.to_network(5), std::nullopt) << "two VLANs of the guest would be one";
    EXPECT_EQ(some.to_network(20), 20);
    EXPECT_EQ(some.to_network(0xffff), std::nullopt);
    EXPECT_EQ(some.to_guest(5), roce::kNoVlan);
    EXPECT_EQ(some.to_guest(10), 10);
    EXPECT_EQ(VlanEdge(trunk({10})).to_network(roce::kNoVlan), std::nullopt);
    EXPECT_EQ(VlanEdge(trunk({10})).to_guest(roce::kNoVlan), std::nullopt);
}

/// A burst is taken in pieces, and each frame is where it belongs.
TEST(VlanEdgeTest, OfManyFramesThoseOfTheVlanReachTheGuestInTheirOrder) {
    const VlanEdge edge(trunk({20}, 10));
    std::vector<base::Frame> frames;
    std::vector<base::Frame> expected;
    for (std::uint32_t i = 0; i < 300; ++i) {
        base::Frame frame = test::numbered(i, 60 + i);
        const auto tag = from_hex(i % 3 == 0 ? "8100600a" : i % 3 == 1 ? "81006014" : "8100601e");
        base::Frame tagged = frame;
        tagged.insert(tagged.begin() + 12, tag.begin(), tag.end());
        if (i % 3 == 0) expected.push_back(frame);
        if (i % 3 == 1) expected.push_back(tagged);
        frames.push_back(std::move(tagged));
    }
    const std::vector<base::FrameView> views(frames.begin(), frames.end());
    std::vector<base::Frame> got;
    for (base::FrameViews left = views; !left.empty();) {
        const FramesAtGuest at_guest(edge, left);
        ASSERT_GT(at_guest.looked_at(), 0U);
        for (const base::FrameView frame : at_guest.all())
            got.emplace_back(frame.begin(), frame.end());
        left = left.subspan(at_guest.looked_at());
    }
    EXPECT_EQ(got, expected);
    EXPECT_EQ(FramesAtGuest(VlanEdge(VlanConfig()), views).all().data(), views.data()) << "no copy";
}

}  // namespace
}  // namespace openmana::fabric

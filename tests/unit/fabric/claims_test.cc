// SPDX-License-Identifier: Apache-2.0
#include "fabric/claims.h"

#include <gtest/gtest.h>

#include <deque>
#include <utility>

#include "unit/fabric/frames.h"

namespace openmana::fabric {
namespace {

using test::gid;

struct Nic final : Claims::Claimant {
    explicit Nic(std::string text) : name(std::move(text)) {}
    [[nodiscard]] const std::string& claimant_name() const override { return name; }
    [[nodiscard]] Standing standing(const roce::Gid&) const override { return its; }
    void claim_changed(const roce::Address&) override { ++told; }
    std::string name;
    Standing its = Standing::kFree;
    int told = 0;
};

class ClaimsTest : public ::testing::Test {
protected:
    [[nodiscard]] bool foreign(const Nic* nic, Standing least = Standing::kDown) const {
        return claims.foreign(nic, address, least);
    }
    const roce::Gid address = gid("10.0.0.1");
    Reach reach;
    Claims claims{reach};
    Nic a{"a"}, b{"b"}, c{"c"};
};

TEST_F(ClaimsTest, TheFirstKeepsAnAddressUntilItGoes) {
    EXPECT_TRUE(claims.claim(a, address));
    EXPECT_FALSE(claims.claim(b, address));
    EXPECT_FALSE(claims.claim(c, address));
    EXPECT_EQ(claims.holder_name(address), "a");
    EXPECT_EQ(a.told + b.told + c.told, 0) << "whoever asks has its answer";
    claims.release(a, address);
    EXPECT_EQ(claims.holder_name(address), "b");
    EXPECT_EQ(b.told, 1);
    EXPECT_EQ(c.told, 0);
    claims.release(b, address);
    claims.release(c, address);
    EXPECT_EQ(claims.holder_name(address), "");
    EXPECT_TRUE(claims.claim(c, address));
}

TEST_F(ClaimsTest, VlansAreApart) {
    EXPECT_TRUE(claims.claim(a, address));
    EXPECT_TRUE(claims.claim(b, {address, 5}));
    EXPECT_FALSE(claims.claim(c, {address, 5}));
    EXPECT_TRUE(claims.claim(c, {address, 6}));
    EXPECT_FALSE(foreign(&a));
    EXPECT_TRUE(claims.foreign(&a, {address, 5}, Standing::kDown));
    claims.release(b, {address, 5});
    EXPECT_EQ(claims.holder_name(address), "a");
    EXPECT_EQ(claims.holder_name({address, 5}), "c");
}

TEST_F(ClaimsTest, AddressesAreApart) {
    EXPECT_TRUE(claims.claim(a, address));
    EXPECT_TRUE(claims.claim(b, gid("10.0.0.2")));
    EXPECT_TRUE(foreign(&b));
    EXPECT_TRUE(foreign(nullptr));
    EXPECT_FALSE(foreign(&a));
    EXPECT_FALSE(claims.foreign(nullptr, gid("10.0.0.3"), Standing::kForbidden));
}

TEST_F(ClaimsTest, OneThatWaitsMayGo) {
    EXPECT_TRUE(claims.claim(a, address));
    EXPECT_FALSE(claims.claim(b, address));
    claims.release(b, address);
    claims.release(b, address);
    EXPECT_EQ(claims.holder_name(address), "a");
    claims.release(a, address);
    EXPECT_EQ(b.told, 0);
}

TEST_F(ClaimsTest, ABetterClaimGoesBeforeAnOlderOne) {
    EXPECT_TRUE(claims.claim(a, address));
    b.its = Standing::kGranted;
    EXPECT_TRUE(claims.claim(b, address));
    EXPECT_EQ(a.told, 1) << "it lost the address";
    c.its = Standing::kGranted;
    EXPECT_FALSE(claims.claim(c, address)) << "as good, and later";
    b.its = Standing::kFree;
    EXPECT_FALSE(claims.review(b, address));
    EXPECT_EQ(claims.holder_name(address), "c");
    EXPECT_EQ(c.told, 1);
    c.its = Standing::kFree;
    EXPECT_TRUE(claims.review(c, address)) << "none is better than who has it";
}

TEST_F(ClaimsTest, WhoseLinkIsDownKeepsAnAddressThatNobodyElseWants) {
    EXPECT_TRUE(claims.claim(a, address));
    a.its = Standing::kDown;
    EXPECT_TRUE(claims.review(a, address));
    EXPECT_TRUE(claims.claim(b, address));
    a.its = Standing::kFree;
    EXPECT_FALSE(claims.review(a, address)) << "it has moved";
}

TEST_F(ClaimsTest, AForbiddenClaimIsTheLast) {
    a.its = Standing::kForbidden;
    EXPECT_TRUE(claims.claim(a, address)) << "its packets are stopped elsewhere";
    EXPECT_FALSE(foreign(nullptr)) << "and it stops nobody's";
    EXPECT_FALSE(foreign(&b));
    b.its = Standing::kDown;
    EXPECT_TRUE(claims.claim(b, address));
    EXPECT_TRUE(foreign(nullptr));
}

/// A guest that merely takes an address keeps nobody outside from it.
TEST_F(ClaimsTest, AClaimIsAsGoodAsItsStanding) {
    EXPECT_TRUE(claims.claim(a, address));
    EXPECT_TRUE(foreign(nullptr, Standing::kFree));
    EXPECT_FALSE(foreign(nullptr, Standing::kGranted));
    for (const Standing standing : {Standing::kGranted, Standing::kOwn}) {
        a.its = standing;
        EXPECT_TRUE(claims.review(a, address));
        EXPECT_TRUE(foreign(nullptr, Standing::kGranted));
    }
}

/// Policies may name prefixes that overlap.
TEST_F(ClaimsTest, WhatFollowsFromAMacAddressGoesBeforeWhatAPolicyNames) {
    a.its = Standing::kGranted;
    EXPECT_TRUE(claims.claim(a, address));
    b.its = Standing::kOwn;
    EXPECT_TRUE(claims.claim(b, address));
}

/// Guards keep their answers as long as the count is the same.
TEST_F(ClaimsTest, WhatChangesWhoIsKeptOutIsCounted) {
    std::uint64_t before = reach.count();
    const auto counted = [&] { return std::exchange(before, reach.count()) != before; };
    a.its = Standing::kForbidden;
    EXPECT_TRUE(claims.claim(a, address));
    EXPECT_TRUE(counted());
    EXPECT_FALSE(foreign(&b));
    EXPECT_FALSE(counted()) << "a look";
    a.its = Standing::kGranted;
    EXPECT_TRUE(claims.review(a, address));
    EXPECT_TRUE(foreign(&b));
    EXPECT_TRUE(counted()) << "the same holder, but with more right";
    EXPECT_TRUE(claims.review(a, address));
    EXPECT_FALSE(counted()) << "as it was";
    EXPECT_FALSE(claims.claim(b, address));
    EXPECT_FALSE(counted()) << "it waits";
    claims.release(a, address);
    EXPECT_TRUE(counted());
    claims.release(b, address);
    EXPECT_TRUE(counted());
}

roce::Gid numbered(int number) {
    roce::Gid made = gid("fd00::");
    made[14] = static_cast<std::uint8_t>(number >> 8);
    made[15] = static_cast<std::uint8_t>(number);
    return made;
}

TEST(ClaimsBound, EachStepLooksAtTheClaimsToOneAddress) {
    constexpr std::size_t kNics = 256;
    base::HoldMeter meter;
    Reach reach;
    Claims claims(reach);
    const roce::Gid address = gid("10.0.0.1");
    std::deque<Nic> nics;
    for (std::size_t i = 0; i < kNics; ++i)
        EXPECT_EQ(claims.claim(nics.emplace_back(std::to_string(i)), address), i == 0);
    for (int i = 0; i < 1024; ++i) EXPECT_TRUE(claims.claim(nics[1], numbered(i)));
    EXPECT_TRUE(claims.foreign(&nics[1], address, Standing::kFree));
    EXPECT_TRUE(claims.review(nics[0], address));
    for (Nic& nic : nics) claims.release(nic, address);
    const auto largest = meter.largest(base::HoldKind::kLock);
    EXPECT_GE(largest.work, kNics / base::kSmallSteps) << "all are looked at";
    EXPECT_LE(largest.work, 2 * (1 + kNics / base::kSmallSteps)) << meter.report();
}

TEST(ClaimsBound, ANicThatGoesLooksAtNoClaimsOfOthers) {
    constexpr int kAddresses = 1024;
    base::HoldMeter meter;
    Reach reach;
    Claims claims(reach);
    Nic goes("goes"), stays("stays");
    for (int i = 0; i < kAddresses; ++i) {
        EXPECT_TRUE(claims.claim(goes, numbered(i)));
        EXPECT_TRUE(claims.claim(stays, numbered(kAddresses + i)));
    }
    meter.clear();
    claims.release_all(goes);
    EXPECT_EQ(meter.largest(base::HoldKind::kLock).work, 2U)
        << "the claims to one address, before and after\n"
        << meter.report();
    EXPECT_EQ(claims.holder_name(numbered(0)), "");
    EXPECT_EQ(claims.holder_name(numbered(kAddresses)), "stays");
}

TEST_F(ClaimsTest, ANicThatGoesReleasesAll) {
    for (const char* text : {"10.0.0.1", "10.0.0.2", "fd00::1"}) {
        EXPECT_TRUE(claims.claim(a, gid(text)));
        EXPECT_FALSE(claims.claim(b, gid(text)));
    }
    claims.release_all(a);
    EXPECT_EQ(b.told, 3);
    EXPECT_EQ(claims.holder_name(address), "b");
}

TEST_F(ClaimsTest, WhatWasNeverClaimedIsNotServed) {
    EXPECT_FALSE(claims.review(a, address));
    claims.release(a, address);
    EXPECT_EQ(claims.holder_name(address), "");
}

}  // namespace
}  // namespace openmana::fabric

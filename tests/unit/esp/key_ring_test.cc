// SPDX-License-Identifier: Apache-2.0
#include "esp/key_ring.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "esp_fixture.h"
#include "support/faulty_calls.h"
#include "support/hex.h"

namespace openmana::esp {
namespace {

std::string refusal(const std::string& text) {
    const auto ring = KeyRing::parse(text, nullptr);
    if (ring) return "";
    return std::to_string(ring.error().detail) + ": " + ring.error().text;
}

TEST(KeyRingTest, KeysAreOneALine) {
    const auto ring = ring_of(std::string("# of both hosts\n\n  ") + kKey1 + "\t" +
                              "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF "
                              "# next\r\n");
    ASSERT_EQ(ring->size(), 2U);
    EXPECT_EQ(test::to_hex(ring->key(0)) + "\n", kKey1);
    EXPECT_EQ(test::to_hex(ring->key(1)),
              "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff");
}

TEST(KeyRingTest, WhatIsNoKeyIsRefusedByItsLine) {
    const std::string key(kKey1);
    EXPECT_EQ(refusal(""), "0: no key in it");
    EXPECT_EQ(refusal("# nothing\n\n"), "0: no key in it");
    EXPECT_EQ(refusal(key + key.substr(1)), "2: a key is 64 hex digits, one key a line");
    EXPECT_EQ(refusal(key.substr(0, 63) + "g"), "1: a key is 64 hex digits, one key a line");
    EXPECT_EQ(refusal("1" + key), "1: a key is 64 hex digits, one key a line");
    EXPECT_EQ(refusal(std::string(kKey1) + kKey2 + "\n" + kKey1), "4: a key is there twice");
    EXPECT_EQ(refusal(std::string(64, '0')), "1: a key of nothing but zeros");
    EXPECT_EQ(refusal(std::string(4097, '#')), "0: more than 4096 bytes");
    std::string many;
    for (char digit = '1'; digit <= '9'; ++digit) many += std::string(64, digit) + "\n";
    EXPECT_EQ(refusal(many), "9: more than 8 keys");
}

TEST(KeyRingTest, KeysThatStayKeepTheirIds) {
    const auto before = ring_of(std::string(kKey1) + kKey2);
    const auto after = ring_of(std::string(kKey3) + kKey2 + kKey1, before.get());
    EXPECT_EQ(after->id(1), before->id(1));
    EXPECT_EQ(after->id(2), before->id(0));
    EXPECT_FALSE(before->has(after->id(0)));
    EXPECT_FALSE(before->same(*after));
    EXPECT_TRUE(before->same(*ring_of(std::string(kKey1) + kKey2, before.get())));
    // The other way round another key is used to send.
    EXPECT_FALSE(before->same(*ring_of(std::string(kKey2) + kKey1, before.get())));
}

/// What the kernel says of the mapping with this address.
std::string flags_of(const void* address) {
    std::ifstream maps("/proc/self/smaps");
    std::string line;
    bool here = false;
    while (std::getline(maps, line)) {
        std::uintptr_t begin = 0;
        std::uintptr_t end = 0;
        char dash = 0;
        std::istringstream range(line);
        if (line.find(':') > line.find('-') && range >> std::hex >> begin >> dash >> end)
            here = begin <= reinterpret_cast<std::uintptr_t>(address) &&
                   reinterpret_cast<std::uintptr_t>(address) < end;
        if (here && line.starts_with("VmFlags:")) return line + " ";
    }
    return "";
}

TEST(SecretPagesTest, AreNotInCoreDumps) {
    const auto ring = ring_of(kKey1);
    EXPECT_NE(flags_of(ring->key(0).data()).find(" dd "), std::string::npos)
        << flags_of(ring->key(0).data());
}

TEST(SecretPagesTest, DoWithoutMemoryThatIsLocked) {
    const test::FaultyCalls calls("mmap", EAGAIN);
    EXPECT_EQ(ring_of(kKey1)->size(), 1U);
    EXPECT_EQ(calls.failed(), 1U);
}

TEST(SecretPagesTest, WithoutMemoryThereIsNoRing) {
    const test::FaultyCalls calls("mmap", ENOMEM, {.times = 2});
    const auto ring = KeyRing::parse(kKey1, nullptr);
    ASSERT_FALSE(ring);
    EXPECT_STREQ(ring.error().text, "no memory for keys");
}

TEST(SecretTest, IsGoneAfterItsEnd) {
    alignas(Secret<32>) std::array<std::byte, sizeof(Secret<32>)> place;
    auto* const secret = new (place.data()) Secret<32>();
    std::ranges::fill(secret->bytes(), std::byte{7});
    secret->~Secret();
    EXPECT_EQ(place, decltype(place){});
}

}  // namespace
}  // namespace openmana::esp

// SPDX-License-Identifier: Apache-2.0
// What driver and provider say to each other where upstream's pair says it too: RNIC 5.3.
#include <gtest/gtest.h>
#include <uapi/mana-abi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "unit/abi/bytes_of.h"

namespace {

using openmana::test::bytes_of;

TEST(AbiUapi, RcRequestOfUpstreamsNextProvider) {
    mana_uapi_create_rc_qp request{};
    for (unsigned i = 0; i < MANA_UAPI_QP_QUEUES; ++i) {
        request.address[i] = 0x1111111111111110U + i;
        request.bytes[i] = 0x2220U + i;
    }
    EXPECT_EQ(MANA_UAPI_CREATE_QP_STOCK_BYTES, offsetof(mana_uapi_create_rc_qp, mm_address));
    request.mm_address = 0x0807060504030201;
    request.mm_bytes = 0x0c0b0a09;
    request.mask = MANA_UAPI_RC_FIXED_WQES | MANA_UAPI_RC_MM_QUEUE;
    const std::vector<std::uint8_t> tail{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 3, 0, 0, 0};
    const auto all = bytes_of(request);
    ASSERT_EQ(all.size(), 64U);
    EXPECT_EQ(std::vector<std::uint8_t>(all.begin() + 48, all.end()), tail);
    EXPECT_EQ(all[8], 0x11);
    EXPECT_EQ(all[32], 0x20);
    EXPECT_EQ(all[44], 0x23);
}

TEST(AbiUapi, RcAnswerToUpstreamsNextProvider) {
    mana_uapi_create_rc_qp_resp answer{};
    for (unsigned i = 0; i < MANA_UAPI_QP_QUEUES; ++i) answer.queue_id[i] = 0x10 + i;
    answer.mm_queue_id = 0x12;
    const std::vector<std::uint8_t> want{0x10, 0, 0, 0, 0x11, 0, 0, 0, 0x12, 0, 0, 0,
                                         0x13, 0, 0, 0, 0x12, 0, 0, 0, 0,    0, 0, 0};
    EXPECT_EQ(bytes_of(answer), want);
}

TEST(AbiUapi, ContextsMaskForUpstreamsNextProvider) {
    const mana_uapi_alloc_context_resp answer{MANA_UAPI_MASK_RC_QUEUES};
    const std::vector<std::uint8_t> want{2, 0, 0, 0, 0, 0, 0, 0};
    EXPECT_EQ(bytes_of(answer), want);
}

}  // namespace

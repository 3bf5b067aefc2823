// SPDX-License-Identifier: Apache-2.0
// Vectors from the documents; the sizes and offsets are asserted in the headers themselves.
#include <mana/gdma.h>
#include <mana/hwc.h>
#include <mana/queue.h>

#include <array>
#include <cstring>

#include <gtest/gtest.h>

namespace {

template <typename T>
std::array<std::uint32_t, sizeof(T) / 4> words(const T& value) {
    std::array<std::uint32_t, sizeof(T) / 4> out;
    std::memcpy(out.data(), &value, sizeof value);
    return out;
}

TEST(AbiDoorbell, MatchesTheExamples) {
    // GDMA 3.9
    EXPECT_EQ(mana_hw_wq_doorbell(0x77, 0, 2 * 32), 0x0000004000000077ULL);
    EXPECT_EQ(mana_hw_wq_doorbell(0x77, 0, 5 * 32), 0x000000A000000077ULL);
    EXPECT_EQ(mana_hw_entry_doorbell(0x123456, 64, 1), 0x8000004000123456ULL);
    EXPECT_EQ(mana_hw_entry_doorbell(0x12, 2048 + 5, 1), 0x8000080500000012ULL);
    // GDMA appendix B
    EXPECT_EQ(mana_hw_entry_doorbell(1, 256 + 13, 1), 0x8000010D00000001ULL);
    // RNIC 9
    EXPECT_EQ(mana_hw_rq_client_doorbell(0xc05, 0x123456), 0x0012345601000c05ULL);
    EXPECT_EQ(mana_hw_wq_doorbell(0xc04, 1, 64), 0x0000004001000c04ULL);
    EXPECT_EQ(mana_hw_entry_doorbell(0x64, 65, 1), 0x8000004100000064ULL);
}

TEST(AbiDoorbell, KeepsPositionsOf32Bits) {
    EXPECT_EQ(mana_hw_wq_doorbell(0xffffff, 255, 0xffffffe0), 0xffffffe0ffffffffULL);
    EXPECT_EQ(mana_hw_entry_doorbell(1, 0x7fffffff, 0), 0x7fffffff00000001ULL);
}

TEST(AbiWqe, HeadersMatchTheExamples) {
    // GDMA 3.4
    EXPECT_EQ(1U | MANA_HW_OOB_SMALL << MANA_HW_WQE_OOB_CODE_SHIFT, 0x201U);
    EXPECT_EQ(1U | MANA_HW_OOB_LARGE << MANA_HW_WQE_OOB_CODE_SHIFT, 0x601U);
    EXPECT_EQ(54U << MANA_HW_WQE_LAST_VBYTES_SHIFT, 0x36000000U);
    EXPECT_EQ(2U | MANA_HW_OOB_SMALL << MANA_HW_WQE_OOB_CODE_SHIFT | MANA_HW_WQE_OOB_IN_SGL |
                  1448U << MANA_HW_WQE_DATA_UNIT_SHIFT,
              0x05A80A02U);
    // RNIC 9: WRITE with immediate, READ scatter entry
    EXPECT_EQ(1U | MANA_HW_OOB_EXTRA_LARGE << MANA_HW_WQE_OOB_CODE_SHIFT |
                  1024U << MANA_HW_WQE_DATA_UNIT_SHIFT | MANA_HW_WQE_CHECK_SN,
              0x44000701U);
}

TEST(AbiWqe, SgeHasItsKeyBeforeItsLength) {
    const mana_hw_sge sge{0x7f0011223340, 0x102, 3000};
    const auto expected = std::array<std::uint32_t, 4>{0x11223340, 0x00007f00, 0x00000102, 3000};
    EXPECT_EQ(words(sge), expected);
}

TEST(AbiEntry, OwnerWordsMatchTheExamples) {
    EXPECT_EQ(0x20U | MANA_HW_CQE_IS_SQ | 1U << MANA_HW_OWNER_SHIFT, 0x21000020U);   // GDMA 3.5
    EXPECT_EQ(MANA_HW_EQE_HWC_INIT_EQ_DB | 1U << MANA_HW_OWNER_SHIFT, 0x20000081U);  // appendix B
    EXPECT_EQ(MANA_HW_EQE_TEST | 1U << MANA_HW_OWNER_SHIFT, 0x20000040U);
    EXPECT_EQ(MANA_HW_OWNER_BITS, 0xe0000000U);
}

TEST(AbiShm, EstablishMessageMatchesTheExamples) {
    // GDMA appendix B, the second line: addresses above 48 bits.
    mana_hw_shm_establish message{};
    const auto frame = [](std::uint8_t(&out)[6], std::uint64_t address) {
        address >>= 12;
        std::memcpy(out, &address, sizeof out);
    };
    frame(message.eq_frame, 0xF123456789ABC000);
    frame(message.cq_frame, 0x123457000);
    frame(message.rq_frame, 0x2000000123458000);
    frame(message.sq_frame, 0x123459000);
    message.frames_high = 0xf | 2 << 8;
    message.header = MANA_HW_SHM_ESTABLISH;
    const auto expected =
        std::array<std::uint32_t, 8>{0x56789ABC, 0x34571234, 0x00000012, 0x00123458,
                                     0x34590000, 0x00000012, 0x0000020F, 0x00000001};
    EXPECT_EQ(words(message), expected);
}

TEST(AbiShm, AnswersMatchTheDocument) {
    EXPECT_EQ(MANA_HW_SHM_ESTABLISH | MANA_HW_SHM_RESPONSE, 0x81U);
    EXPECT_EQ(MANA_HW_SHM_DESTROY | MANA_HW_SHM_RESPONSE | 3U << MANA_HW_SHM_STATUS_SHIFT, 0x382U);
    EXPECT_EQ(MANA_HW_SHM_DEVICE_OWNS, 0x80000000U);
}

TEST(AbiMessage, TestEqeRequestMatchesTheExample) {
    // GDMA appendix B
    mana_hw_test_eqe_req request{};
    request.header.request = {0, MANA_HW_GENERATE_TEST_EQE, 1, 0, sizeof request};
    request.header.response = {0, MANA_HW_GENERATE_TEST_EQE, 1, 0, 32};
    request.header.device = {MANA_HW_DEVICE_HWC, 0};
    request.eq_id = 1;
    const auto expected = std::array<std::uint32_t, 11>{0, 0xA, 1, 0x2C, 0, 0xA, 1, 0x20, 1, 0, 1};
    EXPECT_EQ(words(request), expected);
}

TEST(AbiMessage, ResponseHeaderMatchesTheExample) {
    mana_hw_response response{};
    response.response = {0, MANA_HW_GENERATE_TEST_EQE, 1, 0, 32};
    response.device = {MANA_HW_DEVICE_HWC, 0};
    const auto expected = std::array<std::uint32_t, 8>{0, 0xA, 1, 0x20, 1, 0, 0, 0};
    EXPECT_EQ(words(response), expected);
}

TEST(AbiMessage, CreateMrVariantsShareTheirSpace) {
    // RNIC 2.12
    mana_hw_create_mr_req request{};
    request.u.gva.region = 0x1111;
    request.u.gva.virtual_address = 0x2222222233333333;
    request.u.gva.access = 0xf;
    auto w = words(request);
    EXPECT_EQ(w[14], 0x1111U);
    EXPECT_EQ(w[16], 0x33333333U);
    EXPECT_EQ(w[17], 0x22222222U);
    EXPECT_EQ(w[18], 0xfU);
    request = {};
    request.u.zero_based.access = 7;
    w = words(request);
    EXPECT_EQ(w[16], 7U);
    request = {};
    request.u.dm.access = 3;
    request.dm_length = 9;
    w = words(request);
    EXPECT_EQ(w[18], 3U);
    EXPECT_EQ(w[20], 9U);
}

}  // namespace

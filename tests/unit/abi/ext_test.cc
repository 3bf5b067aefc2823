// SPDX-License-Identifier: Apache-2.0
// The layouts of docs/extensions.md, byte for byte; sizes and offsets are asserted in the header.
#include <gtest/gtest.h>
#include <mana/ext.h>
#include <mana/queue.h>

#include <array>
#include <cstring>
#include <vector>

#include "unit/abi/bytes_of.h"

namespace {

using openmana::test::bytes_of;

TEST(AbiExt, ControlSegment) {
    mana_hw_ext_control control{};
    control.opcode = MANA_HW_EXT_WQE_WRITE_IMM;
    control.flags = MANA_HW_EXT_WQE_SIGNALED | MANA_HW_EXT_WQE_INLINE;
    control.size = 0x0102;
    control.value = 0x03040506;
    control.inline_bytes = 0x0708;
    const std::vector<std::uint8_t> want{4, 9, 2, 1, 6, 5, 4, 3, 8, 7, 0, 0, 0, 0, 0, 0};
    EXPECT_EQ(bytes_of(control), want);
}

TEST(AbiExt, RemoteAtomicAndReceiveSegments) {
    mana_hw_ext_remote remote{};
    remote.address = 0x1122334455667788;
    remote.rkey = 0xaabbccdd;
    EXPECT_EQ(bytes_of(remote),
              (std::vector<std::uint8_t>{0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xdd, 0xcc,
                                         0xbb, 0xaa, 0, 0, 0, 0}));
    mana_hw_ext_atomic atomic{};
    atomic.swap_add = 1;
    atomic.compare = 2;
    EXPECT_EQ(bytes_of(atomic),
              (std::vector<std::uint8_t>{1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}));
    mana_hw_ext_receive receive{};
    receive.sge_count = 3;
    receive.cookie = 0x01020304;
    EXPECT_EQ(bytes_of(receive),
              (std::vector<std::uint8_t>{3, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(AbiExt, UdSegmentKeepsAddressesInWireOrder) {
    mana_hw_ext_ud ud{};
    ud.dest_gid[0] = 0xfd;
    ud.dest_gid[15] = 1;
    ud.source_gid[15] = 2;
    ud.dest_mac[0] = 0xa0;
    ud.udp_source_port = 0xc001;
    ud.hop_limit = 64;
    ud.traffic_class = 0x68;
    ud.vlan = 0xa064;
    ud.flow_label = 0x12345;
    ud.dest_qpn = 0x77;
    ud.qkey = 0x80010000;
    const auto bytes = bytes_of(ud);
    EXPECT_EQ(bytes[0], 0xfd);
    EXPECT_EQ(bytes[15], 1);
    EXPECT_EQ(bytes[31], 2);
    EXPECT_EQ(bytes[32], 0xa0);
    EXPECT_EQ(bytes[38], 0x01);
    EXPECT_EQ(bytes[39], 0xc0);
    EXPECT_EQ(bytes[40], 64);
    EXPECT_EQ(bytes[41], 0x68);
    EXPECT_EQ(bytes[42], 0x64);
    EXPECT_EQ(bytes[43], 0xa0);
    EXPECT_EQ(bytes[44], 0x45);
    EXPECT_EQ(bytes[48], 0x77);
    EXPECT_EQ(bytes[55], 0x80);
}

TEST(AbiExt, CopyOfDeviceMemory) {
    mana_hw_ext_copy_dm_req copy{};
    copy.adapter = 1;
    copy.dm = 2;
    copy.offset = 0x0304;
    copy.address = 0x1122334455667788;
    copy.length = 0x010000;
    copy.direction = MANA_HW_EXT_COPY_FROM_DM;
    const auto bytes = bytes_of(copy);
    const std::vector<std::uint8_t> want{
        1, 0, 0, 0, 0,    0,    0,    0,    2,    0,    0,    0,    0, 0, 0, 0, 4, 3, 0, 0,
        0, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0, 1, 0, 1, 0, 0, 0};
    EXPECT_EQ(std::vector<std::uint8_t>(bytes.begin() + 40, bytes.end()), want);
    EXPECT_EQ(MANA_HW_EXT_COPY_DM, 0x3800e);
}

TEST(AbiExt, SourcesOfAPd) {
    mana_hw_ext_grant_source_req grant{};
    grant.adapter = 1;
    grant.pd = 2;
    grant.gid[0] = 0xfd;
    grant.gid[15] = 3;
    grant.number = 4;
    grant.vlan = 0x0506;
    const auto granted = bytes_of(grant);
    const std::vector<std::uint8_t> want{1, 0, 0,    0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0,
                                         0, 0, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                         0, 0, 0,    3, 4, 0, 0, 0, 6, 5, 0, 0};
    EXPECT_EQ(std::vector<std::uint8_t>(granted.begin() + 40, granted.end()), want);
    mana_hw_ext_revoke_source_req revoke{};
    revoke.adapter = 1;
    revoke.number = 5;
    const auto revoked = bytes_of(revoke);
    EXPECT_EQ(std::vector<std::uint8_t>(revoked.begin() + 40, revoked.end()),
              (std::vector<std::uint8_t>{1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0}));
    EXPECT_EQ(MANA_HW_EXT_GRANT_SOURCE, 0x3800f);
    EXPECT_EQ(MANA_HW_EXT_REVOKE_SOURCE, 0x38010);
    EXPECT_EQ(MANA_HW_EXT_PD_GRANTED_SOURCES, 0x80000000U);
}

TEST(AbiExt, AddressInAVlan) {
    mana_hw_ext_config_address_req config{};
    config.adapter = 1;
    config.gid[0] = 0xfd;
    config.gid[15] = 3;
    config.operation = MANA_HW_RNIC_CONFIG_REMOVE;
    config.vlan = 0x0506;
    const auto bytes = bytes_of(config);
    const std::vector<std::uint8_t> want{1, 0, 0, 0, 0, 0, 0, 0, 0xfd, 0, 0, 0, 0, 0, 0, 0,
                                         0, 0, 0, 0, 0, 0, 0, 3, 2,    0, 0, 0, 6, 5, 0, 0};
    EXPECT_EQ(std::vector<std::uint8_t>(bytes.begin() + 40, bytes.end()), want);
    EXPECT_EQ(MANA_HW_EXT_CONFIG_ADDRESS, 0x38011);
    EXPECT_EQ(MANA_HW_EXT_VLANS, 0x20000U);
}

TEST(AbiExt, AddressByAMacAddress) {
    mana_hw_ext_config_mac_address_req config{};
    config.base.adapter = 1;
    config.base.gid[15] = 3;
    config.base.operation = MANA_HW_RNIC_CONFIG_ADD;
    config.base.vlan = 7;
    for (int i = 0; i < 6; ++i) config.mac[i] = static_cast<std::uint8_t>(0x10 + i);
    const auto bytes = bytes_of(config);
    const std::vector<std::uint8_t> want{1, 0, 0, 0, 0,    0,    0,    0,    0,    0,    0, 0, 0, 0,
                                         0, 0, 0, 0, 0,    0,    0,    0,    0,    3,    1, 0, 0, 0,
                                         7, 0, 0, 0, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0, 0};
    EXPECT_EQ(std::vector<std::uint8_t>(bytes.begin() + 40, bytes.end()), want);
    EXPECT_EQ(MANA_HW_EXT_MACS, 0x40000U);
}

TEST(AbiExt, StateOfAQpWithItsTag) {
    mana_hw_ext_set_qp_state_req request{};
    request.base.qp = 0x0102;
    request.base.max_read_out = 7;
    request.vlan = 0xa064;
    const auto bytes = bytes_of(request);
    ASSERT_EQ(bytes.size(), 192U);
    EXPECT_EQ(bytes[48], 2);
    EXPECT_EQ(bytes[177], 7);
    EXPECT_EQ(bytes[184], 0x64);
    EXPECT_EQ(bytes[185], 0xa0);
    EXPECT_EQ(MANA_HW_EXT_SET_QP_STATE, 0x38012);
    EXPECT_EQ(0xa064 & MANA_HW_EXT_VLAN_ID, 100U);
    EXPECT_EQ(0xa064 >> MANA_HW_EXT_VLAN_PRIORITY_SHIFT, 5);
}

TEST(AbiExt, RecordsShareTheirPlaces) {
    mana_hw_ext_qp_record record{};
    record.sq_producer = 1;
    record.sq_kick = 2;
    record.rq_producer = 3;
    record.rq_kick = 4;
    std::array<std::uint32_t, 16> words{};
    std::memcpy(words.data(), &record, sizeof record);
    EXPECT_EQ(words[0], 1U);
    EXPECT_EQ(words[1], 2U);
    EXPECT_EQ(words[2], 3U);
    EXPECT_EQ(words[3], 4U);
}

TEST(AbiExt, CompletionHasItsTypeInTheFirstByte) {
    mana_hw_ext_cqe cqe{};
    cqe.type = MANA_HW_EXT_CQE;
    cqe.opcode = MANA_HW_EXT_WC_RECV_WRITE_IMM;
    cqe.status = 5;
    cqe.flags = MANA_HW_EXT_CQE_SOLICITED;
    cqe.length = 1;
    cqe.cookie = 2;
    cqe.value = 3;
    cqe.source_qpn = 4;
    cqe.vendor_error = 5;
    cqe.timestamp = 6;
    cqe.vlan = 0xa064;
    const auto bytes = bytes_of(cqe);
    EXPECT_EQ(bytes[0], 0x40);
    EXPECT_EQ(bytes[1], 0x81);
    EXPECT_EQ(bytes[2], 5);
    EXPECT_EQ(bytes[3], 16);
    for (std::size_t word = 0; word < 6; ++word) EXPECT_EQ(bytes[4 + 4 * word], word + 1);
    EXPECT_EQ(bytes[38], 0x64);
    EXPECT_EQ(bytes[39], 0xa0);
}

}  // namespace

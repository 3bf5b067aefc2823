// SPDX-License-Identifier: Apache-2.0
// Fast registration: keys that get their pages by a work request.
#include "ext_verbs_fixture.h"

namespace openmana::test {
namespace {

class ExtFastRegisterTest : public ExtVerbsTest {
protected:
    void open_privileged() {
        ExtLink::Options options;
        options.a.flags = MANA_HW_EXT_QP_PRIVILEGED;
        open(options);
        key = link->a.host->create_key(MANA_HW_EXT_MR_FAST_REGISTER, 4);
        ASSERT_TRUE(key);
    }
    ExtWr registration(std::uint32_t new_key) {
        // Three pages, last one first, and the list of them.
        const std::uint64_t list = link->a.buffer.value() + 0xf000;
        for (std::uint64_t i = 0; i < 3; ++i)
            link->a.word(0xf000 + 8 * i) = link->a.buffer.value() + 0x90000 + 4096 * (2 - i);
        ExtWr wr;
        wr.opcode = MANA_HW_EXT_WQE_FAST_REGISTER;
        wr.reg.emplace();
        wr.reg->key = new_key;
        wr.reg->access = gdma::kLocalRead | gdma::kLocalWrite | gdma::kRemoteWrite;
        wr.reg->iova = kIova;
        wr.reg->length = 8192;
        wr.reg->page_list = list;
        wr.reg->pages = 3;
        wr.reg->page_shift = 12;
        return wr;
    }
    static constexpr std::uint64_t kIova = 0x7000'0000'0100;
    std::optional<DriverMr> key;
};

INSTANTIATE_TEST_SUITE_P(Paths, ExtFastRegisterTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Local" : "Wire"; });

// ROCE 10: 135
TEST_P(ExtFastRegisterTest, PagesBecomeARegion) {
    open_privileged();
    const std::uint32_t fresh = key->rkey + 1;
    ASSERT_EQ(done(registration(fresh)).status, 0);
    EXPECT_EQ(write_by_b(fresh, kIova), 0);
    EXPECT_TRUE(link->same(0x90000 + 2 * 4096 + 0x100, 0, 16));
    // Locally too: a send from it, in the same post list as its registration.
    ExtWr send = link->wr(MANA_HW_EXT_WQE_WRITE, 0, 0, 0xa0000);
    send.sges = {{kIova, gdma::Key(fresh), 8192}};
    EXPECT_EQ(done(send).status, 0);
    EXPECT_EQ(write_by_b(fresh, kIova + 8192 - 15), 10);
    EXPECT_TRUE(link->a.node->host.hwc().destroy_mr(*key)) << "by its first name";
}

// ROCE 10: 135
TEST_P(ExtFastRegisterTest, RegistrationAndUseInOneList) {
    open_privileged();
    ExtWr reg = registration(key->rkey);
    reg.flags = 0;
    ExtWr use = link->wr(MANA_HW_EXT_WQE_WRITE, 0, 0, 0xa0000);
    use.sges = {{kIova, gdma::Key(key->rkey), 100}};
    ExtWr invalidate;
    invalidate.opcode = MANA_HW_EXT_WQE_LOCAL_INV;
    invalidate.value = key->rkey;
    for (int i = 0; i < 5; ++i) {
        link->a.post(reg);
        link->a.post(use);
        link->a.post(invalidate);
    }
    ASSERT_TRUE(link->run(10));
    for (const auto& cqe : link->sent) EXPECT_EQ(cqe.status, 0);
    EXPECT_EQ(write_by_b(key->rkey, kIova), 10) << "invalid again";
}

// ROCE 10: 136
TEST_P(ExtFastRegisterTest, BadRegistrationsAreRefused) {
    struct Case {
        const char* name;
        std::function<void(ExtLink&, mana_hw_ext_register&)> spoil;
    };
    const Case cases[] = {
        {"index", [](ExtLink&, auto& r) { r.key += 0x100; }},
        {"a region's key", [](ExtLink& l, auto& r) { r.key = l.a.mr.rkey; }},
        {"pages", [](ExtLink&, auto& r) { r.pages = 5; }},
        {"no pages", [](ExtLink&, auto& r) { r.pages = 0; }},
        {"shift", [](ExtLink&, auto& r) { r.page_shift = 11; }},
        {"big shift", [](ExtLink&, auto& r) { r.page_shift = 32; }},
        {"length", [](ExtLink&, auto& r) { r.length = 3 * 4096; }},
        {"no length", [](ExtLink&, auto& r) { r.length = 0; }},
        {"wraps", [](ExtLink&, auto& r) { r.iova = ~0xfffULL; }},
        {"access", [](ExtLink&, auto& r) { r.access = 1U << 10; }},
        {"remote write alone", [](ExtLink&, auto& r) { r.access = gdma::kRemoteWrite; }},
        {"list", [](ExtLink&, auto& r) { r.page_list = 8; }},
        {"page", [](ExtLink& l, auto&) { l.a.word(0xf000) |= 8; }},
    };
    for (const Case& test : cases) {
        SCOPED_TRACE(test.name);
        open_privileged();
        ExtWr wr = registration(key->rkey);
        test.spoil(*link, *wr.reg);
        EXPECT_EQ(done(wr).status, 6);
    }
    open_privileged();
    ASSERT_EQ(done(registration(key->rkey)).status, 0);
    EXPECT_EQ(done(registration(key->rkey + 1)).status, 6) << "valid already";
    for (const std::uint8_t opcode : {MANA_HW_EXT_WQE_FAST_REGISTER, MANA_HW_EXT_WQE_LOCAL_INV}) {
        open_privileged();
        auto& host = link->a.node->host;
        const DriverPd own = host.pd;
        host.pd = *host.hwc().create_pd();
        const auto foreign = link->a.host->create_key(MANA_HW_EXT_MR_FAST_REGISTER, 4);
        host.pd = own;
        ASSERT_TRUE(foreign);
        ExtWr wr = registration(foreign->rkey);
        wr.opcode = opcode;
        wr.value = foreign->rkey;
        EXPECT_EQ(done(wr).status, 6) << "of another PD";
    }
    open_privileged();
    ExtWr invalidate;
    invalidate.opcode = MANA_HW_EXT_WQE_LOCAL_INV;
    invalidate.value = link->a.mr.rkey;
    EXPECT_EQ(done(invalidate).status, 6) << "a normal region";
}

// ROCE 10: 137
TEST_P(ExtFastRegisterTest, LocalInvalidateWaitsForTheReadsBeforeIt) {
    open_privileged();
    ASSERT_EQ(done(registration(key->rkey)).status, 0);
    ExtWr read = link->wr(MANA_HW_EXT_WQE_READ, 0, 0, 0x1000);
    read.sges = {{kIova, gdma::Key(key->rkey), 8192}};
    ExtWr invalidate;
    invalidate.opcode = MANA_HW_EXT_WQE_LOCAL_INV;
    invalidate.value = key->rkey;
    link->a.post(read);
    link->a.post(invalidate);
    ASSERT_TRUE(link->run(3));
    EXPECT_EQ(link->sent[1].opcode, MANA_HW_EXT_WQE_READ);
    EXPECT_EQ(link->sent[1].status, 0);
    EXPECT_EQ(link->sent[2].opcode, MANA_HW_EXT_WQE_LOCAL_INV);
    EXPECT_EQ(link->sent[2].status, 0);
    // The region's first page is the last of the three.
    EXPECT_TRUE(link->same(0x90000 + 2 * 4096 + 0x100, 0x1000, 4096 - 0x100));
    EXPECT_TRUE(link->same(0x90000 + 4096, 0x1000 + 4096 - 0x100, 4096));
    EXPECT_EQ(write_by_b(key->rkey, kIova), 10) << "invalid by then";
}

// ROCE 10: 105
TEST_F(ExtPathTest, DuplicateSendDoesNotInvalidateAgain) {
    ExtLink::Options options;
    options.b.flags = MANA_HW_EXT_QP_PRIVILEGED;
    link = std::make_unique<ExtLink>(false, options);
    const auto key = link->b.host->create_key(MANA_HW_EXT_MR_FAST_REGISTER, 4);
    ASSERT_TRUE(key);
    ExtWr reg;
    reg.opcode = MANA_HW_EXT_WQE_FAST_REGISTER;
    reg.reg.emplace();
    reg.reg->key = key->rkey;
    reg.reg->access = gdma::kLocalRead | gdma::kLocalWrite | gdma::kRemoteWrite;
    reg.reg->iova = 0x1000;
    reg.reg->length = 4096;
    reg.reg->page_list = link->b.buffer.value() + 0xf000;
    reg.reg->pages = 1;
    reg.reg->page_shift = 12;
    link->b.word(0xf000) = link->b.buffer.value() + 0x90000;
    const auto registered = [&] {
        link->b.post(reg);
        std::optional<mana_hw_ext_cqe> cqe;
        return link->world.run_until([&] { return (cqe = link->b.send_cq.poll()).has_value(); },
                                     std::chrono::microseconds(100)) &&
               cqe->status == 0;
    };
    ASSERT_TRUE(registered());
    int acknowledgements = 0;
    link->network.fate = [&](const roce::Packet& packet) {
        Fate fate;
        fate.lose = packet.opcode == roce::Opcode::kAcknowledge && acknowledgements++ == 0;
        return fate;
    };
    link->b.recv(1, 0x80000, 100);
    ExtWr send = link->wr(MANA_HW_EXT_WQE_SEND_INV, 0, 10);
    send.value = key->rkey;
    link->a.post(send);
    ASSERT_TRUE(link->run(0, 1, std::chrono::milliseconds(1)));
    EXPECT_EQ(link->received[0].flags, MANA_HW_EXT_CQE_INVALIDATED);
    ASSERT_TRUE(registered()) << "it was invalid";
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(link->sent[0].status, 0);
    EXPECT_EQ(link->frames(roce::Opcode::kSendOnlyInvalidate), 2U);
    ExtWr write = link->wr(MANA_HW_EXT_WQE_WRITE, 0, 100);
    write.rkey = key->rkey;
    write.remote_address = 0x1000;
    link->a.post(write);
    ASSERT_TRUE(link->run(2));
    EXPECT_EQ(link->sent[1].status, 0) << "the new registration is untouched";
    EXPECT_TRUE(link->same(0, 0x90000, 100));
}

TEST_P(ExtFastRegisterTest, UnregisteredKeyIsRefused) {
    open_privileged();
    EXPECT_EQ(write_by_b(key->rkey, 0), 10);
}

}  // namespace
}  // namespace openmana::test

// SPDX-License-Identifier: Apache-2.0
#include "pci/endpoint.h"

#include <fcntl.h>
#include <linux/pci_regs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/vfio_user_client.h"
#include "vfio_user/server.h"

namespace openmana::pci {
namespace {

using base::Access;
using base::GuestAddr;
using base::UniqueFd;
using test::make_eventfd;
using test::make_memfd;
using test::take_signals;
using test::VfioUserClient;
using vfio_user::DmaRange;
using vfio_user::kIrqMsix;
using vfio_user::kRegionConfig;

/// 64 KiB of registers that remember. Raises vector 1 when 0x20 is written.
class FakeModel final : public FunctionModel {
public:
    explicit FakeModel(IrqSink& irq) : irq_(irq) {}
    std::uint64_t bar0_size() const override { return 65536; }
    void bar0_read(std::uint64_t offset, std::span<std::byte> data) override {
        std::memcpy(data.data(), registers_.data() + offset, data.size());
    }
    void bar0_write(std::uint64_t offset, std::span<const std::byte> data) override {
        std::memcpy(registers_.data() + offset, data.data(), data.size());
        if (offset == 0x20) irq_.raise(1);
    }
    void reset() override {
        ++resets;
        std::fill(registers_.begin(), registers_.end(), std::byte{0});
        irq_.raise(1);  // a model may raise until it has stopped
        if (on_reset) on_reset();
    }
    unsigned resets = 0;
    std::function<void()> on_reset;

private:
    IrqSink& irq_;
    std::vector<std::byte> registers_ = std::vector<std::byte>(65536);
};

class EndpointTest : public testing::Test {
protected:
    void SetUp() override { endpoint_.attach(model_, gate_); }

    template <typename T>
    T read(unsigned region, std::uint64_t offset) {
        T value{};
        EXPECT_TRUE(
            endpoint_.region_read(region, offset, std::as_writable_bytes(std::span(&value, 1))));
        return value;
    }
    template <typename T>
    void write(unsigned region, std::uint64_t offset, T value) {
        EXPECT_TRUE(endpoint_.region_write(region, offset, std::as_bytes(std::span(&value, 1))));
    }
    UniqueFd assign(unsigned vector) {
        UniqueFd fd = make_eventfd();
        EXPECT_TRUE(endpoint_.irq_assign(kIrqMsix, vector, UniqueFd(::dup(fd.get()))));
        return fd;
    }
    /// A visitor is in the middle of writing to the page at 0x1000 when `end` takes it away.
    template <typename F>
    void expect_waits_for_visitors(F end) {
        ASSERT_TRUE(endpoint_.dma_map({0x1000, 0x1000, 0, true, true}, make_memfd(0x1000)));
        std::promise<void> inside;
        std::atomic<bool> left{false};
        std::thread visitor([&] {
            const base::Gate::Visit visit(gate_);
            const auto span = memory_.find(GuestAddr(0x1000), 0x1000, Access::kWrite);
            inside.set_value();
            for (int round = 0; round < 2000; ++round) std::memset(span.data(), round, span.size());
            left = true;
        });
        inside.get_future().wait();
        end();
        EXPECT_TRUE(left);
        visitor.join();
    }

    static constexpr std::uint64_t kMostBytes = 64U << 20;
    base::GuestMemory memory_;
    base::Gate gate_;
    Endpoint endpoint_{memory_,
                       {.name = "nic", .serial = 7, .dma = {.ranges = 8, .bytes = kMostBytes}}};
    FakeModel model_{endpoint_};
};

TEST_F(EndpointTest, RegionsAreBar0MsixAndConfig) {
    const std::vector<std::uint64_t> sizes = {65536, 0, 0, 0, 8192, 0, 0, 4096, 0};
    for (unsigned i = 0; i < 9; ++i) {
        EXPECT_EQ(endpoint_.region(i).size, sizes[i]) << i;
        EXPECT_EQ(endpoint_.region(i).readable, sizes[i] != 0);
        EXPECT_EQ(endpoint_.region(i).writable, sizes[i] != 0);
    }
    for (unsigned kind = 0; kind < 5; ++kind)
        EXPECT_EQ(endpoint_.irq_count(kind), kind == 2 ? 65U : 0U);
    EXPECT_EQ(endpoint_.vector_count(), 65U);
}

TEST_F(EndpointTest, WritesThatComeTogetherReachTheModelInOrder) {
    const std::array<std::byte, 2> values{std::byte{1}, std::byte{2}};
    const std::array<base::BarWrite, 3> writes{{{0x40, std::span(values).first(1)},
                                                {0x40, std::span(values).last(1)},
                                                {0x44, std::span(values)}}};
    endpoint_.bar0_writes(writes);
    EXPECT_EQ(read<std::uint8_t>(vfio_user::kRegionBar0, 0x40), 2U);
    EXPECT_EQ(read<std::uint16_t>(vfio_user::kRegionBar0, 0x44), 0x201U);
}

TEST_F(EndpointTest, BarSizesInConfigMatchTheRegions) {
    write<std::uint64_t>(kRegionConfig, PCI_BASE_ADDRESS_0, UINT64_MAX);
    write<std::uint64_t>(kRegionConfig, PCI_BASE_ADDRESS_4, UINT64_MAX);
    EXPECT_EQ(~(read<std::uint64_t>(kRegionConfig, PCI_BASE_ADDRESS_0) & ~0xFULL) + 1,
              endpoint_.region(0).size);
    EXPECT_EQ(~(read<std::uint64_t>(kRegionConfig, PCI_BASE_ADDRESS_4) & ~0xFULL) + 1,
              endpoint_.region(4).size);
}

TEST_F(EndpointTest, MsixTableAndPbaLieInsideTheirBar) {
    for (const unsigned vectors : {1U, 2U, 65U, 256U, 257U, 2048U}) {
        base::GuestMemory memory;
        Endpoint endpoint(memory, {.msix_vectors = vectors});
        FakeModel model(endpoint);
        endpoint.attach(model, gate_);
        std::uint32_t pba = 0;
        ASSERT_TRUE(
            endpoint.region_read(7, kCapMsix + 8, std::as_writable_bytes(std::span(&pba, 1))));
        pba &= ~7U;
        EXPECT_GE(pba, vectors * 16);
        EXPECT_LE(pba + (vectors + 63) / 64 * 8, endpoint.region(4).size);
    }
}

TEST_F(EndpointTest, Bar0IsTheModels) {
    write<std::uint64_t>(0, 0xFFF8, 0x0102030405060708);
    EXPECT_EQ(read<std::uint64_t>(0, 0xFFF8), 0x0102030405060708U);
    EXPECT_EQ(read<std::uint16_t>(0, 0xFFFE), 0x0102U);
}

TEST_F(EndpointTest, MsixTableStartsMaskedAndRemembers) {
    for (unsigned vector = 0; vector < 65; ++vector) {
        EXPECT_EQ(read<std::uint64_t>(4, vector * 16), 0U);
        EXPECT_EQ(read<std::uint64_t>(4, vector * 16 + 8), 1ULL << 32);
    }
    write<std::uint64_t>(4, 64 * 16, 0xFEE00000);
    EXPECT_EQ(read<std::uint64_t>(4, 64 * 16), 0xFEE00000U);
    write<std::uint64_t>(4, 65 * 16, UINT64_MAX);      // behind the table
    write<std::uint64_t>(4, 65 * 16 - 4, UINT64_MAX);  // across its end
    EXPECT_EQ(read<std::uint64_t>(4, 65 * 16), 0U);
    EXPECT_EQ(read<std::uint32_t>(4, 65 * 16 - 4), 0xFFFFFFFFU);
}

TEST_F(EndpointTest, PbaShowsPendingVectors) {
    endpoint_.raise(3);
    endpoint_.raise(64);
    EXPECT_EQ(read<std::uint64_t>(4, 4096), 8U);
    EXPECT_EQ(read<std::uint64_t>(4, 4104), 1U);
    EXPECT_EQ(read<std::uint64_t>(4, 8184), 0U);
    const auto fd = assign(3);
    EXPECT_EQ(take_signals(fd), 1U);
    EXPECT_EQ(read<std::uint64_t>(4, 4096), 0U);
    write<std::uint64_t>(4, 4104, 0);
    EXPECT_EQ(read<std::uint64_t>(4, 4104), 1U);  // not writable
}

TEST_F(EndpointTest, OtherInterruptKindsDoNotExist) {
    EXPECT_FALSE(endpoint_.irq_assign(vfio_user::kIrqMsi, 0, make_eventfd()));
    endpoint_.irq_trigger(vfio_user::kIrqMsi, 0);
    EXPECT_EQ(read<std::uint64_t>(4, 4096), 0U);
}

TEST_F(EndpointTest, MappedMemfdIsReadThroughGuestMemory) {
    const auto file = make_memfd(0x3000);
    ASSERT_EQ(::pwrite(file.get(), "hello", 5, 0x2000), 5);
    ASSERT_TRUE(endpoint_.dma_map({0x100000, 0x2000, 0x1000, true, true}, file));
    char text[5];
    ASSERT_TRUE(memory_.read(GuestAddr(0x101000), std::as_writable_bytes(std::span(text))));
    EXPECT_EQ(std::string(text, 5), "hello");
    const std::byte mark{0x77};
    ASSERT_TRUE(memory_.write(GuestAddr(0x100000), std::span(&mark, 1)));
    std::byte back{};
    ASSERT_EQ(::pread(file.get(), &back, 1, 0x1000), 1);
    EXPECT_EQ(back, mark);
    ASSERT_TRUE(endpoint_.dma_unmap(0x100000, 0x2000));
    EXPECT_FALSE(memory_.read(GuestAddr(0x101000), std::as_writable_bytes(std::span(text))));
}

TEST_F(EndpointTest, ReadOnlyRangesCannotBeWritten) {
    const auto file = make_memfd(0x1000);
    ASSERT_TRUE(endpoint_.dma_map({0xC0000, 0x1000, 0, true, false}, file));
    EXPECT_FALSE(memory_.find(GuestAddr(0xC0000), 8, Access::kRead).empty());
    EXPECT_TRUE(memory_.find(GuestAddr(0xC0000), 8, Access::kWrite).empty());
}

TEST_F(EndpointTest, ReadOnlyDescriptorGivesReadOnlyMemory) {
    const auto file = make_memfd(0x1000);
    const std::string path = "/proc/self/fd/" + std::to_string(file.get());
    const UniqueFd read_only(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(read_only);
    EXPECT_TRUE(endpoint_.dma_map({0xC0000, 0x1000, 0, true, false}, read_only));
    EXPECT_FALSE(endpoint_.dma_map({0xD0000, 0x1000, 0, true, true}, read_only));
}

TEST_F(EndpointTest, RangesWithoutFdAreHoles) {
    ASSERT_TRUE(endpoint_.dma_map({0xFE000000, 0x10000, 0, true, true}, UniqueFd()));
    EXPECT_TRUE(memory_.find(GuestAddr(0xFE000000), 8, Access::kRead).empty());
    EXPECT_TRUE(endpoint_.dma_unmap(0xFE000000, 0x10000));
    const auto file = make_memfd(0x1000);
    ASSERT_TRUE(endpoint_.dma_map({0x1000, 0x1000, 0, false, false}, file));
    EXPECT_TRUE(memory_.find(GuestAddr(0x1000), 8, Access::kRead).empty());
}

TEST_F(EndpointTest, BadRangesAreRefused) {
    const auto file = make_memfd(0x2000);
    const std::vector<DmaRange> wrong = {
        {0x1000, 0x3000, 0, true, true},
        {0x1000, 0x1000, 0x2000, true, true},
        {0x1000, 0x2000, 0x1000, true, true},
        {0x1000, 0, 0, true, true},
        {0x1000, 0x1000, UINT64_MAX - 0xFFF, true, true},
        {UINT64_MAX - 0xFFF, 0x2000, 0, true, true},
        {0x1000, UINT64_MAX - 0xFFF, 0, true, true},
        {0x1001, 0x1000, 0, true, true},
        {0x1000, 0x1000, 1, true, true},
    };
    for (const DmaRange& range : wrong)
        EXPECT_FALSE(endpoint_.dma_map(range, file)) << range.address;
    EXPECT_FALSE(endpoint_.dma_map({0x1000, 0x1000, 0, true, true}, make_eventfd()));
    EXPECT_FALSE(endpoint_.dma_map({0, 0, 0, true, true}, UniqueFd()));
    EXPECT_EQ(memory_.range_count(), 0U);
    EXPECT_EQ(endpoint_.counters().dma_refused.value(), wrong.size() + 2);
    ASSERT_TRUE(endpoint_.dma_map({0x1000, 0x2000, 0, true, true}, file));
    EXPECT_FALSE(endpoint_.dma_map({0x2000, 0x1000, 0, true, true}, file));  // overlap
    EXPECT_FALSE(endpoint_.dma_unmap(0x1000, 0x1000));                       // would split
    EXPECT_FALSE(endpoint_.dma_unmap(0x9000, 0x1000));                       // nothing there
    EXPECT_EQ(memory_.range_count(), 1U);
}

TEST_F(EndpointTest, NumberOfRangesIsBounded) {
    for (std::uint64_t i = 0; i < 8; ++i) {
        EXPECT_TRUE(endpoint_.dma_map({i << 12, 0x1000, 0, true, true}, UniqueFd()));
    }
    const auto refused = endpoint_.dma_map({1 << 20, 0x1000, 0, true, true}, UniqueFd());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, base::ErrorCode::kExhausted);
    endpoint_.dma_unmap_all();
    EXPECT_EQ(memory_.range_count(), 0U);
}

/// A file that takes no memory may be as long as it likes: what is mapped of it takes addresses of
/// the process, which are for all of its NICs.
TEST_F(EndpointTest, BytesOfRangesAreBounded) {
    const auto file = make_memfd(64ULL << 40);
    constexpr std::uint64_t kElsewhere = 1ULL << 40;
    const auto map = [&](std::uint64_t address, std::uint64_t size) {
        return endpoint_.dma_map({address, size, 0, true, true}, file);
    };
    ASSERT_TRUE(map(0, kMostBytes));
    const auto refused = map(kElsewhere, 0x1000);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, base::ErrorCode::kExhausted);
    EXPECT_TRUE(endpoint_.dma_map({kElsewhere, kElsewhere, 0, true, true}, UniqueFd()))
        << "what has no memory takes no addresses";
    ASSERT_TRUE(endpoint_.dma_unmap(0, kMostBytes));
    EXPECT_TRUE(map(0, kMostBytes - 0x1000));
    EXPECT_FALSE(map(kMostBytes, 0x2000));
    EXPECT_TRUE(map(kMostBytes, 0x1000));
    endpoint_.client_gone();
    EXPECT_TRUE(map(0, kMostBytes));
}

TEST_F(EndpointTest, UnmapWaitsForVisitors) {
    expect_waits_for_visitors([&] { ASSERT_TRUE(endpoint_.dma_unmap(0x1000, 0x1000)); });
}

TEST_F(EndpointTest, FlrResetsModelAndConfigButKeepsMemoryAndEventfds) {
    const auto file = make_memfd(0x1000);
    ASSERT_TRUE(endpoint_.dma_map({0x1000, 0x1000, 0, true, true}, file));
    const auto fd = assign(0);
    endpoint_.raise(5);
    write<std::uint16_t>(kRegionConfig, PCI_COMMAND, PCI_COMMAND_MASTER);
    write<std::uint64_t>(4, 0, 0xFEE00000);
    write<std::uint16_t>(kRegionConfig, kCapExpress + PCI_EXP_DEVCTL, PCI_EXP_DEVCTL_BCR_FLR);
    EXPECT_EQ(model_.resets, 1U);
    EXPECT_EQ(endpoint_.counters().flrs.value(), 1U);
    EXPECT_EQ(read<std::uint16_t>(kRegionConfig, PCI_COMMAND), 0U);
    EXPECT_EQ(read<std::uint16_t>(kRegionConfig, kCapExpress + PCI_EXP_DEVCTL), 0x2810U);
    EXPECT_EQ(read<std::uint64_t>(4, 0), 0U);
    EXPECT_EQ(read<std::uint64_t>(4, 4096), 0U);  // nothing pending
    EXPECT_EQ(memory_.range_count(), 1U);
    write<std::uint16_t>(kRegionConfig, PCI_COMMAND, PCI_COMMAND_MASTER);
    endpoint_.raise(0);
    EXPECT_EQ(take_signals(fd), 1U);
}

TEST_F(EndpointTest, FlrTakesMasteringUntilSoftwareGivesIt) {
    ASSERT_TRUE(endpoint_.dma_map({0x1000, 0x1000, 0, true, true}, make_memfd(0x1000)));
    const auto fd = assign(0);
    write<std::uint16_t>(kRegionConfig, PCI_COMMAND, PCI_COMMAND_MASTER);
    write<std::uint16_t>(kRegionConfig, kCapExpress + PCI_EXP_DEVCTL, PCI_EXP_DEVCTL_BCR_FLR);
    endpoint_.raise(0);
    EXPECT_TRUE(memory_.find(GuestAddr(0x1000), 8, Access::kRead).empty());
    EXPECT_EQ(take_signals(fd), 0U);
    write<std::uint16_t>(kRegionConfig, PCI_COMMAND, PCI_COMMAND_MASTER);
    EXPECT_FALSE(memory_.find(GuestAddr(0x1000), 8, Access::kRead).empty());
    EXPECT_EQ(take_signals(fd), 1U);
}

TEST_F(EndpointTest, FlrOfAClientWithoutABusTakesNoMastering) {
    ASSERT_TRUE(endpoint_.dma_map({0x1000, 0x1000, 0, true, true}, make_memfd(0x1000)));
    write<std::uint16_t>(kRegionConfig, kCapExpress + PCI_EXP_DEVCTL, PCI_EXP_DEVCTL_BCR_FLR);
    EXPECT_FALSE(memory_.find(GuestAddr(0x1000), 8, Access::kRead).empty());
}

TEST_F(EndpointTest, WithoutBusMasteringNothingReachesMemoryOrTheClient) {
    const auto file = make_memfd(0x1000);
    ASSERT_TRUE(endpoint_.dma_map({0x1000, 0x1000, 0, true, true}, file));
    const auto fd = assign(1);
    write<std::uint16_t>(kRegionConfig, PCI_COMMAND, PCI_COMMAND_MEMORY);
    EXPECT_TRUE(memory_.find(GuestAddr(0x1000), 8, Access::kWrite).empty());
    endpoint_.raise(1);
    endpoint_.irq_mask(kIrqMsix, 1, true);
    endpoint_.irq_mask(kIrqMsix, 1, false);
    EXPECT_EQ(take_signals(fd), 0U);
    EXPECT_EQ(read<std::uint64_t>(4, 4096), 2U);  // pending
    write<std::uint8_t>(kRegionConfig, PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
    EXPECT_FALSE(memory_.find(GuestAddr(0x1000), 8, Access::kWrite).empty());
    EXPECT_EQ(take_signals(fd), 1U);
}

TEST_F(EndpointTest, MasteringEndsWhenNoVisitorIsInside) {
    expect_waits_for_visitors([&] { write<std::uint16_t>(kRegionConfig, PCI_COMMAND, 0); });
}

TEST_F(EndpointTest, ResetsGiveMasteringToAClientWithoutABus) {
    ASSERT_TRUE(endpoint_.dma_map({0x1000, 0x1000, 0, true, true}, make_memfd(0x1000)));
    EXPECT_FALSE(memory_.find(GuestAddr(0x1000), 8, Access::kRead).empty());
    write<std::uint16_t>(kRegionConfig, PCI_COMMAND, 0);
    EXPECT_TRUE(memory_.find(GuestAddr(0x1000), 8, Access::kRead).empty());
    endpoint_.device_reset();
    EXPECT_FALSE(memory_.find(GuestAddr(0x1000), 8, Access::kRead).empty());
    write<std::uint16_t>(kRegionConfig, PCI_COMMAND, 0);
    endpoint_.client_gone();
    ASSERT_TRUE(endpoint_.dma_map({0x1000, 0x1000, 0, true, true}, make_memfd(0x1000)));
    EXPECT_FALSE(memory_.find(GuestAddr(0x1000), 8, Access::kRead).empty());
}

TEST_F(EndpointTest, DeviceResetIsLikeFlr) {
    write<std::uint16_t>(kRegionConfig, kCapPower + PCI_PM_CTRL, 3);
    endpoint_.device_reset();
    EXPECT_EQ(model_.resets, 1U);
    EXPECT_EQ(read<std::uint16_t>(kRegionConfig, kCapPower + PCI_PM_CTRL), 8U);
    EXPECT_EQ(endpoint_.counters().resets.value(), 1U);
}

TEST_F(EndpointTest, GoneClientTakesEverythingWithIt) {
    const auto file = make_memfd(0x1000);
    ASSERT_TRUE(endpoint_.dma_map({0x1000, 0x1000, 0, true, true}, file));
    const auto fd = assign(1);
    std::size_t ranges_at_reset = 0;
    model_.on_reset = [&] { ranges_at_reset = memory_.range_count(); };
    endpoint_.client_gone();
    EXPECT_EQ(ranges_at_reset, 1U);  // the model goes first, then its memory
    EXPECT_EQ(memory_.range_count(), 0U);
    endpoint_.raise(0);
    EXPECT_EQ(take_signals(fd), 0U);  // not even what the model raised while it stopped
    EXPECT_EQ(read<std::uint64_t>(4, 4096), 1U);
}

/// The endpoint behind a real server, spoken to as QEMU does.
class EndpointServerTest : public EndpointTest {
protected:
    void SetUp() override {
        EndpointTest::SetUp();
        std::string pattern = testing::TempDir() + "endpoint-XXXXXX";
        ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
        directory_ = pattern;
        auto loop = base::EventLoop::create();
        ASSERT_TRUE(loop);
        loop_ = std::move(*loop);
        auto server = vfio_user::Server::create(*loop_, endpoint_, directory_ + "/nic", "nic");
        ASSERT_TRUE(server);
        server_ = std::move(*server);
        thread_ = std::thread([this] { loop_->run(); });
        connect();
    }
    void TearDown() override {
        client_.reset();
        loop_->stop();
        thread_.join();
        server_.reset();
        std::filesystem::remove_all(directory_);
    }
    void connect() {
        auto client = VfioUserClient::connect(directory_ + "/nic");
        ASSERT_TRUE(client);
        client_ = std::move(*client);
        ASSERT_TRUE(client_->negotiate());
    }

    std::string directory_;
    std::unique_ptr<base::EventLoop> loop_;
    std::unique_ptr<vfio_user::Server> server_;
    std::thread thread_;
    std::unique_ptr<VfioUserClient> client_;
};

TEST_F(EndpointServerTest, StartsAsQemuStartsIt) {
    const auto ram = make_memfd(16U << 20);
    ASSERT_TRUE(client_->dma_map(0, 0xA0000, ram.get()));
    ASSERT_TRUE(client_->dma_map(0xC0000, 0x10000, ram.get(), 0xC0000, vfio_user::kDmaReadable));
    ASSERT_TRUE(client_->dma_map(0xFFFC0000, 0x40000, -1, 0, vfio_user::kDmaReadable));
    EXPECT_EQ(client_->device_info()->flags,
              vfio_user::kDeviceFlagReset | vfio_user::kDeviceFlagPci);
    for (const unsigned i : {0U, 1U, 2U, 3U, 4U, 5U, 7U}) EXPECT_TRUE(client_->region_info(i));
    EXPECT_EQ(client_->irq_info(3)->count, 0U);
    const auto config = client_->read(7, 0, 4096);
    ASSERT_TRUE(config);
    EXPECT_EQ(base::load_le<std::uint32_t>(config->data()), 0x00BA1414U);
    EXPECT_EQ(client_->irq_info(2)->count, 65U);
    EXPECT_TRUE(client_->reset());
    // Firmware makes all of RAM go and come back.
    ASSERT_TRUE(client_->dma_unmap(0, 0, vfio_user::kUnmapAll));
    ASSERT_TRUE(client_->dma_map(0, 16U << 20, ram.get()));
    // MSI-X as Linux sets it up, an interrupt, and another after the eventfd was given again.
    ASSERT_TRUE(client_->set_eventfd(1, UniqueFd()));
    ASSERT_TRUE(client_->post_value<std::uint64_t>(0, 0x20, 1));
    const auto first = make_eventfd();
    ASSERT_TRUE(client_->set_eventfd(1, first));
    EXPECT_EQ(take_signals(first), 1U);
    const auto second = make_eventfd();
    ASSERT_TRUE(client_->set_eventfd(1, second));
    ASSERT_TRUE(client_->post_value<std::uint64_t>(0, 0x20, 2));
    EXPECT_TRUE(test::wait_signal(second));
    EXPECT_EQ(*client_->read_value<std::uint64_t>(0, 0x20), 2U);
    EXPECT_EQ(take_signals(first), 0U);
    EXPECT_TRUE(client_->set_irqs(vfio_user::kIrqDataNone | vfio_user::kIrqActionTrigger, 0, 0));
}

TEST_F(EndpointServerTest, RefusalsCarryTheirErrno) {
    const auto small = make_memfd(0x1000);
    const auto short_file = client_->dma_map(0, 0x2000, small.get());
    ASSERT_FALSE(short_file);
    EXPECT_EQ(short_file.error().detail, static_cast<unsigned>(EINVAL));
    EXPECT_EQ(client_->dma_unmap(0x1000, 0x1000).error().detail, static_cast<unsigned>(ENOENT));
    EXPECT_EQ(client_->set_eventfd(0, make_memfd(4096)).error().detail,
              static_cast<unsigned>(EINVAL));
    EXPECT_EQ(client_->read(7, 4095, 2).error().detail, static_cast<unsigned>(EINVAL));
    EXPECT_TRUE(client_->device_info());
}

TEST_F(EndpointServerTest, NextClientFindsAFreshFunction) {
    for (int round = 0; round < 5; ++round) {
        const auto ram = make_memfd(0x10000);
        ASSERT_TRUE(client_->dma_map(0x10000, 0x10000, ram.get()));
        EXPECT_EQ(*client_->read_value<std::uint64_t>(0, 0x100), 0U);
        EXPECT_EQ(*client_->read_value<std::uint16_t>(7, PCI_COMMAND), 0U);
        ASSERT_TRUE(client_->write_value<std::uint16_t>(7, PCI_COMMAND, PCI_COMMAND_MASTER));
        ASSERT_TRUE(client_->post_value<std::uint64_t>(0, 0x100, 5));
        const auto fd = make_eventfd();
        ASSERT_TRUE(client_->set_eventfd(1, fd));
        client_->close();
        connect();
    }
    EXPECT_EQ(endpoint_.counters().resets.value(), 5U);
}

}  // namespace
}  // namespace openmana::pci

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>

#include "base/fd.h"
#include "support/guest_ram.h"
#include "support/hwc_driver.h"
#include "support/vfio_user_client.h"

namespace openmana::test {

/// A NIC of another process, at the end of its vfio-user socket: what QEMU is to a guest. Register
/// writes wait for their reply, so that what the device did is done; then interrupts that came are
/// counted.
class RemoteNic final : public pci::FunctionModel {
public:
    static constexpr std::uint64_t kRamBytes = 16U << 20;
    static constexpr unsigned kVectors = 4;

    /// Null if the server does not answer as it should.
    static std::unique_ptr<RemoteNic> attach(const std::string& path,
                                             std::uint64_t ram_bytes = kRamBytes) {
        auto client = VfioUserClient::connect(path);
        if (!client) return nullptr;
        std::unique_ptr<RemoteNic> nic(new RemoteNic(std::move(*client), ram_bytes));
        if (!nic->client_->negotiate() ||
            !nic->client_->dma_map(nic->ram_.start().value(), ram_bytes, nic->memfd_.get()))
            return nullptr;
        for (unsigned i = 0; i < kVectors; ++i)
            if (!nic->client_->set_eventfd(i, nic->eventfds_[i])) return nullptr;
        return nic;
    }

    [[nodiscard]] std::uint64_t bar0_size() const override { return 1U << 23; }
    void bar0_read(std::uint64_t offset, std::span<std::byte> data) override {
        count_access();
        const auto bytes = client_->read(0, offset, static_cast<std::uint32_t>(data.size()));
        if (bytes) std::copy(bytes->begin(), bytes->end(), data.begin());
        alive_ = alive_ && bytes.has_value();
    }
    void bar0_write(std::uint64_t offset, std::span<const std::byte> data) override {
        count_access();
        alive_ = alive_ && client_->write(0, offset, data).has_value();
        collect_interrupts();
    }
    void reset() override { alive_ = alive_ && client_->reset().has_value(); }

    /// Its guest goes on with the NIC at the end of another socket, which has the memory of the
    /// file, and these eventfds.
    void move_to(base::UniqueFd socket, base::UniqueFd memory,
                 std::array<base::UniqueFd, kVectors> eventfds) {
        client_ = std::make_unique<VfioUserClient>(std::move(socket));
        ram_.move_to(memory.get());
        memfd_ = std::move(memory);
        eventfds_ = std::move(eventfds);
    }
    void collect_interrupts() {
        for (unsigned i = 0; i < kVectors; ++i)
            for (std::uint64_t n = take_signals(eventfds_[i]); n > 0; --n) irq_.raise(i);
    }
    /// Waits for one; false if none came for long.
    bool wait_interrupt(unsigned vector) { return wait_signal(eventfds_[vector]); }

    [[nodiscard]] GuestRam& ram() { return ram_; }
    /// The file behind the RAM.
    [[nodiscard]] const base::UniqueFd& memory_file() const { return memfd_; }
    [[nodiscard]] FakeIrq& irq() { return irq_; }
    [[nodiscard]] VfioUserClient& client() { return *client_; }
    [[nodiscard]] bool alive() const { return alive_; }
    /// Called before each register access.
    std::function<void()> on_access;

private:
    RemoteNic(std::unique_ptr<VfioUserClient> client, std::uint64_t ram_bytes)
        : client_(std::move(client)),
          memfd_(make_memfd(ram_bytes)),
          ram_(memory_, ram_bytes, base::GuestAddr(0x1'0000'0000ULL), memfd_.get()) {
        for (auto& eventfd : eventfds_) eventfd = make_eventfd();
    }
    void count_access() const {
        if (on_access) on_access();
    }

    std::unique_ptr<VfioUserClient> client_;
    base::UniqueFd memfd_;
    base::GuestMemory memory_;
    GuestRam ram_;
    FakeIrq irq_;
    std::array<base::UniqueFd, kVectors> eventfds_;
    bool alive_ = true;
};

}  // namespace openmana::test

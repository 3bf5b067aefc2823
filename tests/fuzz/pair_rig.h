// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "fuzz.h"

namespace openmana::fuzz {

/// The memory of a guest as a file, as clients lend it: in several ranges, of which each may go,
/// and the file may shrink. Without a file it is plain memory of the process.
class LentMemory {
public:
    static constexpr std::uint64_t kRam = 8U << 20;
    static constexpr std::uint64_t kRange = 512U << 10;

    explicit LentMemory(bool file);
    ~LentMemory();
    LentMemory(const LentMemory&) = delete;
    LentMemory& operator=(const LentMemory&) = delete;

    [[nodiscard]] int fd() const { return fd_.get(); }
    [[nodiscard]] base::MemoryLoss* loss() const { return loss_.get(); }
    /// Maps what is not mapped, in ranges; the NIC is the one that has this memory.
    void lend(FuzzNic& nic);
    /// DMA_UNMAP of a range, as the NIC's thread does it.
    void unmap(FuzzNic& nic, std::uint64_t range);
    /// The client shrinks its file.
    void shrink(std::uint64_t bytes);
    [[nodiscard]] bool shrunk() const { return shrunk_; }
    /// What manad does with a client whose memory went away; the next client has all of it again.
    void next_client(FuzzNic& nic);

private:
    const base::UniqueFd fd_;
    std::unique_ptr<base::MemoryLoss> loss_;
    std::optional<std::uint32_t> guard_;  // of the driver's view
    bool lent_ = false;
    bool shrunk_ = false;
};

/// Two NICs with two connected pairs of queue pairs, over the local path or over a wire.
class PairRig {
public:
    PairRig(test::Choices& choices, bool wire, bool file);
    /// One arbitrary step.
    void step();
    /// Memory of one of them goes, while work is on its way: ranges, or with a file its end.
    void take_memory();
    /// Time for all that waits; then what no MR covers must be as it was.
    void end();

private:
    struct Side {
        Side(test::SimWorld& world, fabric::Switch& network, std::uint8_t number, bool file);
        LentMemory lent;
        FuzzNic nic;
        test::HostileDriver driver;
    };
    static bool join(test::HostileDriver& a, test::HostileDriver& b);
    void change_queue_pair(test::HostileDriver& driver);
    void disturb();
    void start();

    test::Choices& choices_;
    test::SimWorld world_;
    Time time_;
    fabric::Switch network_;
    fabric::Switch far_network_;
    std::unique_ptr<Cable> cable_;
    Side near_;
    Side far_;
};

}  // namespace openmana::fuzz

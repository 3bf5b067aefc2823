// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "gdma/ring.h"
#include "gdma/types.h"

namespace openmana::gdma {

/// One scatter/gather entry (GDMA 3.3): key before length.
struct Sge {
    std::uint64_t address = 0;
    Key key{};
    std::uint32_t length = 0;
};

/// A WQE, copied once out of its ring and parsed from the copy (GDMA 3.3, RNIC 3.4). Both ring
/// kinds.
class Wqe {
public:
    static constexpr std::size_t kMaxSendBytes = 512;
    static constexpr std::size_t kMaxReceiveBytes = 256;
    static constexpr std::size_t kMaxSge = 31;

    /// Reads the WQE at `position`, of which at most `available` bytes have been posted. Fails
    /// (kProtocol) if its header makes no sense, its size passes `max_bytes` or `available`;
    /// kOutOfRange if guest memory is missing.
    static base::Result<Wqe> fetch(const Ring& ring, std::uint32_t position,
                                   std::uint32_t available, std::size_t max_bytes);

    /// The first bytes of a WQE that may be posted, for hints: nothing else may follow from it.
    struct Peek {
        static constexpr std::size_t kBytes = 64;
        std::uint32_t size = 0;      ///< of the WQE; 0: it makes no sense
        std::uint32_t oob_size = 0;  ///< 8, 24 or 40
        std::array<std::byte, kBytes> bytes;
    };
    static Peek peek(const Ring& ring, std::uint32_t position);

    [[nodiscard]] std::uint32_t position() const {
        return position_;
    }  ///< running byte counter of its start
    [[nodiscard]] std::uint32_t size() const { return size_; }  ///< bytes, a multiple of 32
    [[nodiscard]] std::uint32_t header0() const { return header0_; }
    [[nodiscard]] std::uint32_t header1() const { return header1_; }
    [[nodiscard]] std::uint8_t last_vbytes() const {
        return static_cast<std::uint8_t>(header0_ >> 24);
    }
    [[nodiscard]] bool oob_in_sgl() const { return (header1_ & (1U << 11)) != 0; }
    [[nodiscard]] bool check_sn() const { return (header1_ & (1U << 30)) != 0; }
    [[nodiscard]] std::uint16_t client_data_unit() const {
        return static_cast<std::uint16_t>(header1_ >> 16 & 0x3fff);
    }
    /// Inline client OOB: 8, 24 or 40 bytes.
    [[nodiscard]] std::span<const std::byte> oob() const { return {bytes_.data() + 8, oob_size_}; }
    /// As the header counts them, less the padding SGEs that the header declares.
    [[nodiscard]] std::span<const Sge> sges() const { return {sges_.data(), sge_count_}; }
    /// Sum of the SGE lengths; at most 31 x 4 GiB.
    [[nodiscard]] std::uint64_t total_length() const;

private:
    std::uint32_t position_ = 0;
    std::uint32_t size_ = 0;
    std::uint32_t header0_ = 0;
    std::uint32_t header1_ = 0;
    std::uint32_t oob_size_ = 0;
    std::uint32_t sge_count_ = 0;
    std::array<std::byte, 48> bytes_{};  // header and OOB
    std::array<Sge, kMaxSge> sges_{};
};

}  // namespace openmana::gdma

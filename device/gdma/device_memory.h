// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/gate.h"
#include "base/guest_memory.h"
#include "base/memory_account.h"
#include "base/result.h"
#include "gdma/id_pool.h"
#include "gdma/types.h"

namespace openmana::gdma {

/// Device memory of ALLOC_DM, reachable only through MRs of type 5, which hold it.
using DeviceMemory = std::vector<std::byte>;

/// The pieces of device memory that the guest has made. On the executor; visitors reach those that
/// keys hold, for which what is copied is under an exclusion.
class DeviceMemoryTable {
public:
    /// Takes handles from `handles`; `account` pays. All outlive the table.
    DeviceMemoryTable(std::uint64_t max_bytes, HandleNumbers& handles, base::MemoryAccount& account,
                      base::Gate& gate, base::GuestMemory& memory)
        : max_bytes_(max_bytes),
          handles_(handles),
          account_(account),
          gate_(gate),
          memory_(memory) {}

    /// Its handle.
    base::Result<std::uint64_t> allocate(std::uint64_t length);
    /// kBusy as long as an MR shows it.
    base::Result<void> destroy(std::uint64_t handle);
    [[nodiscard]] base::Result<std::shared_ptr<DeviceMemory>> find(std::uint64_t handle) const;
    /// COPY_DM of the extension (docs/extensions.md): to or from guest memory.
    struct Copy {
        std::uint64_t dm = 0;  ///< handle
        std::uint64_t offset = 0;
        GuestAddr address{};
        std::uint32_t length = 0;
        bool to_dm = false;
    };
    /// All of it, or nothing and an error.
    base::Result<void> copy(const Copy& request);

    [[nodiscard]] std::uint64_t size() const { return pieces_.size(); }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
    void reset();
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);

private:
    struct Piece {
        base::MemoryAccount::Charge charge;
        std::shared_ptr<DeviceMemory> memory;
    };
    [[nodiscard]] base::Result<Piece> make(std::uint64_t length) const;

    const std::uint64_t max_bytes_;
    HandleNumbers& handles_;
    base::MemoryAccount& account_;
    base::Gate& gate_;
    base::GuestMemory& memory_;
    std::unordered_map<std::uint64_t, Piece> pieces_;  // by handle
    std::uint64_t bytes_ = 0;
};

}  // namespace openmana::gdma

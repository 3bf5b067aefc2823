// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "base/gate.h"
#include "base/guest_memory.h"
#include "base/result.h"
#include "gdma/memory_table.h"
#include "gdma/pd_table.h"
#include "gdma/region_table.h"
#include "gdma/types.h"

namespace openmana::gdma {

/// Memory keys as commands and work requests change them: each change under an exclusion of its
/// own, so not during a visit. On the executor.
class KeyChanges {
public:
    /// All outlive it.
    KeyChanges(base::Gate& gate, const base::GuestMemory& memory, MemoryTable& keys,
               RegionTable& regions, const PdTable& pds)
        : gate_(gate), memory_(memory), keys_(keys), regions_(regions), pds_(pds) {}

    /// Whether CREATE_MR knows keys for fast registration (docs/extensions.md).
    void allow_fast_registration(bool allowed) { fast_registration_ = allowed; }
    [[nodiscard]] bool fast_registration_allowed() const { return fast_registration_; }

    /// The region or window that a handle of the guest names, or null.
    [[nodiscard]] const MemoryRegion* of_guest(std::uint64_t handle) const;
    /// Its handle.
    [[nodiscard]] static std::uint64_t handle_of(Key created);

    /// MODIFY_MR of the extension (docs/extensions.md): what is named is changed, the key stays.
    struct Change {
        std::uint64_t mr = 0;  ///< handle
        std::optional<PdHandle> pd = std::nullopt;
        std::optional<std::uint32_t> access = std::nullopt;
        std::optional<RegionHandle> region = std::nullopt;
        std::uint64_t address = 0;  ///< with a region: of its first byte
    };
    base::Result<void> change(const Change& request);
    /// What a work request asks for; the pages' addresses are an array at `page_list`.
    struct FastRegister {
        Key key{};
        Pdn pd{};
        std::uint32_t access = 0;
        std::uint64_t iova = 0;
        std::uint64_t length = 0;
        GuestAddr page_list{};
        std::uint32_t pages = 0;
        std::uint32_t page_shift = 0;
        bool zero_based = false;
    };
    /// False if the request makes no sense or is not allowed; then nothing has changed.
    [[nodiscard]] bool fast_register(const FastRegister& request);
    [[nodiscard]] bool bind_window(const WindowBind& request);
    /// MemoryTable::invalidate; afterwards no visitor is using what the key stood for.
    [[nodiscard]] bool invalidate(Key key, Pdn pd, WindowScope scope);
    /// The type 2 windows of a scope that ends, or of all, become invalid.
    void end_windows(std::optional<WindowScope> scope);
    void reset() { fast_registration_ = false; }
    template <typename Archive, typename Self>
    static void fields(Archive& a, Self& self) {
        a(self.fast_registration_);
    }

private:
    base::Gate& gate_;
    const base::GuestMemory& memory_;
    MemoryTable& keys_;
    RegionTable& regions_;
    const PdTable& pds_;
    bool fast_registration_ = false;
};

}  // namespace openmana::gdma

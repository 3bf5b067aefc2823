// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mana/ext.h>

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/memory_account.h"
#include "base/result.h"
#include "gdma/handle.h"
#include "gdma/id_pool.h"
#include "gdma/types.h"

namespace openmana::gdma {

/// An address that datagrams may come from: an IPv6 address, or an IPv4 one in the mapped form, in
/// a VLAN (0: in none).
struct SourceAddress {
    std::array<std::uint8_t, 16> ip{};
    std::uint16_t vlan = 0;
    friend bool operator==(const SourceAddress&, const SourceAddress&) = default;
};

/// What is asked of a protection domain when it is made.
struct PdRights {
    bool allows_gpa = false;
    bool any_source = true;  ///< datagrams come from any address of the adapter
};

/// A protection domain. Whoever has objects in it holds it, so that its number means no other one
/// as long as they live.
struct Pd final : Held {
    Pd(Pdn pdn, PdHandle pd_handle, DeviceType pd_owner, PdRights pd_rights)
        : id(pdn), handle(pd_handle), owner(pd_owner), rights(pd_rights) {}
    /// Whether its datagrams may come from an address, as far as it is concerned.
    [[nodiscard]] bool may_send_from(const SourceAddress& address) const {
        return rights.any_source || granted(address);
    }
    const Pdn id;
    const PdHandle handle;   ///< of those of the guest
    const DeviceType owner;  ///< kGuest, or who got it by its registration
    const PdRights rights;

private:
    friend class PdTable;
    [[nodiscard]] bool granted(const SourceAddress& address) const;

    // The executor's: what it was granted, and by which numbers.
    std::array<SourceAddress, MANA_HW_EXT_PD_SOURCES> sources_{};
    std::uint32_t granted_ = 0;
};

/// The protection domains of a function: those that the guest creates, and one for each device and
/// the HWC. On the executor; visitors see those that keys and queue pairs hold.
class PdTable {
public:
    // The HWC and the devices have PDs of their own, beside those that the guest creates.
    static constexpr std::uint32_t kOwn = 8;
    /// All ids are short (GDMA 5.15), so that who asks for such a one is given it.
    static constexpr std::uint32_t kMostOfGuest = 0xffff - kOwn;
    /// Takes handles from `handles`; `account` pays. Both outlive the table.
    PdTable(std::uint32_t max_pds, HandleNumbers& handles, base::MemoryAccount& account);

    [[nodiscard]] base::Result<Handle<Pd>> create(DeviceType owner, PdRights rights);
    /// One of the guest's; kBusy while anybody holds it.
    base::Result<void> destroy(PdHandle handle);
    /// One of a device's. The caller is the last who holds it.
    void destroy(Handle<Pd> pd);
    /// One of the guest's.
    [[nodiscard]] base::Result<Handle<Pd>> find(PdHandle handle) const;
    /// One of the guest's, or that of the device.
    [[nodiscard]] base::Result<Handle<Pd>> find(Pdn id, DeviceType device) const;
    /// GRANT_SOURCE of the extension (docs/extensions.md), for one of the guest's.
    base::Result<void> grant_source(PdHandle handle, const SourceAddress& address,
                                    std::uint32_t number);
    /// No PD may send from what it was granted by this number. A walk of all.
    void revoke_source(std::uint32_t number);
    [[nodiscard]] std::uint32_t used() const { return ids_.used(); }
    /// Any, that of the HWC too: for who held it when a state was written. Null if there is none.
    [[nodiscard]] Handle<Pd> held(Pdn id) const {
        return id.value() < pds_.size() ? pds_[id.value()].pd : nullptr;
    }
    /// Forgets all: who holds one has its objects elsewhere.
    void reset();
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);

private:
    struct Slot {
        Handle<Pd> pd;
        base::MemoryAccount::Charge charge;
    };
    static constexpr std::uint64_t kCost =
        base::heap_cost(sizeof(Pd)) + base::node_cost(sizeof(std::pair<std::uint64_t, Pdn>));
    void load_one(base::StateReader& in);
    [[nodiscard]] static IdPool fresh_ids(std::uint32_t max_pds);
    void remove(Pdn id);

    const std::uint32_t max_pds_;
    HandleNumbers& handles_;
    base::MemoryAccount& account_;
    IdPool ids_;
    std::vector<Slot> pds_;                            // by id
    std::unordered_map<std::uint64_t, Pdn> of_guest_;  // by handle
};

}  // namespace openmana::gdma

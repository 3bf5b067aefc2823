// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/gate.h"
#include "base/guest_memory.h"
#include "base/huge_pages.h"
#include "base/memory_account.h"
#include "gdma/device_memory.h"
#include "gdma/handle.h"
#include "gdma/pd_table.h"
#include "gdma/region_table.h"
#include "gdma/ring.h"
#include "gdma/types.h"

namespace openmana::gdma {

enum class MrType : std::uint32_t {
    kGpa = 1,
    kGva = 2,
    kZeroBased = 4,
    kDeviceMemory = 5,
    kWindowType1 = 6,
    kWindowType2 = 7,
    kFastRegister = 16,  ///< of the extension: without memory until a work request gives it some
};

/// An atomic that may be moved while nobody else looks at it.
template <typename T>
struct MovableAtomic : std::atomic<T> {
    MovableAtomic(T value) : std::atomic<T>(value) {}
    MovableAtomic(MovableAtomic&& other) noexcept : std::atomic<T>(other.load()) {}
};

/// A memory region or window; it holds its PD. Immutable after creation, but for windows and
/// fast-register keys: what they stand for changes under an exclusion of the Gate, and `valid` may
/// fall at any time.
struct MemoryRegion {
    Key key{};
    Key created{};  ///< the key at creation, by which commands name the object
    Handle<Pd> pd;
    MrType type = MrType::kGva;
    std::uint32_t access = 0;  ///< AccessFlag bits
    std::uint64_t base = 0;    ///< address of its first byte
    std::uint64_t length = 0;
    std::unique_ptr<DmaRegion> region;     ///< types 2 and 4
    std::shared_ptr<DeviceMemory> device;  ///< type 5
    std::uint64_t device_handle = 0;       ///< of `device`
    std::uint64_t device_offset = 0;
    // Windows and fast-register keys (IBTA 10.6.7). A visitor may set `valid` to false.
    MovableAtomic<bool> valid{false};
    MemoryRegion* target = nullptr;   ///< window: the region that it shows
    std::uint64_t target_offset = 0;  ///< where in it
    WindowScope scope{};              ///< type 2: who may be reached through it
    std::uint32_t max_pages = 0;      ///< fast register
    /// Fast register: threads that may be copying through it. See KeyUse.
    MovableAtomic<std::uint32_t> users{0};
    /// Valid windows that show this region.
    MovableAtomic<std::uint32_t> windows{0};
    base::MemoryAccount::Charge charge;  ///< the table's
    // Type 2: its neighbours in the list of all such. The executor's alone.
    MemoryRegion* scoped_before = nullptr;
    MemoryRegion* scoped_behind = nullptr;

    [[nodiscard]] bool window() const {
        return type == MrType::kWindowType1 || type == MrType::kWindowType2;
    }
    [[nodiscard]] bool dynamic() const { return window() || type == MrType::kFastRegister; }
};

/// A bind work request. Length 0: the window is unbound.
struct WindowBind {
    Key window{};
    Key new_key{};
    Key region{};
    Pdn pd{};
    WindowScope scope = {};
    std::uint32_t access = 0;
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    bool zero_based = false;
};

/// A fast registration, with the memory that it names.
struct FastRegistration {
    Key key{};  ///< with the new tag
    Pdn pd{};
    std::uint32_t access = 0;
    std::uint64_t base = 0;  ///< address of the first byte
    std::unique_ptr<DmaRegion> region;
};

/// What shall be different of a region that keeps its key.
struct MemoryChange {
    Handle<Pd> pd;  ///< null: it stays
    std::optional<std::uint32_t> access;
    RegionClaim region;      ///< empty: the memory stays
    std::uint64_t base = 0;  ///< with a region
};

/// What its thread resolves through fast-register keys while one lives, it may copy: nobody who
/// makes such a key invalid, or destroys it, goes on before. It lives for a bounded step, may
/// outlive a visit, and once keys of another NIC are in it its thread waits for nothing but object
/// locks. One within another does nothing.
class KeyUse {
public:
    KeyUse();
    ~KeyUse();
    KeyUse(const KeyUse&) = delete;
    KeyUse& operator=(const KeyUse&) = delete;

private:
    bool outer_;
};

/// Keys to regions: (index << 8) + tag. The first index and the first tag of each are chance; the
/// tag changes when an index is used again. An index that was freed rests until so many others have
/// been: a key comes back after kResting * 256 more at the earliest, unless there is no memory for
/// as many or the table may not be so large. Changed on the executor under an exclusion of the
/// Gate; `resolve` also during a visit. No lock and no allocation on the data path.
///
/// A change under the exclusion is that of one entry, or of which table there is. What takes long
/// (another table, freeing, a walk of all windows) is done in a recess of it.
class MemoryTable {
public:
    static constexpr std::size_t kResting = 4096;
    /// Gate, memory and `account`, which pays, outlive it. `seed` decides about first indices and
    /// tags, after each clear() anew.
    MemoryTable(base::Gate& gate, const base::GuestMemory& memory, base::MemoryAccount& account,
                std::uint32_t max_entries, std::uint64_t seed = 0);
    ~MemoryTable() { clear(); }
    MemoryTable(const MemoryTable&) = delete;
    MemoryTable& operator=(const MemoryTable&) = delete;

    /// For one more region: who has it can insert one, as the next that is inserted.
    class Room {
        friend class MemoryTable;
        explicit Room(base::MemoryAccount::Charge charge) : charge_(std::move(charge)) {}
        base::MemoryAccount::Charge charge_;
    };
    /// kExhausted when the table is full. Not during a visit, like all that follows.
    [[nodiscard]] base::Result<Room> make_room();
    /// Fills in `key`.
    Key insert(Room room, MemoryRegion region);
    base::Result<Key> insert(MemoryRegion region);
    /// A region with windows on it is kBusy.
    base::Result<void> remove(Key key);
    /// A region of types 2 and 4, or 5 if its memory stays; kBusy when it has windows.
    base::Result<void> change(Key key, MemoryChange request);
    void clear();
    /// Nobody visits, and the table is empty when it is read; PDs and device memory are there by
    /// then.
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in, const PdTable& pds, const DeviceMemoryTable& device_memory);
    [[nodiscard]] const MemoryRegion* find(Key key) const;
    /// By the key that it was created with.
    [[nodiscard]] const MemoryRegion* find_created(Key key) const;

    /// Binds or unbinds a window (IBTA 10.6.7.2), which its index names: the host cannot know the
    /// tag after a bind that was refused or flushed. False if anything forbids it.
    [[nodiscard]] bool bind(const WindowBind& request);
    /// True if the key, whatever its tag, is one of this PD that can be registered now.
    [[nodiscard]] bool registrable(Key key, Pdn pd, std::uint32_t pages) const;
    /// Of a registrable key. Gives back what it stood for before, to be freed with the gate open.
    [[nodiscard]] std::unique_ptr<DmaRegion> fast_register(FastRegistration request);
    /// Makes a window of type 2 or a fast-register key invalid, for the scope that asks. False if
    /// the key is no such. Also during a visit. Waits until nobody copies through a fast-register
    /// key; what the caller itself resolved in its KeyUse it may not use any more.
    [[nodiscard]] bool invalidate(Key key, Pdn pd, WindowScope scope) const;
    /// Makes the type 2 windows bound to this scope invalid, or all; afterwards nobody uses them.
    void end_windows(std::optional<WindowScope> scope);
    [[nodiscard]] std::size_t size() const { return used_; }
    /// True if the table does not stay in a CPU's cache, so that `prefetch` is worth its cost.
    [[nodiscard]] bool large() const { return fresh_ > kLarge; }
    /// A hint that the key will be looked up soon; any value does.
    void prefetch(Key key) const;
    [[nodiscard]] bool full() const { return used_ >= max_entries_; }

    /// Host memory of `[address, address + length)` under `key`, appended to `out`. All of `need`
    /// must be granted. Length 0 needs no key. On a fault `out` is as it was. `scope`:
    /// through whom a peer asks; windows of type 2 know only one.
    [[nodiscard]] MrFault resolve(Key key, Pdn pd, std::uint64_t address, std::uint64_t length,
                                  std::uint32_t need, SpanList& out, WindowScope scope = {}) const;
    /// What `resolve` would say about key, PD, rights and range, without the cost of listing the
    /// memory. Guest memory missing behind the region shows only when it is resolved.
    [[nodiscard]] MrFault check(Key key, Pdn pd, std::uint64_t address, std::uint64_t length,
                                std::uint32_t need, WindowScope scope = {}) const;

private:
    struct Place {
        const MemoryRegion* region = nullptr;  ///< never a window
        std::uint64_t offset = 0;
    };
    [[nodiscard]] MrFault locate(Key key, Pdn pd, std::uint64_t address, std::uint64_t length,
                                 std::uint32_t need, WindowScope scope, Place& place) const;
    /// Where in slots_ the index of a key is, if it is there.
    [[nodiscard]] std::uint32_t place_of(Key key) const {
        return (key.value() >> kTagBits) - first_index_;
    }
    /// The object at the index of a key, whatever its tag.
    [[nodiscard]] MemoryRegion* at(Key key) const;
    static void release(const MemoryRegion& window);

    /// One cache line, which is all that an access to a plain region needs: one of type 2 or 4
    /// whose guest memory is in one piece.
    struct alignas(64) Slot {
        Key key{};  ///< of a plain region, else 0, which no key is
        Pdn pd{};
        std::uint32_t access = 0;
        std::uint32_t next_free = 0;
        std::uint64_t base = 0;
        std::uint64_t length = 0;
        GuestAddr memory{};              ///< of its first byte
        MemoryRegion* region = nullptr;  ///< the table's own
        std::uint8_t tag = 0;
        /// What the region is now, if it is a plain one.
        void describe();
    };
    static_assert(sizeof(Slot) == 64);
    static constexpr std::size_t kLarge = 4096;
    static constexpr std::uint32_t kTagBits = 8;
    static constexpr std::uint32_t kTagMask = (1U << kTagBits) - 1;
    /// The first key, which is the HWC's, has 24 bits (GDMA 4.2).
    static constexpr std::uint32_t kFirstIndices = 0xff00;
    /// The plain region that has the key, or null.
    [[nodiscard]] const Slot* plain(Key key) const;
    [[nodiscard]] static MrFault refuse(const Slot& slot, Pdn pd, std::uint64_t address,
                                        std::uint64_t length, std::uint32_t need);
    using Slots = std::vector<Slot, base::HugePageAllocator<Slot>>;
    [[nodiscard]] std::uint32_t some_first_index();
    base::Result<void> grow();
    /// Places that were used and are free.
    [[nodiscard]] std::size_t resting() const { return fresh_ - 1 - used_; }
    /// One that was never used, if there is any; else that which rests for longest.
    [[nodiscard]] std::uint32_t take_place();
    /// A window, and what it shows.
    struct Shown {
        MemoryRegion* window = nullptr;
        Key target{};
    };
    [[nodiscard]] std::vector<bool> load_places(base::StateReader& in);
    /// False if it has refused.
    bool load_region(base::StateReader& in, const PdTable& pds,
                     const DeviceMemoryTable& device_memory, std::vector<Shown>& shown);
    void show(base::StateReader& in, const Shown& shown);
    void link_scoped(MemoryRegion& window);
    void unlink_scoped(MemoryRegion& window);

    base::Gate& gate_;
    const base::GuestMemory& memory_;
    base::MemoryAccount& account_;
    const std::uint32_t max_entries_;
    base::Random chance_;
    std::uint32_t first_index_;  // that of place 0
    base::MemoryAccount::Charge slots_charge_;
    Slots slots_;
    std::uint32_t fresh_ = 1;      // the first that was never used; 0 never is: no key is zero
    std::uint32_t free_head_ = 0;  // oldest free place, so that keys come back late; 0: none
    std::uint32_t free_tail_ = 0;
    std::size_t used_ = 0;
    MemoryRegion* scoped_ = nullptr;  // the first window of type 2
};

}  // namespace openmana::gdma

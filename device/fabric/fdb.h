// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tl/expected.hpp>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/counters.h"
#include "base/hold_meter.h"
#include "base/state.h"
#include "fabric/fdb_table.h"

namespace openmana::fabric {

#define OM_FDB_COUNTERS(X)                                                                     \
    X(learned, "fabric.fdb.learned", "addresses learned behind other ends of a tunnel")        \
    X(moved, "fabric.fdb.moved",                                                               \
      "of these, those that were behind another end before: a guest moved, or two have one")   \
    X(forgotten, "fabric.fdb.forgotten", "learned addresses dropped for newer ones")           \
    X(over_share, "fabric.fdb.over_share",                                                     \
      "of these, those of an end that had more than its share of the table")                   \
    X(end_gone, "fabric.fdb.end_gone",                                                         \
      "learned addresses dropped: the end that they were behind was taken out or changed")     \
    X(shared_address, "fabric.fdb.shared_address",                                             \
      "frames from an IP address that several ends have: what is behind which is not learned") \
    X(refused, "fabric.fdb.refused",                                                           \
      "frames dropped: from an address that the table has at another end than they came from") \
    X(reads, "fabric.fdb.reads", "times that a table was read from its file")                  \
    X(read_errors, "fabric.fdb.read_errors",                                                   \
      "times that it could not be, and what was read before was kept")

OM_COUNTERS(FdbCounters, OM_FDB_COUNTERS);

/// Which addresses are behind which ends of the tunnels of one VXLAN network. What somebody wrote
/// down goes before what was learned: first what control clients said, then the file. What has no
/// entry goes to all ends of the flood list: those that the options name, and those that the all-
/// zero address has.
///
/// There are so many learned addresses. Each end that somebody wrote down has an equal share of
/// them, all others together one more. While there is room anybody may have more than that; when
/// there is none, a new one takes the place of an old one of the same end, if that has its share,
/// or of one that has more. Of an end's, that goes which was not seen for longest. An end that is
/// taken out takes what was learned behind it along.
///
/// Look-ups are for any thread, under the lock of an Access; so are changes of the written tables,
/// and to show them, which wait for each other and hold that lock for little at a time.
class Fdb {
public:
    static constexpr std::size_t kMaxLearned = 8192;
    static constexpr base::Duration kAge = std::chrono::seconds(300);
    /// Of learned addresses: so many are looked at or dropped under the lock.
    static constexpr std::size_t kSlice = 64;

    Fdb(const base::Clock& clock, FdbContext context, TunnelEnds remotes, bool learns);

    [[nodiscard]] const FdbContext& context() const { return context_; }
    [[nodiscard]] bool learns() const { return learns_; }
    [[nodiscard]] const FdbCounters& counters() const { return counters_; }

    /// What came of a look at where a frame is from.
    enum class Seen : std::uint8_t {
        kKnown,  ///< or not to be learned
        kNew,
        kMoved,    ///< it was behind another end
        kRefused,  ///< it is behind another end, as somebody wrote down
    };
    /// How to send to a host.
    struct Known {
        TunnelEnd end;
        bool several = false;  ///< ends have its address: which of them sent cannot be told
    };

    /// One look at the table, for any number of frames. The shorter the better.
    class Access {
    public:
        explicit Access(Fdb& fdb) : fdb_(fdb), lock_(fdb.mutex_), now_(fdb.clock_.now()) {}
        /// Where a frame for this address goes; good while the access lasts.
        struct Ends {
            std::span<const TunnelEnd> ends;
            bool flood;  ///< that is the flood list
        };
        [[nodiscard]] Ends ends_of(const base::MacAddr& destination);
        /// How to send to a host that something came from; nothing if no entry names it.
        [[nodiscard]] std::optional<Known> known(const roce::Gid& address) const;
        /// A frame of this source came from that end.
        Seen saw(const base::MacAddr& source, const Known& from);
        [[nodiscard]] base::TimePoint now() const { return now_; }
        /// After kMoved: where it was.
        [[nodiscard]] const TunnelEnd& before() const { return before_; }

    private:
        Fdb& fdb_;
        const std::lock_guard<base::SharedMutex> lock_;
        const base::TimePoint now_;
        TunnelEnd before_;
    };

    /// For who reads the file.
    void count_read(bool good) { (good ? counters_.reads : counters_.read_errors).add(); }
    /// A file's content takes the place of what it had before.
    void set_file(FdbTable table);
    /// What a control client says; the text says why it cannot be.
    tl::expected<void, std::string> command(const FdbLine& line);

    enum class Origin : std::uint8_t { kOption, kFile, kControl, kLearned };
    struct Row {
        base::MacAddr mac;
        TunnelEnd end;
        Origin origin;
        base::Duration age;  ///< of a learned one: since it was seen
    };
    /// All of it, in order of addresses.
    [[nodiscard]] std::vector<Row> rows();
    /// What control clients and the file said, and what was learned; not the options, which each
    /// process has. While nobody else is here.
    void save(base::StateWriter& out) const;
    /// Into one that is as new, whose options may be others.
    void load(base::StateReader& in);
    /// IP addresses of the ends that somebody wrote down.
    [[nodiscard]] std::size_t known_ends();

private:
    struct GidHash {
        std::size_t operator()(const roce::Gid& gid) const;
    };
    /// What was learned behind one end that is written down, or behind all others.
    struct Holder {
        roce::Gid address{};             ///< unspecified: all others
        std::list<std::uint64_t> order;  ///< that seen last in front
        bool over = false;               ///< it has more than its share, and is in over_
        std::list<Holder*>::iterator place{};
    };
    struct Learned {
        TunnelEnd end;
        base::TimePoint seen{};
        Holder* holder = nullptr;
        std::list<std::uint64_t>::iterator place{};
    };
    using LearnedMap = std::unordered_map<std::uint64_t, Learned, base::KeyedHash>;
    [[nodiscard]] const TunnelEnds* written_locked(const base::MacAddr& mac) const;
    Seen learn_locked(std::uint64_t word, const TunnelEnd& from, base::TimePoint now,
                      TunnelEnd& before);
    Holder& holder_locked(const roce::Gid& address);
    void weigh_locked(Holder& holder);
    void make_room_locked(Holder& holder);
    void drop_locked(LearnedMap::iterator entry);
    bool forget_locked(const base::MacAddr& mac);
    /// What follows from the written tables.
    struct Derived {
        TunnelEnds flood;
        std::unordered_map<roce::Gid, Known, GidHash> known;
    };
    [[nodiscard]] Derived derive(const FdbTable& control, const FdbTable& file) const;
    /// Ends that are not in `after` as they are in `before`.
    [[nodiscard]] static std::vector<roce::Gid> gone(const Derived& before, const Derived& after);
    void put(Derived derived, FdbTable* file);
    void make_room_to_add();
    [[nodiscard]] std::optional<std::string> wrong_to_learn(const FdbLine& line) const;
    tl::expected<void, std::string> remove_locked(const FdbLine& line);

    const base::Clock& clock_;
    const FdbContext context_;
    const TunnelEnds remotes_;
    const bool learns_;
    mutable std::mutex change_;  // one changes or shows the written tables; before mutex_
    // Protects all below. The first three change under both and are read under either: a long table
    // is looked through while frames pass.
    mutable base::SharedMutex mutex_{"FDB"};
    FdbTable file_;
    FdbTable control_;
    Derived derived_;
    // These two have their buckets from the beginning, so that one can go through them in slices.
    LearnedMap learned_;
    std::unordered_map<roce::Gid, Holder, GidHash> holders_;  // none without addresses
    std::list<Holder*> over_;
    std::size_t share_ = kMaxLearned;
    FdbCounters counters_;
};

}  // namespace openmana::fabric

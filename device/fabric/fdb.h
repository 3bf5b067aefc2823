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
#include "fabric/fdb_table.h"

namespace openmana::fabric {

#define OM_FDB_COUNTERS(X)                                                                     \
    X(learned, "fabric.fdb.learned", "addresses learned behind other ends of a tunnel")        \
    X(moved, "fabric.fdb.moved",                                                               \
      "of these, those that were behind another end before: a guest moved, or two have one")   \
    X(forgotten, "fabric.fdb.forgotten", "learned addresses dropped for newer ones")           \
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
/// There are so many learned addresses; a new one takes the place of that which was not seen for
/// longest. Look-ups are for any thread, under the lock of an Access; what changes the written
/// tables, or shows them, is for one thread at a time.
class Fdb {
public:
    static constexpr std::size_t kMaxLearned = 8192;
    static constexpr base::Duration kAge = std::chrono::seconds(300);

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
        [[nodiscard]] std::optional<TunnelEnd> known(const roce::Gid& address) const;
        /// A frame of this source came from that end.
        Seen saw(const base::MacAddr& source, const TunnelEnd& from);
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

private:
    struct GidHash {
        std::size_t operator()(const roce::Gid& gid) const;
    };
    struct Learned {
        TunnelEnd end;
        base::TimePoint seen{};
        std::list<std::uint64_t>::iterator place{};
    };
    [[nodiscard]] const TunnelEnds* written_locked(const base::MacAddr& mac) const;
    Seen learn_locked(std::uint64_t word, const TunnelEnd& from, base::TimePoint now,
                      TunnelEnd& before);
    bool forget_locked(const base::MacAddr& mac);
    /// What follows from the written tables.
    struct Derived {
        TunnelEnds flood;
        std::unordered_map<roce::Gid, TunnelEnd, GidHash> known;
    };
    [[nodiscard]] Derived derive(const FdbTable& control, const FdbTable& file) const;
    [[nodiscard]] std::optional<std::string> wrong_to_learn(const FdbLine& line) const;
    tl::expected<void, std::string> remove_locked(const FdbLine& line);

    const base::Clock& clock_;
    const FdbContext context_;
    const TunnelEnds remotes_;
    const bool learns_;
    // Protects all below. The first two change under it and are read without it by the one thread
    // that changes them: a long table is looked through while frames pass.
    base::SharedMutex mutex_{"FDB"};
    FdbTable file_;
    FdbTable control_;
    Derived derived_;
    std::unordered_map<std::uint64_t, Learned, base::KeyedHash> learned_;
    std::list<std::uint64_t> order_;  // that seen last in front
    FdbCounters counters_;
};

}  // namespace openmana::fabric

// SPDX-License-Identifier: Apache-2.0
// A guest with open queue pairs moves between two NICs that an uplink joins, by a client that is
// none of ours (support/raw_vfio_user.h) and copies the memory that the write log names. Its peers
// are on both sides. Then the same with a fault at each message.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/state.h"
#include "fabric/switch.h"
#include "manad/nic_server.h"
#include "manad/uplink_server.h"
#include "support/eventually.h"
#include "support/ext_host.h"
#include "support/next_client.h"
#include "support/raw_vfio_user.h"
#include "support/remote_nic.h"
#include "support/temp_dir.h"

namespace openmana::manad {
namespace {

using test::eventually;
using test::ExtWr;
using test::RawVfioUser;
using test::RemoteNic;

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kRam = RemoteNic::kRamBytes;
constexpr std::uint32_t kBufferBytes = 1U << 20;
/// Where in a buffer: what is sent, what is received or written to, what is counted, what atomics
/// bring back.
constexpr std::uint64_t kOut = 0, kIn = 256U << 10, kCounter = 512U << 10, kBack = 516U << 10;
/// Retries that last for seconds: this host may have much else to do.
const test::ExtPath kPath{.timeout = 17};
constexpr unsigned kSlots = 64;  ///< messages that have a place

/// One end of a connection, with what has come of it.
struct End {
    test::ExtQp qp;
    std::vector<mana_hw_ext_cqe> sent, received;
    std::uint32_t posted = 0;    ///< messages
    std::uint32_t receives = 0;  ///< receives that were posted
    std::uint32_t added = 0;     ///< atomics that were posted
};

/// A guest with its driver, and a connection to each of two others at most.
struct Guest {
    Guest(const std::string& socket, std::uint8_t number)
        : nic(RemoteNic::attach(socket)),
          host(*nic, nic->ram(), nic->irq(), test::test_mac(number), test::ipv4_gid(number)),
          ext(host) {
        host.features |= MANA_HW_RNIC_FEATURE_EXTENSIONS;
        OM_CHECK(host.bring_up());
        buffer = host.ram().alloc(kBufferBytes);
        mr = *host.hwc().create_mr(host.pd, buffer, kBufferBytes, 31);
        cq = *ext.create_cq(1024);
        for (End& end : ends)
            end.qp = *ext.create_qp(cq, cq, {.sq_bytes = 32768, .rq_bytes = 8192});
    }
    [[nodiscard]] test::Peer as_peer(unsigned end, std::uint32_t psn) const {
        return {host.gid(), host.mac(), ends[end].qp.qpn, psn};
    }
    [[nodiscard]] gdma::Sge sge(std::uint64_t offset, std::uint32_t length) const {
        return {buffer.value() + offset, gdma::Key(mr.lkey), length};
    }
    [[nodiscard]] std::uint64_t place(unsigned end, std::uint64_t area,
                                      std::uint32_t number) const {
        return area + (end * kSlots + number % kSlots) * std::uint64_t{1024};
    }
    void receive(unsigned which, unsigned count) {
        End& end = ends[which];
        for (; count > 0; --count, ++end.receives) {
            const gdma::Sge target = sge(place(which, kIn, end.receives), 1024);
            ext.recv(end.qp, end.receives, std::span(&target, 1));
        }
    }
    /// A message that says which one it is.
    void send(unsigned which) {
        End& end = ends[which];
        const std::uint64_t at = place(which, kOut, end.posted);
        std::byte* const bytes = host.ram().at(buffer + at);
        for (unsigned i = 0; i < 1024; ++i) bytes[i] = content(end.posted, i);
        ExtWr wr;
        wr.sges = {sge(at, 1024)};
        ext.post(end.qp, wr);
        ++end.posted;
    }
    static std::byte content(std::uint32_t number, unsigned i) {
        return static_cast<std::byte>(number * 37 + i * (number % 7 + 1));
    }
    /// Adds one to the counter of the peer.
    void add(unsigned which, const Guest& peer) {
        End& end = ends[which];
        ExtWr wr;
        wr.opcode = MANA_HW_EXT_WQE_FETCH_ADD;
        wr.remote_address = peer.buffer.value() + kCounter;
        wr.rkey = peer.mr.rkey;
        wr.swap_add = 1;
        wr.sges = {sge(kBack + (which * 512 + end.added++) * 8, 8)};
        ext.post(end.qp, wr);
    }
    /// Writes that much of its own to a place of the peer's buffer.
    void write(unsigned which, const Guest& peer, std::uint64_t offset, std::uint32_t length) {
        ExtWr wr;
        wr.opcode = MANA_HW_EXT_WQE_WRITE;
        wr.remote_address = peer.buffer.value() + offset;
        wr.rkey = peer.mr.rkey;
        wr.sges = {sge(kOut, length)};
        ext.post(ends[which].qp, wr);
        ++ends[which].posted;
    }
    void poll() {
        while (const auto cqe = cq.poll_frame()) {
            mana_hw_ext_cqe entry;
            std::memcpy(&entry, cqe->data.data(), sizeof entry);
            for (unsigned i = 0; i < ends.size(); ++i) {
                if (cqe->queue_id != ends[i].qp.sq_id && cqe->queue_id != ends[i].qp.qpn) continue;
                (cqe->is_sq ? ends[i].sent : ends[i].received).push_back(entry);
                if (!cqe->is_sq) check_received(i, entry);
            }
        }
    }
    void check_received(unsigned which, const mana_hw_ext_cqe& entry) {
        const auto number = static_cast<std::uint32_t>(ends[which].received.size() - 1);
        const std::byte* const bytes = host.ram().at(buffer + place(which, kIn, number));
        bool same = entry.status == 0 && entry.length == 1024 && entry.cookie == number;
        for (unsigned i = 0; i < 1024; ++i) same = same && bytes[i] == content(number, i);
        wrong += same ? 0 : 1;
    }
    [[nodiscard]] std::uint64_t counter() {
        return host.ram().read<std::uint64_t>(buffer + kCounter);
    }

    std::unique_ptr<RemoteNic> nic;
    test::RdmaHost host;
    test::ExtHost ext;
    base::GuestAddr buffer{};
    test::DriverMr mr;
    test::ExtCq cq;
    std::array<End, 2> ends;
    unsigned wrong = 0;  ///< receives that were not what they should be
};

class MigrationTest : public ::testing::Test {
protected:
    void SetUp() override {
        for (unsigned i = 0; i < 2; ++i) {
            fabric::UplinkConfig config;
            config.kind = fabric::UplinkConfig::Kind::kStream;
            config.path = folder_.path() + "/uplink";
            config.listen = i == 0;
            auto uplink = UplinkServer::create(config, networks_[i], nullptr, nullptr, nullptr);
            ASSERT_TRUE(uplink) << uplink.error().text;
            uplinks_[i] = std::move(*uplink);
            ASSERT_TRUE(uplinks_[i]->start());
        }
        source_ = server("source", 1, 0);
        target_ = server("target", 1, 1, true);
        near_ = server("near", 3, 0);
        far_ = server("far", 4, 1);
        ASSERT_TRUE(eventually([&] { return uplinks_[0]->uplink().connected(); }));
    }
    void TearDown() override {
        for (auto* const nic : {&source_, &target_, &near_, &far_})
            if (*nic) (*nic)->stop();
        for (auto& uplink : uplinks_)
            if (uplink) uplink->stop();
    }
    std::unique_ptr<NicServer> server(const std::string& name, std::uint8_t number,
                                      unsigned network, bool incoming = false,
                                      base::Duration retain = {}) {
        NicOptions options;
        options.socket = folder_.path() + "/" + name;
        options.nic.name = name;
        options.nic.mac = test::test_mac(number);
        options.nic.incoming = incoming;
        options.retain = retain;
        auto created = NicServer::create(options, networks_[network]);
        OM_CHECK(created && (*created)->start());
        return std::move(*created);
    }
    /// A guest at the source, one at each side, and a connection to each.
    void open() {
        mover = std::make_unique<Guest>(source_->socket(), 1);
        peers[0] = std::make_unique<Guest>(near_->socket(), 3);
        peers[1] = std::make_unique<Guest>(far_->socket(), 4);
        for (unsigned i = 0; i < 2; ++i) {
            ASSERT_TRUE(
                peers[i]->ext.connect(peers[i]->ends[0].qp, 900, mover->as_peer(i, 100), kPath));
            ASSERT_TRUE(
                mover->ext.connect(mover->ends[i].qp, 100, peers[i]->as_peer(0, 900), kPath));
        }
    }
    /// Messages and atomics both ways on both connections.
    void traffic(unsigned count) {
        for (unsigned i = 0; i < 2; ++i) {
            peers[i]->receive(0, count);
            mover->receive(i, count);
            for (unsigned n = 0; n < count; ++n) {
                peers[i]->send(0);
                peers[i]->add(0, *mover);
                mover->send(i);
                mover->add(i, *peers[i]);
            }
        }
    }
    void poll() {
        mover->poll();
        for (auto& peer : peers) peer->poll();
    }
    [[nodiscard]] bool finished() {
        poll();
        for (unsigned i = 0; i < 2; ++i) {
            const End& here = mover->ends[i];
            const End& there = peers[i]->ends[0];
            if (here.sent.size() < here.posted + here.added ||
                there.sent.size() < there.posted + there.added ||
                here.received.size() < there.posted || there.received.size() < here.posted)
                return false;
        }
        return true;
    }
    /// Everything has come, once, in its order, and is what was sent.
    void expect_all_well() {
        ASSERT_TRUE(eventually([&] { return finished(); })) << progress();
        std::uint32_t added = 0;
        for (unsigned i = 0; i < 2; ++i) {
            expect_end(*mover, i);
            expect_end(*peers[i], 0);
            EXPECT_EQ(peers[i]->counter(), mover->ends[i].added);
            added += peers[i]->ends[0].added;
        }
        EXPECT_EQ(mover->counter(), added);
        std::set<std::uint64_t> seen;
        for (auto& peer : peers) {
            std::uint64_t before = 0;
            for (std::uint32_t n = 0; n < peer->ends[0].added; ++n) {
                const auto value =
                    peer->host.ram().read<std::uint64_t>(peer->buffer + (kBack + n * 8));
                EXPECT_TRUE(seen.insert(value).second) << "added twice";
                EXPECT_TRUE(n == 0 || value > before);
                before = value;
            }
        }
        EXPECT_EQ(seen.size(), added);
    }
    /// What has come of what was asked for.
    [[nodiscard]] std::string progress() const {
        std::string text;
        const auto say = [&](const char* who, const End& end, const End& other) {
            unsigned bad = 0;
            for (const auto& entry : end.sent) bad += entry.status != 0 ? 1 : 0;
            text += fmt::format("{}: sent {} of {}, {} failed; received {} of {}\n", who,
                                end.sent.size(), end.posted + end.added, bad, end.received.size(),
                                other.posted);
        };
        for (unsigned i = 0; i < 2; ++i) {
            say("mover", mover->ends[i], peers[i]->ends[0]);
            say("peer", peers[i]->ends[0], mover->ends[i]);
        }
        return text;
    }
    static void expect_end(Guest& guest, unsigned which) {
        const End& end = guest.ends[which];
        EXPECT_EQ(end.sent.size(), end.posted + end.added);
        EXPECT_EQ(end.received.size(), end.receives);
        EXPECT_EQ(guest.wrong, 0U);
        for (std::size_t i = 0; i < end.sent.size(); ++i) {
            EXPECT_EQ(end.sent[i].status, 0) << i;
            if (i > 0) {
                EXPECT_GT(static_cast<std::int32_t>(end.sent[i].cookie - end.sent[i - 1].cookie),
                          0);
            }
        }
    }

    /// The other QEMU: its own memory and eventfds, at the NIC that the guest is to go to.
    struct Destination : test::NextClient {
        explicit Destination(const NicServer& nic, base::UniqueFd lent = test::make_memfd(kRam))
            : NextClient(nic.socket(), std::move(lent)) {}
    };
    void copy_page(const Destination& to, std::uint64_t page) {
        std::array<std::byte, kPage> bytes;
        const auto at = static_cast<off_t>(page * kPage);
        ASSERT_EQ(::pread(mover->nic->memory_file().get(), bytes.data(), kPage, at),
                  ssize_t{kPage});
        ASSERT_EQ(::pwrite(to.memory.get(), bytes.data(), kPage, at), ssize_t{kPage});
    }
    /// What the guest's processor writes to, which no NIC logs.
    [[nodiscard]] std::set<std::uint64_t> pages_of_processor() const {
        std::set<std::uint64_t> pages;
        const auto add = [&](std::uint64_t address, std::uint64_t length) {
            const std::uint64_t first = (address - (1ULL << 32)) / kPage;
            for (std::uint64_t i = 0; i <= (length - 1) / kPage; ++i) pages.insert(first + i);
        };
        for (const End& end : mover->ends)
            for (const std::uint64_t page : end.qp.memory.ring.pages) add(page, kPage);
        add(mover->cq.memory.ring.pages.back(), kPage);  // the consumer's record
        add(mover->buffer.value() + kOut, kIn - kOut);
        return pages;
    }
    /// The last round: after it both memories are the same, and what the log did not name was
    /// written by the processor.
    void copy_last(const Destination& to, RawVfioUser& source) {
        for (const std::uint64_t page : source.dirty(1ULL << 32, kRam)) copy_page(to, page);
        const auto processor = pages_of_processor();
        for (const std::uint64_t page : processor) copy_page(to, page);
        std::vector<std::byte> here(kRam), there(kRam);
        ASSERT_EQ(::pread(mover->nic->memory_file().get(), here.data(), kRam, 0), ssize_t{kRam});
        ASSERT_EQ(::pread(to.memory.get(), there.data(), kRam, 0), ssize_t{kRam});
        for (std::uint64_t page = 0; page < kRam / kPage; ++page)
            EXPECT_EQ(std::memcmp(&here[page * kPage], &there[page * kPage], kPage), 0) << page;
    }
    /// The guest is at the other NIC.
    void settle(Destination& to) {
        mover->nic->move_to(base::UniqueFd(to.client.release()), std::move(to.memory),
                            std::move(to.eventfds));
    }
    [[nodiscard]] static std::uint64_t counter(NicServer& nic, const std::string& name) {
        std::uint64_t found = 0;
        nic.visit_counters([&](const base::CounterInfo& info, std::uint64_t value) {
            if (name == info.name) found = value;
        });
        return found;
    }

    const test::TempDir folder_{"migration"};
    base::SystemClock clock_;
    std::array<fabric::Switch, 2> networks_{fabric::Switch(clock_), fabric::Switch(clock_)};
    std::array<std::unique_ptr<UplinkServer>, 2> uplinks_;
    std::unique_ptr<NicServer> source_, target_, near_, far_;
    std::unique_ptr<Guest> mover;
    std::array<std::unique_ptr<Guest>, 2> peers;
};

TEST_F(MigrationTest, AGuestMovesWithItsConnectionsAndTheMemoryThatTheLogNames) {
    open();
    traffic(10);
    ASSERT_TRUE(eventually([&] { return finished(); }));
    RawVfioUser source(mover->nic->client().fd());
    Destination to(*target_);
    ASSERT_TRUE(to.good);
    ASSERT_TRUE(source.log(1ULL << 32, kRam));
    for (std::uint64_t page = 0; page < kRam / kPage; ++page) copy_page(to, page);
    for (int round = 0; round < 3; ++round) {
        traffic(8);
        ASSERT_TRUE(eventually([&] { return finished(); }));
        const auto pages = source.dirty(1ULL << 32, kRam);
        EXPECT_GT(pages.size(), 4U);
        EXPECT_LT(pages.size(), 200U) << "all of it is no answer";
        for (const std::uint64_t page : pages) copy_page(to, page);
    }
    EXPECT_TRUE(eventually([&] {  // queues go to sleep, and say so
        const auto pages = source.dirty(1ULL << 32, kRam);
        for (const std::uint64_t page : pages) copy_page(to, page);
        return pages.empty();
    }));
    traffic(20);
    ASSERT_TRUE(source.set_state(RawVfioUser::kP2p).ok());
    ASSERT_TRUE(source.set_state(RawVfioUser::kStop).ok());
    copy_last(to, source);
    ASSERT_TRUE(source.set_state(RawVfioUser::kStopCopy).ok());
    const auto state = source.read_state(1000);
    ASSERT_GT(state.size(), 1000U);
    const auto expected = source.feature(1U << 16 | 9, {}, 16);
    ASSERT_TRUE(expected.ok());
    EXPECT_GE(RawVfioUser::get(expected.payload, 8, 8), state.size());
    ASSERT_TRUE(to.client.set_state(RawVfioUser::kResuming).ok());
    ASSERT_TRUE(to.client.write_state(state, 777));
    ASSERT_TRUE(to.client.set_state(RawVfioUser::kStop).ok());
    ASSERT_TRUE(to.client.set_state(RawVfioUser::kRunning).ok());
    settle(to);
    expect_all_well();
    traffic(10);
    expect_all_well();
    EXPECT_TRUE(mover->nic->alive());
}

// What others write is written by the thread of their NIC, if that is here, and by the one of the
// NIC itself, if it comes by wire; meanwhile the client copies what it is told of.
TEST_F(MigrationTest, EachPageThatPeersWriteIsNamedAndNoOther) {
    open();
    RawVfioUser source(mover->nic->client().fd());
    ASSERT_TRUE(source.log(1ULL << 32, kRam));
    ASSERT_TRUE(eventually([&] { return source.dirty(1ULL << 32, kRam).empty(); }));
    const int memory = mover->nic->memory_file().get();
    std::vector<std::byte> there(kRam), here(kRam);
    ASSERT_EQ(::pread(memory, there.data(), kRam, 0), ssize_t{kRam});
    const std::uint64_t visits = counter(*near_, "rnic.local.visits");
    std::set<std::uint64_t> written, named;
    const auto copy_round = [&] {
        for (const std::uint64_t page : source.dirty(1ULL << 32, kRam)) {
            named.insert(page);
            const auto at = static_cast<off_t>(page * kPage);
            ASSERT_EQ(::pread(memory, &there[page * kPage], kPage, at), ssize_t{kPage});
        }
    };
    base::Random random(7);
    for (unsigned round = 0; round < 30; ++round) {
        for (auto& peer : peers) {
            for (std::byte& byte : peer->host.ram().bytes(peer->buffer + kOut, kPage))
                byte = static_cast<std::byte>(random.next());
            for (unsigned i = 0; i < 6; ++i) {
                const auto length = static_cast<std::uint32_t>(1 + random.next() % kPage);
                const std::uint64_t at = random.next() % (kBufferBytes - kPage);
                const std::uint64_t first = mover->buffer.value() - (1ULL << 32) + at;
                for (std::uint64_t page = first / kPage; page <= (first + length - 1) / kPage;
                     ++page)
                    written.insert(page);
                peer->write(0, *mover, at, length);
            }
        }
        ASSERT_TRUE(eventually([&] {
            copy_round();
            for (auto& peer : peers) peer->poll();
            return std::ranges::all_of(peers, [](const auto& peer) {
                return peer->ends[0].sent.size() == peer->ends[0].posted;
            });
        }));
    }
    copy_round();
    EXPECT_EQ(named, written);
    ASSERT_EQ(::pread(memory, here.data(), kRam, 0), ssize_t{kRam});
    for (std::uint64_t page = 0; page < kRam / kPage; ++page)
        EXPECT_EQ(std::memcmp(&here[page * kPage], &there[page * kPage], kPage), 0) << page;
    for (auto& peer : peers)
        for (const auto& entry : peer->ends[0].sent) EXPECT_EQ(entry.status, 0);
    EXPECT_GT(counter(*near_, "rnic.local.visits"), visits);
}

// The network learns where the guest is, though that says nothing.
TEST_F(MigrationTest, TheNetworkLearnsWhereTheGuestIs) {
    open();
    RawVfioUser source(mover->nic->client().fd());
    Destination to(*target_);
    ASSERT_TRUE(to.good);
    EXPECT_EQ(networks_[1].peers().find(test::test_mac(1)), nullptr) << "it waits for a guest";
    ASSERT_TRUE(source.set_state(RawVfioUser::kStop).ok());
    EXPECT_EQ(networks_[0].peers().find(test::test_mac(1)), nullptr);
    for (std::uint64_t page = 0; page < kRam / kPage; ++page) copy_page(to, page);
    ASSERT_TRUE(source.set_state(RawVfioUser::kStopCopy).ok());
    ASSERT_TRUE(to.client.set_state(RawVfioUser::kResuming).ok());
    ASSERT_TRUE(to.client.write_state(source.read_state(1U << 20), 1U << 20));
    const std::uint64_t before = networks_[0].counters().learned.value();
    ASSERT_TRUE(to.client.set_state(RawVfioUser::kRunning).ok());
    EXPECT_NE(networks_[1].peers().find(test::test_mac(1)), nullptr);
    EXPECT_TRUE(eventually([&] { return networks_[0].counters().learned.value() > before; }));
    settle(to);
    traffic(5);
    expect_all_well();
}

TEST_F(MigrationTest, ASourceThatIsToldToGoOnDoesAsIfNothingHadBeen) {
    open();
    RawVfioUser source(mover->nic->client().fd());
    for (const unsigned state : {RawVfioUser::kStop, RawVfioUser::kStopCopy}) {
        traffic(10);
        ASSERT_TRUE(source.set_state(state).ok());
        if (state == RawVfioUser::kStopCopy) {
            EXPECT_FALSE(source.read_state(4096).empty());
        }
        ASSERT_TRUE(source.set_state(RawVfioUser::kRunning).ok());
        expect_all_well();
    }
}

// While it is stopped it writes to no memory, whatever its peers send.
TEST_F(MigrationTest, AStoppedNicWritesNothing) {
    open();
    RawVfioUser source(mover->nic->client().fd());
    mover->receive(0, 10);
    mover->receive(1, 10);
    ASSERT_TRUE(source.log(1ULL << 32, kRam));
    ASSERT_TRUE(source.set_state(RawVfioUser::kStop).ok());
    (void)source.dirty(1ULL << 32, kRam);
    for (auto& peer : peers)
        for (int i = 0; i < 10; ++i) {
            peer->send(0);
            peer->add(0, *mover);
        }
    ASSERT_TRUE(eventually([&] {
        return counter(*near_, "rnic.requester.timeouts") > 0 &&
               counter(*far_, "rnic.requester.timeouts") > 0;
    }));
    EXPECT_TRUE(source.dirty(1ULL << 32, kRam).empty());
    EXPECT_EQ(mover->counter(), 0U);
    ASSERT_TRUE(source.set_state(RawVfioUser::kRunning).ok());
    expect_all_well();
    EXPECT_FALSE(source.dirty(1ULL << 32, kRam).empty());
    EXPECT_TRUE(source.log_no_more());
    EXPECT_TRUE(source
                    .feature(1U << 16 | 8,
                             RawVfioUser::number(8, 1ULL << 32) + RawVfioUser::number(8, kPage) +
                                 RawVfioUser::number(8, kPage),
                             64)
                    .error);
}

// Whatever message it is that fails, the source goes on, and the target can be used for the next
// attempt, or by a guest of its own.
TEST_F(MigrationTest, AfterAFaultAtAnyMessageTheSourceRunsAndTheTargetIsClean) {
    open();
    enum class Fault {
        kSourceCancelsBeforeCopy,
        kSourceCancelsWhileCopying,
        kTargetGoesBeforeResuming,
        kTargetGoesWhileResuming,
        kTargetGoesWhenLoaded,
        kHalfAState,
        kBrokenState,
        kNoState,
        kStateAndMore,
        kResetWhenLoaded,
    };
    for (int number = 0; number <= static_cast<int>(Fault::kResetWhenLoaded); ++number) {
        SCOPED_TRACE(number);
        const auto fault = static_cast<Fault>(number);
        RawVfioUser source(mover->nic->client().fd());
        Destination to(*target_);
        ASSERT_TRUE(to.good);
        ASSERT_TRUE(source.log(1ULL << 32, kRam));
        traffic(2);
        ASSERT_TRUE(source.set_state(RawVfioUser::kStop).ok());
        if (fault != Fault::kSourceCancelsBeforeCopy) {
            ASSERT_TRUE(source.set_state(RawVfioUser::kStopCopy).ok());
            auto state = source.read_state(1U << 20);
            ASSERT_FALSE(state.empty());
            if (fault == Fault::kHalfAState) state.resize(state.size() / 2);
            if (fault == Fault::kBrokenState) state[state.size() / 2] ^= 1;
            if (fault == Fault::kNoState) state.clear();
            if (fault == Fault::kStateAndMore) state.push_back(0);
            if (fault == Fault::kTargetGoesBeforeResuming) to.client.close();
            const bool gone = fault == Fault::kTargetGoesBeforeResuming ||
                              fault == Fault::kSourceCancelsWhileCopying;
            if (!gone) {
                ASSERT_TRUE(to.client.set_state(RawVfioUser::kResuming).ok());
                ASSERT_TRUE(to.client.write_state(state, 5000));
                if (fault == Fault::kTargetGoesWhileResuming) {
                    to.client.close();
                } else {
                    const bool good =
                        fault == Fault::kTargetGoesWhenLoaded || fault == Fault::kResetWhenLoaded;
                    const auto loaded = to.client.set_state(RawVfioUser::kStop);
                    EXPECT_EQ(loaded.ok(), good);
                    if (!good) {
                        EXPECT_EQ(loaded.number, static_cast<unsigned>(EINVAL));
                        EXPECT_EQ(to.client.state(), 0U);
                        EXPECT_FALSE(to.client.set_state(RawVfioUser::kRunning).ok());
                        EXPECT_TRUE(to.client.reset());
                        EXPECT_EQ(to.client.state(), unsigned{RawVfioUser::kRunning});
                    } else if (fault == Fault::kResetWhenLoaded) {
                        EXPECT_TRUE(to.client.reset());
                    }
                }
            }
        }
        to.client.close();
        ASSERT_TRUE(source.set_state(RawVfioUser::kRunning).ok());
        ASSERT_TRUE(source.log_no_more());
        expect_all_well();
        ASSERT_TRUE(eventually([&] { return !target_->has_client(); }));
        const auto status = target_->call("status", [&] { return target_->status(); });
        ASSERT_TRUE(status);
        EXPECT_EQ(status->objects, gdma::ObjectCounts());
        EXPECT_EQ(status->qps, 0U);
        EXPECT_FALSE(*target_->call("moving", [&] { return target_->moving(); }));
        EXPECT_EQ(networks_[1].peers().find(test::test_mac(1)), nullptr);
    }
    // A guest of its own.
    source_->stop();
    Guest other(target_->socket(), 1);
    EXPECT_TRUE(other.nic->alive());
}

// A client that goes without a word in the middle of it: what was stopped can be used by the next.
TEST_F(MigrationTest, ASourceWhoseClientGoesInTheMiddleIsAsAfterAReset) {
    for (const unsigned state :
         {RawVfioUser::kStop, RawVfioUser::kStopCopy, RawVfioUser::kResuming, RawVfioUser::kP2p}) {
        {
            Guest guest(source_->socket(), 1);
            RawVfioUser source(guest.nic->client().fd());
            ASSERT_TRUE(source.log(1ULL << 32, kRam));
            ASSERT_TRUE(source.set_state(state).ok());
        }
        ASSERT_TRUE(eventually([&] { return !source_->has_client(); }));
        EXPECT_FALSE(*source_->call("moving", [&] { return source_->moving(); }));
    }
    open();
    traffic(3);
    expect_all_well();
}

TEST_F(MigrationTest, ANicWhoseGuestIsToStayOffersNoMigration) {
    source_->stop();
    source_.reset();
    NicOptions options;
    options.socket = folder_.path() + "/stays";
    options.nic.name = "stays";
    options.nic.mac = test::test_mac(1);
    options.migration = false;
    auto created = NicServer::create(options, networks_[0]);
    ASSERT_TRUE(created && (*created)->start());
    source_ = std::move(*created);
    Guest guest(source_->socket(), 1);
    RawVfioUser client(guest.nic->client().fd());
    const auto answer = client.feature(1U << 18 | 1U << 16 | 1, {}, 16);
    EXPECT_TRUE(answer.error);
    EXPECT_FALSE(client.set_state(RawVfioUser::kStop).ok());
    EXPECT_FALSE(*source_->call("moving", [&] { return source_->moving(); }));
    EXPECT_TRUE(guest.nic->alive());
}

/// A source that is kept for another client of its guest.
class RetainTest : public MigrationTest {
protected:
    void SetUp() override {
        MigrationTest::SetUp();
        keep(std::chrono::minutes(10));
    }
    void keep(base::Duration retain) {
        if (source_) source_->stop();
        source_.reset();
        source_ = server("source", 1, 0, false, retain);
    }
    /// Its client closes the connection, and stops it before if it is said to.
    void leave(bool stopped) {
        if (stopped) {
            ASSERT_TRUE(RawVfioUser(mover->nic->client().fd()).set_state(RawVfioUser::kStop).ok());
        }
        mover->nic->client().close();
        ASSERT_TRUE(eventually([&] { return !source_->has_client(); }));
    }
    /// Another client, with the same memory.
    [[nodiscard]] Destination next() const {
        return Destination(*source_, base::UniqueFd(::dup(mover->nic->memory_file().get())));
    }
};

// As QEMU does it that is replaced in its place: the old one goes, the new one finds the NIC.
TEST_F(RetainTest, AnotherClientGoesOnWithTheConnections) {
    open();
    for (const bool stopped : {false, true}) {
        SCOPED_TRACE(stopped);
        traffic(10);
        leave(stopped);
        RawVfioUser(source_->socket()).close();  // one that has nothing to say changes nothing
        Destination to = next();
        ASSERT_TRUE(to.good);
        EXPECT_EQ(to.client.state(), unsigned{RawVfioUser::kStop});
        ASSERT_TRUE(to.client.set_state(RawVfioUser::kRunning).ok());
        settle(to);
        expect_all_well();
        traffic(10);
        expect_all_well();
    }
    EXPECT_EQ(counter(*source_, "vfio_user.client.retain_ended"), 0U);
}

// Nothing touches what was the client's: it has closed its memory and may use it for other things.
TEST_F(RetainTest, WhatTheClientHasLentIsItsOwnAgain) {
    open();
    traffic(10);
    leave(false);
    std::vector<std::byte> before(kRam), after(kRam);
    const int memory = mover->nic->memory_file().get();
    ASSERT_EQ(::pread(memory, before.data(), kRam, 0), ssize_t{kRam});
    for (auto& peer : peers) peer->send(0);
    ASSERT_TRUE(eventually([&] {
        return counter(*near_, "rnic.requester.timeouts") > 0 &&
               counter(*far_, "rnic.requester.timeouts") > 0;
    }));
    ASSERT_EQ(::pread(memory, after.data(), kRam, 0), ssize_t{kRam});
    EXPECT_EQ(std::memcmp(before.data(), after.data(), kRam), 0);
}

// One that knows nothing of the guest before it gets a NIC as after a reset, by the reset that each
// machine begins with.
TEST_F(RetainTest, AResetOfTheNextClientForgetsTheGuest) {
    open();
    leave(false);
    mover.reset();
    RawVfioUser next(source_->socket());
    ASSERT_TRUE(next.ok());
    EXPECT_GT(source_->call("status", [&] { return source_->status(); })->qps, 0U);
    ASSERT_TRUE(next.reset());
    EXPECT_EQ(next.state(), unsigned{RawVfioUser::kRunning});
    EXPECT_EQ(source_->call("status", [&] { return source_->status(); })->qps, 0U);
    next.close();
}

TEST_F(RetainTest, WhenNobodyComesInTimeTheNicIsReset) {
    keep(std::chrono::milliseconds(200));
    open();
    leave(false);
    ASSERT_TRUE(
        eventually([&] { return counter(*source_, "vfio_user.client.retain_ended") == 1; }));
    const auto status = source_->call("status", [&] { return source_->status(); });
    ASSERT_TRUE(status);
    EXPECT_EQ(status->objects, gdma::ObjectCounts());
    EXPECT_FALSE(*source_->call("moving", [&] { return source_->moving(); }));
    Guest other(source_->socket(), 1);
    EXPECT_TRUE(other.nic->alive());
}

// A guest that was moved is elsewhere, and a client that breaks the protocol is not to be trusted.
TEST_F(RetainTest, AGuestThatWasMovedAndABrokenClientLeaveNothing) {
    for (const bool moved : {true, false}) {
        SCOPED_TRACE(moved);
        Guest guest(source_->socket(), 1);
        if (moved) {
            RawVfioUser client(guest.nic->client().fd());
            ASSERT_TRUE(client.set_state(RawVfioUser::kStopCopy).ok());
            guest.nic->client().close();
        } else {
            const std::array<char, 16> garbage{1, 0, 99};
            ASSERT_EQ(::send(guest.nic->client().fd(), garbage.data(), garbage.size(), 0), 16);
        }
        ASSERT_TRUE(eventually([&] { return !source_->has_client(); }));
        EXPECT_FALSE(*source_->call("moving", [&] { return source_->moving(); }));
        EXPECT_EQ(source_->call("status", [&] { return source_->status(); })->objects,
                  gdma::ObjectCounts());
    }
    EXPECT_EQ(counter(*source_, "vfio_user.client.retained"), 0U);
}

TEST_F(MigrationTest, WritesToBar0OfAStoppedNicAreRefused) {
    open();
    RawVfioUser source(mover->nic->client().fd());
    ASSERT_TRUE(source.set_state(RawVfioUser::kStop).ok());
    const std::uint64_t value = 0;
    EXPECT_FALSE(mover->nic->client().write(0, 0x10000, std::as_bytes(std::span(&value, 1))));
    EXPECT_TRUE(mover->nic->client().read(0, 0, 8));
    ASSERT_TRUE(source.set_state(RawVfioUser::kRunning).ok());
    EXPECT_EQ(counter(*source_, "pci.bar0.stopped"), 1U);
}

}  // namespace
}  // namespace openmana::manad

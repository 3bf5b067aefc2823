// SPDX-License-Identifier: Apache-2.0
// Guests' shares of manad on threads of their own, and verified traffic between them.
#pragma once

#include <gtest/gtest.h>
#include <mana/gdma.h>
#include <mana/rnic_queue.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/event_loop.h"
#include "fabric/nic.h"
#include "support/guest_ram.h"
#include "support/rdma_host.h"

namespace openmana::test {

using Clock = std::chrono::steady_clock;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(OPENMANA_COVERAGE)
constexpr bool kInstrumented = true;
#else
constexpr bool kInstrumented = false;
#endif

inline std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

inline std::uint64_t resident_bytes() {
    std::ifstream statm("/proc/self/statm");
    std::uint64_t all = 0;
    std::uint64_t resident = 0;
    statm >> all >> resident;
    return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

/// A host's share of manad for one guest: loop, thread, memory, NIC.
struct Machine {
    Machine(fabric::Switch& network, std::uint8_t host)
        : loop(std::move(*base::EventLoop::create())),
          ram(memory, 32U << 20),
          nic(*loop, memory, irq, network, config(host)) {}
    ~Machine() { stop(); }
    static fabric::NicConfig config(std::uint8_t host) {
        fabric::NicConfig nic;
        nic.name = "nic" + std::to_string(host);
        nic.mac = test_mac(host);
        return nic;
    }
    void start() {
        thread = std::thread([this] { loop->run(); });
    }
    void stop() {
        if (!thread.joinable()) return;
        loop->stop();
        thread.join();
    }
    /// Runs `f` where the NIC lives, and gives back what it returns.
    template <typename F>
    auto on_loop(F&& f) {
        std::packaged_task<decltype(f())()> task(std::forward<F>(f));
        auto result = task.get_future();
        loop->post([&] { task(); });
        return result.get();
    }
    std::unique_ptr<base::EventLoop> loop;
    base::GuestMemory memory;
    GuestRam ram;
    FakeIrq irq;
    fabric::Nic nic;
    std::thread thread;
};

/// One message of a stream: both ends draw the same ones from the same seed.
struct Message {
    std::uint32_t opcode = 0;
    std::uint32_t length = 0;
    std::uint64_t number = 0;
    [[nodiscard]] bool takes_receive() const {
        return opcode != MANA_HW_RNIC_WQE_WRITE && opcode != MANA_HW_RNIC_WQE_READ;
    }
    [[nodiscard]] std::byte at(std::size_t i) const {
        return static_cast<std::byte>((number * 0x9e3779b97f4a7c15ULL >> 32) + i * 7 + (i >> 8));
    }
};

class Messages {
public:
    static constexpr std::uint32_t kMaxBytes = 12288;

    explicit Messages(std::uint64_t seed) : random_(seed) {}
    Message next() {
        static constexpr std::uint32_t kOpcodes[] = {
            MANA_HW_RNIC_WQE_SEND, MANA_HW_RNIC_WQE_SEND_IMM, MANA_HW_RNIC_WQE_WRITE,
            MANA_HW_RNIC_WQE_WRITE_IMM, MANA_HW_RNIC_WQE_READ};
        Message message;
        message.number = number_++;
        message.opcode = kOpcodes[random_.below(std::size(kOpcodes))];
        message.length = random_.chance_ppm(50000)
                             ? 0
                             : static_cast<std::uint32_t>(1 + random_.below(kMaxBytes));
        return message;
    }

private:
    base::Random random_;
    std::uint64_t number_ = 0;
};

/// One verified stream of messages, from a QP of one machine to a QP of another. Each side runs on
/// its machine's loop.
class Stream {
public:
    static constexpr std::uint64_t kSlots = 16;  ///< messages between posted and verified
    static constexpr std::uint64_t kSlotBytes = 16384;

    Stream(RdmaHost& from, RdmaHost& to, std::uint64_t seed)
        : from_(from), to_(to), posting_(seed), completing_(seed), receiving_(seed) {}

    bool open_sender() {
        auto cq = from_.create_cq(16384);
        if (!cq) return false;
        send_cq_ = std::move(*cq);
        qp_ = from_.create_rc(send_cq_, send_cq_, 8192);
        source_ = from_.ram().alloc(kSlots * kSlotBytes);
        const auto mr = from_.hwc().create_mr(from_.pd, source_, kSlots * kSlotBytes, 3);
        if (!qp_ || !mr) return false;
        source_mr_ = *mr;
        return true;
    }
    bool open_receiver() {
        auto cq = to_.create_cq(16384);
        if (!cq) return false;
        recv_cq_ = std::move(*cq);
        peer_ = to_.create_rc(recv_cq_, recv_cq_, 4096, 8192);
        target_ = to_.ram().alloc(kSlots * kSlotBytes);
        inbox_ = to_.ram().alloc(kSlots * kSlotBytes);
        library_ = to_.ram().alloc(kSlotBytes);
        const auto mr = to_.hwc().create_mr(to_.pd, target_, kSlots * kSlotBytes, 15);
        const auto inbox = to_.hwc().create_mr(to_.pd, inbox_, kSlots * kSlotBytes, 3);
        const auto library = to_.hwc().create_mr(to_.pd, library_, kSlotBytes, 5);
        if (!peer_ || !mr || !inbox || !library) return false;
        target_mr_ = *mr;
        inbox_mr_ = *inbox;
        library_mr_ = *library;
        for (std::size_t i = 0; i < kSlotBytes; ++i)
            *to_.ram().at(library_ + i) = static_cast<std::byte>(i * 13 + 5);
        for (std::uint64_t i = 0; i < kSlots; ++i)
            if (!post_receive(i)) return false;
        return true;
    }
    bool connect_sender() {
        return from_.connect(*qp_, kSendPsn, {to_.gid(), to_.mac(), peer_->qpn(), kBackPsn}, 1024);
    }
    bool connect_receiver() {
        return to_.connect(*peer_, kBackPsn, {from_.gid(), from_.mac(), qp_->qpn(), kSendPsn},
                           1024);
    }
    [[nodiscard]] Peer peer() const { return {to_.gid(), to_.mac(), peer_->qpn(), kBackPsn}; }
    [[nodiscard]] Peer sender() const { return {from_.gid(), from_.mac(), qp_->qpn(), kSendPsn}; }

    /// Posts what there is room for and looks at completions; true if anything happened.
    bool pump_sender(bool may_post) {
        bool worked = false;
        while (may_post &&
               posted_ - std::min(completed_, verified_.load(std::memory_order_acquire)) < kSlots) {
            if (!post(posting_.next())) break;
            worked = true;
        }
        std::vector<Completion> done;
        HostQp* const mine = qp_.get();
        from_.poll(send_cq_, std::span(&mine, 1), done);
        for (const Completion& completion : done) complete(completion);
        return worked || !done.empty();
    }
    bool pump_receiver() {
        std::vector<Completion> done;
        HostQp* const mine = peer_.get();
        to_.poll(recv_cq_, std::span(&mine, 1), done);
        for (const Completion& completion : done) receive(completion);
        // What consumes no receive is known to have ended once the sender has its completion.
        if (failure_.load(std::memory_order_acquire) == nullptr)
            verify_up_to(sender_done_.load(std::memory_order_acquire));
        return !done.empty();
    }
    [[nodiscard]] bool drained() const {
        return completed_atomic_.load(std::memory_order_acquire) ==
                   posted_atomic_.load(std::memory_order_acquire) &&
               verified_.load(std::memory_order_acquire) ==
                   posted_atomic_.load(std::memory_order_acquire);
    }
    [[nodiscard]] std::uint64_t verified() const {
        return verified_.load(std::memory_order_acquire);
    }
    [[nodiscard]] std::uint64_t posted() const {
        return posted_atomic_.load(std::memory_order_acquire);
    }
    [[nodiscard]] const char* failure() const { return failure_.load(std::memory_order_acquire); }
    [[nodiscard]] std::uint32_t failure_detail() const {
        return failure_detail_.load(std::memory_order_acquire);
    }

private:
    static constexpr std::uint32_t kSendPsn = 0xfffff0;
    static constexpr std::uint32_t kBackPsn = 77;

    void fail(const char* what, std::uint64_t detail = 0) {
        failure_detail_.store(static_cast<std::uint32_t>(detail), std::memory_order_release);
        failure_.store(what, std::memory_order_release);
    }
    bool post_receive(std::uint64_t index) {
        const gdma::Sge sge{inbox_.value() + index % kSlots * kSlotBytes, gdma::Key(inbox_mr_.lkey),
                            static_cast<std::uint32_t>(kSlotBytes)};
        return to_.post_recv(*peer_, index, std::span(&sge, 1));
    }
    bool post(const Message& message) {
        const std::uint64_t slot = message.number % kSlots * kSlotBytes;
        SendWr wr;
        wr.opcode = message.opcode;
        wr.id = message.number;
        wr.immediate = static_cast<std::uint32_t>(message.number);
        const bool read = message.opcode == MANA_HW_RNIC_WQE_READ;
        wr.remote_address = read ? library_.value() : target_.value() + slot;
        wr.rkey = read ? library_mr_.rkey : target_mr_.rkey;
        // In two pieces, so that gathering is at work.
        const std::uint32_t first = message.length / 3;
        if (first != 0)
            wr.sges.push_back({source_.value() + slot, gdma::Key(source_mr_.lkey), first});
        if (message.length != first)
            wr.sges.push_back({source_.value() + slot + first, gdma::Key(source_mr_.lkey),
                               message.length - first});
        for (std::uint32_t i = 0; i < message.length; ++i)
            *from_.ram().at(source_ + slot + i) = read ? std::byte{0} : message.at(i);
        ++posted_;
        posted_atomic_.store(posted_, std::memory_order_release);
        if (!from_.post_send(*qp_, wr)) {
            fail("a send was refused", message.number);
            return false;
        }
        return true;
    }
    void complete(const Completion& completion) {
        const Message message = completing_.next();
        if (completion.vendor != 0 || completion.receive)
            return fail("a send failed", completion.vendor);
        if (completion.id != message.number)
            return fail("a send completed out of order", message.number);
        if (message.opcode == MANA_HW_RNIC_WQE_READ) {
            const std::uint64_t slot = message.number % kSlots * kSlotBytes;
            for (std::uint32_t i = 0; i < message.length; ++i)
                if (*from_.ram().at(source_ + slot + i) != static_cast<std::byte>(i * 13 + 5))
                    return fail("a READ gave wrong data", message.number);
        }
        ++completed_;
        completed_atomic_.store(completed_, std::memory_order_release);
        sender_done_.store(completed_, std::memory_order_release);
    }
    /// The next message, if its number is below `limit` and it consumes no receive.
    void verify_up_to(std::uint64_t limit) {
        while (failure() == nullptr) {
            if (!ahead_) ahead_ = receiving_.next();
            if (ahead_->number >= limit || ahead_->takes_receive()) return;
            verify_target(*ahead_);
            ahead_.reset();
        }
    }
    void verify_target(const Message& message) {
        if (message.opcode == MANA_HW_RNIC_WQE_WRITE ||
            message.opcode == MANA_HW_RNIC_WQE_WRITE_IMM) {
            const std::uint64_t slot = message.number % kSlots * kSlotBytes;
            for (std::uint32_t i = 0; i < message.length; ++i)
                if (*to_.ram().at(target_ + slot + i) != message.at(i))
                    return fail("a WRITE left wrong data", message.number);
        }
        verified_.store(message.number + 1, std::memory_order_release);
    }
    void receive(const Completion& completion) {
        if (completion.vendor != 0 || !completion.receive)
            return fail("a receive failed", completion.vendor);
        // Earlier WRITEs have ended before this receive; an earlier READ says nothing here.
        verify_up_to(UINT64_MAX);
        const Message message = *std::exchange(ahead_, std::nullopt);
        if (completion.id != received_)
            return fail("a receive completed out of order", completion.id);
        if (completion.length != message.length)
            return fail("a receive has the wrong length", completion.length);
        if (message.opcode != MANA_HW_RNIC_WQE_SEND &&
            completion.immediate != static_cast<std::uint32_t>(message.number))
            return fail("a receive has the wrong immediate", completion.immediate);
        if (message.opcode == MANA_HW_RNIC_WQE_SEND ||
            message.opcode == MANA_HW_RNIC_WQE_SEND_IMM) {
            const std::uint64_t slot = received_ % kSlots * kSlotBytes;
            for (std::uint32_t i = 0; i < message.length; ++i)
                if (*to_.ram().at(inbox_ + slot + i) != message.at(i))
                    return fail("a SEND brought wrong data", message.number);
        }
        if (!post_receive(received_ + kSlots)) return fail("a receive was refused", received_);
        ++received_;
        verify_target(message);
    }

    RdmaHost& from_;
    RdmaHost& to_;
    // Sender's loop.
    Messages posting_;
    Messages completing_;
    DriverCq send_cq_;
    std::unique_ptr<HostQp> qp_;
    base::GuestAddr source_{};
    DriverMr source_mr_;
    std::uint64_t posted_ = 0;
    std::uint64_t completed_ = 0;
    // Receiver's loop.
    Messages receiving_;
    std::optional<Message> ahead_;
    DriverCq recv_cq_;
    std::unique_ptr<HostQp> peer_;
    base::GuestAddr target_{}, inbox_{}, library_{};
    DriverMr target_mr_, inbox_mr_, library_mr_;
    std::uint64_t received_ = 0;
    // Between them.
    std::atomic<std::uint64_t> posted_atomic_{0};
    std::atomic<std::uint64_t> completed_atomic_{0};
    std::atomic<std::uint64_t> sender_done_{0};
    std::atomic<std::uint64_t> verified_{0};
    std::atomic<const char*> failure_{nullptr};
    std::atomic<std::uint32_t> failure_detail_{0};
};

/// Drives both ends of the streams of one machine until told to end.
class Worker {
public:
    Worker(Machine& machine, std::vector<Stream*> out, std::vector<Stream*> in)
        : loop_(*machine.loop),
          out_(std::move(out)),
          in_(std::move(in)),
          timer_(loop_, [this] { slice(); }) {}
    void slice() {
        if (ended_) return;
        bool worked = false;
        for (Stream* stream : out_)
            worked |= stream->pump_sender(may_post_.load(std::memory_order_acquire));
        for (Stream* stream : in_) worked |= stream->pump_receiver();
        if (worked)
            loop_.post([this] { slice(); });
        else
            timer_.arm(std::chrono::microseconds(50));
    }
    void finish_posting() { may_post_.store(false, std::memory_order_release); }
    /// On the loop.
    void end() {
        ended_ = true;
        timer_.cancel();
    }

private:
    base::EventLoop& loop_;
    std::vector<Stream*> out_;
    std::vector<Stream*> in_;
    base::Timer timer_;
    std::atomic<bool> may_post_{true};
    bool ended_ = false;
};

/// Both directions between two machines.
inline void connect(Machine& left, Machine& right, Stream& to_right, Stream& to_left) {
    ASSERT_TRUE(left.on_loop([&] { return to_right.open_sender() && to_left.open_receiver(); }));
    ASSERT_TRUE(right.on_loop([&] { return to_left.open_sender() && to_right.open_receiver(); }));
    ASSERT_TRUE(
        left.on_loop([&] { return to_right.connect_sender() && to_left.connect_receiver(); }));
    ASSERT_TRUE(
        right.on_loop([&] { return to_left.connect_sender() && to_right.connect_receiver(); }));
}

inline void expect_all_verified(const Stream& stream) {
    EXPECT_EQ(stream.failure(), nullptr) << (stream.failure() == nullptr ? "" : stream.failure())
                                         << ", detail " << stream.failure_detail();
    EXPECT_TRUE(stream.drained()) << stream.verified() << " of " << stream.posted() << " verified";
}

inline void expect_no_errors(Machine& machine) {
    for (const auto& qp : machine.on_loop([&] { return machine.nic.rdma().qp_status(); })) {
        EXPECT_STREQ(qp.state, "RTS");
        EXPECT_EQ(qp.errors, 0U);
    }
}

inline void expect_no_growth(std::uint64_t early, std::uint64_t late) {
    // AddressSanitizer keeps what was freed, up to 256 MiB of it.
    const std::uint64_t allowed = kInstrumented ? 768U << 20 : 96U << 20;
    EXPECT_LT(late, early + allowed) << "memory grows";
}

}  // namespace openmana::test

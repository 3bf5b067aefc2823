// SPDX-License-Identifier: Apache-2.0
// Every pair of data-path calls that may run at once, by two threads, on QPs of each format. Under
// TSan this says which words the two share without an order; in every build each work request must
// be reported exactly once, and in order.
#include <algorithm>
#include <map>
#include <thread>
#include <tuple>

#include "threads_rig.h"

namespace openmana::test {
namespace {

constexpr int kRounds = 30, kSteps = 24;

enum class Call {
    kPostSend,
    kPostRecv,
    kPollSend,
    kPollRecv,
    kFailSend,  // polls the sends' CQ; halfway the device fails the sends of both QPs
    kFailRecv,
    kArmSend,
    kArmRecv,
    kEvent,
    kResize,       // the sends' CQ
    kRegister,     // memory of receives, and deregisters it
    kPermit,       // what modify QP changes for the posts
    kForgetFirst,  // destroys or resets the first QP, or the second
    kForgetSecond,
};

/// One round: a rig, and what happened on it.
class Round {
public:
    explicit Round(RigFormat format) : rig(format) {
        for (std::size_t i = 0; i < kRigDepth / 2; ++i) {
            post_send(0), post_send(1);
            post_recv(0), post_recv(1);
        }
    }
    /// Both calls at once.
    void run(Call first, Call second) {
        std::atomic<int> ready = 0;
        const auto body = [&](Call call) {
            ++ready;
            while (ready != 2) std::this_thread::yield();
            for (int step = 0; step < kSteps; ++step) {
                make(call, step);
                if (step % 8 == 7) std::this_thread::yield();
            }
        };
        std::thread other(body, second);
        body(first);
        other.join();
    }
    /// What is still in the queues is completed and polled; then every work request was reported.
    void settle() {
        for (const auto& qp : rig.qps)
            if (!qp->gone) qp->permit(true);
        for (int i = 0; i < 3; ++i) poll(rig.send, 0), poll(rig.recv, 1);
        for (std::uint64_t key = 0; key < 4; ++key) {
            const bool in_order = rig.format_ != RigFormat::kSharedReceive || key % 2 == 0;
            std::vector<std::uint64_t> seen;
            for (const auto& of_cq : done_)
                for (const mana_completion& c : of_cq)
                    if (c.wr_id >> 32 == key) seen.push_back(c.wr_id & 0xffffffff);
            if (!in_order) std::ranges::sort(seen);
            EXPECT_EQ(std::ranges::adjacent_find(seen, std::greater_equal<>()), seen.end());
            // Of a QP that is gone, the rest is forgotten; its share of an SRQ is, too.
            if (!rig.qps[key / 2]->gone && (in_order || !rig.qps[0]->gone)) {
                EXPECT_EQ(seen.size(), posted_[key]) << "of QP " << key / 2 << ", " << key % 2;
            }
        }
    }
    /// How often each QP was named as one to be moved to ERR.
    [[nodiscard]] std::map<std::uint32_t, int> named() const {
        std::map<std::uint32_t, int> out;
        for (const auto& of_cq : named_)
            for (const std::uint32_t qpn : of_cq) ++out[qpn];
        return out;
    }
    Rig rig;

private:
    void make(Call call, int step) {
        RigQp& second = *rig.qps[1];
        switch (call) {
            case Call::kPostSend:
                return post_send(1);
            case Call::kPostRecv:
                return post_recv(1);
            case Call::kPollSend:
                return poll(rig.send, 0);
            case Call::kPollRecv:
                return poll(rig.recv, 1);
            case Call::kFailSend:
                if (step == kSteps / 2) fail(&RigQp::fail_sends, rig.send);
                return poll(rig.send, 0);
            case Call::kFailRecv:
                if (step == kSteps / 2) fail(&RigQp::fail_recvs, rig.recv);
                return poll(rig.recv, 1);
            case Call::kArmSend:
                return arm(rig.send);
            case Call::kArmRecv:
                return arm(rig.recv);
            case Call::kEvent:
                return mana_dp_cq_event(&rig.send.cq.dp);
            case Call::kResize:
                return resize(rig.send, step % 2 == 0 ? 2 * kRigEntries : kRigEntries);
            case Call::kRegister:
                return step % 2 == 0 ? rig.register_memory() : rig.deregister_memory();
            case Call::kPermit:
                return second.permit(step % 2 != 0);
            case Call::kForgetFirst:
                return forget(*rig.qps[0]);
            case Call::kForgetSecond:
                return forget(second);
        }
    }
    void post_send(std::size_t qp) {
        if (rig.qps[qp]->post_send(2 * qp << 32 | posted_[2 * qp])) ++posted_[2 * qp];
    }
    void post_recv(std::size_t qp) {
        const std::size_t key = 2 * qp + 1;
        if (rig.qps[qp]->post_recv(key << 32 | posted_[key])) ++posted_[key];
    }
    void poll(RigCq& at, std::size_t number) {
        const Held held(at.poll_lock);
        for (const auto& qp : rig.qps) {
            if (qp->send == &at) qp->complete_sends();
            if (qp->recv == &at) qp->complete_recvs();
        }
        for (const mana_completion& c : at.cq.poll()) done_[number].push_back(c);
        std::uint32_t qpn = 0;
        while (mana_dp_cq_next_error(&at.cq.dp, &qpn)) named_[number].push_back(qpn);
    }
    /// Raw packet QPs end while nobody polls or arms; of an SRQ both pollers take receives.
    void fail(void (RigQp::*direction)(), RigCq& at) {
        const bool pauses =
            rig.format_ == RigFormat::kPacket || rig.format_ == RigFormat::kSharedReceive;
        std::array<std::optional<Held>, 4> held;
        if (pauses) {
            held[0].emplace(rig.send.poll_lock);
            held[1].emplace(rig.send.cq.dp.arm_lock);
            held[2].emplace(rig.recv.poll_lock);
            held[3].emplace(rig.recv.cq.dp.arm_lock);
        } else {
            held[0].emplace(at.poll_lock);
        }
        for (const auto& qp : rig.qps) (*qp.*direction)();
    }
    static void arm(RigCq& at) {
        const Held held(at.cq.dp.arm_lock);
        mana_dp_cq_arm(&at.cq.dp, false);
    }
    static void resize(RigCq& at, std::uint32_t entries) {
        if (at.cq.dp.record == nullptr) return;
        const Held polls(at.poll_lock);
        const Held armings(at.cq.dp.arm_lock);
        at.cq.resize(entries);
    }
    void forget(RigQp& qp) {
        if (qp.gone) return;
        {
            const Held sends(rig.send.poll_lock);
            const Held receives(rig.recv.poll_lock);
            qp.gone = true;
        }
        qp.reset();
    }

    std::array<std::uint64_t, 4> posted_{};  // sends and receives of either QP
    std::array<std::vector<mana_completion>, 2> done_;
    std::array<std::vector<std::uint32_t>, 2> named_;
};

struct Pair {
    const char* name;
    Call first, second;
};

constexpr Pair kPairs[] = {
    {"PollPoll", Call::kPollSend, Call::kPollRecv},
    {"FailFail", Call::kFailSend, Call::kFailRecv},
    {"FailSendPollRecv", Call::kFailSend, Call::kPollRecv},
    {"FailRecvPollSend", Call::kFailRecv, Call::kPollSend},
    {"PostSendPostRecv", Call::kPostSend, Call::kPostRecv},
    {"PostSendPollSend", Call::kPostSend, Call::kPollSend},
    {"PostSendPollRecv", Call::kPostSend, Call::kPollRecv},
    {"PostSendFailSend", Call::kPostSend, Call::kFailSend},
    {"PostSendFailRecv", Call::kPostSend, Call::kFailRecv},
    {"PostRecvPollSend", Call::kPostRecv, Call::kPollSend},
    {"PostRecvPollRecv", Call::kPostRecv, Call::kPollRecv},
    {"PostRecvFailSend", Call::kPostRecv, Call::kFailSend},
    {"PostRecvFailRecv", Call::kPostRecv, Call::kFailRecv},
    {"ArmPostSend", Call::kArmSend, Call::kPostSend},
    {"ArmPostRecv", Call::kArmRecv, Call::kPostRecv},
    {"ArmPollSend", Call::kArmSend, Call::kPollSend},
    {"ArmPollRecv", Call::kArmRecv, Call::kPollRecv},
    {"ArmFailSend", Call::kArmSend, Call::kFailSend},
    {"ArmFailRecv", Call::kArmRecv, Call::kFailRecv},
    {"ArmArm", Call::kArmSend, Call::kArmRecv},
    {"EventArm", Call::kEvent, Call::kArmSend},
    {"EventPoll", Call::kEvent, Call::kPollSend},
    {"EventEvent", Call::kEvent, Call::kEvent},
    {"ForgetPollSend", Call::kForgetFirst, Call::kPollSend},
    {"ForgetPollRecv", Call::kForgetFirst, Call::kPollRecv},
    {"ForgetFailSend", Call::kForgetFirst, Call::kFailSend},
    {"ForgetFailRecv", Call::kForgetFirst, Call::kFailRecv},
    {"ForgetPostSend", Call::kForgetFirst, Call::kPostSend},
    {"ForgetPostRecv", Call::kForgetFirst, Call::kPostRecv},
    {"ForgetArm", Call::kForgetFirst, Call::kArmSend},
    {"ForgetForget", Call::kForgetFirst, Call::kForgetSecond},
    {"ResizePostSend", Call::kResize, Call::kPostSend},
    {"ResizePollSend", Call::kResize, Call::kPollSend},
    {"ResizePollRecv", Call::kResize, Call::kPollRecv},
    {"ResizeArm", Call::kResize, Call::kArmSend},
    {"ResizeEvent", Call::kResize, Call::kEvent},
    {"ResizeForget", Call::kResize, Call::kForgetFirst},
    {"RegisterPollRecv", Call::kRegister, Call::kPollRecv},
    {"PermitPostSend", Call::kPermit, Call::kPostSend},
    {"PermitPostRecv", Call::kPermit, Call::kPostRecv},
    {"PermitPollSend", Call::kPermit, Call::kPollSend},
    {"PermitPollRecv", Call::kPermit, Call::kPollRecv},
};

const char* name_of(RigFormat format) {
    switch (format) {
        case RigFormat::kRc:
            return "Rc";
        case RigFormat::kUd:
            return "Ud";
        case RigFormat::kExtended:
            return "Extended";
        case RigFormat::kSharedReceive:
            return "SharedReceive";
        case RigFormat::kPacket:
            return "Packet";
    }
    return "";
}

class ThreadsTest : public ::testing::TestWithParam<std::tuple<RigFormat, Pair>> {};

TEST_P(ThreadsTest, EachWorkRequestIsReportedOnce) {
    const auto& [format, pair] = GetParam();
    for (int i = 0; i < kRounds && !HasFailure(); ++i) {
        Round round(format);
        round.run(pair.first, pair.second);
        round.settle();
        // Only a QP of the public ABI that failed is to be moved to ERR, and once.
        for (const auto& [qpn, times] : round.named()) EXPECT_EQ(times, 1) << "QPN " << qpn;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Pairs, ThreadsTest,
    ::testing::Combine(::testing::Values(RigFormat::kRc, RigFormat::kUd, RigFormat::kExtended,
                                         RigFormat::kSharedReceive, RigFormat::kPacket),
                       ::testing::ValuesIn(kPairs)),
    [](const auto& test) {
        return std::string(name_of(std::get<0>(test.param))) + std::get<1>(test.param).name;
    });

/// 64 QPs, both of whose directions fail, and a thread for each of the two CQs.
TEST(FailedQpsTest, EachIsNamedOnceToTheTwoPollers) {
    constexpr std::uint32_t kQps = 64, kBatch = 16;
    for (int round = 0; round < 100 && !::testing::Test::HasFailure(); ++round) {
        DoorbellSink sink;
        sink.forward = [](std::uint32_t, std::uint64_t) {};
        Tables tables;
        RigCq send(sink, tables, false), recv(sink, tables, false);
        std::vector<std::unique_ptr<RigStockQp>> qps;
        for (std::uint32_t i = 0; i < kQps; ++i) {
            qps.push_back(std::make_unique<RigStockQp>(MANA_DP_RC, i, sink, tables, send, recv));
            ASSERT_TRUE(qps[i]->post_send(i) && qps[i]->post_recv(i));
            qps[i]->fail_sends();
            qps[i]->fail_recvs();
        }
        std::atomic<int> ready = 0;
        std::array<std::vector<std::uint32_t>, 2> named;
        std::array<std::size_t, 2> reported{};
        const auto poll = [&](RigCq& at, std::size_t number) {
            ++ready;
            while (ready != 2) std::this_thread::yield();
            for (std::uint32_t i = 0; i < kQps; ++i) {
                const Held held(at.poll_lock);
                reported[number] += at.cq.poll(kBatch).size();
                std::uint32_t qpn = 0;
                while (mana_dp_cq_next_error(&at.cq.dp, &qpn)) named[number].push_back(qpn);
            }
        };
        std::thread other(poll, std::ref(recv), 1);
        poll(send, 0);
        other.join();
        EXPECT_EQ(reported, (std::array<std::size_t, 2>{kQps, kQps}));
        std::map<std::uint32_t, int> times;
        for (const auto& of_cq : named)
            for (const std::uint32_t qpn : of_cq) ++times[qpn];
        EXPECT_EQ(times.size(), kQps) << "QPs named";
        for (const auto& [qpn, count] : times) EXPECT_EQ(count, 1) << "QPN " << qpn;
    }
}

/// The device writes no CQE for a send that comes after the error, and sends no event. So a send
/// that is being posted while the error is polled is flushed by that poll, and not by a later one.
TEST(FailedQpsTest, APostDoesNotCrossTheFailure) {
    DoorbellSink sink;
    sink.forward = [](std::uint32_t, std::uint64_t) {};
    Tables tables;
    RigCq send(sink, tables, false), recv(sink, tables, false);
    RigStockQp qp(MANA_DP_RC, 0, sink, tables, send, recv);
    ASSERT_TRUE(qp.post_send(0));
    qp.fail_sends();
    std::size_t flushed = 0;
    std::atomic<bool> polled = false;
    std::thread poller;
    // The scatter list of a READ is rung in the middle of its post.
    sink.forward = [&](std::uint32_t offset, std::uint64_t) {
        if (offset != MANA_HW_DB_RQ || poller.joinable()) return;
        poller = std::thread([&] {
            const Held held(send.poll_lock);
            flushed = send.cq.poll().size();
            polled = true;
        });
        for (int i = 0; i < 10000 && !polled; ++i) std::this_thread::yield();
    };
    const std::size_t accepted = qp.post_read(1) ? 2 : 1;
    ASSERT_TRUE(poller.joinable());
    poller.join();
    EXPECT_EQ(flushed, accepted) << "by the poll of the error";
    EXPECT_TRUE(send.cq.poll().empty());
    EXPECT_FALSE(qp.post_send(2));
}

}  // namespace
}  // namespace openmana::test

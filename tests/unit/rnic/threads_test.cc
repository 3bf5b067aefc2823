// SPDX-License-Identifier: Apache-2.0
// Two NICs on two real event loops: the local path while the peer creates and destroys what is
// written to.
#include <atomic>
#include <cstring>
#include <future>
#include <mutex>
#include <thread>

#include "base/event_loop.h"
#include "rnic/adapter.h"
#include "rnic_fixture.h"
#include "support/ext_host.h"

namespace openmana::test {
namespace {

class ThreadNode;

class LocalNetwork : public rnic::Network {
public:
    std::vector<ThreadNode*> nodes;
    void transmit(base::Frame) override {}
    rnic::LocalEnd local_peer(const rnic::LocalPeer& self, const rnic::Ends& ends) override;
};

class ThreadNode {
public:
    ThreadNode(LocalNetwork& network, std::uint8_t number)
        : loop(std::move(*base::EventLoop::create())),
          ram(memory),
          function(*loop, memory, irq, {}),
          rnic(function, config(number), network),
          host(function, ram, irq, test_mac(number), ipv4_gid(number)) {
        network.nodes.push_back(this);
        thread = std::thread([this] { loop->run(); });
    }
    ~ThreadNode() { stop(); }
    void stop() {
        if (!thread.joinable()) return;
        loop->stop();
        thread.join();
    }
    /// Runs `work` on the loop and waits for it.
    void on_loop(const std::function<void()>& work) {
        std::promise<void> done;
        loop->post([&] {
            work();
            done.set_value();
        });
        done.get_future().wait();
    }
    static rnic::RnicConfig config(std::uint8_t number) {
        rnic::RnicConfig result;
        result.mac = test_mac(number);
        return result;
    }
    std::unique_ptr<base::EventLoop> loop;
    base::GuestMemory memory;
    GuestRam ram;
    FakeIrq irq;
    gdma::Function function;
    rnic::Rnic rnic;
    RdmaHost host;
    std::thread thread;
};

rnic::LocalEnd LocalNetwork::local_peer(const rnic::LocalPeer& self, const rnic::Ends& ends) {
    for (ThreadNode* node : nodes) {
        if (node->host.mac() != ends.destination_mac) continue;
        const rnic::LocalPeer& peer = node->rnic.local_peer();
        std::optional<base::Gate::Visit> visit;
        if (&peer != &self) visit.emplace(node->function.gate());
        if (!node->rnic.owns({ends.destination, ends.vlan})) return {};
        return {&peer, ends.vlan};
    }
    return {};
}

TEST(ThreadsTest, RegionsComeAndGoUnderLocalWrites) {
    LocalNetwork network;
    ThreadNode a(network, 1);
    ThreadNode b(network, 2);
    struct Side {
        DriverCq cq;
        std::unique_ptr<HostQp> qp;
        base::GuestAddr buffer{};
        DriverMr mr;
    } sides[2];
    ThreadNode* const nodes[] = {&a, &b};
    for (int i = 0; i < 2; ++i)
        nodes[i]->on_loop([&, i] {
            auto& host = nodes[i]->host;
            ASSERT_TRUE(host.bring_up());
            sides[i].cq = *host.create_cq(16384);
            sides[i].qp = host.create_rc(sides[i].cq, sides[i].cq);
            sides[i].buffer = nodes[i]->ram.alloc(65536);
            sides[i].mr = *host.hwc().create_mr(host.pd, sides[i].buffer, 65536, Connection::kAll);
        });
    const auto join = [&] {
        for (int i = 0; i < 2; ++i)
            nodes[i]->on_loop([&, i] {
                auto& peer = nodes[1 - i]->host;
                ASSERT_TRUE(nodes[i]->host.reset(*sides[i].qp));
                ASSERT_TRUE(nodes[i]->host.connect(
                    *sides[i].qp, 0x100, {peer.gid(), peer.mac(), sides[1 - i].qp->qpn(), 0x100}));
            });
    };
    join();
    std::atomic<std::uint32_t> rkey{sides[1].mr.rkey};
    std::atomic<std::uint64_t> good{0};
    std::atomic<std::uint64_t> bad{0};
    for (int round = 0; round < 60; ++round) {
        std::promise<void> a_done;
        a.loop->post([&] {
            for (int i = 0; i < 30; ++i) {
                SendWr write;
                write.opcode = MANA_HW_RNIC_WQE_WRITE;
                write.sges = {{sides[0].buffer.value(), gdma::Key(sides[0].mr.lkey), 16000}};
                write.remote_address = sides[1].buffer.value() + 64U * static_cast<unsigned>(i);
                write.rkey = rkey.load();
                if (!a.host.post_send(*sides[0].qp, write)) break;
                std::vector<Completion> done;
                HostQp* const qps[] = {sides[0].qp.get()};
                a.host.poll(sides[0].cq, qps, done);
                for (const auto& c : done) (c.vendor == 0 ? good : bad).fetch_add(1);
            }
            a_done.set_value();
        });
        // Meanwhile the region that is written to is replaced.
        for (int i = 0; i < 5; ++i)
            b.on_loop([&] {
                auto& host = b.host;
                const auto fresh =
                    host.hwc().create_mr(host.pd, sides[1].buffer, 65536, Connection::kAll);
                ASSERT_TRUE(fresh);
                rkey.store(fresh->rkey);
                if (i == 4) {
                    ASSERT_TRUE(host.hwc().destroy_mr(sides[1].mr));
                    sides[1].mr = *fresh;
                } else {
                    ASSERT_TRUE(host.hwc().destroy_mr(*fresh));
                    rkey.store(sides[1].mr.rkey);
                }
            });
        a_done.get_future().wait();
        join();
    }
    EXPECT_GT(good.load(), 0U);
    a.stop();
    b.stop();
}

/// An extended queue pair and what its host made for it.
struct ExtEnd {
    ThreadNode* node = nullptr;
    std::unique_ptr<ExtHost> host;
    ExtCq send_cq, recv_cq;
    ExtQp qp;
    base::GuestAddr buffer{};
    DriverMr mr;

    void bring_up(ThreadNode& at, std::uint64_t bytes) {
        node = &at;
        node->on_loop([&] {
            node->host.features |= MANA_HW_RNIC_FEATURE_EXTENSIONS;
            ASSERT_TRUE(node->host.bring_up());
            host = std::make_unique<ExtHost>(node->host);
            buffer = node->ram.alloc(bytes);
            mr = *node->host.hwc().create_mr(node->host.pd, buffer, bytes, kAll);
            send_cq = *host->create_cq(1024);
            recv_cq = *host->create_cq(1024);
            qp = create();
        });
    }
    [[nodiscard]] ExtQp create(ExtQpOptions options = {}) const {
        options.flags = MANA_HW_EXT_QP_PRIVILEGED;
        const auto made = host->create_qp(send_cq, recv_cq, options);
        OM_CHECK(made.has_value());
        return *made;
    }
    void connect(const ExtQp& own, const ExtEnd& peer, const ExtQp& other) const {
        node->on_loop([&] {
            ASSERT_TRUE(host->connect(
                own, 0x100, {peer.node->host.gid(), peer.node->host.mac(), other.qpn, 0x100}));
        });
    }
    /// A queue pair on which nothing is outstanding.
    void reset(ExtQp& own) const {
        OM_CHECK(host->to_state(own, MANA_HW_RNIC_QP_RESET));
        own.sq_producer = own.rq_producer = 0;
        own.memory.store(offsetof(mana_hw_ext_qp_record, sq_producer) / 4, 0);
        own.memory.store(offsetof(mana_hw_ext_qp_record, rq_producer) / 4, 0);
    }
    [[nodiscard]] gdma::Sge sge(std::uint64_t offset, std::uint32_t length) const {
        return {buffer.value() + offset, gdma::Key(mr.lkey), length};
    }
    static constexpr std::uint32_t kAll = Connection::kAll | gdma::kRemoteAtomic;
};

/// The next completion, which comes by another thread.
mana_hw_ext_cqe wait_for(ExtEnd& end, ExtCq& cq) {
    std::optional<mana_hw_ext_cqe> cqe;
    while (!cqe) {
        end.node->on_loop([&] { cqe = cq.poll(); });
        if (!cqe) std::this_thread::yield();
    }
    return *cqe;
}

TEST(ThreadsTest, ExtendedQueuePairsBothWaysAtOnce) {
    constexpr std::uint32_t kRounds = 40, kList = 20;
    LocalNetwork network;
    ThreadNode nodes[] = {{network, 1}, {network, 2}};
    ExtEnd ends[2];
    for (int i = 0; i < 2; ++i) ends[i].bring_up(nodes[i], 1U << 20);
    for (int i = 0; i < 2; ++i) ends[i].connect(ends[i].qp, ends[1 - i], ends[1 - i].qp);
    for (ExtEnd& end : ends)
        end.node->on_loop([&] { std::memset(end.node->ram.at(end.buffer + 0x80000), 0, 8); });
    for (std::uint32_t round = 0; round < kRounds; ++round) {
        // Both sides post, and poll their receives, while the other works on their memory.
        for (int i = 0; i < 2; ++i)
            nodes[i].loop->post([&, i] {
                ExtEnd& own = ends[i];
                const ExtEnd& peer = ends[1 - i];
                for (std::uint32_t n = 0; n < kList; ++n) {
                    const gdma::Sge receive = own.sge(0x90000 + 1024 * n, 1024);
                    own.host->recv(own.qp, n, std::span(&receive, 1));
                    ExtWr wr;
                    wr.rkey = peer.mr.rkey;
                    wr.opcode = n % 2 == 0 ? MANA_HW_EXT_WQE_WRITE : MANA_HW_EXT_WQE_READ;
                    wr.sges = {own.sge(0, 5000)};
                    wr.remote_address = peer.buffer.value() + 0x20000;
                    own.host->post(own.qp, wr);
                    wr.opcode = MANA_HW_EXT_WQE_FETCH_ADD;
                    wr.sges = {own.sge(0x10000, 8)};
                    wr.remote_address = peer.buffer.value() + 0x80000;
                    wr.swap_add = 1;
                    own.host->post(own.qp, wr);
                }
            });
        for (ExtEnd& end : ends)
            for (std::uint32_t n = 0; n < 2 * kList; ++n)
                ASSERT_EQ(wait_for(end, end.send_cq).status, 0);
        for (int i = 0; i < 2; ++i)
            nodes[i].loop->post([&, i] {
                for (std::uint32_t n = 0; n < kList; ++n) {
                    ExtWr wr;
                    wr.sges = {ends[i].sge(0, 100)};
                    ends[i].host->post(ends[i].qp, wr);
                }
            });
        for (ExtEnd& end : ends)
            for (std::uint32_t n = 0; n < kList; ++n) {
                ASSERT_EQ(wait_for(end, end.send_cq).status, 0);
                ASSERT_EQ(wait_for(end, end.recv_cq).cookie, n);
            }
    }
    for (ExtEnd& end : ends) {
        std::uint64_t sum = 0;
        end.node->on_loop(
            [&] { std::memcpy(&sum, end.node->ram.at(end.buffer + 0x80000), sizeof sum); });
        EXPECT_EQ(sum, kRounds * kList);
    }
    for (ThreadNode& node : nodes) node.stop();
}

/// CQEs come from another thread between the steps of a move, and none is lost or overtakes
/// another.
TEST(ThreadsTest, CompletionsKeepTheirOrderWhileTheirQueueMoves) {
    constexpr std::uint32_t kMessages = 1000;
    LocalNetwork network;
    ThreadNode nodes[] = {{network, 1}, {network, 2}};
    ExtEnd from, to;
    from.bring_up(nodes[0], 1U << 20);
    to.bring_up(nodes[1], 1U << 20);
    ExtQpOptions big;
    big.sq_bytes = big.rq_bytes = 65536;
    nodes[0].on_loop([&] { from.qp = from.create(big); });
    nodes[1].on_loop([&] { to.qp = to.create(big); });
    for (int round = 0; round < 5; ++round) {
        nodes[0].on_loop([&] { from.reset(from.qp); });
        nodes[1].on_loop([&] { to.reset(to.qp); });
        to.connect(to.qp, from, from.qp);
        from.connect(from.qp, to, to.qp);
        nodes[1].on_loop([&] {
            const gdma::Sge receive = to.sge(0, 64);
            for (std::uint32_t i = 0; i < kMessages; ++i)
                to.host->recv(to.qp, i, std::span(&receive, 1));
        });
        nodes[0].loop->post([&] {
            ExtWr wr;
            wr.flags = 0;
            wr.sges = {from.sge(0, 64)};
            for (std::uint32_t i = 0; i < kMessages; ++i) from.host->post(from.qp, wr);
        });
        // Nothing is taken before the end, so that there are more and more to move.
        for (const std::uint32_t entries : {2048U, 1024U, 2048U, 4096U, 1024U, 2048U})
            nodes[1].on_loop([&] { ASSERT_TRUE(to.host->resize_cq(to.recv_cq, entries)); });
        for (std::uint32_t i = 0; i < kMessages; ++i) {
            const mana_hw_ext_cqe cqe = wait_for(to, to.recv_cq);
            ASSERT_EQ(cqe.status, 0);
            ASSERT_EQ(cqe.cookie, i);
        }
    }
    for (ThreadNode& node : nodes) node.stop();
}

/// SET_QP_STATE to ERR changes what comes with it, and flushes with the gate open.
TEST(ThreadsTest, NobodyFindsTheNewAttributesOfAQueuePairInItsOldState) {
    LocalNetwork network;
    ThreadNode nodes[] = {{network, 1}, {network, 2}};
    ExtEnd ends[2];
    for (int i = 0; i < 2; ++i) ends[i].bring_up(nodes[i], 1U << 20);
    for (int i = 0; i < 2; ++i) ends[i].connect(ends[i].qp, ends[1 - i], ends[1 - i].qp);
    rnic::Qp* qp = nullptr;
    nodes[0].on_loop([&] {
        qp = nodes[0].rnic.adapter().qps.find(roce::Qpn(ends[0].qp.qpn));
        ASSERT_NE(qp->route.access, 0U);
    });
    // What it does with the gate open begins with this lock.
    std::unique_lock held(qp->responder.mutex);
    nodes[0].loop->post([&] {
        mana_hw_rnic_set_qp_state_req message{};
        message.qp = ends[0].qp.handle;
        message.attr_mask = MANA_HW_RNIC_ATTR_STATE | MANA_HW_RNIC_ATTR_ACCESS;
        message.state = MANA_HW_RNIC_QP_ERR;
        EXPECT_TRUE(ends[0].host->call(MANA_HW_RNIC_SET_QP_STATE, message).ok());
    });
    while (qp->responder.mutex.waiting() == 0) std::this_thread::yield();
    {
        const base::Gate::Visit visit(nodes[0].function.gate());
        EXPECT_EQ(qp->route.access, 0U);
        EXPECT_EQ(qp->state(), MANA_HW_RNIC_QP_ERR);
    }
    held.unlock();
    nodes[0].on_loop([] {});
    for (ThreadNode& node : nodes) node.stop();
}

/// When a SEND with invalidate has arrived, the memory behind its fast-register key is the host's:
/// nobody who began before writes there any more.
TEST(ThreadsTest, NobodyWritesThroughAKeyThatASendHasMadeInvalid) {
    constexpr std::uint32_t kLength = 256U << 10;
    LocalNetwork network;
    ThreadNode nodes[] = {{network, 1}, {network, 2}, {network, 3}};
    ExtEnd sender, writer, target;
    sender.bring_up(nodes[0], 1U << 20);
    writer.bring_up(nodes[1], 1U << 20);
    target.bring_up(nodes[2], 1U << 20);
    ExtQp to_writer;
    std::optional<DriverMr> key;
    target.node->on_loop([&] {
        to_writer = target.create();
        key = target.host->create_key(MANA_HW_EXT_MR_FAST_REGISTER, kLength / 4096);
        for (std::uint64_t i = 0; i < kLength / 4096; ++i) {
            const std::uint64_t page = target.buffer.value() + 0x80000 + 4096 * i;
            std::memcpy(target.node->ram.at(target.buffer + 8 * i), &page, sizeof page);
        }
    });
    ASSERT_TRUE(key);
    target.connect(target.qp, sender, sender.qp);
    sender.connect(sender.qp, target, target.qp);
    unsigned copied = 0;
    for (int round = 0; round < 40; ++round) {
        target.node->on_loop([&] { target.reset(to_writer); });
        writer.node->on_loop([&] { writer.reset(writer.qp); });
        target.connect(to_writer, writer, writer.qp);
        writer.connect(writer.qp, target, to_writer);
        target.node->on_loop([&] {
            ExtWr wr;
            wr.opcode = MANA_HW_EXT_WQE_FAST_REGISTER;
            wr.reg.emplace();
            wr.reg->key = key->rkey;
            wr.reg->access = gdma::kLocalRead | gdma::kLocalWrite | gdma::kRemoteWrite;
            wr.reg->iova = 0;
            wr.reg->length = kLength;
            wr.reg->page_list = target.buffer.value();
            wr.reg->pages = kLength / 4096;
            wr.reg->page_shift = 12;
            target.host->post(target.qp, wr);
            const gdma::Sge receive = target.sge(0x70000, 64);
            target.host->recv(target.qp, 1, std::span(&receive, 1));
        });
        ASSERT_EQ(wait_for(target, target.send_cq).status, 0);
        writer.node->loop->post([&] {
            ExtWr wr;
            wr.opcode = MANA_HW_EXT_WQE_WRITE;
            wr.sges = {writer.sge(0, kLength)};
            wr.rkey = key->rkey;
            for (int i = 0; i < 4; ++i) writer.host->post(writer.qp, wr);
        });
        sender.node->loop->post([&] {
            ExtWr wr;
            wr.opcode = MANA_HW_EXT_WQE_SEND_INV;
            wr.sges = {sender.sge(0, 64)};
            wr.value = key->rkey;
            sender.host->post(sender.qp, wr);
        });
        ASSERT_EQ(wait_for(target, target.recv_cq).flags, MANA_HW_EXT_CQE_INVALIDATED);
        const auto mark = static_cast<std::byte>(0x80 + round);
        const std::span<std::byte> memory =
            target.node->ram.bytes(target.buffer + 0x80000, kLength);
        target.node->on_loop([&] { std::ranges::fill(memory, mark); });
        ASSERT_EQ(wait_for(sender, sender.send_cq).status, 0);
        for (int i = 0; i < 4; ++i)
            if (wait_for(writer, writer.send_cq).status == 0) ++copied;
        target.node->on_loop([&] {
            EXPECT_TRUE(std::ranges::all_of(memory, [&](std::byte byte) { return byte == mark; }));
            (void)target.recv_cq.drain();
        });
    }
    RecordProperty("copied", static_cast<int>(copied));
    for (ThreadNode& node : nodes) node.stop();
}

/// A program polls on the last byte of a message, and then reads the rest.
// ROCE 10: 37
TEST(ThreadsTest, LastByteOfAWriteIsLast) {
    constexpr std::uint32_t kLength = 65536;
    Connection link(true);
    const std::span<std::byte> target = link.b.at(0, kLength);
    std::atomic<unsigned> round{0};
    std::atomic<unsigned> wrong{0};
    constexpr unsigned kRounds = 200;
    std::thread watcher([&] {
        for (unsigned n = 1; n <= kRounds; ++n) {
            const auto wanted = static_cast<std::byte>(n);
            // Partner of the release store at the end of a message.
            while (std::atomic_ref<std::byte>(target.back()).load(std::memory_order_acquire) !=
                   wanted) {
            }
            for (const std::byte byte : target.first(kLength - 1))
                if (byte != wanted) wrong.fetch_add(1);
            round.store(n, std::memory_order_release);
        }
    });
    for (unsigned n = 1; n <= kRounds; ++n) {
        std::ranges::fill(link.a.at(0, kLength), static_cast<std::byte>(n));
        link.post(link.wr(MANA_HW_RNIC_WQE_WRITE, n, 0, kLength));
        EXPECT_TRUE(link.run(n));
        while (round.load(std::memory_order_acquire) != n) std::this_thread::yield();
    }
    watcher.join();
    EXPECT_EQ(wrong.load(), 0U);
}

}  // namespace
}  // namespace openmana::test

// SPDX-License-Identifier: Apache-2.0
// Two NICs on two real event loops: the local path while the peer creates and destroys what is
// written to.
#include <atomic>
#include <future>
#include <thread>

#include "base/event_loop.h"
#include "rnic_fixture.h"

namespace openmana::test {
namespace {

class ThreadNode;

class LocalNetwork : public rnic::Network {
public:
    std::vector<ThreadNode*> nodes;
    void transmit(base::Frame) override {}
    rnic::Rnic* local_peer(const rnic::Rnic& source, const roce::Gid& gid,
                           const base::MacAddr& mac) override;
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

rnic::Rnic* LocalNetwork::local_peer(const rnic::Rnic& source, const roce::Gid& gid,
                                     const base::MacAddr& mac) {
    for (ThreadNode* node : nodes) {
        if (node->host.mac() != mac) continue;
        if (&node->rnic == &source) return node->rnic.owns(gid) ? &node->rnic : nullptr;
        const base::Gate::Visit visit(node->function.gate());
        return node->rnic.owns(gid) ? &node->rnic : nullptr;
    }
    return nullptr;
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

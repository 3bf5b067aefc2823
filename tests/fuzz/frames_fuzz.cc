// SPDX-License-Identifier: Apache-2.0
// Frames from the network to a NIC with connected QPs and Ethernet queues: RoCE packets with right
// and wrong fields, Ethernet frames, bytes; while the NIC has requests of its own on the way.
#include "fuzz.h"

#include "roce/packet.h"

using namespace openmana;

namespace {

/// Swallows what the NIC sends.
class Hole final : public fabric::Port {
public:
    explicit Hole(fabric::Switch& network) : network_(network) { network_.attach(*this, nullptr); }
    ~Hole() override { network_.detach(*this); }
    void deliver(std::span<const std::byte>) override {}

private:
    fabric::Switch& network_;
};

constexpr std::uint32_t kFirstPsn = 5000;

struct Target {
    test::HostQp* qp;
    roce::Gid own;
    roce::Gid peer;
    std::uint32_t expected = kFirstPsn;
};

base::Frame packet(test::Choices& choices, Target& target, test::HostileDriver& driver) {
    static constexpr std::uint8_t kOpcodes[] = {
        0x04, 0x00, 0x01, 0x02, 0x03, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d,
        0x0e, 0x0f, 0x10, 0x11, 0x16, 0x17, 0x13, 0x14, 0x64, 0x65, 0x81, 0x24, 0x2a, 0x1c};
    roce::Packet packet;
    packet.destination_mac = test::test_mac(1);
    packet.source_mac = test::test_mac(9);
    packet.source = target.peer;
    packet.destination = target.own;
    packet.opcode = static_cast<roce::Opcode>(choices.pick(kOpcodes));
    packet.destination_qpn = roce::Qpn(target.qp->qpn());
    packet.ack_request = choices.chance(192);
    packet.solicited = choices.chance(64);
    const bool response = packet.info().response;
    std::uint32_t psn = target.expected;
    if (response)
        psn = target.qp->sends.empty() ? target.qp->next_psn : target.qp->sends.front().last_psn;
    if (choices.chance(48)) psn += static_cast<std::uint32_t>(choices.below(512)) - 256;
    packet.psn = roce::Psn(psn & 0xffffff);
    packet.reth.address = driver.data().value() + choices.below(256) * 1024;
    packet.reth.rkey = roce::RKey(choices.chance(32) ? static_cast<std::uint32_t>(choices.number())
                                                     : driver.mrs()[0].rkey);
    packet.reth.length =
        static_cast<std::uint32_t>(choices.chance(32) ? choices.number() : choices.below(8192));
    packet.aeth.syndrome = choices.chance(128) ? choices.byte() : 0x1f;
    packet.aeth.msn = static_cast<std::uint32_t>(choices.below(64));
    packet.atomic.address = packet.reth.address & ~7ULL;
    packet.atomic.rkey = packet.reth.rkey;
    packet.invalidate_rkey = packet.reth.rkey;
    packet.deth.source = roce::Qpn(7);
    packet.deth.qkey = roce::QKey(choices.chance(32) ? choices.value<std::uint32_t>()
                                                     : test::HostileDriver::kQkey);
    if (roce::transport(packet.opcode) == roce::Transport::kUd)
        packet.destination_qpn = roce::Qpn(driver.qps()[2]->qpn());
    if (choices.chance(16))
        packet.destination_qpn = roce::Qpn(static_cast<std::uint32_t>(choices.below(1 << 24)));
    if (choices.chance(16)) packet.source = test::ipv4_gid(choices.byte());
    if (choices.chance(8)) packet.pkey = choices.value<std::uint16_t>();
    if (choices.chance(16)) packet.ecn = choices.byte() & 3;
    if (roce::is_ipv4(packet.source) != roce::is_ipv4(packet.destination))
        packet.source = packet.destination;
    std::vector<std::byte> payload(choices.chance(128) ? 1024 : choices.below(4200));
    for (std::size_t i = 0; i < payload.size(); i += 64)
        payload[i] = static_cast<std::byte>(choices.byte());
    if (!packet.info().payload) payload.clear();
    if (packet.opcode == roce::Opcode::kWriteOnly && !choices.chance(32))
        packet.reth.length = static_cast<std::uint32_t>(payload.size());
    packet.payload = payload;
    base::Frame frame;
    roce::encode(packet, frame);
    if (!response && !choices.chance(48)) target.expected = (target.expected + 1) & 0xffffff;
    return frame;
}

base::Frame ethernet(test::Choices& choices) {
    base::Frame frame(14 + choices.below(1600));
    choices.fill(std::span(frame).first(std::min<std::size_t>(frame.size(), 80)));
    const auto mac =
        choices.chance(64) ? base::MacAddr{255, 255, 255, 255, 255, 255} : test::test_mac(1);
    for (std::size_t i = 0; i < 6; ++i) frame[i] = static_cast<std::byte>(mac[i]);
    if (frame.size() < 60 || choices.chance(64)) return frame;
    const bool v6 = choices.chance(96);
    base::store_be<std::uint16_t>(frame.data() + 12, v6                   ? 0x86dd
                                                     : choices.chance(64) ? 0x8100
                                                                          : 0x0800);
    frame[14] = v6 ? std::byte{0x60} : std::byte{0x45};
    frame[v6 ? 20 : 23] = choices.chance(128) ? std::byte{17} : std::byte{6};
    if (!choices.chance(64))
        base::store_be<std::uint16_t>(frame.data() + (v6 ? 18 : 16),
                                      static_cast<std::uint16_t>(frame.size() - (v6 ? 54 : 14)));
    return frame;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    test::InputChoices choices({data, size});
    test::SimWorld world;
    fuzz::Time time(world);
    fabric::Switch network(world);
    Hole hole(network);
    fuzz::FuzzNic nic(world, network, 1);
    test::HostileDriver driver(nic.nic.function(), nic.ram, nic.irq,
                               {test::test_mac(1), test::ipv4_gid(1), {}, 0, false});
    fuzz::require(driver.bring_up() && driver.make_pair() &&
                      driver.host().config_address(test::ipv6_gid(1), true),
                  "bring-up");
    test::RdmaHost& host = driver.host();
    std::vector<Target> targets;
    for (std::uint32_t i = 0; i < 2; ++i) {
        auto qp = host.create_rc(driver.cqs()[0], driver.cqs()[1]);
        fuzz::require(
            qp &&
                host.connect(*qp, 100, {test::ipv4_gid(9), test::test_mac(9), 0x40 + i, kFirstPsn}),
            "connection");
        targets.push_back({qp.get(), test::ipv4_gid(1), test::ipv4_gid(9)});
        driver.qps().push_back(std::move(qp));
    }
    targets.push_back({driver.qps()[2].get(), test::ipv6_gid(1), test::ipv6_gid(9)});
    for (unsigned step = 0; step < fuzz::kMaxSteps && choices.more(); ++step) {
        Target& target = choices.pick(targets);
        const gdma::Sge sge{driver.data().value() + choices.below(64) * 1024,
                            gdma::Key(driver.mrs()[0].lkey), 4096};
        switch (choices.below(8)) {
            case 0:
            case 1:
            case 2: {
                base::Frame frame = packet(choices, target, driver);
                if (choices.chance(24))
                    frame[choices.below(frame.size())] ^= static_cast<std::byte>(choices.byte());
                if (choices.chance(16)) frame.resize(choices.below(frame.size()));
                nic.nic.deliver(frame);
                break;
            }
            case 3:
                nic.nic.deliver(ethernet(choices));
                break;
            case 4:
                nic.nic.deliver(choices.bytes(choices.byte()));
                break;
            case 5:
                (void)host.post_recv(*target.qp, 1, std::span(&sge, choices.below(2)));
                break;
            case 6: {
                test::SendWr wr;
                wr.opcode =
                    static_cast<std::uint32_t>(choices.chance(96) ? 7 : 2 + choices.below(6));
                wr.sges = {sge};
                wr.remote_address = 4096;
                wr.rkey = 5;
                if (target.qp->datagrams)
                    driver.datagram(*target.qp, choices);
                else
                    (void)host.post_send(*target.qp, wr);
                break;
            }
            default:
                time.pass(std::chrono::milliseconds(choices.byte()));
                break;
        }
        if (!choices.chance(64)) world.run_until_idle();
    }
    time.pass(std::chrono::seconds(1));
    fuzz::require(driver.canary_alive(), "memory outside all MRs was written");
    return 0;
}

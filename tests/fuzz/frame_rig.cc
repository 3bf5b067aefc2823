// SPDX-License-Identifier: Apache-2.0
#include "frame_rig.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "eth/checksum.h"
#include "roce/icrc.h"
#include "roce/packet.h"

namespace openmana::fuzz {
namespace {

constexpr std::uint32_t kFirstPsn = 5000;
constexpr std::uint32_t kExtPsn = 100;  // as the driver connects them
constexpr std::size_t kEthernet = 14;
constexpr std::size_t kIpv4 = 20;
constexpr std::size_t kIpv6 = 40;
constexpr std::size_t kUdp = 8;
/// What roce::encode() takes with the longest headers.
constexpr std::size_t kMaxPayload = 65000;

/// Gives a RoCE packet a UDP length beyond what any sender of ours makes: lengths, checksum and
/// ICRC are right, as far as the IP version has room.
void grow(base::Frame& frame, std::size_t udp) {
    const bool v6 = base::load_be<std::uint16_t>(frame.data() + 12) == 0x86dd;
    const std::size_t ip = v6 ? kIpv6 : kIpv4;
    // Behind the UDP header: BTH and ICRC, at least.
    udp = std::clamp<std::size_t>(udp, kUdp + 12 + 4, v6 ? 0xffff : 0xffff - kIpv4);
    frame.resize(kEthernet + ip + udp);
    std::byte* const header = frame.data() + kEthernet;
    if (v6) {
        base::store_be(header + 4, static_cast<std::uint16_t>(udp));
    } else {
        base::store_be(header + 2, static_cast<std::uint16_t>(udp + kIpv4));
        base::store_le<std::uint16_t>(header + 10, 0);
        base::store_le(header + 10, eth::InternetSum().add({header, kIpv4}).checksum());
    }
    base::store_be(header + ip + 4, static_cast<std::uint16_t>(udp));
    base::store_le(header + ip + udp - 4, roce::icrc({header, ip}, {header + ip, udp - 4}));
}

}  // namespace

FrameRig::FrameRig()
    : driver(nic.nic.function(), nic.ram, nic.irq,
             {test::test_mac(1), test::ipv4_gid(1), {}, 0, false}) {
    require(driver.bring_up() && driver.make_pair() &&
                driver.host().config_address(test::ipv6_gid(1), true),
            "bring-up");
    test::RdmaHost& host = driver.host();
    for (std::uint32_t i = 0; i < 2; ++i) {
        auto qp = host.create_rc(driver.cqs()[0], driver.cqs()[1]);
        require(qp && host.connect(*qp, 100,
                                   {test::ipv4_gid(9), test::test_mac(9), 0x40 + i, kFirstPsn}),
                "connection");
        targets.push_back({qp.get(), qp->qpn(), test::ipv4_gid(1), test::ipv4_gid(9), kFirstPsn});
        driver.qps().push_back(std::move(qp));
    }
    test::HostQp* const datagrams = driver.qps()[2].get();
    targets.push_back(
        {datagrams, datagrams->qpn(), test::ipv6_gid(1), test::ipv6_gid(9), kFirstPsn});
    // Those of the extension are connected with each other: their peer is the NIC itself.
    for (const test::ExtQp& qp : driver.ext_qps())
        targets.push_back({nullptr, qp.qpn, test::ipv4_gid(1), test::ipv4_gid(1), kExtPsn});
}

base::Frame FrameRig::roce(test::Choices& choices, RoceTarget& target) {
    static constexpr std::uint8_t kOpcodes[] = {
        0x04, 0x00, 0x01, 0x02, 0x03, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d,
        0x0e, 0x0f, 0x10, 0x11, 0x16, 0x17, 0x13, 0x14, 0x64, 0x65, 0x81, 0x24, 0x2a, 0x1c,
        0x12, 0x1d, 0x20, 0x21, 0x22, 0x23, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2b};
    roce::Packet packet;
    packet.destination_mac = test::test_mac(1);
    packet.source_mac = test::test_mac(9);
    packet.source = target.peer;
    packet.destination = target.own;
    packet.opcode = static_cast<roce::Opcode>(choices.pick(kOpcodes));
    packet.destination_qpn = roce::Qpn(target.qpn);
    packet.ack_request = choices.chance(192);
    packet.solicited = choices.chance(64);
    const bool response = packet.info().response;
    std::uint32_t psn = target.expected;
    if (response && target.qp != nullptr)
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
        packet.destination_qpn =
            roce::Qpn(target.qp != nullptr ? driver.qps()[2]->qpn() : driver.ext_qps().back().qpn);
    if (choices.chance(16))
        packet.destination_qpn = roce::Qpn(static_cast<std::uint32_t>(choices.below(1 << 24)));
    if (choices.chance(16)) packet.source = test::ipv4_gid(choices.byte());
    if (choices.chance(8)) packet.pkey = choices.value<std::uint16_t>();
    if (choices.chance(16)) packet.ecn = choices.byte() & 3;
    if (roce::is_ipv4(packet.source) != roce::is_ipv4(packet.destination))
        packet.source = packet.destination;
    std::vector<std::byte> payload(choices.chance(128)  ? 1024
                                   : choices.chance(24) ? choices.below(kMaxPayload)
                                                        : choices.below(4200));
    for (std::size_t i = 0; i < payload.size(); i += 64)
        payload[i] = static_cast<std::byte>(i < 8192 ? choices.byte() : 0);
    if (!packet.info().payload) payload.clear();
    if (packet.opcode == roce::Opcode::kWriteOnly && !choices.chance(32))
        packet.reth.length = static_cast<std::uint32_t>(payload.size());
    packet.payload = payload;
    base::Frame frame;
    roce::encode(packet, frame);
    if (choices.chance(16))
        grow(frame, choices.chance(128) ? 0xffff - choices.below(64) : choices.below(0x10000));
    if (!response && !choices.chance(48)) target.expected = (target.expected + 1) & 0xffffff;
    return frame;
}

base::Frame FrameRig::ethernet(test::Choices& choices) {
    const std::size_t most = choices.chance(24) ? kMaxFrame - 14 : 1600;
    base::Frame frame(14 + choices.below(most + 1));
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
    static constexpr std::uint8_t kProtocols[] = {17, 6, 44, 0, 43, 60, 1, 58};
    frame[v6 ? 20 : 23] = static_cast<std::byte>(kProtocols[choices.below(8)]);
    // Most often whole.
    if (!v6 && !choices.chance(64)) frame[20] = frame[21] = std::byte{0};
    if (!choices.chance(64))
        base::store_be<std::uint16_t>(frame.data() + (v6 ? 18 : 16),
                                      static_cast<std::uint16_t>(frame.size() - (v6 ? 54 : 14)));
    return frame;
}

base::Frame FrameRig::any(test::Choices& choices) {
    return choices.chance(96) ? ethernet(choices) : roce(choices, choices.pick(targets));
}

void FrameRig::work(test::Choices& choices) {
    RoceTarget& target = choices.pick(targets);
    if (target.qp == nullptr) return driver.ext_work(choices);
    test::RdmaHost& host = driver.host();
    const gdma::Sge sge{driver.data().value() + choices.below(64) * 1024,
                        gdma::Key(driver.mrs()[0].lkey), 4096};
    if (choices.chance(128)) {
        (void)host.post_recv(*target.qp, 1, std::span(&sge, choices.below(2)));
        return;
    }
    if (target.qp->datagrams) return driver.datagram(*target.qp, choices);
    test::SendWr wr;
    wr.opcode = static_cast<std::uint32_t>(choices.chance(96) ? 7 : 2 + choices.below(6));
    wr.sges = {sge};
    wr.remote_address = 4096;
    wr.rkey = 5;
    (void)host.post_send(*target.qp, wr);
}

}  // namespace openmana::fuzz

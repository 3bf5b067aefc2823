// SPDX-License-Identifier: Apache-2.0
// A vfio-user client that is killed: at its n-th register access, be that in the handshake or in
// full traffic, it sends part of a message and is gone by SIGKILL. With n = 0 it lives, checks its
// own data, and ends with status 0.
//
// Usage: dying_client SOCKET N
#include <mana/rnic_queue.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/log.h"
#include "kill_protocol.h"
#include "support/rdma_host.h"
#include "support/remote_nic.h"

namespace {

using namespace openmana;
using namespace openmana::test;

int fail(const char* what) {
    std::fprintf(stderr, "dying_client: %s\n", what);
    return 1;
}

[[noreturn]] void die(RemoteNic& nic, std::uint64_t n) {
    // A write request, cut somewhere in its header or payload.
    const std::array<std::byte, 40> message{std::byte{9}, std::byte{0}, std::byte{10}, std::byte{0},
                                            std::byte{40}};
    (void)nic.client().send_raw(std::span(message).first(n % message.size()));
    ::kill(::getpid(), SIGKILL);
    std::abort();
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return fail("usage: dying_client SOCKET N");
    openmana::base::set_log_level(openmana::base::LogLevel::kOff);
    const std::uint64_t last = std::strtoull(argv[2], nullptr, 10);
    const auto nic = RemoteNic::attach(argv[1]);
    if (!nic) return fail("the server does not take the connection");
    std::uint64_t accesses = 0;
    nic->on_access = [&] {
        if (++accesses == last) die(*nic, last);
    };
    RdmaHost host(*nic, nic->ram(), nic->irq(), test_mac(kClientHost), ipv4_gid(kClientHost));
    if (!host.bring_up()) return fail("bring-up");
    auto cq = host.create_cq();
    auto qp = cq ? host.create_rc(*cq, *cq) : nullptr;
    const base::GuestAddr buffer = host.ram().alloc(kBufferBytes);
    const auto mr = host.hwc().create_mr(host.pd, buffer, kBufferBytes, 15);
    if (!qp || !mr) return fail("set-up");
    const QpCard mine{qp->qpn(), mr->rkey, buffer.value()};
    if (::write(STDOUT_FILENO, &mine, sizeof mine) != sizeof mine) return fail("stdout");
    QpCard other;
    if (::read(STDIN_FILENO, &other, sizeof other) != sizeof other) return fail("stdin");
    if (!host.connect(*qp, kClientPsn,
                      {ipv4_gid(kTestHost), test_mac(kTestHost), other.qpn, kTestPsn}, 4096))
        return fail("connect");

    // WRITE, read back, compare.
    HostQp* const list = qp.get();
    for (std::uint32_t round = 0; round < kRounds || last != 0; ++round) {
        const std::uint32_t length = 1 + round * 257 % 16384;
        for (std::uint32_t i = 0; i < length; ++i)
            *host.ram().at(buffer + i) = static_cast<std::byte>(round + i * 3);
        SendWr write{.opcode = MANA_HW_RNIC_WQE_WRITE,
                     .sges = {{buffer.value(), gdma::Key(mr->lkey), length}},
                     .remote_address = other.address,
                     .rkey = other.rkey,
                     .id = 1};
        SendWr read = write;
        read.opcode = MANA_HW_RNIC_WQE_READ;
        read.sges[0].address += 32768;
        read.id = 2;
        if (!host.post_send(*qp, write, false) || !host.post_send(*qp, read)) return fail("post");
        for (std::size_t done = 0; done < 2;) {
            std::vector<Completion> completions;
            host.poll(*cq, std::span(&list, 1), completions);
            for (const Completion& completion : completions)
                if (completion.vendor != 0) return fail("a work request failed");
            done += completions.size();
            // An access that does nothing, so that one can die while waiting too.
            (void)host.hwc().read32(8);
            if (!nic->alive()) return fail("the server has gone");
        }
        for (std::uint32_t i = 0; i < length; ++i)
            if (*host.ram().at(buffer + 32768 + i) != static_cast<std::byte>(round + i * 3))
                return fail("wrong data");
    }
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Two guests in traffic, as vfio-user clients of a manad: one WRITEs into the other's memory, READs
// that back and compares both, again and again until its standard input ends. Then it prints how
// many rounds it made and the longest of them. Anything else than that is an error.
//
// Usage: traffic_client SOCKET SOCKET
#include <mana/rnic_queue.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/log.h"
#include "support/rdma_host.h"
#include "support/remote_nic.h"

namespace {

using namespace openmana;
using namespace openmana::test;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kBufferBytes = 65536;
constexpr std::uint32_t kReadBack = 32768;  ///< in the writer's buffer
constexpr auto kPatience = std::chrono::seconds(60);

int fail(const char* what) {
    std::fprintf(stderr, "traffic_client: %s\n", what);
    return 1;
}

/// A guest with a queue pair and memory that others may write to.
struct Guest {
    std::unique_ptr<RemoteNic> nic;
    std::unique_ptr<RdmaHost> host;
    std::optional<DriverCq> cq;
    std::unique_ptr<HostQp> qp;
    base::GuestAddr buffer{};
    std::uint32_t lkey = 0;
    std::uint32_t rkey = 0;

    bool bring_up(const char* socket, std::uint8_t number) {
        nic = RemoteNic::attach(socket);
        if (!nic) return false;
        host = std::make_unique<RdmaHost>(*nic, nic->ram(), nic->irq(), test_mac(number),
                                          ipv4_gid(number));
        if (!host->bring_up()) return false;
        cq = host->create_cq();
        qp = cq ? host->create_rc(*cq, *cq) : nullptr;
        buffer = host->ram().alloc(kBufferBytes);
        const auto mr = host->hwc().create_mr(host->pd, buffer, kBufferBytes, 15);
        if (!qp || !mr) return false;
        lkey = mr->lkey;
        rkey = mr->rkey;
        return true;
    }
    bool connect(const Guest& other) {
        return host->connect(*qp, 1000,
                             {other.host->gid(), other.host->mac(), other.qp->qpn(), 1000}, 4096);
    }
    [[nodiscard]] std::byte* at(std::uint32_t offset) { return host->ram().at(buffer + offset); }
};

/// Null if all went well, else what did not.
const char* round_of(Guest& from, Guest& to, std::uint32_t number) {
    const std::uint32_t length = 1 + number * 257 % 16384;
    for (std::uint32_t i = 0; i < length; ++i) *from.at(i) = static_cast<std::byte>(number + i * 3);
    SendWr write{.opcode = MANA_HW_RNIC_WQE_WRITE,
                 .sges = {{from.buffer.value(), gdma::Key(from.lkey), length}},
                 .remote_address = to.buffer.value(),
                 .rkey = to.rkey,
                 .id = 1};
    SendWr read = write;
    read.opcode = MANA_HW_RNIC_WQE_READ;
    read.sges[0].address += kReadBack;
    read.id = 2;
    if (!from.host->post_send(*from.qp, write, false) || !from.host->post_send(*from.qp, read))
        return "post";
    HostQp* const list = from.qp.get();
    const auto begin = Clock::now();
    for (std::size_t done = 0; done < 2;) {
        std::vector<Completion> completions;
        from.host->poll(*from.cq, std::span(&list, 1), completions);
        for (const Completion& completion : completions)
            if (completion.vendor != 0) return "a work request failed";
        done += completions.size();
        (void)from.host->hwc().read32(8);
        if (!from.nic->alive() || !to.nic->alive()) return "the server has gone";
        if (Clock::now() - begin > kPatience) return "no completion";
    }
    if (!std::equal(from.at(0), from.at(0) + length, to.at(0))) return "wrong data was written";
    if (!std::equal(from.at(0), from.at(0) + length, from.at(kReadBack)))
        return "wrong data was read";
    return nullptr;
}

bool input_ended() {
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    return ::poll(&input, 1, 0) != 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return fail("usage: traffic_client SOCKET SOCKET");
    base::set_log_level(base::LogLevel::kOff);
    Guest a, b;
    if (!a.bring_up(argv[1], 1) || !b.bring_up(argv[2], 2)) return fail("bring-up");
    if (!a.connect(b) || !b.connect(a)) return fail("connect");
    std::uint32_t rounds = 0;
    auto longest = Clock::duration::zero();
    for (; !input_ended(); ++rounds) {
        const auto begin = Clock::now();
        const bool there = rounds % 2 == 0;
        if (const char* const what = round_of(there ? a : b, there ? b : a, rounds))
            return fail(what);
        longest = std::max(longest, Clock::now() - begin);
        if (rounds == 1) {
            std::puts("in traffic");
            std::fflush(stdout);
        }
    }
    std::printf("rounds=%u longest_ms=%.1f\n", rounds,
                std::chrono::duration<double, std::milli>(longest).count());
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
// A client of manad that means harm, as a process of its own: a QEMU that was taken over, or its
// guest. What the hostile tests do to a NIC it does to one of a manad that serves others too, round
// after round until it is ended. It prints what it has done so far, a line of JSON a round.
//
// Usage: hostile_client SOCKET MAC HOST [VICTIM_MAC=VICTIM_HOST...]
//        hostile_client burn SHARE
//
// HOST is the last byte of its address in 10.0.0.0/24. Queue pairs are aimed at the victims. `burn`
// does no harm: it computes for a share of the time (0 to 1), and prints nothing.
#include <mana/gdma.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "support/eth_guest.h"
#include "support/heavy_attack.h"
#include "support/hostile_driver.h"
#include "support/remote_nic.h"

namespace {

using namespace openmana;
using namespace openmana::test;

constexpr std::uint64_t kRamBytes = 64U << 20;
/// In a round all kinds have their turn within a second or two.
constexpr HeavyAttack::Load kLoad{
    .entries = 1U << 22, .pages = 1U << 18, .windows = 4096, .neighbours = 100};
constexpr int kFrames = 20000;
/// One of so many frames is for all: what a guest's own kernel does with it is no work of manad.
constexpr int kBroadcasts = 16;
constexpr int kDoorbells = 20000;
constexpr int kSteps = 400;
constexpr int kRemaps = 20;
/// Each so many rounds the guest's memory goes, and with it the connection.
constexpr unsigned kMemoryLoss = 4;
constexpr int kPatience = 600;  ///< tries to connect, 50 ms apart

volatile sig_atomic_t ended = 0;

void end(int) {
    ended = 1;
}

int fail(const char* what) {
    std::fprintf(stderr, "hostile_client: %s\n", what);
    return 1;
}

/// What was done.
struct Tally {
    std::uint64_t rounds = 0, connections = 0, frames = 0, resizes = 0, regions = 0, windows = 0,
                  doorbells = 0, remaps = 0, resets = 0, steps = 0, refused = 0, losses = 0;

    void print() const {
        const auto n = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
        std::printf(
            "{\"rounds\": %llu, \"connections\": %llu, \"frames\": %llu, \"resizes\": %llu, "
            "\"regions\": %llu, \"windows\": %llu, \"doorbells\": %llu, \"remaps\": %llu, "
            "\"resets\": %llu, \"steps\": %llu, \"refused\": %llu, \"losses\": %llu}\n",
            n(rounds), n(connections), n(frames), n(resizes), n(regions), n(windows), n(doorbells),
            n(remaps), n(resets), n(steps), n(refused), n(losses));
        std::fflush(stdout);
    }
};

struct Target {
    std::string socket;
    base::MacAddr mac{};
    std::uint8_t host = 0;
    std::vector<Peer> victims;
};

/// One connection, until it ends or the client does.
class Intruder {
public:
    Intruder(RemoteNic& nic, const Target& target, RandomChoices& choices, Tally& tally)
        : nic_(nic),
          target_(target),
          choices_(choices),
          tally_(tally),
          heavy_(nic, nic.ram(), nic.irq(), target.mac, ipv4_gid(target.host), kLoad) {}

    /// False when the connection is over.
    bool round() {
        // The kinds that take memory come after a reset, which gives all of it back.
        if (!anew()) return false;
        flood();
        count(tally_.resizes, heavy_.resize());
        count(tally_.regions, heavy_.regions());
        if (!anew()) return false;
        count(tally_.windows, windows());
        doorbells();
        if (!go_on()) return false;
        nic_.reset();
        ++tally_.resets;
        nic_.ram().free_all();
        remap();
        random_steps();
        ++tally_.rounds;
        if (tally_.rounds % kMemoryLoss != 0) return go_on();
        lose_memory();
        return false;
    }

private:
    [[nodiscard]] bool go_on() const { return nic_.alive() && ended == 0; }
    bool anew() {
        if (!go_on()) return false;
        nic_.reset();
        ++tally_.resets;
        return heavy_.begin() && go_on();
    }
    void count(std::uint64_t& kind, bool done) const {
        if (!go_on()) return;
        ++(done ? kind : tally_.refused);
    }
    /// A step of it takes as many register accesses as it makes windows, and the device needs a
    /// turn or two.
    bool windows() {
        constexpr int kTurns = 100000;
        if (!heavy_.start_windows()) return false;
        for (int turn = 0; heavy_.binding() && go_on() && turn < kTurns; ++turn) {
            if (!heavy_.bind_more()) return false;
            (void)heavy_.host().hwc().read32(8);
        }
        return !heavy_.binding();
    }
    /// From and to addresses that are made up, as fast as the NIC sends.
    void flood() {
        EthGuest guest(heavy_.host().hwc());
        if (!go_on() || !guest.probe() || !guest.up()) {
            ++tally_.refused;
            return;
        }
        constexpr int kBatch = 64;
        constexpr std::uint32_t kBytes = 60;
        EthTx& tx = guest.tx[0];
        const base::GuestAddr page = nic_.ram().alloc(GuestRam::kPage);
        const std::array<std::uint32_t, 2> oob{tx.cq.id << 8, (tx.sq.id & 0x3fff) << 10};
        for (int sent = 0; sent < kFrames && go_on(); sent += kBatch) {
            for (int i = 0; i < kBatch; ++i) {
                const base::GuestAddr at = page + static_cast<std::uint64_t>(i) * 64;
                const auto frame = nic_.ram().bytes(at, kBytes);
                choices_.fill(frame.first(12));
                frame[0] &= std::byte{0xfe};
                frame[6] &= std::byte{0xfe};
                if (i % kBroadcasts == 0) std::fill_n(frame.begin(), 6, std::byte{0xff});
                const gdma::Sge sge{at.value(), gdma::Key(guest.key), kBytes};
                tx.sq.post(std::as_bytes(std::span(oob)), std::span(&sge, 1));
            }
            tx.sq.doorbell();
            while (EthGuest::poll(tx)) ++tally_.frames;
        }
    }
    /// To any queue of any page, without waiting for an answer, as QEMU writes them.
    void doorbells() {
        static constexpr std::uint64_t kPlaces[] = {0x000, 0x400, 0x408, 0x800, 0xff8};
        HwcDriver& hwc = heavy_.host().hwc();
        for (int i = 0; i < kDoorbells && go_on(); ++i) {
            const auto page = choices_.chance(128) ? heavy_.host().device.page
                                                   : static_cast<std::uint32_t>(choices_.below(64));
            const std::uint64_t place = hwc.doorbell_offset(page) + choices_.pick(kPlaces);
            const std::uint64_t value = choices_.below(512) | choices_.number() << 32;
            if (place + 8 > nic_.bar0_size() || !nic_.client().post_value(0, place, value)) break;
            ++tally_.doorbells;
            // So that what waits in the socket has a bound: the client is not to block in send().
            if (i % 256 == 255) (void)hwc.read32(8);
        }
    }
    /// The guest's memory goes, and comes back, as when firmware moves a BAR.
    void remap() {
        const std::uint64_t start = nic_.ram().start().value();
        for (int i = 0; i < kRemaps && go_on(); ++i) {
            if (!nic_.client().dma_unmap(start, kRamBytes) ||
                !nic_.client().dma_map(start, kRamBytes, nic_.memory_file().get()))
                break;
            ++tally_.remaps;
        }
    }
    void random_steps() {
        HostileDriver driver(nic_, nic_.ram(), nic_.irq(),
                             {target_.mac, ipv4_gid(target_.host), target_.victims, 16, true});
        if (!go_on() || !driver.bring_up() || !driver.make_pair()) {
            ++tally_.refused;
            return;
        }
        for (int i = 0; i < kSteps && go_on(); ++i) {
            driver.step(choices_);
            ++tally_.steps;
        }
    }
    /// With work under way. Nobody here looks at that memory afterwards.
    void lose_memory() {
        const bool lost = ::ftruncate(nic_.memory_file().get(), 0) == 0;
        tally_.losses += lost ? 1 : 0;
        // A message that does not end either.
        constexpr std::array<std::byte, 7> kPart{};
        (void)nic_.client().send_raw(kPart);
    }

    RemoteNic& nic_;
    const Target& target_;
    RandomChoices& choices_;
    Tally& tally_;
    HeavyAttack heavy_;
};

int attack(Target target) {
    RandomChoices choices(1);
    Tally tally;
    int refused = 0;
    while (ended == 0) {
        const auto nic = RemoteNic::attach(target.socket, kRamBytes);
        if (!nic) {
            if (++refused == kPatience) return fail("manad takes no connection");
            ::usleep(50000);
            continue;
        }
        refused = 0;
        ++tally.connections;
        // Numbers that are guessed, each time others.
        for (Peer& victim : target.victims) victim.qpn = choices.value<std::uint16_t>();
        Intruder intruder(*nic, target, choices, tally);
        while (intruder.round()) tally.print();
        tally.print();
    }
    return 0;
}

std::int64_t nanoseconds(clockid_t clock) {
    timespec time{};
    ::clock_gettime(clock, &time);
    return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}

/// Computes in pieces of 0.2 ms. What it could not have, since others had the CPU, it has later,
/// unless that is more than 50 ms.
int burn(double share) {
    constexpr std::int64_t kPiece = 200'000;
    constexpr double kMostBehind = 50e6;
    if (!(share >= 0 && share <= 1)) return fail("burn: a share from 0 to 1");
    std::int64_t last = nanoseconds(CLOCK_MONOTONIC);
    double owed = 0;  // of CPU time, in ns
    while (ended == 0) {
        const std::int64_t now = nanoseconds(CLOCK_MONOTONIC);
        owed = std::min(owed + static_cast<double>(now - last) * share, kMostBehind);
        last = now;
        if (owed < static_cast<double>(kPiece)) {
            ::usleep(200);
            continue;
        }
        const std::int64_t begin = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
        std::int64_t done = begin;
        while (done - begin < kPiece) done = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
        owed -= static_cast<double>(done - begin);
    }
    return 0;
}

/// "02:4d:41:00:00:00"
bool parse_mac(const char* text, base::MacAddr& mac) {
    return std::sscanf(text, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", &mac[0], &mac[1], &mac[2], &mac[3],
                       &mac[4], &mac[5]) == 6;
}

}  // namespace

int main(int argc, char** argv) {
    struct sigaction action {};
    action.sa_handler = end;
    for (const int signum : {SIGTERM, SIGINT}) ::sigaction(signum, &action, nullptr);
    ::signal(SIGPIPE, SIG_IGN);
    openmana::base::set_log_level(openmana::base::LogLevel::kOff);
    if (argc == 3 && std::strcmp(argv[1], "burn") == 0) return burn(std::strtod(argv[2], nullptr));
    if (argc < 4) return fail("usage: hostile_client SOCKET MAC HOST [VICTIM_MAC=VICTIM_HOST...]");
    Target target;
    target.socket = argv[1];
    target.host = static_cast<std::uint8_t>(std::strtoul(argv[3], nullptr, 10));
    if (!parse_mac(argv[2], target.mac)) return fail("MAC is no MAC address");
    for (int i = 4; i < argc; ++i) {
        Peer victim;
        const char* const host = std::strchr(argv[i], '=');
        if (host == nullptr || !parse_mac(argv[i], victim.mac)) return fail("a victim is MAC=HOST");
        victim.gid = ipv4_gid(static_cast<std::uint8_t>(std::strtoul(host + 1, nullptr, 10)));
        for (int k = 0; k < 4; ++k) target.victims.push_back(victim);
    }
    return attack(std::move(target));
}

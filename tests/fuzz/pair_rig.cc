// SPDX-License-Identifier: Apache-2.0
#include "pair_rig.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>

#include "base/bus_guard.h"
#include "base/gate.h"

namespace openmana::fuzz {
namespace {

struct sigaction others {};  // of the fuzzer
struct sigaction guards {};

/// What the guard gives up is the fuzzer's finding.
void on_sigbus(int number, siginfo_t* info, void* context) {
    guards.sa_sigaction(number, info, context);
    struct sigaction now {};
    ::sigaction(number, nullptr, &now);
    if (now.sa_handler == SIG_DFL) ::sigaction(number, &others, nullptr);
}

void install_guard() {
    static const bool once = [] {
        ::sigaction(SIGBUS, nullptr, &others);
        require(base::BusGuard::install().has_value(), "guard");
        ::sigaction(SIGBUS, nullptr, &guards);
        struct sigaction own = guards;
        own.sa_sigaction = on_sigbus;
        return ::sigaction(SIGBUS, &own, nullptr) == 0;
    }();
    require(once, "SIGBUS");
}

base::UniqueFd memory_file() {
    base::UniqueFd fd(::memfd_create("fuzz", MFD_CLOEXEC));
    require(fd && ::ftruncate(fd.get(), LentMemory::kRam) == 0, "memory file");
    return fd;
}

}  // namespace

LentMemory::LentMemory(bool file) : fd_(file ? memory_file() : base::UniqueFd()) {
    if (!file) return;
    install_guard();
    auto loss = base::MemoryLoss::create();
    require(loss.has_value(), "eventfd");
    loss_ = std::move(*loss);
}

LentMemory::~LentMemory() {
    if (guard_) base::BusGuard::remove(*guard_);
}

void LentMemory::lend(FuzzNic& nic) {
    const base::GuestAddr start = nic.ram.start();
    const base::Gate::Exclusion exclusion(nic.nic.function().gate(), {"map"});
    if (!lent_) {
        // As it was made: in one range of the process.
        (void)nic.memory.unmap(start, kRam);
        if (fd_) guard_ = base::BusGuard::add({nic.ram.at(start), kRam}, nullptr);
        lent_ = true;
    }
    for (std::uint64_t at = 0; at < kRam; at += kRange) {
        if (!nic.memory.find(start + at, 1, base::Access::kRead).empty()) continue;
        if (fd_)
            (void)nic.memory.map_fd(start + at, kRange, fd_, at, true, true);
        else
            (void)nic.memory.map_host(start + at, {nic.ram.at(start + at), kRange});
    }
}

void LentMemory::unmap(FuzzNic& nic, std::uint64_t range) {
    base::Result<base::GuestMemory::Unmapped> gone;
    const base::Gate::Exclusion exclusion(nic.nic.function().gate(), {"unmap"});
    gone = nic.memory.unmap(nic.ram.start() + range * kRange, kRange);
    require(gone.has_value(), "unmap");
}

void LentMemory::shrink(std::uint64_t bytes) {
    if (!fd_) return;
    require(::ftruncate(fd_.get(), static_cast<off_t>(bytes)) == 0, "ftruncate");
    shrunk_ = true;
}

void LentMemory::next_client(FuzzNic& nic) {
    base::GuestMemory::Unmapped gone;
    {
        const base::Gate::Exclusion exclusion(nic.nic.function().gate(), {"end of a client"});
        nic.nic.function().reset();
        gone = nic.memory.unmap_all();
    }
    (void)nic.memory.take_losses();
    if (fd_) {
        require(::ftruncate(fd_.get(), 0) == 0 && ::ftruncate(fd_.get(), kRam) == 0, "ftruncate");
        void* const host = nic.ram.at(nic.ram.start());
        require(::mmap(host, kRam, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_.get(), 0) ==
                    host,
                "mmap");
    }
    shrunk_ = false;
    nic.ram.free_all();
    lend(nic);
}

PairRig::Side::Side(test::SimWorld& world, fabric::Switch& network, std::uint8_t number, bool file)
    : lent(file),
      nic(world, network, number, LentMemory::kRam, lent.fd(), lent.loss()),
      driver(nic.nic.function(), nic.ram, nic.irq,
             {test::test_mac(number), test::ipv4_gid(number), {}, 0, false}) {
    lent.lend(nic);
}

PairRig::PairRig(test::Choices& choices, bool wire, bool file)
    : choices_(choices),
      time_(world_),
      network_(world_),
      far_network_(world_),
      cable_(wire ? std::make_unique<Cable>(network_, far_network_) : nullptr),
      near_(world_, network_, 1, file),
      far_(world_, wire ? far_network_ : network_, 2, file) {
    start();
}

void PairRig::start() {
    for (Side* side : {&near_, &far_})
        require(side->driver.bring_up(false) && side->driver.make_pair(), "bring-up");
    require(join(near_.driver, far_.driver) && join(near_.driver, far_.driver), "connection");
}

bool PairRig::join(test::HostileDriver& a, test::HostileDriver& b) {
    test::RdmaHost& left = a.host();
    test::RdmaHost& right = b.host();
    auto qp_a = left.create_rc(a.cqs()[0], a.cqs()[1]);
    auto qp_b = right.create_rc(b.cqs()[0], b.cqs()[1]);
    if (!qp_a || !qp_b) return false;
    const bool done =
        left.connect(*qp_a, 1000, {right.gid(), right.mac(), qp_b->qpn(), 0xfffffe}) &&
        right.connect(*qp_b, 0xfffffe, {left.gid(), left.mac(), qp_a->qpn(), 1000});
    a.qps().push_back(std::move(qp_a));
    b.qps().push_back(std::move(qp_b));
    return done;
}

void PairRig::step() {
    test::HostileDriver& driver = choices_.chance(96) ? far_.driver : near_.driver;
    const std::uint64_t kind = choices_.below(20);
    if (kind < 6)
        driver.work(choices_);
    else if (kind < 9)
        driver.raw_work(choices_);
    else if (kind == 9)
        driver.doorbell(choices_);
    else if (kind == 10)
        change_queue_pair(driver);
    else if (kind == 11)
        disturb();
    else if (kind == 16 || kind == 17)
        driver.ext_work(choices_);
    else if (kind == 18)
        driver.ext_raw_work(choices_);
    else if (kind == 19)
        driver.ext_objects(choices_);
    if (!choices_.chance(64)) world_.run_until_idle();
    if (choices_.chance(32)) time_.pass(std::chrono::milliseconds(choices_.byte()));
}

void PairRig::change_queue_pair(test::HostileDriver& driver) {
    if (choices_.chance(128))
        driver.renew(choices_);
    else
        (void)driver.host().to_state(*choices_.pick(driver.qps()),
                                     static_cast<std::uint32_t>(choices_.below(8)));
}

/// A peer that vanishes, or memory that does.
void PairRig::disturb() {
    if (choices_.chance(64)) far_.nic.nic.set_link(choices_.chance(128));
    if (!choices_.chance(32)) return;
    const base::GuestAddr start = far_.nic.ram.start();
    if (far_.nic.memory.find(start, 1, base::Access::kRead).empty())
        far_.lent.lend(far_.nic);
    else
        for (std::uint64_t i = 0; i < LentMemory::kRam / LentMemory::kRange; ++i)
            far_.lent.unmap(far_.nic, i);
}

void PairRig::take_memory() {
    Side& side = choices_.chance(96) ? near_ : far_;
    // In the middle of what was begun: some turns of both threads.
    for (std::uint64_t turns = choices_.below(8); turns > 0; --turns) {
        (void)near_.nic.executor.run_once();
        (void)far_.nic.executor.run_once();
    }
    const std::uint64_t data = side.driver.data().value() - side.nic.ram.start().value();
    switch (choices_.below(4)) {
        case 0:
            side.lent.unmap(side.nic, choices_.chance(64)
                                          ? choices_.below(LentMemory::kRam / LentMemory::kRange)
                                          : data / LentMemory::kRange);
            break;
        case 1:
            side.lent.lend(side.nic);
            break;
        case 2:
            side.lent.shrink(choices_.chance(64) ? choices_.below(LentMemory::kRam)
                                                 : data + choices_.below(64) * 4096);
            break;
        default:
            // As soon as manad learns of it, or later.
            if (!side.lent.shrunk()) break;
            side.lent.next_client(side.nic);
            require(side.driver.bring_up(false) && side.driver.make_pair(), "the next client");
            break;
    }
}

void PairRig::end() {
    time_.pass(std::chrono::seconds(2));
    for (Side* side : {&near_, &far_}) {
        if (side->lent.shrunk()) {
            side->lent.next_client(side->nic);
            require(side->driver.bring_up(false) && side->driver.make_pair(), "the next client");
        }
        require(side->driver.canary_alive(), "memory outside all MRs was written");
    }
}

}  // namespace openmana::fuzz

// SPDX-License-Identifier: Apache-2.0
// Accesses to BAR0 of a whole NIC: registers, the mailbox, doorbells, before and after the channel
// is up; with guest memory that holds anything, comes and goes.
#include "fuzz.h"

using namespace openmana;

namespace {

void poke_memory(test::Choices& choices, fuzz::FuzzNic& nic) {
    const std::uint64_t page = choices.below(64) * 4096;
    const std::size_t length = choices.byte();
    const auto target = nic.ram.bytes(nic.ram.start() + page + choices.below(4) * 64, length);
    choices.fill(target);
}

void access(test::Choices& choices, fuzz::FuzzNic& nic) {
    auto& function = nic.nic.function();
    const std::uint64_t size = function.bar0_size();
    std::uint64_t offset = 0;
    switch (choices.below(4)) {
        case 0:
            offset = choices.below(0x40);
            break;
        case 1:
            offset = 0x2000 + choices.below(0x20);
            break;
        case 2:
            offset = 0x10000 + choices.below(8) * 4096 + choices.below(4096);
            break;
        default:
            offset = choices.value<std::uint64_t>() % size;
            break;
    }
    if (!choices.chance(64)) offset &= ~7ULL;
    const std::size_t length =
        std::min<std::uint64_t>(choices.chance(64) ? choices.byte() : 8, size - offset);
    std::vector<std::byte> data(length);
    if (choices.chance(64)) {
        function.bar0_read(offset, data);
    } else {
        choices.fill(data);
        function.bar0_write(offset, data);
    }
}

/// The mailbox with page frames of guest memory, mostly.
void establish(test::Choices& choices, fuzz::FuzzNic& nic) {
    std::array<std::byte, 32> words{};
    const std::uint64_t first = nic.ram.start().value() >> 12;
    for (std::size_t queue = 0; queue < 4; ++queue) {
        const std::uint64_t frame =
            choices.chance(16) ? choices.number() : first + choices.below(64);
        std::memcpy(words.data() + 6 * queue, &frame, 6);
    }
    words[26] = static_cast<std::byte>(choices.chance(32) ? choices.byte() : 0);
    words[28] = static_cast<std::byte>(choices.chance(16) ? choices.byte() : 1 + choices.below(2));
    for (std::size_t i = 0; i < words.size(); i += 4)
        nic.nic.function().bar0_write(0x2000 + i, std::span(words).subspan(i, 4));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    test::InputChoices choices({data, size});
    test::SimWorld world;
    fuzz::Time time(world);
    fabric::Switch network(world);
    fuzz::FuzzNic nic(world, network, 1, 1U << 20);
    test::HostileDriver driver(nic.nic.function(), nic.ram, nic.irq,
                               {test::test_mac(1), test::ipv4_gid(1), {}});
    const bool up = choices.chance(128);
    if (up) {
        fuzz::require(driver.bring_up() && driver.make_pair(), "bring-up without hostility");
    }
    bool mapped = true;
    for (unsigned step = 0; step < fuzz::kMaxSteps && choices.more(); ++step) {
        switch (choices.below(8)) {
            case 0:
            case 1:
            case 2:
                access(choices, nic);
                break;
            case 3:
                poke_memory(choices, nic);
                break;
            case 4:
                establish(choices, nic);
                break;
            case 5:
                if (up) driver.doorbell(choices);
                break;
            case 6:
                if (choices.chance(32)) {
                    nic.nic.function().reset();
                } else if (mapped) {
                    mapped = !nic.memory.unmap(nic.ram.start(), nic.ram.size()).has_value();
                } else {
                    mapped = nic.memory
                                 .map_host(nic.ram.start(),
                                           {nic.ram.at(nic.ram.start()), nic.ram.size()})
                                 .has_value();
                }
                break;
            default:
                time.pass(std::chrono::microseconds(choices.value<std::uint16_t>()));
                break;
        }
        world.run_until_idle();
    }
    time.pass(std::chrono::seconds(1));
    if (!mapped)
        (void)nic.memory.map_host(nic.ram.start(), {nic.ram.at(nic.ram.start()), nic.ram.size()});
    return 0;
}

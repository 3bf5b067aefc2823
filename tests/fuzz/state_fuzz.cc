// SPDX-License-Identifier: Apache-2.0
// The state of a NIC with requests under way, as anybody may have changed it: it is refused and the
// NIC has nothing, or the NIC goes on from there, whatever its guest and the network say then, and
// its state can be written and read once more.
#include <memory>
#include <vector>

#include "base/state.h"
#include "frame_rig.h"
#include "support/state_damage.h"

using namespace openmana;

namespace {

constexpr std::size_t kHead = 24;

std::vector<std::byte> written(const fuzz::FrameRig& rig) {
    return test::written(rig.world.now(), [&](base::StateWriter& out) { rig.nic.nic.save(out); })
        .bytes;
}

/// A NIC in the place of the rig's, so that driver and guest memory are its own, reads the state.
/// What it said if it refused it.
const char* move(fuzz::FrameRig& rig, const std::vector<std::byte>& state) {
    fuzz::FuzzNic& nic = rig.nic;
    std::destroy_at(&nic.nic);
    std::construct_at(&nic.nic, nic.executor, nic.memory, nic.irq, rig.network,
                      test::SimNic::config(1));
    auto in = base::StateReader::open(state, rig.world.now());
    if (!in) return in.error().text;
    const auto loaded = nic.nic.load(*in);
    if (loaded) return nullptr;
    fuzz::require(nic.nic.function().object_counts() == gdma::ObjectCounts(),
                  "something of a refused state stayed");
    return loaded.error().text;
}

/// What becomes of a state at one place.
struct Change {
    explicit Change(test::Choices& choices)
        : place(choices.value<std::uint16_t>()),
          kind(static_cast<unsigned>(choices.below(8))),
          number(choices.number()),
          length(choices.below(32)) {}

    void make(std::vector<std::byte>& body) const {
        if (body.empty()) return;
        const std::size_t at = body.size() * place >> 16;
        const auto from = body.begin() + static_cast<std::ptrdiff_t>(at);
        const std::size_t rest = std::min(length, body.size() - at);
        switch (kind) {
            case 0:
                body.erase(from, body.end());
                break;
            case 1:
                body.insert(from, length, static_cast<std::byte>(number));
                break;
            case 2:
                body.erase(from, from + static_cast<std::ptrdiff_t>(rest));
                break;
            case 3:
            case 4:
                *from ^= static_cast<std::byte>(1U << number % 8);
                break;
            default:
                for (std::size_t n = 0; n < std::min<std::size_t>(rest, 8); ++n)
                    body[at + n] = static_cast<std::byte>(number >> (8 * n));
                break;
        }
    }

    std::uint16_t place;
    unsigned kind;
    std::uint64_t number;
    std::size_t length;
};

/// With the changes, behind a head that fits.
std::vector<std::byte> changed(const std::vector<std::byte>& state,
                               const std::vector<Change>& changes) {
    std::vector<std::byte> body(state.begin() + kHead, state.end());
    for (const Change& change : changes) change.make(body);
    return test::with_head(body);
}

/// What needs no object of the driver's that it may have destroyed itself.
void guest(test::HostileDriver& driver, test::Choices& choices) {
    switch (choices.below(4)) {
        case 0:
            return driver.request(choices);
        case 1:
            return driver.raw_work(choices);
        case 2:
            return driver.ext_raw_work(choices);
        default:
            return driver.doorbell(choices);
    }
}

void steps(fuzz::FrameRig& rig, test::Choices& choices, unsigned most) {
    for (unsigned step = 0; step < most && choices.more(); ++step) {
        switch (choices.below(8)) {
            case 0:
            case 1:
            case 2:
                rig.nic.nic.deliver(rig.any(choices));
                break;
            case 3:
            case 4:
                rig.work(choices);
                break;
            case 5:
                guest(rig.driver, choices);
                break;
            default:
                rig.time.pass(std::chrono::milliseconds(choices.byte()));
                break;
        }
        if (!choices.chance(64)) rig.world.run_until_idle();
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    test::InputChoices choices({data, size});
    std::vector<Change> changes;
    for (std::uint64_t left = choices.below(4); left > 0; --left) changes.emplace_back(choices);
    fuzz::FrameRig rig;
    fuzz::Hole hole(rig.network);
    steps(rig, choices, static_cast<unsigned>(choices.below(16)));
    const auto state = written(rig);
    const auto other = changed(state, changes);
    if (const char* const refused = move(rig, other); refused != nullptr) {
        fuzz::require(other != state, refused);
        return 0;
    }
    const char* const refused = move(rig, written(rig));
    fuzz::require(refused == nullptr, refused);
    steps(rig, choices, fuzz::kMaxSteps);
    rig.time.pass(std::chrono::seconds(1));
    return 0;
}

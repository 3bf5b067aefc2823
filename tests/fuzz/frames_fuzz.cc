// SPDX-License-Identifier: Apache-2.0
// Frames from the network to a NIC with connected QPs and Ethernet queues: RoCE packets with right
// and wrong fields, Ethernet frames, bytes, up to the largest that an uplink brings; while the NIC
// has requests of its own on the way.
#include "frame_rig.h"

using namespace openmana;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    test::InputChoices choices({data, size});
    fuzz::FrameRig rig;
    fuzz::Hole hole(rig.network);
    for (unsigned step = 0; step < fuzz::kMaxSteps && choices.more(); ++step) {
        switch (choices.below(8)) {
            case 0:
            case 1:
            case 2: {
                base::Frame frame = rig.roce(choices, choices.pick(rig.targets));
                if (choices.chance(24))
                    frame[choices.below(frame.size())] ^= static_cast<std::byte>(choices.byte());
                if (choices.chance(16)) frame.resize(choices.below(frame.size()));
                rig.nic.nic.deliver(frame);
                break;
            }
            case 3:
                rig.nic.nic.deliver(fuzz::FrameRig::ethernet(choices));
                break;
            case 4:
                rig.nic.nic.deliver(choices.bytes(choices.byte()));
                break;
            case 5:
            case 6:
                rig.work(choices);
                break;
            default:
                rig.time.pass(std::chrono::milliseconds(choices.byte()));
                break;
        }
        if (!choices.chance(64)) rig.world.run_until_idle();
    }
    rig.time.pass(std::chrono::seconds(1));
    fuzz::require(rig.driver.canary_alive(), "memory outside all MRs was written");
    return 0;
}

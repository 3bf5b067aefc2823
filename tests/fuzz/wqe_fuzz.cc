// SPDX-License-Identifier: Apache-2.0
// Work requests of QPs that are connected, in one NIC and between two, over the local path and over
// the wire: valid ones, nearly valid ones, bytes; doorbells anywhere. What no MR covers must stay
// as it was.
#include "pair_rig.h"

using namespace openmana;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    test::InputChoices choices({data, size});
    const bool wire = choices.chance(128);
    fuzz::PairRig rig(choices, wire, false);
    for (unsigned step = 0; step < fuzz::kMaxSteps && choices.more(); ++step) rig.step();
    rig.end();
    return 0;
}

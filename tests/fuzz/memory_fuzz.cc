// SPDX-License-Identifier: Apache-2.0
// Guest memory that is taken away while two NICs work with it: ranges unmapped in the middle of a
// work request's execution, and the file behind them shrunk, so that the device finds nothing where
// it reads and writes. Neither may the process end, nor the next client of the NIC notice.
#include "pair_rig.h"

using namespace openmana;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    test::InputChoices choices({data, size});
    const std::uint8_t setup = choices.byte();
    fuzz::PairRig rig(choices, (setup & 1) != 0, true);
    for (unsigned step = 0; step < fuzz::kMaxSteps && choices.more(); ++step) {
        rig.step();
        if (choices.chance(64)) rig.take_memory();
    }
    rig.end();
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
#include "support/doorbell_sink.h"

void mana_test_doorbell(void* page, std::uint32_t offset, std::uint64_t value) {
    static_cast<openmana::test::DoorbellSink*>(page)->ring(offset, value);
}

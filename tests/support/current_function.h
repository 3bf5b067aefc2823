// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/bar_write.h"
#include "gdma/function.h"
#include "pci/function_model.h"

namespace openmana::test {

/// The registers that a driver sees, of whichever function serves it now.
class CurrentFunction final : public pci::FunctionModel {
public:
    [[nodiscard]] std::uint64_t bar0_size() const override { return function->bar0_size(); }
    void bar0_read(std::uint64_t offset, std::span<std::byte> data) override {
        function->bar0_read(offset, data);
    }
    void bar0_write(std::uint64_t offset, std::span<const std::byte> data) override {
        if (lose_next) {
            lose_next = false;
            return;
        }
        // As doorbells come, of which nobody waits for an answer.
        const base::BarWrite write{offset, data};
        function->bar0_writes(std::span(&write, 1));
    }
    void reset() override { function->reset(); }

    gdma::Function* function = nullptr;
    bool lose_next = false;  ///< the next write reaches nobody
};

}  // namespace openmana::test

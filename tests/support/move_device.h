// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "base/state.h"
#include "gdma/function.h"
#include "rnic/rnic.h"

namespace openmana::test {

/// The device becomes another one, in its place, which has read what it has written: what its
/// driver and its peers should not notice. The text of what was refused; empty if nothing was.
inline std::string move_device(gdma::Function& function, rnic::Rnic& rnic, pci::IrqSink& irq,
                               const rnic::RnicConfig& config, rnic::Network& network) {
    base::Executor& executor = function.executor();
    base::GuestMemory& memory = function.memory();
    const gdma::FunctionConfig limits = function.config();
    base::StateWriter out(executor.now());
    function.save(out);
    const std::vector<std::byte> state = std::move(out).finish();
    std::destroy_at(&rnic);
    std::destroy_at(&function);
    std::construct_at(&function, executor, memory, irq, limits);
    std::construct_at(&rnic, function, config, network);
    auto in = base::StateReader::open(state, executor.now());
    const auto loaded = in ? function.load(*in) : tl::unexpected(in.error());
    return loaded ? std::string() : loaded.error().text;
}

}  // namespace openmana::test

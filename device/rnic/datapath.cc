// SPDX-License-Identifier: Apache-2.0
#include "rnic/datapath.h"

#include "gdma/function.h"

namespace openmana::rnic {

Datapath::Datapath(gdma::Function& function, const RnicConfig& the_config, Network& the_network,
                   const QpTable& qps)
    : network(the_network),
      executor(function.executor()),
      memory(function.memory()),
      keys(function.keys()),
      key_changes(function.key_changes()),
      sqs(function.sqs()),
      rqs(function.rqs()),
      nic(function.config().name),
      config(the_config),
      scratch(function.account()),
      addresses(function.gate(), config.mac, network),
      events(counters),
      error_cqes{.unasked = config.error_cqes_unasked},
      records(executor, counters.record_posts),
      transmitter(network, addresses, counters),
      scheduler(executor, network, qps, counters.held_back),
      tasks(executor, qps),
      datagrams(qps, counters, tasks, config.port_mtu),
      self{function.gate(), qps, keys, datagrams, counters},
      current_rate_mbps(config.congestion.line_rate_mbps()) {}

void Datapath::reset() {
    addresses.clear();  // opens the gate
    tasks.clear();
    datagrams.clear();
    scheduler.clear();
    error_cqes.wanted = false;
    events.use(nullptr);
}

}  // namespace openmana::rnic

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/counters.h"
#include "base/frame.h"
#include "eth/counters.h"
#include "eth/network.h"
#include "eth/vport.h"
#include "gdma/function.h"

namespace openmana::eth {

/// The Ethernet device (GDMA type 2) of a function: one vPort (GDMA 6). Commands and TX on the
/// executor; `receive` from any thread.
class EthernetDevice final : public gdma::Client {
public:
    /// Attaches itself to the function. `network` gets the frames that the guest sends.
    EthernetDevice(gdma::Function& function, EthernetConfig config, Network& network);
    ~EthernetDevice() override;

    [[nodiscard]] std::uint16_t device_type() const override { return 2; }
    void command(const gdma::HwcRequest& request, gdma::HwcReply& reply) override;
    void reset() override;
    void save(base::StateWriter& out) const override;
    void load(base::StateReader& in) override;
    void recover(gdma::FunctionLedger& ledger) override;
    bool stale_doorbell(std::uint64_t offset, std::uint64_t value) override;

    /// A frame from the network for this vPort: filtered by destination MAC, steered by RSS,
    /// written to the guest. The caller visits the function's Gate (or is its executor).
    void receive(std::span<const std::byte> frame);
    /// A frame that the port itself sent to a group or to its own address: the packet queue whose
    /// rule it matches gets it, the interface never. False if there is none. On the executor.
    bool receive_own(std::span<const std::byte> frame);

    /// Whether there are packet queues and flow rules (docs/extensions.md): the RDMA device has
    /// negotiated the extension. A reset of the function forgets it. On the executor.
    void allow_packets(bool allowed);
    [[nodiscard]] bool packets_allowed() const;
    [[nodiscard]] const base::MacAddr& mac() const;
    /// From any thread.
    [[nodiscard]] const EthernetCounters& counters() const;
    /// With the link down nothing is sent or received; the driver of 7.2 is told.
    void set_link(bool up);
    /// As the driver knows it to be.
    void restore_link(bool up);
    [[nodiscard]] bool link() const;

    struct Impl;

private:
    std::unique_ptr<Impl> impl_;
};

}  // namespace openmana::eth

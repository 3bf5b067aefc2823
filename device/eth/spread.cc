// SPDX-License-Identifier: Apache-2.0
#include "eth/spread.h"

#include <mana/ext_eth.h>

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "eth/ip.h"
#include "eth/receive_queue.h"

namespace openmana::eth {
namespace {

/// What is hashed of a frame, piece by piece.
class Input {
public:
    template <std::size_t size>
    void add(bool wanted, const std::uint8_t (&field)[size], std::size_t bytes = size) {
        if (!wanted) return;
        std::memcpy(bytes_.data() + used_, field, bytes);
        used_ += bytes;
    }
    [[nodiscard]] std::span<const std::byte> bytes() const {
        return std::span(bytes_).first(used_);
    }

private:
    std::array<std::byte, Toeplitz::kMaxInput> bytes_{};
    std::size_t used_ = 0;
};

}  // namespace

Spread::Spread(std::uint32_t fields, std::span<const std::byte, Toeplitz::kKeyBytes> key,
               std::vector<ReceiveQueue*> table, base::MemoryAccount::Charge charge)
    : fields_(fields), table_(std::move(table)), charge_(std::move(charge)) {
    toeplitz_.set_key(key);
}

std::uint64_t Spread::cost(std::size_t entries) {
    return base::node_cost(sizeof(Spread)) + base::heap_cost(Toeplitz::kTableBytes) +
           base::heap_cost(entries * sizeof(ReceiveQueue*));
}

ReceiveQueue* Spread::choose(const FlowFields& words) const {
    mana_hw_ext_flow_fields frame;
    std::memcpy(&frame, words.data(), sizeof frame);
    const auto wants = [&](std::uint32_t field) { return (fields_ & field) != 0; };
    const unsigned type = frame.ether_type[0] << 8U | frame.ether_type[1];
    Input input;
    if (type == kTypeIpv4) {
        input.add(wants(MANA_HW_EXT_SPREAD_SOURCE_IPV4), frame.source_ip, 4);
        input.add(wants(MANA_HW_EXT_SPREAD_DEST_IPV4), frame.dest_ip, 4);
    } else if (type == kTypeIpv6) {
        input.add(wants(MANA_HW_EXT_SPREAD_SOURCE_IPV6), frame.source_ip);
        input.add(wants(MANA_HW_EXT_SPREAD_DEST_IPV6), frame.dest_ip);
    }
    if (frame.protocol == kProtocolTcp) {
        input.add(wants(MANA_HW_EXT_SPREAD_SOURCE_PORT_TCP), frame.source_port);
        input.add(wants(MANA_HW_EXT_SPREAD_DEST_PORT_TCP), frame.dest_port);
    } else if (frame.protocol == kProtocolUdp) {
        input.add(wants(MANA_HW_EXT_SPREAD_SOURCE_PORT_UDP), frame.source_port);
        input.add(wants(MANA_HW_EXT_SPREAD_DEST_PORT_UDP), frame.dest_port);
    }
    return table_[toeplitz_.hash(input.bytes()) & (table_.size() - 1)];
}

void Spread::forget(const ReceiveQueue& queue) {
    for (ReceiveQueue*& entry : table_)
        if (entry == &queue) entry = nullptr;
}

bool Spread::can_be(std::uint32_t fields, std::uint64_t entries) {
    return (fields & ~MANA_HW_EXT_SPREAD_FIELDS) == 0 && std::has_single_bit(entries) &&
           entries <= MANA_HW_EXT_SPREAD_ENTRIES;
}

void Spread::save(base::StateWriter& out) const {
    out(fields_, toeplitz_.key());
    out.count(table_.size());
    for (const ReceiveQueue* const queue : table_) out(ReceiveQueue::handle_of(queue));
}

std::unique_ptr<Spread> Spread::load(base::StateReader& in, const FindQueue& find,
                                     base::MemoryAccount& account) {
    std::uint32_t fields = 0;
    std::array<std::byte, Toeplitz::kKeyBytes> key{};
    in(fields, key);
    const std::size_t entries = in.count(sizeof(std::uint64_t));
    in.require(can_be(fields, entries), "spread that cannot be");
    if (!in.ok()) return nullptr;
    auto charge = account.charge(cost(entries));
    if (!charge) in.refuse(charge.error());
    std::vector<ReceiveQueue*> table(entries);
    for (ReceiveQueue*& entry : table) {
        const auto handle = in.get<std::uint64_t>();
        if (handle == 0 || !in.ok()) continue;  // that queue has ended
        entry = find(handle);
        in.require(entry != nullptr && entry->keeps_tags(), "spread over what is no packet queue");
    }
    if (!in.ok()) return nullptr;
    return std::make_unique<Spread>(fields, key, std::move(table), std::move(*charge));
}

}  // namespace openmana::eth

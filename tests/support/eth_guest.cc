// SPDX-License-Identifier: Apache-2.0
#include "support/eth_guest.h"

#include <mana/eth.h>
#include <mana/ext_eth.h>

#include <cstring>

namespace openmana::test {

bool EthGuest::probe() {
    const auto config = driver_.call(
        Request(MANA_HW_ETH_QUERY_DEV_CONFIG, 88, 80, 2, 1, 3).put<std::uint32_t>(76, 1));
    if (!config.ok() || config.get<std::uint16_t>(64) != 1) return false;
    max_frame = config.get<std::uint16_t>(0x48);
    const auto registration = driver_.register_device(2);
    if (!registration) return false;
    device = *registration;
    key = device.gpa_key;
    const auto port = driver_.call(Request(MANA_HW_ETH_QUERY_VPORT_CONFIG, 44, 64, 2));
    if (!port.ok()) return false;
    table_entries = port.get<std::uint32_t>(0x28);
    std::memcpy(mac.data(), port.bytes.data() + 0x30, 6);
    vport = port.get<std::uint64_t>(0x38);
    return true;
}

Response EthGuest::config_tx(std::uint32_t pd, std::uint32_t page) {
    return driver_.call(Request(MANA_HW_ETH_CONFIG_VPORT_TX, 56, 36, 2)
                            .put<std::uint64_t>(40, vport)
                            .put<std::uint32_t>(48, pd)
                            .put<std::uint32_t>(52, page));
}

Response EthGuest::config_rx(const RxConfig& config) {
    Request request(MANA_HW_ETH_CONFIG_VPORT_RX, 120 + 8U * config.table_entries, config.room, 2,
                    config.version, config.room > 32 ? 2 : 1);
    request.put<std::uint64_t>(40, vport)
        .put<std::uint16_t>(48, config.table_entries)
        .put<std::uint16_t>(50, 120)
        .put<std::uint32_t>(52, config.enable)
        .put<std::uint32_t>(56, config.rss)
        .put<std::uint8_t>(60, config.update_default)
        .put<std::uint8_t>(61, config.key.has_value())
        .put<std::uint8_t>(62, config.table.has_value())
        .put<std::uint64_t>(64, config.default_rq)
        .put<std::uint8_t>(112, config.packets_per_cqe > 1)
        .put<std::uint8_t>(118, config.packets_per_cqe == 8);
    if (config.key) request.put_bytes(72, *config.key);
    if (config.table)
        for (std::size_t i = 0; i < config.table->size(); ++i)
            request.put<std::uint64_t>(120 + 8 * i, (*config.table)[i]);
    return driver_.call(request.fit());
}

Response EthGuest::fence(std::uint64_t object) {
    return driver_.call(Request(MANA_HW_ETH_FENCE_RQ, 48, 32, 2).put<std::uint64_t>(40, object));
}

Response EthGuest::destroy(std::uint32_t wq_type, std::uint64_t object) {
    return driver_.call(Request(MANA_HW_ETH_DESTROY_WQ_OBJ, 56, 32, 2)
                            .put<std::uint32_t>(40, wq_type)
                            .put<std::uint64_t>(48, object));
}

Response EthGuest::create_wq(std::uint32_t type, std::uint64_t wq_region, std::uint64_t cq_region,
                             std::uint32_t wq_bytes, std::uint32_t cq_bytes, std::uint32_t eq_id) {
    if (packets)
        return driver_.call(Request(MANA_HW_EXT_CREATE_PACKET_WQ, 88, 48, 2)
                                .put<std::uint64_t>(40, vport)
                                .put<std::uint64_t>(48, wq_region)
                                .put<std::uint64_t>(56, cq_region)
                                .put<std::uint32_t>(64, type)
                                .put<std::uint32_t>(68, wq_bytes)
                                .put<std::uint32_t>(72, cq_bytes)
                                .put<std::uint32_t>(76, eq_id)
                                .put<std::uint32_t>(80, device.pd)
                                .put<std::uint32_t>(84, device.page));
    return driver_.call(Request(MANA_HW_ETH_CREATE_WQ_OBJ, 88, 48, 2)
                            .put<std::uint64_t>(40, vport)
                            .put<std::uint32_t>(48, type)
                            .put<std::uint64_t>(56, wq_region)
                            .put<std::uint64_t>(64, cq_region)
                            .put<std::uint32_t>(72, wq_bytes)
                            .put<std::uint32_t>(76, cq_bytes)
                            .put<std::uint32_t>(84, eq_id));
}

std::optional<EthTx> EthGuest::create_tx(std::uint32_t sq_bytes, std::uint32_t cq_bytes,
                                         std::uint32_t page) {
    if (page == ~0U) page = device.page;
    const auto wq_ring = driver_.alloc_ring(sq_bytes, scattered);
    const auto cq_ring = driver_.alloc_ring(cq_bytes, scattered);
    const auto wq_region = driver_.create_region(wq_ring);
    const auto cq_region = driver_.create_region(cq_ring);
    if (!wq_region || !cq_region) return std::nullopt;
    const auto reply = create_wq(MANA_HW_ETH_SQ, *wq_region, *cq_region, sq_bytes, cq_bytes,
                                 eq ? eq->id : MANA_HW_ETH_NO_EQ);
    if (!reply.ok()) return std::nullopt;
    EthTx out;
    out.object = reply.get<std::uint64_t>(40);
    out.sq = driver_.make_wq(wq_ring, reply.get<std::uint32_t>(32), page, true);
    out.cq = driver_.make_cq(cq_ring, reply.get<std::uint32_t>(36), page);
    out.cq.arm();
    return out;
}

std::optional<EthRx> EthGuest::create_rx(std::uint32_t buffer_bytes, std::uint32_t rq_bytes,
                                         std::uint32_t cq_bytes, std::uint32_t page) {
    if (page == ~0U) page = device.page;
    const auto wq_ring = driver_.alloc_ring(rq_bytes, scattered);
    const auto cq_ring = driver_.alloc_ring(cq_bytes, scattered);
    const auto wq_region = driver_.create_region(wq_ring);
    const auto cq_region = driver_.create_region(cq_ring);
    if (!wq_region || !cq_region) return std::nullopt;
    const auto reply = create_wq(MANA_HW_ETH_RQ, *wq_region, *cq_region, rq_bytes, cq_bytes,
                                 eq ? eq->id : MANA_HW_ETH_NO_EQ);
    if (!reply.ok()) return std::nullopt;
    EthRx out;
    out.object = reply.get<std::uint64_t>(40);
    out.buffer_bytes = buffer_bytes;
    out.rq = driver_.make_wq(wq_ring, reply.get<std::uint32_t>(32), page, false);
    out.cq = driver_.make_cq(cq_ring, reply.get<std::uint32_t>(36), page);
    out.cq.arm();
    return out;
}

bool EthGuest::up(std::uint32_t queues, std::uint32_t mtu, std::uint32_t rx_buffers) {
    if (!config_tx(device.pd, device.page).ok()) return false;
    if (!eq) eq = driver_.create_eq(2, device, 1);
    if (!eq) return false;
    for (std::uint32_t i = 0; i < queues; ++i) {
        auto created = create_tx();
        if (!created) return false;
        tx.push_back(std::move(*created));
    }
    for (std::uint32_t i = 0; i < queues; ++i) {
        auto created = create_rx(mtu + 14);
        if (!created) return false;
        rx.push_back(std::move(*created));
        for (std::uint32_t k = 0; k < rx_buffers; ++k) post_buffer(rx.back());
    }
    RxConfig config;
    config.rss = queues > 1;
    config.default_rq = rx[0].object;
    config.key.emplace();
    for (std::size_t i = 0; i < 40; ++i) (*config.key)[i] = static_cast<std::byte>(i * 7 + 1);
    config.table_entries = static_cast<std::uint16_t>(table_entries);
    config.table.emplace();
    for (std::uint32_t i = 0; i < table_entries; ++i)
        config.table->push_back(rx[i % queues].object);
    if (!config_rx(config).ok()) return false;
    for (EthRx& queue : rx) {
        if (!fence(queue.object).ok()) return false;
        if (rx_buffers == 0) continue;
        const auto done = poll(queue);
        if (!done || done->type != MANA_HW_ETH_CQE_RX_FENCE) return false;
    }
    return true;
}

bool EthGuest::down() {
    RxConfig config;
    config.enable = false;
    config.update_default = false;
    bool ok = config_rx(config).ok();
    for (EthRx& queue : rx) ok = fence(queue.object).ok() && ok;
    for (EthRx& queue : rx) ok = destroy(MANA_HW_ETH_RQ, queue.object).ok() && ok;
    for (EthTx& queue : tx) ok = destroy(MANA_HW_ETH_SQ, queue.object).ok() && ok;
    rx.clear();
    tx.clear();
    if (eq) ok = driver_.destroy_eq(2, *eq) && ok;
    eq.reset();
    return ok;
}

void EthGuest::post(EthTx& tx, std::span<const std::byte> packet, const TxOptions& options) {
    const base::GuestAddr at = driver_.ram().alloc(packet.size());
    std::memcpy(driver_.ram().at(at), packet.data(), packet.size());
    std::vector<gdma::Sge> sges;
    std::size_t done = 0;
    const auto piece = [&](std::size_t n) {
        sges.push_back({(at + done).value(), gdma::Key(key), static_cast<std::uint32_t>(n)});
        done += n;
    };
    if (options.mss != 0) piece(options.header_bytes);
    for (const std::size_t n : options.pieces) piece(n);
    if (done < packet.size() || sges.empty()) piece(packet.size() - done);

    const bool large = options.vlan_tci || options.vport_offset > 255;
    std::array<std::uint32_t, 6> oob{};
    oob[0] = (large ? 1U : 0U) | (options.ipv4 ? 1U << 2 : 0) | (options.ipv6 ? 1U << 3 : 0) |
             (options.ip_checksum ? 1U << 4 : 0) | (options.tcp_checksum ? 1U << 5 : 0) |
             (options.udp_checksum ? 1U << 6 : 0) | (options.no_completion ? 1U << 7 : 0) |
             tx.cq.id << 8;
    oob[1] = options.transport | (tx.sq.id & 0x3fff) << 10 |
             (options.vport_offset <= 255 ? options.vport_offset << 24 : 0);
    if (options.vlan_tci) {
        const std::uint32_t tci = *options.vlan_tci;
        oob[2] = 1U << 3 | (tci >> 13) << 16 | (tci >> 12 & 1) << 19 | (tci & 0xfff) << 20;
    }
    if (options.vport_offset > 255) oob[3] = options.vport_offset << 16;
    std::uint32_t header0 = 0;
    std::uint32_t header1 = 0;
    if (options.mss != 0) {
        header0 = (options.header_bytes & 0xff) << 24;
        header1 = 1U << 11 | options.mss << 16;
    }
    tx.sq.post(std::as_bytes(std::span(oob)).first(large ? 24 : 8), sges, header0, header1);
}

std::optional<TxDone> EthGuest::poll(EthTx& tx) {
    const auto cqe = tx.cq.poll();
    if (!cqe) return std::nullopt;
    const auto word = cqe->get<std::uint32_t>(0);
    return TxDone{word & 0x3f, word >> 6 & 3, cqe->get<std::uint32_t>(8), cqe->queue_id,
                  cqe->is_sq};
}

void EthGuest::post_buffer(EthRx& rx) {
    const base::GuestAddr at = driver_.ram().alloc(rx.buffer_bytes);
    const gdma::Sge sge{at.value(), gdma::Key(key), rx.buffer_bytes};
    const std::array<std::byte, 8> oob{};
    rx.rq.post(oob, {&sge, 1});
    rx.rq.doorbell();
    rx.buffers.push_back(at);
}

std::optional<RxTogether> EthGuest::poll_together(EthRx& rx) {
    const auto cqe = rx.cq.poll();
    if (!cqe || cqe->is_sq || cqe->queue_id != rx.rq.id) return std::nullopt;
    RxTogether out;
    out.type = cqe->get<std::uint32_t>(0) & MANA_HW_ETH_CQE_TYPE;
    out.flags = cqe->get<std::uint32_t>(4);
    out.wqe_offset = cqe->get<std::uint32_t>(56);
    const bool pairs = out.type == MANA_HW_ETH_CQE_RX_EIGHT;
    for (unsigned i = 0; i < (pairs ? 8 : 4) && out.type != MANA_HW_ETH_CQE_RX_FENCE; ++i) {
        // Offsets of length and hash in a packet's place (GDMA 6.15).
        const unsigned place = 8 + 12 * (pairs ? i / 2 : i);
        const unsigned length = cqe->get<std::uint16_t>(place + (pairs ? 4 + i % 2 * 2 : 0));
        if (length == 0) break;
        const base::GuestAddr at = rx.buffers.front();
        rx.buffers.pop_front();
        const auto bytes = driver_.ram().bytes(at, length);
        out.packets.emplace_back(base::Frame(bytes.begin(), bytes.end()),
                                 cqe->get<std::uint32_t>(place + (pairs ? i % 2 * 8 : 8)));
        driver_.ram().free(at, rx.buffer_bytes);
    }
    return out;
}

std::optional<RxDone> EthGuest::poll(EthRx& rx) {
    const auto cqe = rx.cq.poll();
    if (!cqe || cqe->is_sq || cqe->queue_id != rx.rq.id) return std::nullopt;
    RxDone out;
    out.cqe = cqe->data;
    out.type = cqe->get<std::uint32_t>(0) & 0x3f;
    if (out.type == MANA_HW_ETH_CQE_RX_FENCE) return out;
    out.flags = cqe->get<std::uint32_t>(4);
    out.hash = cqe->get<std::uint32_t>(16);
    out.wqe_offset = cqe->get<std::uint32_t>(56);
    if (rx.buffers.empty()) return out;
    const base::GuestAddr at = rx.buffers.front();
    rx.buffers.pop_front();
    if (out.type == MANA_HW_ETH_CQE_RX_OK) {
        const auto bytes = driver_.ram().bytes(at, cqe->get<std::uint16_t>(8));
        out.frame.assign(bytes.begin(), bytes.end());
    }
    driver_.ram().free(at, rx.buffer_bytes);
    return out;
}

}  // namespace openmana::test

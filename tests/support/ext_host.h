// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mana/ext.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "support/rdma_host.h"

namespace openmana::test {

/// A region of an extended queue: rings, then the record.
struct ExtMemory {
    RingMemory ring;
    std::uint64_t rings = 0;  ///< bytes before the record
    std::uint64_t region = 0;

    [[nodiscard]] std::uint32_t* record() const {
        return reinterpret_cast<std::uint32_t*>(ring.at(rings));
    }
    void store(unsigned index, std::uint32_t value) const {
        __atomic_store_n(record() + index, value, __ATOMIC_RELEASE);
    }
    [[nodiscard]] std::uint32_t load(unsigned index) const {
        return __atomic_load_n(record() + index, __ATOMIC_ACQUIRE);
    }
    /// Writes at a place of the rings, which wraps at `end`.
    void write(std::uint64_t start, std::uint64_t end, std::uint64_t offset,
               std::span<const std::byte> bytes) const;
};

struct ExtCq {
    std::uint64_t handle = 0;
    std::uint32_t id = 0;
    std::uint32_t entries = 0;
    std::uint32_t consumer = 0;
    std::uint32_t sequence = 0;
    ExtMemory memory;

    /// The next CQE; `consumer` is told to the device.
    std::optional<mana_hw_ext_cqe> poll();
    std::optional<Cqe> poll_frame();
    std::vector<mana_hw_ext_cqe> drain();
    void arm(bool solicited = false);
};

struct ExtSrq {
    std::uint64_t handle = 0;
    std::uint32_t id = 0;
    std::uint32_t bytes = 0;
    std::uint32_t stride = 0;
    std::uint32_t producer = 0;
    ExtMemory memory;
    void post(std::uint32_t cookie, std::span<const gdma::Sge> sges);
};

/// A send work request.
struct ExtWr {
    std::uint8_t opcode = MANA_HW_EXT_WQE_SEND;
    std::uint8_t flags = MANA_HW_EXT_WQE_SIGNALED;
    std::vector<gdma::Sge> sges;
    std::vector<std::byte> data;  ///< inline, with MANA_HW_EXT_WQE_INLINE
    std::uint64_t remote_address = 0;
    std::uint32_t rkey = 0;
    std::uint32_t value = 0;
    std::uint64_t swap_add = 0;
    std::uint64_t compare = 0;
    std::optional<mana_hw_ext_ud> ud;
    std::optional<mana_hw_ext_bind> bind;
    std::optional<mana_hw_ext_register> reg;

    [[nodiscard]] std::vector<std::byte> wqe() const;
};

struct ExtQp {
    std::uint64_t handle = 0;
    std::uint32_t sq_id = 0;
    std::uint32_t qpn = 0;
    std::uint32_t sq_bytes = 0;
    std::uint32_t rq_bytes = 0;
    std::uint32_t stride = 0;
    std::uint32_t page = 0;
    std::uint32_t sq_producer = 0;
    std::uint32_t rq_producer = 0;
    std::uint64_t doorbells = 0;  ///< rung
    ExtMemory memory;
};

struct ExtQpOptions {
    std::uint32_t type = MANA_HW_EXT_QP_RC;
    std::uint32_t flags = 0;
    std::uint32_t sq_bytes = 8192;
    std::uint32_t rq_bytes = 4096;
    std::uint32_t stride = 64;
    const ExtSrq* srq = nullptr;
};

/// Path and limits of a connection.
struct ExtPath {
    std::uint32_t mtu = 1024;
    std::uint8_t timeout = 14;
    std::uint32_t retries = 7;
    std::uint32_t rnr_retries = 7;
    std::uint8_t reads_out = 16;
    std::optional<std::uint16_t> tci{};  ///< by the extension's SET_QP_STATE
    std::uint32_t access = MANA_HW_RNIC_QP_ACCESS_REMOTE_WRITE |
                           MANA_HW_RNIC_QP_ACCESS_REMOTE_READ |
                           MANA_HW_RNIC_QP_ACCESS_REMOTE_ATOMIC;
};

/// A driver and a provider that know the extension, over the HWC of a RdmaHost. Commands that fail
/// return nothing; `status` has the last answer.
class ExtHost {
public:
    explicit ExtHost(RdmaHost& host) : host_(host) {}

    std::optional<mana_hw_ext_query_caps_resp> query_caps();
    std::optional<ExtMemory> alloc(std::uint64_t rings);
    std::optional<ExtCq> create_cq(std::uint32_t entries = 256);
    bool resize_cq(ExtCq& cq, std::uint32_t entries);
    bool destroy_cq(const ExtCq& cq);
    std::optional<ExtQp> create_qp(const ExtCq& send_cq, const ExtCq& recv_cq,
                                   const ExtQpOptions& options = {});
    bool destroy_qp(const ExtQp& qp);
    std::optional<mana_hw_ext_query_qp_resp> query_qp(const ExtQp& qp);
    std::optional<mana_hw_rnic_vf_counters_resp> query_counters(const ExtQp& qp);
    std::optional<ExtSrq> create_srq(std::uint32_t bytes = 4096, std::uint32_t stride = 64,
                                     std::uint32_t limit = 0);
    bool modify_srq(const ExtSrq& srq, std::uint32_t limit);
    std::optional<mana_hw_ext_query_srq_resp> query_srq(const ExtSrq& srq);
    bool destroy_srq(const ExtSrq& srq);
    bool multicast(const ExtQp& qp, const roce::Gid& gid, bool attach);
    bool grant_source(const DriverPd& pd, const roce::Address& address, std::uint32_t number);
    bool config_address(const roce::Address& address, bool add);
    /// By the MAC address of one of the guest's interfaces.
    bool config_address(const roce::Address& address, const base::MacAddr& mac, bool add);
    bool revoke_source(std::uint32_t number);
    /// A window or a fast-register key (`pages` of it).
    std::optional<DriverMr> create_key(std::uint32_t type, std::uint64_t pages = 0);
    bool to_state(const ExtQp& qp, std::uint32_t state);
    /// RESET to RTS.
    bool connect(const ExtQp& qp, std::uint32_t psn, const Peer& peer, const ExtPath& path = {});
    /// A datagram QP, RESET to RTS.
    bool start_datagrams(const ExtQp& qp, std::uint32_t qkey);

    /// Writes the WQE and the producer; rings the doorbell if the device asks for it.
    void post(ExtQp& qp, const ExtWr& wr);
    /// Any bytes.
    void post_raw(ExtQp& qp, std::span<const std::byte> wqe);
    void recv(ExtQp& qp, std::uint32_t cookie, std::span<const gdma::Sge> sges);
    /// The doorbells, whatever the kick words say.
    void ring_send(const ExtQp& qp);
    void ring_recv(const ExtQp& qp);
    /// Sends any request with the adapter filled in.
    template <typename T>
    Response call(std::uint32_t opcode, T message, std::uint32_t room = 128) {
        Request request(opcode, sizeof message, room, MANA_HW_RNIC_DEVICE_TYPE);
        if constexpr (requires { message.adapter; })
            message.adapter = host_.adapter;
        else
            message.base.adapter = host_.adapter;
        const auto bytes = std::as_bytes(std::span(&message, 1)).subspan(40);
        request.put_bytes(40, bytes);
        const Response response = host_.call(request.fit());
        status = response.status;
        return response;
    }
    /// Events of the extension in the adapter's EQ so far.
    std::vector<std::pair<std::uint32_t, std::uint32_t>> events();

    [[nodiscard]] RdmaHost& host() { return host_; }
    std::uint32_t status = 0;

private:
    Request state_request(std::uint64_t handle, std::uint64_t mask, std::uint32_t state,
                          std::optional<std::uint16_t> tci = {}) const;
    RdmaHost& host_;
};

}  // namespace openmana::test

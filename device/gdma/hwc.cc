// SPDX-License-Identifier: Apache-2.0
#include "gdma/hwc.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <mana/gdma.h>
#include <mana/queue.h>

#include "base/activity.h"
#include "base/log.h"
#include "base/probe.h"

namespace openmana::gdma {

using base::ErrorCode;
using base::fail;
using base::Result;

namespace {

constexpr std::uint64_t kQueueBytes = MANA_HW_HWC_QUEUE_BYTES;
constexpr std::uint64_t kMessageBytes = MANA_HW_HWC_MESSAGE_BYTES;

std::unique_ptr<DmaRegion> one_page(GuestAddr address) {
    const std::uint64_t page = address.value();
    return std::make_unique<DmaRegion>(kQueueBytes, 0, MANA_HW_PAGE_SHIFT, std::span(&page, 1));
}

void copy_out(const SpanList& from, std::span<std::byte> to) {
    for (const auto piece : from) {
        const std::size_t n = std::min(piece.size(), to.size());
        std::memcpy(to.data(), piece.data(), n);
        to = to.subspan(n);
    }
}

void copy_in(std::span<const std::byte> from, const SpanList& to) {
    for (const auto piece : to) {
        const std::size_t n = std::min(piece.size(), from.size());
        std::memcpy(piece.data(), from.data(), n);
        from = from.subspan(n);
    }
}

}  // namespace

Hwc::Hwc(const Parts& parts, Ring sq, Ring rq)
    : parts_(parts), sq_(std::move(sq)), rq_(std::move(rq)) {}

Result<std::unique_ptr<Hwc>> Hwc::create(const Parts& parts, const Rings& rings) {
    Tables& tables = parts.tables;
    const base::GuestMemory& memory = parts.memory;
    for (const GuestAddr queue : {rings.eq, rings.cq})
        if (memory.find(queue, kQueueBytes, base::Access::kWritable).empty())
            return fail(ErrorCode::kOutOfRange, "HWC ring is not in guest memory", queue.value());
    for (const GuestAddr queue : {rings.rq, rings.sq})
        if (memory.find(queue, kQueueBytes, base::Access::kRead).empty())
            return fail(ErrorCode::kOutOfRange, "HWC ring is not in guest memory", queue.value());

    std::unique_ptr<Hwc> hwc(new Hwc(parts, Ring(memory, one_page(rings.sq), kQueueBytes),
                                     Ring(memory, one_page(rings.rq), kQueueBytes)));
    TRY(hwc->page_, tables.pages.allocate(kHwcDevice));
    TRY(hwc->pd_, tables.pds.create(kHwcDevice, {.allows_gpa = true}));
    MemoryRegion everything;
    everything.pd = hwc->pd_;
    everything.type = MrType::kGpa;
    everything.access = kLocalRead | kLocalWrite;
    TRY(hwc->key_, tables.keys.insert(std::move(everything)));
    TRY(hwc->eq_, tables.eqs.create(kHwcDevice, RegionClaim(one_page(rings.eq)), kQueueBytes,
                                    hwc->page_, rings.vector));
    // Born armed: the driver rings it from its completion handler only (GDMA 3.10).
    TRY(hwc->cq_, tables.cqs.create(RegionClaim(one_page(rings.cq)), kQueueBytes, hwc->eq_,
                                    hwc->page_, {.armed = true}));
    TRY(hwc->sq_id_, tables.sqs.allocate(1, 1));
    TRY(hwc->rq_id_, tables.rqs.allocate(1, 1));
    hwc->connect();
    hwc->note_channel();
    hwc->announce();
    return hwc;
}

Hwc::~Hwc() {
    if (parts_.ledger != nullptr) parts_.ledger->channel.set({});
}

/// Where another process finds the channel, and by which numbers its driver knows it.
void Hwc::note_channel() {
    if (parts_.ledger == nullptr) return;
    note_done(cq_->posted());
    receives_posted(rq_posted_);
    note_driver(driver_caps_);
    parts_.ledger->channel.set({.eq = place_of(*eq_),
                                .cq = place_of(*cq_),
                                .rq = place_of(rq_),
                                .sq = place_of(sq_),
                                .rqn = rq_id_.first().value(),
                                .sqn = sq_id_.first().value(),
                                .key = key_.value(),
                                .there = true});
}

/// Requests up to here are done when the CQ has had so many entries.
void Hwc::note_done(std::uint64_t completions) {
    if (parts_.ledger != nullptr) parts_.ledger->set_done(completions, sq_done_, rq_done_);
}

/// Whether it acts on what a process would ask of it that goes on behind a crash.
void Hwc::note_driver(std::uint64_t caps) {
    driver_caps_ = caps;
    if (parts_.ledger != nullptr) parts_.ledger->driver_caps.store(caps, std::memory_order_release);
}

void Hwc::receives_posted(std::uint32_t position) {
    rq_posted_ = position;
    if (parts_.ledger != nullptr)
        parts_.ledger->rq_posted.store(position, std::memory_order_release);
}

void Hwc::connect() {
    const DoorbellPage page = page_->page;
    parts_.tables.sqs.connect(sq_id_.first(), page, &send_target_, sizeof send_target_);
    parts_.tables.rqs.connect(rq_id_.first(), page, &receive_target_, sizeof receive_target_);
}

void Hwc::save(base::StateWriter& out) const {
    Tables& tables = parts_.tables;
    out(sq_.region().extents()[0].address, rq_.region().extents()[0].address, page_->page, pd_->id,
        eq_->id(), cq_->id(), key_, sq_id_.first(), rq_id_.first(), sq_done_, rq_posted_, rq_done_,
        tables.sqs.position(sq_id_.first()), tables.rqs.position(rq_id_.first()), driver_caps_);
}

std::unique_ptr<Hwc> Hwc::load(const Parts& parts, base::StateReader& in, std::uint16_t version) {
    Tables& tables = parts.tables;
    GuestAddr sq;
    GuestAddr rq;
    in(sq, rq);
    constexpr std::uint64_t kLast = UINT64_MAX - (kQueueBytes - 1);
    in.require(sq.value() <= kLast && rq.value() <= kLast, "HWC ring wraps");
    if (!in.ok()) return nullptr;
    std::unique_ptr<Hwc> hwc(new Hwc(parts, Ring(parts.memory, one_page(sq), kQueueBytes),
                                     Ring(parts.memory, one_page(rq), kQueueBytes)));
    hwc->page_ = tables.pages.held(in.get<DoorbellPage>());
    hwc->pd_ = tables.pds.held(in.get<Pdn>());
    const auto eqn = in.get<Eqn>();
    const auto eq = tables.eqs.find(eqn, kHwcDevice);
    if (eq) hwc->eq_ = *eq;
    hwc->cq_ = tables.cqs.restored(in.get<Cqn>());
    in(hwc->key_);
    const auto sqn = in.get<Sqn>();
    const auto rqn = in.get<Rqn>();
    in(hwc->sq_done_, hwc->rq_posted_, hwc->rq_done_);
    const MemoryRegion* const key = tables.keys.find(hwc->key_);
    in.require(hwc->page_ && hwc->page_->owner == kHwcDevice && hwc->pd_ &&
                   hwc->pd_->owner == kHwcDevice && hwc->eq_ && hwc->cq_ &&
                   hwc->cq_->eq() == hwc->eq_.get() && !hwc->cq_->has_record() &&
                   hwc->eq_->ring().start() && hwc->cq_->ring().start() && key != nullptr &&
                   key->pd == hwc->pd_ && key->type == MrType::kGpa,
               "HWC that cannot be");
    if (!in.ok()) return nullptr;
    hwc->sq_id_ = tables.sqs.adopt(in, sqn, 1);
    hwc->rq_id_ = tables.rqs.adopt(in, rqn, 1);
    if (!in.ok()) return nullptr;
    hwc->connect();
    in(tables.sqs.position(sqn), tables.rqs.position(rqn));
    // Of a driver of which nobody knows the harmless is assumed: it may wait longer for an answer.
    hwc->driver_caps_ = MANA_HW_CAP_SELF_RESET;
    if (version >= 2) in(hwc->driver_caps_);
    hwc->note_channel();
    return hwc;
}

/// GDMA 4.2. The first event names the doorbell page that the driver needs after its first
/// interrupt.
void Hwc::announce() {
    const auto data = [&](std::uint32_t type, std::uint32_t value) {
        eq_->post(EqeType::kHwcInitData, {type << MANA_HW_INIT_SHIFT | (value & 0xffffff), 0, 0});
    };
    eq_->post(EqeType::kHwcInitEqDb, {eq_->id().value() | page_->page.value() << 16, 0, 0});
    data(MANA_HW_INIT_CQ_ID, cq_->id().value());
    data(MANA_HW_INIT_RQ_ID, rq_id_.first().value());
    data(MANA_HW_INIT_SQ_ID, sq_id_.first().value());
    data(MANA_HW_INIT_QUEUE_DEPTH, 1);
    data(MANA_HW_INIT_MAX_REQUEST, kMessageBytes);
    data(MANA_HW_INIT_MAX_RESPONSE, kMessageBytes);
    data(MANA_HW_INIT_MAX_CQS, parts_.config.max_cqs);
    data(MANA_HW_INIT_PD_ID, pd_->id.value());
    data(MANA_HW_INIT_GPA_KEY, key_.value());
    eq_->post(EqeType::kHwcInitDone, {0, 0, 0});
}

void Hwc::requests_posted(std::uint32_t position) {
    while (sq_done_ != position) {
        auto wqe = Wqe::fetch(sq_, sq_done_, position - sq_done_, Wqe::kMaxSendBytes);
        if (position - sq_done_ > sq_.bytes() || !wqe) {
            // Where the next WQE starts is not known any more.
            parts_.counters.hwc_malformed.add();
            OM_DEBUG("hwc_req malformed: nic={} position={:#x}", parts_.config.name, sq_done_);
            sq_done_ = position;
            note_done(cq_->posted());
            return;
        }
        sq_done_ += wqe->size();
        if (handle_request(*wqe)) continue;
        parts_.counters.hwc_malformed.add();
        note_done(cq_->posted());
    }
}

bool Hwc::gather(const Wqe& wqe, std::uint32_t need, std::uint64_t limit, SpanList& out) const {
    for (const Sge& sge : wqe.sges()) {
        const std::uint64_t n = std::min<std::uint64_t>(sge.length, limit);
        if (parts_.tables.keys.resolve(sge.key, pd_->id, sge.address, n, need, out) !=
            MrFault::kNone)
            return false;
        limit -= n;
    }
    return true;
}

/// False if the request cannot be answered; it is then not executed either.
bool Hwc::handle_request(const Wqe& wqe) {
    const std::uint64_t sent = wqe.total_length();
    if (sent < sizeof(mana_hw_request) || sent > kMessageBytes) return false;
    SpanList pieces;
    if (!gather(wqe, kLocalRead, sent, pieces)) return false;
    std::array<std::byte, kMessageBytes> message;
    copy_out(pieces, message);
    mana_hw_request header;
    std::memcpy(&header, message.data(), sizeof header);
    if (header.request.type != 0 || header.request.size < sizeof header ||
        header.request.size > sent)
        return false;
    if (header.response.size < sizeof(mana_hw_response)) return false;

    const std::uint32_t posted = rq_posted_ - rq_done_;
    if (posted == 0 || posted > rq_.bytes()) return false;
    const auto receive = Wqe::fetch(rq_, rq_done_, posted, Wqe::kMaxReceiveBytes);
    if (!receive) return false;
    const std::uint64_t buffer = std::min(receive->total_length(), kMessageBytes);
    if (buffer < sizeof(mana_hw_response)) return false;
    pieces.clear();
    if (!gather(*receive, kLocalWrite, buffer, pieces)) return false;

    parts_.counters.hwc_requests.add();
    const HwcRequest request{std::span<const std::byte>(message).first(header.request.size)};
    HwcReply reply(std::min<std::uint64_t>(header.response.size, buffer));
    {
        const base::Activity::Scope doing("hwc_req", request.opcode());
        const base::Gate::Exclusion exclusion(parts_.gate, {"command", request.opcode(), true});
        OM_PROBE(command_begin, parts_.config.name.c_str(), request.opcode(),
                 request.device_type());
        parts_.handler.command(request, reply);
        OM_PROBE(command_end, parts_.config.name.c_str(), request.opcode(), reply.status());
    }
    if (request.opcode() == MANA_HW_VERIFY_DRIVER_VERSION && reply.status() == kHwcSuccess)
        note_driver(request.as<mana_hw_verify_version_req>().driver_caps[0]);
    answer(request, reply, *receive, pieces);
    return true;
}

void Hwc::answer(const HwcRequest& request, HwcReply& reply, const Wqe& receive,
                 const SpanList& buffer) {
    mana_hw_request header;
    std::memcpy(&header, request.bytes().data(), sizeof header);
    const bool failed = reply.status() != kHwcSuccess && reply.status() != kHwcMoreEntries;
    if (failed) {
        parts_.counters.hwc_failed.add();
        OM_DEBUG("hwc_req failed: nic={} opcode={:#x} device={} status={:#x}", parts_.config.name,
                 request.opcode(), request.device_type(), reply.status());
    } else {
        OM_TRACE("hwc_req: nic={} opcode={:#x} device={}", parts_.config.name, request.opcode(),
                 request.device_type());
    }

    const std::size_t size = failed ? sizeof(mana_hw_response) : reply.size();
    mana_hw_response answer{};
    answer.response.opcode = header.request.opcode;
    answer.response.version = std::min(header.response.version, reply.version());
    answer.response.message_id = header.request.message_id;
    answer.response.size = static_cast<std::uint32_t>(size);
    answer.device = header.device;
    answer.activity_id = header.activity_id;
    answer.status = reply.status();
    std::memcpy(reply.bytes().data(), &answer, sizeof answer);
    copy_in(reply.bytes().first(size), buffer);

    mana_hw_hwc_rx_cqe cqe{};
    cqe.flags = MANA_HW_HWC_CQE_SOM | MANA_HW_HWC_CQE_EOM;
    cqe.rq_wqe_offset = receive.position();
    cqe.length = static_cast<std::uint32_t>(size);
    rq_done_ += receive.size();
    note_done(cq_->posted() + 1);
    cq_->post(std::as_bytes(std::span(&cqe, 1)), rq_id_.first().value(), false);
    if (const auto test_eq = parts_.handler.take_test_eq())
        test_eq->post(EqeType::kTest, {0, 0, 0});
}

}  // namespace openmana::gdma

// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>

#include <mana/queue.h>

#include "base/log.h"
#include "gdma/function_impl.h"

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

Function::Impl::Hwc::Hwc(Impl& function, Ring sq, Ring rq)
    : function_(function), sq_(std::move(sq)), rq_(std::move(rq)) {}

Function::Impl::Hwc::~Hwc() {
    function_.sqs.connect(sq_id_.value(), {}, nullptr, 0);
    function_.rqs.connect(rq_id_.value(), {}, nullptr, 0);
}

/// On failure the caller drops all objects of the function: there are no others yet.
Result<std::unique_ptr<Function::Impl::Hwc>> Function::Impl::Hwc::create(Impl& function,
                                                                         const Rings& rings) {
    const base::GuestMemory& memory = function.memory;
    for (const GuestAddr queue : {rings.eq, rings.cq})
        if (memory.find(queue, kQueueBytes, base::Access::kWrite).empty())
            return fail(ErrorCode::kOutOfRange, "HWC ring is not in guest memory", queue.value());
    for (const GuestAddr queue : {rings.rq, rings.sq})
        if (memory.find(queue, kQueueBytes, base::Access::kRead).empty())
            return fail(ErrorCode::kOutOfRange, "HWC ring is not in guest memory", queue.value());

    std::unique_ptr<Hwc> hwc(new Hwc(function, Ring(memory, one_page(rings.sq), kQueueBytes),
                                     Ring(memory, one_page(rings.rq), kQueueBytes)));
    TRY(hwc->page_, function.pages.allocate(kHwcDevice));
    TRY(hwc->pd_, function.pds.create(kHwcDevice, true));
    MemoryRegion everything;
    everything.pd = hwc->pd_;
    everything.type = MrType::kGpa;
    everything.access = kLocalRead | kLocalWrite;
    TRY(hwc->key_, function.keys.insert(std::move(everything)));
    TRY(hwc->eq_,
        function.eqs.create(kHwcDevice, one_page(rings.eq), kQueueBytes, hwc->page_, rings.vector));
    // Born armed: the driver rings it from its completion handler only (GDMA 3.10).
    TRY(hwc->cq_, function.cqs.create(one_page(rings.cq), kQueueBytes, hwc->eq_, hwc->page_,
                                      {.armed = true}));
    const auto sq = function.sq_ids->take(1, 1);
    const auto rq = function.rq_ids->take(1, 1);
    if (!sq || !rq) return fail(ErrorCode::kExhausted, "no queue id left for the HWC");
    hwc->sq_id_ = Sqn(*sq);
    hwc->rq_id_ = Rqn(*rq);
    const DoorbellPage page = hwc->page_->page;
    function.sqs.connect(*sq, page, &hwc->send_target_, sizeof hwc->send_target_);
    function.rqs.connect(*rq, page, &hwc->receive_target_, sizeof hwc->receive_target_);
    hwc->announce();
    return hwc;
}

/// GDMA 4.2. The first event names the doorbell page that the driver needs after its first
/// interrupt.
void Function::Impl::Hwc::announce() {
    const auto data = [&](std::uint32_t type, std::uint32_t value) {
        eq_->post(EqeType::kHwcInitData, {type << MANA_HW_INIT_SHIFT | (value & 0xffffff), 0, 0});
    };
    eq_->post(EqeType::kHwcInitEqDb, {eq_->id().value() | page_->page.value() << 16, 0, 0});
    data(MANA_HW_INIT_CQ_ID, cq_->id().value());
    data(MANA_HW_INIT_RQ_ID, rq_id_.value());
    data(MANA_HW_INIT_SQ_ID, sq_id_.value());
    data(MANA_HW_INIT_QUEUE_DEPTH, 1);
    data(MANA_HW_INIT_MAX_REQUEST, kMessageBytes);
    data(MANA_HW_INIT_MAX_RESPONSE, kMessageBytes);
    data(MANA_HW_INIT_MAX_CQS, function_.config.max_cqs);
    data(MANA_HW_INIT_PD_ID, pd_->id.value());
    data(MANA_HW_INIT_GPA_KEY, key_.value());
    eq_->post(EqeType::kHwcInitDone, {0, 0, 0});
}

void Function::Impl::Hwc::requests_posted(std::uint32_t position) {
    while (sq_done_ != position) {
        auto wqe = Wqe::fetch(sq_, sq_done_, position - sq_done_, Wqe::kMaxSendBytes);
        if (position - sq_done_ > sq_.bytes() || !wqe) {
            // Where the next WQE starts is not known any more.
            function_.counters.hwc_malformed.add();
            OM_DEBUG("hwc_req malformed: nic={} position={:#x}", function_.config.name, sq_done_);
            sq_done_ = position;
            return;
        }
        sq_done_ += wqe->size();
        if (!handle_request(*wqe)) function_.counters.hwc_malformed.add();
    }
}

bool Function::Impl::Hwc::gather(const Wqe& wqe, std::uint32_t need, std::uint64_t limit,
                                 SpanList& out) const {
    for (const Sge& sge : wqe.sges()) {
        const std::uint64_t n = std::min<std::uint64_t>(sge.length, limit);
        if (function_.keys.resolve(sge.key, pd_->id, sge.address, n, need, out) != MrFault::kNone)
            return false;
        limit -= n;
    }
    return true;
}

/// False if the request cannot be answered; it is then not executed either.
bool Function::Impl::Hwc::handle_request(const Wqe& wqe) {
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

    function_.counters.hwc_requests.add();
    const HwcRequest request{std::span<const std::byte>(message).first(header.request.size)};
    HwcReply reply(std::min<std::uint64_t>(header.response.size, buffer));
    {
        const base::Gate::Exclusion exclusion(function_.gate);
        function_.command(request, reply);
    }
    const bool failed = reply.status() != kHwcSuccess && reply.status() != kHwcMoreEntries;
    if (failed) {
        function_.counters.hwc_failed.add();
        OM_DEBUG("hwc_req failed: nic={} opcode={:#x} device={} status={:#x}",
                 function_.config.name, request.opcode(), request.device_type(), reply.status());
    } else {
        OM_TRACE("hwc_req: nic={} opcode={:#x} device={}", function_.config.name, request.opcode(),
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
    copy_in(reply.bytes().first(size), pieces);

    mana_hw_hwc_rx_cqe cqe{};
    cqe.flags = MANA_HW_HWC_CQE_SOM | MANA_HW_HWC_CQE_EOM;
    cqe.rq_wqe_offset = receive->position();
    cqe.length = static_cast<std::uint32_t>(size);
    rq_done_ += receive->size();
    cq_->post(std::as_bytes(std::span(&cqe, 1)), rq_id_.value(), false);
    if (test_eq_) test_eq_->post(EqeType::kTest, {0, 0, 0});
    test_eq_ = nullptr;
    return true;
}

}  // namespace openmana::gdma

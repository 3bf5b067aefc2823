// SPDX-License-Identifier: Apache-2.0
#include "support/hwc_driver.h"

#include <algorithm>
#include <cstring>

#include <mana/gdma.h>
#include <mana/queue.h>

namespace openmana::test {

using base::GuestAddr;

// ---- messages

Request::Request(std::uint32_t opcode, std::size_t size, std::uint32_t room,
                 std::uint16_t device_type, std::uint16_t version, std::uint16_t response_version)
    : bytes(size) {
    put<std::uint32_t>(4, opcode);
    put<std::uint16_t>(8, version);
    put<std::uint32_t>(12, static_cast<std::uint32_t>(size));
    put<std::uint32_t>(20, opcode);
    put<std::uint16_t>(24, response_version);
    put<std::uint32_t>(28, room);
    put<std::uint16_t>(32, device_type);
}

Request& Request::put_bytes(std::size_t offset, std::span<const std::byte> data) {
    if (offset + data.size() > bytes.size()) bytes.resize(offset + data.size());
    if (!data.empty()) std::memcpy(bytes.data() + offset, data.data(), data.size());
    return *this;
}

// ---- rings

const std::byte* EntryRing::next() {
    const std::byte* entry = memory_.at(consumer_ % entries_ * entry_bytes_);
    const auto* word = reinterpret_cast<const std::uint32_t*>(entry + entry_bytes_ - 4);
    // Partner: the release store of the device (GDMA 3.11).
    const std::uint32_t owner = __atomic_load_n(word, __ATOMIC_ACQUIRE) >> MANA_HW_OWNER_SHIFT;
    const auto lap = static_cast<std::uint32_t>(consumer_ / entries_);
    if (owner == ((lap - 1) & MANA_HW_OWNER_MASK)) return nullptr;
    if (owner != (lap & MANA_HW_OWNER_MASK)) {
        overflowed_ = true;
        return nullptr;
    }
    ++consumer_;
    return entry;
}

std::optional<Eqe> DriverEq::poll() {
    const std::byte* entry = ring.next();
    if (entry == nullptr) return std::nullopt;
    Eqe eqe;
    for (std::size_t i = 0; i < 3; ++i) eqe.data[i] = base::load_le<std::uint32_t>(entry + 4 * i);
    eqe.type = static_cast<std::uint8_t>(base::load_le<std::uint32_t>(entry + 12));
    return eqe;
}

std::vector<Eqe> DriverEq::drain() {
    std::vector<Eqe> all;
    while (auto eqe = poll()) all.push_back(*eqe);
    return all;
}

void DriverEq::arm() {
    driver->ring_eq(page, id, ring.index(), true);
}

std::optional<Cqe> DriverCq::poll() {
    const std::byte* entry = ring.next();
    if (entry == nullptr) return std::nullopt;
    Cqe cqe;
    std::memcpy(cqe.data.data(), entry, cqe.data.size());
    const auto word = base::load_le<std::uint32_t>(entry + 60);
    cqe.queue_id = word & MANA_HW_CQE_QUEUE_ID;
    cqe.is_sq = (word & MANA_HW_CQE_IS_SQ) != 0;
    return cqe;
}

std::vector<Cqe> DriverCq::drain() {
    std::vector<Cqe> all;
    while (auto cqe = poll()) all.push_back(*cqe);
    return all;
}

void DriverCq::arm() {
    driver->ring_cq(page, id, ring.index(), true);
}

std::uint32_t DriverWq::post(std::span<const std::byte> oob, std::span<const gdma::Sge> sges,
                             std::uint32_t header0, std::uint32_t header1) {
    const std::uint32_t code = oob.size() == 8    ? MANA_HW_OOB_SMALL
                               : oob.size() == 24 ? MANA_HW_OOB_LARGE
                                                  : MANA_HW_OOB_EXTRA_LARGE;
    std::vector<std::byte> wqe(8 + oob.size() + 16 * sges.size());
    base::store_le<std::uint32_t>(wqe.data(), header0);
    base::store_le<std::uint32_t>(wqe.data() + 4, header1 | code << MANA_HW_WQE_OOB_CODE_SHIFT |
                                                      static_cast<std::uint32_t>(sges.size()));
    std::copy(oob.begin(), oob.end(), wqe.begin() + 8);
    std::byte* at = wqe.data() + 8 + oob.size();
    for (const gdma::Sge& sge : sges) {
        base::store_le(at, sge.address);
        base::store_le(at + 8, sge.key.value());
        base::store_le(at + 12, sge.length);
        at += 16;
    }
    return post_raw(wqe);
}

std::uint32_t DriverWq::post_raw(std::span<const std::byte> wqe) {
    const std::uint32_t start = head_;
    head_ += static_cast<std::uint32_t>((wqe.size() + MANA_HW_WQE_UNIT - 1) / MANA_HW_WQE_UNIT *
                                        MANA_HW_WQE_UNIT);
    // In steps that cross neither a page nor the end.
    for (std::uint64_t offset = start; !wqe.empty();) {
        const std::uint64_t at = offset % ring.bytes;
        const std::size_t n = std::min<std::uint64_t>(
            {wqe.size(), ring.bytes - at, GuestRam::kPage - at % GuestRam::kPage});
        std::memcpy(ring.at(at), wqe.data(), n);
        wqe = wqe.subspan(n);
        offset += n;
    }
    return start;
}

void DriverWq::doorbell(std::uint8_t count) {
    if (is_sq)
        driver->ring_sq(page, id, head_);
    else
        driver->ring_rq(page, id, head_, count);
}

// ---- registers and doorbells

HwcDriver::HwcDriver(pci::FunctionModel& function, GuestRam& ram, FakeIrq& irq)
    : function_(function), ram_(ram), irq_(irq) {
    doorbells_ = read64(MANA_HW_REG_DB_OFFSET);
    page_bytes_ = read32(MANA_HW_REG_DB_PAGE_SIZE) & 0xffff;
    shm_ = read64(MANA_HW_REG_SHM_OFFSET);
}

std::uint32_t HwcDriver::read32(std::uint64_t offset) {
    std::uint32_t value = 0;
    function_.bar0_read(offset, std::as_writable_bytes(std::span(&value, 1)));
    return value;
}

std::uint64_t HwcDriver::read64(std::uint64_t offset) {
    std::uint64_t value = 0;
    function_.bar0_read(offset, std::as_writable_bytes(std::span(&value, 1)));
    return value;
}

void HwcDriver::write32(std::uint64_t offset, std::uint32_t value) {
    function_.bar0_write(offset, std::as_bytes(std::span(&value, 1)));
}

void HwcDriver::write64(std::uint64_t offset, std::uint64_t value) {
    function_.bar0_write(offset, std::as_bytes(std::span(&value, 1)));
}

std::uint64_t HwcDriver::doorbell_offset(std::uint32_t page) const {
    return doorbells_ + page_bytes_ * page;
}

void HwcDriver::ring_sq(std::uint32_t page, std::uint32_t id, std::uint32_t position) {
    write64(doorbell_offset(page) + MANA_HW_DB_SQ, mana_hw_wq_doorbell(id, 0, position));
}
void HwcDriver::ring_rq(std::uint32_t page, std::uint32_t id, std::uint32_t position,
                        std::uint8_t count) {
    write64(doorbell_offset(page) + MANA_HW_DB_RQ, mana_hw_wq_doorbell(id, count, position));
}
void HwcDriver::ring_rq_client(std::uint32_t page, std::uint32_t id, std::uint32_t psn) {
    write64(doorbell_offset(page) + MANA_HW_DB_RQ_CLIENT, mana_hw_rq_client_doorbell(id, psn));
}
void HwcDriver::ring_cq(std::uint32_t page, std::uint32_t id, std::uint32_t index, bool arm) {
    write64(doorbell_offset(page) + MANA_HW_DB_CQ, mana_hw_entry_doorbell(id, index, arm));
}
void HwcDriver::ring_moderation(std::uint32_t page, std::uint32_t id, std::uint64_t value) {
    write64(doorbell_offset(page) + MANA_HW_DB_CQ_MODERATION, value | id);
}
void HwcDriver::ring_eq(std::uint32_t page, std::uint32_t id, std::uint32_t index, bool arm) {
    write64(doorbell_offset(page) + MANA_HW_DB_EQ, mana_hw_entry_doorbell(id, index, arm));
}

// ---- channel

std::uint32_t HwcDriver::shm_request(const std::array<std::uint32_t, 8>& words) {
    for (std::size_t i = 0; i < words.size(); ++i) write32(shm_ + 4 * i, words[i]);
    return read32(shm_ + 28);
}

bool HwcDriver::bring_up() {
    const RingMemory eq = alloc_ring(MANA_HW_HWC_QUEUE_BYTES);
    const RingMemory cq = alloc_ring(MANA_HW_HWC_QUEUE_BYTES);
    const RingMemory rq = alloc_ring(MANA_HW_HWC_QUEUE_BYTES);
    const RingMemory sq = alloc_ring(MANA_HW_HWC_QUEUE_BYTES);
    mana_hw_shm_establish message{};
    const auto frame = [&](std::uint8_t(&low)[6], const RingMemory& ring, unsigned shift) {
        const std::uint64_t number = ring.pages[0] >> MANA_HW_PAGE_SHIFT;
        std::memcpy(low, &number, sizeof low);
        message.frames_high =
            static_cast<std::uint16_t>(message.frames_high | (number >> 48 & 0xf) << shift);
    };
    frame(message.eq_frame, eq, 0);
    frame(message.cq_frame, cq, 4);
    frame(message.rq_frame, rq, 8);
    frame(message.sq_frame, sq, 12);
    message.header = MANA_HW_SHM_ESTABLISH;
    std::array<std::uint32_t, 8> words{};
    std::memcpy(words.data(), &message, sizeof message);
    if (shm_request(words) != (MANA_HW_SHM_ESTABLISH | MANA_HW_SHM_RESPONSE)) return false;

    hwc_eq = DriverEq();
    hwc_eq.driver = this;
    hwc_eq.ring = EntryRing(eq, sizeof(mana_hw_eqe));
    events.clear();
    init_data.fill(0);
    bool done = false;
    bool named = false;
    for (std::optional<Eqe> eqe; !done && (eqe = hwc_eq.poll());) {
        if (!named && eqe->type != MANA_HW_EQE_HWC_INIT_EQ_DB) return false;
        if (eqe->type == MANA_HW_EQE_HWC_INIT_EQ_DB) {
            hwc_eq.id = eqe->data[0] & 0xffff;
            hwc_eq.page = eqe->data[0] >> 16;
            named = true;
        } else if (eqe->type == MANA_HW_EQE_HWC_INIT_DATA) {
            init_data[eqe->data[0] >> MANA_HW_INIT_SHIFT & 0xf] = eqe->data[0] & 0xffffff;
        } else if (eqe->type == MANA_HW_EQE_HWC_INIT_DONE) {
            done = true;
        }
        // The driver stops after five events and arms for the rest (GDMA 3.10).
        if ((hwc_eq.ring.consumer() - hwc_eq.ring.entries()) % 5 == 0) hwc_eq.arm();
    }
    if (!done) return false;
    hwc_eq.arm();

    hwc_cq = make_cq(cq, init_data[MANA_HW_INIT_CQ_ID], hwc_eq.page);
    hwc_sq = make_wq(sq, init_data[MANA_HW_INIT_SQ_ID], hwc_eq.page, true);
    hwc_rq = make_wq(rq, init_data[MANA_HW_INIT_RQ_ID], hwc_eq.page, false);
    if (request_buffer_.value() == 0) request_buffer_ = ram_.alloc(16ULL * 4096);
    request_slot_ = 0;
    post_receive();
    return true;
}

bool HwcDriver::shut_down() {
    write32(shm_ + 28, MANA_HW_SHM_DESTROY);
    return read32(shm_ + 28) == (MANA_HW_SHM_DESTROY | MANA_HW_SHM_RESPONSE);
}

void HwcDriver::post_receive() {
    const std::array<std::byte, 8> oob{};
    const gdma::Sge sge{ram_.alloc(4096).value(), gdma::Key(init_data[MANA_HW_INIT_GPA_KEY]), 4096};
    hwc_rq.post(oob, std::span(&sge, 1));
    hwc_rq.doorbell();
}

void HwcDriver::queue_request(const Request& request) {
    const std::uint64_t address = request_buffer_.value() + 4096 * (request_slot_++ % 16);
    std::memcpy(ram_.bytes(GuestAddr(address), 4096).data(), request.bytes.data(),
                std::min<std::size_t>(request.bytes.size(), 4096));
    std::array<std::byte, 24> oob{};
    base::store_le(oob.data() + 16, hwc_cq.id);
    base::store_le(oob.data() + 20, hwc_sq.id);
    const gdma::Sge sge{address, gdma::Key(init_data[MANA_HW_INIT_GPA_KEY]),
                        static_cast<std::uint32_t>(request.bytes.size())};
    hwc_sq.post(oob, std::span(&sge, 1));
}

void HwcDriver::ring_requests() {
    hwc_sq.doorbell();
    pump_hwc_eq();
}

void HwcDriver::pump_hwc_eq() {
    bool any = false;
    while (const auto eqe = hwc_eq.poll()) {
        any = true;
        if (eqe->type != MANA_HW_EQE_COMPLETION || eqe->data[0] != hwc_cq.id)
            events.push_back(*eqe);
    }
    if (any) hwc_eq.arm();
}

std::optional<Response> HwcDriver::take_response() {
    const auto cqe = hwc_cq.poll();
    if (!cqe) return std::nullopt;
    Response response;
    response.arrived = true;
    if (cqe->is_sq || cqe->queue_id != hwc_rq.id) return Response{};
    // As the driver does: the WQE is read back from the ring (GDMA 4.4).
    const std::uint64_t at = (std::uint64_t{cqe->get<std::uint32_t>(12)} + 16) % hwc_rq.ring.bytes;
    const auto address = base::load_le<std::uint64_t>(hwc_rq.ring.at(at));
    const auto buffer = ram_.bytes(GuestAddr(address), 4096);
    const std::size_t length = std::min<std::size_t>(cqe->get<std::uint32_t>(24), buffer.size());
    response.bytes.assign(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(length));
    response.status = response.get<std::uint32_t>(24);
    ram_.free(GuestAddr(address), 4096);
    hwc_cq.arm();
    return response;
}

Response HwcDriver::call(const Request& request) {
    queue_request(request);
    ring_requests();
    auto response = take_response();
    pump_hwc_eq();
    if (!response) {
        last_status = last_failure = Response{}.status;
        return {};
    }
    post_receive();
    last_status = response->status;
    if (last_status != gdma::kHwcSuccess && last_status != gdma::kHwcMoreEntries)
        last_failure = last_status;
    return *response;
}

// ---- commands

std::optional<DeviceRegistration> HwcDriver::register_device(std::uint16_t type) {
    const auto response = call(Request(MANA_HW_REGISTER_DEVICE, 40, 44, type));
    if (!response.ok()) return std::nullopt;
    return DeviceRegistration{response.get<std::uint32_t>(32), response.get<std::uint32_t>(36),
                              response.get<std::uint32_t>(40)};
}

bool HwcDriver::deregister_device(std::uint16_t type) {
    return call(Request(MANA_HW_DEREGISTER_DEVICE, 40, 32, type)).ok();
}

std::uint32_t HwcDriver::allocate_page(std::uint32_t count, std::uint32_t alignment) {
    Request request(MANA_HW_ALLOCATE_RESOURCE_RANGE, 56, 36);
    request.put<std::uint32_t>(40, MANA_HW_RESOURCE_DOORBELL_PAGE);
    request.put<std::uint32_t>(44, count).put<std::uint32_t>(48, alignment);
    const auto response = call(request);
    return response.ok() ? response.get<std::uint32_t>(32) : UINT32_MAX;
}

bool HwcDriver::free_page(std::uint32_t first, std::uint32_t count) {
    Request request(MANA_HW_DESTROY_RESOURCE_RANGE, 52);
    request.put<std::uint32_t>(40, MANA_HW_RESOURCE_DOORBELL_PAGE);
    request.put<std::uint32_t>(44, count).put<std::uint32_t>(48, first);
    return call(request).ok();
}

std::optional<std::uint64_t> HwcDriver::create_region(std::span<const std::uint64_t> pages,
                                                      std::uint64_t length,
                                                      std::uint32_t first_offset,
                                                      unsigned page_shift,
                                                      std::size_t per_message) {
    const std::size_t now =
        std::min({pages.size(), per_message, std::size_t{MANA_HW_PAGES_PER_CREATE}});
    Request request(MANA_HW_CREATE_DMA_REGION, 64 + 8 * now, 40);
    request.put<std::uint64_t>(40, length).put<std::uint32_t>(48, first_offset);
    request.put<std::uint32_t>(52, page_shift - MANA_HW_PAGE_SHIFT);
    request.put<std::uint32_t>(56, static_cast<std::uint32_t>(pages.size()));
    request.put<std::uint32_t>(60, static_cast<std::uint32_t>(now));
    request.put_bytes(64, std::as_bytes(pages.first(now)));
    auto response = call(request);
    const std::uint64_t handle = response.get<std::uint64_t>(32);
    for (std::size_t done = now;;) {
        const std::uint32_t expected =
            done < pages.size() ? MANA_HW_STATUS_MORE_ENTRIES : MANA_HW_STATUS_SUCCESS;
        if (!response.arrived || response.status != expected || handle == 0) return std::nullopt;
        if (done == pages.size()) return handle;
        const std::size_t n =
            std::min({pages.size() - done, per_message, std::size_t{MANA_HW_PAGES_PER_ADD}});
        Request more(MANA_HW_DMA_REGION_ADD_PAGES, 56 + 8 * n);
        more.put<std::uint64_t>(40, handle).put<std::uint32_t>(48, static_cast<std::uint32_t>(n));
        more.put_bytes(56, std::as_bytes(pages.subspan(done, n)));
        response = call(more);
        done += n;
    }
}

std::optional<std::uint64_t> HwcDriver::create_region(GuestAddr address, std::uint64_t length) {
    const auto first_offset = static_cast<std::uint32_t>(address.value() % MANA_HW_PAGE_BYTES);
    std::vector<std::uint64_t> pages;
    for (std::uint64_t page = address.value() - first_offset; page < address.value() + length;
         page += MANA_HW_PAGE_BYTES)
        pages.push_back(page);
    return create_region(pages, length, first_offset);
}

std::optional<std::uint64_t> HwcDriver::create_region(const RingMemory& ring) {
    return create_region(ring.pages, ring.bytes);
}

bool HwcDriver::destroy_region(std::uint64_t handle) {
    return call(Request(MANA_HW_DESTROY_DMA_REGION, 48).put<std::uint64_t>(40, handle)).ok();
}

std::optional<DriverEq> HwcDriver::create_eq(std::uint16_t device_type,
                                             const DeviceRegistration& device, std::uint32_t vector,
                                             std::uint32_t bytes) {
    const RingMemory memory = alloc_ring(bytes);
    const auto region = create_region(memory);
    if (!region) return std::nullopt;
    Request request(MANA_HW_CREATE_QUEUE, 96, 36, device_type);
    request.put<std::uint32_t>(40, MANA_HW_QUEUE_EQ).put<std::uint32_t>(48, device.pd);
    request.put<std::uint32_t>(52, device.page).put<std::uint64_t>(56, *region);
    request.put<std::uint32_t>(68, bytes).put<std::uint32_t>(72, 3).put<std::uint32_t>(76, vector);
    const auto response = call(request);
    if (!response.ok()) {
        (void)destroy_region(*region);
        last_status = response.status;
        return std::nullopt;
    }
    DriverEq eq;
    eq.id = response.get<std::uint32_t>(32);
    eq.page = device.page;
    eq.vector = vector;
    eq.ring = EntryRing(memory, sizeof(mana_hw_eqe));
    eq.driver = this;
    if (!test_eq(device_type, eq)) return std::nullopt;
    return eq;
}

bool HwcDriver::test_eq(std::uint16_t device_type, DriverEq& eq) {
    const std::uint64_t interrupts = irq_.count(eq.vector);
    if (!call(Request(MANA_HW_GENERATE_TEST_EQE, 44, 32, device_type).put<std::uint32_t>(40, eq.id))
             .ok())
        return false;
    const auto eqe = eq.poll();
    if (!eqe || eqe->type != MANA_HW_EQE_TEST || irq_.count(eq.vector) == interrupts) return false;
    eq.arm();
    return true;
}

bool HwcDriver::destroy_eq(std::uint16_t device_type, const DriverEq& eq) {
    Request request(MANA_HW_DISABLE_QUEUE, 52, 32, device_type);
    request.put<std::uint32_t>(40, MANA_HW_QUEUE_EQ)
        .put<std::uint32_t>(44, eq.id)
        .put<std::uint32_t>(48, 1);
    return call(request).ok();
}

std::optional<DriverPd> HwcDriver::create_pd(bool allow_gpa, std::uint32_t flags) {
    const auto response =
        call(Request(MANA_HW_CREATE_PD, 48, 48)
                 .put<std::uint32_t>(40, flags | (allow_gpa ? MANA_HW_PD_ALLOW_GPA : 0)));
    if (!response.ok()) return std::nullopt;
    return DriverPd{response.get<std::uint64_t>(32), response.get<std::uint32_t>(40)};
}

bool HwcDriver::destroy_pd(const DriverPd& pd) {
    return call(Request(MANA_HW_DESTROY_PD, 48).put<std::uint64_t>(40, pd.handle)).ok();
}

namespace {

std::optional<DriverMr> mr_of(const Response& response) {
    if (!response.ok()) return std::nullopt;
    return DriverMr{response.get<std::uint64_t>(32), response.get<std::uint32_t>(40),
                    response.get<std::uint32_t>(44)};
}

Request mr_request(const DriverPd& pd, std::uint32_t type) {
    Request request(MANA_HW_CREATE_MR, 88, 48, 0, 2);
    request.put<std::uint64_t>(40, pd.handle).put<std::uint32_t>(48, type);
    return request;
}

}  // namespace

std::optional<DriverMr> HwcDriver::create_mr(const DriverPd& pd, GuestAddr address,
                                             std::uint64_t length, std::uint32_t access,
                                             std::optional<std::uint64_t> va) {
    const auto region = create_region(address, length);
    if (!region) return std::nullopt;
    const auto mr = create_mr_of(pd, *region, va.value_or(address.value()), access);
    if (!mr) {
        const std::uint32_t status = last_status;
        (void)destroy_region(*region);
        last_status = status;
    }
    return mr;
}

std::optional<DriverMr> HwcDriver::create_mr_of(const DriverPd& pd, std::uint64_t region,
                                                std::uint64_t va, std::uint32_t access) {
    return mr_of(call(mr_request(pd, MANA_HW_MR_GVA)
                          .put<std::uint64_t>(56, region)
                          .put<std::uint64_t>(64, va)
                          .put<std::uint32_t>(72, access)));
}

std::optional<DriverMr> HwcDriver::create_gpa_mr(const DriverPd& pd) {
    return mr_of(call(mr_request(pd, MANA_HW_MR_GPA)));
}

bool HwcDriver::destroy_mr(const DriverMr& mr) {
    return call(Request(MANA_HW_DESTROY_MR, 48).put<std::uint64_t>(40, mr.handle)).ok();
}

// ---- rings of the test

RingMemory HwcDriver::alloc_ring(std::uint64_t bytes, bool scattered) {
    RingMemory ring;
    ring.ram = &ram_;
    ring.bytes = bytes;
    const std::uint64_t pages = (bytes + MANA_HW_PAGE_BYTES - 1) / MANA_HW_PAGE_BYTES;
    if (scattered) {
        ring.pages = ram_.alloc_scattered(pages);
    } else {
        const std::uint64_t first = ram_.alloc(bytes).value();
        for (std::uint64_t i = 0; i < pages; ++i)
            ring.pages.push_back(first + i * MANA_HW_PAGE_BYTES);
    }
    return ring;
}

DriverCq HwcDriver::make_cq(const RingMemory& ring, std::uint32_t id, std::uint32_t page) {
    DriverCq cq;
    cq.id = id;
    cq.page = page;
    cq.ring = EntryRing(ring, sizeof(mana_hw_cqe));
    cq.driver = this;
    return cq;
}

DriverWq HwcDriver::make_wq(const RingMemory& ring, std::uint32_t id, std::uint32_t page,
                            bool is_sq) {
    DriverWq wq;
    wq.id = id;
    wq.page = page;
    wq.is_sq = is_sq;
    wq.ring = ring;
    wq.driver = this;
    return wq;
}

}  // namespace openmana::test

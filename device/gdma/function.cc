// SPDX-License-Identifier: Apache-2.0
#include "gdma/function.h"

#include <algorithm>
#include <utility>

#include <mana/gdma.h>
#include <mana/queue.h>

#include "base/endian.h"
#include "base/log.h"
#include "gdma/commands.h"
#include "gdma/devices.h"
#include "gdma/doorbells.h"
#include "gdma/hwc.h"
#include "gdma/registers.h"
#include "gdma/stale_hwc.h"

namespace openmana::gdma {

namespace {

constexpr std::uint32_t kMaxDoorbellPages = 65536;

FunctionConfig sane(FunctionConfig config) {
    config.doorbell_pages = std::clamp(config.doorbell_pages, 4U, kMaxDoorbellPages);
    config.max_cqs = std::clamp(config.max_cqs, 2U, 1U << 24);
    config.max_eqs = std::clamp(config.max_eqs, 1U, 65535U);
    config.max_pds = std::clamp(config.max_pds, 1U, PdTable::kMostOfGuest);
    return config;
}

}  // namespace

/// The parts of a function, and what goes through all of them: set-up of the HWC, reset.
struct Function::Impl final : ShmHandler {
    Impl(base::Executor& the_executor, base::GuestMemory& the_memory, pci::IrqSink& the_irq,
         FunctionConfig the_config)
        : executor(the_executor),
          memory(the_memory),
          irq(the_irq),
          config(sane(std::move(the_config))),
          tables(executor, config, gate, memory, irq),
          devices(tables),
          commands(tables, devices, config, irq),
          doorbells(tables, config, counters),
          registers(doorbells, *this, config, counters) {}

    // ShmHandler
    [[nodiscard]] std::uint32_t establish(const Hwc::Rings& rings) override;
    void destroy() override { reset(); }

    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);
    void reset();
    void reset_objects();
    void tell_unshared();
    void recover();
    [[nodiscard]] bool stale_doorbell(std::uint64_t offset, std::span<const std::byte> data);
    [[nodiscard]] Hwc::Parts hwc_parts() {
        return {tables,
                commands,
                gate,
                memory,
                config,
                counters,
                ledger != nullptr ? &ledger->channel : nullptr};
    }

    base::Executor& executor;
    base::GuestMemory& memory;
    pci::IrqSink& irq;
    const FunctionConfig config;
    base::Gate gate;
    FunctionCounters counters;
    std::uint64_t epoch = 0;
    Tables tables;
    Devices devices;
    Commands commands;
    Doorbells doorbells;
    Registers registers;
    std::unique_ptr<Hwc> hwc;
    std::unique_ptr<StaleHwc> stale;  // of before a crash, until the driver resets the function
    FunctionLedger* ledger = nullptr;
    bool unshared_told = false;  // said once: a guest can ask for it often
};

std::uint32_t Function::Impl::establish(const Hwc::Rings& rings) {
    if (rings.vector >= irq.vector_count()) return 2;
    // A driver that was killed (kexec) establishes again without a destroy.
    if (hwc || stale) reset();
    const base::Gate::Exclusion exclusion(gate, {"HWC set-up"});
    auto created = Hwc::create(hwc_parts(), rings);
    if (!created) {
        OM_DEBUG("hwc create failed: nic={} reason=\"{}\" detail={:#x}", config.name,
                 created.error().text, created.error().detail);
        const auto rings_of = {rings.eq, rings.cq, rings.rq, rings.sq};
        if (std::any_of(rings_of.begin(), rings_of.end(),
                        [&](GuestAddr ring) { return memory.is_hole(ring); }))
            tell_unshared();
        reset_objects();
        return 3;
    }
    hwc = std::move(*created);
    doorbells.expect(true);
    OM_DEBUG("hwc create: nic={} eq={:#x} cq={:#x} rq={:#x} sq={:#x} vector={}", config.name,
             rings.eq.value(), rings.cq.value(), rings.rq.value(), rings.sq.value(), rings.vector);
    return 0;
}

void Function::Impl::reset_objects() {
    hwc.reset();
    stale.reset();
    // What it says, too, of a process that has ended, and that nobody has gone on with yet.
    if (ledger != nullptr) {
        ledger->channel.channel.set({});
        ledger->forget_send_queues();
    }
    doorbells.expect(false);
    devices.reset();
    tables.reset();
}

void Function::Impl::reset() {
    const base::Gate::Exclusion exclusion(gate, {"reset"});
    ++epoch;
    counters.resets.add();
    // With memory of its own (share=off) QEMU gives us the file, but not what the guest writes.
    if (hwc && !hwc->seen_by_driver()) tell_unshared();
    devices.reset_clients();
    reset_objects();
    OM_DEBUG("function reset: nic={} epoch={}", config.name, epoch);
}

void Function::Impl::save(base::StateWriter& out) const {
    out.begin("GDMA", 2);
    out(registers, unshared_told, hwc != nullptr);
    base::save_counters(out, counters);
    tables.save(out);
    if (hwc) hwc->save(out);
    devices.save(out);
    devices.save_clients(out);
    out.end();
}

void Function::Impl::load(base::StateReader& in) {
    const auto version = in.begin("GDMA", 2);
    bool has_hwc = false;
    in(registers, unshared_told, has_hwc);
    registers.note_shm();
    base::load_counters(in, counters);
    tables.load(in);
    if (has_hwc && in.ok()) hwc = Hwc::load(hwc_parts(), in, version);
    if (in.ok()) devices.load(in);
    if (in.ok()) devices.load_clients(in);
    in.end();
    if (in.ok()) tables.finish_load(in);
    doorbells.expect(hwc != nullptr);
}

void Function::Impl::recover() {
    registers.recover();
    if (!ledger->channel.channel.get().there) {
        ledger->forget_send_queues();
        return;
    }
    stale =
        std::make_unique<StaleHwc>(StaleHwc::Parts{memory, irq, config, counters}, ledger->channel);
    devices.recover_clients(*ledger);
    doorbells.expect(true);
}

bool Function::Impl::stale_doorbell(std::uint64_t offset, std::span<const std::byte> data) {
    if (!stale || offset < Registers::kDoorbellOffset || data.size() != sizeof(std::uint64_t))
        return false;
    const std::uint64_t place = offset - Registers::kDoorbellOffset;
    const auto value = base::load_le<std::uint64_t>(data.data());
    return stale->ring(place, value) || devices.stale_doorbell(place, value);
}

void Function::Impl::tell_unshared() {
    counters.shm_unshared.add();
    if (!std::exchange(unshared_told, true))
        OM_WARN(
            "guest memory seems not to be shared: nic={} cure=\"QEMU with -object "
            "memory-backend-memfd,...,share=on\"",
            config.name);
}

Function::Function(base::Executor& executor, base::GuestMemory& memory, pci::IrqSink& irq,
                   FunctionConfig config)
    : impl_(std::make_unique<Impl>(executor, memory, irq, std::move(config))) {}

Function::~Function() = default;

void Function::attach(Client& client) {
    impl_->devices.attach(client);
}

std::uint64_t Function::bar0_size() const {
    return impl_->registers.size();
}
void Function::bar0_read(std::uint64_t offset, std::span<std::byte> data) {
    impl_->registers.read(offset, data);
}
void Function::bar0_write(std::uint64_t offset, std::span<const std::byte> data) {
    if (!impl_->stale_doorbell(offset, data)) impl_->registers.write(offset, data);
}
void Function::bar0_writes(std::span<const base::BarWrite> writes) {
    if (!impl_->stale) [[likely]] {
        impl_->registers.write_all(writes);
        return;
    }
    for (const base::BarWrite& write : writes) bar0_write(write.offset, write.data);
}
void Function::use_ledger(FunctionLedger& ledger) {
    impl_->ledger = &ledger;
    impl_->registers.use_ledger(ledger.channel);
}
void Function::recover() {
    impl_->recover();
}
void Function::request_reset() {
    if (impl_->stale) impl_->stale->request_reset();
}
void Function::reset() {
    impl_->reset();
    impl_->registers.clear_shm();
}

void Function::save(base::StateWriter& out) const {
    impl_->save(out);
}
base::Result<void> Function::load(base::StateReader& in) {
    impl_->load(in);
    const auto loaded = in.result();
    if (!loaded) reset();
    return loaded;
}

base::Executor& Function::executor() const {
    return impl_->executor;
}
base::GuestMemory& Function::memory() const {
    return impl_->memory;
}
base::Gate& Function::gate() {
    return impl_->gate;
}
pci::IrqSink& Function::irq() const {
    return impl_->irq;
}
FunctionLedger* Function::ledger() const {
    return impl_->ledger;
}
const FunctionConfig& Function::config() const {
    return impl_->config;
}
FunctionCounters& Function::counters() {
    return impl_->counters;
}
base::MemoryAccount& Function::account() const {
    return impl_->tables.account;
}
std::uint64_t Function::epoch() const {
    return impl_->epoch;
}
ObjectCounts Function::object_counts() const {
    return impl_->tables.counts();
}

PdTable& Function::pds() {
    return impl_->tables.pds;
}
const DoorbellPages& Function::pages() const {
    return impl_->tables.pages;
}
const EqTable& Function::eqs() const {
    return impl_->tables.eqs;
}
const MemoryTable& Function::keys() const {
    return impl_->tables.keys;
}
KeyChanges& Function::key_changes() {
    return impl_->tables.key_changes;
}
RegionTable& Function::regions() {
    return impl_->tables.regions;
}
DeviceMemoryTable& Function::device_memory() {
    return impl_->tables.device_memory;
}
CqTable& Function::cqs() {
    return impl_->tables.cqs;
}
SendQueues& Function::sqs() {
    return impl_->tables.sqs;
}
ReceiveQueues& Function::rqs() {
    return impl_->tables.rqs;
}

void Function::notify_link(bool up) {
    if (!impl_->hwc) return;
    const std::uint32_t kind = up ? MANA_HW_RECONFIG_LINK_UP : MANA_HW_RECONFIG_LINK_DOWN;
    impl_->hwc->eq().post(EqeType::kReconfigData, {kind << MANA_HW_RECONFIG_SHIFT, 0, 0});
}

}  // namespace openmana::gdma

// SPDX-License-Identifier: Apache-2.0
#include "gdma/devices.h"

#include <algorithm>
#include <utility>

namespace openmana::gdma {

using base::ErrorCode;
using base::fail;
using base::Result;

void Devices::attach(Client& client) {
    Device device;
    device.client = &client;
    devices_.push_back(std::move(device));
    std::sort(devices_.begin(), devices_.end(), [](const auto& a, const auto& b) {
        return a.client->device_type() < b.client->device_type();
    });
}

Device* Devices::find(DeviceType type, std::uint16_t instance) {
    if (instance != 0) return nullptr;
    for (Device& device : devices_)
        if (device.client->device_type() == type) return &device;
    return nullptr;
}

Result<void> Devices::add_registration(Device& device) {
    const DeviceType type = device.client->device_type();
    if (device.registered) return fail(ErrorCode::kBusy, "device is registered", type);
    TRY(MemoryTable::Room room, tables_.keys.make_room());
    TRY(Handle<Pd> pd, tables_.pds.create(type, {.allows_gpa = true}));
    auto page = tables_.pages.allocate(type);
    if (!page) {
        tables_.pds.destroy(std::move(pd));
        return tl::unexpected(page.error());
    }
    MemoryRegion everything;
    everything.pd = pd;
    everything.type = MrType::kGpa;
    everything.access = kLocalRead | kLocalWrite;
    device.registered = true;
    device.pd = std::move(pd);
    device.gpa_key = tables_.keys.insert(std::move(room), std::move(everything));
    device.page = std::move(*page);
    return {};
}

Result<void> Devices::remove_registration(Device& device) {
    const DeviceType type = device.client->device_type();
    if (!device.registered) return fail(ErrorCode::kNotFound, "device is not registered", type);
    // A driver that leaves something behind cannot name it any more.
    device.client->reset();
    // What is left are queues of another device: with them this one stays registered. Of the PD the
    // table, the key and the registration are holders, of the page the table and the registration.
    const bool unused = [&] {
        const base::Gate::Recess recess(tables_.gate);
        return tables_.eqs.destroy_unused(type);
    }();
    if (!unused || device.pd->holders() > 3 || device.page->holders() > 2)
        return fail(ErrorCode::kBusy, "another device needs this one", type);
    OM_CHECK(tables_.keys.remove(device.gpa_key).has_value());
    tables_.pds.destroy(std::move(device.pd));
    tables_.pages.free(std::move(device.page));
    device.registered = false;
    return {};
}

void Devices::reset_clients() {
    for (const Device& device : devices_) device.client->reset();
}

void Devices::save(base::StateWriter& out) const {
    out.count(devices_.size());
    for (const Device& device : devices_) {
        out(device.client->device_type(), device.registered);
        if (device.registered) out(device.pd->id, device.gpa_key, device.page->page);
    }
}

void Devices::load(base::StateReader& in) {
    in.require(in.count() == devices_.size(), "another number of devices");
    for (Device& device : devices_) {
        in.require(in.get<DeviceType>() == device.client->device_type(), "another device");
        if (!in.get<bool>() || !in.ok()) continue;
        const DeviceType type = device.client->device_type();
        const auto pdn = in.get<Pdn>();
        in(device.gpa_key);
        const auto number = in.get<DoorbellPage>();
        auto pd = tables_.pds.held(pdn);
        auto page = tables_.pages.held(number);
        const MemoryRegion* const key = tables_.keys.find(device.gpa_key);
        in.require(pd && pd->owner == type && page && page->owner == type && key != nullptr &&
                       key->pd == pd && key->type == MrType::kGpa,
                   "registration that cannot be");
        if (!in.ok()) return;
        device.registered = true;
        device.pd = std::move(pd);
        device.page = std::move(page);
    }
}

void Devices::save_clients(base::StateWriter& out) const {
    for (const Device& device : devices_) device.client->save(out);
}

void Devices::load_clients(base::StateReader& in) {
    for (const Device& device : devices_)
        if (in.ok()) device.client->load(in);
}

void Devices::recover_clients(FunctionLedger& ledger) {
    for (const Device& device : devices_) device.client->recover(ledger);
}

bool Devices::stale_doorbell(std::uint64_t offset, std::uint64_t value) {
    return std::ranges::any_of(devices_, [&](const Device& device) {
        return device.client->stale_doorbell(offset, value);
    });
}

void Devices::reset() {
    for (Device& device : devices_) {
        device.registered = false;
        device.pd = nullptr;
        device.page = nullptr;
    }
}

}  // namespace openmana::gdma

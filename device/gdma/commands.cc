// SPDX-License-Identifier: Apache-2.0
#include "gdma/commands.h"

#include <algorithm>
#include <array>
#include <optional>

#include <mana/ext.h>
#include <mana/gdma.h>
#include <mana/queue.h>

#include "base/log.h"

namespace openmana::gdma {

namespace {

static_assert(kHwcSuccess == MANA_HW_STATUS_SUCCESS &&
              kHwcMoreEntries == MANA_HW_STATUS_MORE_ENTRIES &&
              kHwcUnsupported == MANA_HW_STATUS_UNSUPPORTED);
static_assert(kLocalRead == MANA_HW_ACCESS_LOCAL_READ &&
              kLocalWrite == MANA_HW_ACCESS_LOCAL_WRITE &&
              kRemoteRead == MANA_HW_ACCESS_REMOTE_READ &&
              kRemoteWrite == MANA_HW_ACCESS_REMOTE_WRITE &&
              kRemoteAtomic == MANA_HW_ACCESS_REMOTE_ATOMIC &&
              kBindWindow == MANA_HW_ACCESS_BIND_WINDOW);

/// Opcodes of a device, by their upper half (GDMA 6.1, RNIC 2.1). Others above are for the device
/// that the request names.
constexpr std::uint32_t kEthernetFamily = 2;
constexpr std::uint32_t kRdmaFamily = 3;
constexpr std::uint32_t kQueryDevConfig = 0x20001;
/// The most that the driver's own default allows for (GDMA 4.7).
constexpr std::uint32_t kHwcTimeoutMs = 30000;

}  // namespace

std::span<const Commands::Entry> Commands::table() {
    // CREATE_MR: the fields of device memory alone may be missing.
    static constexpr std::array<Entry, 20> kTable{{
        {MANA_HW_VERIFY_DRIVER_VERSION, offsetof(mana_hw_verify_version_req, driver_version),
         &Commands::verify_version},
        {MANA_HW_QUERY_MAX_RESOURCES, sizeof(mana_hw_request), &Commands::query_max_resources},
        {MANA_HW_LIST_DEVICES, sizeof(mana_hw_request), &Commands::list_devices},
        {MANA_HW_REGISTER_DEVICE, sizeof(mana_hw_request), &Commands::register_device, true},
        {MANA_HW_DEREGISTER_DEVICE, sizeof(mana_hw_request), &Commands::deregister_device, true},
        {MANA_HW_GENERATE_TEST_EQE, sizeof(mana_hw_test_eqe_req), &Commands::test_eqe},
        {MANA_HW_CREATE_QUEUE, offsetof(mana_hw_create_queue_req, moderation_context),
         &Commands::create_queue},
        {MANA_HW_DISABLE_QUEUE, offsetof(mana_hw_disable_queue_req, id_allocated_on_creation),
         &Commands::disable_queue},
        {MANA_HW_ALLOCATE_RESOURCE_RANGE, sizeof(mana_hw_allocate_range_req),
         &Commands::allocate_range},
        {MANA_HW_DESTROY_RESOURCE_RANGE, sizeof(mana_hw_destroy_range_req),
         &Commands::destroy_range},
        {MANA_HW_CREATE_DMA_REGION, sizeof(mana_hw_create_region_req), &Commands::create_region},
        {MANA_HW_DMA_REGION_ADD_PAGES, sizeof(mana_hw_add_pages_req), &Commands::add_pages},
        {MANA_HW_DESTROY_DMA_REGION, sizeof(mana_hw_destroy_region_req), &Commands::destroy_region},
        {MANA_HW_CREATE_PD, offsetof(mana_hw_create_pd_req, reserved), &Commands::create_pd},
        {MANA_HW_DESTROY_PD, sizeof(mana_hw_destroy_pd_req), &Commands::destroy_pd},
        {MANA_HW_CREATE_MR, offsetof(mana_hw_create_mr_req, reserved1), &Commands::create_mr, true},
        {MANA_HW_DESTROY_MR, sizeof(mana_hw_destroy_mr_req), &Commands::destroy_mr, true},
        {MANA_HW_QUERY_HWC_TIMEOUT, offsetof(mana_hw_hwc_timeout_req, reserved),
         &Commands::query_hwc_timeout},
        {MANA_HW_ALLOC_DM, sizeof(mana_hw_alloc_dm_req), &Commands::alloc_dm},
        {MANA_HW_DESTROY_DM, sizeof(mana_hw_destroy_dm_req), &Commands::destroy_dm},
    }};
    return kTable;
}

void Commands::command(const HwcRequest& request, HwcReply& reply) {
    if (request.opcode() >= MANA_HW_FIRST_DEVICE_OPCODE) {
        device_command(request, reply);
        return;
    }
    reply.set_version(1);
    const auto entry = std::find_if(table().begin(), table().end(), [&](const Entry& other) {
        return other.opcode == request.opcode();
    });
    if (entry == table().end())
        reply.set_status(kHwcUnsupported);
    else if (request.size() < entry->least)
        reply.set_status(kHwcInvalidParameter);
    else
        run(*entry, request, reply);
}

void Commands::run(const Entry& entry, const HwcRequest& request, HwcReply& reply) {
    std::optional<base::Gate::Recess> recess;
    if (!entry.keys) recess.emplace(tables_.gate);
    reply.set_status((this->*entry.handler)(request, reply));
}

void Commands::device_command(const HwcRequest& request, HwcReply& reply) {
    const std::uint32_t family = request.opcode() >> 16;
    const std::uint16_t type = request.device_type();
    // The Ethernet half of the 7.2 RDMA driver sends 0x300xx for device type 2 (RNIC 1.6).
    const bool foreign = (family == kEthernetFamily && type != MANA_HW_DEVICE_ETHERNET) ||
                         (family == kRdmaFamily && type != MANA_HW_DEVICE_RDMA);
    Device* const target = devices_.find(type, request.device_instance());
    if (target == nullptr || foreign) {
        reply.set_status(kHwcInvalidParameter);
        return;
    }
    // 7.2 asks for the Ethernet configuration before it registers the device (GDMA 5.4).
    if (!target->registered && request.opcode() != kQueryDevConfig) {
        reply.set_status(kHwcNotFound);
        return;
    }
    target->client->command(request, reply);
}

// ---- the function as a whole

auto Commands::verify_version(const HwcRequest& request, HwcReply& reply) -> Status {
    const auto in = request.as<mana_hw_verify_version_req>();
    if (in.protocol_min > MANA_HW_PROTOCOL_VERSION || in.protocol_max < MANA_HW_PROTOCOL_VERSION)
        return kHwcInvalidParameter;
    mana_hw_verify_version_resp out{};
    out.protocol = MANA_HW_PROTOCOL_VERSION;
    out.device_caps[0] = MANA_HW_CAP_HWC_TIMEOUT | MANA_HW_CAP_BIG_PAGES | MANA_HW_CAP_MODERATION;
    reply.put_struct(out);
    OM_DEBUG("driver version: nic={} caps={:#x} os={:#x} release={}.{}.{}", config_.name,
             in.driver_caps[0] + 0, in.os_type + 0, in.os_major + 0, in.os_build + 0,
             in.os_minor + 0);
    return kHwcSuccess;
}

auto Commands::query_max_resources(const HwcRequest&, HwcReply& reply) -> Status {
    mana_hw_max_resources_resp out{};
    out.max_sqs = config_.max_sqs;
    out.max_rqs = config_.max_rqs;
    out.max_cqs = config_.max_cqs;
    out.max_eqs = config_.max_eqs;
    out.max_doorbell_pages = config_.doorbell_pages;
    out.max_keys = config_.max_mrs;
    out.max_msix = irq_.vector_count();
    reply.put_struct(out);
    return kHwcSuccess;
}

auto Commands::list_devices(const HwcRequest&, HwcReply& reply) -> Status {
    mana_hw_list_devices_resp out{};
    for (const Device& device : devices_.list()) {
        if (out.count == MANA_HW_MAX_DEVICES) break;
        out.devices[out.count].type = device.client->device_type();
        out.count = out.count + 1;
    }
    reply.put_struct(out);
    return kHwcSuccess;
}

auto Commands::register_device(const HwcRequest& request, HwcReply& reply) -> Status {
    Device* const target = devices_.find(request.device_type(), request.device_instance());
    if (target == nullptr) return kHwcNotFound;
    if (const auto added = devices_.add_registration(*target); !added)
        return status_of(added.error());
    mana_hw_register_device_resp out{};
    out.pd_id = target->pd->id.value();
    out.gpa_key = target->gpa_key.value();
    out.doorbell_page = target->page->page.value();
    reply.put_struct(out);
    OM_DEBUG("device register: nic={} type={} pdn={:#x} key={:#x} page={}", config_.name,
             request.device_type(), target->pd->id.value(), target->gpa_key.value(),
             target->page->page.value());
    return kHwcSuccess;
}

auto Commands::deregister_device(const HwcRequest& request, HwcReply&) -> Status {
    Device* const target = devices_.find(request.device_type(), request.device_instance());
    if (target == nullptr) return kHwcNotFound;
    if (const auto removed = devices_.remove_registration(*target); !removed)
        return status_of(removed.error());
    OM_DEBUG("device deregister: nic={} type={}", config_.name, request.device_type());
    return kHwcSuccess;
}

auto Commands::query_hwc_timeout(const HwcRequest& request, HwcReply& reply) -> Status {
    const auto in = request.as<mana_hw_hwc_timeout_req>();
    mana_hw_hwc_timeout_resp out{};
    // Zero would make every later command time out at once (GDMA 4.7).
    out.timeout_ms = in.timeout_ms != 0 ? in.timeout_ms : kHwcTimeoutMs;
    reply.put_struct(out);
    return kHwcSuccess;
}

}  // namespace openmana::gdma

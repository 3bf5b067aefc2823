// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mana/hwc.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/strong.h"

namespace openmana::gdma {

using base::GuestAddr;
using Sqn = base::Strong<struct SqnTag, std::uint32_t>;  ///< 24 bits
using Rqn = base::Strong<struct RqnTag, std::uint32_t>;  ///< 24 bits
using Cqn = base::Strong<struct CqnTag, std::uint32_t>;  ///< 24 bits, below FunctionConfig::max_cqs
using Eqn = base::Strong<struct EqnTag, std::uint32_t>;  ///< 16 bits
using DoorbellPage = base::Strong<struct DoorbellPageTag, std::uint32_t>;
using Pdn = base::Strong<struct PdnTag, std::uint32_t>;
using PdHandle = base::Strong<struct PdHandleTag, std::uint64_t>;
using RegionHandle = base::Strong<struct RegionHandleTag, std::uint64_t>;
using Key = base::Strong<struct KeyTag, std::uint32_t>;  ///< lkey or rkey; never 0 or all-ones

/// Through whom a peer may come in by a window of type 2: a number of the client's (RNIC: of the
/// QP).
using WindowScope = base::Strong<struct WindowScopeTag, std::uint32_t>;

/// GDMA 0.2. As the owner of an object: whom it was made for.
using DeviceType = std::uint16_t;
constexpr DeviceType kGuest = 0;  ///< no device: the guest asked for it
constexpr DeviceType kHwcDevice = 1;

/// Host memory of a stretch of guest memory, in order. Kept by callers and reused, so it allocates
/// only when it grows.
using SpanList = std::vector<std::span<std::byte>>;

/// Rights of a memory region, as in CREATE_MR (GDMA 5.16).
enum AccessFlag : std::uint32_t {
    kLocalRead = 1U << 0,
    kLocalWrite = 1U << 1,
    kRemoteRead = 1U << 2,
    kRemoteWrite = 1U << 3,
    kRemoteAtomic = 1U << 4,
    kBindWindow = 1U << 5,
};

/// Pages of one fast registration.
constexpr std::uint32_t kMaxFastRegisterPages = 1024;

/// Why an access through a key was refused; the clients map it to their vendor codes and NAKs.
enum class MrFault : std::uint8_t {
    kNone,
    kKey,     ///< no such key, wrong PD, an unbound window
    kAccess,  ///< the right is missing
    kRange,   ///< outside the region, or the guest memory behind it is not mapped
};

/// Status words of HWC responses (GDMA 4.6).
enum HwcStatus : std::uint32_t {
    kHwcSuccess = MANA_HW_STATUS_SUCCESS,
    kHwcInvalidParameter = MANA_HW_STATUS_INVALID_PARAMETER,
    kHwcNotFound = MANA_HW_STATUS_NOT_FOUND,
    kHwcNoResources = MANA_HW_STATUS_NO_RESOURCES,
    kHwcBusy = MANA_HW_STATUS_BUSY,
    kHwcMoreEntries = MANA_HW_STATUS_MORE_ENTRIES,
    kHwcUnsupported = MANA_HW_STATUS_UNSUPPORTED,
};

}  // namespace openmana::gdma

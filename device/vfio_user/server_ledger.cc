// SPDX-License-Identifier: Apache-2.0
#include "vfio_user/server_ledger.h"

#include <cstring>
#include <utility>

namespace openmana::vfio_user {

void ServerLedger::Transfer::prepare(void* data, std::size_t size, bool with_control) {
    vector = {.iov_base = data, .iov_len = size};
    msghdr& header = message.msg_hdr;
    header = {};
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    if (!with_control) return;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
}

std::vector<int> ServerLedger::Transfer::numbers() {
    std::vector<int> all;
    msghdr& header = message.msg_hdr;
    for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr;
         part = CMSG_NXTHDR(&header, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        const std::size_t first = all.size();
        all.resize(first + (part->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        std::memcpy(all.data() + first, CMSG_DATA(part), part->cmsg_len - CMSG_LEN(0));
    }
    return all;
}

FdBatch ServerLedger::Transfer::take_fds() {
    FdBatch batch;
    for (const int number : numbers()) {
        base::UniqueFd owner(number);
        if (batch.count < batch.fds.size()) {
            batch.fds[batch.count++] = std::move(owner);
        } else {
            batch.overflow = true;
        }
    }
    // The kernel closed what did not fit, or had no descriptor left for it.
    if ((message.msg_hdr.msg_flags & MSG_CTRUNC) != 0) batch.overflow = true;
    return batch;
}

void ServerLedger::begin_session() {
    for (Transfer& transfer : receives) transfer.message.msg_len = 0;
    for (Transfer& transfer : sends) transfer.message.msg_len = 0;
    at_work.store(0, std::memory_order_relaxed);
    ends_at_work.store(0, std::memory_order_relaxed);
    State fresh;
    if (retained.load(std::memory_order_relaxed) != 0) fresh.device = DeviceState::kStop;
    state.set(fresh);
}

DeviceState ServerLedger::device_left() const {
    if (client.number() < 0)
        return retained.load(std::memory_order_relaxed) != 0 ? DeviceState::kStop
                                                             : DeviceState::kRunning;
    switch (const DeviceState left = state.get().device; left) {
        case DeviceState::kRunning:
        case DeviceState::kRunningP2p:
            return DeviceState::kRunning;
        case DeviceState::kStop:
        case DeviceState::kStopCopy:
            return DeviceState::kStop;
        default:
            return DeviceState::kError;
    }
}

std::vector<int> ServerLedger::descriptors_of_session() {
    std::vector<int> all;
    const State now = state.get();
    for (const Fds* const fds : {&now.first_fds, &now.last_fds})
        all.insert(all.end(), fds->numbers.begin(), fds->numbers.begin() + fds->count);
    if (Transfer& last = receives[now.received % 2]; last.message.msg_len != 0) {
        const auto came = last.numbers();
        all.insert(all.end(), came.begin(), came.end());
    }
    return all;
}

std::vector<int> ServerLedger::descriptors() {
    std::vector<int> all;
    if (listener.number() >= 0) all.push_back(listener.number());
    if (client.number() < 0) return all;
    all = descriptors_of_session();
    all.push_back(client.number());
    if (listener.number() >= 0) all.push_back(listener.number());
    return all;
}

}  // namespace openmana::vfio_user

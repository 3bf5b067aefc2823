// SPDX-License-Identifier: Apache-2.0
// The steps of a session's ledger, and how another process goes on behind the last one.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "vfio_user/session.h"

namespace openmana::vfio_user {

using base::ErrorCode;
using base::fail;
using base::Result;
using base::UniqueFd;

ServerLedger::Transfer& Session::next_receive() {
    ServerLedger::Transfer& transfer = ledger_.receives[state_.received % 2];
    const auto room = receive_room();
    transfer.prepare(room.data(), room.size(), true);
    return transfer;
}

ServerLedger::Transfer& Session::next_send() {
    ServerLedger::Transfer& transfer = ledger_.sends[state_.sent % 2];
    const auto bytes = output();
    transfer.prepare(const_cast<std::byte*>(bytes.data()), bytes.size(), false);
    return transfer;
}

void Session::sent(std::size_t bytes) {
    state_.output_begin += static_cast<std::uint32_t>(bytes);
    OM_CHECK(state_.output_begin <= state_.output_end);
    if (state_.output_begin == state_.output_end) state_.output_begin = state_.output_end = 0;
    ledger_.sends[++state_.sent % 2].message.msg_len = 0;
    commit();
}

void Session::commit() {
    const auto note = [](const std::vector<UniqueFd>& fds, ServerLedger::Fds& into) {
        into.count = static_cast<std::uint32_t>(std::min(fds.size(), into.numbers.size()));
        for (std::uint32_t i = 0; i < into.count; ++i) into.numbers[i] = fds[i].get();
    };
    note(first_fds_, state_.first_fds);
    note(last_fds_, state_.last_fds);
    if (features_) state_.device = features_->migration().state();
    ledger_.state.set(state_);
}

/// Room is made in front of what is not handled only where that leaves what the ledger says as it
/// is until it says otherwise.
void Session::compact() {
    const std::uint32_t length = state_.end - state_.begin;
    if (backlog_ || length == 0 || length > state_.begin) return;
    std::memcpy(ledger_.input, ledger_.input + state_.begin, length);
    state_.begin = 0;
    state_.end = length;
    commit();
}

/// The message, its fds and its answer are one step. The fds are closed behind it: until then the
/// message may have to be handled again.
void Session::complete_message() {
    write_gathered();
    std::vector<UniqueFd> done;
    if (!first_fds_.empty()) done.swap(first_fds_);
    commit();
    again_ = false;
}

/// Behind the output, which the ledger does not know of before the message is complete. There is
/// less than kOutputLimit of it, so what moves to the front does not overlap what was there.
void Session::put_reply() {
    OM_CHECK(reply_.size() <= ServerLedger::kMaxReply);
    if (reply_.size() > ServerLedger::kOutputSize - state_.output_end) {
        const std::uint32_t length = state_.output_end - state_.output_begin;
        OM_CHECK(length <= state_.output_begin);
        std::memcpy(ledger_.output, ledger_.output + state_.output_begin, length);
        state_.output_begin = 0;
        state_.output_end = length;
        commit();
    }
    std::copy(reply_.begin(), reply_.end(), ledger_.output + state_.output_end);
    state_.output_end += static_cast<std::uint32_t>(reply_.size());
}

Result<void> Session::recover() {
    state_ = ledger_.state.get();
    const auto own = [](const ServerLedger::Fds& from, std::vector<UniqueFd>& fds) {
        for (std::uint32_t i = 0; i < from.count; ++i) fds.emplace_back(from.numbers[i]);
    };
    own(state_.first_fds, first_fds_);
    own(state_.last_fds, last_fds_);
    backlog_ = again_ = true;
    ServerLedger::Transfer& in = ledger_.receives[state_.received % 2];
    FdBatch batch;
    if (const std::uint32_t bytes = in.message.msg_len; bytes != 0) {
        batch = in.take_fds();
        state_.end += bytes;
        std::move(batch.fds.begin(), batch.fds.begin() + batch.count,
                  std::back_inserter(last_fds_));
        ledger_.receives[++state_.received % 2].message.msg_len = 0;
    }
    // Now it is known, and the step of the ledger is sent()'s.
    sent(ledger_.sends[state_.sent % 2].message.msg_len);
    if (batch.overflow) return fail(ErrorCode::kProtocol, "more fds than can be taken");
    return {};
}

}  // namespace openmana::vfio_user

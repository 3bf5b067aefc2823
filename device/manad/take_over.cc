// SPDX-License-Identifier: Apache-2.0
#include "manad/take_over.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "base/unix_socket.h"
#include "manad/control.h"

namespace openmana::manad {
namespace {

using base::ErrorCode;
using base::fail;
using base::Result;
using nlohmann::json;

/// What the one that comes says when it has all.
constexpr char kTaken = 'T';
constexpr std::size_t kMaxAnswer = 64U << 10;

/// One byte of the other process; kClosed if it has gone.
Result<char> receive_byte(int socket) {
    pollfd entry{socket, POLLIN, 0};
    const auto limit =
        std::chrono::duration_cast<std::chrono::milliseconds>(HandedOver::kPatience).count();
    for (;;) {
        const int ready = ::poll(&entry, 1, static_cast<int>(limit));
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return fail(ErrorCode::kBusy, "the other process does not answer");
        char byte = 0;
        const ssize_t n = ::recv(socket, &byte, 1, MSG_DONTWAIT);
        if (n == 1) return byte;
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        return fail(ErrorCode::kClosed, "the other process has gone");
    }
}

Result<void> send_text(int socket, std::string_view text) {
    while (!text.empty()) {
        const ssize_t n = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail(ErrorCode::kIo, "cannot send", static_cast<unsigned>(errno));
        text.remove_prefix(static_cast<std::size_t>(n));
    }
    return {};
}

}  // namespace

Result<std::unique_ptr<TakeOver>> TakeOver::ask(const std::string& control, std::string& why) {
    TRY(auto connection, base::connect_unix(control));
    std::unique_ptr<TakeOver> self(new TakeOver(std::move(connection)));
    const int socket = self->connection_.get();
    const json request{{"command", "take-over"}, {"format", HandedOver::kFormat}};
    TRY_VOID(send_text(socket, request.dump() + "\n"));
    std::string line;
    for (char byte = 0; byte != '\n'; line += byte) {
        TRY(byte, receive_byte(socket));
        if (line.size() > kMaxAnswer)
            return fail(ErrorCode::kProtocol, "the other process sends something else");
    }
    const json answer = json::parse(line, nullptr, false);
    if (!answer.is_object())
        return fail(ErrorCode::kProtocol, "the other process sends something else");
    if (const auto ok = answer.find("ok"); ok == answer.end() || *ok != json(true)) {
        why = text_of(answer, "error");
        return fail(ErrorCode::kPermission, "it does not hand over");
    }
    TRY_VOID(self->receive());
    return self;
}

Result<void> TakeOver::receive() {
    const int socket = connection_.get();
    TRY(base::Parcel first, base::receive_parcel(socket, HandedOver::kPatience));
    const json head = json::parse(
        std::string_view(reinterpret_cast<const char*>(first.bytes.data()), first.bytes.size()),
        nullptr, false);
    const auto broken = [] {
        return fail(ErrorCode::kProtocol, "the other process hands over something else");
    };
    if (!head.is_object() || head.value("format", 0) != HandedOver::kFormat ||
        !head.value("descriptors", json()).is_array() || !head.value("nics", json()).is_array() ||
        head["descriptors"].size() != first.descriptors.size())
        return broken();
    for (std::size_t i = 0; i < first.descriptors.size(); ++i) {
        const json& what = head["descriptors"][i];
        const std::string kind = text_of(what, "kind");
        const std::string name = text_of(what, "name");
        if (kind == "control")
            handed_.control = std::move(first.descriptors[i]);
        else if (kind == "metrics")
            handed_.metrics[name] = std::move(first.descriptors[i]);
        else if (kind == "uplink")
            handed_.uplinks[name] = std::move(first.descriptors[i]);
        else
            return broken();
    }
    for (const json& entry : head["nics"]) {
        HandedOver::Nic& nic = handed_.nics.emplace_back();
        nic.name = text_of(entry, "name");
        nic.options = text_of(entry, "options");
        nic.came_later = entry.value("came_later", false);
        nic.policy = text_of(entry, "policy");
        for (const json& fault : entry.value("faults", json::array()))
            if (fault.is_string()) nic.faults.push_back(fault.get<std::string>());
        TRY(nic.state, base::receive_parcel(socket, HandedOver::kPatience));
    }
    return {};
}

HandedOver::Nic* TakeOver::nic(const std::string& name) {
    for (HandedOver::Nic& nic : handed_.nics)
        if (nic.name == name) return &nic;
    return nullptr;
}

Result<void> TakeOver::finish() {
    TRY_VOID(send_text(connection_.get(), std::string_view(&kTaken, 1)));
    const auto end = receive_byte(connection_.get());
    if (!end && end.error().code == ErrorCode::kClosed) return {};
    return fail(ErrorCode::kBusy, "the other process does not end");
}

Result<bool> hand_over(int connection, const json& head, const std::vector<int>& descriptors,
                       const std::vector<std::vector<std::byte>>& states,
                       const std::vector<std::vector<int>>& state_descriptors) {
    const std::string text = head.dump();
    TRY_VOID(base::send_parcel(connection, std::as_bytes(std::span(text)), descriptors,
                               HandedOver::kPatience));
    for (std::size_t i = 0; i < states.size(); ++i)
        TRY_VOID(
            base::send_parcel(connection, states[i], state_descriptors[i], HandedOver::kPatience));
    const auto said = receive_byte(connection);
    if (!said && said.error().code != ErrorCode::kClosed) return tl::unexpected(said.error());
    return said && *said == kTaken;
}

}  // namespace openmana::manad

// SPDX-License-Identifier: Apache-2.0
#include "manad/take_over.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
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

/// What the one that comes says when it has all, or why it has not, and what the other one says
/// when it does nothing more.
constexpr char kTaken = 'T';
constexpr char kRefused = 'R';
constexpr char kEnds = 'E';
/// How long a process whose sockets are closed takes to its end, ms.
constexpr int kDying = 1000;
constexpr std::size_t kMaxAnswer = 64U << 10;
constexpr std::size_t kMaxWhy = 512;

/// One byte of the other process; kClosed if it has gone.
Result<char> receive_byte(int socket, base::Duration patience) {
    pollfd entry{socket, POLLIN, 0};
    const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(patience).count();
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

Result<json> answer_to(int socket, const json& request) {
    TRY_VOID(send_text(socket, request.dump() + "\n"));
    std::string line;
    for (char byte = 0; byte != '\n'; line += byte) {
        TRY(byte, receive_byte(socket, HandedOver::kPatience));
        if (line.size() > kMaxAnswer)
            return fail(ErrorCode::kProtocol, "the other process sends something else");
    }
    json answer = json::parse(line, nullptr, false);
    if (!answer.is_object())
        return fail(ErrorCode::kProtocol, "the other process sends something else");
    return answer;
}

}  // namespace

Result<std::unique_ptr<TakeOver>> TakeOver::ask(const std::string& control, pid_t main,
                                                std::string& why) {
    TRY(auto connection, base::connect_unix(control));
    std::unique_ptr<TakeOver> self(new TakeOver(std::move(connection)));
    const int socket = self->connection_.get();
    TRY(const json about, answer_to(socket, {{"command", "upgrade"}, {"action", "show"}}));
    self->heap_.emplace(about.value("heap_bytes", std::size_t{0}));
    TRY(const json answer,
        answer_to(socket,
                  {{"command", "take-over"}, {"format", HandedOver::kFormat}, {"main", main}}));
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
        !head.value("parcels", json()).is_array() ||
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
        else
            return broken();
    }
    handed_.pid = head.value("pid", pid_t{0});
    process_ = base::UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, handed_.pid, 0)));
    for (const json& entry : head["nics"]) {
        HandedOver::Nic& nic = handed_.nics.emplace_back();
        nic.name = text_of(entry, "name");
        nic.options = text_of(entry, "options");
        nic.came_later = entry.value("came_later", false);
        nic.paused = base::TimePoint(base::Duration(entry.value("paused", std::int64_t{0})));
        nic.policy = text_of(entry, "policy");
        nic.transmit_faults = text_of(entry, "transmit_faults");
        nic.receive_faults = text_of(entry, "receive_faults");
        nic.flaps = text_of(entry, "flaps");
        nic.flow_log = text_of(entry, "flow_log");
    }
    for (const json& entry : head["parcels"]) {
        TRY(base::Parcel parcel, base::receive_parcel(socket, HandedOver::kPatience));
        handed_.parcels[{text_of(entry, "kind"), text_of(entry, "name")}] =
            std::make_shared<base::Parcel>(std::move(parcel));
    }
    return {};
}

Result<HandedOver::Nic*> TakeOver::nic(const std::string& name) {
    const auto found = std::ranges::find(handed_.nics, name, &HandedOver::Nic::name);
    if (found == handed_.nics.end()) return nullptr;
    const auto wanted = static_cast<std::size_t>(found - handed_.nics.begin());
    for (; received_ <= wanted; ++received_) {
        TRY(handed_.nics[received_].state,
            base::receive_parcel(connection_.get(), HandedOver::kPatience));
    }
    return &*found;
}

Result<void> TakeOver::finish() {
    TRY_VOID(send_text(connection_.get(), std::string_view(&kTaken, 1)));
    const auto end = receive_byte(connection_.get(), HandedOver::kPatience);
    if (end && *end == kEnds) return {};
    // If it has ended on the way there is nobody else who could go on. That the connection is over
    // says less.
    pollfd entry{process_.get(), POLLIN, 0};
    if (!end && end.error().code == ErrorCode::kClosed && process_ &&
        ::poll(&entry, 1, kDying) == 1)
        return {};
    return fail(ErrorCode::kBusy, "the other process does not end");
}

void TakeOver::refuse(const std::string& why) {
    std::string text = kRefused + why.substr(0, kMaxWhy) + "\n";
    std::ranges::replace(text.begin(), text.end() - 1, '\n', ' ');
    (void)send_text(connection_.get(), text);
}

Result<void> HandOver::begin(const json& head, std::span<const int> descriptors) {
    TRY_VOID(send_text(connection_, json{{"ok", true}}.dump() + "\n"));
    const std::string text = head.dump();
    return base::send_parcel(connection_, std::as_bytes(std::span(text)), descriptors,
                             HandedOver::kPatience);
}

Result<void> HandOver::send(base::StateWriter state) {
    const auto used = state.descriptors();
    const std::vector<int> descriptors(used.begin(), used.end());
    return base::send_parcel(connection_, std::move(state).finish(), descriptors,
                             HandedOver::kPatience);
}

Result<void> HandOver::wait() {
    TRY(const char said, receive_byte(connection_, HandedOver::kPatience));
    if (said == kTaken) return {};
    refused_ = said == kRefused;
    if (refused_) return fail(ErrorCode::kPermission, "the other process does not go on");
    return fail(ErrorCode::kProtocol, "the other process says something else");
}

/// It may have said so while it was sent something.
std::string HandOver::why() {
    const auto next = [this] { return receive_byte(connection_, base::Duration{}); };
    std::string text;
    if (!refused_ && next().value_or(kTaken) != kRefused) return text;
    for (auto byte = next(); byte && *byte != '\n' && text.size() < kMaxWhy; byte = next())
        text += *byte;
    return text;
}

void HandOver::end() {
    (void)send_text(connection_, std::string_view(&kEnds, 1));
}

}  // namespace openmana::manad

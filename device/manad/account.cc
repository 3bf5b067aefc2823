// SPDX-License-Identifier: Apache-2.0
#include "manad/account.h"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>

#include <charconv>
#include <limits>
#include <map>
#include <optional>

namespace openmana::manad {
namespace {

/// An id by number; the largest one means "none" to the system.
std::optional<std::uint32_t> parse_id(const std::string& text) {
    std::uint32_t id = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
    if (error != std::errc{} || end != text.data() + text.size() ||
        id == std::numeric_limits<std::uint32_t>::max())
        return std::nullopt;
    return id;
}

/// What was asked for, by what it was asked for with.
struct Known {
    std::map<std::string, Account> users;
    std::map<std::string, gid_t> groups;
    bool all = false;
};
Known known;

auto unknown(const char* what, const std::string& text) {
    return tl::unexpected(
        known.all ? fmt::format("{} '{}' was not known when manad started: its number is needed",
                                what, text)
                  : fmt::format("there is no {} '{}'", what, text));
}

Parsed<Account> find_user(const std::string& text) {
    if (const auto found = known.users.find(text); found != known.users.end()) return found->second;
    const auto number = parse_id(text);
    const passwd* entry = nullptr;
    if (!known.all) entry = number ? ::getpwuid(*number) : ::getpwnam(text.c_str());
    if (entry != nullptr) return known.users[text] = Account{entry->pw_uid, entry->pw_gid, true};
    if (number) return Account{*number, std::numeric_limits<gid_t>::max(), false};
    return unknown("user", text);
}

Parsed<gid_t> find_group(const std::string& text) {
    if (const auto number = parse_id(text)) return *number;
    if (const auto found = known.groups.find(text); found != known.groups.end())
        return found->second;
    const group* const entry = known.all ? nullptr : ::getgrnam(text.c_str());
    if (entry == nullptr) return unknown("group", text);
    return known.groups[text] = entry->gr_gid;
}

}  // namespace

void know_no_more_accounts() {
    known.all = true;
}

Parsed<Account> parse_account(const std::string& text) {
    const std::size_t colon = text.find(':');
    auto account = find_user(text.substr(0, colon));
    if (!account) return account;
    if (colon != std::string::npos) {
        const auto group = find_group(text.substr(colon + 1));
        if (!group) return tl::unexpected(group.error());
        account->gid = *group;
    } else if (!account->listed) {
        return tl::unexpected(
            fmt::format("{} is nobody's number, so it needs a group: USER:GROUP", text));
    }
    return account;
}

Parsed<base::SocketAccess> parse_access(const std::string& text) {
    const std::size_t first = text.find(':');
    const std::size_t second = first == std::string::npos ? first : text.find(':', first + 1);
    if (second == std::string::npos)
        return tl::unexpected(fmt::format("'{}' is not USER:GROUP:MODE", text));
    const std::string user = text.substr(0, first);
    const std::string group = text.substr(first + 1, second - first - 1);
    const std::string digits = text.substr(second + 1);
    base::SocketAccess access;
    if (!user.empty()) {
        const auto found = find_user(user);
        if (!found) return tl::unexpected(found.error());
        access.owner = found->uid;
    }
    if (!group.empty()) {
        const auto found = find_group(group);
        if (!found) return tl::unexpected(found.error());
        access.group = *found;
        access.mode = 0660;
    }
    if (digits.empty()) return access;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), access.mode, 8);
    if (error != std::errc{} || end != digits.data() + digits.size() || access.mode > 0777)
        return tl::unexpected(fmt::format("{} is not a mode such as 0660", digits));
    return access;
}

}  // namespace openmana::manad

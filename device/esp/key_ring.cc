// SPDX-License-Identifier: Apache-2.0
#include "esp/key_ring.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace openmana::esp {
namespace {

using base::ErrorCode;
using base::fail;

std::atomic<std::uint64_t> next_id{1};

std::optional<unsigned> digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return std::nullopt;
}

/// Without what is behind a '#', and blanks at both ends.
std::string_view content_of(std::string_view line) {
    constexpr std::string_view kBlanks = " \t\r";
    line = line.substr(0, line.find('#'));
    const std::size_t first = line.find_first_not_of(kBlanks);
    if (first == std::string_view::npos) return {};
    return line.substr(first, line.find_last_not_of(kBlanks) + 1 - first);
}

}  // namespace

base::Result<void> KeyRing::add(std::string_view digits, std::size_t line, const KeyRing* before) {
    if (digits.size() != 2 * kPskBytes)
        return fail(ErrorCode::kInvalidArgument, "a key is 64 hex digits, one key a line", line);
    if (ids_.size() == kMaxKeys) return fail(ErrorCode::kInvalidArgument, "more than 8 keys", line);
    const std::size_t index = ids_.size();
    const auto bytes = pages_.bytes().subspan(index * kPskBytes, kPskBytes);
    unsigned any = 0;
    for (std::size_t i = 0; i < kPskBytes; ++i) {
        const auto high = digit_of(digits[2 * i]);
        const auto low = digit_of(digits[2 * i + 1]);
        if (!high || !low)
            return fail(ErrorCode::kInvalidArgument, "a key is 64 hex digits, one key a line",
                        line);
        bytes[i] = static_cast<std::byte>(*high << 4 | *low);
        any |= *high | *low;
    }
    if (any == 0) return fail(ErrorCode::kInvalidArgument, "a key of nothing but zeros", line);
    for (std::size_t i = 0; i < index; ++i)
        if (same_secret(key(i), bytes))
            return fail(ErrorCode::kInvalidArgument, "a key is there twice", line);
    std::optional<PskId> known;
    for (std::size_t i = 0; before != nullptr && i < before->size(); ++i)
        if (same_secret(before->key(i), bytes)) known = before->id(i);
    ids_.push_back(known ? *known : PskId(next_id.fetch_add(1, std::memory_order_relaxed)));
    return {};
}

base::Result<std::shared_ptr<const KeyRing>> KeyRing::parse(std::string_view text,
                                                            const KeyRing* before) {
    if (text.size() > kMaxText) return fail(ErrorCode::kInvalidArgument, "more than 4096 bytes");
    TRY(auto pages, SecretPages::create(kMaxKeys * kPskBytes));
    const std::shared_ptr<KeyRing> ring(new KeyRing(std::move(pages)));
    std::size_t line = 0;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        ++line;
        if (const auto content = content_of(text.substr(at, end - at)); !content.empty())
            TRY_VOID(ring->add(content, line, before));
        at = end + 1;
    }
    if (ring->size() == 0) return fail(ErrorCode::kInvalidArgument, "no key in it");
    return ring;
}

bool KeyRing::has(PskId id) const {
    return std::find(ids_.begin(), ids_.end(), id) != ids_.end();
}

}  // namespace openmana::esp

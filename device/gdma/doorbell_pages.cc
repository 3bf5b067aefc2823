// SPDX-License-Identifier: Apache-2.0
#include "gdma/doorbell_pages.h"

#include <algorithm>
#include <utility>

namespace openmana::gdma {

using base::ErrorCode;
using base::fail;
using base::Result;

Result<std::uint32_t> DoorbellPages::take(std::uint32_t count, std::uint32_t align,
                                          std::uint32_t from, DeviceType owner) {
    const auto total = static_cast<std::uint32_t>(pages_.size());
    if (count == 0 || align == 0 || count > total || from >= total)
        return fail(ErrorCode::kInvalidArgument, "no such range of doorbell pages", count, align);
    // Round robin, so that a page comes back late; the few pages make a search cheap.
    const std::uint32_t start = std::max(from, next_);
    for (std::uint32_t pass = 0; pass < 2; ++pass) {
        const std::uint32_t begin = pass == 0 ? start : from;
        // Alignments up to the number of pages: the sum cannot wrap.
        for (std::uint64_t first = (std::uint64_t{begin} + align - 1) / align * align;
             first <= total - count; first += align) {
            const auto at = pages_.begin() + static_cast<std::ptrdiff_t>(first);
            if (std::any_of(at, at + count, [](const auto& page) { return bool(page); })) continue;
            const auto number = static_cast<std::uint32_t>(first);
            for (std::uint32_t i = 0; i < count; ++i)
                pages_[number + i] = make_handle<PageGrant>(DoorbellPage(number + i), owner,
                                                            owner == kGuest && i == 0);
            next_ = (number + count) % total;
            return number;
        }
    }
    return fail(ErrorCode::kExhausted, "no doorbell page left", total);
}

Result<DoorbellPage> DoorbellPages::allocate_range(std::uint32_t count, std::uint32_t align,
                                                   std::uint32_t from) {
    TRY(const std::uint32_t first, take(count, align, from, kGuest));
    return DoorbellPage(first);
}

Result<Handle<PageGrant>> DoorbellPages::allocate(DeviceType owner) {
    TRY(const std::uint32_t page, take(1, 1, 0, owner));
    return pages_[page];
}

Result<void> DoorbellPages::free_range(std::uint32_t first, std::uint32_t count) {
    if (count == 0 || count > pages_.size() || first > pages_.size() - count)
        return fail(ErrorCode::kInvalidArgument, "no such doorbell pages", first, count);
    const auto of_guest = [&](std::size_t page, bool start) {
        return pages_[page] && pages_[page]->owner == kGuest && pages_[page]->starts_range == start;
    };
    const std::size_t end = std::size_t{first} + count;
    bool exact = of_guest(first, true) && (end == pages_.size() || !of_guest(end, false));
    for (std::size_t page = first + 1; page < end; ++page) exact = exact && of_guest(page, false);
    if (!exact) return fail(ErrorCode::kNotFound, "no such range of doorbell pages", first, count);
    for (std::size_t page = first; page < end; ++page)
        if (pages_[page]->holders() > 1)
            return fail(ErrorCode::kBusy, "doorbell page is in use", page);
    for (std::size_t page = first; page < end; ++page) pages_[page] = nullptr;
    return {};
}

void DoorbellPages::free(Handle<PageGrant> page) {
    pages_[page->page.value()] = nullptr;
}

Result<Handle<PageGrant>> DoorbellPages::find(DoorbellPage page) const {
    if (page.value() >= pages_.size() || !pages_[page.value()] ||
        pages_[page.value()]->owner == kHwcDevice)
        return fail(ErrorCode::kNotFound, "no such doorbell page", page.value());
    return pages_[page.value()];
}

Handle<PageGrant> DoorbellPages::held(DoorbellPage page) const {
    return page.value() < pages_.size() ? pages_[page.value()] : nullptr;
}

void DoorbellPages::save(base::StateWriter& out) const {
    out(next_);
    out.count(used());
    for (const Handle<PageGrant>& page : pages_)
        if (page) out(page->page, page->owner, page->starts_range);
}

void DoorbellPages::load(base::StateReader& in) {
    in(next_);
    in.require(next_ < pages_.size(), "doorbell page that there is not");
    for (std::size_t n = in.count(); n > 0 && in.ok(); --n) {
        const auto number = in.get<DoorbellPage>();
        const auto owner = in.get<DeviceType>();
        const auto starts = in.get<bool>();
        in.require(number.value() < pages_.size() && !pages_[number.value()] &&
                       (!starts || owner == kGuest),
                   "doorbell page that there is not, or is there twice");
        if (in.ok()) pages_[number.value()] = make_handle<PageGrant>(number, owner, starts);
    }
}

std::uint32_t DoorbellPages::used() const {
    return static_cast<std::uint32_t>(
        std::count_if(pages_.begin(), pages_.end(), [](const auto& page) { return bool(page); }));
}

void DoorbellPages::reset() {
    for (auto& page : pages_) page = nullptr;
    next_ = 0;
}

}  // namespace openmana::gdma

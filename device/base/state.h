// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/counters.h"
#include "base/endian.h"
#include "base/fd.h"
#include "base/result.h"

namespace openmana::base {

/// What is written and read of a type as one number: Strong, Psn.
template <typename T>
concept Numbered = std::is_class_v<T> && requires(const T& t) {
    { t.value() } -> std::integral;
    T(t.value());
};
/// A type that names its parts once, for both directions:
/// `template <typename Archive, typename Self> static void fields(Archive& a, Self& self)`.
template <typename Archive, typename T>
concept Fielded = requires(Archive& a, T& t) {
    std::remove_const_t<T>::fields(a, t);
};

/// Names a part of a state. Who reads it knows versions up to its own.
struct StateTag {
    consteval StateTag(const char (&text)[5])
        : value(static_cast<std::uint32_t>(static_cast<unsigned char>(text[0])) |
                static_cast<std::uint32_t>(static_cast<unsigned char>(text[1])) << 8 |
                static_cast<std::uint32_t>(static_cast<unsigned char>(text[2])) << 16 |
                static_cast<std::uint32_t>(static_cast<unsigned char>(text[3])) << 24) {}
    std::uint32_t value;
};

/// FNV-1a of a name, which stands for it.
[[nodiscard]] constexpr std::uint64_t name_hash(std::string_view name) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const char letter : name)
        hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
    return hash;
}

/// Writes a state: numbers little-endian, lists behind their lengths, times as what is left until
/// them, in parts that have a tag, a version and a length. A head with the length and a checksum of
/// all comes first (docs/state.md).
class StateWriter {
public:
    static constexpr bool kReads = false;

    explicit StateWriter(TimePoint now);

    template <typename... T>
    void operator()(const T&... values) {
        (put(values), ...);
    }
    /// Of an enum whose values go up to `last`.
    template <typename Enum>
    void choice(const Enum& value, Enum) {
        put(static_cast<std::underlying_type_t<Enum>>(value));
    }
    void bytes(std::span<const std::byte> data);
    /// A part: what is written until end().
    void begin(StateTag tag, std::uint16_t version);
    void end();
    /// What follows are so many of something.
    void count(std::size_t n) { put(static_cast<std::uint32_t>(n)); }
    /// A reader's check says nothing to who writes.
    void require(bool, const char*) {}
    /// A descriptor, or -1 for none, which goes beside the bytes: to another process of this host.
    void descriptor(int fd);
    /// Those, in their order. Still their owners'.
    [[nodiscard]] std::span<const int> descriptors() const { return descriptors_; }
    /// All of it, with its head.
    [[nodiscard]] std::vector<std::byte> finish() &&;

private:
    /// A state has some hundred thousand fields, and guests wait for all of them.
    void raw(const void* data, std::size_t size) {
        if (size > bytes_.size() - used_) [[unlikely]]
            grow(size);
        std::memcpy(bytes_.data() + used_, data, size);
        used_ += size;
    }
    void grow(std::size_t size);
    template <typename T>
    void put(const T& value) {
        if constexpr (std::is_same_v<T, bool>) {
            put(static_cast<std::uint8_t>(value));
        } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::byte>) {
            raw(&value, sizeof value);
        } else if constexpr (Numbered<T>) {
            put(value.value());
        } else {
            put_object(value);
        }
    }
    void put_object(const TimePoint& time) {
        put(static_cast<std::int64_t>((time - now_).count()));
    }
    void put_object(const Duration& time) { put(static_cast<std::int64_t>(time.count())); }
    void put_object(const Counter& counter) { put(counter.value()); }
    template <typename T>
    void put_object(const std::atomic<T>& value) {
        put(value.load(std::memory_order_relaxed));
    }
    template <typename T, std::size_t N>
    void put_object(const std::array<T, N>& values) {
        for (const T& value : values) put(value);
    }
    template <typename T, typename A>
    void put_object(const std::vector<T, A>& values) {
        list(values);
    }
    template <typename T>
    void put_object(const std::deque<T>& values) {
        list(values);
    }
    template <typename T>
    void put_object(const std::optional<T>& value) {
        put(value.has_value());
        if (value) put(*value);
    }
    template <typename T>
    requires Fielded<StateWriter, const T>
    void put_object(const T& value) { T::fields(*this, value); }
    template <typename List>
    void list(const List& values) {
        count(values.size());
        for (const auto& value : values) put(value);
    }

    const TimePoint now_;
    std::vector<std::byte> bytes_;  // with room behind what is used
    std::size_t used_ = 0;
    std::vector<std::size_t> open_;  // where the lengths of the parts are that are not complete
    std::vector<int> descriptors_;
};

/// Reads what a StateWriter has written. It may come from anybody: nothing in it is trusted. After
/// something that cannot be, every value is zero, and result() says what it was; so who reads looks
/// once in a while, and builds nothing of what was read before.
class StateReader {
public:
    static constexpr bool kReads = true;

    /// `state` and `descriptors`, which came with it, outlive it. An error: it is none, is not
    /// whole, or of a newer format.
    static Result<StateReader> open(std::span<const std::byte> state, TimePoint now,
                                    std::span<UniqueFd> descriptors = {});

    template <typename... T>
    void operator()(T&... values) {
        (take(values), ...);
    }
    template <typename T>
    [[nodiscard]] T get() {
        T value{};
        take(value);
        return value;
    }
    /// Of a list with at most so many.
    template <typename List>
    void at_most(std::size_t most, List& values) {
        list(values, most);
    }
    template <typename Enum>
    void choice(Enum& value, Enum last) {
        const auto number = get<std::underlying_type_t<Enum>>();
        require(number >= 0 && number <= static_cast<std::underlying_type_t<Enum>>(last),
                "no such kind");
        value = ok() ? static_cast<Enum>(number) : Enum{};
    }
    /// Good as long as the state.
    [[nodiscard]] std::span<const std::byte> bytes();
    /// The next descriptor; empty if there is none here.
    [[nodiscard]] UniqueFd descriptor();
    /// The part with this tag comes next. Its version, which is not above `newest`.
    std::uint16_t begin(StateTag tag, std::uint16_t newest);
    /// Nothing of it is left.
    void end();
    /// How many of something follow, each of which takes `least` bytes at least.
    [[nodiscard]] std::size_t count(std::size_t least = 1);

    [[nodiscard]] bool ok() const { return !error_; }
    /// Unless `good`, this is no state of ours: nothing more is read.
    void require(bool good, const char* text) {
        if (!good) [[unlikely]]
            refuse({ErrorCode::kInvalidArgument, text, at_, 0});
    }
    void refuse(const Error& error);
    [[nodiscard]] Result<void> result() const {
        if (error_) return tl::unexpected(*error_);
        return {};
    }

private:
    StateReader(std::span<const std::byte> state, TimePoint now, std::span<UniqueFd> descriptors)
        : now_(now), state_(state), descriptors_(descriptors), end_(state.size()) {}
    void raw(void* data, std::size_t size) {
        if (size > end_ - at_) [[unlikely]] {
            ends_early(data, size);
            return;
        }
        std::memcpy(data, state_.data() + at_, size);
        at_ += size;
    }
    void ends_early(void* data, std::size_t size);
    [[nodiscard]] TimePoint time_of(std::int64_t left) const;
    template <typename T>
    void take(T& value) {
        if constexpr (std::is_same_v<T, bool>) {
            const auto number = get<std::uint8_t>();
            require(number <= 1, "neither true nor false");
            value = number == 1;
        } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::byte>) {
            raw(&value, sizeof value);
        } else if constexpr (Numbered<T>) {
            const auto number = get<std::remove_cvref_t<decltype(value.value())>>();
            value = T(number);
            require(value.value() == number, "a number with too many bits");
        } else {
            take_object(value);
        }
    }
    void take_object(TimePoint& time) { time = time_of(get<std::int64_t>()); }
    void take_object(Duration& time) { time = time_of(get<std::int64_t>()) - now_; }
    void take_object(Counter& counter) { counter.add(get<std::uint64_t>() - counter.value()); }
    template <typename T>
    void take_object(std::atomic<T>& value) {
        value.store(get<T>(), std::memory_order_relaxed);
    }
    template <typename T, std::size_t N>
    void take_object(std::array<T, N>& values) {
        for (T& value : values) take(value);
    }
    template <typename T, typename A>
    void take_object(std::vector<T, A>& values) {
        list(values, SIZE_MAX);
    }
    template <typename T>
    void take_object(std::deque<T>& values) {
        list(values, SIZE_MAX);
    }
    template <typename T>
    void take_object(std::optional<T>& value) {
        value.reset();
        if (get<bool>()) take(value.emplace());
    }
    template <typename T>
    requires Fielded<StateReader, T>
    void take_object(T& value) { T::fields(*this, value); }
    template <typename List>
    void list(List& values, std::size_t most) {
        values.clear();
        const std::size_t number = count();
        require(number <= most, "more than there can be");
        for (std::size_t n = number; n > 0 && ok(); --n) take(values.emplace_back());
    }

    TimePoint now_;
    std::span<const std::byte> state_;
    std::span<UniqueFd> descriptors_;  // those that were not taken yet
    std::size_t at_ = 0;
    std::size_t end_ = 0;               // of the part that is read
    std::vector<std::size_t> outer_{};  // those of the parts around it
    std::optional<Error> error_{};
};

/// The counters of a layer, by their names: who reads them may know others. `Counters` is a type of
/// OM_COUNTERS.
template <typename Counters>
void save_counters(StateWriter& out, const Counters& counters) {
    out.count(std::size(Counters::kInfo));
    counters.visit(
        [&](const CounterInfo& info, std::uint64_t value) { out(name_hash(info.name), value); });
}
/// Into those of a layer that has counted nothing that has to stay.
template <typename Counters>
void load_counters(StateReader& in, Counters& counters) {
    constexpr std::size_t kMost = 4096;  // no version has as many
    std::unordered_map<std::uint64_t, std::uint64_t> values;
    const std::size_t count = in.count(2 * sizeof(std::uint64_t));
    in.require(count <= kMost, "more counters than there can be");
    for (std::size_t n = count; n > 0 && in.ok(); --n) {
        const auto name = in.get<std::uint64_t>();
        values[name] = in.get<std::uint64_t>();
    }
    if (!in.ok()) return;
    counters.each([&](const CounterInfo& info, Counter& counter) {
        if (const auto found = values.find(name_hash(info.name)); found != values.end())
            counter.add(found->second - counter.value());
    });
}

}  // namespace openmana::base

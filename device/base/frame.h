// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace openmana::base {

class FrameView;

/// An Ethernet frame from the destination MAC on, without FCS.
class Frame : public std::vector<std::byte> {
public:
    using vector::vector;
    Frame() = default;
    Frame(std::vector<std::byte> bytes) : vector(std::move(bytes)) {}
    explicit Frame(FrameView view);

    /// True if it is a RoCE packet of this process whose ICRC nobody has put in: room is there for
    /// it, and zeros are in it. What looks at bytes, changes them, or takes them out of the process
    /// has the ICRC put in first (roce::put_icrc); who gets such a frame checks none.
    [[nodiscard]] bool lacks_icrc() const { return lacks_icrc_; }
    void set_lacks_icrc(bool lacks) { lacks_icrc_ = lacks; }

    using vector::assign;
    void assign(FrameView view);
    void swap(Frame& other) noexcept {
        vector::swap(other);
        std::swap(lacks_icrc_, other.lacks_icrc_);
    }
    friend void swap(Frame& a, Frame& b) noexcept { a.swap(b); }

private:
    bool lacks_icrc_ = false;
};

/// A frame in somebody else's memory.
class FrameView : public std::span<const std::byte> {
public:
    FrameView() = default;
    FrameView(std::span<const std::byte> bytes) : span(bytes) {}
    FrameView(const Frame& frame)
        : span(frame.data(), frame.size()), lacks_icrc_(frame.lacks_icrc()) {}
    FrameView(const std::byte* bytes, std::size_t size) : span(bytes, size) {}
    /// Other bytes, as a vector or an array has them.
    template <std::ranges::contiguous_range Bytes>
    requires(std::convertible_to<Bytes&, std::span<const std::byte>> &&
             !std::derived_from<std::remove_cvref_t<Bytes>, Frame> &&
             !std::derived_from<std::remove_cvref_t<Bytes>, span>) FrameView(Bytes&& bytes)
        : span(bytes) {}

    /// As Frame has it.
    [[nodiscard]] bool lacks_icrc() const { return lacks_icrc_; }
    void set_lacks_icrc(bool lacks) { lacks_icrc_ = lacks; }

private:
    bool lacks_icrc_ = false;
};
/// Several in the order in which they go.
using FrameViews = std::span<const FrameView>;

inline Frame::Frame(FrameView view)
    : vector(view.begin(), view.end()), lacks_icrc_(view.lacks_icrc()) {}

inline void Frame::assign(FrameView view) {
    vector::assign(view.begin(), view.end());
    lacks_icrc_ = view.lacks_icrc();
}

/// A MAC address in transmission order.
using MacAddr = std::array<std::uint8_t, 6>;

/// Takes frames from a layer below towards the network.
class FrameSink {
public:
    virtual ~FrameSink() = default;
    /// Called on the sender's executor, outside any visit of a Gate.
    virtual void transmit(Frame frame) = 0;
};

}  // namespace openmana::base

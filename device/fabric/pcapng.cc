// SPDX-License-Identifier: Apache-2.0
#include "fabric/pcapng.h"

#include <algorithm>
#include <cstring>

#include "base/endian.h"

namespace openmana::fabric {
namespace {

constexpr std::uint32_t kSection = 0x0a0d0d0a;
constexpr std::uint32_t kByteOrder = 0x1a2b3c4d;
constexpr std::uint32_t kInterface = 1;
constexpr std::uint32_t kPacket = 6;
constexpr std::uint16_t kEthernet = 1;                             // LINKTYPE_ETHERNET
constexpr std::uint16_t kEnd = 0, kName = 2, kTimeResolution = 9;  // options
constexpr std::uint8_t kNanoseconds = 9;

constexpr std::size_t padded(std::size_t size) {
    return (size + 3) / 4 * 4;
}

/// Blocks, one behind the other. Each has its length at both ends.
class Blocks {
public:
    template <typename T>
    void put(T value) {
        bytes_.resize(bytes_.size() + sizeof value);
        base::store_le<T>(bytes_.data() + bytes_.size() - sizeof value, value);
    }
    void option(std::uint16_t code, std::span<const std::byte> value) {
        put(code);
        put(static_cast<std::uint16_t>(value.size()));
        bytes_.insert(bytes_.end(), value.begin(), value.end());
        bytes_.resize(padded(bytes_.size()));
    }
    void begin(std::uint32_t type) {
        begin_ = bytes_.size();
        put(type);
        put(std::uint32_t{0});
    }
    void end() {
        const auto length =
            static_cast<std::uint32_t>(bytes_.size() - begin_ + sizeof(std::uint32_t));
        base::store_le<std::uint32_t>(bytes_.data() + begin_ + sizeof length, length);
        put(length);
    }
    [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

private:
    std::vector<std::byte> bytes_;
    std::size_t begin_ = 0;
};

void put_interface(Blocks& blocks, const std::string& name, std::uint32_t snap_length) {
    blocks.begin(kInterface);
    blocks.put(kEthernet);
    blocks.put(std::uint16_t{0});
    blocks.put(snap_length);
    blocks.option(kName, std::as_bytes(std::span(name)));
    blocks.option(kTimeResolution, std::as_bytes(std::span(&kNanoseconds, 1)));
    blocks.option(kEnd, {});
    blocks.end();
}

}  // namespace

std::vector<std::byte> pcapng_interface(const std::string& name, std::uint32_t snap_length) {
    Blocks blocks;
    put_interface(blocks, name, snap_length);
    return blocks.take();
}

std::vector<std::byte> pcapng_header(std::span<const std::string> interfaces,
                                     std::uint32_t snap_length) {
    Blocks blocks;
    blocks.begin(kSection);
    blocks.put(kByteOrder);
    blocks.put(std::uint16_t{1});  // version 1.0
    blocks.put(std::uint16_t{0});
    blocks.put(~std::uint64_t{0});  // nobody knows how long it gets
    blocks.end();
    for (const std::string& name : interfaces) put_interface(blocks, name, snap_length);
    return blocks.take();
}

PcapngPacket::PcapngPacket(std::uint32_t interface, std::uint64_t nanoseconds, std::uint32_t kept,
                           std::uint32_t length) {
    const std::size_t padding = padded(kept) - kept;
    tail_size = padding + sizeof(std::uint32_t);
    const auto total = static_cast<std::uint32_t>(kHead + kept + tail_size);
    std::byte* at = head.data();
    for (const std::uint32_t field :
         {kPacket, total, interface, static_cast<std::uint32_t>(nanoseconds >> 32),
          static_cast<std::uint32_t>(nanoseconds), kept, length}) {
        base::store_le<std::uint32_t>(at, field);
        at += sizeof field;
    }
    base::store_le<std::uint32_t>(tail.data() + padding, total);
}

}  // namespace openmana::fabric

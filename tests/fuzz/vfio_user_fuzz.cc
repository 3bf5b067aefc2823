// SPDX-License-Identifier: Apache-2.0
// What a vfio-user client can send: bytes, and messages that are framed well, with file descriptors
// of all kinds, cut anywhere, against the real PCI endpoint. All that comes back must be whole
// replies.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <deque>
#include <optional>

#include "fuzz.h"
#include "pci/endpoint.h"
#include "vfio_user/session.h"

using namespace openmana;

namespace {

/// BAR0 without a NIC behind it; bar_fuzz.cc looks at that.
class PlainModel final : public pci::FunctionModel {
public:
    [[nodiscard]] std::uint64_t bar0_size() const override { return 1U << 20; }
    void bar0_read(std::uint64_t offset, std::span<std::byte> data) override {
        fuzz::require(data.size() <= bar0_size() && offset <= bar0_size() - data.size(),
                      "read outside BAR0");
        std::ranges::fill(data, std::byte{0x5a});
    }
    void bar0_write(std::uint64_t offset, std::span<const std::byte> data) override {
        fuzz::require(data.size() <= bar0_size() && offset <= bar0_size() - data.size(),
                      "write outside BAR0");
    }
    void reset() override {}
};

struct Connection {
    Connection() : endpoint(memory, {}) {
        endpoint.attach(model, gate);
        open();
    }
    void open() { session.emplace(endpoint, counters, "fuzz"); }
    void end() {
        session.reset();
        endpoint.client_gone();
        fuzz::require(memory.range_count() == 0,
                      "guest memory stays mapped after the client has gone");
        open();
    }
    void take_output(std::size_t limit) {
        const auto output = session->output().first(std::min(limit, session->output().size()));
        pending.insert(pending.end(), output.begin(), output.end());
        session->sent(output.size());
        while (pending.size() >= sizeof(vfio_user::Header)) {
            vfio_user::Header header;
            std::copy_n(pending.begin(), sizeof header, reinterpret_cast<std::byte*>(&header));
            fuzz::require(
                header.size >= sizeof header && header.size <= vfio_user::kMaxMessage + 4096,
                "size of a reply");
            fuzz::require((header.flags & vfio_user::kTypeMask) == vfio_user::kTypeReply,
                          "type of a reply");
            if (pending.size() < header.size) break;
            pending.erase(pending.begin(), pending.begin() + header.size);
        }
    }
    void feed(std::span<const std::byte> bytes, std::vector<base::UniqueFd> fds) {
        while (!bytes.empty() || !fds.empty()) {
            while (session->backlog()) {
                take_output(SIZE_MAX);
                if (!session->resume()) return end_of_stream();
            }
            const auto room = session->receive_room();
            fuzz::require(!room.empty(), "no room without a backlog");
            const std::size_t n = std::min(room.size(), bytes.size());
            if (n == 0) return;
            std::copy_n(bytes.begin(), n, room.begin());
            bytes = bytes.subspan(n);
            const bool good = session->receive(n, fds).has_value();
            fds.clear();
            if (!good) return end_of_stream();
        }
    }
    void end_of_stream() {
        pending.clear();
        end();
    }

    base::GuestMemory memory;
    base::Gate gate;
    pci::Endpoint endpoint;
    PlainModel model;
    vfio_user::Counters counters;
    std::optional<vfio_user::Session> session;
    std::deque<std::byte> pending;
};

base::UniqueFd some_fd(test::Choices& choices) {
    switch (choices.below(4)) {
        case 0: {
            base::UniqueFd fd(::memfd_create("fuzz", MFD_CLOEXEC));
            fuzz::require(::ftruncate(fd.get(), 16 * 4096) == 0, "ftruncate");
            return fd;
        }
        case 1:
            return base::UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
        case 2:
            return base::UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC));
        default:
            return base::UniqueFd(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
    }
}

template <typename T>
void put(std::vector<std::byte>& to, T value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    to.insert(to.end(), bytes.begin(), bytes.end());
}

/// A number that is small and plain, or not.
std::uint32_t about(test::Choices& choices, std::uint32_t plain) {
    return choices.chance(48) ? static_cast<std::uint32_t>(choices.number()) : plain;
}

using Bytes = std::vector<std::byte>;

/// One of `bound` multiples of `unit`, from `first` on, or any number.
std::uint64_t wide(test::Choices& choices, std::uint64_t bound, std::uint64_t unit,
                   std::uint64_t first = 0) {
    return choices.chance(32) ? choices.number() : (first + choices.below(bound)) * unit;
}

void put_version(test::Choices& choices, Bytes& body) {
    put<std::uint16_t>(body, 0);
    put<std::uint16_t>(body, 1);
    static constexpr const char* kTexts[] = {
        "{\"capabilities\":{\"max_msg_fds\":8,\"write_multiple\":true}}",
        "{\"capabilities\":{\"max_data_xfer_size\":4096,\"migration\":{\"pgsize\":4096}}}",
        "{}",
        "{\"capabilities\":{\"max_msg_fds\":-1}}",
        "[[[[",
        ""};
    const std::string_view text = choices.pick(kTexts);
    for (const char c : text) body.push_back(static_cast<std::byte>(c));
    if (!choices.chance(16)) body.push_back(std::byte{0});
}

void put_dma_map(test::Choices& choices, Bytes& body) {
    put(body, about(choices, 32));
    put(body, about(choices, 3));
    put<std::uint64_t>(body, wide(choices, 4, 4096));
    put<std::uint64_t>(body, wide(choices, 16, 65536));
    put<std::uint64_t>(body, wide(choices, 16, 4096, 1));
}

void put_dma_unmap(test::Choices& choices, Bytes& body) {
    put(body, about(choices, 24));
    put(body, choices.chance(32) ? about(choices, 2) : 0U);
    put<std::uint64_t>(body, wide(choices, 16, 65536));
    put<std::uint64_t>(body, wide(choices, 16, 4096, 1));
}

/// Regions and interrupts: `bytes` of a message of this kind.
void put_info(test::Choices& choices, Bytes& body, std::uint32_t bytes) {
    put(body, about(choices, bytes));
    put(body, 0U);
    put(body, about(choices, static_cast<std::uint32_t>(choices.below(10))));
    while (body.size() < bytes) put(body, 0U);
}

void put_set_irqs(test::Choices& choices, Bytes& body) {
    const auto count = static_cast<std::uint32_t>(choices.below(9));
    static constexpr std::uint32_t kFlags[] = {0x24, 0x21, 0x22, 0x09, 0x11, 0x0a, 0x12};
    const std::uint32_t flags = about(choices, choices.pick(kFlags));
    put(body, about(choices, 20 + ((flags & 2) != 0 ? count : 0)));
    put(body, flags);
    put(body, about(choices, 2));
    put(body, about(choices, static_cast<std::uint32_t>(choices.below(65))));
    put(body, about(choices, count));
    if ((flags & 2) != 0)
        for (std::uint32_t i = 0; i < count; ++i)
            body.push_back(static_cast<std::byte>(choices.byte() & 1));
}

void put_region_access(test::Choices& choices, Bytes& body, bool write) {
    const std::uint32_t length = choices.chance(24)
                                     ? 4096U * static_cast<std::uint32_t>(choices.below(257))
                                     : 1U << choices.below(4);
    static constexpr std::uint32_t kRegions[] = {0, 7, 4, 2};
    put<std::uint64_t>(body, wide(choices, 4096, 1));
    put(body, about(choices, choices.pick(kRegions)));
    put(body, about(choices, length));
    if (write)
        for (std::uint32_t i = 0; i < length; ++i)
            body.push_back(i < 64 ? static_cast<std::byte>(choices.byte()) : std::byte{0});
}

void put_region_writes(test::Choices& choices, Bytes& body) {
    const std::uint64_t count = choices.below(20);
    put<std::uint64_t>(body, choices.chance(32) ? choices.number() : count);
    for (std::uint64_t i = 0; i < count; ++i) {
        put<std::uint64_t>(body, choices.below(8192));
        put(body, about(choices, 0));
        put(body, about(choices, static_cast<std::uint32_t>(choices.below(9))));
        put<std::uint64_t>(body, choices.value<std::uint64_t>());
    }
}

Bytes body_of(test::Choices& choices, vfio_user::Command command) {
    using vfio_user::Command;
    Bytes body;
    switch (command) {
        case Command::kVersion:
            put_version(choices, body);
            break;
        case Command::kDmaMap:
            put_dma_map(choices, body);
            break;
        case Command::kDmaUnmap:
            put_dma_unmap(choices, body);
            break;
        case Command::kDeviceGetInfo:
            put(body, about(choices, 16));
            for (int i = 0; i < 3; ++i) put(body, 0U);
            break;
        case Command::kGetRegionInfo:
        case Command::kGetRegionIoFds:
            put_info(choices, body, 32);
            break;
        case Command::kGetIrqInfo:
            put_info(choices, body, 16);
            break;
        case Command::kSetIrqs:
            put_set_irqs(choices, body);
            break;
        case Command::kRegionRead:
        case Command::kRegionWrite:
            put_region_access(choices, body, command == Command::kRegionWrite);
            break;
        case Command::kRegionWriteMulti:
            put_region_writes(choices, body);
            break;
        default:
            body = choices.bytes(choices.byte());
            break;
    }
    if (choices.chance(16)) body.resize(choices.below(body.size() + 8));
    return body;
}

Bytes message(test::Choices& choices) {
    const auto command = static_cast<vfio_user::Command>(1 + choices.below(16));
    const Bytes body = body_of(choices, command);
    Bytes whole;
    const vfio_user::Header header{
        .id = choices.value<std::uint16_t>(),
        .command = command,
        .size = about(choices, static_cast<std::uint32_t>(16 + body.size())),
        .flags = choices.chance(96) ? vfio_user::kFlagNoReply : about(choices, 0),
        .error = 0};
    // A size that is a lie ends the conversation or makes the next message part of this one;
    // seldom, therefore.
    put(whole, header);
    if (header.size != 16 + body.size() && !choices.chance(32))
        base::store_le(whole.data() + 4, static_cast<std::uint32_t>(16 + body.size()));
    whole.insert(whole.end(), body.begin(), body.end());
    return whole;
}

void negotiate(Connection& connection) {
    std::vector<std::byte> hello;
    put(hello,
        vfio_user::Header{
            .id = 1, .command = vfio_user::Command::kVersion, .size = 23, .flags = 0, .error = 0});
    put<std::uint16_t>(hello, 0);
    put<std::uint16_t>(hello, 1);
    for (const char c : {'{', '}', '\0'}) hello.push_back(static_cast<std::byte>(c));
    connection.feed(hello, {});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    test::InputChoices choices({data, size});
    Connection connection;
    if (!choices.chance(32)) negotiate(connection);
    for (unsigned step = 0; step < fuzz::kMaxSteps && choices.more(); ++step) {
        const std::uint8_t kind = choices.byte();
        std::vector<base::UniqueFd> fds;
        if (kind % 4 == 1)
            for (std::uint64_t n = 1 + choices.below(choices.chance(16) ? 20 : 4); n > 0; --n)
                fds.push_back(some_fd(choices));
        if (kind < 200) {
            std::vector<std::byte> bytes = message(choices);
            // The stream is cut where it likes.
            std::size_t cut = choices.chance(48) ? choices.below(bytes.size()) : 0;
            if (cut != 0) connection.feed(std::span(bytes).first(cut), {});
            connection.feed(std::span(bytes).subspan(cut), std::move(fds));
        } else if (kind < 216) {
            connection.feed(choices.bytes(1 + choices.byte()), std::move(fds));
        } else if (kind < 224) {
            connection.end_of_stream();
            negotiate(connection);
        } else if (kind < 232) {
            connection.endpoint.raise(choices.byte());
        } else {
            connection.take_output(choices.chance(64) ? choices.value<std::uint16_t>() : SIZE_MAX);
        }
    }
    connection.end();
    return 0;
}

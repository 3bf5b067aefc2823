// SPDX-License-Identifier: Apache-2.0
// What a vfio-user client can send: bytes, and messages that are framed well, with file descriptors
// of all kinds, cut anywhere, against the real PCI endpoint. All that comes back must be whole
// replies.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <deque>
#include <initializer_list>
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

/// Moves with all that the endpoint is; what the calls before it promise is checked.
class PlainMovable final : public vfio_user::MovableDevice {
public:
    PlainMovable(base::GuestMemory& memory, pci::Endpoint& endpoint)
        : memory_(memory), endpoint_(endpoint) {}
    void stop() override {
        fuzz::require(!stopped_, "stopped twice");
        stopped_ = true;
        endpoint_.stop();
    }
    void start() override {
        fuzz::require(stopped_, "started twice");
        stopped_ = false;
        endpoint_.start(true);
    }
    base::Result<std::vector<std::byte>> save() override {
        fuzz::require(stopped_, "saved while it runs");
        base::StateWriter out{base::TimePoint()};
        endpoint_.save(out);
        saved = std::move(out).finish();
        return saved;
    }
    base::Result<void> load(std::span<const std::byte> state) override {
        fuzz::require(stopped_, "loaded while it runs");
        endpoint_.forget();
        TRY(auto in, base::StateReader::open(state, base::TimePoint()));
        endpoint_.load(in);
        if (!in.ok()) endpoint_.forget();
        return in.result();
    }
    std::vector<std::byte> saved;  ///< the last that it was
    [[nodiscard]] std::size_t expected_state() const override { return saved.size(); }
    [[nodiscard]] std::size_t max_state() const override { return 100000; }
    base::Result<void> log_writes() override { return memory_.log_writes(); }
    void log_no_writes() override { memory_.log_no_writes(); }
    base::Result<void> report_writes(std::uint64_t address, std::uint64_t length,
                                     std::uint64_t unit, std::span<std::byte> bits) override {
        if (!memory_.logs_writes())
            return base::fail(base::ErrorCode::kInvalidArgument, "no write log is kept");
        memory_.take_written(base::GuestAddr(address), length,
                             {base::GuestAddr(address), unit, bits});
        return {};
    }
    void client_gone() override {
        memory_.log_no_writes();
        if (stopped_) start();
    }
    void retain() override {
        memory_.log_no_writes();
        if (!stopped_) stop();
        endpoint_.give_back();
    }

private:
    base::GuestMemory& memory_;
    pci::Endpoint& endpoint_;
    bool stopped_ = false;
};

struct Connection {
    Connection() : endpoint(memory, {}), movable(memory, endpoint) {
        endpoint.attach(model, gate);
        open();
    }
    void open(vfio_user::DeviceState left = vfio_user::DeviceState::kRunning) {
        session.emplace(endpoint, counters, "fuzz", &movable, left);
    }
    /// Each other client leaves the device for the next one.
    void end() {
        const bool retained = retains && session->retainable();
        retains = !retains;
        session.reset();
        if (retained) {
            movable.retain();
        } else {
            endpoint.client_gone();
            movable.client_gone();
        }
        fuzz::require(memory.range_count() == 0,
                      "guest memory stays mapped after the client has gone");
        open(retained ? vfio_user::DeviceState::kStop : vfio_user::DeviceState::kRunning);
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
    PlainMovable movable;
    PlainModel model;
    vfio_user::Counters counters;
    std::optional<vfio_user::Session> session;
    bool retains = false;
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

void put_feature(test::Choices& choices, Bytes& body) {
    static constexpr std::uint32_t kFeatures[] = {2, 2, 2, 1, 6, 7, 8, 9};
    const std::uint32_t feature = choices.pick(kFeatures);
    // What can be done with it, as a rule; get, set and probe are bits.
    const std::uint32_t natural = feature == 2 || feature == 6 || feature == 7 ? 2 : 1;
    const auto operation =
        choices.chance(48) ? static_cast<std::uint32_t>(choices.below(16)) : natural;
    const std::uint32_t length = feature == 2 ? 16 : feature == 7 ? 8 : 65536;
    put(body, about(choices, length));
    put(body, about(choices, operation << 16 | feature));
    switch (feature) {
        case 2:  // device state
            put(body, about(choices, 1 + static_cast<std::uint32_t>(choices.below(5))));
            put(body, 0U);
            break;
        case 6: {  // begin of logging
            const auto count = static_cast<std::uint32_t>(choices.below(3));
            put<std::uint64_t>(body, choices.chance(32) ? choices.number() : 4096);
            put(body, about(choices, count));
            put(body, 0U);
            for (std::uint32_t i = 0; i < count; ++i) {
                put<std::uint64_t>(body, wide(choices, 16, 65536));
                put<std::uint64_t>(body, wide(choices, 16, 4096, 1));
            }
            break;
        }
        case 8:  // report
            put<std::uint64_t>(body, wide(choices, 16, 65536));
            put<std::uint64_t>(body, wide(choices, 300, 4096, 1));
            put<std::uint64_t>(body,
                               choices.chance(32) ? choices.number() : 4096ULL << choices.below(3));
            break;
        default:
            break;
    }
}

void put_data_read(test::Choices& choices, Bytes& body) {
    const auto size = about(choices, static_cast<std::uint32_t>(choices.below(5000)));
    put(body, about(choices, size + 8));
    put(body, size);
}

/// Part of a state that was saved, which may have been changed; or anything.
void put_data_write(test::Choices& choices, Bytes& body, const Bytes& saved) {
    Bytes data = choices.chance(32) ? choices.bytes(choices.byte()) : saved;
    if (!data.empty() && choices.chance(64))
        data[choices.below(data.size())] = static_cast<std::byte>(choices.byte());
    put(body, about(choices, static_cast<std::uint32_t>(8 + data.size())));
    put(body, about(choices, static_cast<std::uint32_t>(data.size())));
    body.insert(body.end(), data.begin(), data.end());
}

Bytes body_of(test::Choices& choices, vfio_user::Command command, const Bytes& saved) {
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
        case Command::kDeviceFeature:
            put_feature(choices, body);
            break;
        case Command::kMigDataRead:
            put_data_read(choices, body);
            break;
        case Command::kMigDataWrite:
            put_data_write(choices, body, saved);
            break;
        default:
            body = choices.bytes(choices.byte());
            break;
    }
    if (choices.chance(16)) body.resize(choices.below(body.size() + 8));
    return body;
}

Bytes message(test::Choices& choices, const Bytes& saved) {
    // Half of them are those by which a device moves, for that takes several in the right order.
    const std::uint64_t kind = choices.below(36);
    const auto command = static_cast<vfio_user::Command>(kind < 18 ? 1 + kind : 16 + kind % 3);
    const Bytes body = body_of(choices, command, saved);
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

/// What a move takes, in its order: out of the device, and back into it. Any of it may be left out,
/// and what was saved may be changed on the way.
void move(test::Choices& choices, Connection& connection) {
    using vfio_user::Command;
    const auto send = [&](Command command, const Bytes& body) {
        if (choices.chance(16)) return;
        Bytes whole;
        put(whole, vfio_user::Header{.id = 2,
                                     .command = command,
                                     .size = static_cast<std::uint32_t>(16 + body.size()),
                                     .flags = 0,
                                     .error = 0});
        whole.insert(whole.end(), body.begin(), body.end());
        connection.feed(whole, {});
    };
    const auto numbers = [](std::initializer_list<std::uint32_t> values) {
        Bytes body;
        for (const std::uint32_t value : values) put(body, value);
        return body;
    };
    const auto go = [&](std::uint32_t state) {
        send(Command::kDeviceFeature, numbers({16, 2U << 16 | 2, state, 0}));
    };
    send(Command::kDeviceFeature, numbers({24, 2U << 16 | 6, 4096, 0, 0, 0}));
    go(3);
    send(Command::kMigDataRead, numbers({65544, 65536}));
    send(Command::kDeviceFeature, numbers({4096, 1U << 16 | 8, 0, 0, 1U << 20, 0, 4096, 0}));
    go(4);
    Bytes data;
    put_data_write(choices, data, connection.movable.saved);
    send(Command::kMigDataWrite, data);
    go(choices.chance(128) ? 1 : 2);
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
            std::vector<std::byte> bytes = message(choices, connection.movable.saved);
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
        } else if (kind < 240) {
            move(choices, connection);
        } else {
            connection.take_output(choices.chance(64) ? choices.value<std::uint16_t>() : SIZE_MAX);
        }
    }
    connection.end();
    return 0;
}

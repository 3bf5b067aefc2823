// SPDX-License-Identifier: Apache-2.0
// What the other end of an uplink sends: a stream of frames behind their lengths, cut anywhere and
// with lengths that are lies, or datagrams, or those of a VXLAN tunnel with what a table says of
// it; through real sockets, guard, switch and the stages of a port to a NIC at work. What the
// uplink counts must be what was sent, however the stream was cut.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>

#include "base/event_loop.h"
#include "base/unix_socket.h"
#include "fabric/capture.h"
#include "fabric/uplink.h"
#include "fabric/vxlan.h"
#include "fabric/vxlan_uplink.h"
#include "frame_rig.h"

using namespace openmana;

namespace {

constexpr std::size_t kLengthBytes = 4;
constexpr unsigned kMaxTurns = 64;

/// Where sockets are; goes with the process.
struct Folder {
    Folder() {
        char name[] = "/tmp/openmana-fuzz-XXXXXX";
        fuzz::require(::mkdtemp(name) != nullptr, "mkdtemp");
        path = name;
    }
    ~Folder() { std::filesystem::remove_all(path); }
    std::string path;
};

base::EventLoop& shared_loop() {
    static const std::unique_ptr<base::EventLoop> loop = std::move(*base::EventLoop::create());
    return *loop;
}

const std::string& socket_path() {
    static const Folder folder;
    static const std::string path = folder.path + "/uplink";
    return path;
}

fabric::SocketAddress address_of(const base::UniqueFd& fd) {
    fabric::SocketAddress address;
    address.length = sizeof address.storage;
    fuzz::require(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address.storage),
                                &address.length) == 0,
                  "getsockname");
    return address;
}

/// A UDP socket on any port of the loopback.
base::UniqueFd udp_socket() {
    base::UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    fuzz::require(fd && ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0,
                  "UDP socket");
    return fd;
}

/// What a stream uplink makes of bytes, in the plainest way: how many frames, and whether the
/// connection lives.
class Expectation {
public:
    void restart() {
        pending_.clear();
        ended_ = false;
    }
    void bytes(std::span<const std::byte> bytes) {
        if (ended_) return;
        pending_.insert(pending_.end(), bytes.begin(), bytes.end());
        while (pending_.size() >= kLengthBytes) {
            std::array<std::byte, kLengthBytes> word;
            std::copy_n(pending_.begin(), word.size(), word.begin());
            const std::size_t length = base::load_be<std::uint32_t>(word.data());
            if (length == 0 || length > fuzz::kMaxFrame) {
                ended_ = true;
                ++errors;
                return;
            }
            if (pending_.size() - kLengthBytes < length) return;
            const auto end = pending_.begin() + static_cast<std::ptrdiff_t>(kLengthBytes + length);
            pending_.erase(pending_.begin(), end);
            ++frames;
        }
    }
    [[nodiscard]] bool ended() const { return ended_; }
    std::uint64_t frames = 0;
    std::uint64_t errors = 0;

private:
    std::deque<std::byte> pending_;
    bool ended_ = false;
};

/// Takes what captures and flow logs would write.
class Nowhere final : public fabric::FlowSink, public fabric::FrameTap {
public:
    void line(std::string_view) override {}
    void frame(std::span<const std::byte>) override {}
};

/// Rules and stages of the NIC's port, all of which read frames that come from outside.
void set_stages(fuzz::FrameRig& rig, std::uint8_t which) {
    fabric::PortPath& path = rig.nic.nic.path();
    const auto sink = std::make_shared<Nowhere>();
    if ((which & 1) != 0) {
        fabric::PolicyConfig policy;
        policy.check_mac = true;
        if ((which & 2) != 0) policy.flow_log = "-";
        auto acl = fabric::Acl::parse(
            "deny rx icmp; allow rx rdma from 10.0.0.0/8; deny rx udp to any port 1-1024");
        fuzz::require(acl.has_value(), "access rules");
        policy.acl = std::move(*acl);
        path.set_policy(policy, sink, base::WallTime());
    }
    if ((which & 4) != 0) path.set_capture(sink);
    if ((which & 8) != 0) {
        fabric::FaultConfig faults;
        faults.duplicate_ppm = 100000;
        faults.reorder_ppm = 100000;
        faults.corrupt_ppm = 100000;
        path.set_faults(fabric::Direction::kReceive, faults);
    }
}

/// One uplink of the rig's switch with the fuzzer at its other end.
class Wire {
public:
    explicit Wire(fuzz::FrameRig& rig) : rig_(rig) {}
    virtual ~Wire() = default;
    virtual void send(test::Choices& choices, const base::Frame& frame) = 0;
    virtual void nonsense(test::Choices& choices) = 0;
    virtual void take() = 0;
    virtual void restart() {}
    virtual void check() const = 0;

protected:
    /// One look of the uplink at its descriptors, then all that follows from it.
    void turn() {
        shared_loop().post([] { shared_loop().stop(); });
        shared_loop().run();
        rig_.world.run_until_idle();
    }
    void make(const fabric::UplinkConfig& config) {
        auto made = fabric::Uplink::create(shared_loop(), rig_.network, config);
        fuzz::require(made.has_value(), "uplink");
        uplink_ = std::move(*made);
    }
    /// Reads and forgets what the uplink sent.
    static void drain(const base::UniqueFd& fd) {
        static std::vector<std::byte> buffer(256U << 10);
        for (int i = 0; i < 64; ++i)
            if (::recv(fd.get(), buffer.data(), buffer.size(), MSG_DONTWAIT) <= 0) return;
    }
    fuzz::FrameRig& rig_;
    std::unique_ptr<fabric::Uplink> uplink_;
};

class StreamWire final : public Wire {
public:
    explicit StreamWire(fuzz::FrameRig& rig) : Wire(rig) {
        fabric::UplinkConfig config;
        config.kind = fabric::UplinkConfig::Kind::kStream;
        config.name = "fuzz";
        config.path = socket_path();
        config.listen = true;
        make(config);
        connect();
    }
    void send(test::Choices& choices, const base::Frame& frame) override {
        std::vector<std::byte> bytes(kLengthBytes + frame.size());
        base::store_be(bytes.data(), static_cast<std::uint32_t>(frame.size()));
        std::ranges::copy(frame, bytes.begin() + kLengthBytes);
        // Cut where it likes; the rest may never come.
        const std::size_t cut = choices.chance(64) ? choices.below(bytes.size()) : 0;
        if (cut != 0) put(std::span(bytes).first(cut));
        if (cut == 0 || !choices.chance(32)) put(std::span(bytes).subspan(cut));
    }
    void nonsense(test::Choices& choices) override {
        std::vector<std::byte> bytes;
        if (choices.chance(128)) {
            static constexpr std::uint32_t kLengths[] = {
                0, 1, 13, 14, fuzz::kMaxFrame, fuzz::kMaxFrame + 1, 0x7fffffff, 0xffffffff};
            bytes.resize(kLengthBytes);
            base::store_be(bytes.data(), choices.pick(kLengths));
        }
        for (std::uint64_t n = choices.byte(); n > 0; --n)
            bytes.push_back(static_cast<std::byte>(choices.byte()));
        put(bytes);
    }
    void take() override { drain(other_); }
    void restart() override {
        other_.reset();
        for (unsigned i = 0; i < kMaxTurns && uplink_->connected(); ++i) turn();
        fuzz::require(!uplink_->connected(), "the end of the connection was not seen");
        connect();
    }
    void check() const override {
        const fabric::UplinkCounters& counters = uplink_->counters();
        fuzz::require(counters.rx_frames.value() == expected_.frames, "frames of the stream");
        fuzz::require(counters.protocol_errors.value() == expected_.errors, "ends of the stream");
    }

private:
    void connect() {
        auto connected = base::connect_unix(socket_path());
        fuzz::require(connected.has_value(), "connect");
        other_ = std::move(*connected);
        expected_.restart();
        for (unsigned i = 0; i < kMaxTurns && !uplink_->connected(); ++i) turn();
        fuzz::require(uplink_->connected(), "the connection was not seen");
    }
    void put(std::span<const std::byte> bytes) {
        while (!bytes.empty() && !expected_.ended()) {
            const ssize_t n =
                ::send(other_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
            fuzz::require(n > 0 || errno == EAGAIN, "the connection ended");
            if (n > 0) {
                expected_.bytes(bytes.first(static_cast<std::size_t>(n)));
                bytes = bytes.subspan(static_cast<std::size_t>(n));
            }
            settle();
        }
        if (expected_.ended()) restart();
    }
    /// Until it has taken what was sent.
    void settle() {
        const auto behind = [this] {
            const fabric::UplinkCounters& counters = uplink_->counters();
            return counters.rx_frames.value() != expected_.frames ||
                   counters.protocol_errors.value() != expected_.errors;
        };
        turn();
        for (unsigned i = 0; i < kMaxTurns && behind(); ++i) turn();
        check();
    }
    base::UniqueFd other_;
    Expectation expected_;
};

class UdpWire final : public Wire {
public:
    explicit UdpWire(fuzz::FrameRig& rig) : Wire(rig), other_(udp_socket()) {
        fabric::UplinkConfig config;
        config.name = "fuzz";
        config.remote = address_of(other_);
        {
            // Any port, which the uplink then has for its own.
            const base::UniqueFd free = udp_socket();
            config.local = address_of(free);
        }
        make(config);
        fuzz::require(::connect(other_.get(), config.local.get(), config.local.length) == 0,
                      "connect");
    }
    void send(test::Choices&, const base::Frame& frame) override { put(frame); }
    void nonsense(test::Choices& choices) override {
        put(std::vector<std::byte>(choices.chance(32) ? 65507 : choices.below(40)));
    }
    void take() override { drain(other_); }
    void check() const override {
        fuzz::require(uplink_->counters().rx_frames.value() <= sent_, "frames that nobody sent");
    }

private:
    void put(std::span<const std::byte> frame) {
        // What is too long for a datagram does not come.
        if (::send(other_.get(), frame.data(), frame.size(), MSG_DONTWAIT) >= 0) ++sent_;
        turn();
        check();
    }
    base::UniqueFd other_;
    std::uint64_t sent_ = 0;
};

class VxlanWire final : public Wire {
public:
    VxlanWire(fuzz::FrameRig& rig, bool strangers) : Wire(rig), other_(udp_socket()) {
        fabric::UplinkConfig config;
        config.kind = fabric::UplinkConfig::Kind::kVxlan;
        config.name = "fuzz";
        {
            const base::UniqueFd free = udp_socket();
            config.local = address_of(free);
        }
        to_ = config.local;
        config.vxlan.vni = kVni;
        config.vxlan.learn =
            strangers ? fabric::VxlanConfig::Learn::kAll : fabric::VxlanConfig::Learn::kPeers;
        const fabric::SocketAddress other = address_of(other_);
        config.vxlan.remotes = {{fabric::ip_of(other), fabric::port_of(other), kVni}};
        auto endpoint = fabric::VxlanEndpoint::create(shared_loop(), config.local, 0, {1, 2});
        fuzz::require(endpoint.has_value(), "endpoint");
        endpoint_ = std::move(*endpoint);
        auto made = fabric::VxlanUplink::create(shared_loop(), rig.network, config, *endpoint_,
                                                shared_loop());
        fuzz::require(made.has_value(), "uplink");
        vxlan_ = made->get();
        uplink_ = std::move(*made);
        fuzz::require(::connect(other_.get(), to_.get(), to_.length) == 0, "connect");
    }
    ~VxlanWire() override { uplink_.reset(); }
    void send(test::Choices& choices, const base::Frame& frame) override {
        fabric::VxlanHeader header = fabric::encode_vxlan(kVni);
        if (choices.chance(32))
            header[choices.below(header.size())] ^= static_cast<std::byte>(choices.byte());
        std::vector<std::byte> bytes(header.begin(), header.end());
        bytes.insert(bytes.end(), frame.begin(), frame.end());
        put(choices, bytes);
    }
    void nonsense(test::Choices& choices) override {
        if (choices.chance(128)) {
            put(choices, std::vector<std::byte>(choices.below(40)));
            return;
        }
        table(choices);
    }
    void take() override { drain(other_); }
    void check() const override { fuzz::require(came() == sent_, "datagrams of the tunnel"); }

private:
    static constexpr std::uint32_t kVni = 5;
    [[nodiscard]] std::uint64_t came() const {
        const fabric::VxlanEndpointCounters& endpoint = endpoint_->counters();
        const fabric::VxlanCounters& counters = vxlan_->vxlan_counters();
        return endpoint.malformed.value() + endpoint.unknown_network.value() +
               counters.unknown_sender.value() + counters.own_source.value() +
               counters.ecn_dropped.value() + vxlan_->fdb().counters().refused.value() +
               uplink_->counters().rx_frames.value();
    }
    void put(test::Choices& choices, const std::vector<std::byte>& bytes) {
        const int tos = choices.byte();
        fuzz::require(::setsockopt(other_.get(), IPPROTO_IP, IP_TOS, &tos, sizeof tos) == 0, "TOS");
        // What is too long for a datagram does not come.
        if (::send(other_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) >= 0) ++sent_;
        turn();
        for (unsigned i = 0; i < kMaxTurns && came() != sent_; ++i) turn();
        check();
    }
    /// A file as another program may write it, most often with a word or two that are right.
    void table(test::Choices& choices) {
        static constexpr std::string_view kWords[] = {"add",
                                                      "append",
                                                      "replace",
                                                      "del",
                                                      "bridge",
                                                      "fdb",
                                                      "02:00:00:00:00:01",
                                                      "00:00:00:00:00:00",
                                                      "dst",
                                                      "10.0.0.2",
                                                      "127.0.0.1",
                                                      "fd00::1",
                                                      "port",
                                                      "4789",
                                                      "vni",
                                                      "src_vni",
                                                      "5",
                                                      "self",
                                                      "permanent",
                                                      "dev",
                                                      "master",
                                                      "br0",
                                                      "dynamic",
                                                      "nhid",
                                                      "\n",
                                                      "#",
                                                      "\n"};
        std::string text;
        for (std::uint64_t n = choices.byte(); n > 0 && choices.more(); --n) {
            if (choices.chance(24))
                text += static_cast<char>(choices.byte());
            else
                (text += choices.pick(kWords)) += ' ';
        }
        if (auto read = fabric::FdbTable::read(text, vxlan_->fdb().context()))
            vxlan_->fdb().set_file(std::move(*read));
        if (const auto line = fabric::parse_fdb_line(text); line && *line)
            (void)vxlan_->fdb().command(**line);
    }
    base::UniqueFd other_;
    fabric::SocketAddress to_;
    std::unique_ptr<fabric::VxlanEndpoint> endpoint_;
    fabric::VxlanUplink* vxlan_ = nullptr;
    std::uint64_t sent_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    test::InputChoices choices({data, size});
    fuzz::FrameRig rig;
    const std::uint8_t setup = choices.byte();
    set_stages(rig, setup >> 1);
    std::unique_ptr<Wire> wire;
    constexpr std::uint8_t kVxlan = 0x20;
    if ((setup & kVxlan) != 0)
        wire = std::make_unique<VxlanWire>(rig, (setup & 1) != 0);
    else if ((setup & 1) != 0)
        wire = std::make_unique<UdpWire>(rig);
    else
        wire = std::make_unique<StreamWire>(rig);
    for (unsigned step = 0; step < fuzz::kMaxSteps && choices.more(); ++step) {
        switch (choices.below(8)) {
            case 0:
            case 1:
            case 2: {
                base::Frame frame = rig.any(choices);
                if (choices.chance(24))
                    frame[choices.below(frame.size())] ^= static_cast<std::byte>(choices.byte());
                wire->send(choices, frame);
                break;
            }
            case 3:
                wire->nonsense(choices);
                break;
            case 4:
                wire->take();
                break;
            case 5:
                if (choices.chance(64))
                    rig.driver.ethernet_work(choices);
                else
                    rig.work(choices);
                rig.world.run_until_idle();
                break;
            case 6:
                if (choices.chance(64)) wire->restart();
                break;
            default:
                rig.time.pass(std::chrono::milliseconds(choices.byte()));
                break;
        }
    }
    rig.time.pass(std::chrono::seconds(1));
    wire->check();
    fuzz::require(rig.driver.canary_alive(), "memory outside all MRs was written");
    return 0;
}

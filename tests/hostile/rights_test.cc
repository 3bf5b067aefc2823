// SPDX-License-Identifier: Apache-2.0
// manad as users run it, with the rights that are left to it: all that a client, a peer and a
// control connection can ask of it works, and nothing else is possible.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <mana/rnic_queue.h>
#include <netinet/in.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/endian.h"
#include "base/unix_socket.h"
#include "manad/sandbox.h"
#include "process.h"
#include "support/rdma_host.h"
#include "support/remote_nic.h"

namespace openmana::test {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
constexpr auto kPatience = std::chrono::seconds(60);
constexpr std::uint32_t kBytes = 8192;
using Frame = std::array<std::byte, 60>;

/// To all, so that the switch sends it to every port.
Frame broadcast(std::uint8_t from, std::uint8_t number) {
    Frame frame{};
    std::fill_n(frame.begin(), 6, std::byte{0xff});
    frame[6] = std::byte{0x02};
    frame[11] = std::byte{from};
    frame[12] = std::byte{0x88};
    frame[13] = std::byte{0xb5};  // a local experiment
    frame[14] = std::byte{number};
    return frame;
}

bool readable(const base::UniqueFd& fd) {
    pollfd wait{.fd = fd.get(), .events = POLLIN, .revents = 0};
    return ::poll(&wait, 1, 60000) == 1;
}

/// A UDP socket of the loopback with a port of its own.
struct UdpEnd {
    UdpEnd() : fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof address;
        EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
        EXPECT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    }
    [[nodiscard]] std::string text() const {
        return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    }
    base::UniqueFd fd;
    sockaddr_in address{};
};

/// The other end of a stream uplink.
class StreamEnd {
public:
    explicit StreamEnd(base::UniqueFd fd) : fd_(std::move(fd)) {}
    void send(const Frame& frame) const {
        std::array<std::byte, 4 + sizeof(Frame)> bytes;
        base::store_be(bytes.data(), static_cast<std::uint32_t>(frame.size()));
        std::copy(frame.begin(), frame.end(), bytes.begin() + 4);
        EXPECT_EQ(::send(fd_.get(), bytes.data(), bytes.size(), 0),
                  static_cast<ssize_t>(bytes.size()));
    }
    /// Waits for this frame; others may come before.
    [[nodiscard]] bool gets(const Frame& wanted) const {
        for (;;) {
            std::uint32_t length = 0;
            if (!read(&length, sizeof length)) return false;
            std::vector<std::byte> frame(ntohl(length));
            if (!read(frame.data(), frame.size())) return false;
            if (std::equal(frame.begin(), frame.end(), wanted.begin(), wanted.end())) return true;
        }
    }

private:
    bool read(void* into, std::size_t size) const {
        auto* at = static_cast<char*>(into);
        while (size > 0) {
            const ssize_t n = readable(fd_) ? ::read(fd_.get(), at, size) : 0;
            if (n <= 0) return false;
            at += n;
            size -= static_cast<std::size_t>(n);
        }
        return true;
    }
    base::UniqueFd fd_;
};

/// A driver and its program at a NIC of manad, with one queue pair.
struct Guest {
    Guest(const std::string& socket, std::uint8_t number) : host(number) {
        nic = RemoteNic::attach(socket);
        if (!nic) return;
        rdma = std::make_unique<RdmaHost>(*nic, nic->ram(), nic->irq(), test_mac(number),
                                          ipv4_gid(number));
        if (!rdma->bring_up()) return;
        cq = rdma->create_cq();
        if (cq) qp = rdma->create_rc(*cq, *cq);
        buffer = rdma->ram().alloc(2 * kBytes);
        mr = rdma->hwc().create_mr(rdma->pd, buffer, 2 * kBytes, 15);
    }
    [[nodiscard]] bool ready() const { return qp != nullptr && mr.has_value(); }
    [[nodiscard]] Peer peer() const { return {ipv4_gid(host), test_mac(host), qp->qpn(), host}; }

    std::uint8_t host;
    std::unique_ptr<RemoteNic> nic;
    std::unique_ptr<RdmaHost> rdma;
    std::optional<DriverCq> cq;
    std::unique_ptr<HostQp> qp;
    base::GuestAddr buffer{};
    std::optional<DriverMr> mr;
};

/// One WRITE from one to the other arrives.
void write_across(Guest& from, Guest& to, std::uint8_t value) {
    const base::GuestAddr target = to.buffer + kBytes;
    for (std::uint32_t i = 0; i < kBytes; ++i)
        *from.rdma->ram().at(from.buffer + i) = static_cast<std::byte>(value + i * 3);
    const SendWr write{.opcode = MANA_HW_RNIC_WQE_WRITE,
                       .sges = {{from.buffer.value(), gdma::Key(from.mr->lkey), kBytes}},
                       .remote_address = target.value(),
                       .rkey = to.mr->rkey,
                       .id = 1};
    ASSERT_TRUE(from.rdma->post_send(*from.qp, write));
    HostQp* const list = from.qp.get();
    std::vector<Completion> done;
    for (const auto end = Clock::now() + kPatience; done.empty() && Clock::now() < end;) {
        from.rdma->poll(*from.cq, std::span(&list, 1), done);
        std::this_thread::yield();
    }
    ASSERT_EQ(done.size(), 1u);
    ASSERT_EQ(done[0].vendor, 0u);
    for (std::uint32_t i = 0; i < kBytes; ++i)
        ASSERT_EQ(*to.rdma->ram().at(target + i), static_cast<std::byte>(value + i * 3));
}

class RightsTest : public testing::Test {
protected:
    void SetUp() override {
        ::signal(SIGPIPE, SIG_IGN);
        char name[] = "/tmp/openmana-rights-XXXXXX";
        ASSERT_NE(::mkdtemp(name), nullptr);
        folder_ = name;
    }
    void TearDown() override {
        if (manad_ && manad_->running()) ::kill(manad_->pid(), SIGKILL);
        manad_.reset();
        std::filesystem::remove_all(folder_);
    }
    /// With NICs `a` and `b`, a control socket, and `more`.
    void start(const std::vector<std::string>& more) {
        std::vector<std::string> words{OPENMANA_MANAD,
                                       "--nic",
                                       "id=a,mac=02:00:00:00:00:01,socket=" + folder_ + "/a",
                                       "--nic",
                                       "id=b,mac=02:00:00:00:00:02,socket=" + folder_ + "/b",
                                       "--control",
                                       folder_ + "/control",
                                       "--log",
                                       "error"};
        words.insert(words.end(), more.begin(), more.end());
        // Nobody can look at memory of a process that became another user, its leaks included.
        ::setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
        manad_.emplace(words);
        ASSERT_TRUE(manad_->says_ready());
    }
    /// Becomes `nobody` if it can.
    void start_as_user(std::vector<std::string> more) {
        if (::geteuid() == 0) {
            user_ = ::getpwnam("nobody")->pw_uid;
            ASSERT_EQ(::chown(folder_.c_str(), user_, ::getpwnam("nobody")->pw_gid), 0);
            more.insert(more.end(), {"--user", "nobody"});
        }
        start(more);
    }
    /// Of each thread of manad what its /proc/PID/task/TID/status says.
    using Status = std::map<std::string, std::string>;
    [[nodiscard]] std::vector<Status> threads() const {
        std::vector<Status> threads;
        const std::string tasks = "/proc/" + std::to_string(manad_->pid()) + "/task";
        for (const auto& task : std::filesystem::directory_iterator(tasks)) {
            Status& status = threads.emplace_back();
            std::ifstream lines(task.path() / "status");
            for (std::string line; std::getline(lines, line);)
                if (const auto colon = line.find(":\t"); colon != std::string::npos)
                    status[line.substr(0, colon)] = line.substr(colon + 2);
        }
        return threads;
    }
    /// manad has threads of these names, sooner or later: each takes its own.
    [[nodiscard]] bool all_run(const std::set<std::string>& names) const {
        for (const auto end = Clock::now() + kPatience; Clock::now() < end;) {
            std::set<std::string> found;
            for (Status& status : threads()) found.insert(status["Name"]);
            if (std::includes(found.begin(), found.end(), names.begin(), names.end())) return true;
        }
        return false;
    }
    json ask(const json& request) {
        const auto control = base::connect_unix(folder_ + "/control");
        if (!control) return {{"error", "no connection"}};
        const std::string line = request.dump() + "\n";
        EXPECT_EQ(::write(control->get(), line.data(), line.size()),
                  static_cast<ssize_t>(line.size()));
        std::string answer;
        for (char c = 0; c != '\n' && readable(*control) && ::read(control->get(), &c, 1) == 1;)
            answer += c;
        return json::parse(answer, nullptr, false);
    }
    void done(const json& request) {
        const json answer = ask(request);
        EXPECT_TRUE(answer.is_object() && answer.value("ok", false)) << request << ": " << answer;
    }
    /// Every uplink has its other end, sooner or later.
    bool all_connected() {
        for (const auto end = Clock::now() + kPatience; Clock::now() < end;) {
            const json rows = ask({{"command", "uplinks"}})["uplinks"];
            if (std::all_of(rows.begin(), rows.end(),
                            [](const json& row) { return row.value("connected", false); }))
                return true;
        }
        return false;
    }
    void ends_well() {
        ::kill(manad_->pid(), SIGTERM);
        const auto status = manad_->wait();
        ASSERT_TRUE(status.has_value());
        EXPECT_TRUE(WIFEXITED(*status) && WEXITSTATUS(*status) == 0) << "wait status " << *status;
    }
    /// A file that manad made is its user's alone, and has something in it.
    void expect_own_file(const std::string& path) const {
        struct stat file {};
        ASSERT_EQ(::stat(path.c_str(), &file), 0) << path;
        EXPECT_EQ(file.st_mode & 07777, 0600u) << path;
        EXPECT_EQ(file.st_uid, user_) << path;
        EXPECT_GT(file.st_size, 24) << path;
    }

    std::string folder_;
    uid_t user_ = ::geteuid();
    std::optional<Process> manad_;
};

TEST_F(RightsTest, NoneAreLeftWhenItServes) {
    start_as_user({});
    ASSERT_TRUE(all_run({"manad", "signals", "watchdog", "nic-a", "nic-b"}));
    for (Status& status : threads()) {
        SCOPED_TRACE(status["Name"]);
        if (::geteuid() == 0) {
            const std::string uid = std::to_string(user_);
            EXPECT_EQ(status["Uid"], uid + "\t" + uid + "\t" + uid + "\t" + uid);
            EXPECT_EQ(status["CapBnd"], "0000000000000000");
        }
        for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapAmb"})
            EXPECT_EQ(status[set], "0000000000000000") << set;
        EXPECT_EQ(status["NoNewPrivs"], "1");
        EXPECT_EQ(status["Seccomp"], manad::can_be_sandboxed() ? "2" : "0");
    }
    ends_well();
}

TEST_F(RightsTest, SocketsThatItGaveAwayDoNotKeepItFromItsNextStart) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, who gives files to others";
    const std::vector<std::string> given{"--socket-access", "61000::", "--control-access",
                                         "61000::"};
    start_as_user(given);
    ::kill(manad_->pid(), SIGKILL);
    ASSERT_TRUE(manad_->wait());
    ASSERT_TRUE(std::filesystem::is_socket(folder_ + "/a"));
    start_as_user(given);
    ends_well();
    for (const char* socket : {"/a", "/b", "/control"})
        EXPECT_FALSE(std::filesystem::exists(folder_ + socket)) << socket;
}

TEST_F(RightsTest, AllThatItIsForWorksWithoutThem) {
    // The loopback has many addresses, and whoever takes any free port takes none of this one's.
    UdpEnd udp;
    const std::string local = "127.0.0.2:" + std::to_string(ntohs(udp.address.sin_port));
    start_as_user({"--pcap", folder_ + "/all.pcap", "--uplink",
                   "udp=local=" + local + ",remote=" + udp.text(), "--uplink",
                   "stream=" + folder_ + "/near,listen", "--uplink", "stream=" + folder_ + "/far",
                   "--policy", "nic=b,flow-log=" + folder_ + "/flows"});

    // Its own connections: to a stream's other end that is there only now, and from one.
    base::SocketAccess all;
    all.mode = 0666;
    auto far_listener = base::UnixListener::create({folder_ + "/far", all});
    ASSERT_TRUE(far_listener);
    pollfd wait{.fd = far_listener->fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&wait, 1, 60000), 1) << "manad does not try again";
    const StreamEnd far(far_listener->accept());
    const StreamEnd near(std::move(base::connect_unix(folder_ + "/near").value()));
    ASSERT_TRUE(all_connected());

    // Frames of peers.
    near.send(broadcast(0x71, 1));
    EXPECT_TRUE(far.gets(broadcast(0x71, 1)));
    std::array<std::byte, 2048> datagram{};
    ASSERT_TRUE(readable(udp.fd));
    sockaddr_in from{};
    socklen_t length = sizeof from;
    EXPECT_EQ(::recvfrom(udp.fd.get(), datagram.data(), datagram.size(), 0,
                         reinterpret_cast<sockaddr*>(&from), &length),
              static_cast<ssize_t>(sizeof(Frame)));
    const Frame answer = broadcast(0x72, 2);
    EXPECT_EQ(::sendto(udp.fd.get(), answer.data(), answer.size(), 0,
                       reinterpret_cast<const sockaddr*>(&from), length),
              static_cast<ssize_t>(answer.size()));
    EXPECT_TRUE(near.gets(answer));

    // Guests: commands, interrupts, RDMA by frames and by memory.
    Guest a(folder_ + "/a", 1);
    Guest b(folder_ + "/b", 2);
    ASSERT_TRUE(a.ready());
    ASSERT_TRUE(b.ready());
    ASSERT_TRUE(a.rdma->connect(*a.qp, 1, b.peer()));
    ASSERT_TRUE(b.rdma->connect(*b.qp, 2, a.peer()));
    write_across(a, b, 1);

    // Every command, those that make files too.
    for (const char* command : {"status", "stats", "qps", "uplinks"}) done({{"command", command}});
    const auto act = [&](const char* command, const char* action, const char* options = "") {
        done({{"command", command}, {"action", action}, {"nic", "a"}, {"options", options}});
    };
    done(
        {{"command", "capture"}, {"action", "start"}, {"nic", "a"}, {"file", folder_ + "/a.pcap"}});
    act("fault", "set", "delay=10us");
    const std::string policy = "limit=10G,flow-log=" + folder_ + "/flows";
    act("policy", "set", policy.c_str());
    write_across(b, a, 2);
    for (const char* command : {"capture", "fault", "policy"}) act(command, "show");
    act("capture", "stop");
    act("fault", "clear");
    act("policy", "clear");
    write_across(a, b, 3);
    for (const char* state : {"down", "up"})
        done({{"command", "link"}, {"nic", "a"}, {"state", state}});
    done({{"command", "reset"}, {"nic", "a"}});

    ends_well();
    for (const char* file : {"/all.pcap", "/a.pcap", "/flows"}) expect_own_file(folder_ + file);
    for (const char* socket : {"/a", "/b", "/control", "/near"})
        EXPECT_FALSE(std::filesystem::exists(folder_ + socket)) << socket;
}

TEST_F(RightsTest, OnlyTheFilesOfItsUserAreInReach) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, who has files that others may not write";
    start_as_user({});
    const std::string path = folder_ + ".root";
    std::filesystem::create_directory(path);
    const json answer = ask(
        {{"command", "capture"}, {"action", "start"}, {"nic", "a"}, {"file", path + "/a.pcap"}});
    EXPECT_FALSE(answer.value("ok", true)) << answer;
    EXPECT_FALSE(std::filesystem::exists(path + "/a.pcap"));
    std::filesystem::remove_all(path);
    ends_well();
}

}  // namespace
}  // namespace openmana::test

// SPDX-License-Identifier: Apache-2.0
// Each step of a take-over fails, in each way that it can, and the first manad goes on as if
// nothing had been.
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <thread>

#include "manad/sandbox.h"
#include "take_over_fixture.h"

namespace openmana::test {
namespace {

/// Stands between the two processes, and passes on what they say until something is done to it.
class Relay {
public:
    /// What comes from the first one, message by message as it is taken from the socket: their
    /// number, bytes and descriptors. False: no more is passed on, nor is the connection kept.
    struct Message {
        std::size_t number = 0;
        std::vector<std::byte> bytes;
        std::vector<base::UniqueFd> descriptors;
    };
    using Change = std::function<bool(Message&)>;

    /// `answers`: says no to who has all; else the connection just ends.
    Relay(const std::string& folder, Change change, bool answers = true)
        : answers_(answers),
          control_(folder + "/control"),
          listener_(std::move(*base::UnixListener::create({folder + "/relay"}))),
          change_(std::move(change)),
          thread_([this] { run(); }) {}
    ~Relay() {
        stop_ = true;
        thread_.join();
    }
    Relay(const Relay&) = delete;
    Relay& operator=(const Relay&) = delete;
    [[nodiscard]] std::size_t messages() const { return messages_; }
    [[nodiscard]] std::size_t with_descriptors() const { return with_descriptors_; }

private:
    void run() {
        base::UniqueFd next;
        while (!stop_ && !next) {
            next = listener_.accept();
            if (!next) ::usleep(1000);
        }
        if (!next) return;
        auto first = base::connect_unix(control_);
        if (!first) return;
        while (!stop_) {
            pollfd entries[] = {{first->get(), POLLIN, 0}, {next.get(), POLLIN, 0}};
            if (::poll(entries, 2, 10) <= 0) continue;
            if (entries[1].revents != 0) {
                char text[4096];
                const ssize_t n = ::recv(next.get(), text, sizeof text, MSG_DONTWAIT);
                if (n <= 0) return;
                // That it has all is never said: so it does not go on, whatever comes to it.
                if (text[0] == 'T') {
                    if (answers_) (void)::send(next.get(), "{", 1, MSG_NOSIGNAL);
                    return;
                }
                if (::send(first->get(), text, static_cast<std::size_t>(n), MSG_NOSIGNAL) != n)
                    return;
            }
            if (entries[0].revents != 0 && !pass(*first, next)) return;
        }
    }
    bool pass(const base::UniqueFd& from, const base::UniqueFd& to) {
        Message message;
        message.bytes.resize(16U << 10);
        iovec part{message.bytes.data(), message.bytes.size()};
        alignas(cmsghdr) char control[CMSG_SPACE(253 * sizeof(int))];
        msghdr head{};
        head.msg_iov = &part;
        head.msg_iovlen = 1;
        head.msg_control = control;
        head.msg_controllen = sizeof control;
        const ssize_t n = ::recvmsg(from.get(), &head, MSG_CMSG_CLOEXEC);
        if (n <= 0) return false;
        message.bytes.resize(static_cast<std::size_t>(n));
        for (cmsghdr* entry = CMSG_FIRSTHDR(&head); entry != nullptr;
             entry = CMSG_NXTHDR(&head, entry))
            for (std::size_t i = 0; i < (entry->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
                int fd = -1;
                std::memcpy(&fd, CMSG_DATA(entry) + i * sizeof fd, sizeof fd);
                message.descriptors.emplace_back(fd);
            }
        message.number = messages_++;
        if (!message.descriptors.empty()) ++with_descriptors_;
        if (!change_(message)) return false;
        if (message.descriptors.empty()) return send(to, message);
        // They came with the last byte.
        Message last;
        last.bytes.assign(message.bytes.end() - 1, message.bytes.end());
        last.descriptors = std::move(message.descriptors);
        message.descriptors.clear();
        message.bytes.pop_back();
        return (message.bytes.empty() || send(to, message)) && send(to, last);
    }
    static bool send(const base::UniqueFd& to, const Message& message) {
        iovec part{const_cast<std::byte*>(message.bytes.data()), message.bytes.size()};
        alignas(cmsghdr) char control[CMSG_SPACE(253 * sizeof(int))] = {};
        msghdr head{};
        head.msg_iov = &part;
        head.msg_iovlen = 1;
        if (!message.descriptors.empty()) {
            head.msg_control = control;
            head.msg_controllen = CMSG_SPACE(message.descriptors.size() * sizeof(int));
            cmsghdr* const entry = CMSG_FIRSTHDR(&head);
            entry->cmsg_level = SOL_SOCKET;
            entry->cmsg_type = SCM_RIGHTS;
            entry->cmsg_len = CMSG_LEN(message.descriptors.size() * sizeof(int));
            for (std::size_t i = 0; i < message.descriptors.size(); ++i) {
                const int fd = message.descriptors[i].get();
                std::memcpy(CMSG_DATA(entry) + i * sizeof fd, &fd, sizeof fd);
            }
        }
        return ::sendmsg(to.get(), &head, MSG_NOSIGNAL) ==
               static_cast<ssize_t>(message.bytes.size());
    }

    const bool answers_;
    const std::string control_;
    const base::UnixListener listener_;
    const Change change_;
    std::atomic<std::size_t> messages_{0}, with_descriptors_{0};
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

class TakeOverFailuresTest : public TakeOverTest {
protected:
    void SetUp() override {
        TakeOverTest::SetUp();
        more_ = {"--uplink", "stream=" + folder_ + "/other,listen"};
        start();
        attach();
        files_ = open_files();
    }
    void TearDown() override {
        for (int i = 0; i < 10; ++i) ASSERT_NO_FATAL_FAILURE(exchange());
        // The clients' last messages may still be on their way.
        for (int i = 0; i < 30'000 && open_files() > files_; ++i) ::usleep(1000);
        EXPECT_LE(open_files(), files_) << "what was to be handed over is kept open";
        TakeOverTest::TearDown();
    }
    /// A try of the next one, to which that is done; how many messages there were.
    std::size_t attempt(const Relay::Change& change) {
        Relay relay(folder_, change);
        run(next_words(folder_ + "/relay"));
        with_descriptors_ = relay.with_descriptors();
        return relay.messages();
    }
    void run(std::vector<std::string> words) {
        next_ = std::make_unique<Process>(std::move(words));
        while (next_->running()) ASSERT_NO_FATAL_FAILURE(exchange());
        (void)next_->wait();
        ASSERT_TRUE(manad_->running());
        for (int i = 0; i < 5; ++i) ASSERT_NO_FATAL_FAILURE(exchange());
    }

    /// The next one under a limit of the shell. It gets all, and never says so.
    void run_limited(const std::string& limit) {
        std::vector<std::string> all{"/bin/sh", "-c", "ulimit " + limit + "; exec \"$@\"", "sh"};
        Relay relay(folder_, [](Relay::Message&) { return true; });
        const auto next = next_words(folder_ + "/relay");
        all.insert(all.end(), next.begin(), next.end());
        run(all);
    }

    std::unique_ptr<Process> next_;
    std::size_t with_descriptors_ = 0;
    std::size_t files_ = 0;
};

TEST_F(TakeOverFailuresTest, KilledAtEachMessage) {
    const std::size_t all = attempt([](Relay::Message&) { return true; });
    ASSERT_GE(all, 6) << "messages of a whole take-over";
    for (std::size_t last = 0; last < all; ++last) {
        SCOPED_TRACE(last);
        (void)attempt([&](Relay::Message& message) {
            if (message.number < last) return true;
            next_->kill(SIGKILL);
            return false;
        });
        if (HasFatalFailure()) return;
    }
}

TEST_F(TakeOverFailuresTest, AConnectionThatIsOverIsNotTheEndOfWhoServes) {
    Relay relay(
        folder_, [](Relay::Message&) { return true; }, false);
    run(next_words(folder_ + "/relay"));
}

TEST_F(TakeOverFailuresTest, CutOffAtEachMessage) {
    const std::size_t all = attempt([](Relay::Message&) { return true; });
    for (std::size_t last = 0; last < all; ++last) {
        SCOPED_TRACE(last);
        (void)attempt([&](Relay::Message& message) {
            if (message.number < last) return true;
            message.bytes.resize(message.bytes.size() / 2);
            message.descriptors.clear();
            return false;
        });
        if (HasFatalFailure()) return;
    }
}

TEST_F(TakeOverFailuresTest, AByteOfEachMessageIsAnother) {
    const std::size_t all = attempt([](Relay::Message&) { return true; });
    base::Random random(1);
    for (std::size_t which = 0; which < all; ++which) {
        SCOPED_TRACE(which);
        (void)attempt([&](Relay::Message& message) {
            if (message.number == which)
                message.bytes[random.below(message.bytes.size())] ^= std::byte{0x10};
            return true;
        });
        if (HasFatalFailure()) return;
    }
}

TEST_F(TakeOverFailuresTest, DescriptorsOfEachMessageAreMissing) {
    (void)attempt([](Relay::Message&) { return true; });
    const std::size_t all = with_descriptors_;
    ASSERT_GE(all, 3);
    for (std::size_t which = 0; which < all; ++which) {
        SCOPED_TRACE(which);
        std::size_t seen = 0;
        (void)attempt([&](Relay::Message& message) {
            if (!message.descriptors.empty() && seen++ == which) message.descriptors.pop_back();
            return true;
        });
        if (HasFatalFailure()) return;
    }
}

TEST_F(TakeOverFailuresTest, DescriptorsAreNotWhatTheyWere) {
    (void)attempt([](Relay::Message&) { return true; });
    const std::size_t all = with_descriptors_;
    for (std::size_t which = 0; which < all; ++which) {
        SCOPED_TRACE(which);
        std::size_t seen = 0;
        (void)attempt([&](Relay::Message& message) {
            if (message.descriptors.empty() || seen++ != which) return true;
            for (base::UniqueFd& fd : message.descriptors)
                fd = base::UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC));
            return true;
        });
        if (HasFatalFailure()) return;
    }
}

TEST_F(TakeOverFailuresTest, NoDescriptorsAreLeftForIt) {
    for (int files = 6; files < 60; files += 3) {
        SCOPED_TRACE(files);
        run_limited("-n " + std::to_string(files));
        if (HasFatalFailure()) return;
    }
}

TEST_F(TakeOverFailuresTest, NoMemoryIsLeftForIt) {
    // Sanitizers reserve more than there is.
    if (!manad::can_be_sandboxed()) GTEST_SKIP() << "an instrumented build";
    for (int megabytes = 20; megabytes < 320; megabytes += 20) {
        SCOPED_TRACE(megabytes);
        run_limited("-v " + std::to_string(megabytes << 10));
        if (HasFatalFailure()) return;
    }
}

/// What somebody on the control socket says, who is no manad.
class TakeOverStrangerTest : public TakeOverFailuresTest {
protected:
    base::UniqueFd ask_for_all() const {
        auto socket = base::connect_unix(folder_ + "/control");
        const std::string line = json{{"command", "take-over"}, {"format", 2}}.dump() + "\n";
        OM_CHECK(socket.has_value() && ::send(socket->get(), line.data(), line.size(), 0) ==
                                           static_cast<ssize_t>(line.size()));
        return std::move(*socket);
    }
    /// True if there was anything.
    static bool read_all(const base::UniqueFd& socket, int patience) {
        std::vector<char> some(1U << 20);
        bool any = false;
        for (pollfd entry{socket.get(), POLLIN, 0}; ::poll(&entry, 1, patience) > 0; any = true)
            if (::recv(socket.get(), some.data(), some.size(), 0) <= 0) break;
        return any;
    }
};

TEST_F(TakeOverStrangerTest, OneThatSaysNothingIsWaitedForAWhile) {
    const auto socket = ask_for_all();
    ASSERT_TRUE(read_all(socket, 1000));
    // Nobody is served meanwhile; then all go on.
    for (int i = 0; i < 20; ++i) ASSERT_NO_FATAL_FAILURE(exchange());
    EXPECT_TRUE(read_all(socket, 1000)) << "an answer";
}

TEST_F(TakeOverStrangerTest, OneThatSaysSomethingElseTakesNothing) {
    for (const char* said : {"X", "Rno\n", "R", "E", "\n"}) {
        const auto socket = ask_for_all();
        ASSERT_TRUE(read_all(socket, 200));
        ASSERT_EQ(::send(socket.get(), said, std::strlen(said), MSG_NOSIGNAL),
                  static_cast<ssize_t>(std::strlen(said)));
        for (int i = 0; i < 5; ++i) ASSERT_NO_FATAL_FAILURE(exchange());
        ASSERT_TRUE(manad_->running());
    }
}

TEST_F(TakeOverStrangerTest, OneThatAsksForAnotherFormatGetsNothing) {
    for (const json& format : {json(1), json(3), json("2"), json()})
        EXPECT_EQ(ask({{"command", "take-over"}, {"format", format}})["ok"], false) << format;
}

}  // namespace
}  // namespace openmana::test

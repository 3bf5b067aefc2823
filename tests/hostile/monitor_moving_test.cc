// SPDX-License-Identifier: Apache-2.0
// A manad that is killed while a NIC of it is kept for another client (retain=), and while a guest
// is being moved from it or to it: who goes on says what is lost, refuses what was about it, and
// asks the guest's driver for a reset.
#include <fcntl.h>

#include <cerrno>
#include <fstream>
#include <iterator>

#include "monitor_fixture.h"
#include "support/next_client.h"
#include "support/raw_vfio_user.h"

namespace openmana::test {
namespace {

constexpr std::uint64_t kStart = 1ULL << 32;  // of a guest's memory
constexpr std::uint64_t kRam = RemoteNic::kRamBytes;

/// With a descriptor of its own of the guest's memory.
struct Next : NextClient {
    Next(const std::string& socket, const base::UniqueFd& lent)
        : NextClient(socket, base::UniqueFd(::fcntl(lent.get(), F_DUPFD_CLOEXEC, 0))) {}
};

class MonitorMovingTest : public MonitorTest {
protected:
    MonitorMovingTest() { log_level_ = "info"; }
    /// What all processes write from now on goes to a file.
    void SetUp() override {
        MonitorTest::SetUp();
        const base::UniqueFd file(
            ::open((folder_ + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
        stderr_ = base::UniqueFd(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
        ASSERT_GE(::dup2(file.get(), STDERR_FILENO), 0);
    }
    void TearDown() override {
        MonitorTest::TearDown();
        if (stderr_) ::dup2(stderr_.get(), STDERR_FILENO);
        if (HasFailure()) std::fputs(log().c_str(), stderr);
    }
    [[nodiscard]] std::string log() const {
        std::ifstream file(folder_ + "/log");
        return {std::istreambuf_iterator<char>(file), {}};
    }
    /// How many lines of the log have these words.
    [[nodiscard]] std::size_t lines(const std::string& words) const {
        std::ifstream file(folder_ + "/log");
        std::size_t count = 0;
        for (std::string line; std::getline(file, line);)
            if (line.find(words) != std::string::npos) ++count;
        return count;
    }
    bool says(const std::string& words, std::size_t count = 1) const {
        for (int i = 0; i < 20000 && lines(words) < count; ++i) ::usleep(1000);
        return lines(words) == count;
    }
    /// Waits until the next process answers manactl.
    json status_of(const std::string& name) const {
        for (int i = 0; i < 5000; ++i) {
            const json status = ask({{"command", "status"}});
            if (status.is_object())
                for (const json& nic : status["nics"])
                    if (nic["nic"] == name) return nic;
            ::usleep(1000);
        }
        return {};
    }
    /// The client of A goes, and its NIC is kept.
    void leave() {
        const std::size_t before = lines("client retain: nic=a");
        a_->nic->client().close();
        ASSERT_TRUE(says("client retain: nic=a", before + 1));
    }
    void settle(Client& client, Next& next) {
        client.nic->move_to(base::UniqueFd(next.client.release()), std::move(next.memory),
                            std::move(next.eventfds));
    }
    /// That of the guest, whose client cannot be one of ours meanwhile.
    [[nodiscard]] RawVfioUser raw(Client& client) const {
        return RawVfioUser(client.nic->client().fd());
    }
    static void expect_refused(const RawVfioUser::Answer& answer) {
        EXPECT_TRUE(answer.came && answer.error);
        EXPECT_EQ(answer.number, static_cast<std::uint32_t>(EINVAL));
    }
    /// A guest that starts at a socket, and its end.
    void expect_usable(const std::string& name) {
        const Client guest(folder_ + "/" + name, 1);
        EXPECT_TRUE(guest.nic->alive());
    }

    base::UniqueFd stderr_;
};

TEST_F(MonitorMovingTest, ANicThatWasKeptIsLostAndAsksForAResetWhenAClientComes) {
    more_of_a_ = ",retain=600";
    start_monitored();
    attach();
    std::size_t files = 0;
    for (std::size_t i = 0; i < 3; ++i) {
        ASSERT_NO_FATAL_FAILURE(exchange());
        ASSERT_NO_FATAL_FAILURE(leave());
        ASSERT_GT(monitored_->kill(), 0);
        ASSERT_TRUE(hears_of_reset(*b_));
        EXPECT_TRUE(says("client retain lost: nic=a", i + 1));
        EXPECT_EQ(status_of("a")["client"], false);
        // One that has nothing to say changes nothing.
        RawVfioUser(folder_ + "/a").close();
        Next next(folder_ + "/a", a_->nic->memory_file());
        ASSERT_TRUE(next.good);
        EXPECT_EQ(next.client.state(), unsigned{RawVfioUser::kStop});
        ASSERT_TRUE(next.client.set_state(RawVfioUser::kRunning).ok());
        settle(*a_, next);
        ASSERT_TRUE(hears_of_reset(*a_)) << "no reset request";
        ASSERT_NO_FATAL_FAILURE(begin_anew(*a_, 1));
        ASSERT_NO_FATAL_FAILURE(begin_anew(*b_, 2));
        ASSERT_NO_FATAL_FAILURE(connect());
        for (int j = 0; j < 5; ++j) ASSERT_NO_FATAL_FAILURE(exchange());
        if (i == 0) files = monitored_->open_files();
    }
    EXPECT_TRUE(monitored_->files_back_to(files)) << "each one leaves files open";
}

TEST_F(MonitorMovingTest, AResetOfTheNextClientForgetsTheGuestThatWasLost) {
    more_of_a_ = ",retain=600";
    start_monitored();
    attach();
    ASSERT_NO_FATAL_FAILURE(leave());
    ASSERT_GT(monitored_->kill(), 0);
    Next next(folder_ + "/a", a_->nic->memory_file());
    ASSERT_TRUE(next.good);
    ASSERT_TRUE(next.client.reset());
    EXPECT_EQ(next.client.state(), unsigned{RawVfioUser::kRunning});
    // Nor does one that goes on behind this one remember it.
    ASSERT_GT(monitored_->kill(), 0);
    EXPECT_EQ(next.client.state(), unsigned{RawVfioUser::kRunning});
    EXPECT_EQ(lines("reset request: nic=a"), 0U);
}

TEST_F(MonitorMovingTest, WhenNobodyComesInTimeTheNicIsReset) {
    more_of_a_ = ",retain=1";
    start_monitored();
    attach();
    ASSERT_NO_FATAL_FAILURE(leave());
    ASSERT_GT(monitored_->kill(), 0);
    ASSERT_TRUE(says("client retain end: nic=a"));
    a_.reset();
    expect_usable("a");
    EXPECT_EQ(lines("reset request: nic=a"), 0U);
}

// Whatever the client says next about the move is refused, and the guest goes on where it is.
TEST_F(MonitorMovingTest, AGuestThatIsBeingMovedAwayStaysAndIsAskedForAReset) {
    start_monitored();
    attach();
    std::size_t files = 0;
    for (const unsigned state :
         {RawVfioUser::kRunning, RawVfioUser::kP2p, RawVfioUser::kStop, RawVfioUser::kStopCopy}) {
        SCOPED_TRACE(state);
        if (state == RawVfioUser::kStop) {  // it gives up behind five within a minute
            ::kill(monitored_->process().pid(), SIGTERM);
            (void)monitored_->process().wait();
            a_.reset();
            b_.reset();
            start_monitored();
            attach();
            files = 0;
        }
        RawVfioUser source = raw(*a_);
        ASSERT_TRUE(source.log(kStart, kRam));
        ASSERT_TRUE(source.set_state(state).ok());
        if (state == RawVfioUser::kStopCopy) {
            EXPECT_TRUE(
                source.call(17, RawVfioUser::number(4, 108) + RawVfioUser::number(4, 100)).ok());
        }
        ASSERT_GT(monitored_->kill(), 0);
        const bool runs = state == RawVfioUser::kRunning || state == RawVfioUser::kP2p;
        EXPECT_EQ(source.state(), runs ? RawVfioUser::kRunning : RawVfioUser::kStop);
        expect_refused(source.call(17, RawVfioUser::number(4, 108) + RawVfioUser::number(4, 100)));
        expect_refused(source.set_state(RawVfioUser::kStopCopy));
        EXPECT_TRUE(source.dirty(kStart, kRam).empty());
        EXPECT_TRUE(source.log_no_more());
        ASSERT_TRUE(source.set_state(RawVfioUser::kRunning).ok());
        ASSERT_NO_FATAL_FAILURE(recover());
        // Then it can be moved, as before.
        ASSERT_TRUE(source.set_state(RawVfioUser::kStopCopy).ok());
        EXPECT_FALSE(source.read_state(4096).empty());
        ASSERT_TRUE(source.set_state(RawVfioUser::kRunning).ok());
        ASSERT_NO_FATAL_FAILURE(exchange());
        if (files != 0) {
            EXPECT_TRUE(monitored_->files_back_to(files));
        }
        files = monitored_->open_files();
    }
}

/// The guest of A moves to C, which has the same address in another network.
class MonitorTargetTest : public MonitorMovingTest {
protected:
    MonitorTargetTest() {
        more_.insert(more_.end(), {"--nic",
                                   "id=c,mac=02:00:00:00:00:01,network=other,incoming=on,"
                                   "retain=600,socket=" +
                                       folder_ + "/c"});
    }
    [[nodiscard]] RawVfioUser::Bytes state_of_a() {
        RawVfioUser source = raw(*a_);
        EXPECT_TRUE(source.set_state(RawVfioUser::kStopCopy).ok());
        return source.read_state(1U << 20);
    }
};

TEST_F(MonitorTargetTest, AStateThatHadComeInPartIsRefused) {
    start_monitored();
    attach();
    const auto state = state_of_a();
    const RawVfioUser::Bytes half(state.begin(),
                                  state.begin() + static_cast<std::ptrdiff_t>(state.size() / 2));
    for (const bool resets : {true, false}) {
        SCOPED_TRACE(resets);
        const std::size_t files = monitored_->open_files();
        {
            Next to(folder_ + "/c", a_->nic->memory_file());
            ASSERT_TRUE(to.good);
            EXPECT_EQ(to.client.state(), unsigned{RawVfioUser::kRunning});
            ASSERT_TRUE(to.client.set_state(RawVfioUser::kResuming).ok());
            ASSERT_TRUE(to.client.write_state(half).ok());
            ASSERT_GT(monitored_->kill(), 0);
            EXPECT_EQ(to.client.state(), 0U) << "not an error";
            expect_refused(to.client.write_state(half));
            expect_refused(to.client.set_state(RawVfioUser::kStop));
            expect_refused(to.client.set_state(RawVfioUser::kRunning));
            if (resets) {
                ASSERT_TRUE(to.client.reset());
                EXPECT_EQ(to.client.state(), unsigned{RawVfioUser::kRunning});
                ASSERT_TRUE(to.client.set_state(RawVfioUser::kResuming).ok());
            }
        }
        EXPECT_TRUE(monitored_->files_back_to(files));
    }
    EXPECT_EQ(lines("client retain"), 0U);
    expect_usable("c");
    EXPECT_EQ(lines("reset request: nic=c"), 0U);
}

TEST_F(MonitorTargetTest, AStateThatHadBeenLoadedAsksForAResetWhenItRuns) {
    start_monitored();
    attach();
    Next to(folder_ + "/c", a_->nic->memory_file());
    ASSERT_TRUE(to.good);
    ASSERT_TRUE(to.client.set_state(RawVfioUser::kResuming).ok());
    ASSERT_TRUE(to.client.write_state(state_of_a(), 5000));
    ASSERT_TRUE(to.client.set_state(RawVfioUser::kStop).ok());
    a_->nic->client().close();
    ASSERT_GT(monitored_->kill(), 0);
    EXPECT_EQ(to.client.state(), unsigned{RawVfioUser::kStop});
    ASSERT_TRUE(to.client.set_state(RawVfioUser::kRunning).ok());
    settle(*a_, to);
    ASSERT_TRUE(hears_of_reset(*a_)) << "no reset request";
    ASSERT_NO_FATAL_FAILURE(begin_anew(*a_, 1));
    EXPECT_TRUE(a_->nic->alive());
}

using SourceThatDiesTest = TakeOverTest;

// Nobody goes on with it: the client of the target hears of it from the source's, and goes.
TEST_F(SourceThatDiesTest, TheTargetIsCleanAndTakesAnotherGuest) {
    start();
    attach();
    Process target({OPENMANA_MANAD, "--nic",
                    "id=a,mac=02:00:00:00:00:01,incoming=on,retain=600,socket=" + folder_ + "/to",
                    "--log", "error"});
    ASSERT_TRUE(target.says_ready());
    for (const bool all : {false, true}) {
        SCOPED_TRACE(all);
        RawVfioUser source(a_->nic->client().fd());
        ASSERT_TRUE(source.set_state(RawVfioUser::kStopCopy).ok());
        RawVfioUser::Bytes state;
        if (all) {
            state = source.read_state(1U << 20);
        } else {
            const auto piece =
                source.call(17, RawVfioUser::number(4, 1008) + RawVfioUser::number(4, 1000));
            ASSERT_TRUE(piece.ok());
            state.insert(state.end(), piece.payload.begin() + 8, piece.payload.end());
        }
        Next to(folder_ + "/to", a_->nic->memory_file());
        ASSERT_TRUE(to.good);
        ASSERT_TRUE(to.client.set_state(RawVfioUser::kResuming).ok());
        ASSERT_TRUE(to.client.write_state(state, 300));
        ::kill(manad_->pid(), SIGKILL);
        (void)manad_->wait();
        EXPECT_FALSE(source.set_state(RawVfioUser::kRunning).came);
        to.client.close();
        {
            const Client other(folder_ + "/to", 1);
            EXPECT_TRUE(other.nic->alive());
            (void)RawVfioUser(other.nic->client().fd()).reset();
        }
        a_.reset();
        b_.reset();
        start();
        attach();
    }
    ::kill(target.pid(), SIGTERM);
    const auto status = target.wait();
    EXPECT_TRUE(status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0);
}

}  // namespace
}  // namespace openmana::test

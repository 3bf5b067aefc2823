// SPDX-License-Identifier: Apache-2.0
#include "pci/irq_vectors.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "support/sim_executor.h"
#include "support/state_damage.h"
#include "support/vfio_user_client.h"

namespace openmana::pci {
namespace {

using base::UniqueFd;
using test::make_eventfd;
using test::take_signals;

UniqueFd copy_of(const UniqueFd& fd) {
    return UniqueFd(::dup(fd.get()));
}

class IrqVectorsTest : public testing::Test {
protected:
    Counters counters_;
    IrqVectors vectors_{4, counters_};
};

TEST_F(IrqVectorsTest, RaiseSignalsTheEventfdOfItsVector) {
    const auto one = make_eventfd();
    const auto two = make_eventfd();
    ASSERT_TRUE(vectors_.assign(1, copy_of(one)));
    ASSERT_TRUE(vectors_.assign(2, copy_of(two)));
    vectors_.raise(1);
    vectors_.raise(1);
    EXPECT_EQ(take_signals(one), 2U);
    EXPECT_EQ(take_signals(two), 0U);
    EXPECT_EQ(counters_.irq_sent.value(), 2U);
}

TEST_F(IrqVectorsTest, RaiseWithoutEventfdIsDeliveredOnceWhenOneComes) {
    vectors_.raise(0);
    vectors_.raise(0);
    EXPECT_TRUE(vectors_.pending(0));
    EXPECT_EQ(counters_.irq_pended.value(), 2U);
    const auto fd = make_eventfd();
    ASSERT_TRUE(vectors_.assign(0, copy_of(fd)));
    EXPECT_EQ(take_signals(fd), 1U);
    EXPECT_FALSE(vectors_.pending(0));
}

TEST_F(IrqVectorsTest, NewEventfdTakesTheOldOnesPlace) {
    const auto first = make_eventfd();
    const auto second = make_eventfd();
    ASSERT_TRUE(vectors_.assign(0, copy_of(first)));
    ASSERT_TRUE(vectors_.assign(0, copy_of(second)));
    vectors_.raise(0);
    EXPECT_EQ(take_signals(first), 0U);
    EXPECT_EQ(take_signals(second), 1U);
    ASSERT_TRUE(vectors_.assign(0, UniqueFd()));
    vectors_.raise(0);
    EXPECT_EQ(take_signals(second), 0U);
    EXPECT_TRUE(vectors_.pending(0));
}

TEST_F(IrqVectorsTest, MaskedVectorPendsUntilUnmasked) {
    const auto fd = make_eventfd();
    ASSERT_TRUE(vectors_.assign(0, copy_of(fd)));
    vectors_.mask(0, true);
    vectors_.raise(0);
    EXPECT_EQ(take_signals(fd), 0U);
    ASSERT_TRUE(vectors_.assign(0, copy_of(fd)));
    EXPECT_EQ(take_signals(fd), 0U);
    vectors_.mask(0, false);
    EXPECT_EQ(take_signals(fd), 1U);
    vectors_.mask(0, false);
    EXPECT_EQ(take_signals(fd), 0U);
}

TEST_F(IrqVectorsTest, DisableKeepsWhatIsPending) {
    const auto fd = make_eventfd();
    ASSERT_TRUE(vectors_.assign(0, copy_of(fd)));
    (void)vectors_.disable();
    vectors_.raise(0);
    EXPECT_EQ(take_signals(fd), 0U);
    ASSERT_TRUE(vectors_.assign(0, copy_of(fd)));
    EXPECT_EQ(take_signals(fd), 1U);
}

/// How long a file takes to close, its watchers have a say in: they are the client's.
TEST_F(IrqVectorsTest, DisableClosesNothingItself) {
    const auto fd = make_eventfd();
    ASSERT_TRUE(vectors_.assign(2, copy_of(fd)));
    const auto taken = vectors_.disable();
    ASSERT_EQ(taken.size(), 4U);
    EXPECT_FALSE(taken[1]);
    ASSERT_TRUE(taken[2]);
    EXPECT_GE(::fcntl(taken[2].get(), F_GETFD), 0);
}

/// An eventfd with so many watchers that each signal takes a while. Watched by copies of its
/// descriptor, so that few are needed.
struct WatchedByMany {
    static constexpr std::size_t kCopies = 300;
    WatchedByMany() {
        for (std::size_t i = 0; i < kCopies; ++i) copies.push_back(copy_of(eventfd));
        for (std::size_t i = 0; i < kCopies; ++i) {
            watchers.emplace_back(::epoll_create1(EPOLL_CLOEXEC));
            for (const UniqueFd& copy : copies) {
                epoll_event event{.events = EPOLLIN, .data = {}};
                EXPECT_EQ(::epoll_ctl(watchers.back().get(), EPOLL_CTL_ADD, copy.get(), &event), 0);
            }
        }
    }
    UniqueFd eventfd = make_eventfd();
    std::vector<UniqueFd> copies, watchers;
};

/// Vectors of a function with an executor of its own.
class LeftVectorsTest : public IrqVectorsTest {
protected:
    LeftVectorsTest() { vectors_.use_executor(executor_); }
    [[nodiscard]] bool left() const { return counters_.irq_left.value() != 0; }
    /// Raises vector 0 by an eventfd with many watchers until it is left to the executor, `between`
    /// two of them. False if it never is.
    template <typename F>
    bool raise_until_left(F&& between) {
        constexpr int kMost = 500;
        for (int i = 0; i < kMost && !left(); ++i) {
            EXPECT_TRUE(vectors_.assign(0, copy_of(slow_.eventfd)));
            vectors_.raise(0);
            EXPECT_EQ(take_signals(slow_.eventfd), 1U);
            between();
        }
        return left();
    }
    bool raise_until_left() {
        return raise_until_left([] {});
    }

    test::SimWorld world_;
    test::SimExecutor executor_{world_};
    const WatchedByMany slow_;
    const UniqueFd fast_ = make_eventfd();
};

TEST_F(LeftVectorsTest, AVectorWhoseSignalsTakeLongIsLeftToItsOwnExecutor) {
    ASSERT_TRUE(vectors_.assign(1, copy_of(fast_)));
    ASSERT_TRUE(raise_until_left());
    for (int i = 0; i < 3; ++i) {
        vectors_.raise(0);
        vectors_.raise(1);
    }
    EXPECT_EQ(take_signals(fast_), 3U) << "the others go on";
    EXPECT_EQ(take_signals(slow_.eventfd), 0U);
    world_.run_until_idle();
    EXPECT_EQ(take_signals(slow_.eventfd), 1U) << "one signal says as much as three";
    vectors_.mask(0, true);
    vectors_.raise(0);
    world_.run_until_idle();
    EXPECT_EQ(take_signals(slow_.eventfd), 0U);
    EXPECT_TRUE(vectors_.pending(0));
    vectors_.mask(0, false);
    EXPECT_EQ(take_signals(slow_.eventfd), 1U);
}

/// Of another eventfd, or of this one without its watchers: the client can have as many as it
/// wants.
TEST_F(LeftVectorsTest, QuickSignalsInBetweenMakeAVectorNoBetter) {
    EXPECT_TRUE(raise_until_left([this] {
        EXPECT_TRUE(vectors_.assign(0, copy_of(fast_)));
        vectors_.raise(0);
    }));
}

/// Another client may be the same one again.
TEST_F(LeftVectorsTest, AVectorIsRaisedByAllAgainWhenWhatItTookIsForgiven) {
    ASSERT_TRUE(raise_until_left());
    EXPECT_TRUE(vectors_.disable()[0]);
    ASSERT_TRUE(vectors_.assign(0, copy_of(fast_)));
    vectors_.raise(0);
    EXPECT_EQ(take_signals(fast_), 0U) << "another client comes at once";
    world_.run_until_idle();
    EXPECT_EQ(take_signals(fast_), 1U);
    world_.advance(IrqVectors::kForgiven * IrqVectors::kMostTaken);
    vectors_.raise(0);
    world_.run_until_idle();
    EXPECT_EQ(take_signals(fast_), 1U);
    vectors_.raise(0);
    EXPECT_EQ(take_signals(fast_), 1U) << "without the executor";
}

/// The NIC goes on in another process before the executor has raised it.
TEST_F(LeftVectorsTest, WhatIsLeftToTheExecutorIsPendingInAState) {
    ASSERT_TRUE(raise_until_left());
    vectors_.raise(0);
    ASSERT_EQ(take_signals(slow_.eventfd), 0U);

    const auto state = test::written({}, [&](base::StateWriter& out) { vectors_.save(out); });
    IrqVectors next(4, counters_);
    const auto fd = make_eventfd();
    ASSERT_TRUE(next.assign(0, copy_of(fd)));
    ASSERT_TRUE(test::read_state(state, {}, [&](base::StateReader& in) { next.load(in); }));
    EXPECT_EQ(take_signals(fd), 1U);
}

TEST_F(IrqVectorsTest, ResetForgetsPendingAndKeepsEventfds) {
    const auto fd = make_eventfd();
    vectors_.raise(0);
    ASSERT_TRUE(vectors_.assign(1, copy_of(fd)));
    vectors_.mask(1, true);
    vectors_.raise(1);
    vectors_.reset();
    EXPECT_FALSE(vectors_.pending(0));
    EXPECT_FALSE(vectors_.pending(1));
    vectors_.raise(1);
    EXPECT_EQ(take_signals(fd), 1U);
}

TEST_F(IrqVectorsTest, UnknownVectorsAreIgnored) {
    vectors_.raise(4);
    vectors_.raise(0xFFFFFFFF);
    vectors_.mask(4, true);
    EXPECT_FALSE(vectors_.pending(4));
    EXPECT_FALSE(vectors_.assign(4, make_eventfd()));
    EXPECT_EQ(counters_.irq_ignored.value(), 2U);
}

TEST_F(IrqVectorsTest, OnlyEventfdsAreTaken) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const UniqueFd reader(ends[0]);
    EXPECT_FALSE(vectors_.assign(0, UniqueFd(ends[1])));
    EXPECT_FALSE(vectors_.assign(0, test::make_memfd(4096)));
    EXPECT_FALSE(vectors_.assign(0, UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC))));
    EXPECT_EQ(counters_.eventfd_refused.value(), 3U);
    vectors_.raise(0);
    EXPECT_TRUE(vectors_.pending(0));
}

/// Runs `f` on a thread. False if it takes longer than five seconds; then what it waits for is
/// ended by taking the signals of `eventfd`.
bool ends_soon(const UniqueFd& eventfd, std::function<void()> f) {
    auto done = std::async(std::launch::async, std::move(f));
    if (done.wait_for(std::chrono::seconds(5)) == std::future_status::ready) return true;
    take_signals(eventfd);
    return false;
}

void fill(const UniqueFd& eventfd) {
    const std::uint64_t full = UINT64_MAX - 1;
    ASSERT_EQ(::write(eventfd.get(), &full, sizeof full), static_cast<ssize_t>(sizeof full));
}

TEST_F(IrqVectorsTest, FullEventfdDoesNotBlock) {
    const UniqueFd fd(::eventfd(0, EFD_CLOEXEC));  // blocking, as given
    fill(fd);
    ASSERT_TRUE(vectors_.assign(0, copy_of(fd)));
    EXPECT_TRUE(ends_soon(fd, [&] { vectors_.raise(0); }));
    EXPECT_EQ(counters_.irq_sent.value(), 1U);
    EXPECT_GE(take_signals(fd), UINT64_MAX - 1);
}

TEST_F(IrqVectorsTest, ClientThatFillsAnEventfdAndMakesItBlockingHoldsNobody) {
    const auto fd = make_eventfd();
    ASSERT_TRUE(vectors_.assign(0, copy_of(fd)));
    fill(fd);
    ASSERT_EQ(::fcntl(fd.get(), F_SETFL, 0), 0);  // the open file is shared: O_NONBLOCK is gone
    EXPECT_TRUE(ends_soon(fd, [&] {
        for (int i = 0; i < 1000; ++i) vectors_.raise(0);
    }));
    EXPECT_EQ(counters_.irq_sent.value(), 1000U);
    ASSERT_EQ(::fcntl(fd.get(), F_SETFL, O_NONBLOCK), 0);
    take_signals(fd);
    vectors_.raise(0);
    EXPECT_EQ(take_signals(fd), 1U) << "interrupts go on once the counter is read";
}

TEST_F(IrqVectorsTest, NoSignalIsLostWhileEventfdsChange) {
    constexpr std::uint64_t kRaises = 20000;
    std::vector<UniqueFd> fds;
    for (int i = 0; i < 4; ++i) fds.push_back(make_eventfd());
    ASSERT_TRUE(vectors_.assign(0, copy_of(fds[0])));
    std::atomic<bool> done{false};
    std::thread raiser([&] {
        for (std::uint64_t i = 0; i < kRaises; ++i) vectors_.raise(0);
        done = true;
    });
    // Replaced only by other eventfds: every raise must arrive at one of them.
    for (std::size_t i = 0; !done; ++i)
        EXPECT_TRUE(vectors_.assign(0, copy_of(fds[i % fds.size()])));
    raiser.join();
    std::uint64_t total = 0;
    for (const auto& fd : fds) total += take_signals(fd);
    EXPECT_EQ(total, kRaises);
    EXPECT_EQ(counters_.irq_pended.value(), 0U);
}

TEST_F(IrqVectorsTest, LastRaiseArrivesThoughTheVectorWasOffMeanwhile) {
    const auto fd = make_eventfd();
    for (int round = 0; round < 500; ++round) {
        std::thread raiser([&] { vectors_.raise(0); });
        (void)vectors_.disable();
        ASSERT_TRUE(vectors_.assign(0, copy_of(fd)));
        raiser.join();
        ASSERT_GE(take_signals(fd), 1U);
    }
}

}  // namespace
}  // namespace openmana::pci

// SPDX-License-Identifier: Apache-2.0
#include "base/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include <cerrno>
#include <ctime>

namespace openmana::base {
namespace {

/// As long as there are tasks, descriptors are looked at this often: it costs system calls, and
/// these the caches.
constexpr Duration kLookEvery = std::chrono::microseconds(50);
constexpr int kMaxEvents = 64;

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::create() {
    UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
    if (!epoll)
        return fail(ErrorCode::kIo, "cannot create an epoll instance",
                    static_cast<unsigned>(errno));
    UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake)
        return fail(ErrorCode::kIo, "cannot create an eventfd", static_cast<unsigned>(errno));
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = wake.get();
    if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0)
        return fail(ErrorCode::kIo, "cannot watch the eventfd", static_cast<unsigned>(errno));
    return std::unique_ptr<EventLoop>(new EventLoop(std::move(epoll), std::move(wake)));
}

EventLoop::~EventLoop() = default;

Result<void> EventLoop::add(int fd, std::uint32_t epoll_events, Handler handler) {
    epoll_event event{};
    event.events = epoll_events;
    event.data.fd = fd;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
        return fail(ErrorCode::kIo, "cannot watch a descriptor", static_cast<unsigned>(errno));
    handlers_[fd] = std::make_shared<Handler>(std::move(handler));
    return {};
}

Result<void> EventLoop::modify(int fd, std::uint32_t epoll_events) {
    epoll_event event{};
    event.events = epoll_events;
    event.data.fd = fd;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0)
        return fail(ErrorCode::kIo, "cannot change a watched descriptor",
                    static_cast<unsigned>(errno));
    return {};
}

void EventLoop::remove(int fd) {
    if (handlers_.erase(fd) != 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void EventLoop::wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto n = ::write(wake_.get(), &one, sizeof one);
}

void EventLoop::post(std::function<void()> task) {
    {
        const std::lock_guard lock(mutex_);
        tasks_.push_back(std::move(task));
        has_tasks_.store(true);
    }
    if (sleeping_.exchange(false)) wake();
}

void EventLoop::stop() {
    stop_.store(true);
    wake();
}

bool EventLoop::on_thread() const {
    const auto owner = thread_.load(std::memory_order_relaxed);
    return owner == std::thread::id{} || owner == std::this_thread::get_id();
}

bool EventLoop::run_tasks() {
    if (!has_tasks_.load()) return false;
    {
        const std::lock_guard lock(mutex_);
        running_tasks_.swap(tasks_);
        has_tasks_.store(false);
    }
    activity_.set("tasks");
    for (auto& task : running_tasks_) task();
    running_tasks_.clear();
    return true;
}

bool EventLoop::poll(bool may_sleep) {
    timespec timeout{};
    timespec* wait = &timeout;
    if (may_sleep) {
        ++sleeps_;
        activity_.set("sleep");
        sleeping_.store(true);
        const auto next = timers_.next();
        if (has_tasks_.load() || stop_.load()) {
            sleeping_.store(false);
        } else if (!next) {
            wait = nullptr;
        } else if (const auto delay = *next - clock_.now(); delay > Duration::zero()) {
            timeout.tv_sec = delay.count() / 1000000000;
            timeout.tv_nsec = delay.count() % 1000000000;
        }
    }
    epoll_event events[kMaxEvents];
    const int n = ::epoll_pwait2(epoll_.get(), events, kMaxEvents, wait, nullptr);
    if (may_sleep) sleeping_.store(false);
    bool worked = false;
    activity_.set("descriptors");
    for (int i = 0; i < n; ++i) {
        if (events[i].data.fd == wake_.get()) {
            std::uint64_t count = 0;
            [[maybe_unused]] const auto r = ::read(wake_.get(), &count, sizeof count);
            continue;
        }
        // A handler earlier in this batch may have removed this one; the pointer keeps a running
        // handler alive.
        const auto found = handlers_.find(events[i].data.fd);
        if (found == handlers_.end()) continue;
        const auto handler = found->second;
        (*handler)(events[i].events);
        worked = true;
    }
    return worked;
}

void EventLoop::run(const std::function<void()>& first) {
    thread_.store(std::this_thread::get_id());
    // Timers of microseconds are meant so: the kernel lets a thread sleep 50 us longer otherwise.
    ::prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
    Activity::attach(&activity_);
    if (first) first();
    TimePoint last_work = clock_.now();
    TimePoint last_look = last_work;
    while (!stop_.load(std::memory_order_relaxed)) {
        turn_.store(turn_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        bool worked = run_tasks();
        activity_.set("timers");
        worked |= timers_.fire(clock_.now());
        activity_.set("pollers");
        const Poller::State watched = poll_all();
        worked |= watched == Poller::State::kWorked;
        const TimePoint now = clock_.now();
        if (has_tasks_.load() && now - last_look < kLookEvery) continue;
        last_look = now;
        const bool idle =
            !worked && watched == Poller::State::kIdle && !busy_poll_.again(now - last_work);
        if (poll(idle)) {
            worked = true;
            // What followed from it does not wait for the tasks.
            activity_.set("pollers");
            (void)poll_all();
        }
        if (!worked) continue;
        busy_poll_.found();
        last_work = clock_.now();
    }
    // Still the loop's thread: others may go on for a while, and are not on it now either.
    stop_.store(false);
    Activity::attach(nullptr);
}

}  // namespace openmana::base

// SPDX-License-Identifier: Apache-2.0
#include "base/event_signal.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace openmana::base {
namespace {

constexpr unsigned kRequests = 64;  // each is over when io_submit returns: threads at once
constexpr int kTries = 16;

/// Head of the completion ring, which the kernel maps at the address that names the context. It
/// moves `tail`; the process moves `head`.
struct Ring {
    std::uint32_t id;
    std::uint32_t size;
    std::uint32_t head;
    std::uint32_t tail;
    std::uint32_t magic;
    std::uint32_t compatible;
    std::uint32_t incompatible;
    std::uint32_t header_size;
};
constexpr std::uint32_t kRingMagic = 0xa10a10a1;

/// Nobody reads the completions: all there are count as read. Threads that do this at once may
/// leave a few, which then are read with the next.
void drop_completions(unsigned long context) {
    auto* ring = reinterpret_cast<Ring*>(context);
    const std::uint32_t tail = std::atomic_ref(ring->tail).load(std::memory_order_acquire);
    std::atomic_ref(ring->head).store(tail, std::memory_order_release);
}

}  // namespace

EventSignal& EventSignal::shared() {
    static EventSignal signal;
    return signal;
}

EventSignal::EventSignal() : null_(::open("/dev/null", O_RDONLY | O_CLOEXEC)) {
    if (!null_) {
        ready_ = fail(ErrorCode::kIo, "cannot open /dev/null", static_cast<unsigned>(errno));
        return;
    }
    if (::syscall(SYS_io_setup, kRequests, &context_) != 0) {
        context_ = 0;
        ready_ = fail(ErrorCode::kIo, "no asynchronous requests", static_cast<unsigned>(errno));
        return;
    }
    const auto* ring = reinterpret_cast<const Ring*>(context_);
    if (ring->magic != kRingMagic || ring->incompatible != 0)
        ready_ = fail(ErrorCode::kUnsupported, "unknown ring of asynchronous requests");
}

EventSignal::~EventSignal() {
    if (context_ != 0) ::syscall(SYS_io_destroy, context_);
}

bool EventSignal::submit(int eventfd) {
    iocb request{};
    request.aio_lio_opcode = IOCB_CMD_PREAD;
    request.aio_fildes = static_cast<std::uint32_t>(null_.get());
    request.aio_flags = IOCB_FLAG_RESFD;
    request.aio_resfd = static_cast<std::uint32_t>(eventfd);
    iocb* list[] = {&request};
    // EAGAIN: more threads than requests.
    for (int i = 0; i < kTries; ++i) {
        const long done = ::syscall(SYS_io_submit, context_, 1L, list);
        const int error = errno;
        drop_completions(context_);
        if (done == 1) return true;
        if (error != EAGAIN && error != EINTR) return false;
    }
    return false;
}

bool EventSignal::raise(int eventfd) {
    if (ready_) [[likely]]
        return submit(eventfd);
    const std::uint64_t one = 1;
    ssize_t written;
    do {
        written = ::write(eventfd, &one, sizeof one);
    } while (written < 0 && errno == EINTR);
    // EAGAIN: the counter is full, so that a signal is waiting anyway.
    return written == sizeof one || errno == EAGAIN;
}

}  // namespace openmana::base

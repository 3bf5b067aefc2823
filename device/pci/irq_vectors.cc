// SPDX-License-Identifier: Apache-2.0
#include "pci/irq_vectors.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/fd_name.h"

namespace openmana::pci {

using base::ErrorCode;
using base::fail;
using base::Result;
using base::UniqueFd;

namespace {

bool is_eventfd(int fd) {
    return base::fd_is(fd, "anon_inode:[eventfd]");
}

}  // namespace

IrqVectors::IrqVectors(unsigned count, Counters& counters)
    : count_(count),
      counters_(counters),
      signal_(base::EventSignal::shared()),
      vectors_(std::make_unique<Vector[]>(count)) {}

void IrqVectors::use_ledger(EndpointLedger& ledger) {
    OM_CHECK(count_ <= EndpointLedger::kMaxVectors);
    ledger_ = &ledger;
}

Result<void> IrqVectors::recover_eventfds() {
    for (unsigned i = 0; i < count_; ++i) {
        const int number = ledger_->vectors[i].number();
        if (number < 0) continue;
        // Until it is a vector's nobody closes it: the ledger still names it.
        if (!is_eventfd(number)) {
            ledger_->vectors[i].forget();
            continue;
        }
        TRY_VOID(assign(i, UniqueFd(number)));
    }
    return {};
}

/// Before what was there is closed.
void IrqVectors::note_locked(unsigned number, const UniqueFd& eventfd) {
    if (ledger_ == nullptr) return;
    if (eventfd)
        ledger_->vectors[number].hold(eventfd.get());
    else
        ledger_->vectors[number].forget();
}

void IrqVectors::fire_locked(Vector& vector) {
    if (!vector.eventfd || vector.masked || vector.held) {
        vector.pending = true;
        counters_.irq_pended.add();
        return;
    }
    vector.pending = false;
    signal_locked(vector);
}

void IrqVectors::signal_locked(Vector& vector) {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    (signal_.raise(vector.eventfd.get()) ? counters_.irq_sent : counters_.irq_failed).add();
    const base::Duration took = Clock::now() - begin;
    if (took <= kLong || executor_ == nullptr) [[likely]]
        return;
    forgive_locked(vector);
    vector.taken = std::min(vector.taken + took, kMostTaken);
    if (vector.taken < kMostTaken) return;
    if (!vector.left.exchange(true, std::memory_order_relaxed)) counters_.irq_left.add();
}

void IrqVectors::forgive_locked(Vector& vector) const {
    const base::TimePoint now = executor_->now();
    vector.taken =
        std::max(vector.taken - (now - vector.forgiven_at) / kForgiven, base::Duration::zero());
    vector.forgiven_at = now;
}

/// Who raises a vector may hold what others wait for. One task does for all that is raised until it
/// runs.
void IrqVectors::raise_later(unsigned number) {
    Vector& vector = vectors_[number];
    if (vector.posted.exchange(true, std::memory_order_acq_rel)) return;
    executor_->post([this, &vector] {
        vector.posted.store(false, std::memory_order_release);
        const std::lock_guard lock(vector.mutex);
        fire_locked(vector);
        forgive_locked(vector);
        if (vector.taken == base::Duration::zero())
            vector.left.store(false, std::memory_order_relaxed);
    });
}

void IrqVectors::release_locked(Vector& vector) {
    if (vector.pending && vector.eventfd && !vector.masked && !vector.held) fire_locked(vector);
}

void IrqVectors::raise(unsigned vector) {
    if (vector >= count_) [[unlikely]] {
        counters_.irq_ignored.add();
        return;
    }
    Vector& target = vectors_[vector];
    if (target.left.load(std::memory_order_relaxed)) [[unlikely]] {
        raise_later(vector);
        return;
    }
    const std::lock_guard lock(target.mutex);
    fire_locked(target);
}

void IrqVectors::raise_assigned() {
    for (unsigned i = 0; i < count_; ++i) {
        const std::lock_guard lock(vectors_[i].mutex);
        if (vectors_[i].eventfd) fire_locked(vectors_[i]);
    }
}

Result<void> IrqVectors::assign(unsigned vector, UniqueFd eventfd) {
    if (vector >= count_) return fail(ErrorCode::kOutOfRange, "no such vector", vector);
    if (eventfd) {
        if (!is_eventfd(eventfd.get())) {
            counters_.eventfd_refused.add();
            return fail(ErrorCode::kInvalidArgument, "not an eventfd", vector);
        }
        // For signals that are writes. The flag belongs to the open file, which the client shares.
        const int flags = ::fcntl(eventfd.get(), F_GETFL);
        if (flags < 0 || ((flags & O_NONBLOCK) == 0 &&
                          ::fcntl(eventfd.get(), F_SETFL, flags | O_NONBLOCK) < 0)) {
            return fail(ErrorCode::kIo, "cannot make the eventfd non-blocking",
                        static_cast<unsigned>(errno));
        }
    }
    Vector& target = vectors_[vector];
    {
        const std::lock_guard lock(target.mutex);
        std::swap(target.eventfd, eventfd);
        note_locked(vector, target.eventfd);
        release_locked(target);
    }
    return {};  // the old one is closed here, outside the lock
}

void IrqVectors::mask(unsigned vector, bool masked) {
    if (vector >= count_) return;
    Vector& target = vectors_[vector];
    const std::lock_guard lock(target.mutex);
    target.masked = masked;
    release_locked(target);
}

void IrqVectors::hold(bool held) {
    for (unsigned i = 0; i < count_; ++i) {
        const std::lock_guard lock(vectors_[i].mutex);
        vectors_[i].held = held;
        release_locked(vectors_[i]);
    }
}

bool IrqVectors::pending(unsigned vector) const {
    if (vector >= count_) return false;
    const std::lock_guard lock(vectors_[vector].mutex);
    return vectors_[vector].pending;
}

std::vector<UniqueFd> IrqVectors::disable() {
    std::vector<UniqueFd> taken(count_);
    for (unsigned i = 0; i < count_; ++i) {
        const std::lock_guard lock(vectors_[i].mutex);
        note_locked(i, {});
        taken[i] = std::move(vectors_[i].eventfd);
        vectors_[i].masked = false;
    }
    return taken;
}

void IrqVectors::reset() {
    for (unsigned i = 0; i < count_; ++i) {
        const std::lock_guard lock(vectors_[i].mutex);
        vectors_[i].pending = false;
        vectors_[i].masked = false;
    }
}

void IrqVectors::save(base::StateWriter& out) const {
    out.count(count_);
    for (unsigned i = 0; i < count_; ++i) {
        const std::lock_guard lock(vectors_[i].mutex);
        // What a task of the executor is to raise, only this process knows.
        const bool posted = vectors_[i].posted.load(std::memory_order_acquire);
        out(vectors_[i].pending || posted, vectors_[i].masked);
    }
}

void IrqVectors::load(base::StateReader& in) {
    in.require(in.count() == count_, "another number of vectors");
    struct Saved {
        bool pending = false;
        bool masked = false;
    };
    std::vector<Saved> saved(count_);
    for (Saved& vector : saved) in(vector.pending, vector.masked);
    for (unsigned i = 0; i < count_ && in.ok(); ++i) {
        const std::lock_guard lock(vectors_[i].mutex);
        vectors_[i].pending = saved[i].pending;
        vectors_[i].masked = saved[i].masked;
        release_locked(vectors_[i]);
    }
}

void IrqVectors::save_eventfds(base::StateWriter& out) const {
    out.count(count_);
    for (unsigned i = 0; i < count_; ++i) {
        const std::lock_guard lock(vectors_[i].mutex);
        out.descriptor(vectors_[i].eventfd.get());
    }
}

void IrqVectors::load_eventfds(base::StateReader& in) {
    in.require(in.count() == count_, "another number of vectors");
    for (unsigned i = 0; i < count_ && in.ok(); ++i) {
        UniqueFd eventfd = in.descriptor();
        if (!in.ok()) return;
        if (const auto given = assign(i, std::move(eventfd)); !given) in.refuse(given.error());
    }
}

}  // namespace openmana::pci

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gdma/function_ledger.h"
#include "manad/options.h"
#include "pci/endpoint_ledger.h"
#include "vfio_user/server_ledger.h"

namespace openmana::manad {

/// A text that changes as a whole. One that does not fit is not kept.
class LedgerText {
public:
    static constexpr std::size_t kMost = PolicyOptions::kMaxText;
    void set(std::string_view text);
    [[nodiscard]] std::string get() const;

private:
    struct Copy {
        std::uint32_t length = 0;
        char bytes[kMost];  // not touched before it is needed
    };
    std::atomic<std::uint32_t> current_{0};
    std::array<Copy, 2> copies_;
};

/// What a process that goes on needs of a NIC.
struct NicLedger {
    enum : std::uint32_t { kFree, kTaken, kLeaving };
    std::atomic<std::uint32_t> state{kFree};  ///< written last by who takes it
    std::atomic<std::uint32_t> came_later{0};
    LedgerText options;  ///< as NicOptions::text
    LedgerText policy;   ///< as PolicyOptions has it; empty: none
    vfio_user::ServerLedger server;
    pci::EndpointLedger endpoint;
    gdma::FunctionLedger function;

    /// As after a reset.
    void forget_guest() {
        endpoint.registers.set({});
        function.forget_driver();
    }
};

/// Gives it back. One that a process has left which has ended is left to the next, until its NIC is
/// there.
struct FreeNicLedger {
    bool leaves = false;
    void operator()(NicLedger* nic) const {
        if (!leaves) nic->state.store(NicLedger::kFree, std::memory_order_release);
    }
};
using NicLedgerClaim = std::unique_ptr<NicLedger, FreeNicLedger>;

/// What the processes of a Monitor leave to each other: memory that all of them share. A process
/// writes it as it works, and nothing at its end. Only processes of one program see it, so it has
/// no version.
class Ledger {
public:
    /// For so many NICs. Pages that nobody writes to are not there.
    static base::Result<std::unique_ptr<Ledger>> create(std::size_t nics);
    ~Ledger();
    Ledger(const Ledger&) = delete;
    Ledger& operator=(const Ledger&) = delete;

    /// For a NIC that is made, and is to have that policy from the start (as PolicyOptions has it);
    /// the one that it was before, if there is one. Null if all are taken.
    [[nodiscard]] NicLedgerClaim claim(const NicOptions& nic, std::string_view policy = {});
    /// Of a process that goes on, before it opens anything: what no NIC needs of all that its
    /// predecessor had open is closed, but for `kept`, and the NICs of the options are those that
    /// there were, with their policies. How many were closed.
    std::size_t recover(Options& options, std::span<const int> kept);
    /// Connections of clients that the next process goes on with, if there is one. Any thread.
    [[nodiscard]] std::vector<int> clients() const;
    /// It serves.
    void set_ready() { ready_->store(1, std::memory_order_relaxed); }
    /// One of the processes did.
    [[nodiscard]] bool ready() const { return ready_->load(std::memory_order_relaxed) != 0; }

private:
    Ledger(void* memory, std::size_t bytes, std::size_t nics);
    void recover_nics(Options& options);

    void* const memory_;
    const std::size_t bytes_;
    std::atomic<std::uint32_t>* ready_;
    std::span<NicLedger> nics_;
};

/// The descriptors that this process has open.
[[nodiscard]] std::vector<int> open_descriptors();

}  // namespace openmana::manad

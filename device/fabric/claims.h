// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/hold_meter.h"
#include "fabric/reach.h"
#include "roce/address.h"

namespace openmana::fabric {

/// How good a claim is. A better one goes before a worse one, whoever came first.
enum class Standing : std::uint8_t {
    kForbidden,  ///< the NIC's policy names other addresses
    kDown,       ///< its link is down
    kFree,       ///< nobody says anything against it
    kGranted,    ///< the NIC's policy names the address
    kOwn,        ///< it follows from the NIC's MAC address
};

/// Which of the NICs of a switch speaks for an address, when the guests of several have given it to
/// their adapters: the one that claimed it first, as duplicate address detection has it (RFC 5227,
/// RFC 4862), unless another's claim is better. The others wait until it goes. Any thread.
class Claims {
public:
    /// A NIC. It releases what it has claimed before it goes.
    class Claimant {
    public:
        virtual ~Claimant() = default;
        [[nodiscard]] virtual const std::string& claimant_name() const = 0;
        /// Under the lock of the claims: takes no gate and asks them nothing. Any thread.
        [[nodiscard]] virtual Standing standing(const roce::Gid& gid) const = 0;
        /// It serves the address from now on, or does not any more, because of what another did.
        /// Under the lock too: only takes note. Any thread.
        virtual void claim_changed(const roce::Address& address) = 0;
    };

    /// Counts in `reach`, which outlives it, what changes foreign().
    explicit Claims(Reach& reach) : reach_(reach) {}

    /// True if the claimant serves the address now; else it waits.
    bool claim(Claimant& claimant, const roce::Address& address);
    void release(Claimant& claimant, const roce::Address& address);
    void release_all(Claimant& claimant);
    /// The standing of a claim may be another. True if the claimant serves the address now.
    bool review(Claimant& claimant, const roce::Address& address);
    /// Whether somebody else than `claimant`, which may be null, serves the address, by a claim
    /// that is as good as `least`.
    [[nodiscard]] bool foreign(const Claimant* claimant, const roce::Address& address,
                               Standing least) const;
    /// Name of who serves the address; empty if it is nobody's.
    [[nodiscard]] std::string holder_name(const roce::Address& address) const;

private:
    struct Claim {
        Claimant* claimant = nullptr;
        Standing standing = Standing::kForbidden;
        friend bool operator==(const Claim&, const Claim&) = default;
    };
    struct Claimed {
        std::vector<Claim> claims;  ///< in the order of their coming
        Claimant* holder = nullptr;
    };
    /// Who has it, and how good the claim is.
    [[nodiscard]] static Claim held(const Claimed& claimed);
    void settle(const roce::Address& address, Claimed& claimed, const Claimant& asking,
                const Claim& before);

    Reach& reach_;
    mutable base::SharedMutex mutex_{"claims"};  // protects the next two
    std::map<roce::Address, Claimed> addresses_;
    std::map<const Claimant*, std::set<roce::Address>> claimed_by_;  // none of them is empty
};

}  // namespace openmana::fabric

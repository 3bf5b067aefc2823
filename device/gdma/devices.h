// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "gdma/command.h"
#include "gdma/handle.h"
#include "gdma/tables.h"
#include "gdma/types.h"

namespace openmana::gdma {

/// A device of the function, and what it got by its registration: it holds that.
struct Device {
    Client* client = nullptr;
    bool registered = false;
    Handle<Pd> pd;
    Key gpa_key{};
    Handle<PageGrant> page;
};

/// The devices of a function (GDMA 0.2). On the executor.
class Devices {
public:
    explicit Devices(Tables& tables) : tables_(tables) {}

    void attach(Client& client);
    [[nodiscard]] const std::vector<Device>& list() const { return devices_; }  ///< by type
    /// Null if there is none.
    [[nodiscard]] Device* find(DeviceType type, std::uint16_t instance);
    base::Result<void> add_registration(Device& device);
    /// What the device still has goes. kBusy, and it stays registered, if another one uses its EQs,
    /// its PD or its page.
    base::Result<void> remove_registration(Device& device);
    /// The function is reset: first the clients drop their objects, then this.
    void reset_clients();
    void reset();
    /// Registrations alone; the clients' own states come behind.
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);
    void save_clients(base::StateWriter& out) const;
    void load_clients(base::StateReader& in);
    /// All clients go on behind a process that has ended; see Client.
    void recover_clients(FunctionLedger& ledger);
    bool stale_doorbell(std::uint64_t offset, std::uint64_t value);

private:
    Tables& tables_;
    std::vector<Device> devices_;
};

}  // namespace openmana::gdma

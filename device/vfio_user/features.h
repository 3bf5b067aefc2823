// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "vfio_user/counters.h"
#include "vfio_user/device_backend.h"
#include "vfio_user/message.h"
#include "vfio_user/migration.h"

namespace openmana::vfio_user {

/// DEVICE_FEATURE, MIG_DATA_READ and MIG_DATA_WRITE of one client of a device that can move. What
/// is wrong with a message is found before anything is done; the errno is EINVAL, as libvfio-user
/// has it, unless said otherwise.
class Features {
public:
    Features(MovableDevice& device, Counters& counters, const std::string& name, DeviceState state)
        : device_(device), migration_(device, counters, name, state) {}

    /// These read a request's payload and append the reply's. `most`: data that the client takes in
    /// a reply.
    base::Result<void> on_device_feature(Reader reader, Writer reply, std::uint64_t most);
    base::Result<void> on_data_read(Reader reader, Writer reply, std::uint64_t most);
    base::Result<void> on_data_write(Reader reader);
    /// After the device's.
    void reset() { migration_.reset(); }
    [[nodiscard]] const Migration& migration() const { return migration_; }

private:
    base::Result<void> get(Feature feature, const FeatureHead& head, Reader data, Writer reply,
                           std::uint64_t most);
    base::Result<void> set(Feature feature, const FeatureHead& head, Reader data, Writer reply);
    base::Result<void> start_logging(const FeatureHead& head, Reader data, Writer reply);
    base::Result<void> report(const FeatureHead& head, Reader data, Writer reply,
                              std::uint64_t most);

    MovableDevice& device_;
    Migration migration_;
};

}  // namespace openmana::vfio_user

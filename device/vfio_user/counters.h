// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/counters.h"

namespace openmana::vfio_user {

#define OM_VFIO_USER_COUNTERS(X)                                                                  \
    X(clients, "vfio_user.client.accepted", "clients that connected")                             \
    X(malformed, "vfio_user.client.malformed",                                                    \
      "connections ended because the client broke the protocol")                                  \
    X(batches, "vfio_user.socket.batches", "reads of the socket that brought data")               \
    X(messages, "vfio_user.message.received", "messages received")                                \
    X(refused, "vfio_user.message.refused", "messages answered with an error")                    \
    X(posted_refused, "vfio_user.message.posted_refused",                                         \
      "messages that want no reply and could not be carried out")                                 \
    X(writes_posted, "vfio_user.write.posted", "writes to regions that want no reply: doorbells") \
    X(writes_answered, "vfio_user.write.answered",                                                \
      "writes to regions for whose reply the client waits")                                       \
    X(unknown, "vfio_user.message.unknown", "messages with a command that is not offered")        \
    X(fds_dropped, "vfio_user.fd.dropped",                                                        \
      "file descriptors that came with a message that takes none")                                \
    X(states_saved, "vfio_user.migration.saved", "states of the device that clients were given")  \
    X(states_loaded, "vfio_user.migration.loaded",                                                \
      "states that clients gave and the device goes on from")                                     \
    X(states_refused, "vfio_user.migration.refused",                                              \
      "states that clients gave and the device refused")                                          \
    X(retains, "vfio_user.client.retained",                                                       \
      "times that the device was kept for another client when one had gone")                      \
    X(retains_ended, "vfio_user.client.retain_ended",                                             \
      "of these, times that no other client came within the time")

OM_COUNTERS(Counters, OM_VFIO_USER_COUNTERS);

}  // namespace openmana::vfio_user

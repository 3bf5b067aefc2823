// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/counters.h"

namespace openmana::esp {

#define OM_ESP_COUNTERS(X)                                                                        \
    X(refused, "fabric.uplink.esp_refused",                                                       \
      "frames that were not sent because there was no SA: the clock was set back, or the key is " \
      "gone")                                                                                     \
    X(rekeys, "fabric.uplink.esp_rekeys", "SAs begun for what is sent")                           \
    X(peer_rekeys, "fabric.uplink.esp_peer_rekeys", "SAs that the other end began")               \
    X(notices, "fabric.uplink.esp_notices",                                                       \
      "packets without a frame, sent so that the other end learns of an SA")                      \
    X(malformed, "fabric.uplink.esp_malformed", "packets dropped: cut, or no ESP")                \
    X(forged, "fabric.uplink.esp_forged",                                                         \
      "packets dropped: encrypted with another key, or changed on the way")                       \
    X(replayed, "fabric.uplink.esp_replayed",                                                     \
      "packets dropped: come already, or more than 65,472 behind the newest")                     \
    X(old, "fabric.uplink.esp_old", "packets dropped: of an SA that is over")                     \
    X(unknown, "fabric.uplink.esp_unknown",                                                       \
      "packets dropped: of an SA that did not begin within 60 s of now")

OM_COUNTERS(EspCounters, OM_ESP_COUNTERS);

}  // namespace openmana::esp

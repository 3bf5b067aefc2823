// SPDX-License-Identifier: Apache-2.0
#include "manad/qp_rows.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "manad/control.h"

namespace openmana::manad {
namespace {

/// Each as long as it can be: 16 MiB have room for all that are shown.
TEST(QpRows, AnAnswerHasRoomForThoseThatItHas) {
    constexpr auto kBig = std::numeric_limits<std::uint64_t>::max();
    constexpr auto kMost = std::numeric_limits<std::uint32_t>::max();
    const rnic::QpStatus longest{.qpn = kMost,
                                 .type = "GSI",
                                 .state = "RESET",
                                 .path = "local",
                                 .remote_qpn = kMost,
                                 .tx_messages = kBig,
                                 .tx_bytes = kBig,
                                 .rx_messages = kBig,
                                 .rx_bytes = kBig,
                                 .retries = kBig,
                                 .rnr_retries = kBig,
                                 .credit_waits = kBig,
                                 .errors = kBig,
                                 .rate_mbps = kMost};
    QpRows rows;
    rows.add(std::string(32, 'a'), std::vector(QpRows::kMost - 1, longest));
    rows.add(std::string(32, 'b'), std::vector(100000, longest));
    EXPECT_EQ(rows.all(), QpRows::kMost - 1 + 100000);
    const nlohmann::json shown = rows.take();
    EXPECT_EQ(shown.size(), QpRows::kMost);
    EXPECT_EQ(shown.back()["nic"], std::string(32, 'b'));
    EXPECT_LT(shown.dump().size(), ControlServer::kMaxAnswer - 65536);
}

}  // namespace
}  // namespace openmana::manad

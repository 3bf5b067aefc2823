// SPDX-License-Identifier: Apache-2.0
// What a scrape costs those whose figures it takes.
#include <sys/socket.h>

#include <string>

#include "base/hold_meter.h"
#include "daemon_fixture.h"

namespace openmana::manad {
namespace {

class ManyNicsTest : public DaemonTest {
protected:
    static constexpr unsigned kNics = 200;

    void configure(Options& options) override {
        options.nics.clear();
        for (unsigned i = 0; i < kNics; ++i) {
            NicOptions nic;
            nic.nic.name = "n" + std::to_string(i);
            nic.nic.mac = test::test_mac(static_cast<std::uint8_t>(i));
            nic.socket = directory / nic.nic.name;
            options.nics.push_back(nic);
        }
        MetricsPlace place;
        place.path = place.text = directory / "metrics";
        options.metrics.push_back(place);
    }
    [[nodiscard]] std::string scrape() const {
        const auto http = base::connect_unix(directory / "metrics").value();
        const std::string request =
            "GET /metrics HTTP/1.1\r\nHost: manad\r\nConnection: close\r\n\r\n";
        if (::send(http.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return {};
        std::string answer;
        std::string part(1 << 16, '\0');
        for (ssize_t n = 1; n > 0; answer.append(part, 0, static_cast<std::size_t>(n)))
            n = ::recv(http.get(), part.data(), part.size(), 0);
        return answer;
    }

    base::HoldMeter meter_;  // before the gates
};

TEST_F(ManyNicsTest, AScrapeHoldsNoGateAndNoLockOfTheirs) {
    // What comes late from the start of the NICs is over when each has answered.
    ASSERT_TRUE(succeeds({{"command", "status"}}));
    meter_.clear();
    const std::string answer = scrape();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200"));
    EXPECT_NE(answer.find("manad_rnic_request_seconds_count{nic=\"n199\""), std::string::npos);
    EXPECT_EQ(meter_.holds(), 0U) << meter_.report();
    // The meter sees them: a reset takes the gate.
    ASSERT_TRUE(succeeds({{"command", "reset"}, {"nic", "n0"}}));
    EXPECT_GT(meter_.holds(), 0U);
}

TEST_F(DaemonTest, StatisticsSayWhenTheyWereAndWhatRequestsThereWere) {
    const json first = ask({{"command", "stats"}});
    const json second = ask({{"command", "stats"}});
    EXPECT_GT(second["at_s"], first["at_s"]);
    for (const json& nic : second["nics"]) {
        EXPECT_EQ(nic["requests"], json::object());
        EXPECT_EQ(nic["qps"], json::object());
    }
}

}  // namespace
}  // namespace openmana::manad

// SPDX-License-Identifier: Apache-2.0
#include "manad/metrics_text.h"

#include <gtest/gtest.h>

namespace openmana::manad {
namespace {

using Type = MetricsText::Type;

TEST(MetricsText, AFamilyStandsTogetherWhoeverAddsToItWhen) {
    MetricsText text;
    text.add("manad_tx", Type::kCounter, "frames", {{"nic", "a"}}, std::uint64_t{1});
    text.add("manad_up", Type::kGauge, "whether it is up", {}, std::uint64_t{0});
    text.add("manad_tx", Type::kCounter, "frames", {{"nic", "b"}, {"network", "red"}},
             std::uint64_t{18446744073709551615U});
    EXPECT_EQ(text.prometheus(),
              "# HELP manad_tx_total frames\n"
              "# TYPE manad_tx_total counter\n"
              "manad_tx_total{nic=\"a\"} 1\n"
              "manad_tx_total{nic=\"b\",network=\"red\"} 18446744073709551615\n"
              "# HELP manad_up whether it is up\n"
              "# TYPE manad_up gauge\n"
              "manad_up 0\n");
    EXPECT_EQ(text.open_metrics(),
              "# HELP manad_tx frames\n"
              "# TYPE manad_tx counter\n"
              "manad_tx_total{nic=\"a\"} 1\n"
              "manad_tx_total{nic=\"b\",network=\"red\"} 18446744073709551615\n"
              "# HELP manad_up whether it is up\n"
              "# TYPE manad_up gauge\n"
              "manad_up 0\n"
              "# EOF\n");
}

TEST(MetricsText, WhatHasAMeaningInTheFormatIsEscaped) {
    MetricsText text;
    text.add("m", Type::kGauge, "a \"b\" \\ c\nd", {{"uplink", "stream=\"x\\y\"\n"}}, 0.5);
    EXPECT_EQ(text.prometheus(),
              "# HELP m a \"b\" \\\\ c\\nd\n# TYPE m gauge\n"
              "m{uplink=\"stream=\\\"x\\\\y\\\"\\n\"} 0.5\n");
    EXPECT_EQ(text.open_metrics(),
              "# HELP m a \\\"b\\\" \\\\ c\\nd\n# TYPE m gauge\n"
              "m{uplink=\"stream=\\\"x\\\\y\\\"\\n\"} 0.5\n# EOF\n");
}

TEST(MetricsText, NamesFollowFromThoseOfCounters) {
    EXPECT_EQ(MetricsText::name_of("rnic.tx.bytes"), "manad_rnic_tx_bytes");
    EXPECT_EQ(MetricsText::name_of("manad.thread.hangs"), "manad_thread_hangs");
}

TEST(MetricsText, NothingIsNothing) {
    EXPECT_EQ(MetricsText().prometheus(), "");
    EXPECT_EQ(MetricsText().open_metrics(), "# EOF\n");
}

}  // namespace
}  // namespace openmana::manad

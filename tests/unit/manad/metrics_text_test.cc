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

TEST(MetricsText, AHistogramIsABucketAfterTheOtherAndThenCountAndSum) {
    const base::HistogramReading reading{
        .upper = {500, 1000, 2000000000}, .counts = {3, 0, 1, 2}, .sum = 2500000500};
    MetricsText text;
    text.add("m", "seconds", {{"nic", "a"}}, reading, 1e9);
    const std::string samples =
        "m_bucket{nic=\"a\",le=\"5e-07\"} 3\n"
        "m_bucket{nic=\"a\",le=\"1e-06\"} 3\n"
        "m_bucket{nic=\"a\",le=\"2.0\"} 4\n"
        "m_bucket{nic=\"a\",le=\"+Inf\"} 6\n"
        "m_count{nic=\"a\"} 6\n"
        "m_sum{nic=\"a\"} 2.5000005\n";
    EXPECT_EQ(text.prometheus(), "# HELP m seconds\n# TYPE m histogram\n" + samples);
    EXPECT_EQ(text.open_metrics(), "# HELP m seconds\n# TYPE m histogram\n" + samples + "# EOF\n");
}

TEST(MetricsText, AHistogramNeedsNoLabel) {
    MetricsText text;
    text.add("m", "bytes", {}, {.upper = {16}, .counts = {1, 1}, .sum = 40}, 1);
    EXPECT_EQ(text.prometheus(),
              "# HELP m bytes\n# TYPE m histogram\n"
              "m_bucket{le=\"16.0\"} 1\nm_bucket{le=\"+Inf\"} 2\nm_count 2\nm_sum 40\n");
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

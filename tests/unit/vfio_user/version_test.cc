// SPDX-License-Identifier: Apache-2.0
#include "vfio_user/version.h"

#include <string>

#include <gtest/gtest.h>

namespace openmana::vfio_user {
namespace {

base::Result<Capabilities> parse(const std::string& text) {
    return parse_capabilities(std::as_bytes(std::span(text.c_str(), text.size() + 1)));
}

TEST(VersionTest, MissingTextMeansTheDefaults) {
    for (const auto& result :
         {parse_capabilities({}), parse("{}"), parse("{\"capabilities\":{}}")}) {
        ASSERT_TRUE(result);
        EXPECT_EQ(result->max_msg_fds, 1U);
        EXPECT_EQ(result->max_data_xfer_size, 1048576U);
        EXPECT_FALSE(result->write_multiple);
    }
}

TEST(VersionTest, WhatQemuProposesIsRead) {
    const auto result = parse(
        "{\"capabilities\": {\"migration\": {\"max_bitmap_size\": 268435456, \"pgsize\": 4096}, "
        "\"max_msg_fds\": 8, \"max_data_xfer_size\": 65536, \"pgsizes\": 4096, \"max_dma_maps\": "
        "65535, "
        "\"write_multiple\": true}}");
    ASSERT_TRUE(result);
    EXPECT_EQ(result->max_msg_fds, 8U);
    EXPECT_EQ(result->max_data_xfer_size, 65536U);
    EXPECT_TRUE(result->write_multiple);
}

TEST(VersionTest, WrongTextIsRefused) {
    EXPECT_FALSE(parse(""));
    EXPECT_FALSE(parse("{"));
    EXPECT_FALSE(parse("[]"));
    EXPECT_FALSE(parse("7"));
    EXPECT_FALSE(parse("{\"capabilities\":7}"));
    EXPECT_FALSE(parse("{\"capabilities\":{\"max_msg_fds\":\"8\"}}"));
    EXPECT_FALSE(parse("{\"capabilities\":{\"max_msg_fds\":-1}}"));
    EXPECT_FALSE(parse("{\"capabilities\":{\"max_data_xfer_size\":1.5}}"));
    EXPECT_FALSE(parse("{\"capabilities\":{\"write_multiple\":1}}"));
    EXPECT_FALSE(parse("\xff\xfe{}"));
    EXPECT_FALSE(parse(std::string(8000, '[')));
    EXPECT_FALSE(parse("{" + std::string(20000, ' ') + "}"));
    const std::string unterminated = "{}";
    EXPECT_FALSE(parse_capabilities(std::as_bytes(std::span(unterminated.data(), 2))));
}

TEST(VersionTest, EveryTruncationIsRefusedWithoutHarm) {
    const std::string whole = format_capabilities({.write_multiple = true});
    for (std::size_t length = 1; length < whole.size(); ++length)
        EXPECT_FALSE(parse(whole.substr(0, length)));
    EXPECT_TRUE(parse(whole));
}

TEST(VersionTest, FormatNamesOnlyWhatIsOffered) {
    EXPECT_EQ(format_capabilities(
                  {.max_msg_fds = 16, .max_data_xfer_size = 1048576, .write_multiple = true}),
              "{\"capabilities\":{\"max_data_xfer_size\":1048576,\"max_msg_fds\":16,\"write_"
              "multiple\":true}}");
    EXPECT_EQ(format_capabilities({.max_msg_fds = 2, .max_data_xfer_size = 4096}),
              "{\"capabilities\":{\"max_data_xfer_size\":4096,\"max_msg_fds\":2}}");
}

}  // namespace
}  // namespace openmana::vfio_user

// SPDX-License-Identifier: Apache-2.0
// Vendor errors are named once, in include/mana/status.h; the documents are compared with it here.
#include <gtest/gtest.h>
#include <mana/status.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace openmana {
namespace {

struct Code {
    unsigned code;
    const char* name;
    unsigned status;
    const char* status_name;
};

constexpr Code kCodes[] = {
#define CODE(name, code, status) {code, #name, MANA_HW_WC_##status, #status},
    MANA_HW_RNIC_VENDOR_ERRORS(CODE)
#undef CODE
};

std::string text_of(const std::filesystem::path& path) {
    std::ifstream file(std::filesystem::path(OPENMANA_SOURCE_DIR) / path);
    std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    EXPECT_FALSE(text.empty()) << path;
    return text;
}

/// What the pattern's groups match, for each match.
std::vector<std::smatch> matches(const std::string& text, const std::regex& pattern) {
    return {std::sregex_iterator(text.begin(), text.end(), pattern), {}};
}

unsigned number(const std::string& hex) {
    return static_cast<unsigned>(std::stoul(hex, nullptr, 16));
}

TEST(VendorErrorsDocument, HasTheNamesAndStatusesOfTheHeader) {
    const std::string text = text_of("docs/vendor-errors.md");
    std::map<unsigned, Code> codes;
    for (const Code& code : kCodes) codes.emplace(code.code, code);
    const auto rows = matches(text, std::regex(R"(\n\| (0x\w+) \| `(\w+)` \| `(\w+)` \|)"));
    EXPECT_EQ(rows.size(), matches(text, std::regex(R"(\n\| 0x)")).size());
    for (const std::smatch& row : rows) {
        const auto at = codes.find(number(row[1]));
        ASSERT_NE(at, codes.end()) << row[1];
        EXPECT_EQ(row[2], at->second.name) << row[1];
        EXPECT_EQ(row[3], at->second.status_name) << row[1];
    }
}

TEST(VendorErrorsDocument, HasWhatTheDeviceRaisesAndNoMore) {
    std::set<std::string> raised, told;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(OPENMANA_SOURCE_DIR "/device/rnic")) {
        if (!entry.is_regular_file()) continue;
        const std::string source = text_of(entry.path());
        for (const std::smatch& use : matches(source, std::regex(R"(MANA_HW_RNIC_VE_(\w+))")))
            raised.insert(use[1]);
    }
    const std::string text = text_of("docs/vendor-errors.md");
    for (const std::smatch& row : matches(text, std::regex(R"(\n\| 0x\w+ \| `(\w+)`)")))
        told.insert(row[1]);
    EXPECT_EQ(told, raised);
}

/// The table of RNIC 3.9: a status with its number, and the codes that mean it.
TEST(VendorErrorsDocument, SpecificationGivesEachCodeTheSameStatus) {
    std::string text = text_of("docs/spec/rnic.md");
    const auto from = text.find("\n| status | vendor codes |");
    ASSERT_NE(from, std::string::npos);
    text = text.substr(from, text.find("\n\n", from + 1) - from);
    std::map<unsigned, unsigned> told, expected;
    for (const std::smatch& row : matches(text, std::regex(R"(\n\| [^|(]+\((\d+)\) \|([^|]*))"))) {
        const auto status = static_cast<unsigned>(std::stoul(row[1]));
        const std::string codes = row[2];
        for (const std::smatch& code :
             matches(codes, std::regex(R"((0x[0-9a-f]+)(?: \.\. (0x[0-9a-f]+))?)")))
            for (unsigned i = number(code[1]);
                 i <= (code[2].matched ? number(code[2]) : number(code[1])); ++i)
                EXPECT_TRUE(told.emplace(i, status).second) << "twice: " << i;
    }
    for (const Code& code : kCodes)
        if (code.status != MANA_HW_WC_GENERAL_ERR) expected.emplace(code.code, code.status);
    EXPECT_EQ(told, expected);
}

}  // namespace
}  // namespace openmana

// SPDX-License-Identifier: Apache-2.0
#include "manad/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/log.h"

namespace openmana::manad {
namespace {

using ::testing::ElementsAre;

class LedgerPoliciesTest : public ::testing::Test {
protected:
    void SetUp() override { base::set_log_level(base::LogLevel::kOff); }
    void TearDown() override { base::set_log_level(base::LogLevel::kInfo); }
    /// As its process leaves it that ends.
    void leave(const std::string& options, const std::string& policy) const {
        NicLedgerClaim claim = ledger->claim(parse_nic(options, {}).value());
        claim->policy.set(policy);
        claim.get_deleter().leaves = true;
    }
    std::unique_ptr<Ledger> ledger = Ledger::create(4).value();
};

TEST_F(LedgerPoliciesTest, ANicWhosePolicyCannotBeReadDoesNotGoOnWithoutIt) {
    leave("id=a,socket=/run/a", "mac-check=maybe");
    leave("id=b,socket=/run/b", "mac-check=on");
    Options options;
    ledger->recover(options, open_descriptors());
    std::vector<std::string> names;
    for (const NicOptions& nic : options.nics) names.push_back(nic.nic.name);
    EXPECT_THAT(names, ElementsAre("b"));
    ASSERT_EQ(options.policies.size(), 1U);
    EXPECT_EQ(options.policies[0].text, "mac-check=on");
}

/// Its process may end at any time: before the policy is set, too.
TEST_F(LedgerPoliciesTest, ANicThatIsMadeIsNeverThereWithoutItsPolicy) {
    NicLedgerClaim made =
        ledger->claim(parse_nic("id=a,socket=/run/a", {}).value(), "mac-check=on");
    made.get_deleter().leaves = true;
    Options options;
    ledger->recover(options, open_descriptors());
    ASSERT_EQ(options.policies.size(), 1U);
    EXPECT_EQ(options.policies[0].nic, "a");
    EXPECT_EQ(options.policies[0].text, "mac-check=on");
}

}  // namespace
}  // namespace openmana::manad

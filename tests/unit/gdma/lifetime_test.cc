// SPDX-License-Identifier: Apache-2.0
// Who holds an object keeps it: what is in use does not go, and no number comes back meanwhile.
#include <mana/gdma.h>

#include "unit/gdma/fixture.h"

namespace openmana::gdma {
namespace {

using test::Request;

class LifetimeTest : public DriverFixture {};

TEST_F(LifetimeTest, ADeviceFindsItsOwnPdAndTheGuests) {
    const auto pd = driver->create_pd();
    EXPECT_TRUE(function.pds().find(Pdn(pd->id), 2));
    EXPECT_TRUE(function.pds().find(Pdn(eth.pd), 2));
    EXPECT_FALSE(function.pds().find(Pdn(rnic.pd), 2));
    EXPECT_FALSE(function.pds().find(Pdn(driver->init_data[MANA_HW_INIT_PD_ID]), 2));
}

TEST_F(LifetimeTest, APdInUseKeepsItsNumber) {
    const auto pd = driver->create_pd();
    ASSERT_TRUE(pd);
    {
        const auto held = *function.pds().find(Pdn(pd->id), 2);
        EXPECT_FALSE(driver->destroy_pd(*pd));
        EXPECT_EQ(driver->last_status, kHwcBusy);
        EXPECT_EQ(held->id.value(), pd->id);
    }
    EXPECT_TRUE(driver->destroy_pd(*pd));
    EXPECT_EQ(function.object_counts(), at_rest);
}

TEST_F(LifetimeTest, AnMrHoldsThePdThatItMovedTo) {
    const auto from = driver->create_pd();
    const auto to = driver->create_pd();
    const auto mr = driver->create_mr(*from, ram.alloc(4096), 4096, kLocalRead);
    ASSERT_TRUE(from && to && mr);
    ASSERT_TRUE(function.key_changes().change({.mr = mr->handle, .pd = PdHandle(to->handle)}));
    EXPECT_FALSE(driver->destroy_pd(*to));
    EXPECT_EQ(driver->last_status, kHwcBusy);
    EXPECT_TRUE(driver->destroy_pd(*from));
    EXPECT_TRUE(driver->destroy_mr(*mr));
    EXPECT_TRUE(driver->destroy_pd(*to));
    EXPECT_EQ(function.object_counts(), at_rest);
}

TEST_F(LifetimeTest, ADoorbellPageWithAQueueOnItStays) {
    const auto page = driver->allocate_page(2);
    auto region =
        function.regions().claim(RegionHandle(*driver->create_region(ram.alloc(4096), 4096)));
    auto grant = function.pages().find(DoorbellPage(page + 1));
    ASSERT_TRUE(region && grant);
    auto cq = function.cqs().create(std::move(*region), 4096, nullptr, std::move(*grant), {});
    ASSERT_TRUE(cq);
    EXPECT_FALSE(driver->free_page(page, 2));
    EXPECT_EQ(driver->last_status, kHwcBusy);
    EXPECT_TRUE(function.pages().find(DoorbellPage(page))) << "all of the range stays";
    *cq = nullptr;
    EXPECT_TRUE(driver->free_page(page, 2));
    EXPECT_EQ(function.object_counts(), at_rest);
}

TEST_F(LifetimeTest, ADeviceWhosePdIsInUseIsNotDeregistered) {
    auto held = *function.pds().find(Pdn(eth.pd), 2);
    EXPECT_FALSE(driver->deregister_device(2));
    EXPECT_EQ(driver->last_status, kHwcBusy);
    EXPECT_TRUE(function.pds().find(Pdn(eth.pd), 2));
    EXPECT_EQ(function.object_counts(), at_rest);
    held = nullptr;
    EXPECT_TRUE(driver->deregister_device(2));
    EXPECT_FALSE(function.pds().find(Pdn(eth.pd), 2));
}

TEST_F(LifetimeTest, ADeviceWhoseDoorbellPageIsInUseIsNotDeregistered) {
    test::DriverCq view;
    auto cq = make_cq(nullptr, view);
    EXPECT_FALSE(driver->deregister_device(3));
    EXPECT_EQ(driver->last_status, kHwcBusy);
    EXPECT_TRUE(function.pages().find(DoorbellPage(rnic.page)));
    cq = nullptr;
    EXPECT_TRUE(driver->deregister_device(3));
}

TEST_F(LifetimeTest, ADeviceWhoseEqIsInUseIsNotDeregistered) {
    const auto eq = driver->create_eq(2, eth, 1);
    ASSERT_TRUE(eq);
    test::DriverCq view;
    auto cq = make_cq(*function.eqs().find(Eqn(eq->id)), view);
    EXPECT_FALSE(driver->deregister_device(2));
    EXPECT_EQ(driver->last_status, kHwcBusy);
    EXPECT_TRUE(function.eqs().find(Eqn(eq->id)));
    cq = nullptr;
    EXPECT_TRUE(driver->deregister_device(2));
    EXPECT_FALSE(function.eqs().find(Eqn(eq->id)));
}

TEST_F(LifetimeTest, ACqEndsWithTheLastOfItsHoldersAndSoDoesItsId) {
    test::DriverCq view;
    auto cq = make_cq(nullptr, view);
    auto queue = cq;
    cq = nullptr;
    EXPECT_EQ(function.cqs().find(Cqn(view.id)), queue.get());
    queue = nullptr;
    EXPECT_EQ(function.cqs().find(Cqn(view.id)), nullptr);
    EXPECT_EQ(function.object_counts().cqs, at_rest.cqs);
}

TEST_F(LifetimeTest, ACqFromBeforeAResetTakesNoIdFromThoseAfterIt) {
    test::DriverCq view;
    auto old = make_cq(nullptr, view);
    const auto id = view.id;
    function.reset();
    ASSERT_TRUE(driver->bring_up());
    const auto second = driver->register_device(3);
    ASSERT_TRUE(second);
    rnic = *second;
    const auto cq = make_cq(nullptr, view);
    ASSERT_EQ(view.id, id);
    old = nullptr;
    EXPECT_EQ(function.cqs().find(Cqn(id)), cq.get());
}

}  // namespace
}  // namespace openmana::gdma

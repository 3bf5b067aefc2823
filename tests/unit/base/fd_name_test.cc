// SPDX-License-Identifier: Apache-2.0
#include "base/fd_name.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include "base/fd.h"

namespace openmana::base {
namespace {

TEST(FdNameTest, AFileIsKnownByWhatProcCallsIt) {
    const UniqueFd event(::eventfd(0, EFD_CLOEXEC));
    const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    EXPECT_TRUE(fd_is(event.get(), "anon_inode:[eventfd]"));
    EXPECT_FALSE(fd_is(event.get(), "anon_inode:[event"));
    EXPECT_TRUE(fd_is(null.get(), "/dev/null"));
    EXPECT_FALSE(fd_is(null.get(), "anon_inode:[eventfd]"));
    EXPECT_FALSE(fd_is(-1, ""));
}

}  // namespace
}  // namespace openmana::base

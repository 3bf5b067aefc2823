// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "base/event_loop.h"
#include "base/result.h"
#include "manad/starter.h"

namespace openmana::manad {

/// The way of a daemon to another one of its program that goes on in its place (`manactl upgrade`):
/// whether one was started, and what became of it. If all goes well, nobody asks this any more.
class Upgrade {
public:
    static base::Result<std::unique_ptr<Upgrade>> create(base::EventLoop& loop,
                                                         std::unique_ptr<Starter> starter);
    ~Upgrade();
    Upgrade(const Upgrade&) = delete;
    Upgrade& operator=(const Upgrade&) = delete;

    base::Result<void> start();
    /// One that was to go on says why it does not.
    void fail(const std::string& why);
    [[nodiscard]] bool under_way() const { return under_way_; }
    /// Why the last one came to nothing; empty if it has not.
    [[nodiscard]] const std::string& failed() const { return failed_; }

private:
    Upgrade(base::EventLoop& loop, std::unique_ptr<Starter> starter)
        : loop_(loop), starter_(std::move(starter)) {}
    void on_news();

    base::EventLoop& loop_;
    const std::unique_ptr<Starter> starter_;
    bool under_way_ = false;
    std::string failed_;
};

}  // namespace openmana::manad

// SPDX-License-Identifier: Apache-2.0
#include "manad/upgrade.h"

#include <sys/epoll.h>

#include <cstring>
#include <utility>

#include "base/log.h"

namespace openmana::manad {

base::Result<std::unique_ptr<Upgrade>> Upgrade::create(base::EventLoop& loop,
                                                       std::unique_ptr<Starter> starter) {
    std::unique_ptr<Upgrade> upgrade(new Upgrade(loop, std::move(starter)));
    TRY_VOID(loop.add(upgrade->starter_->fd(), EPOLLIN,
                      [raw = upgrade.get()](std::uint32_t) { raw->on_news(); }));
    return upgrade;
}

Upgrade::~Upgrade() {
    loop_.remove(starter_->fd());
}

base::Result<void> Upgrade::start() {
    if (under_way_) return base::fail(base::ErrorCode::kBusy, "an upgrade is under way");
    TRY_VOID(starter_->ask());
    under_way_ = true;
    failed_.clear();
    return {};
}

/// What is said first is the reason.
void Upgrade::fail(const std::string& why) {
    if (failed_.empty()) failed_ = why;
}

void Upgrade::on_news() {
    const auto news = starter_->news();
    if (!news) {
        // It has ended, or was ended: there is no other one.
        loop_.remove(starter_->fd());
        if (under_way_) fail("the process that starts another manad has ended");
        under_way_ = false;
        return;
    }
    if (!news->ended) {
        OM_INFO("upgrade start: pid={}", news->pid);
        return;
    }
    if (news->pid == 0)
        fail(std::string("manad could not be started: ") + std::strerror(news->error));
    else
        fail("the new manad ended before it was ready: its own line says why");
    under_way_ = false;
    OM_ERROR("upgrade failed: pid={} reason=\"{}\"", news->pid, failed_);
}

}  // namespace openmana::manad

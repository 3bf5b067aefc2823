// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/event_loop.h"
#include "base/fd.h"
#include "base/frame.h"
#include "base/result.h"

namespace openmana::fabric {

/// What the host says of one of its interfaces.
struct LinkState {
    int index = 0;
    std::string name;
    bool gone = false;
    bool up = false;  ///< on, and somebody at the other end of the wire
    unsigned mtu = 0;
    base::MacAddr mac{};
};

/// Tells of the interfaces of a network namespace when they come, change and go (rtnetlink(7)). Of
/// the loop's thread.
class LinkWatch {
public:
    using Handler = std::function<void(const LinkState&)>;
    static base::Result<std::unique_ptr<LinkWatch>> create(base::EventLoop& loop, Handler handler);
    ~LinkWatch() { loop_.remove(fd_.get()); }
    LinkWatch(const LinkWatch&) = delete;
    LinkWatch& operator=(const LinkWatch&) = delete;
    /// Has it tell of all that there are now.
    void ask();

private:
    LinkWatch(base::EventLoop& loop, Handler handler, base::UniqueFd fd)
        : loop_(loop), handler_(std::move(handler)), fd_(std::move(fd)), buffer_(64U << 10) {}
    void read();
    void parse(std::size_t bytes);

    base::EventLoop& loop_;
    const Handler handler_;
    const base::UniqueFd fd_;
    std::vector<std::byte> buffer_;
};

}  // namespace openmana::fabric

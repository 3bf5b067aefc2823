// SPDX-License-Identifier: Apache-2.0
#include "fabric/link_watch.h"

#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace openmana::fabric {
namespace {

constexpr int kReadsPerTurn = 16;

/// Of a message that begins at `at` and is whole.
LinkState state_of(const std::byte* at, const nlmsghdr& header) {
    ifinfomsg info{};
    std::memcpy(&info, at + NLMSG_HDRLEN, sizeof info);
    LinkState state;
    state.index = info.ifi_index;
    state.gone = header.nlmsg_type == RTM_DELLINK;
    state.up = (info.ifi_flags & IFF_UP) != 0 && (info.ifi_flags & IFF_RUNNING) != 0;
    std::size_t offset = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof info);
    while (offset + sizeof(rtattr) <= header.nlmsg_len) {
        rtattr attribute{};
        std::memcpy(&attribute, at + offset, sizeof attribute);
        if (attribute.rta_len < sizeof attribute || attribute.rta_len > header.nlmsg_len - offset)
            break;
        const std::byte* const value = at + offset + RTA_LENGTH(0);
        const std::size_t length = attribute.rta_len - RTA_LENGTH(0);
        if (attribute.rta_type == IFLA_IFNAME) {
            const char* const text = reinterpret_cast<const char*>(value);
            state.name.assign(text, ::strnlen(text, length));
        } else if (attribute.rta_type == IFLA_MTU && length == sizeof state.mtu) {
            std::memcpy(&state.mtu, value, length);
        } else if (attribute.rta_type == IFLA_ADDRESS && length == state.mac.size()) {
            std::memcpy(state.mac.data(), value, length);
        }
        offset += RTA_ALIGN(attribute.rta_len);
    }
    return state;
}

}  // namespace

base::Result<std::unique_ptr<LinkWatch>> LinkWatch::create(base::EventLoop& loop, Handler handler) {
    const auto failed = [] {
        return base::fail(base::ErrorCode::kIo, "cannot watch the host's interfaces",
                          static_cast<unsigned>(errno));
    };
    base::UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    address.nl_groups = RTMGRP_LINK;
    if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        return failed();
    std::unique_ptr<LinkWatch> watch(new LinkWatch(loop, std::move(handler), std::move(fd)));
    TRY_VOID(
        loop.add(watch->fd_.get(), EPOLLIN, [raw = watch.get()](std::uint32_t) { raw->read(); }));
    return watch;
}

void LinkWatch::ask() {
    struct {
        nlmsghdr header;
        ifinfomsg link;
    } message{};
    message.header.nlmsg_len = sizeof message;
    message.header.nlmsg_type = RTM_GETLINK;
    message.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    (void)::send(fd_.get(), &message, sizeof message, MSG_DONTWAIT);
}

void LinkWatch::read() {
    for (int i = 0; i < kReadsPerTurn; ++i) {
        const ssize_t n = ::recv(fd_.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
        if (n >= 0)
            parse(static_cast<std::size_t>(n));
        else if (errno == ENOBUFS)
            ask();  // some were lost
        else
            return;
    }
}

void LinkWatch::parse(std::size_t bytes) {
    std::size_t at = 0;
    while (bytes - at >= sizeof(nlmsghdr)) {
        nlmsghdr header{};
        std::memcpy(&header, buffer_.data() + at, sizeof header);
        if (header.nlmsg_len < sizeof header || header.nlmsg_len > bytes - at) return;
        const bool of_link = header.nlmsg_type == RTM_NEWLINK || header.nlmsg_type == RTM_DELLINK;
        if (of_link && header.nlmsg_len >= NLMSG_LENGTH(sizeof(ifinfomsg))) {
            ifinfomsg info{};
            std::memcpy(&info, buffer_.data() + at + NLMSG_HDRLEN, sizeof info);
            // What a bridge says of its ports is of another family.
            if (info.ifi_family == AF_UNSPEC) handler_(state_of(buffer_.data() + at, header));
        }
        const std::size_t step = NLMSG_ALIGN(header.nlmsg_len);
        if (step > bytes - at) return;
        at += step;
    }
}

}  // namespace openmana::fabric

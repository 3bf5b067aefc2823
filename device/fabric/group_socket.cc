// SPDX-License-Identifier: Apache-2.0
#include "fabric/group_socket.h"

#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>

#include "base/endian.h"

namespace openmana::fabric {
namespace {

using base::ErrorCode;
using base::fail;

constexpr int kBuffer = 4 << 20;
constexpr std::size_t kAddresses = 12;  // of a frame, in front of a tag

tl::unexpected<base::Error> failed(const char* text) {
    return fail(ErrorCode::kIo, text, static_cast<unsigned>(errno));
}

}  // namespace

base::Result<base::UniqueFd> GroupSocket::open(int interface) {
    // With no protocol: nothing comes before the filter is there.
    base::UniqueFd socket(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket && errno == EPERM)
        return fail(ErrorCode::kPermission, "a packet socket takes CAP_NET_RAW");
    if (!socket) return failed("cannot make a packet socket");
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 1, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    const sock_fprog filter{sizeof code / sizeof *code, code};
    const int on = 1;
    if (::setsockopt(socket.get(), SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) != 0 ||
        ::setsockopt(socket.get(), SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) != 0 ||
        ::setsockopt(socket.get(), SOL_PACKET, PACKET_AUXDATA, &on, sizeof on) != 0)
        return failed("cannot set a packet socket up");
    if (::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUFFORCE, &kBuffer, sizeof kBuffer) != 0)
        (void)::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &kBuffer, sizeof kBuffer);
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = interface;
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        return failed("cannot bind a packet socket to the interface");
    packet_mreq everything{};
    everything.mr_ifindex = interface;
    everything.mr_type = PACKET_MR_PROMISC;
    if (::setsockopt(socket.get(), SOL_PACKET, PACKET_ADD_MEMBERSHIP, &everything,
                     sizeof everything) != 0)
        return failed("cannot have the interface listen to all addresses");
    return socket;
}

void GroupSocket::adopt(base::UniqueFd socket) {
    socket_ = std::move(socket);
    buffer_.resize(kFrames * (kMaxFrame + kTagBytes));
}

base::FrameViews GroupSocket::receive() {
    std::array<mmsghdr, kFrames> messages{};
    std::array<iovec, kFrames> parts;
    alignas(cmsghdr) std::array<std::array<std::byte, CMSG_SPACE(sizeof(tpacket_auxdata))>, kFrames>
        controls;
    for (std::size_t i = 0; i < kFrames; ++i) {
        // Room in front for a tag.
        parts[i] = {buffer_.data() + i * (kMaxFrame + kTagBytes) + kTagBytes, kMaxFrame};
        messages[i].msg_hdr.msg_iov = &parts[i];
        messages[i].msg_hdr.msg_iovlen = 1;
        messages[i].msg_hdr.msg_control = controls[i].data();
        messages[i].msg_hdr.msg_controllen = controls[i].size();
    }
    const int count = ::recvmmsg(socket_.get(), messages.data(), kFrames, MSG_DONTWAIT, nullptr);
    std::size_t good = 0;
    for (int i = 0; i < count; ++i) {
        mmsghdr& message = messages[static_cast<std::size_t>(i)];
        views_[good++] =
            whole(message.msg_hdr, static_cast<std::byte*>(message.msg_hdr.msg_iov->iov_base),
                  message.msg_len);
    }
    return base::FrameViews(views_).first(good);
}

base::FrameView GroupSocket::whole(msghdr& message, std::byte* at, std::size_t bytes) {
    const base::FrameView as_it_came(at, bytes);
    if (bytes < kAddresses) return as_it_came;
    for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr;
         control = CMSG_NXTHDR(&message, control)) {
        if (control->cmsg_level != SOL_PACKET || control->cmsg_type != PACKET_AUXDATA) continue;
        tpacket_auxdata said;
        std::memcpy(&said, CMSG_DATA(control), sizeof said);
        if ((said.tp_status & TP_STATUS_VLAN_VALID) == 0) continue;
        const bool typed = (said.tp_status & TP_STATUS_VLAN_TPID_VALID) != 0;
        std::memmove(at - kTagBytes, at, kAddresses);
        base::store_be<std::uint16_t>(at + kAddresses - kTagBytes,
                                      typed ? said.tp_vlan_tpid : std::uint16_t{ETH_P_8021Q});
        base::store_be<std::uint16_t>(at + kAddresses - kTagBytes + 2, said.tp_vlan_tci);
        return {at - kTagBytes, bytes + kTagBytes};
    }
    return as_it_came;
}

std::uint64_t GroupSocket::lost() const {
    tpacket_stats said{};
    socklen_t length = sizeof said;
    if (!socket_ || ::getsockopt(socket_.get(), SOL_PACKET, PACKET_STATISTICS, &said, &length) != 0)
        return 0;
    return said.tp_drops;
}

}  // namespace openmana::fabric

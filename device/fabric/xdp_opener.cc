// SPDX-License-Identifier: Apache-2.0
#include "fabric/xdp_opener.h"

#include <linux/ethtool.h>
#include <linux/if_xdp.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "fabric/group_socket.h"
#include "fabric/xdp_program.h"

#ifndef SOL_XDP
#define SOL_XDP 283
#endif

namespace openmana::fabric {
namespace {

using base::ErrorCode;
using base::fail;
using Mode = XdpConfig::Mode;

/// XDP_USE_SG: headers before Linux 6.6 do not know it.
constexpr std::uint16_t kUseFragments = 1U << 4;
/// Of a socket's buffer: never what keeps it from sending, the chunks are.
constexpr int kSendBuffer = 1 << 30;

tl::unexpected<base::Error> failed(const char* text) {
    return fail(ErrorCode::kIo, text, static_cast<unsigned>(errno));
}

std::optional<ifreq> named(const std::string& interface) {
    ifreq request{};
    if (interface.empty() || interface.size() >= sizeof request.ifr_name) return std::nullopt;
    std::memcpy(request.ifr_name, interface.data(), interface.size());
    return request;
}

base::UniqueFd control_socket() {
    return base::UniqueFd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

base::Result<XdpHandles::Facts> find_facts(const XdpRequest& asked) {
    XdpHandles::Facts facts;
    auto request = named(asked.interface);
    const base::UniqueFd control = control_socket();
    if (!control) return failed("cannot ask about interfaces");
    const auto ask = [&](unsigned long command) {
        return ::ioctl(control.get(), command, &*request) == 0;
    };
    if (!request || !ask(SIOCGIFINDEX))
        return fail(ErrorCode::kNotFound, "there is no such interface");
    facts.index = request->ifr_ifindex;
    if (!ask(SIOCGIFHWADDR) || request->ifr_hwaddr.sa_family != ARPHRD_ETHER)
        return fail(ErrorCode::kUnsupported, "it is no Ethernet interface");
    std::memcpy(facts.mac.data(), request->ifr_hwaddr.sa_data, facts.mac.size());
    if (ask(SIOCGIFMTU)) facts.mtu = static_cast<unsigned>(request->ifr_mtu);
    if (ask(SIOCGIFFLAGS)) facts.up = (request->ifr_flags & IFF_RUNNING) != 0;
    // What does not say has one.
    ethtool_channels channels{};
    channels.cmd = ETHTOOL_GCHANNELS;
    request->ifr_data = reinterpret_cast<char*>(&channels);
    const bool says = ask(SIOCETHTOOL);
    facts.has = says ? std::max(1U, channels.combined_count + channels.rx_count) : 1;
    const unsigned sending = says ? std::max(1U, channels.combined_count + channels.tx_count) : 1;
    if (asked.queues > facts.has)
        return fail(ErrorCode::kOutOfRange, "the interface has fewer queues", facts.has);
    facts.queues = asked.queues != 0 ? asked.queues : std::min(facts.has, XdpConfig::kMaxQueues);
    facts.senders = std::min(facts.queues, sending);
    return facts;
}

/// As far as this process may.
void allow_locked_memory() {
    constexpr rlimit kNone{RLIM_INFINITY, RLIM_INFINITY};
    if (::setrlimit(RLIMIT_MEMLOCK, &kNone) == 0) return;
    rlimit now{};
    if (::getrlimit(RLIMIT_MEMLOCK, &now) != 0) return;
    now.rlim_cur = now.rlim_max;
    (void)::setrlimit(RLIMIT_MEMLOCK, &now);
}

/// A socket with memory and rings, for no interface yet.
base::Result<base::UniqueFd> make_socket(std::byte* memory) {
    base::UniqueFd socket(::socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0));
    if (!socket && errno == EPERM)
        return fail(ErrorCode::kPermission, "an XDP socket takes CAP_NET_RAW");
    if (!socket && errno == EAFNOSUPPORT)
        return fail(ErrorCode::kUnsupported, "this kernel has no AF_XDP");
    if (!socket) return failed("cannot make an XDP socket");
    // Without CAP_NET_ADMIN, as much as all may have.
    if (::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUFFORCE, &kSendBuffer, sizeof kSendBuffer) !=
        0)
        (void)::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
    xdp_umem_reg umem{};
    umem.addr = reinterpret_cast<std::uintptr_t>(memory);
    umem.len = XdpMemory::kBytes;
    umem.chunk_size = XdpMemory::kChunkBytes;
    if (::setsockopt(socket.get(), SOL_XDP, XDP_UMEM_REG, &umem, sizeof umem) != 0) {
        if (errno == ENOBUFS)
            return fail(ErrorCode::kExhausted,
                        "more memory has to be locked than may be: LimitMEMLOCK= or ulimit -l");
        return failed("cannot register memory for an XDP socket");
    }
    for (const int ring : {XDP_UMEM_FILL_RING, XDP_UMEM_COMPLETION_RING, XDP_RX_RING, XDP_TX_RING})
        if (::setsockopt(socket.get(), SOL_XDP, ring, &XdpMemory::kChunks,
                         sizeof XdpMemory::kChunks) != 0)
            return failed("cannot make the rings of an XDP socket");
    return socket;
}

/// The kernel lets go of a queue some time after the socket of one that has ended was closed.
constexpr auto kLettingGo = std::chrono::seconds(1);
constexpr auto kLook = std::chrono::milliseconds(20);

bool bind_socket(int socket, int index, std::uint32_t queue, std::uint16_t flags) {
    sockaddr_xdp address{};
    address.sxdp_family = AF_XDP;
    address.sxdp_ifindex = static_cast<std::uint32_t>(index);
    address.sxdp_queue_id = queue;
    address.sxdp_flags = flags;
    const base::SystemClock clock;
    const base::TimePoint end = clock.now() + kLettingGo;
    while (::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        if (errno != EBUSY || clock.now() >= end) return false;
        std::this_thread::sleep_for(kLook);
    }
    return true;
}

base::Result<void> bind_queue(int socket, std::uint32_t queue, Mode mode,
                              XdpHandles::Facts& facts) {
    std::uint16_t flags = XDP_USE_NEED_WAKEUP;
    if (mode == Mode::kZeroCopy) flags |= XDP_ZEROCOPY;
    if (mode == Mode::kCopy || mode == Mode::kGeneric) flags |= XDP_COPY;
    const auto refused = [] { return errno == EINVAL || errno == EOPNOTSUPP; };
    // All queues are alike: what the first one can is what is asked of the others.
    if (facts.fragments) {
        if (bind_socket(socket, facts.index, queue, flags | kUseFragments)) return {};
        if (queue == 0 && refused()) facts.fragments = false;
    }
    if (!facts.fragments && bind_socket(socket, facts.index, queue, flags)) return {};
    if (errno == EBUSY)
        return fail(ErrorCode::kBusy, "another program has a queue of the interface");
    if (refused() && mode == Mode::kZeroCopy)
        return fail(ErrorCode::kUnsupported, "its driver cannot do without copies: mode=auto");
    return failed("cannot bind an XDP socket to the interface");
}

bool copies_nothing(int socket) {
    xdp_options options{};
    socklen_t length = sizeof options;
    return ::getsockopt(socket, SOL_XDP, XDP_OPTIONS, &options, &length) == 0 &&
           (options.flags & XDP_OPTIONS_ZEROCOPY) != 0;
}

base::Result<void> open_queues(const XdpRequest& request, XdpHandles& handles) {
    const std::size_t bytes = handles.facts.queues * XdpMemory::kBytes;
    handles.memory = base::UniqueFd(::memfd_create("manad xdp", MFD_CLOEXEC));
    if (!handles.memory || ::ftruncate(handles.memory.get(), static_cast<off_t>(bytes)) != 0)
        return failed("cannot have memory for the interface");
    void* const at =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, handles.memory.get(), 0);
    if (at == MAP_FAILED) return failed("cannot have memory for the interface");
    // The kernel holds the pages from here on.
    const struct Unmap {
        void* at;
        std::size_t bytes;
        ~Unmap() { ::munmap(at, bytes); }
    } unmap{at, bytes};
    allow_locked_memory();
    for (std::uint32_t queue = 0; queue < handles.facts.queues; ++queue) {
        TRY(auto socket, make_socket(static_cast<std::byte*>(at) + queue * XdpMemory::kBytes));
        TRY_VOID(bind_queue(socket.get(), queue, request.mode, handles.facts));
        handles.queues.push_back(std::move(socket));
    }
    handles.facts.zero_copy = copies_nothing(handles.queues.front().get());
    return {};
}

base::Result<void> attach_program(const XdpRequest& request, const XdpProgram& program,
                                  XdpHandles& handles) {
    for (std::uint32_t queue = 0; queue < handles.facts.queues; ++queue)
        TRY_VOID(program.set_socket(queue, handles.queues[queue].get()));
    handles.facts.generic = request.mode == Mode::kGeneric;
    auto link = program.attach(handles.facts.index, handles.facts.generic);
    // Its driver knows no XDP, or none with such an MTU.
    if (!link && link.error().code == ErrorCode::kIo && !handles.facts.generic &&
        request.mode != Mode::kZeroCopy) {
        handles.facts.generic = true;
        link = program.attach(handles.facts.index, true);
    }
    if (!link) return tl::unexpected(link.error());
    handles.link = std::move(*link);
    return {};
}

}  // namespace

base::Result<XdpHandles> open_xdp(const XdpRequest& request) {
    XdpHandles handles;
    TRY(handles.facts, find_facts(request));
    TRY(auto program, XdpProgram::load(request.key));
    handles.facts.fragments = program.fragments;
    TRY_VOID(open_queues(request, handles));
    TRY_VOID(attach_program(request, program, handles));
    TRY(handles.groups, GroupSocket::open(handles.facts.index));
    handles.table = std::move(program.table);
    return handles;
}

unsigned interface_mtu(const std::string& interface) {
    auto request = named(interface);
    const base::UniqueFd control = control_socket();
    if (!request || !control || ::ioctl(control.get(), SIOCGIFMTU, &*request) != 0) return 0;
    return static_cast<unsigned>(request->ifr_mtu);
}

/// The kernel looks at the flags before it looks for the interface, which there is none of.
bool kernel_has_xdp_fragments() {
    const base::UniqueFd socket(::socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0));
    return socket && !bind_socket(socket.get(), INT_MAX, 0, XDP_COPY | kUseFragments) &&
           errno != EINVAL;
}

}  // namespace openmana::fabric

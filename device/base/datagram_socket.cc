// SPDX-License-Identifier: Apache-2.0
#include "base/datagram_socket.h"

#include <linux/errqueue.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/keyed_hash.h"

namespace openmana::base {
namespace {

constexpr int kSocketBuffer = 8 << 20;
constexpr int kErrorBuffer = 32 << 10;    // of a socket that has nothing else to keep
constexpr std::size_t kMaxSegments = 64;  // UDP_MAX_SEGMENTS of the oldest kernels that cut

bool set(int fd, int level, int option, int value) {
    return ::setsockopt(fd, level, option, &value, sizeof value) == 0;
}

/// Room for the control messages of one message.
struct alignas(cmsghdr) Control {
    std::array<std::byte, CMSG_SPACE(sizeof(std::uint16_t)) + CMSG_SPACE(sizeof(int))> bytes;
};

/// A filter (bpf(4) of old) that lets nothing in.
bool take_nothing(int fd) {
    sock_filter none{BPF_RET | BPF_K, 0, 0, 0};
    const sock_fprog program{1, &none};
    return ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0;
}

/// What a message of ICMP becomes; but for EMSGSIZE, which the host often says itself.
bool from_the_network(int error) {
    constexpr std::array kErrors = {ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, EHOSTDOWN, ENONET,
                                    ENOPROTOOPT,  EOPNOTSUPP,   EPROTO,      EACCES};
    return std::ranges::find(kErrors, error) != kErrors.end();
}

template <typename T>
void add_control(msghdr& message, int level, int type, T value) {
    auto* const header = reinterpret_cast<cmsghdr*>(static_cast<std::byte*>(message.msg_control) +
                                                    message.msg_controllen);
    header->cmsg_level = level;
    header->cmsg_type = type;
    header->cmsg_len = CMSG_LEN(sizeof value);
    std::memcpy(CMSG_DATA(header), &value, sizeof value);
    message.msg_controllen += CMSG_SPACE(sizeof value);
}

}  // namespace

namespace {

constexpr std::uint64_t kBytesOfLimit = 0xffff;

std::uint64_t hash_of(const SocketAddress* to) {
    std::array<std::uint64_t, 4> words{};
    if (to != nullptr)
        std::memcpy(words.data(), to->get(), std::min<std::size_t>(to->length, sizeof words));
    return KeyedHash::of(words);
}

}  // namespace

bool DatagramSocket::SegmentLimits::allows(const SocketAddress* to, std::size_t bytes) {
    if (!used_.load(std::memory_order_relaxed)) return true;
    const std::uint64_t end = hash_of(to);
    Place& place = places_[end % kPlaces];
    const std::uint64_t limit = place.end_and_bytes.load(std::memory_order_relaxed);
    if ((limit ^ end) > kBytesOfLimit) return true;  // another's
    return bytes < (limit & kBytesOfLimit) ||
           clock_.now() >= place.until.load(std::memory_order_relaxed);
}

void DatagramSocket::SegmentLimits::refused(const SocketAddress* to, std::size_t bytes) {
    const std::uint64_t end = hash_of(to);
    Place& place = places_[end % kPlaces];
    place.until.store(clock_.now() + kTryAgain, std::memory_order_relaxed);
    place.end_and_bytes.store(
        (end & ~kBytesOfLimit) | std::min<std::uint64_t>(bytes, kBytesOfLimit),
        std::memory_order_relaxed);
    used_.store(true, std::memory_order_relaxed);
}

DatagramSocket::DatagramSocket(UniqueFd fd, int family, const Options& options)
    : fd_(std::move(fd)),
      family_(family),
      offload_(options.offload),
      told_(options.errors || options.remote.has_value()),
      buffer_(options.receives ? kReceiveMessages * kReceiveBytes : 0),
      senders_(options.receives ? kReceiveMessages : 0) {
    if (options.receives) received_.reserve(kReceiveMessages * kMaxSegments);
}

Result<DatagramSocket> DatagramSocket::open(const SocketAddress& local, const Options& options) {
    const int family = local.family();
    const auto failed = [](const char* text) {
        return fail(ErrorCode::kIo, text, static_cast<unsigned>(errno));
    };
    if (options.remote && options.remote->family() != family)
        return fail(ErrorCode::kInvalidArgument, "local and remote are not of one IP version");
    UniqueFd fd(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) return failed("cannot create a UDP socket");
    // Best effort: more than the host's limit needs a privilege, and the default works too.
    if (!set(fd.get(), SOL_SOCKET, SO_SNDBUFFORCE, kSocketBuffer))
        (void)set(fd.get(), SOL_SOCKET, SO_SNDBUF, kSocketBuffer);
    if (!options.receives)
        (void)set(fd.get(), SOL_SOCKET, SO_RCVBUF, kErrorBuffer);
    else if (!set(fd.get(), SOL_SOCKET, SO_RCVBUFFORCE, kSocketBuffer))
        (void)set(fd.get(), SOL_SOCKET, SO_RCVBUF, kSocketBuffer);
    const bool ipv4 = family == AF_INET;
    if (!set(fd.get(), ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER,
             options.fragments ? (ipv4 ? IP_PMTUDISC_OMIT : IPV6_PMTUDISC_DONT)
                               : (ipv4 ? IP_PMTUDISC_PROBE : IPV6_PMTUDISC_PROBE)))
        return failed("cannot choose whether datagrams are fragmented");
    if (options.traffic_class &&
        !set(fd.get(), ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_RECVTOS : IPV6_RECVTCLASS, 1))
        return failed("cannot ask for the traffic class of datagrams");
    if (!options.receives && !take_nothing(fd.get()))
        return failed("cannot have a socket that takes nothing");
    // Without it they come one by one.
    if (options.offload && options.receives) (void)set(fd.get(), IPPROTO_UDP, UDP_GRO, 1);
    if (options.shared && !set(fd.get(), SOL_SOCKET, SO_REUSEPORT, 1))
        return failed("cannot share the local address");
    if (::bind(fd.get(), local.get(), local.length) != 0)
        return failed("cannot bind the local address");
    // From now on only the other end's datagrams come in.
    if (options.remote && ::connect(fd.get(), options.remote->get(), options.remote->length) != 0)
        return failed("cannot use the remote address");
    DatagramSocket socket(std::move(fd), family, options);
    if (options.errors) {
        socket.hear(true);
        if (!socket.hears()) return failed("cannot ask for the errors of a socket");
    }
    return socket;
}

Result<SocketAddress> DatagramSocket::bound(const UniqueFd& socket) {
    SocketAddress bound;
    bound.length = sizeof bound.storage;
    if (::getsockname(socket.get(), bound.get(), &bound.length) != 0)
        return fail(ErrorCode::kIo, "not a socket", static_cast<unsigned>(errno));
    return bound;
}

Result<DatagramSocket> DatagramSocket::inherit(UniqueFd socket, const SocketAddress& local,
                                               const Options& options) {
    TRY(const SocketAddress there, bound(socket));
    if (!(there == local)) return fail(ErrorCode::kInvalidArgument, "socket of another address");
    SocketAddress other;
    other.length = sizeof other.storage;
    const bool connected = ::getpeername(socket.get(), other.get(), &other.length) == 0;
    if (connected != options.remote.has_value() || (connected && !(other == *options.remote)))
        return fail(ErrorCode::kInvalidArgument, "socket with another remote address");
    return DatagramSocket(std::move(socket), local.family(), options);
}

void DatagramSocket::hear(bool yes) {
    const bool ipv4 = family_ == AF_INET;
    // To hear no more empties the queue.
    const bool done = set(fd_.get(), ipv4 ? IPPROTO_IP : IPPROTO_IPV6,
                          ipv4 ? IP_RECVERR : IPV6_RECVERR, yes ? 1 : 0);
    if (done) shared_->hears.store(yes, std::memory_order_relaxed);
}

std::optional<NetworkError> DatagramSocket::read_error() {
    // The pending error, which a send would be told too, is one of those in the queue.
    int pending = 0;
    socklen_t length = sizeof pending;
    (void)::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &pending, &length);
    NetworkError told;
    std::byte data;
    iovec part{&data, sizeof data};
    alignas(cmsghdr) std::array<std::byte, 512> control;
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_name = &told.peer.storage;
    message.msg_namelen = sizeof told.peer.storage;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    if (::recvmsg(fd_.get(), &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return std::nullopt;
    told.peer.length = message.msg_namelen;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
        const bool ours = (header->cmsg_level == IPPROTO_IP && header->cmsg_type == IP_RECVERR) ||
                          (header->cmsg_level == IPPROTO_IPV6 && header->cmsg_type == IPV6_RECVERR);
        if (!ours || header->cmsg_len < CMSG_LEN(sizeof(sock_extended_err))) continue;
        sock_extended_err error;
        std::memcpy(&error, CMSG_DATA(header), sizeof error);
        told.error = static_cast<int>(error.ee_errno);
        told.of_host = error.ee_origin == SO_EE_ORIGIN_LOCAL;
        told.mtu = told.error == EMSGSIZE ? error.ee_info : 0;
    }
    return told;
}

std::size_t DatagramSocket::path_mtu() const {
    int mtu = 0;
    socklen_t length = sizeof mtu;
    const bool ipv4 = family_ == AF_INET;
    if (::getsockopt(fd_.get(), ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_MTU : IPV6_MTU, &mtu,
                     &length) != 0)
        return 0;
    return static_cast<std::size_t>(std::max(mtu, 0));
}

/// Datagrams as messages of one call; neighbours of one size and destination share one.
class DatagramSocket::Batch {
public:
    Batch(DatagramSocket& socket, Sent& sent, Failures* failures)
        : socket_(socket), sent_(sent), failures_(failures) {}

    /// Takes as many as there is room for, which is at least one.
    std::size_t fill(std::span<const Datagram> datagrams) {
        all_ = datagrams;
        messages_used_ = parts_used_ = 0;
        std::size_t at = 0;
        while (at < datagrams.size() && messages_used_ < kMessages) {
            const std::size_t count = together(at);
            if (parts_used_ + 2 * count > kParts) break;
            add(at, count);
            at += count;
        }
        return at;
    }
    /// False if the kernel takes no more now.
    bool send() {
        for (std::size_t at = 0; at < messages_used_;) {
            const int n = ::sendmmsg(socket_.fd(), &messages_[at],
                                     static_cast<unsigned>(messages_used_ - at), 0);
            for (int i = 0; i < n; ++i) count(groups_[at++]);
            if (n >= 0) continue;
            if (!first_failed(at)) return false;
            ++at;
        }
        return true;
    }

private:
    static constexpr std::size_t kMessages = 32;
    static constexpr std::size_t kParts = 2 * kMaxSegments;
    static constexpr int kTries = 6;
    struct Group {
        std::size_t first = 0;
        std::size_t count = 0;
        std::size_t bytes = 0;
    };

    /// How many datagrams from `at` on the kernel can cut out of one: all of one size, but the last
    /// may be shorter.
    [[nodiscard]] std::size_t together(std::size_t at) const {
        const Datagram& first = all_[at];
        const std::size_t size = first.size();
        if (!socket_.offload_ || size == 0 || !socket_.shared_->limits.allows(first.to, size))
            return 1;
        std::size_t count = 1;
        for (std::size_t bytes = size; at + count < all_.size() && count < kMaxSegments; ++count) {
            const Datagram& next = all_[at + count];
            bytes += next.size();
            if (next.to != first.to || next.traffic_class != first.traffic_class ||
                next.size() > size || next.size() == 0 || bytes > kMaxDatagram)
                break;
            if (next.size() < size) return count + 1;
        }
        return count;
    }
    void add_part(std::span<const std::byte> bytes) {
        if (bytes.empty()) return;
        // The kernel only reads.
        parts_[parts_used_++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    }
    void add(std::size_t at, std::size_t count) {
        const Datagram& first = all_[at];
        msghdr& message = messages_[messages_used_].msg_hdr;
        message = {};
        message.msg_iov = &parts_[parts_used_];
        Group& group = groups_[messages_used_];
        group = {at, count, 0};
        for (const Datagram& datagram : all_.subspan(at, count)) {
            add_part(datagram.head);
            add_part(datagram.body);
            group.bytes += datagram.size();
        }
        message.msg_iovlen = static_cast<std::size_t>(&parts_[parts_used_] - message.msg_iov);
        if (first.to != nullptr) {
            message.msg_name = const_cast<sockaddr*>(first.to->get());
            message.msg_namelen = first.to->length;
        }
        message.msg_control = controls_[messages_used_].bytes.data();
        if (first.traffic_class != 0) {
            const bool ipv4 = socket_.family_ == AF_INET;
            add_control(message, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_TOS : IPV6_TCLASS,
                        int{first.traffic_class});
        }
        if (count > 1)
            add_control(message, IPPROTO_UDP, UDP_SEGMENT,
                        static_cast<std::uint16_t>(first.size()));
        if (message.msg_controllen == 0) message.msg_control = nullptr;
        ++messages_used_;
    }
    void count(const Group& group) {
        sent_.datagrams += group.count;
        sent_.bytes += group.bytes;
    }
    /// The first of what is left was refused, for errno. False if the rest would be as well.
    bool first_failed(std::size_t at) {
        const Group& group = groups_[at];
        int error = errno;
        // What the network said of an earlier datagram, to whomever, is told once, and nothing was
        // sent; or a signal came.
        for (int tries = 0; tries < kTries && may_be_of_another(error); ++tries) {
            // Nobody says so much as to keep what is for others back. What is too large for the
            // interface stays so, and the message of it shall be read.
            if (tries == kTries / 2) {
                if (!socket_.hears() || error == EMSGSIZE) break;
                socket_.hear(false);
            }
            if (::sendmsg(socket_.fd(), &messages_[at].msg_hdr, 0) >= 0) {
                count(group);
                return true;
            }
            error = errno;
        }
        const bool together = group.count > 1;
        if (error == EAGAIN || (error == ENOBUFS && !together)) {
            for (std::size_t i = at; i < messages_used_; ++i) sent_.dropped += groups_[i].count;
            sent_.error = error;
            return false;
        }
        if (together && !is_of_size(error)) {
            for (std::size_t i = 0; i < group.count; ++i) refused(all_[group.first + i], error);
            return true;
        }
        if (together) {
            if (error != ENOBUFS)
                socket_.shared_->limits.refused(all_[group.first].to, all_[group.first].size());
            for (std::size_t i = 0; i < group.count; ++i) send_alone(all_[group.first + i]);
            return true;
        }
        refused(all_[group.first], error);
        return true;
    }
    [[nodiscard]] bool may_be_of_another(int error) const {
        return error == EINTR || from_the_network(error) || (error == EMSGSIZE && socket_.told_);
    }
    /// What the kernel says where it does not cut datagrams of that size on that path, or has no
    /// memory for so large a one.
    static bool is_of_size(int error) {
        return error == EINVAL || error == EMSGSIZE || error == EIO || error == EOPNOTSUPP ||
               error == ENOBUFS;
    }
    void refused(const Datagram& datagram, int error) {
        if (error == EMSGSIZE) {
            ++sent_.too_large;
            sent_.largest = std::max(sent_.largest, datagram.size());
            return;
        }
        ++sent_.dropped;
        sent_.error = error;
        if (failures_ != nullptr) failures_->failed(datagram, error);
    }
    void send_alone(const Datagram& datagram) {
        Batch one(socket_, sent_, failures_);
        (void)one.fill({&datagram, 1});
        (void)one.send();
    }

    DatagramSocket& socket_;
    Sent& sent_;
    Failures* const failures_;
    std::span<const Datagram> all_;
    std::size_t messages_used_ = 0;
    std::size_t parts_used_ = 0;
    // What is used of these is written before.
    std::array<mmsghdr, kMessages> messages_;
    std::array<Group, kMessages> groups_;
    std::array<Control, kMessages> controls_;
    std::array<iovec, kParts> parts_;
};

DatagramSocket::Sent DatagramSocket::send(std::span<const Datagram> datagrams, Failures* failures) {
    Sent sent;
    Batch batch(*this, sent, failures);
    while (!datagrams.empty()) {
        const std::size_t taken = batch.fill(datagrams);
        datagrams = datagrams.subspan(taken);
        if (batch.send()) continue;
        sent.dropped += datagrams.size();
        break;
    }
    return sent;
}

std::span<const ReceivedDatagram> DatagramSocket::receive(bool& more) {
    std::array<mmsghdr, kReceiveMessages> messages{};
    std::array<iovec, kReceiveMessages> parts;
    std::array<Control, kReceiveMessages> controls;
    for (std::size_t i = 0; i < kReceiveMessages; ++i) {
        parts[i] = {buffer_.data() + i * kReceiveBytes, kReceiveBytes};
        msghdr& message = messages[i].msg_hdr;
        message.msg_iov = &parts[i];
        message.msg_iovlen = 1;
        message.msg_name = &senders_[i].storage;
        message.msg_namelen = sizeof senders_[i].storage;
        message.msg_control = controls[i].bytes.data();
        message.msg_controllen = controls[i].bytes.size();
    }
    received_.clear();
    const int n = ::recvmmsg(fd_.get(), messages.data(), kReceiveMessages, 0, nullptr);
    // An error of the network, of a datagram that was sent, is told once; what came lies behind it.
    more = n < 0 ? errno != EAGAIN && errno != EBADF && errno != ENOTSOCK
                 : static_cast<std::size_t>(n) == kReceiveMessages;
    for (std::size_t i = 0; n > 0 && i < static_cast<std::size_t>(n); ++i) {
        msghdr& message = messages[i].msg_hdr;
        senders_[i].length = message.msg_namelen;
        std::size_t segment = 0;
        std::uint8_t traffic_class = 0;
        for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr;
             control = CMSG_NXTHDR(&message, control)) {
            int value = 0;
            if (control->cmsg_level == IPPROTO_UDP && control->cmsg_type == UDP_GRO) {
                std::memcpy(&value, CMSG_DATA(control), sizeof value);
                segment = static_cast<std::size_t>(value);
            } else if (control->cmsg_level == IPPROTO_IP && control->cmsg_type == IP_TOS) {
                std::memcpy(&traffic_class, CMSG_DATA(control), sizeof traffic_class);
            } else if (control->cmsg_level == IPPROTO_IPV6 && control->cmsg_type == IPV6_TCLASS) {
                std::memcpy(&value, CMSG_DATA(control), sizeof value);
                traffic_class = static_cast<std::uint8_t>(value);
            }
        }
        std::span<std::byte> bytes(buffer_.data() + i * kReceiveBytes, messages[i].msg_len);
        if (segment == 0) segment = std::max<std::size_t>(bytes.size(), 1);
        do {
            const std::size_t size = std::min(segment, bytes.size());
            received_.push_back({bytes.first(size), &senders_[i], traffic_class});
            bytes = bytes.subspan(size);
        } while (!bytes.empty());
    }
    return received_;
}

}  // namespace openmana::base

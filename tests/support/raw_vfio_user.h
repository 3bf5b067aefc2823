// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

namespace openmana::test {

/// A vfio-user client made from the tables of QEMU's docs/interop/vfio-user.rst alone, number by
/// number: nothing of what the server is made of is in it, so that both cannot be wrong together.
/// What it is told is kept as bytes.
class RawVfioUser {
public:
    struct Bytes : std::vector<unsigned char> {
        using vector::vector;
        friend Bytes operator+(Bytes a, const Bytes& b) {
            a.insert(a.end(), b.begin(), b.end());
            return a;
        }
    };
    struct Answer {
        bool came = false;
        bool error = false;
        std::uint32_t number = 0;  ///< the errno
        Bytes payload;
        [[nodiscard]] bool ok() const { return came && !error; }
    };
    enum : unsigned { kStop = 1, kRunning = 2, kStopCopy = 3, kResuming = 4, kP2p = 5 };

    /// Of a socket that somebody else has.
    explicit RawVfioUser(int fd) : fd_(fd), id_(40000) {}
    /// Connects and says hello. `ok()` tells whether that went well.
    explicit RawVfioUser(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        path.copy(address.sun_path, sizeof address.sun_path - 1);
        own_ = true;
        if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
            return;
        Bytes hello = number(2, 0) + number(2, 1);
        const std::string text =
            R"({"capabilities":{"max_msg_fds":8,"max_data_xfer_size":1048576,"migration":{"pgsize":4096}}})";
        hello.insert(hello.end(), text.c_str(), text.c_str() + text.size() + 1);
        ok_ = call(1, hello).ok();
    }
    ~RawVfioUser() { close(); }
    RawVfioUser(const RawVfioUser&) = delete;
    RawVfioUser& operator=(const RawVfioUser&) = delete;
    void close() {
        if (own_ && fd_ >= 0) ::close(fd_);
        fd_ = -1;
    }
    /// The socket is the caller's from now on.
    [[nodiscard]] int release() {
        own_ = false;
        return fd_;
    }
    [[nodiscard]] bool ok() const { return ok_; }

    bool map(std::uint64_t address, std::uint64_t size, int memory) {
        return call(2,
                    number(4, 32) + number(4, 3) + number(8, 0) + number(8, address) +
                        number(8, size),
                    memory)
            .ok();
    }
    bool set_vector(unsigned vector, int eventfd) {
        return call(8,
                    number(4, 20) + number(4, 1U << 2 | 1U << 5) + number(4, 2) +
                        number(4, vector) + number(4, 1),
                    eventfd)
            .ok();
    }
    bool reset() { return call(13, {}).ok(); }
    Answer feature(unsigned flags, const Bytes& data, std::uint32_t room) {
        return call(16, number(4, room) + number(4, flags) + data);
    }
    Answer set_state(unsigned state) {
        return feature(1U << 17 | 2, number(4, state) + number(4, 0), 16);
    }
    unsigned state() {
        const Answer answer = feature(1U << 16 | 2, {}, 16);
        return answer.ok() ? static_cast<unsigned>(get(answer.payload, 8, 4)) : 99;
    }
    /// All of the state, so many bytes at a time. Empty after an error.
    Bytes read_state(std::uint32_t piece) {
        Bytes all;
        for (;;) {
            const Answer answer = call(17, number(4, 8 + piece) + number(4, piece));
            if (!answer.ok() || answer.payload.size() < 8) return {};
            all.insert(all.end(), answer.payload.begin() + 8, answer.payload.end());
            if (get(answer.payload, 4, 4) < piece) return all;
        }
    }
    Answer write_state(const Bytes& data) {
        const auto size = static_cast<std::uint32_t>(data.size());
        return call(18, number(4, 8 + size) + number(4, size) + data);
    }
    /// All of it, in pieces.
    bool write_state(const Bytes& state, std::size_t piece) {
        for (std::size_t at = 0; at < state.size(); at += piece) {
            const auto first = state.begin() + static_cast<std::ptrdiff_t>(at);
            const std::size_t n = std::min(piece, state.size() - at);
            if (!write_state(Bytes(first, first + static_cast<std::ptrdiff_t>(n))).ok())
                return false;
        }
        return true;
    }
    bool log(std::uint64_t address, std::uint64_t size) {
        return feature(1U << 17 | 6,
                       number(8, 4096) + number(4, 1) + number(4, 0) + number(8, address) +
                           number(8, size),
                       40)
            .ok();
    }
    bool log_no_more() { return feature(1U << 17 | 7, {}, 8).ok(); }
    /// The numbers of the pages from `address` on that the device has written to.
    std::vector<std::uint64_t> dirty(std::uint64_t address, std::uint64_t size) {
        const auto words = static_cast<std::uint32_t>((size / 4096 + 63) / 64);
        const Answer answer = feature(
            1U << 16 | 8, number(8, address) + number(8, size) + number(8, 4096), 32 + words * 8);
        std::vector<std::uint64_t> pages;
        for (std::uint32_t i = 0; answer.ok() && i < words; ++i)
            for (unsigned bit = 0; bit < 64; ++bit)
                if ((get(answer.payload, 32 + i * 8, 8) >> bit & 1) != 0)
                    pages.push_back(std::uint64_t{i} * 64 + bit);
        return pages;
    }

    static Bytes number(unsigned size, std::uint64_t value) {
        Bytes result;
        for (unsigned i = 0; i < size; ++i)
            result.push_back(static_cast<unsigned char>(value >> (8 * i)));
        return result;
    }
    static std::uint64_t get(const Bytes& bytes, std::size_t at, unsigned size) {
        std::uint64_t value = 0;
        for (unsigned i = size; i-- > 0;) value = value << 8 | bytes.at(at + i);
        return value;
    }
    /// One message and its answer.
    Answer call(unsigned command, const Bytes& payload, int descriptor = -1) {
        ++id_;
        const Bytes message = number(2, id_) + number(2, command) + number(4, 16 + payload.size()) +
                              number(4, 0) + number(4, 0) + payload;
        iovec part{const_cast<unsigned char*>(message.data()), message.size()};
        alignas(cmsghdr) unsigned char control[CMSG_SPACE(sizeof(int))] = {};
        msghdr header{};
        header.msg_iov = &part;
        header.msg_iovlen = 1;
        if (descriptor >= 0) {
            header.msg_control = control;
            header.msg_controllen = sizeof control;
            cmsghdr* const rights = CMSG_FIRSTHDR(&header);
            rights->cmsg_level = SOL_SOCKET;
            rights->cmsg_type = SCM_RIGHTS;
            rights->cmsg_len = CMSG_LEN(sizeof(int));
            std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
        }
        ssize_t sent = ::sendmsg(fd_, &header, MSG_NOSIGNAL);
        while (sent >= 0 && static_cast<std::size_t>(sent) < message.size()) {
            const ssize_t n = ::send(fd_, message.data() + sent,
                                     message.size() - static_cast<std::size_t>(sent), MSG_NOSIGNAL);
            if (n <= 0) return {};
            sent += n;
        }
        Answer answer;
        const Bytes head = receive(16);
        if (head.size() != 16 || get(head, 0, 2) != id_ || get(head, 2, 2) != command ||
            (get(head, 8, 4) & 15) != 1)
            return {};
        answer.payload = receive(get(head, 4, 4) - 16);
        answer.came = true;
        answer.error = (get(head, 8, 4) & 32) != 0;
        answer.number = static_cast<std::uint32_t>(get(head, 12, 4));
        return answer;
    }

private:
    Bytes receive(std::size_t size) {
        Bytes bytes(size);
        std::size_t done = 0;
        while (done < size) {
            const ssize_t n = ::recv(fd_, bytes.data() + done, size - done, 0);
            if (n <= 0) return {};
            done += static_cast<std::size_t>(n);
        }
        return bytes;
    }
    int fd_ = -1;
    bool own_ = false;
    bool ok_ = false;
    std::uint16_t id_ = 0;
};

}  // namespace openmana::test

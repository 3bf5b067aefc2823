// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/endian.h"
#include "base/fd.h"
#include "base/result.h"
#include "vfio_user/message.h"
#include "vfio_user/version.h"

namespace openmana::test {

struct Reply {
    vfio_user::Header header;
    std::vector<std::byte> payload;
};

/// An anonymous file of `size` bytes, as QEMU backs guest RAM with.
base::UniqueFd make_memfd(std::uint64_t size);
base::UniqueFd make_eventfd();
/// What was signalled since the last call; does not wait.
std::uint64_t take_signals(const base::UniqueFd& eventfd);
/// Waits for a signal, at most `seconds`; false if none came.
bool wait_signal(const base::UniqueFd& eventfd, int seconds = 30);

/// The client side of vfio-user: what QEMU does, step by step, plus what a broken client might
/// send. Blocking, with a deadline on each reply. An error reply becomes Error{kIo, .detail =
/// errno}; a lost connection kClosed.
class VfioUserClient {
public:
    using Fds = std::initializer_list<int>;

    static base::Result<std::unique_ptr<VfioUserClient>> connect(const std::string& path);
    explicit VfioUserClient(base::UniqueFd socket) : socket_(std::move(socket)) {}

    [[nodiscard]] int fd() const { return socket_.get(); }
    void close() { socket_.reset(); }

    // Bytes and messages.
    base::Result<void> send_raw(std::span<const std::byte> bytes, std::span<const int> fds = {});
    base::Result<void> send(vfio_user::Command command, std::span<const std::byte> payload,
                            std::uint32_t flags = 0, std::span<const int> fds = {});
    base::Result<Reply> receive();
    base::Result<std::vector<std::byte>> call(vfio_user::Command command,
                                              std::span<const std::byte> payload,
                                              std::span<const int> fds = {});
    /// True once the server has closed the connection.
    bool closed_by_server();

    // What QEMU does.
    base::Result<vfio_user::Capabilities> negotiate();
    base::Result<vfio_user::DeviceInfo> device_info();
    base::Result<vfio_user::RegionInfoMessage> region_info(std::uint32_t index);
    base::Result<vfio_user::IrqInfoMessage> irq_info(std::uint32_t index);
    base::Result<void> dma_map(std::uint64_t address, std::uint64_t size, int fd,
                               std::uint64_t offset = 0,
                               std::uint32_t flags = vfio_user::kDmaReadable |
                                                     vfio_user::kDmaWritable);
    base::Result<void> dma_unmap(std::uint64_t address, std::uint64_t size,
                                 std::uint32_t flags = 0);
    base::Result<void> set_irqs(std::uint32_t flags, std::uint32_t start, std::uint32_t count,
                                std::span<const int> fds = {}, std::span<const std::byte> data = {},
                                std::uint32_t index = 2);
    base::Result<void> set_eventfd(std::uint32_t vector, const base::UniqueFd& eventfd);
    base::Result<std::vector<std::byte>> read(std::uint32_t region, std::uint64_t offset,
                                              std::uint32_t count);
    base::Result<void> write(std::uint32_t region, std::uint64_t offset,
                             std::span<const std::byte> data);
    /// Without a reply, as QEMU writes BARs.
    base::Result<void> post(std::uint32_t region, std::uint64_t offset,
                            std::span<const std::byte> data);
    base::Result<void> reset();

    template <typename T>
    base::Result<T> read_value(std::uint32_t region, std::uint64_t offset) {
        TRY(const auto bytes, read(region, offset, sizeof(T)));
        return base::load_le<T>(bytes.data());
    }
    template <typename T>
    base::Result<void> write_value(std::uint32_t region, std::uint64_t offset, T value) {
        return write(region, offset, std::as_bytes(std::span(&value, 1)));
    }
    template <typename T>
    base::Result<void> post_value(std::uint32_t region, std::uint64_t offset, T value) {
        return post(region, offset, std::as_bytes(std::span(&value, 1)));
    }

private:
    base::Result<void> receive_exactly(std::span<std::byte> target);
    template <typename T>
    base::Result<T> ask(vfio_user::Command command, const T& request);

    base::UniqueFd socket_;
    std::uint16_t next_id_ = 0;
};

}  // namespace openmana::test

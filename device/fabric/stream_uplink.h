// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/acceptor.h"
#include "base/executor.h"
#include "base/fd.h"
#include "base/hold_meter.h"
#include "fabric/unsent_frames.h"
#include "fabric/uplink.h"

namespace openmana::fabric {

/// QEMU's `-netdev stream` over a Unix socket: each frame behind its length in four bytes of
/// network order. Serves one other end at a time, and gets it back by itself when it has gone.
class StreamUplink final : public Uplink {
public:
    /// What QEMU accepts: a 64 KiB segment with its headers.
    static constexpr std::size_t kMaxFrame = 65536 + 4096;
    /// Of frames that the other end does not take yet.
    static constexpr std::size_t kMaxUnsent = 4U << 20;
    static constexpr std::size_t kMarkUnsent = 256U << 10;
    static constexpr base::Duration kRetry = std::chrono::milliseconds(500);

    static base::Result<std::unique_ptr<StreamUplink>> create(base::EventLoop& loop,
                                                              Switch& network,
                                                              const UplinkConfig& config);
    ~StreamUplink() override;

    void deliver(base::FrameViews frames) override {
        for (const base::FrameView frame : frames) send(frame);
    }
    [[nodiscard]] bool connected() const override {
        return connected_.load(std::memory_order_relaxed);
    }

    void save(base::StateWriter& out) const override;

private:
    StreamUplink(base::EventLoop& loop, Switch& network, const UplinkConfig& config,
                 std::unique_ptr<base::Acceptor> acceptor);
    void load(base::StateReader& in, base::UniqueFd connection);
    void send(base::FrameView frame);
    void try_connect();
    void adopt(base::UniqueFd fd);
    void serve(std::uint32_t events);
    bool read();
    bool parse();
    enum class Sent : std::uint8_t {
        kAll,   ///< nothing waits
        kMore,  ///< and the other end may take it
        kFull,  ///< the other end takes no more now
        kOver   ///< the connection has ended
    };
    Sent write_locked();
    void disconnect(const char* reason);
    void want_output();

    const std::string path_;
    const std::unique_ptr<base::Acceptor> acceptor_;  // of a server
    base::Timer retry_;                               // of a client
    std::vector<std::byte> input_;
    std::size_t filled_ = 0;
    mutable base::SharedMutex mutex_{
        "stream uplink"};  // protects fd_ and unsent_; fd_ changes on the loop alone
    base::UniqueFd fd_;
    std::atomic<bool> connected_{false};  // for those who ask; tells of itself alone, so relaxed
    UnsentFrames unsent_;
    std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // for posted tasks
};

}  // namespace openmana::fabric

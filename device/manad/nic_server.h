// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/event_loop.h"
#include "base/guest_memory.h"
#include "base/memory_loss.h"
#include "base/result.h"
#include "fabric/nic.h"
#include "fabric/switch.h"
#include "manad/options.h"
#include "pci/endpoint.h"
#include "vfio_user/server.h"

namespace openmana::manad {

/// A NIC with its socket and its thread. Made and destroyed on the main thread, while its own does
/// not run.
class NicServer {
public:
    static base::Result<std::unique_ptr<NicServer>> create(const NicOptions& options,
                                                           fabric::Switch& network);
    ~NicServer();
    NicServer(const NicServer&) = delete;
    NicServer& operator=(const NicServer&) = delete;

    void start();
    void stop();

    /// Runs `f` on the NIC's thread and waits for it; runs it here while the thread does not run.
    template <typename F>
    void call(F&& f) {
        if (!thread_.joinable()) {
            std::forward<F>(f)();
            return;
        }
        std::promise<void> done;
        loop_->post([&] {
            f();
            done.set_value();
        });
        done.get_future().wait();
    }

    [[nodiscard]] fabric::Nic& nic() { return *nic_; }
    [[nodiscard]] const std::string& socket() const { return socket_; }
    /// On the NIC's thread, like reset.
    [[nodiscard]] bool client_connected() const { return server_->connected(); }
    /// The function forgets everything, as after a function-level reset.
    void reset();

    /// Every counter of the NIC, layer by layer, from any thread.
    template <typename F>
    void visit_counters(F&& f) {
        server_->counters().visit(f);
        endpoint_->counters().visit(f);
        nic_->visit_counters(f);
    }

private:
    NicServer(const NicOptions& options, std::unique_ptr<base::EventLoop> loop,
              std::unique_ptr<base::MemoryLoss> loss, fabric::Switch& network);
    void on_memory_loss();

    const std::string socket_;
    std::unique_ptr<base::EventLoop> loop_;
    std::unique_ptr<base::MemoryLoss> loss_;
    std::unique_ptr<base::GuestMemory> memory_;
    std::unique_ptr<pci::Endpoint> endpoint_;
    std::unique_ptr<fabric::Nic> nic_;
    std::unique_ptr<vfio_user::Server> server_;
    std::thread thread_;
};

}  // namespace openmana::manad

// SPDX-License-Identifier: Apache-2.0
#include "manad/nic_server.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include "base/activity.h"
#include "base/gate.h"
#include "base/log.h"
#include "base/probe.h"
#include "base/random_seed.h"
#include "base/short_slice.h"

namespace openmana::manad {
namespace {

pci::EndpointConfig endpoint_config(const NicOptions& options) {
    pci::EndpointConfig config;
    config.name = options.nic.name;
    config.dma = options.dma;
    // EUI-64 of the MAC, as real adapters report it.
    const auto& mac = options.nic.mac;
    for (const std::uint8_t octet :
         {mac[0], mac[1], mac[2], std::uint8_t{0xff}, std::uint8_t{0xfe}, mac[3], mac[4], mac[5]})
        config.serial = config.serial << 8 | octet;
    return config;
}

}  // namespace

NicServer::NicServer(const NicOptions& options, std::unique_ptr<LoopThread> thread,
                     std::unique_ptr<base::MemoryLoss> loss, fabric::Switch& network,
                     NicLedgerClaim ledger)
    : ledger_(std::move(ledger)),
      socket_(options.socket),
      dma_limits_(options.dma),
      network_(options.network),
      thread_(std::move(thread)),
      loss_(std::move(loss)),
      memory_(std::make_unique<base::GuestMemory>(loss_.get())),
      endpoint_(std::make_unique<pci::Endpoint>(*memory_, endpoint_config(options))),
      executor_(thread_->loop()),
      nic_(std::make_unique<fabric::Nic>(executor_, *memory_, *endpoint_, network, options.nic)),
      mover_(std::make_unique<NicMover>(executor_, *memory_, *endpoint_, *nic_)) {
    endpoint_->attach(nic_->function(), nic_->function().gate());
    endpoint_->use_executor(executor_);
    if (ledger_) {
        endpoint_->use_ledger(ledger_->endpoint);
        nic_->function().use_ledger(ledger_->function);
    }
}

base::Result<std::unique_ptr<NicServer>> NicServer::create(const NicOptions& options,
                                                           fabric::Switch& network,
                                                           base::Duration patience,
                                                           base::StateReader* state,
                                                           NicLedgerClaim ledger) {
    const std::string& name = options.nic.name;
    const bool left = ledger && ledger.get_deleter().leaves;
    TRY(auto thread, LoopThread::create("nic=" + name, "nic-" + name, patience));
    TRY(auto loss, base::MemoryLoss::create());
    NicOptions own = options;
    TRY(own.nic.seed, base::random_seed());
    own.nic.apart = own.nic.apart || left;
    std::unique_ptr<NicServer> nic(
        new NicServer(own, std::move(thread), std::move(loss), network, std::move(ledger)));
    if (auto opened = nic->open(options, state); !opened) {
        // The next process needs what it would close.
        if (left) (void)nic.release();
        return tl::unexpected(opened.error());
    }
    nic->ledger_.get_deleter().leaves = false;
    return nic;
}

base::Result<void> NicServer::open(const NicOptions& options, base::StateReader* state) {
    base::EventLoop& loop = thread_->loop();
    if (state != nullptr) {
        TRY_VOID(load(*state, options));
    } else if (ledger_ && ledger_->server.listener.number() >= 0) {
        TRY(server_, vfio_user::Server::recover(loop, *endpoint_, ledger_->server, socket_, name(),
                                                offered(options)));
        left_behind_ = true;
    } else {
        TRY(server_, vfio_user::Server::create(loop, *endpoint_, {options.socket, options.access},
                                               name(), offered(options), server_ledger()));
    }
    return loop.add(loss_->fd(), EPOLLIN, [this](std::uint32_t) { on_memory_loss(); });
}

vfio_user::Moving NicServer::offered(const NicOptions& options) {
    return {options.migration ? mover_.get() : nullptr, options.retain};
}

/// The function first finds the memory of its guest; the client comes last, since nothing may be
/// missing when it does.
base::Result<void> NicServer::load(base::StateReader& in, const NicOptions& options) {
    in.begin("SERV", 1);
    endpoint_->load(in);
    endpoint_->load_lent(in);
    TRY_VOID(in.result());
    TRY_VOID(nic_->load(in));
    TRY(server_, vfio_user::Server::take_over(thread_->loop(), *endpoint_, in, socket_, name(),
                                              offered(options), server_ledger()));
    in.end();
    return in.result();
}

/// As load(), of what a process has left that has ended. What the function was is gone. The memory
/// of a guest whose client has gone is not there, so its channel waits for that. On the NIC's
/// thread: how long it takes, that guest has a say in.
void NicServer::take_up() {
    using vfio_user::DeviceState;
    const base::Activity::Scope doing("recovery");
    vfio_user::ServerLedger& server = ledger_->server;
    const DeviceState left = server.device_left();
    if (server.client.number() >= 0 || left == DeviceState::kStop) {
        const auto recovered = endpoint_->recover();
        if (recovered) {
            recovered_ = left == DeviceState::kRunning;
            if (ledger_->function.channel.channel.get().there) mover_->lose();
            if (recovered_) nic_->function().recover();
        } else {
            OM_ERROR("client drop: nic={} reason=\"{}\" detail={:#x}", name(),
                     recovered.error().text, recovered.error().detail);
            const base::UniqueFd client(server.client.number());
            server.client.forget();
            server.retained.store(0, std::memory_order_relaxed);
            endpoint_->client_gone();
        }
    }
    server_->take_up();
}

void NicServer::save(base::StateWriter& out) const {
    out.begin("SERV", 1);
    endpoint_->save(out);
    endpoint_->save_lent(out);
    nic_->save(out);
    server_->save(out);
    out.end();
}

void NicServer::pause() {
    paused_at_ = thread_->loop().clock().now();
    server_->pause();
    nic_->flush();
}

void NicServer::resume() {
    server_->resume();
}

NicServer::~NicServer() {
    base::EventLoop& loop = thread_->loop();
    if (!loop.on_thread()) stop();
    OM_PROBE(nic_stop, name().c_str());
    loop.remove(loss_->fd());
}

/// Zeros stand for what was lost, so whatever the device goes on to do for this guest is wrong. A
/// client that has gone meanwhile took its losses with it.
void NicServer::on_memory_loss() {
    loss_->acknowledge();
    if (loss_->count() == 0) return;
    server_->drop_client("guest memory went away");
    loss_->take();
}

base::Result<void> NicServer::start() {
    OM_INFO("nic start: nic={} network={} mac={} socket={}", name(), network_,
            to_string(nic_->config().mac), socket_);
    OM_PROBE(nic_start, name().c_str(), network_.c_str());
    return thread_->start([this] {
        if (left_behind_) take_up();
        if (ledger_ && ledger_->server.device_left() != vfio_user::DeviceState::kRunning)
            mover_->stop_lost();
        else if (nic_->config().apart && !nic_->config().incoming)
            nic_->appear();
        if (recovered_) {
            nic_->function().request_reset();
            endpoint_->raise_all();
        }
        server_->resume();
        if (handed_over_)
            blackout_.store(thread_->loop().clock().now() - paused_at_, std::memory_order_relaxed);
        if (const auto asked = base::ask_for_slice(base::kShortSlice); !asked)
            OM_WARN("nic slow: nic={} reason=\"{}\" errno={}", name(), asked.error().text,
                    asked.error().detail);
    });
}

std::string NicServer::no_answer(const base::Error& error) const {
    return fmt::format("NIC '{}' does not answer: {}; it is at: {}", name(), error.text,
                       thread_->watch().doing());
}

NicServer::Status NicServer::status() const {
    return {server_->connected(), nic_->rdma().qp_count(), nic_->function().object_counts()};
}

void NicServer::leave() {
    if (ledger_) ledger_->state.store(NicLedger::kLeaving, std::memory_order_release);
    server_.reset();
    reset();
    nic_->leave();
}

void NicServer::reset() {
    const base::Gate::Exclusion exclusion(nic_->function().gate(), {"reset"});
    nic_->function().reset();
}

}  // namespace openmana::manad

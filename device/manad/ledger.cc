// SPDX-License-Identifier: Apache-2.0
#include "manad/ledger.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/fd_name.h"
#include "base/log.h"
#include "base/unix_socket.h"
#include "manad/shared_fork.h"

namespace openmana::manad {
namespace {

constexpr std::size_t kHead = 4096;

/// Whether it is a connection that came to this path. A client can make and send one that says so.
bool came_to(int number, const std::string& path) {
    base::UniqueFd fd(number);
    const bool connected = base::is_unix_stream(fd, false);
    (void)fd.release();
    sockaddr_un address{};
    socklen_t bytes = sizeof address;
    if (!connected || ::getsockname(number, reinterpret_cast<sockaddr*>(&address), &bytes) != 0)
        return false;
    return path ==
           std::string_view(address.sun_path, ::strnlen(address.sun_path, sizeof address.sun_path));
}

/// A client that was accepted, and whose NIC had not written that down; -1 if there was none. Among
/// several nobody can tell which it is.
int accepted_client(const vfio_user::ServerLedger& server, const std::string& path,
                    std::span<const int> unnamed) {
    if (server.accepting.load() == 0 || server.client.number() >= 0) return -1;
    const auto fits = [&](int number) { return came_to(number, path); };
    if (std::ranges::count_if(unnamed, fits) != 1) return -1;
    return *std::ranges::find_if(unnamed, fits);
}

/// What the next process opens again where it was, and what closes without anybody's help: all but
/// connections of TCP, which may wait for their other end, and files of who knows what system.
bool closes_at_once(int number) {
    if (::fcntl(number, F_GET_SEALS) >= 0) return true;
    const auto option = [&](int name) { return base::socket_option(number, name); };
    const int type = option(SO_TYPE);
    if (type >= 0)
        return type != SOCK_STREAM || option(SO_DOMAIN) == AF_UNIX || option(SO_ACCEPTCONN) == 1;
    return base::fd_is(number, "/dev/net/tun");
}

/// A client says how long it takes to close some files. A process that shares the descriptors does
/// it, and ends with this one: nothing closes a descriptor by a number that somebody else has by
/// then. It is waited for as long as that takes where nobody means harm. Where there can be no
/// process they stay open.
void close_aside(std::vector<int> numbers) {
    constexpr auto kPatience = std::chrono::seconds(1);
    constexpr auto kPause = std::chrono::microseconds(200);
    if (numbers.empty()) return;
    std::partition(numbers.begin(), numbers.end(), closes_at_once);
    const pid_t self = ::getpid();
    const pid_t child = fork_sharing_descriptors(0);
    if (child == 0) {
        (void)::prctl(PR_SET_NAME, "manad-close");
        (void)::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        if (::getppid() == self)
            for (const int number : numbers) ::close(number);
        ::_exit(0);
    }
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (child > 0 && ::waitpid(child, nullptr, WNOHANG | __WALL) == 0) {
        if (std::chrono::steady_clock::now() > end) {
            OM_WARN("manad recover: reason=\"a descriptor does not close\"");
            return;
        }
        std::this_thread::sleep_for(kPause);
    }
}

}  // namespace

void LedgerText::set(std::string_view text) {
    const std::uint32_t next = 1 - current_.load(std::memory_order_relaxed);
    Copy& copy = copies_[next];
    if (text.size() > kMost) text = {};
    copy.length = static_cast<std::uint32_t>(text.size());
    std::copy(text.begin(), text.end(), copy.bytes);
    current_.store(next, std::memory_order_release);
}

std::string LedgerText::get() const {
    const Copy& copy = copies_[current_.load(std::memory_order_acquire)];
    return {copy.bytes, copy.length};
}

base::Result<std::unique_ptr<Ledger>> Ledger::create(std::size_t nics) {
    const std::size_t bytes = kHead + nics * sizeof(NicLedger);
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return base::fail(base::ErrorCode::kIo, "no memory for a ledger",
                          static_cast<unsigned>(errno));
    return std::unique_ptr<Ledger>(new Ledger(memory, bytes, nics));
}

/// The memory is zeros, and has to stay untouched: a NIC's ledger is made when it is claimed first.
Ledger::Ledger(void* memory, std::size_t bytes, std::size_t nics)
    : memory_(memory),
      bytes_(bytes),
      ready_(new (memory) std::atomic<std::uint32_t>(0)),
      nics_(reinterpret_cast<NicLedger*>(static_cast<std::byte*>(memory) + kHead), nics) {}

Ledger::~Ledger() {
    ::munmap(memory_, bytes_);
}

NicLedgerClaim Ledger::claim(const NicOptions& nic, std::string_view policy) {
    for (NicLedger& there : nics_)
        if (there.state.load(std::memory_order_acquire) == NicLedger::kTaken &&
            there.options.get() == nic.text)
            return {&there, FreeNicLedger{.leaves = true}};
    for (NicLedger& free : nics_) {
        if (free.state.load(std::memory_order_acquire) != NicLedger::kFree) continue;
        NicLedger* const made = new (&free) NicLedger;
        made->server.begin_session();
        made->options.set(nic.text);
        made->policy.set(policy);
        made->came_later.store(nic.came_later ? 1 : 0, std::memory_order_relaxed);
        made->state.store(NicLedger::kTaken, std::memory_order_release);
        return NicLedgerClaim(made);
    }
    return nullptr;
}

void Ledger::recover_nics(Options& options) {
    std::vector<NicOptions> nics;
    std::vector<PolicyOptions> policies;
    for (NicLedger& there : nics_) {
        if (there.state.load(std::memory_order_acquire) != NicLedger::kTaken) continue;
        const std::string text = there.options.get();
        const auto own = std::ranges::find(options.nics, text, &NicOptions::text);
        auto parsed = own != options.nics.end() ? Parsed<NicOptions>(*own)
                                                : parse_nic(text, options.socket_access);
        const std::string wanted = there.policy.get();
        auto policy = wanted.empty() ? Parsed<PolicyOptions>() : parse_policy(wanted);
        if (!parsed || !policy) {
            // Without its policy a guest could send what it must not.
            OM_ERROR("nic recover: options=\"{}\" reason=\"{}\"", text,
                     parsed ? "policy: " + policy.error() : parsed.error());
            there.state.store(NicLedger::kLeaving, std::memory_order_release);
            continue;
        }
        parsed->came_later = there.came_later.load(std::memory_order_relaxed) != 0;
        if (!wanted.empty()) {
            policy->nic = parsed->nic.name;
            policies.push_back(std::move(*policy));
        }
        nics.push_back(std::move(*parsed));
    }
    options.nics = std::move(nics);
    options.policies = std::move(policies);
    std::erase_if(options.faults, [&](const FaultOptions& faults) {
        return std::ranges::none_of(
            options.nics, [&](const NicOptions& nic) { return nic.nic.name == faults.nic; });
    });
}

std::size_t Ledger::recover(Options& options, std::span<const int> kept) {
    recover_nics(options);
    std::vector<int> named(kept.begin(), kept.end());
    std::vector<std::pair<NicLedger*, std::string>> sockets;
    const auto keep = [&](const std::vector<int>& more) {
        named.insert(named.end(), more.begin(), more.end());
    };
    for (NicLedger& nic : nics_) {
        const std::uint32_t state = nic.state.load(std::memory_order_acquire);
        if (state == NicLedger::kLeaving) nic.state.store(NicLedger::kFree);
        if (state != NicLedger::kTaken) continue;
        keep(nic.server.descriptors());
        if (nic.server.client.number() >= 0) {
            keep(nic.endpoint.descriptors());
        } else {
            // It was just going to be as one without a client is.
            nic.endpoint.forget_client();
            if (nic.server.retained.load(std::memory_order_relaxed) == 0) nic.forget_guest();
        }
        const std::string text = nic.options.get();
        for (const NicOptions& own : options.nics)
            if (own.text == text) sockets.emplace_back(&nic, own.socket);
    }
    std::ranges::sort(named);
    std::vector<int> unnamed = open_descriptors();
    std::erase_if(unnamed, [&](int number) { return std::ranges::binary_search(named, number); });
    for (const auto& [nic, path] : sockets) {
        const int client = accepted_client(nic->server, path, unnamed);
        nic->server.accepting.store(0);
        if (client < 0) continue;
        nic->server.begin_session();
        nic->server.client.hold(client);
        std::erase(unnamed, client);
    }
    const std::size_t closed = unnamed.size();
    close_aside(std::move(unnamed));
    return closed;
}

std::vector<int> Ledger::clients() const {
    std::vector<int> all;
    for (const NicLedger& nic : nics_)
        if (nic.state.load(std::memory_order_acquire) == NicLedger::kTaken &&
            nic.server.client.number() >= 0)
            all.push_back(nic.server.client.number());
    return all;
}

std::vector<int> open_descriptors() {
    std::vector<int> all;
    DIR* const folder = ::opendir("/proc/self/fd");
    if (folder == nullptr) return all;
    while (const dirent* const entry = ::readdir(folder)) {
        int number = -1;
        const char* const end = entry->d_name + std::strlen(entry->d_name);
        if (std::from_chars(entry->d_name, end, number).ptr == end && number != ::dirfd(folder))
            all.push_back(number);
    }
    ::closedir(folder);
    return all;
}

}  // namespace openmana::manad

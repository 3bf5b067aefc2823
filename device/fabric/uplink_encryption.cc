// SPDX-License-Identifier: Apache-2.0
#include "fabric/uplink_encryption.h"

#include <netinet/in.h>

#include <algorithm>
#include <utility>

#include "fabric/tunnel_end.h"

namespace openmana::fabric {

base::Result<esp::Endpoint> tunnel_end(const base::SocketAddress& address) {
    const roce::Gid ip = ip_of(address);
    esp::Endpoint end;
    end.port = port_of(address);
    // One that maps an IPv4 address sends IPv4, and the other end may know it as that.
    end.v6 = !roce::is_ipv4(ip);
    const std::span<const std::uint8_t> bytes(ip);
    std::ranges::copy(end.v6 ? bytes : bytes.last(sizeof(in_addr)), end.address.begin());
    if (std::ranges::all_of(end.address, [](std::uint8_t byte) { return byte == 0; }))
        return base::fail(base::ErrorCode::kInvalidArgument,
                          "an encrypted uplink needs the address that the other end has for it");
    return end;
}

base::Result<std::unique_ptr<UplinkEncryption>> UplinkEncryption::create(
    base::EventLoop& loop, const EncryptionConfig& config, const base::SocketAddress& local,
    const base::SocketAddress& remote, const std::string& name) {
    esp::Channel::Config channel{name, {}, config.limits};
    TRY(channel.flow.sender, tunnel_end(local));
    TRY(channel.flow.receiver, tunnel_end(remote));
    TRY(auto key_file, KeyFile::create(loop, config.key_file));
    std::unique_ptr<UplinkEncryption> own(new UplinkEncryption(std::move(key_file)));
    TRY(own->channel_, esp::Channel::create(loop.clock(), own->calendar_, own->key_file_->keys(),
                                            std::move(channel), own->counters_));
    own->key_file_->on_replaced([channel = own->channel_.get()] { channel->drop_old_keys(); });
    return own;
}

std::size_t UplinkEncryption::seal(base::FrameViews frames, const Sealed*& sealed) {
    thread_local Sealed own;
    sealed = &own;
    own.count_ = 0;
    std::size_t taken = 0;
    std::size_t bytes = 0;
    for (; taken < std::min(frames.size(), Sealed::kMaxPackets); ++taken) {
        const std::size_t size = esp::sealed_size(frames[taken].size());
        if (taken > 0 && bytes + size > Sealed::kMaxBytes) break;
        bytes += size;
    }
    auto batch = channel_->begin(static_cast<std::uint32_t>(taken));
    if (!batch) return taken;
    if (own.bytes_.size() < bytes) own.bytes_.resize(std::max(bytes, Sealed::kMaxBytes));
    std::byte* at = own.bytes_.data();
    for (const base::FrameView frame : frames.first(taken)) {
        const std::span<const std::byte> parts[] = {frame};
        const std::size_t size = batch->seal(parts, esp::NextHeader::kEthernet, at);
        if (size == 0) {
            counters_.refused.add();
            continue;
        }
        own.datagrams_[own.count_++] = {{}, {at, size}, nullptr, 0};
        at += size;
    }
    return taken;
}

void UplinkEncryption::open(std::span<const base::ReceivedDatagram> datagrams,
                            std::vector<base::FrameView>& frames) {
    packets_.clear();
    for (const base::ReceivedDatagram& datagram : datagrams) packets_.push_back(datagram.bytes);
    opened_.resize(packets_.size());
    channel_->open(packets_, opened_);
    for (const esp::Opened& opened : opened_)
        if (opened.next_header == esp::NextHeader::kEthernet && !opened.payload.empty())
            frames.emplace_back(opened.payload);
}

std::optional<base::Datagram> UplinkEncryption::notice() {
    const std::size_t size = channel_->notice(notice_.data());
    if (size == 0) return std::nullopt;
    return base::Datagram{{}, std::span(notice_).first(size), nullptr, 0};
}

base::Result<void> UplinkEncryption::rekey() {
    TRY_VOID(key_file_->reload());
    channel_->rekey();
    return {};
}

void UplinkEncryption::save(base::StateWriter& out) const {
    out.begin("ESP ", 1);
    base::save_counters(out, counters_);
    channel_->save(out);
    out.end();
}

void UplinkEncryption::load(base::StateReader& in) {
    in.begin("ESP ", 1);
    base::load_counters(in, counters_);
    channel_->load(in);
    in.end();
}

}  // namespace openmana::fabric

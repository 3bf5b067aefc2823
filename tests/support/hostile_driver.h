// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "support/choices.h"
#include "support/ext_host.h"
#include "support/rdma_host.h"

namespace openmana::test {

/// A driver that knows the ABI and means harm: it makes real objects, so that what follows reaches
/// deep code, then asks for nonsense. Every decision comes from a Choices. It never waits, and it
/// trusts nothing that it reads back.
class HostileDriver {
public:
    struct Config {
        base::MacAddr mac{};
        roce::Gid gid{};
        std::vector<Peer> victims;     ///< QPs of others to aim at
        unsigned spoil_commands = 16;  ///< of 256 commands of the set-up
        bool resets = true;            ///< SHM destroy and establish, and function resets
    };
    HostileDriver(pci::FunctionModel& function, GuestRam& ram, FakeIrq& irq, Config config);
    ~HostileDriver();

    /// HWC, RDMA adapter and, if asked for, Ethernet. False if the device did not answer as it
    /// should.
    bool bring_up(bool ethernet = true);
    /// CQs, a pair of QPs connected with each other, a UD QP, MRs; the first MR grants everything
    /// on all data.
    bool make_pair();
    static constexpr std::uint32_t kQkey = 0x11111111;

    /// One arbitrary step of any kind.
    void step(Choices& choices);

    // The kinds.
    void request(
        Choices& choices);  ///< a known command, with fields that are mostly of the right kind
    void any_request(Choices& choices);           ///< bytes
    void objects(Choices& choices);               ///< creates, connects, destroys
    void work(Choices& choices);                  ///< work requests, mostly valid, on any QP
    void renew(Choices& choices);                 ///< two QPs from RESET to RTS, with each other
    void datagram(HostQp& qp, Choices& choices);  ///< a UD send
    void raw_work(Choices& choices);              ///< bytes in a ring, and a doorbell
    // Of the extension, in hostile_ext.cc.
    bool make_ext_pair();                 ///< CQs, an SRQ, connected and datagram QPs, keys
    void ext_objects(Choices& choices);   ///< creates, connects, destroys, resizes
    void ext_work(Choices& choices);      ///< work requests, mostly valid, on any extended QP
    void ext_raw_work(Choices& choices);  ///< bytes in rings and records, rewritten later
    void ethernet_work(Choices& choices);
    void doorbell(Choices& choices);
    void bar(Choices& choices);

    /// Called with each page of guest memory that the device reads or writes for us, HWC rings
    /// excepted.
    std::function<void(std::uint64_t page)> on_page;
    /// Called with the answer of the device to each `request`; not if there was none.
    std::function<void(std::uint32_t opcode, std::uint32_t status)> on_answer;
    /// Called before guest memory is used for something else: all pages named so far are void.
    std::function<void()> on_restart;

    [[nodiscard]] RdmaHost& host() { return *host_; }
    [[nodiscard]] std::vector<std::unique_ptr<HostQp>>& qps() { return qps_; }
    [[nodiscard]] const std::vector<ExtQp>& ext_qps() const { return ext_qps_; }
    [[nodiscard]] std::vector<DriverMr>& mrs() { return mrs_; }
    [[nodiscard]] std::vector<DriverCq>& cqs() { return cqs_; }
    [[nodiscard]] base::GuestAddr data() const { return data_; }
    static constexpr std::uint64_t kDataBytes = 64 * 4096;
    /// Memory in no MR of this driver, filled with kCanary: the device may not touch it.
    static constexpr std::byte kCanary{0xc9};
    static constexpr std::uint64_t kCanaryBytes = 4 * 4096;
    [[nodiscard]] bool canary_alive() const;

    /// Kinds of values in the fields of commands.
    enum Kind : std::uint8_t {
        kRegion,
        kPd,
        kPdId,
        kMr,
        kDm,
        kEq,
        kPage,
        kAdapter,
        kCq,
        kQp,
        kVport,
        kWq,
        kSrq,
        kFlow,
        kSpread,
        kPools,
        kZero = kPools,
        kSmall,
        kNumber,
        kAddress,
        kAccess,
        kGid,
        kMac,
        kWireMac,  ///< a MAC as it is in frames
        kGroup,    ///< the GID of a multicast group
        kOnes,     ///< a mask
        kIpType,
    };
    struct Field {
        std::uint16_t offset;
        std::uint8_t bytes;
        Kind kind;
        std::uint32_t plain = 0;  ///< value of the plainest choice, for kSmall
    };
    struct Command {
        std::uint32_t opcode;
        std::uint16_t size;
        std::uint16_t room;
        std::uint16_t device;
        std::uint16_t version;
        std::vector<Field> fields;
        std::vector<Field> results;
    };
    static const std::vector<Command>& commands();

private:
    static constexpr std::size_t kMaxQps = 24;
    static constexpr std::size_t kMaxMrs = 48;
    static constexpr std::size_t kMaxCqs = 12;

    void remember(Kind kind, std::uint64_t value);
    std::uint64_t value_of(const Field& field, Choices& choices);
    std::vector<std::uint8_t> address_of(const Field& field, Choices& choices) const;
    void take_results(const Command& command, const Response& response);
    bool eth_up();
    void note(const RingMemory& ring);
    void adopt(std::unique_ptr<HostQp> qp);
    void restart(Choices& choices);
    gdma::Sge any_sge(Choices& choices);
    void ext_connect(ExtQp& a, ExtQp& b, Choices& choices);
    ExtWr ext_request(const ExtQp& qp, Choices& choices);
    std::uint64_t any_address(Choices& choices);

    pci::FunctionModel& function_;
    GuestRam& ram_;
    FakeIrq& irq_;
    const Config config_;
    std::unique_ptr<RdmaHost> host_;
    std::array<std::vector<std::uint64_t>, kPools> pools_;
    std::vector<std::unique_ptr<HostQp>> qps_;
    std::vector<DriverMr> mrs_;
    std::vector<DriverCq> cqs_;
    std::unique_ptr<ExtHost> ext_;
    std::vector<ExtCq> ext_cqs_;
    std::vector<ExtQp> ext_qps_;
    std::vector<std::uint32_t> ext_types_;  // of ext_qps_
    std::optional<ExtSrq> ext_srq_;
    std::vector<DriverMr> ext_keys_;
    base::GuestAddr data_{};
    base::GuestAddr canary_{};
    bool ethernet_ = false;
    DriverWq eth_sq_, eth_rq_;
    std::uint32_t eth_key_ = 0;
    Choices* spoiler_ = nullptr;
};

}  // namespace openmana::test

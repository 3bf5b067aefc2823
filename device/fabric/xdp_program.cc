// SPDX-License-Identifier: Apache-2.0
#include "fabric/xdp_program.h"

#include <linux/bpf.h>
#include <linux/if_link.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <vector>

#include "fabric/xdp_addresses.h"
#include "fabric/xdp_config.h"

namespace openmana::fabric {
namespace {

using base::ErrorCode;
using base::fail;

base::UniqueFd bpf(bpf_cmd command, bpf_attr& attributes) {
    return base::UniqueFd(
        static_cast<int>(::syscall(SYS_bpf, command, &attributes, sizeof attributes)));
}

tl::unexpected<base::Error> failed(const char* text) {
    if (errno == EPERM)
        return fail(ErrorCode::kPermission, "an XDP program takes CAP_BPF and CAP_NET_ADMIN");
    if (errno == ENOSYS) return fail(ErrorCode::kUnsupported, "this kernel has no BPF");
    return fail(ErrorCode::kIo, text, static_cast<unsigned>(errno));
}

void set_name(char (&to)[BPF_OBJ_NAME_LEN], std::string_view name) {
    std::memcpy(to, name.data(), name.size());
}

base::UniqueFd make_map(bpf_map_type type, std::string_view name, std::uint32_t value_bytes,
                        std::uint32_t entries, std::uint32_t flags) {
    bpf_attr attributes{};
    attributes.map_type = type;
    attributes.key_size = sizeof(std::uint32_t);
    attributes.value_size = value_bytes;
    attributes.max_entries = entries;
    attributes.map_flags = flags;
    set_name(attributes.map_name, name);
    return bpf(BPF_MAP_CREATE, attributes);
}

/// Instructions, in the order in which they run (Linux, Documentation/bpf/standardization).
class Assembler {
public:
    void move(int to, int from) { add(BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0); }
    void move_number(int to, int value) { add(BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, value); }
    void with_number(int operation, int to, int value) {
        add(BPF_ALU64 | operation | BPF_K, to, 0, 0, value);
    }
    void with(int operation, int to, int from) {
        add(BPF_ALU64 | operation | BPF_X, to, from, 0, 0);
    }
    void load(int size, int to, int from, int offset) {
        add(BPF_LDX | BPF_MEM | size, to, from, offset, 0);
    }
    void store(int size, int to, int offset, int from) {
        add(BPF_STX | BPF_MEM | size, to, from, offset, 0);
    }
    void load_wide(int to, std::uint64_t value, int kind = 0) {
        add(BPF_LD | BPF_DW | BPF_IMM, to, kind, 0, static_cast<int>(value & 0xffffffff));
        add(0, 0, 0, 0, static_cast<int>(value >> 32));
    }
    void load_map(int to, int map) { load_wide(to, static_cast<unsigned>(map), BPF_PSEUDO_MAP_FD); }
    void call(int helper) { add(BPF_JMP | BPF_CALL, 0, 0, 0, helper); }
    void exit() { add(BPF_JMP | BPF_EXIT, 0, 0, 0, 0); }
    enum class Label : std::uint8_t { kHit, kPass };
    void jump(Label to) { jump_to(BPF_JMP | BPF_JA, 0, 0, 0, to); }
    void jump_if(int condition, int left, int right, Label to) {
        jump_to(BPF_JMP | condition | BPF_X, left, right, 0, to);
    }
    void jump_if_number(int condition, int left, int value, Label to) {
        jump_to(BPF_JMP | condition | BPF_K, left, 0, value, to);
    }
    void here(Label label) { at_[static_cast<std::size_t>(label)] = code_.size(); }
    /// All jumps know where they go.
    [[nodiscard]] const std::vector<bpf_insn>& finish() {
        for (const Jump& jump : jumps_)
            code_[jump.at].off = static_cast<std::int16_t>(
                static_cast<long>(at_[static_cast<std::size_t>(jump.to)]) -
                static_cast<long>(jump.at) - 1);
        return code_;
    }

private:
    struct Jump {
        std::size_t at;
        Label to;
    };
    void add(int code, int to, int from, int offset, int value) {
        bpf_insn insn{};
        insn.code = static_cast<std::uint8_t>(code);
        insn.dst_reg = static_cast<std::uint8_t>(to & 15);
        insn.src_reg = static_cast<std::uint8_t>(from & 15);
        insn.off = static_cast<std::int16_t>(offset);
        insn.imm = value;
        code_.push_back(insn);
    }
    void jump_to(int code, int left, int right, int value, Label to) {
        jumps_.push_back({code_.size(), to});
        add(code, left, right, 0, value);
    }
    std::vector<bpf_insn> code_;
    std::vector<Jump> jumps_;
    std::array<std::size_t, 2> at_{};
};

/// Registers: 6 the context, 7 the address as XdpAddresses::word_at has it.
std::vector<bpf_insn> assemble(std::uint64_t key, int table, int sockets) {
    using Label = Assembler::Label;
    constexpr int kEthernetBytes = 14;
    Assembler code;
    code.move(6, 1);
    code.load(BPF_W, 2, 1, offsetof(xdp_md, data_end));
    code.load(BPF_W, 3, 1, offsetof(xdp_md, data));
    code.move(4, 3);
    code.with_number(BPF_ADD, 4, kEthernetBytes);
    code.jump_if(BPF_JGT, 4, 2, Label::kPass);
    code.load(BPF_W, 7, 3, 0);
    code.jump_if_number(BPF_JSET, 7, 1, Label::kPass);  // a group: the host hears it too
    code.load(BPF_H, 8, 3, 4);
    code.with_number(BPF_OR, 8, static_cast<int>(XdpAddresses::kUsed >> 32));
    code.with_number(BPF_LSH, 8, 32);
    code.with(BPF_OR, 7, 8);
    // The bucket.
    code.load_wide(1, key);
    code.with(BPF_MUL, 1, 7);
    code.with_number(BPF_RSH, 1, 64 - static_cast<int>(XdpAddresses::kBucketBits));
    code.store(BPF_W, 10, -4, 1);
    code.load_map(1, table);
    code.move(2, 10);
    code.with_number(BPF_ADD, 2, -4);
    code.call(BPF_FUNC_map_lookup_elem);
    code.jump_if_number(BPF_JEQ, 0, 0, Label::kPass);
    for (std::size_t place = 0; place < XdpAddresses::kPlaces; ++place) {
        code.load(BPF_DW, 1, 0, static_cast<int>(place * sizeof(std::uint64_t)));
        code.jump_if(BPF_JEQ, 1, 7, Label::kHit);
    }
    code.jump(Label::kPass);
    code.here(Label::kHit);
    code.load(BPF_W, 2, 6, offsetof(xdp_md, rx_queue_index));
    code.load_map(1, sockets);
    code.move_number(3, XDP_PASS);  // where there is no socket
    code.call(BPF_FUNC_redirect_map);
    code.exit();
    code.here(Label::kPass);
    code.move_number(0, XDP_PASS);
    code.exit();
    return code.finish();
}

base::UniqueFd load_program(const std::vector<bpf_insn>& code, std::uint32_t flags) {
    bpf_attr attributes{};
    attributes.prog_type = BPF_PROG_TYPE_XDP;
    attributes.expected_attach_type = BPF_XDP;
    attributes.insns = reinterpret_cast<std::uintptr_t>(code.data());
    attributes.insn_cnt = static_cast<std::uint32_t>(code.size());
    attributes.license = reinterpret_cast<std::uintptr_t>("Apache-2.0");
    attributes.prog_flags = flags;
    set_name(attributes.prog_name, "manad");
    return bpf(BPF_PROG_LOAD, attributes);
}

}  // namespace

base::Result<XdpProgram> XdpProgram::load(std::uint64_t key) {
    XdpProgram made;
    made.table = make_map(BPF_MAP_TYPE_ARRAY, "manad_macs", XdpAddresses::kBucketBytes,
                          XdpAddresses::kBuckets, BPF_F_MMAPABLE);
    if (!made.table) return failed("cannot make the addresses of the XDP program");
    made.sockets =
        make_map(BPF_MAP_TYPE_XSKMAP, "manad_sockets", sizeof(int), XdpConfig::kMaxQueues, 0);
    if (!made.sockets) return failed("cannot make the sockets of the XDP program");
    const auto code = assemble(key, made.table.get(), made.sockets.get());
    made.program = load_program(code, BPF_F_XDP_HAS_FRAGS);
    made.fragments = static_cast<bool>(made.program);
    if (!made.program) made.program = load_program(code, 0);  // Linux before 5.18
    if (!made.program) return failed("cannot load the XDP program");
    return made;
}

base::Result<void> XdpProgram::set_socket(std::uint32_t queue, int socket) const {
    bpf_attr attributes{};
    attributes.map_fd = static_cast<std::uint32_t>(sockets.get());
    attributes.key = reinterpret_cast<std::uintptr_t>(&queue);
    attributes.value = reinterpret_cast<std::uintptr_t>(&socket);
    if (::syscall(SYS_bpf, BPF_MAP_UPDATE_ELEM, &attributes, sizeof attributes) != 0)
        return failed("cannot tell the XDP program of a socket");
    return {};
}

base::Result<base::UniqueFd> XdpProgram::attach(int interface, bool generic) const {
    bpf_attr attributes{};
    attributes.link_create.prog_fd = static_cast<std::uint32_t>(program.get());
    attributes.link_create.target_ifindex = static_cast<std::uint32_t>(interface);
    attributes.link_create.attach_type = BPF_XDP;
    attributes.link_create.flags = generic ? XDP_FLAGS_SKB_MODE : XDP_FLAGS_DRV_MODE;
    base::UniqueFd link = bpf(BPF_LINK_CREATE, attributes);
    if (link) return link;
    if (errno == EBUSY || errno == EEXIST)
        return fail(ErrorCode::kBusy, "another XDP program is on the interface");
    return failed("cannot put the XDP program on the interface");
}

}  // namespace openmana::fabric

// SPDX-License-Identifier: Apache-2.0
/*
 * Raw packet queue pairs by the verbs alone, between two guests.
 *
 *   raw_packets serve DEVICE MAC PEER   receives, by events, and checks each byte
 *   raw_packets send DEVICE MAC PEER    sends
 *
 * The receiver says "ready" when it can receive, twice: between the rounds its queue pair
 * goes to ERR, where what it still has is flushed, and through RESET back to work, with the
 * rules that it had. Some packets come from a foreign MAC address, some are UDP without
 * checksums, which the device fills in. What the verbs do not offer here has to answer
 * EOPNOTSUPP.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PACKETS 200
#define RECEIVES 256
#define SLOT 2048
#define ETHER_TYPE 0x88b5
#define HEAD 18
#define UDP_PORT 7777
#define ROUNDS 2

static struct ibv_context* context;
static struct ibv_pd* pd;
static struct ibv_comp_channel* channel;
static struct ibv_cq *send_cq, *recv_cq;
static struct ibv_mr* mr;
static struct ibv_qp* qp;
static unsigned char *memory, own[6];

__attribute__((format(printf, 2, 3), noreturn)) static void fail(int error, const char* format,
                                                                 ...) {
    va_list list;

    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, error ? ": %s\n" : "\n", strerror(error));
    exit(1);
}

static void need(int ok, const char* what) {
    if (!ok) fail(errno, "%s", what);
}

static void need_errno(int got, int wanted, const char* what) {
    if (got != wanted) fail(0, "%s: errno %d instead of %d", what, got, wanted);
}

static void parse_mac(const char* text, unsigned char* mac) {
    if (sscanf(text, "%2hhx:%2hhx:%2hhx:%2hhx:%2hhx:%2hhx", mac, mac + 1, mac + 2, mac + 3, mac + 4,
               mac + 5) != 6)
        fail(0, "no MAC address: %s", text);
}

static void set_up(const char* name) {
    struct ibv_device** list = ibv_get_device_list(NULL);

    need(list != NULL, "devices");
    for (int i = 0; list[i]; i++)
        if (!strcmp(ibv_get_device_name(list[i]), name)) context = ibv_open_device(list[i]);
    need(context != NULL, name);
    pd = ibv_alloc_pd(context);
    channel = ibv_create_comp_channel(context);
    send_cq = ibv_create_cq(context, RECEIVES, NULL, channel, 0);
    recv_cq = ibv_create_cq(context, RECEIVES, NULL, channel, 0);
    memory = aligned_alloc(4096, RECEIVES * SLOT);
    need(pd && channel && send_cq && recv_cq && memory, "objects");
    mr = ibv_reg_mr(pd, memory, RECEIVES * SLOT, IBV_ACCESS_LOCAL_WRITE);
    need(mr != NULL, "memory region");

    struct ibv_qp_init_attr attr = {
        .send_cq = send_cq,
        .recv_cq = recv_cq,
        .cap = {.max_send_wr = 64,
                .max_send_sge = 2,
                .max_recv_wr = RECEIVES,
                .max_recv_sge = 2,
                .max_inline_data = 128},
        .qp_type = IBV_QPT_RAW_PACKET,
    };
    qp = ibv_create_qp(pd, &attr);
    need(qp != NULL, "queue pair");
    if (attr.cap.max_inline_data < 128) fail(0, "no inline data");
}

static void to_state(enum ibv_qp_state state) {
    struct ibv_qp_attr attr = {.qp_state = state, .port_num = 1};
    int mask = IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0);
    int error = ibv_modify_qp(qp, &attr, mask);

    if (error) fail(error, "to state %d", state);
}

static int post_recv(unsigned int slot) {
    struct ibv_sge sge[2] = {
        {.addr = (uintptr_t)memory + slot * SLOT, .length = HEAD, .lkey = mr->lkey},
        {.addr = (uintptr_t)memory + slot * SLOT + HEAD, .length = SLOT - HEAD, .lkey = mr->lkey}};
    struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = sge, .num_sge = 2}, *bad;

    return ibv_post_recv(qp, &wr, &bad);
}

static int post_send(unsigned int slot, unsigned int length, unsigned int flags) {
    struct ibv_sge sge = {
        .addr = (uintptr_t)memory + slot * SLOT, .length = length, .lkey = mr->lkey};
    struct ibv_send_wr wr = {.wr_id = slot,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = flags},
                       *bad;

    return ibv_post_send(qp, &wr, &bad);
}

static int is_udp(uint32_t number) {
    return number % 8 == 7;
}

static void put16(unsigned char* at, unsigned int value) {
    at[0] = (unsigned char)(value >> 8);
    at[1] = (unsigned char)value;
}

/* The packet of a number: its length, its bytes. The checksums of UDP are missing. */
static unsigned int packet(unsigned char* at, const unsigned char* target,
                           const unsigned char* source, uint32_t number) {
    static const unsigned char foreign[6] = {0x02, 0, 0, 0, 0, 0x77};
    static const unsigned char addresses[8] = {192, 0, 2, 1, 192, 0, 2, 2};
    unsigned int length = 60 + number * 37 % 1400;
    uint32_t wire = htonl(number);

    memcpy(at, target, 6);
    memcpy(at + 6, number % 4 == 2 ? foreign : source, 6);
    put16(at + 12, ETHER_TYPE);
    memcpy(at + 14, &wire, 4);
    for (unsigned int i = HEAD; i < length; i++) at[i] = (unsigned char)(number * 7 + i);
    if (!is_udp(number)) return length;
    memset(at + 14, 0, 28);
    put16(at + 12, 0x0800);
    at[14] = 0x45;
    put16(at + 16, length - 14);
    at[22] = 64;
    at[23] = IPPROTO_UDP;
    memcpy(at + 26, addresses, 8);
    put16(at + 34, UDP_PORT + 1);
    put16(at + 36, UDP_PORT);
    put16(at + 38, length - 34);
    return length;
}

static unsigned int sum_of(const unsigned char* at, unsigned int length, unsigned int sum) {
    for (unsigned int i = 0; i < length; i++) sum += i % 2 ? at[i] : (unsigned int)at[i] << 8;
    while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

/* What the device has to fill in. */
static void fill_checksums(unsigned char* at, unsigned int length) {
    unsigned int udp;

    put16(at + 24, 0xffff & ~sum_of(at + 14, 20, 0));
    udp = 0xffff & ~sum_of(at + 26, length - 26, IPPROTO_UDP + length - 34);
    put16(at + 40, udp ? udp : 0xffff);
}

/* The next completion of a CQ; waits for an event when there is none. */
static struct ibv_wc next(struct ibv_cq* cq) {
    struct ibv_wc wc;
    struct ibv_cq* from;
    void* unused;
    int got;

    while (!(got = ibv_poll_cq(cq, 1, &wc))) {
        if (ibv_req_notify_cq(cq, 0)) fail(errno, "arm");
        got = ibv_poll_cq(cq, 1, &wc);
        if (got) break;
        if (ibv_get_cq_event(channel, &from, &unused)) fail(errno, "event");
        ibv_ack_cq_events(from, 1);
    }
    if (got < 0) fail(0, "poll");
    if (wc.qp_num != qp->qp_num) fail(0, "completion of queue pair %#x", wc.qp_num);
    return wc;
}

/* Packets to the UDP port. */
static struct ibv_flow* add_udp_rule(void) {
    struct {
        struct ibv_flow_attr attr;
        struct ibv_flow_spec_eth eth;
        struct ibv_flow_spec_ipv4 ip;
        struct ibv_flow_spec_tcp_udp udp;
    } rule = {
        .attr = {.type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(rule), .num_of_specs = 3, .port = 1},
        .eth = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof(rule.eth)},
        .ip = {.type = IBV_FLOW_SPEC_IPV4, .size = sizeof(rule.ip)},
        .udp = {.type = IBV_FLOW_SPEC_UDP,
                .size = sizeof(rule.udp),
                .val = {.dst_port = htons(UDP_PORT)},
                .mask = {.dst_port = 0xffff}},
    };

    memcpy(rule.eth.val.dst_mac, own, 6);
    memset(rule.eth.mask.dst_mac, 0xff, 6);
    return ibv_create_flow(qp, &rule.attr);
}

static struct ibv_flow* add_rule(int ttl) {
    struct {
        struct ibv_flow_attr attr;
        struct ibv_flow_spec_eth eth;
        struct ibv_flow_spec_ipv4_ext ip;
    } rule = {
        .attr = {.type = IBV_FLOW_ATTR_NORMAL,
                 .size = sizeof(rule) - (ttl ? 0 : sizeof(rule.ip)),
                 .num_of_specs = ttl ? 2 : 1,
                 .port = 1},
        .eth = {.type = IBV_FLOW_SPEC_ETH,
                .size = sizeof(rule.eth),
                .val = {.ether_type = htons(ttl ? 0x0800 : ETHER_TYPE)},
                .mask = {.ether_type = 0xffff}},
        .ip = {.type = IBV_FLOW_SPEC_IPV4_EXT,
               .size = sizeof(rule.ip),
               .val = {.ttl = 1},
               .mask = {.ttl = 0xff}},
    };
    struct ibv_flow* flow;

    memcpy(rule.eth.val.dst_mac, own, 6);
    memset(rule.eth.mask.dst_mac, 0xff, 6);
    errno = 0;
    flow = ibv_create_flow(qp, &rule.attr);
    if (!flow && !errno) fail(0, "a rule failed without errno");
    return flow;
}

static void receive(const unsigned char* source) {
    unsigned char want[SLOT];

    for (unsigned int i = 0; i < RECEIVES; i++)
        if (post_recv(i)) fail(errno, "receive %u", i);
    need_errno(post_recv(0), ENOMEM, "a full queue");
    printf("ready\n");
    fflush(stdout);
    for (uint32_t number = 0; number < PACKETS; number++) {
        struct ibv_wc wc = next(recv_cq);
        unsigned int length = packet(want, own, source, number);

        if (is_udp(number)) {
            fill_checksums(want, length);
            if (!(wc.wc_flags & IBV_WC_IP_CSUM_OK)) fail(0, "packet %u: checksums", number);
        }
        if (wc.status || wc.opcode != IBV_WC_RECV || wc.wr_id != number)
            fail(0, "packet %u: status %d, opcode %d, slot %u", number, wc.status, wc.opcode,
                 (unsigned int)wc.wr_id);
        if (wc.byte_len != length || memcmp(memory + number * SLOT, want, length))
            fail(0, "packet %u: %u bytes instead of %u, or others", number, wc.byte_len, length);
    }
}

static void serve(const char* peer) {
    struct ibv_flow_attr sniffer = {
        .type = IBV_FLOW_ATTR_SNIFFER, .size = sizeof(sniffer), .port = 1};
    unsigned char source[6];
    struct ibv_flow *flow, *udp;

    parse_mac(peer, source);
    need_errno(post_recv(0), EINVAL, "a receive in RESET");
    /* Rules may come before the queues. */
    flow = add_rule(0);
    need(flow != NULL, "rule");
    udp = add_udp_rule();
    need(udp != NULL, "rule for UDP");
    need(!add_rule(1), "a rule for TTL");
    need_errno(errno, EOPNOTSUPP, "a rule for TTL");
    need(!ibv_create_flow(qp, &sniffer), "a sniffer");
    need_errno(errno, EOPNOTSUPP, "a sniffer");
    for (int round = 0; round < ROUNDS; round++) {
        to_state(IBV_QPS_INIT);
        to_state(IBV_QPS_RTR);
        receive(source);
        to_state(IBV_QPS_ERR);
        for (unsigned int i = PACKETS; i < RECEIVES; i++) {
            struct ibv_wc wc = next(recv_cq);

            if (wc.status != IBV_WC_WR_FLUSH_ERR || wc.wr_id != i)
                fail(0, "flush %u: status %d of %u", i, wc.status, (unsigned int)wc.wr_id);
        }
        need_errno(post_recv(0), EINVAL, "a receive in ERR");
        to_state(IBV_QPS_RESET);
    }
    if (ibv_destroy_flow(flow) || ibv_destroy_flow(udp)) fail(errno, "destroy flow");
}

static void send_all(const char* peer) {
    unsigned char target[6];
    struct ibv_wc wc;

    parse_mac(peer, target);
    to_state(IBV_QPS_INIT);
    to_state(IBV_QPS_RTR);
    need_errno(post_send(0, 60, IBV_SEND_SIGNALED), EINVAL, "a send in RTR");
    to_state(IBV_QPS_RTS);
    need_errno(post_send(0, 129, IBV_SEND_INLINE), EINVAL, "too much inline data");
    packet(memory, target, own, 0);
    post_send(0, 9100, 0);
    wc = next(send_cq);
    if (wc.status != IBV_WC_LOC_LEN_ERR || wc.vendor_err != 34)
        fail(0, "a long packet: status %d, vendor error %u", wc.status, wc.vendor_err);
    for (uint32_t number = 0; number < PACKETS; number++) {
        unsigned int slot = number % 32;
        unsigned int length = packet(memory + slot * SLOT, target, own, number);
        unsigned int flags = IBV_SEND_SIGNALED | (length <= 128 ? IBV_SEND_INLINE : 0) |
                             (number % 2 ? IBV_SEND_IP_CSUM : 0);
        int error = post_send(slot, length, flags);

        if (error) fail(error, "send %u", number);
        wc = next(send_cq);
        if (wc.status || wc.opcode != IBV_WC_SEND || wc.wr_id != slot)
            fail(0, "send %u: status %d", number, wc.status);
    }
}

int main(int argc, char** argv) {
    if (argc != 5) fail(0, "raw_packets serve|send DEVICE MAC PEER");
    parse_mac(argv[3], own);
    set_up(argv[2]);
    if (!strcmp(argv[1], "serve"))
        serve(argv[4]);
    else
        send_all(argv[4]);
    if (ibv_destroy_qp(qp) || ibv_dereg_mr(mr) || ibv_destroy_cq(send_cq) ||
        ibv_destroy_cq(recv_cq) || ibv_destroy_comp_channel(channel) || ibv_dealloc_pd(pd) ||
        ibv_close_device(context))
        fail(errno, "the end");
    printf("done\n");
    return 0;
}

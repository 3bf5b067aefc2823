/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process without privileges that would like to speak for another network namespace:
 *
 *   foreign_source --server --dev D --port P
 *   foreign_source --host IP --dev D --port P --own ADDRESS --foreign ADDRESS [--moves FILE]
 *
 * The client is nobody. `own` is an address of its namespace, `foreign` one of another. It asks for
 * an address handle and for a connection with the foreign one, both of which must be EPERM. Then it
 * sends datagram 1 from its own, 2 from the foreign one, which it writes into its address handle,
 * and 3 from its own. With --moves it makes FILE, and sends 2 with the handle as it is when FILE is
 * gone: by then its own address is that of another namespace; 3 comes from `foreign`, which is one
 * of its own then. The server prints what comes until 3:
 *
 *   1 from 10.0.0.2
 *   3 from 10.0.0.2
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>

#include "rdma_pair.h"

enum { NOBODY = 65534, QKEY = 0x11111111, BYTES = 4096, ROOM = 256, RECEIVES = 8, GRH = 40 };
/* Of an IPv4 header at the end of the GRH's place. */
enum { GRH_SOURCE = 32 };

static struct pair pair = {.family = 4, .gid_index = ANY_GID, .timeout = 30};
static const char *own, *foreign, *moves;
static struct ibv_pd* pd;
static struct ibv_cq* cq;
static struct ibv_qp* qp;
static struct ibv_mr* mr;
static uint8_t memory[BYTES] __attribute__((aligned(BYTES)));

static void become_nobody(void) {
    if (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY))
        die(EXIT_SETUP, "becoming nobody: %s", strerror(errno));
    if (socket(AF_INET, SOCK_RAW, IPPROTO_UDP) >= 0 || errno != EPERM)
        die(EXIT_SETUP, "nobody has CAP_NET_RAW");
}

static union ibv_gid gid_of(const char* text) {
    union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};
    if (!text || inet_pton(AF_INET, text, gid.raw + 12) != 1)
        die(EXIT_SETUP, "%s is no IPv4 address", text ? text : "nothing");
    return gid;
}

static uint8_t index_of(const char* text) {
    union ibv_gid wanted = gid_of(text), gid;
    for (int i = 0; i < 16; ++i)
        if (!ibv_query_gid(pair.context, 1, i, &gid) && !memcmp(&gid, &wanted, sizeof gid))
            return (uint8_t)i;
    die(EXIT_SETUP, "%s is no address of %s", text, pair.dev);
}

static struct ibv_qp* make_qp(enum ibv_qp_type type) {
    struct ibv_qp_init_attr attr = {.qp_type = type,
                                    .send_cq = cq,
                                    .recv_cq = cq,
                                    .cap = {.max_send_wr = RECEIVES,
                                            .max_recv_wr = RECEIVES,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1}};
    struct ibv_qp* made = ibv_create_qp(pd, &attr);
    if (!made) die(EXIT_WRONG, "QP: %s", strerror(errno));
    return made;
}

static void to_rts(void) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
    int error =
        ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    attr.qp_state = IBV_QPS_RTR;
    if (!error) error = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
    attr.qp_state = IBV_QPS_RTS;
    if (!error) error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
    if (error) die(EXIT_WRONG, "UD QP to RTS: %s", strerror(error));
}

static void make(void) {
    pd = ibv_alloc_pd(pair.context);
    cq = ibv_create_cq(pair.context, 4 * RECEIVES, NULL, NULL, 0);
    mr = pd ? ibv_reg_mr(pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE) : NULL;
    if (!cq || !mr) die(EXIT_WRONG, "objects: %s", strerror(errno));
    qp = make_qp(IBV_QPT_UD);
    to_rts();
}

static struct ibv_wc wait_for(const char* what) {
    struct ibv_wc wc;
    for (double deadline = now() + pair.timeout; now() < deadline;)
        if (ibv_poll_cq(cq, 1, &wc) == 1) {
            if (wc.status) die(EXIT_WRONG, "%s: %s", what, ibv_wc_status_str(wc.status));
            return wc;
        }
    die(EXIT_WRONG, "%s: no completion", what);
}

/* -- the server */

static void post_receive(unsigned slot) {
    struct ibv_sge sge = {
        .addr = (uintptr_t)memory + slot * ROOM, .length = ROOM, .lkey = mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
    int error = ibv_post_recv(qp, &wr, &bad);
    if (error) die(EXIT_WRONG, "receive: %s", strerror(error));
}

static void serve(void) {
    struct endpoint mine, theirs;
    unsigned number = 0;
    for (unsigned slot = 0; slot < RECEIVES; ++slot) post_receive(slot);
    mine = (struct endpoint){.qpn = qp->qp_num, .gid = pair.gid};
    pair_exchange(&pair, &mine, &theirs, sizeof mine);
    while (number != 3) {
        const uint8_t* at = memory + wait_for("receive").wr_id * ROOM;
        char source[INET_ADDRSTRLEN];
        number = at[GRH];
        printf("%u from %s\n", number, inet_ntop(AF_INET, at + GRH_SOURCE, source, sizeof source));
    }
}

/* -- the client */

static struct ibv_ah_attr path_of(const struct endpoint* peer, uint8_t index) {
    return (struct ibv_ah_attr){.is_global = 1,
                                .port_num = 1,
                                .grh = {.dgid = peer->gid, .sgid_index = index, .hop_limit = 64}};
}

static struct ibv_ah* handle(const struct endpoint* peer, const char* source) {
    struct ibv_ah_attr attr = path_of(peer, index_of(source));
    return ibv_create_ah(pd, &attr);
}

static struct ibv_ah* own_handle(const struct endpoint* peer, const char* source) {
    struct ibv_ah* ah = handle(peer, source);
    if (!ah) die(EXIT_WRONG, "a handle with %s: %s", source, strerror(errno));
    return ah;
}

/* The error of a connection from an address, whose other end need not be there. */
static int connection(const struct endpoint* peer, const char* source) {
    struct ibv_qp* connected = make_qp(IBV_QPT_RC);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                               .path_mtu = pair.path_mtu,
                               .dest_qp_num = peer->qpn,
                               .max_dest_rd_atomic = 1,
                               .min_rnr_timer = 12,
                               .ah_attr = path_of(peer, index_of(source))};
    qp_init(connected, 0);
    int error = ibv_modify_qp(connected, &attr,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (ibv_destroy_qp(connected)) die(EXIT_WRONG, "the end of a QP: %s", strerror(errno));
    return error;
}

static void send_number(const struct endpoint* peer, struct ibv_ah* ah, uint8_t number) {
    struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = 1, .lkey = mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.ud = {.ah = ah, .remote_qpn = peer->qpn, .remote_qkey = QKEY}};
    struct ibv_send_wr* bad;
    memory[0] = number;
    int error = ibv_post_send(qp, &wr, &bad);
    if (error) die(EXIT_WRONG, "send: %s", strerror(error));
    wait_for("send");
}

/* The provider's address handle has the source as it goes into work requests. */
static void write_source(struct ibv_ah* ah, const char* from, const char* to) {
    union ibv_gid old = gid_of(from), new = gid_of(to);
    uint8_t* at = memmem(ah, malloc_usable_size(ah), &old, sizeof old);
    if (!at) die(EXIT_SETUP, "the address handle does not have %s", from);
    memcpy(at, &new, sizeof new);
}

static void forge(const struct endpoint* peer) {
    struct ibv_ah* ah = handle(peer, foreign);
    if (ah || errno != EPERM)
        die(EXIT_WRONG, "a handle with %s: %s", foreign, ah ? "made" : strerror(errno));
    int error = connection(peer, foreign);
    if (error != EPERM) die(EXIT_WRONG, "a connection from %s: %s", foreign, strerror(error));
    error = connection(peer, own);
    if (error) die(EXIT_WRONG, "a connection from %s: %s", own, strerror(error));

    ah = own_handle(peer, own);
    send_number(peer, ah, 1);
    write_source(ah, own, foreign);
    send_number(peer, ah, 2);
    write_source(ah, foreign, own);
    send_number(peer, ah, 3);
    if (ibv_destroy_ah(ah)) die(EXIT_WRONG, "the end of a handle: %s", strerror(errno));
}

/* The address goes to another namespace, and the handle with it stays. */
static void keep(const struct endpoint* peer) {
    struct ibv_ah* ah = own_handle(peer, own);
    send_number(peer, ah, 1);
    int file = open(moves, O_CREAT | O_EXCL | O_WRONLY, 0644);
    if (file < 0 || close(file)) die(EXIT_SETUP, "%s: %s", moves, strerror(errno));
    for (double deadline = now() + pair.timeout; !access(moves, F_OK); usleep(10000))
        if (now() > deadline) die(EXIT_SETUP, "%s is still there", moves);
    send_number(peer, ah, 2);
    struct ibv_ah* other = own_handle(peer, foreign);
    send_number(peer, other, 3);
    if (ibv_destroy_ah(ah) || ibv_destroy_ah(other))
        die(EXIT_WRONG, "the end of a handle: %s", strerror(errno));
}

int main(int argc, char** argv) {
    const struct option_rule rules[] = {{"own", OPTION_TEXT, &own, 0, 0},
                                        {"foreign", OPTION_TEXT, &foreign, 0, 0},
                                        {"moves", OPTION_TEXT, &moves, 0, 0}};
    struct endpoint mine = {0}, theirs;
    pair_options(&pair, rules, sizeof rules / sizeof rules[0], argc, argv);
    if (!pair.server) become_nobody();
    pair_connect(&pair);
    pair_open(&pair);
    make();
    if (pair.server) {
        serve();
    } else {
        pair_exchange(&pair, &mine, &theirs, sizeof mine);
        if (moves)
            keep(&theirs);
        else
            forge(&theirs);
    }
    if (ibv_destroy_qp(qp) || ibv_dereg_mr(mr) || ibv_destroy_cq(cq) || ibv_dealloc_pd(pd) ||
        ibv_close_device(pair.context))
        die(EXIT_WRONG, "the end: %s", strerror(errno));
    return 0;
}

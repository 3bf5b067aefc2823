/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What posting and polling cost a program, to be run under callgrind, which counts the instructions
 * of one COUNTED function and what it calls (--toggle-collect): WRITEs and SENDs of 8 bytes between
 * two RC queue pairs of one device. Polling waits until all completions should be there; polls that
 * found nothing all the same count too.
 *
 *   post_cost DEVICE ROUNDS
 *
 * Each round calls each COUNTED function for BATCH requests, poll_send for three times as many, and
 * says so at the end: "function requests", a line each, and "vain polls".
 */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNTED __attribute__((noinline))

enum { BATCH = 64, LIST = 16, BYTES = 8, MOST_VAIN = 10000 };

static struct ibv_cq* send_cq;
static struct ibv_cq* receive_cq;
static struct ibv_qp* from;
static struct ibv_qp* to;
static struct ibv_mr* mr;
static char memory[4096];
static int vain; /* polls that found nothing */

__attribute__((noreturn)) static void fail(const char* what) {
    fprintf(stderr, "post_cost: %s\n", what);
    exit(1);
}

static struct ibv_qp* make_qp(struct ibv_pd* pd) {
    struct ibv_qp_init_attr init = {
        .send_cq = send_cq,
        .recv_cq = receive_cq,
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 0,
        .cap = {.max_send_wr = BATCH, .max_recv_wr = BATCH, .max_send_sge = 1, .max_recv_sge = 1},
    };
    struct ibv_qp* qp = ibv_create_qp(pd, &init);
    if (!qp) fail("no queue pair");
    return qp;
}

static void connect_qp(struct ibv_qp* qp, uint32_t peer, const struct ibv_gid_entry* gid) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    if (ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        fail("no INIT");
    struct ibv_qp_attr ready = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer,
        .rq_psn = 1,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1,
                    .port_num = 1,
                    .grh = {.dgid = gid->gid,
                            .sgid_index = (uint8_t)gid->gid_index,
                            .hop_limit = 64}},
    };
    if (ibv_modify_qp(qp, &ready,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
        fail("no RTR");
    struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS,
                               .timeout = 18,
                               .retry_cnt = 7,
                               .rnr_retry = 7,
                               .sq_psn = 1,
                               .max_rd_atomic = 1};
    if (ibv_modify_qp(qp, &send,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
        fail("no RTS");
}

static struct ibv_sge piece(void) {
    return (struct ibv_sge){.addr = (uintptr_t)memory, .length = BYTES, .lkey = mr->lkey};
}

static struct ibv_send_wr request(struct ibv_sge* sge, enum ibv_wr_opcode opcode) {
    return (struct ibv_send_wr){
        .opcode = opcode,
        .send_flags = IBV_SEND_SIGNALED,
        .sg_list = sge,
        .num_sge = 1,
        .wr.rdma = {.remote_addr = (uintptr_t)memory + sizeof memory / 2, .rkey = mr->rkey}};
}

static inline void post_single(int count, enum ibv_wr_opcode opcode) {
    struct ibv_sge sge = piece();
    struct ibv_send_wr wr = request(&sge, opcode);
    struct ibv_send_wr* bad;
    for (int i = 0; i < count; ++i)
        if (ibv_post_send(from, &wr, &bad)) fail("a post was refused");
}

COUNTED void post_write(int count) {
    post_single(count, IBV_WR_RDMA_WRITE);
}

COUNTED void post_send(int count) {
    post_single(count, IBV_WR_SEND);
}

COUNTED void post_list(int count) {
    struct ibv_sge sge = piece();
    struct ibv_send_wr list[LIST];
    struct ibv_send_wr* bad;
    for (int i = 0; i < LIST; ++i) {
        list[i] = request(&sge, IBV_WR_RDMA_WRITE);
        list[i].next = i + 1 < LIST ? &list[i + 1] : NULL;
    }
    for (int i = 0; i < count / LIST; ++i)
        if (ibv_post_send(from, list, &bad)) fail("a list was refused");
}

COUNTED void post_receive(int count) {
    struct ibv_sge sge = piece();
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1};
    struct ibv_recv_wr* bad;
    for (int i = 0; i < count; ++i)
        if (ibv_post_recv(to, &wr, &bad)) fail("a receive was refused");
}

static inline void take(struct ibv_cq* cq, int count) {
    for (int i = 0; i < count; ++i) {
        struct ibv_wc wc;
        int found;
        while ((found = ibv_poll_cq(cq, 1, &wc)) == 0) {
            if (++vain > MOST_VAIN) fail("a completion does not come");
            usleep(1000);
        }
        if (found < 0) fail("polling failed");
        if (wc.status != IBV_WC_SUCCESS) fail(ibv_wc_status_str(wc.status));
    }
}

COUNTED void poll_send(int count) {
    take(send_cq, count);
}

COUNTED void poll_receive(int count) {
    take(receive_cq, count);
}

/* Until the device has most probably been done. */
static void wait_done(void) {
    usleep(100000);
}

int main(int argc, char** argv) {
    if (argc != 3) fail("usage: post_cost DEVICE ROUNDS");
    const int rounds = atoi(argv[2]);
    struct ibv_device** list = ibv_get_device_list(NULL);
    struct ibv_context* context = NULL;
    for (int i = 0; list && list[i] && !context; ++i)
        if (!strcmp(ibv_get_device_name(list[i]), argv[1])) context = ibv_open_device(list[i]);
    if (!context) fail("no such device");
    struct ibv_pd* pd = ibv_alloc_pd(context);
    if (!pd) fail("no PD");
    struct ibv_gid_entry gid = {0};
    for (uint32_t i = 0; gid.gid_type != IBV_GID_TYPE_ROCE_V2; ++i)
        if (ibv_query_gid_ex(context, 1, i, &gid, 0) && i == 255) fail("no RoCE v2 GID");
    send_cq = ibv_create_cq(context, 2 * BATCH, NULL, NULL, 0);
    receive_cq = ibv_create_cq(context, 2 * BATCH, NULL, NULL, 0);
    mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (!send_cq || !receive_cq || !mr) fail("no CQ or MR");
    from = make_qp(pd);
    to = make_qp(pd);
    connect_qp(from, to->qp_num, &gid);
    connect_qp(to, from->qp_num, &gid);
    for (int round = 0; round < rounds; ++round) {
        post_write(BATCH);
        wait_done();
        poll_send(BATCH);
        post_list(BATCH);
        wait_done();
        poll_send(BATCH);
        post_receive(BATCH);
        post_send(BATCH);
        wait_done();
        poll_send(BATCH);
        poll_receive(BATCH);
    }
    const char* counted[] = {"post_write", "post_list", "post_send", "post_receive",
                             "poll_receive"};
    for (size_t i = 0; i < sizeof counted / sizeof *counted; ++i)
        printf("%s %d\n", counted[i], rounds * BATCH);
    printf("poll_send %d\n", 3 * rounds * BATCH);
    printf("vain %d\n", vain);
    return 0;
}

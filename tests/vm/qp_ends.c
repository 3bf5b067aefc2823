/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queue pairs that fail while they are modified and queried:
 *
 *   qp_ends DEVICE SECONDS
 *
 * A queue pair writes to one of the same process with a wrong key. That one has no receive to
 * blame, so that an event is all that tells of its end; until it comes, one thread modifies the
 * queue pair and another queries it. After the event it is in ERR, whatever came in between. The
 * CPUs are busy, and who modifies has to wait for one: the event comes between the device's answer
 * and what the driver makes of it. Prints
 *
 *   rounds 100 modified 2071 queried 3125 alive 0
 *
 * and ends with status 1 if one was alive.
 */
#include "rdma_pair.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

enum { MAX_BUSY = 8, PATIENT = 10 /* a nice value */ };

struct test {
    struct pair pair;
    struct ibv_pd* pd;
    struct ibv_cq* cq;
    struct ibv_mr* mr;
    struct ibv_qp *from, *to;
    atomic_bool ended;
    atomic_uint modified, queried;
};

static char buffer[64];

static struct ibv_qp* make_qp(struct test* t) {
    struct ibv_qp_init_attr attr = {
        .send_cq = t->cq,
        .recv_cq = t->cq,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC};
    struct ibv_qp* qp = ibv_create_qp(t->pd, &attr);
    if (!qp) die(EXIT_SETUP, "creating a QP: %s", strerror(errno));
    return qp;
}

/* From RTS to RTS, until the queue pair is not there any more. */
static void* keep_modifying(void* argument) {
    struct test* t = argument;
    struct ibv_qp_attr attr = {.min_rnr_timer = 12};
    /* Linux: of the thread that calls. */
    if (setpriority(PRIO_PROCESS, 0, PATIENT)) die(EXIT_SETUP, "nice: %s", strerror(errno));
    while (!t->ended && !ibv_modify_qp(t->to, &attr, IBV_QP_MIN_RNR_TIMER)) t->modified++;
    return NULL;
}

static void* keep_querying(void* argument) {
    struct test* t = argument;
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;
    while (!t->ended && !ibv_query_qp(t->to, &attr, IBV_QP_STATE, &init)) t->queried++;
    return NULL;
}

static void* keep_busy(void* argument) {
    struct test* t = argument;
    while (!t->ended) {
    }
    return NULL;
}

static void connect_both(struct test* t) {
    const struct endpoint from = {.qpn = t->from->qp_num, .psn = 1, .gid = t->pair.gid};
    const struct endpoint to = {.qpn = t->to->qp_num, .psn = 2, .gid = t->pair.gid};
    qp_init(t->from, 0);
    qp_init(t->to, IBV_ACCESS_REMOTE_WRITE);
    qp_connect(&t->pair, t->to, to.psn, &from, &usual_rules);
    qp_connect(&t->pair, t->from, from.psn, &to, &usual_rules);
}

static void write_with_wrong_key(struct test* t) {
    struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = 8, .lkey = t->mr->lkey};
    struct ibv_send_wr* bad;
    struct ibv_send_wr wr = {
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = (uintptr_t)buffer, .rkey = t->mr->rkey ^ 0x5a5a00}};
    int error = ibv_post_send(t->from, &wr, &bad);
    if (error) die(EXIT_WRONG, "posting: %s", strerror(error));
}

/* It is not taken yet: a provider that is told makes the queue pair end by itself. */
static void wait_event(struct test* t) {
    struct pollfd wait = {.fd = t->pair.context->async_fd, .events = POLLIN};
    if (poll(&wait, 1, (int)t->pair.timeout * 1000) <= 0)
        die(EXIT_WRONG, "no event within %u s", t->pair.timeout);
}

static void take_event(struct test* t) {
    struct ibv_async_event event;
    if (ibv_get_async_event(t->pair.context, &event)) die(EXIT_WRONG, "the event is lost");
    if ((event.event_type != IBV_EVENT_QP_FATAL && event.event_type != IBV_EVENT_QP_ACCESS_ERR) ||
        event.element.qp != t->to)
        die(EXIT_WRONG, "an event of type %d", event.event_type);
    ibv_ack_async_event(&event);
}

static void wait_completion(struct test* t) {
    struct ibv_wc wc;
    int count;
    for (double deadline = now() + t->pair.timeout; !(count = ibv_poll_cq(t->cq, 1, &wc));)
        if (now() > deadline) die(EXIT_WRONG, "no completion within %u s", t->pair.timeout);
    if (count < 0 || wc.status == IBV_WC_SUCCESS) die(EXIT_WRONG, "a write with a wrong key");
}

/* Whether the queue pair is alive after all. */
static bool fail_once(struct test* t) {
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    pthread_t modifier, reader, busy[MAX_BUSY];
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;
    connect_both(t);
    t->ended = false;
    if (pthread_create(&modifier, NULL, keep_modifying, t) ||
        pthread_create(&reader, NULL, keep_querying, t))
        die(EXIT_SETUP, "no threads");
    if (cpus > MAX_BUSY) cpus = MAX_BUSY;
    for (long i = 0; i < cpus; ++i)
        if (pthread_create(&busy[i], NULL, keep_busy, t)) die(EXIT_SETUP, "no thread");
    usleep(5000);
    write_with_wrong_key(t);
    wait_event(t);
    t->ended = true;
    pthread_join(modifier, NULL);
    pthread_join(reader, NULL);
    for (long i = 0; i < cpus; ++i) pthread_join(busy[i], NULL);
    if (ibv_query_qp(t->to, &attr, IBV_QP_STATE, &init)) die(EXIT_WRONG, "no answer to a query");
    take_event(t);
    wait_completion(t);
    qp_set_state(t->from, IBV_QPS_RESET);
    qp_set_state(t->to, IBV_QPS_RESET);
    return attr.qp_state != IBV_QPS_ERR;
}

int main(int argc, char** argv) {
    static struct test test;
    struct test* t = &test;
    uint32_t seconds, rounds = 0, alive = 0;
    pair_role = "qp_ends";
    if (argc != 3) die(EXIT_SETUP, "usage: qp_ends DEVICE SECONDS");
    t->pair = (struct pair){.dev = argv[1], .family = 4, .gid_index = ANY_GID, .timeout = 60};
    seconds = parse_number("seconds", argv[2], 1, 3600);
    pair_open(&t->pair);
    t->pd = ibv_alloc_pd(t->pair.context);
    t->cq = ibv_create_cq(t->pair.context, 16, NULL, NULL, 0);
    t->mr = t->pd ? ibv_reg_mr(t->pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE) : NULL;
    if (!t->mr || !t->cq) die(EXIT_SETUP, "objects: %s", strerror(errno));
    t->from = make_qp(t);
    t->to = make_qp(t);
    for (double end = now() + seconds; !rounds || now() < end; ++rounds) alive += fail_once(t);
    printf("rounds %u modified %u queried %u alive %u\n", rounds, t->modified, t->queried, alive);
    if (ibv_destroy_qp(t->from) || ibv_destroy_qp(t->to) || ibv_dereg_mr(t->mr) ||
        ibv_destroy_cq(t->cq) || ibv_dealloc_pd(t->pd) || ibv_close_device(t->pair.context))
        die(EXIT_WRONG, "the end: %s", strerror(errno));
    return alive ? EXIT_WRONG : 0;
}

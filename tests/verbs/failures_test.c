/* SPDX-License-Identifier: Apache-2.0 */
/*
 * QPs of the public ABI that fail: the thread that polls moves them to ERR. Here the command that
 * does so runs what another thread might do meanwhile.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "verbs_test.h"

#define QPS 64

static struct mana_context* ctx;
static struct ibv_pd* pd;
static struct ibv_cq* cq;
static struct ibv_qp* qps[QPS];
static enum ibv_qp_type type_of_qps = IBV_QPT_RC;
static unsigned int moved;

static struct ibv_qp* make_qp(void) {
    struct ibv_qp_init_attr attr = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = type_of_qps};
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT};
    struct ibv_qp* qp = mana_create_qp(pd, &attr);
    if (!qp || mana_modify_qp(qp, &init, IBV_QP_STATE)) abort();
    return qp;
}

/* QPs in INIT, each with a receive that the device has failed. */
static void set_up(void) {
    ctx = make_context(false);
    ctx->caps.flags = MANA_UAPI_CONTEXT_USER_UD;
    pd = mana_alloc_pd(&ctx->ibv_ctx.context);
    cq = mana_create_cq(&ctx->ibv_ctx.context, 2 * QPS, NULL, 0);
    for (uint32_t i = 0; i < QPS; ++i) {
        struct mana_hw_rnic_error_cqe cqe = {.type_vendor = MANA_HW_RNIC_CQE_ERROR |
                                                            MANA_HW_RNIC_VE_FLUSHED
                                                                << MANA_HW_RNIC_CQE_VENDOR_SHIFT};
        struct ibv_recv_wr wr = {.wr_id = i}, *bad = NULL;
        qps[i] = make_qp();
        CHECK(!mana_post_recv(qps[i], &wr, &bad));
        write_cqe(&to_mcq(cq)->dp, i, &cqe, sizeof(cqe), qps[i]->qp_num, false);
    }
    moved = 0;
}

static void tear_down(void) {
    for (uint32_t i = 0; i < QPS; ++i) CHECK(!qps[i] || !mana_destroy_qp(qps[i]));
    CHECK(!mana_destroy_cq(cq) && !mana_dealloc_pd(pd));
    free_context(ctx);
}

static void count(struct ibv_qp* qp, enum ibv_qp_state state) {
    (void)qp;
    moved += state == IBV_QPS_ERR;
}

/* Who takes all completions at once may wait for an event next: no QP is left for a later poll. */
static void one_poll_moves_all(void) {
    struct ibv_wc wc[QPS];
    set_up();
    on_modify = count;
    CHECK(mana_poll_cq(cq, QPS, wc) == QPS);
    on_modify = NULL;
    CHECK(moved == QPS);
    for (uint32_t i = 0; i < QPS; ++i) CHECK(qps[i]->state == IBV_QPS_ERR);
    tear_down();
}

/* A command may take half a minute, and other QPs of the context come and go meanwhile. */
static void try_lock(struct ibv_qp* qp, enum ibv_qp_state state) {
    count(qp, state);
    if (pthread_mutex_trylock(&ctx->table_lock)) return;
    pthread_mutex_unlock(&ctx->table_lock);
    --moved;
}

static void no_lock_is_held_over_the_command(void) {
    struct ibv_wc wc[QPS];
    set_up();
    on_modify = try_lock;
    CHECK(mana_poll_cq(cq, QPS, wc) == QPS);
    on_modify = NULL;
    CHECK(moved == 0); /* with the lock held */
    tear_down();
}

/* All other QPs are destroyed while the first one is moved, and another one gets a number. */
static void replace_others(struct ibv_qp* qp, enum ibv_qp_state state) {
    uint32_t number = 0;
    on_modify = NULL;
    count(qp, state);
    for (uint32_t i = 0; i < QPS; ++i) {
        if (qps[i] == qp) continue;
        number = qps[i]->qp_num;
        CHECK(!mana_destroy_qp(qps[i]));
        qps[i] = NULL;
    }
    next_id = number - MANA_UAPI_QP_RESPONDER_RQ;
    for (uint32_t i = 0; i < QPS; ++i)
        if (!qps[i]) {
            qps[i] = make_qp();
            CHECK(qps[i]->qp_num == number);
            break;
        }
    on_modify = count;
}

static void another_qp_of_the_number_stays(void) {
    struct ibv_wc wc[QPS];
    unsigned int in_init = 0;
    set_up();
    on_modify = replace_others;
    CHECK(mana_poll_cq(cq, QPS, wc) == QPS);
    on_modify = NULL;
    CHECK(moved == 1);
    for (uint32_t i = 0; i < QPS; ++i) in_init += qps[i] && qps[i]->state == IBV_QPS_INIT;
    CHECK(in_init == 1);
    tear_down();
}

/* A QP that was reset meanwhile stays where it is. */
static void reset_others(struct ibv_qp* qp, enum ibv_qp_state state) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    on_modify = NULL;
    count(qp, state);
    for (uint32_t i = 0; i < QPS; ++i)
        if (qps[i] != qp) {
            /* libibverbs writes the state only after this */
            CHECK(!mana_modify_qp(qps[i], &attr, IBV_QP_STATE));
        }
    on_modify = count;
}

static void qps_in_reset_stay(void) {
    struct ibv_wc wc[QPS];
    set_up();
    on_modify = reset_others;
    CHECK(mana_poll_cq(cq, QPS, wc) == QPS);
    on_modify = NULL;
    CHECK(moved == 1);
    tear_down();
}

/* The first QP is left alone with its failure. */
static void set_up_one(void) {
    set_up();
    for (uint32_t i = 1; i < QPS; ++i) {
        CHECK(!mana_destroy_qp(qps[i]));
        qps[i] = NULL;
    }
    on_modify = count;
}

static void* poll_one(void* none) {
    struct ibv_wc wc;
    CHECK(mana_poll_cq(cq, 1, &wc) == 1);
    return none;
}

/* glibc: 2 tells that somebody waits. */
static void wait_for_waiter(pthread_mutex_t* mutex) {
    while (__atomic_load_n(&mutex->__data.__lock, __ATOMIC_RELAXED) != 2) sched_yield();
}

/* Who was about to move it to ERR finds it reset and connected anew, as modify QP does it. */
static void life_after_reset_goes_on(void) {
    pthread_t poller;
    set_up_one();
    struct mana_qp* qp = to_mqp(qps[0]);
    pthread_mutex_lock(&qp->state_lock);
    CHECK(!pthread_create(&poller, NULL, poll_one, NULL));
    wait_for_waiter(&qp->state_lock);
    mana_leave_cqs(qp);
    mana_stock_reset(&qp->stock);
    qps[0]->state = IBV_QPS_RTS;
    pthread_mutex_unlock(&qp->state_lock);
    CHECK(!pthread_join(poller, NULL));
    on_modify = NULL;
    CHECK(moved == 0);
    tear_down();
}

/* As the driver does, of the first one. */
static void tell_of_failure(void) {
    struct ibv_async_event event = {.event_type = IBV_EVENT_QP_FATAL, .element.qp = qps[0]};
    mana_async_event(&ctx->ibv_ctx.context, &event);
}

/* An event that is read after the QP was reset says nothing of it, if the driver knows better. */
static void late_event_ends_no_other_life(enum ibv_qp_type type) {
    type_of_qps = type;
    set_up_one();
    state_of_qps = IBV_QPS_INIT;
    tell_of_failure();
    CHECK(moved == 0 && qps[0]->state == IBV_QPS_INIT);
    state_of_qps = IBV_QPS_ERR;
    tell_of_failure();
    CHECK(moved == 1 && qps[0]->state == IBV_QPS_ERR);
    on_modify = NULL;
    tear_down();
    type_of_qps = IBV_QPT_RC;
}

/* Stock drivers know no such query; there the event is all there is. */
static void event_is_believed_where_nobody_knows(void) {
    set_up_one();
    refuse_query = EOPNOTSUPP;
    tell_of_failure();
    refuse_query = 0;
    CHECK(moved == 1 && qps[0]->state == IBV_QPS_ERR);
    on_modify = NULL;
    tear_down();
}

static bool resetting;

static void tell_reset(struct ibv_qp* qp, enum ibv_qp_state state) {
    (void)qp;
    if (state == IBV_QPS_RESET) __atomic_store_n(&resetting, true, __ATOMIC_RELEASE);
}

static void* reset_one(void* none) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    CHECK(!mana_modify_qp(qps[0], &attr, IBV_QP_STATE));
    return none;
}

/* Who is between ibv_start_poll and ibv_end_poll may modify a QP that another thread resets. */
static void reset_lets_pollers_modify(void) {
    struct timespec deadline;
    pthread_t other;
    set_up_one();
    pthread_mutex_t* state = &to_mqp(qps[0])->state_lock;
    on_modify = tell_reset;
    mana_lock(&to_mcq(cq)->lock); /* as ibv_start_poll does */
    CHECK(!pthread_create(&other, NULL, reset_one, NULL));
    while (!__atomic_load_n(&resetting, __ATOMIC_ACQUIRE)) sched_yield();
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += 10;
    const bool free_to_modify = !pthread_mutex_timedlock(state, &deadline);
    CHECK(free_to_modify);
    if (free_to_modify) pthread_mutex_unlock(state);
    mana_unlock(&to_mcq(cq)->lock);
    CHECK(!pthread_join(other, NULL));
    on_modify = NULL;
    CHECK(!to_mqp(qps[0])->stock.error_named && !to_mqp(qps[0])->stock.receives.head);
    tear_down();
}

void check_failures(void) {
    one_poll_moves_all();
    no_lock_is_held_over_the_command();
    another_qp_of_the_number_stays();
    qps_in_reset_stay();
    life_after_reset_goes_on();
    late_event_ends_no_other_life(IBV_QPT_RC);
    late_event_ends_no_other_life(IBV_QPT_UD);
    event_is_believed_where_nobody_knows();
    reset_lets_pollers_modify();
}

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPENMANA_UVERBS_KNOWN_H
#define OPENMANA_UVERBS_KNOWN_H

/*
 * The known cases: a command with one thing wrong, and the errno that it must have. What the driver
 * does not have is EOPNOTSUPP, a wrong value EINVAL. A finding of the episodes becomes one of them.
 */
#include "uverbs_ops.h"

/* Objects that the cases start from. */
struct base {
    uint32_t pd, cq, stock_cq, ethernet_cq, srq, qp, mr, table, wq;
};

struct known {
    const char* name;
    int (*run)(struct worker*, const struct base*);
    int expected;
    enum { ANY, RDMA, ADDRESS, RAW } where; /* ADDRESS: RDMA, while the interface is up */
};

/* By write() alone: one way is enough here. */
static int plainly(struct worker* w, struct command* c) {
    w->spoilt = false;
    memset(w->out, 0, 512);
    return by_write(w, c);
}

static uint32_t answered(const struct worker* w, size_t at) {
    uint32_t value;

    memcpy(&value, w->out + at, sizeof value);
    return value;
}

static int make_cq(struct worker* w, uint32_t cqe, const struct mana_uapi_create_cq* driver,
                   uint32_t driver_bytes, uint32_t core_flags) {
    struct ib_uverbs_ex_create_cq core = {.cqe = cqe, .comp_channel = -1, .flags = core_flags};
    struct command c = {.number = IB_USER_VERBS_EX_CMD_CREATE_CQ,
                        .extended = true,
                        .core_bytes = sizeof core,
                        .answer_bytes = sizeof(struct ib_uverbs_ex_create_cq_resp),
                        .driver_bytes = driver_bytes,
                        .driver_answer_bytes = sizeof(struct mana_uapi_create_cq_resp)};

    memcpy(c.core, &core, sizeof core);
    if (driver_bytes) memcpy(c.driver, driver, sizeof *driver);
    return plainly(w, &c);
}

static struct mana_uapi_create_cq cq_of(struct worker* w, uint16_t flags) {
    return (struct mana_uapi_create_cq){.address = (uintptr_t)w->process->arena, .flags = flags};
}

static const uint16_t extended_cq = MANA_UAPI_CQ_RNIC | MANA_UAPI_CQ_EXTENDED;

static int cq_with(struct worker* w, uint32_t cqe, uint16_t flags) {
    struct mana_uapi_create_cq driver = cq_of(w, flags);

    return make_cq(w, cqe, &driver, sizeof driver, 0);
}

static int cq_none(struct worker* w, const struct base* b) {
    (void)b;
    return cq_with(w, 0, extended_cq);
}

static int cq_huge(struct worker* w, const struct base* b) {
    (void)b;
    return cq_with(w, 1u << 30, extended_cq);
}

static int cq_uneven(struct worker* w, const struct base* b) {
    (void)b;
    return cq_with(w, 100, extended_cq);
}

static int cq_unknown_flag(struct worker* w, const struct base* b) {
    (void)b;
    return cq_with(w, 64, 0x80 | MANA_UAPI_CQ_RNIC);
}

static int cq_unknown_core_flag(struct worker* w, const struct base* b) {
    struct mana_uapi_create_cq driver = cq_of(w, extended_cq);

    (void)b;
    return make_cq(w, 64, &driver, sizeof driver, 2);
}

static int cq_reserved(struct worker* w, const struct base* b) {
    struct mana_uapi_create_cq driver = cq_of(w, extended_cq);

    (void)b;
    driver.reserved1 = 1;
    return make_cq(w, 64, &driver, sizeof driver, 0);
}

static int cq_no_payload(struct worker* w, const struct base* b) {
    (void)b;
    return make_cq(w, 64, NULL, 0, 0);
}

static int cq_longer(struct worker* w, const struct base* b) {
    struct mana_uapi_create_cq driver = cq_of(w, extended_cq);

    (void)b;
    return make_cq(w, 64, &driver, sizeof driver + 32, 0);
}

static int cq_longer_used(struct worker* w, const struct base* b) {
    struct mana_uapi_create_cq driver = cq_of(w, extended_cq);
    struct ib_uverbs_ex_create_cq core = {.cqe = 64, .comp_channel = -1};
    struct command c = {.number = IB_USER_VERBS_EX_CMD_CREATE_CQ,
                        .extended = true,
                        .core_bytes = sizeof core,
                        .answer_bytes = sizeof(struct ib_uverbs_ex_create_cq_resp),
                        .driver_bytes = sizeof driver + 8,
                        .driver_answer_bytes = 8};

    (void)b;
    memcpy(c.core, &core, sizeof core);
    memcpy(c.driver, &driver, sizeof driver);
    c.driver[sizeof driver + 3] = 1;
    return plainly(w, &c);
}

static int cq_odd_address(struct worker* w, const struct base* b) {
    struct mana_uapi_create_cq driver = cq_of(w, extended_cq);

    (void)b;
    driver.address += 64;
    return make_cq(w, 64, &driver, sizeof driver, 0);
}

static int cq_in_hole(struct worker* w, const struct base* b) {
    struct mana_uapi_create_cq driver = cq_of(w, extended_cq);

    (void)b;
    driver.address = (uintptr_t)w->process->hole;
    return make_cq(w, 64, &driver, sizeof driver, 0);
}

static int cq_read_only(struct worker* w, const struct base* b) {
    struct mana_uapi_create_cq driver = cq_of(w, MANA_UAPI_CQ_RNIC);

    (void)b;
    driver.address = (uintptr_t)w->process->readonly;
    return make_cq(w, 64, &driver, sizeof driver, 0);
}

static int resize(struct worker* w, uint32_t cq, uint32_t cqe, uint32_t entries,
                  uint32_t reserved) {
    struct ib_uverbs_resize_cq core = {.cq_handle = cq, .cqe = cqe};
    struct mana_uapi_resize_cq driver = {
        .address = (uintptr_t)w->process->arena, .entries = entries, .reserved = reserved};
    struct command c = {.number = IB_USER_VERBS_CMD_RESIZE_CQ,
                        .core_bytes = sizeof core,
                        .answer_bytes = sizeof(struct ib_uverbs_resize_cq_resp),
                        .driver_bytes = sizeof driver,
                        .driver_answer_bytes = sizeof(struct mana_uapi_resize_cq_resp)};

    memcpy(c.core, &core, sizeof core);
    memcpy(c.driver, &driver, sizeof driver);
    return plainly(w, &c);
}

static int resize_right(struct worker* w, const struct base* b) {
    return resize(w, b->cq, 128, 128, 0);
}

static int resize_stock(struct worker* w, const struct base* b) {
    return resize(w, b->stock_cq, 128, 128, 0);
}

static int resize_none(struct worker* w, const struct base* b) {
    return resize(w, b->cq, 0, 128, 0);
}

static int resize_below(struct worker* w, const struct base* b) {
    return resize(w, b->cq, 256, 128, 0);
}

static int resize_reserved(struct worker* w, const struct base* b) {
    return resize(w, b->cq, 128, 128, 1);
}

/* -- queue pairs */

static struct ib_uverbs_ex_create_qp qp_core(const struct base* b, uint32_t cq) {
    struct ib_uverbs_ex_create_qp core = {.pd_handle = b->pd,
                                          .send_cq_handle = cq,
                                          .recv_cq_handle = cq,
                                          .max_send_wr = 16,
                                          .max_recv_wr = 16,
                                          .max_send_sge = 1,
                                          .max_recv_sge = 1};

    core.qp_type = IB_UVERBS_QPT_RC;
    return core;
}

static struct mana_uapi_create_qp qp_extended(struct worker* w) {
    return (struct mana_uapi_create_qp){.buffer = (uintptr_t)w->process->arena,
                                        .sq_bytes = PAGE,
                                        .rq_bytes = PAGE,
                                        .rq_stride = 64};
}

static struct mana_uapi_create_qp qp_stock(struct worker* w) {
    struct mana_uapi_create_qp driver = {0};

    for (int i = 0; i < MANA_UAPI_QP_QUEUES; i++) {
        driver.address[i] = (uintptr_t)w->process->arena + (uint32_t)i * PAGE;
        driver.bytes[i] = PAGE;
    }
    return driver;
}

static int make_qp(struct worker* w, const struct ib_uverbs_ex_create_qp* core,
                   const struct mana_uapi_create_qp* driver, uint32_t driver_bytes) {
    struct command c = {.number = IB_USER_VERBS_EX_CMD_CREATE_QP,
                        .extended = true,
                        .core_bytes = sizeof *core,
                        .answer_bytes = sizeof(struct ib_uverbs_ex_create_qp_resp),
                        .driver_bytes = driver_bytes,
                        .driver_answer_bytes = sizeof(struct mana_uapi_create_qp_resp)};

    memcpy(c.core, core, sizeof *core);
    memcpy(c.driver, driver, driver_bytes);
    return plainly(w, &c);
}

static int qp_of_type(struct worker* w, const struct base* b, uint8_t type) {
    struct ib_uverbs_ex_create_qp core = qp_core(b, b->cq);
    struct mana_uapi_create_qp driver = qp_extended(w);

    core.qp_type = type;
    return make_qp(w, &core, &driver, sizeof driver);
}

static int qp_short_payload(struct worker* w, const struct base* b) {
    struct ib_uverbs_ex_create_qp core = qp_core(b, b->stock_cq);
    struct mana_uapi_create_qp driver = qp_stock(w);

    return make_qp(w, &core, &driver, MANA_UAPI_CREATE_QP_STOCK_BYTES - 8);
}

static int qp_reserved(struct worker* w, const struct base* b) {
    struct ib_uverbs_ex_create_qp core = qp_core(b, b->cq);
    struct mana_uapi_create_qp driver = qp_extended(w);

    driver.reserved = 1;
    return make_qp(w, &core, &driver, sizeof driver);
}

/* The core makes memory of 0 bytes of it, and shifts by the width of a word. */
static int qp_empty_queue(struct worker* w, const struct base* b) {
    struct ib_uverbs_ex_create_qp core = qp_core(b, b->stock_cq);
    struct mana_uapi_create_qp driver = qp_stock(w);

    driver.bytes[0] = 0;
    driver.address[0] += 8;
    return make_qp(w, &core, &driver, sizeof driver);
}

static int qp_wrong_cq(struct worker* w, const struct base* b) {
    struct ib_uverbs_ex_create_qp core = qp_core(b, b->stock_cq);
    struct mana_uapi_create_qp driver = qp_extended(w);

    return make_qp(w, &core, &driver, sizeof driver);
}

static int qp_no_cq(struct worker* w, const struct base* b) {
    struct ib_uverbs_ex_create_qp core = qp_core(b, 0xffff);
    struct mana_uapi_create_qp driver = qp_extended(w);

    return make_qp(w, &core, &driver, sizeof driver);
}

static int qp_xrc(struct worker* w, const struct base* b) {
    return qp_of_type(w, b, IB_UVERBS_QPT_XRC_INI);
}

static int qp_driver(struct worker* w, const struct base* b) {
    return qp_of_type(w, b, IB_UVERBS_QPT_DRIVER);
}

static int qp_gsi(struct worker* w, const struct base* b) {
    return qp_of_type(w, b, 1);
}

static int qp_uneven(struct worker* w, const struct base* b) {
    struct ib_uverbs_ex_create_qp core = qp_core(b, b->cq);
    struct mana_uapi_create_qp driver = qp_extended(w);

    driver.sq_bytes = 3 * PAGE;
    return make_qp(w, &core, &driver, sizeof driver);
}

static int qp_flags(struct worker* w, const struct base* b) {
    struct ib_uverbs_ex_create_qp core = qp_core(b, b->cq);
    struct mana_uapi_create_qp driver = qp_extended(w);

    core.create_flags = 1 << 1; /* no multicast to itself */
    return make_qp(w, &core, &driver, sizeof driver);
}

static int qp_stock_shared(struct worker* w, const struct base* b) {
    struct ib_uverbs_ex_create_qp core = qp_core(b, b->stock_cq);
    struct mana_uapi_create_qp driver = qp_stock(w);

    core.is_srq = 1;
    core.srq_handle = b->srq;
    return make_qp(w, &core, &driver, sizeof driver);
}

static int qp_deep(struct worker* w, const struct base* b) {
    struct ib_uverbs_ex_create_qp core = qp_core(b, b->cq);
    struct mana_uapi_create_qp driver = qp_extended(w);

    core.max_send_wr = 1u << 24;
    return make_qp(w, &core, &driver, sizeof driver);
}

static int modify(struct worker* w, const struct base* b, uint32_t mask, uint8_t state) {
    struct ib_uverbs_ex_modify_qp core = {.base = {.qp_handle = b->qp,
                                                   .attr_mask = mask,
                                                   .qp_state = state,
                                                   .port_num = 1,
                                                   .alt_port_num = 1,
                                                   .dest = {.port_num = 1, .is_global = 1},
                                                   .alt_dest = {.port_num = 1, .is_global = 1}}};
    struct command c = {.number = IB_USER_VERBS_EX_CMD_MODIFY_QP,
                        .extended = true,
                        .core_bytes = sizeof core,
                        .answer_bytes = sizeof(struct ib_uverbs_ex_modify_qp_resp)};

    memcpy(c.core, &core, sizeof core);
    return plainly(w, &c);
}

static int modify_leap(struct worker* w, const struct base* b) {
    return modify(w, b, 1, 3);
}

static int modify_no_state(struct worker* w, const struct base* b) {
    return modify(w, b, 1, 7);
}

static int modify_migration(struct worker* w, const struct base* b) {
    return modify(w, b, 1 | 1 << 18, 1);
}

static int modify_size(struct worker* w, const struct base* b) {
    return modify(w, b, 1 | 1 << 19, 1);
}

static int modify_rate(struct worker* w, const struct base* b) {
    return modify(w, b, 1 | 1 << 25, 1);
}

static int qp_in_use_pd(struct worker* w, const struct base* b) {
    struct command c = {.number = IB_USER_VERBS_CMD_DEALLOC_PD, .core_bytes = 4};

    memcpy(c.core, &b->pd, 4);
    return plainly(w, &c);
}

/* -- shared receives, memory, windows */

static int srq_of(struct worker* w, const struct base* b, uint32_t stride, uint32_t max_wr) {
    struct ib_uverbs_create_srq core = {.pd_handle = b->pd, .max_wr = max_wr, .max_sge = 1};
    struct mana_uapi_create_srq driver = {
        .buffer = (uintptr_t)w->process->arena, .ring_bytes = PAGE, .stride = stride};
    struct command c = {.number = IB_USER_VERBS_CMD_CREATE_SRQ,
                        .core_bytes = sizeof core,
                        .answer_bytes = sizeof(struct ib_uverbs_create_srq_resp),
                        .driver_bytes = sizeof driver,
                        .driver_answer_bytes = sizeof(struct mana_uapi_create_srq_resp)};

    memcpy(c.core, &core, sizeof core);
    memcpy(c.driver, &driver, sizeof driver);
    return plainly(w, &c);
}

static int srq_no_stride(struct worker* w, const struct base* b) {
    return srq_of(w, b, 0, 16);
}

static int srq_too_many(struct worker* w, const struct base* b) {
    return srq_of(w, b, 64, PAGE / 64 + 1);
}

/* What the table of the verbs wants for each step, and for the notice of a drain. */
enum {
    TO_INIT = 1 | 1 << 3 | 1 << 4 | 1 << 5,
    TO_RTR = 1 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 15 | 1 << 17 | 1 << 20,
    TO_RTS = 1 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 13 | 1 << 16,
    TO_STATE = 1,
    NOTICE = 1 << 2,
};
enum { INIT = 1, RTR, RTS, SQD };

static int step(struct worker* w, struct ib_uverbs_modify_qp core, uint32_t mask, uint8_t state) {
    struct command c = {.number = IB_USER_VERBS_CMD_MODIFY_QP, .core_bytes = sizeof core};

    core.attr_mask = mask;
    core.qp_state = state;
    memcpy(c.core, &core, sizeof core);
    return plainly(w, &c);
}

static const struct ib_uverbs_modify_qp usual_path = {
    .port_num = 1,
    .path_mtu = 3,
    .dest_qp_num = 99,
    .timeout = 31,
    .retry_cnt = 7,
    .rnr_retry = 7,
    .min_rnr_timer = 31,
    .dest = {.is_global = 1,
             .port_num = 1,
             .sgid_index = 1,
             .hop_limit = 64,
             .dgid = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1}}};

/* An RC QP that goes to RTS, or as far as it is let. */
static int connected(struct worker* w, const struct base* b, struct ib_uverbs_modify_qp* path) {
    int err;

    memset(w->process->arena, 0, ARENA); /* the record says how much is posted */
    err = qp_of_type(w, b, IB_UVERBS_QPT_RC);
    if (err) return err;
    path->qp_handle = answered(w, 0);
    err = step(w, *path, TO_INIT, INIT);
    if (!err) err = step(w, *path, TO_RTR, RTR);
    return err ? err : step(w, *path, TO_RTS, RTS);
}

static int with_path(struct worker* w, const struct base* b, struct ib_uverbs_modify_qp path) {
    int err = connected(w, b, &path);

    return destroy(w, K_QP, path.qp_handle) ? EPROTO : err;
}

static int path_at_limits(struct worker* w, const struct base* b) {
    return with_path(w, b, usual_path);
}

static int path_timeout(struct worker* w, const struct base* b) {
    struct ib_uverbs_modify_qp path = usual_path;

    path.timeout = 32;
    return with_path(w, b, path);
}

static int path_retries(struct worker* w, const struct base* b) {
    struct ib_uverbs_modify_qp path = usual_path;

    path.retry_cnt = 8;
    return with_path(w, b, path);
}

static int path_rnr_retries(struct worker* w, const struct base* b) {
    struct ib_uverbs_modify_qp path = usual_path;

    path.rnr_retry = 8;
    return with_path(w, b, path);
}

static int path_rnr_timer(struct worker* w, const struct base* b) {
    struct ib_uverbs_modify_qp path = usual_path;

    path.min_rnr_timer = 32;
    return with_path(w, b, path);
}

static int path_mtu(struct worker* w, const struct base* b) {
    struct ib_uverbs_modify_qp path = usual_path;

    path.path_mtu = 6;
    return with_path(w, b, path);
}

/* Whether an event of a drained QP comes within a time; others are passed over. */
static bool drained(struct worker* w, int ms) {
    struct ib_uverbs_async_event_desc event;
    struct pollfd wait = {.fd = w->process->async_fd, .events = POLLIN};

    while (poll(&wait, 1, ms) > 0)
        if (read(wait.fd, &event, sizeof event) == sizeof event &&
            event.event_type == 5) /* IB_EVENT_SQ_DRAINED */
            return true;
    return false;
}

/* Who asks for the notice of a drain gets it, once; the next drain is another. */
static int drain_told_once(struct worker* w, const struct base* b) {
    struct ib_uverbs_modify_qp path = usual_path;
    int err = connected(w, b, &path);

    path.en_sqd_async_notify = 1;
    if (!err) err = step(w, path, TO_STATE | NOTICE, SQD);
    if (!err && !drained(w, 10000)) err = ETIMEDOUT;
    if (!err) err = step(w, path, TO_STATE, RTS);
    if (!err) err = step(w, path, TO_STATE, SQD);
    if (!err && drained(w, 500)) err = EUCLEAN;
    return destroy(w, K_QP, path.qp_handle) ? EPROTO : err;
}

/* A limit is for those who modify an SRQ (ibv_create_srq(3)): here none is armed. */
static int srq_made_with_limit(struct worker* w, const struct base* b) {
    struct ib_uverbs_create_srq core = {
        .pd_handle = b->pd, .max_wr = 16, .max_sge = 1, .srq_limit = 0x5a5a5a5a};
    struct mana_uapi_create_srq driver = {
        .buffer = (uintptr_t)w->process->arena, .ring_bytes = PAGE, .stride = 64};
    struct command c = {.number = IB_USER_VERBS_CMD_CREATE_SRQ,
                        .core_bytes = sizeof core,
                        .answer_bytes = sizeof(struct ib_uverbs_create_srq_resp),
                        .driver_bytes = sizeof driver,
                        .driver_answer_bytes = sizeof(struct mana_uapi_create_srq_resp)};
    struct ib_uverbs_query_srq question = {0};
    struct command query = {.number = IB_USER_VERBS_CMD_QUERY_SRQ,
                            .core_bytes = sizeof question,
                            .answer_bytes = sizeof(struct ib_uverbs_query_srq_resp)};
    struct ib_uverbs_query_srq_resp told;
    uint32_t srq;
    int err;

    memcpy(c.core, &core, sizeof core);
    memcpy(c.driver, &driver, sizeof driver);
    err = plainly(w, &c);
    if (err) return err;
    srq = answered(w, 0);
    question.srq_handle = srq;
    memcpy(query.core, &question, sizeof question);
    err = plainly(w, &query);
    memcpy(&told, w->out, sizeof told);
    if (destroy(w, K_SRQ, srq) || (!err && told.srq_limit)) return EPROTO;
    return err;
}

static int srq_tags(struct worker* w, const struct base* b) {
    struct ib_uverbs_create_xsrq core = {
        .srq_type = 2, .pd_handle = b->pd, .max_wr = 16, .max_sge = 1, .cq_handle = b->cq};
    struct command c = {.number = IB_USER_VERBS_CMD_CREATE_XSRQ,
                        .core_bytes = sizeof core,
                        .answer_bytes = sizeof(struct ib_uverbs_create_srq_resp)};

    memcpy(c.core, &core, sizeof core);
    return plainly(w, &c);
}

static int srq_modify(struct worker* w, const struct base* b, uint32_t mask, uint32_t limit) {
    struct ib_uverbs_modify_srq core = {
        .srq_handle = b->srq, .attr_mask = mask, .max_wr = 32, .srq_limit = limit};
    struct command c = {.number = IB_USER_VERBS_CMD_MODIFY_SRQ, .core_bytes = sizeof core};

    memcpy(c.core, &core, sizeof core);
    return plainly(w, &c);
}

static int srq_size(struct worker* w, const struct base* b) {
    return srq_modify(w, b, 1, 0);
}

static int srq_limit(struct worker* w, const struct base* b) {
    return srq_modify(w, b, 2, 65);
}

static int mr_of(struct worker* w, const struct base* b, uint64_t start, uint64_t bytes,
                 uint32_t access) {
    struct ib_uverbs_reg_mr core = {.start = start,
                                    .length = bytes,
                                    .hca_va = start,
                                    .pd_handle = b->pd,
                                    .access_flags = access};
    struct command c = {.number = IB_USER_VERBS_CMD_REG_MR,
                        .core_bytes = sizeof core,
                        .answer_bytes = sizeof(struct ib_uverbs_reg_mr_resp)};

    memcpy(c.core, &core, sizeof core);
    return plainly(w, &c);
}

/* Commands without a part of the driver's: what has no meaning yet must be zero. */
static int with_part(struct worker* w, uint32_t number, const void* core, uint32_t core_bytes,
                     uint32_t answer_bytes, uint8_t byte) {
    struct command c = {.number = number,
                        .core_bytes = core_bytes,
                        .answer_bytes = answer_bytes,
                        .driver_bytes = 16,
                        .driver = {[15] = byte}};

    memcpy(c.core, core, core_bytes);
    return plainly(w, &c);
}

static int pd_part(struct worker* w, uint8_t byte) {
    struct ib_uverbs_alloc_pd core = {0};
    int err = with_part(w, IB_USER_VERBS_CMD_ALLOC_PD, &core, sizeof core,
                        sizeof(struct ib_uverbs_alloc_pd_resp), byte);

    return err ? err : destroy(w, K_PD, answered(w, 0));
}

static int pd_zero_part(struct worker* w, const struct base* b) {
    (void)b;
    return pd_part(w, 0);
}

static int pd_used_part(struct worker* w, const struct base* b) {
    (void)b;
    return pd_part(w, 1);
}

/* Room for an answer that there is none of ends in zeros too. */
static int pd_answer(struct worker* w, const struct base* b) {
    enum { ROOM = 16, AT = sizeof(struct ib_uverbs_alloc_pd_resp) };
    struct command c = {.number = IB_USER_VERBS_CMD_ALLOC_PD,
                        .core_bytes = sizeof(struct ib_uverbs_alloc_pd),
                        .answer_bytes = AT,
                        .driver_answer_bytes = ROOM};
    bool zero = true;
    int err;

    (void)b;
    w->spoilt = false;
    memset(w->out, 0xa5, 512);
    err = by_write(w, &c);
    if (err) return err;
    for (uint32_t i = 0; i < ROOM; i++) zero = zero && !w->out[AT + i];
    if (w->out[AT + ROOM] != 0xa5) zero = false;
    err = destroy(w, K_PD, answered(w, 0));
    return err || zero ? err : EUCLEAN;
}

static int mr_used_part(struct worker* w, const struct base* b) {
    struct ib_uverbs_reg_mr core = {.start = (uintptr_t)w->process->arena,
                                    .length = PAGE,
                                    .hca_va = (uintptr_t)w->process->arena,
                                    .pd_handle = b->pd,
                                    .access_flags = 1};

    return with_part(w, IB_USER_VERBS_CMD_REG_MR, &core, sizeof core,
                     sizeof(struct ib_uverbs_reg_mr_resp), 1);
}

static int mw_used_part(struct worker* w, const struct base* b) {
    struct ib_uverbs_alloc_mw core = {.pd_handle = b->pd, .mw_type = 1};

    return with_part(w, IB_USER_VERBS_CMD_ALLOC_MW, &core, sizeof core,
                     sizeof(struct ib_uverbs_alloc_mw_resp), 1);
}

static int srq_used_part(struct worker* w, const struct base* b) {
    struct ib_uverbs_modify_srq core = {.srq_handle = b->srq, .attr_mask = 2, .srq_limit = 1};

    return with_part(w, IB_USER_VERBS_CMD_MODIFY_SRQ, &core, sizeof core, 0, 1);
}

static int qp_used_part(struct worker* w, const struct base* b) {
    struct ib_uverbs_modify_qp core = {.qp_handle = b->qp, .attr_mask = 1, .qp_state = 6};

    return with_part(w, IB_USER_VERBS_CMD_MODIFY_QP, &core, sizeof core, 0, 1);
}

/* A provider that is newer than the driver finds zero in what the driver does not know. */
static int cq_answer_longer(struct worker* w, const struct base* b) {
    enum { MORE = 24 };
    struct mana_uapi_create_cq driver = cq_of(w, MANA_UAPI_CQ_RNIC);
    struct ib_uverbs_ex_create_cq core = {.cqe = 64, .comp_channel = -1};
    const uint32_t known = sizeof(struct mana_uapi_create_cq_resp);
    const uint32_t at = sizeof(struct ib_uverbs_ex_create_cq_resp) + known;
    struct command c = {.number = IB_USER_VERBS_EX_CMD_CREATE_CQ,
                        .extended = true,
                        .core_bytes = sizeof core,
                        .answer_bytes = sizeof(struct ib_uverbs_ex_create_cq_resp),
                        .driver_bytes = sizeof driver,
                        .driver_answer_bytes = known + MORE};
    bool zero = true;
    int err;

    (void)b;
    memcpy(c.core, &core, sizeof core);
    memcpy(c.driver, &driver, sizeof driver);
    w->spoilt = false;
    memset(w->out, 0xa5, 512);
    err = by_write(w, &c);
    if (err) return err;
    for (uint32_t i = 0; i < MORE; i++) zero = zero && !w->out[at + i];
    if (w->out[at + MORE] != 0xa5) zero = false;
    err = destroy(w, K_CQ, answered(w, 0));
    return err || zero ? err : EUCLEAN;
}

static int mr_on_demand(struct worker* w, const struct base* b) {
    return mr_of(w, b, (uintptr_t)w->process->arena, PAGE, 1 | 1 << 6);
}

static int mr_flush(struct worker* w, const struct base* b) {
    return mr_of(w, b, (uintptr_t)w->process->arena, PAGE, 7 | 1 << 8);
}

static int mr_hole(struct worker* w, const struct base* b) {
    return mr_of(w, b, (uintptr_t)w->process->hole, PAGE, 1);
}

static int mr_beyond(struct worker* w, const struct base* b) {
    return mr_of(w, b, ~0ull - PAGE, 2 * PAGE, 1);
}

static int mr_empty(struct worker* w, const struct base* b) {
    return mr_of(w, b, (uintptr_t)w->process->arena + 8, 0, 1);
}

static int mr_rights(struct worker* w, const struct base* b) {
    return mr_of(w, b, (uintptr_t)w->process->arena, PAGE, 2);
}

static int mw_of_type(struct worker* w, const struct base* b) {
    struct ib_uverbs_alloc_mw core = {.pd_handle = b->pd, .mw_type = 3};
    struct command c = {.number = IB_USER_VERBS_CMD_ALLOC_MW,
                        .core_bytes = sizeof core,
                        .answer_bytes = sizeof(struct ib_uverbs_alloc_mw_resp)};

    memcpy(c.core, &core, sizeof core);
    return plainly(w, &c);
}

static int dm_of(struct worker* w, uint64_t bytes, uint32_t alignment) {
    struct method m;

    begin(&m, UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC);
    add_handle(&m, UVERBS_ATTR_ALLOC_DM_HANDLE, 0);
    add_in(&m, UVERBS_ATTR_ALLOC_DM_LENGTH, &bytes, sizeof bytes);
    add_in(&m, UVERBS_ATTR_ALLOC_DM_ALIGNMENT, &alignment, sizeof alignment);
    return by_method(w, &m);
}

static int dm_empty(struct worker* w, const struct base* b) {
    (void)b;
    return dm_of(w, 0, 0);
}

static int dm_alignment(struct worker* w, const struct base* b) {
    (void)b;
    return dm_of(w, 64, 200);
}

/* -- raw packets */

static int wq_state(struct worker* w, const struct base* b) {
    struct ib_uverbs_ex_modify_wq core = {.attr_mask = 1, .wq_handle = b->wq, .wq_state = 1};
    struct command c = {
        .number = IB_USER_VERBS_EX_CMD_MODIFY_WQ, .extended = true, .core_bytes = sizeof core};

    memcpy(c.core, &core, sizeof core);
    return plainly(w, &c);
}

/* With a data path; its handle is in `wq` then. */
static int make_packet_wq(struct worker* w, const struct base* b,
                          const struct mana_uapi_create_wq* driver, uint32_t* wq) {
    struct command c = wq_command(b->pd, b->cq, driver);
    int err = plainly(w, &c);

    *wq = answered(w, offsetof(struct ib_uverbs_ex_create_wq_resp, wq_handle));
    return err;
}

static struct mana_uapi_create_wq packet_wq_of(struct worker* w) {
    const uint64_t memory = (uintptr_t)w->process->arena;

    return (struct mana_uapi_create_wq){
        .recv = {.address = memory, .cq_address = memory + PAGE, .bytes = PAGE, .cqes = 64}};
}

static int wq_to(struct worker* w, uint32_t wq, uint32_t state) {
    struct ib_uverbs_ex_modify_wq core = {.attr_mask = 1, .wq_handle = wq, .wq_state = state};
    struct command c = {
        .number = IB_USER_VERBS_EX_CMD_MODIFY_WQ, .extended = true, .core_bytes = sizeof core};

    memcpy(c.core, &core, sizeof core);
    return plainly(w, &c);
}

/* To RDY, to ERR, and away. */
static int packet_wq_life(struct worker* w, const struct base* b) {
    const struct mana_uapi_create_wq driver = packet_wq_of(w);
    uint32_t wq;
    int err = make_packet_wq(w, b, &driver, &wq);

    for (uint32_t state = 1; !err && state <= 2; state++) err = wq_to(w, wq, state);
    return err ? err : destroy(w, K_WQ, wq);
}

static int packet_wq_back(struct worker* w, const struct base* b) {
    const struct mana_uapi_create_wq driver = packet_wq_of(w);
    uint32_t wq;
    int err = make_packet_wq(w, b, &driver, &wq);

    if (!err) err = wq_to(w, wq, 1);
    return err ? err : wq_to(w, wq, 0);
}

static int packet_wq_uneven(struct worker* w, const struct base* b) {
    struct mana_uapi_create_wq driver = packet_wq_of(w);
    uint32_t wq;

    driver.recv.bytes = 3 * PAGE;
    return make_packet_wq(w, b, &driver, &wq);
}

static int packet_wq_of_both(struct worker* w, const struct base* b) {
    struct mana_uapi_create_wq driver = packet_wq_of(w);
    uint32_t wq;

    driver.address = driver.recv.address;
    driver.bytes = PAGE;
    return make_packet_wq(w, b, &driver, &wq);
}

/* A QP over a table of one such queue in this state. */
static int spread_qp(struct worker* w, const struct base* b, uint32_t state, uint32_t port) {
    const struct mana_uapi_create_wq wq_driver = packet_wq_of(w);
    struct ib_uverbs_ex_create_rwq_ind_table table = {.log_ind_tbl_size = 0};
    struct mana_uapi_create_rss_qp driver = {.hash_fields = 0x33,
                                             .hash_function = MANA_UAPI_RSS_TOEPLITZ,
                                             .key_length = MANA_UAPI_RSS_KEY_BYTES,
                                             .port = port};
    struct ib_uverbs_ex_create_qp core = {.pd_handle = b->pd,
                                          .qp_type = IB_UVERBS_QPT_RAW_PACKET,
                                          .comp_mask = IB_UVERBS_CREATE_QP_MASK_IND_TABLE};
    struct command c = {.number = IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL,
                        .extended = true,
                        .core_bytes = words((uint32_t)sizeof table + 4, 8) * 8,
                        .answer_bytes = sizeof(struct ib_uverbs_ex_create_rwq_ind_table_resp)};
    uint32_t wq;
    int err = make_packet_wq(w, b, &wq_driver, &wq);

    for (uint32_t next = 1; !err && next <= state; next++) err = wq_to(w, wq, next);
    if (err) return err;
    memcpy(c.core, &table, sizeof table);
    memcpy(c.core + sizeof table, &wq, sizeof wq);
    err = plainly(w, &c);
    if (err) return err;
    core.rwq_ind_tbl_handle =
        answered(w, offsetof(struct ib_uverbs_ex_create_rwq_ind_table_resp, ind_tbl_handle));
    c = (struct command){.number = IB_USER_VERBS_EX_CMD_CREATE_QP,
                         .extended = true,
                         .core_bytes = sizeof core,
                         .answer_bytes = sizeof(struct ib_uverbs_ex_create_qp_resp),
                         .driver_bytes = sizeof driver};
    memcpy(c.core, &core, sizeof core);
    memcpy(c.driver, &driver, sizeof driver);
    return plainly(w, &c);
}

static int spread_ready(struct worker* w, const struct base* b) {
    return spread_qp(w, b, 1, 0);
}

static int spread_ended(struct worker* w, const struct base* b) {
    return spread_qp(w, b, 2, 0);
}

static int spread_port(struct worker* w, const struct base* b) {
    return spread_qp(w, b, 1, 1);
}

static int wq_in_table(struct worker* w, const struct base* b) {
    return destroy(w, K_WQ, b->wq);
}

static int rss_function(struct worker* w, const struct base* b) {
    struct mana_uapi_create_rss_qp driver = {
        .hash_function = 2, .key_length = MANA_UAPI_RSS_KEY_BYTES, .port = 1};
    struct ib_uverbs_ex_create_qp core = {.pd_handle = b->pd,
                                          .qp_type = IB_UVERBS_QPT_RAW_PACKET,
                                          .comp_mask = IB_UVERBS_CREATE_QP_MASK_IND_TABLE,
                                          .rwq_ind_tbl_handle = b->table};
    struct command c = {.number = IB_USER_VERBS_EX_CMD_CREATE_QP,
                        .extended = true,
                        .core_bytes = sizeof core,
                        .answer_bytes = sizeof(struct ib_uverbs_ex_create_qp_resp),
                        .driver_bytes = sizeof driver};

    memcpy(c.core, &core, sizeof core);
    memcpy(c.driver, &driver, sizeof driver);
    return plainly(w, &c);
}

/* Of a type that has no table: the core leaves the CQs out. */
static int rc_with_table(struct worker* w, const struct base* b) {
    struct ib_uverbs_ex_create_qp core = qp_core(b, b->stock_cq);
    struct mana_uapi_create_qp driver = qp_extended(w);

    core.max_recv_wr = core.max_recv_sge = 0;
    core.comp_mask = IB_UVERBS_CREATE_QP_MASK_IND_TABLE;
    core.rwq_ind_tbl_handle = b->table;
    return make_qp(w, &core, &driver, sizeof driver);
}

/* -- what there is not */

/* A command whose structure is a handle behind `handle_at` bytes. */
static int absent(struct worker* w, uint32_t number, bool extended, uint32_t core_bytes,
                  uint32_t answer_bytes, uint32_t handle_at, uint32_t handle) {
    struct command c = {.number = number,
                        .extended = extended,
                        .core_bytes = core_bytes,
                        .answer_bytes = answer_bytes};

    memcpy(c.core + handle_at, &handle, sizeof handle);
    /* Of newer commands that are absent write() says EINVAL: it takes them for older ones. */
    return extended ? by_invoke(w, &c) : plainly(w, &c);
}

static int no_poll(struct worker* w, const struct base* b) {
    return absent(w, IB_USER_VERBS_CMD_POLL_CQ, false, sizeof(struct ib_uverbs_poll_cq),
                  sizeof(struct ib_uverbs_poll_cq_resp), 8, b->cq);
}

static int no_notify(struct worker* w, const struct base* b) {
    return absent(w, IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, false, sizeof(struct ib_uverbs_req_notify_cq),
                  0, 0, b->cq);
}

static int no_post_send(struct worker* w, const struct base* b) {
    return absent(w, IB_USER_VERBS_CMD_POST_SEND, false, sizeof(struct ib_uverbs_post_send), 4, 8,
                  b->qp);
}

static int no_post_recv(struct worker* w, const struct base* b) {
    return absent(w, IB_USER_VERBS_CMD_POST_RECV, false, sizeof(struct ib_uverbs_post_recv), 4, 8,
                  b->qp);
}

static int no_xrcd(struct worker* w, const struct base* b) {
    (void)b;
    return absent(w, IB_USER_VERBS_CMD_OPEN_XRCD, false, sizeof(struct ib_uverbs_open_xrcd), 4, 8,
                  0);
}

static int no_moderation(struct worker* w, const struct base* b) {
    return absent(w, IB_USER_VERBS_EX_CMD_MODIFY_CQ, true, sizeof(struct ib_uverbs_ex_modify_cq), 0,
                  0, b->cq);
}

static int multicast(struct worker* w, uint32_t number, uint32_t qp, uint16_t lid) {
    struct ib_uverbs_attach_mcast core = {
        .qp_handle = qp, .mlid = lid, .gid = {[10] = 0xff, [11] = 0xff, [12] = 224, [15] = 9}};
    struct command c = {.number = number, .core_bytes = sizeof core};

    memcpy(c.core, &core, sizeof core);
    return plainly(w, &c);
}

/* To the core two groups, to the device one: the QP could not go, nor its process without a warning
 * and objects that others still listed. */
static int group_twice(struct worker* w, const struct base* b) {
    int err = qp_of_type(w, b, IB_UVERBS_QPT_UD);
    uint32_t qp = answered(w, 0);

    for (uint16_t lid = 0; !err && lid < 2; lid++)
        err = multicast(w, IB_USER_VERBS_CMD_ATTACH_MCAST, qp, lid);
    for (uint16_t lid = 0; !err && lid < 2; lid++)
        err = multicast(w, IB_USER_VERBS_CMD_DETACH_MCAST, qp, lid);
    return err ? err : destroy(w, K_QP, qp);
}

/* The core looks for the way to the address, before the driver is asked. */
static int address_handle(struct worker* w, const struct base* b, const uint8_t address[4]) {
    struct ib_uverbs_create_ah core = {
        .pd_handle = b->pd,
        .attr = {.is_global = 1,
                 .port_num = 1,
                 .grh = {.sgid_index = 1, .hop_limit = 64, .dgid = {[10] = 0xff, [11] = 0xff}}}};
    struct command c = {.number = IB_USER_VERBS_CMD_CREATE_AH,
                        .core_bytes = sizeof core,
                        .answer_bytes = sizeof(struct ib_uverbs_create_ah_resp),
                        .driver_answer_bytes = sizeof(struct mana_uapi_create_ah_resp)};

    memcpy(core.attr.grh.dgid + 12, address, 4);
    memcpy(c.core, &core, sizeof core);
    return plainly(w, &c);
}

static int ah_peer(struct worker* w, const struct base* b) {
    return address_handle(w, b, (uint8_t[]){10, 0, 0, 1});
}

static int ah_multicast(struct worker* w, const struct base* b) {
    return address_handle(w, b, (uint8_t[]){224, 0, 0, 9});
}

static int ah_nobody(struct worker* w, const struct base* b) {
    return address_handle(w, b, (uint8_t[]){0, 0, 0, 0});
}

static int context_twice(struct worker* w, const struct base* b) {
    struct command c = {.number = IB_USER_VERBS_CMD_GET_CONTEXT,
                        .core_bytes = sizeof(struct ib_uverbs_get_context),
                        .answer_bytes = sizeof(struct ib_uverbs_get_context_resp)};

    (void)b;
    return plainly(w, &c);
}

static int map_of(struct worker* w, size_t bytes, int how, off_t offset) {
    void* at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, how, w->process->fd, offset);

    if (at == MAP_FAILED) return errno;
    munmap(at, bytes);
    return 0;
}

static int map_one(struct worker* w, const struct base* b) {
    (void)b;
    return map_of(w, PAGE, MAP_SHARED, 0);
}

static int map_two(struct worker* w, const struct base* b) {
    (void)b;
    return map_of(w, 2 * PAGE, MAP_SHARED, 0);
}

static int map_other(struct worker* w, const struct base* b) {
    (void)b;
    return map_of(w, PAGE, MAP_SHARED, PAGE);
}

static int map_private(struct worker* w, const struct base* b) {
    (void)b;
    return map_of(w, PAGE, MAP_PRIVATE, 0);
}

/* -- what a process asks that has another's context */

static int query_context(struct worker* w, uint32_t bytes) {
    struct method m;

    w->spoilt = false;
    memset(w->out, 0xff, 512);
    begin(&m, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT);
    add(&m, MANA_UAPI_ATTR_QUERY_CONTEXT_RESP, bytes, (uintptr_t)w->out);
    return by_method(w, &m);
}

static int query_pd(struct worker* w, uint32_t handle) {
    struct method m;

    w->spoilt = false;
    begin(&m, UVERBS_OBJECT_PD, MANA_UAPI_METHOD_QUERY_PD);
    add_handle(&m, MANA_UAPI_ATTR_QUERY_PD_HANDLE, handle);
    return by_method(w, &m);
}

static int query_mr(struct worker* w, uint32_t handle) {
    struct method m;

    w->spoilt = false;
    begin(&m, UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR);
    add_handle(&m, UVERBS_ATTR_QUERY_MR_HANDLE, handle);
    add(&m, UVERBS_ATTR_QUERY_MR_RESP_LKEY, 4, (uintptr_t)w->out);
    add(&m, UVERBS_ATTR_QUERY_MR_RESP_RKEY, 4, (uintptr_t)w->out + 8);
    add(&m, UVERBS_ATTR_QUERY_MR_RESP_LENGTH, 8, (uintptr_t)w->out + 16);
    return by_method(w, &m);
}

static int query_dm(struct worker* w, uint32_t handle, uint32_t bytes) {
    struct method m;

    w->spoilt = false;
    begin(&m, UVERBS_OBJECT_DM, MANA_UAPI_METHOD_QUERY_DM);
    add_handle(&m, MANA_UAPI_ATTR_QUERY_DM_HANDLE, handle);
    add(&m, MANA_UAPI_ATTR_QUERY_DM_LENGTH, bytes, (uintptr_t)w->out);
    return by_method(w, &m);
}

/* The same as the owner was told. */
static int context_again(struct worker* w, const struct base* b) {
    const struct mana_uapi_context_resp* told = &w->process->context;
    int err = query_context(w, sizeof *told);

    (void)b;
    return err ? err : memcmp(w->out, told, sizeof *told) ? EPROTO : 0;
}

/* A newer provider knows more: what this driver does not say is zero. */
static int context_longer(struct worker* w, const struct base* b) {
    const struct mana_uapi_context_resp* told = &w->process->context;
    int err = query_context(w, sizeof *told + 8);

    (void)b;
    if (err) return err;
    if (memcmp(w->out, told, sizeof *told) || answered(w, sizeof *told)) return EPROTO;
    return w->out[sizeof *told + 8] == 0xff ? 0 : EPROTO;
}

/* An older one has room for less. */
static int context_shorter(struct worker* w, const struct base* b) {
    int err = query_context(w, 16);

    (void)b;
    if (err) return err;
    return memcmp(w->out, &w->process->context, 16) || w->out[16] != 0xff ? EPROTO : 0;
}

static int context_no_room(struct worker* w, const struct base* b) {
    (void)b;
    return query_context(w, 0);
}

static int context_in_hole(struct worker* w, const struct base* b) {
    struct method m;

    (void)b;
    w->spoilt = false;
    begin(&m, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT);
    add(&m, MANA_UAPI_ATTR_QUERY_CONTEXT_RESP, sizeof(struct mana_uapi_context_resp),
        (uintptr_t)w->process->hole);
    return by_method(w, &m);
}

/* What a new context is answered, in so many bytes of the driver's. */
static int context_told(struct worker* w, uint32_t bytes, const void* expected) {
    static struct process another;
    struct worker there = *w;
    uint8_t* at = w->out + sizeof(struct ib_uverbs_get_context_resp);
    int err;

    memset(w->out, 0xa5, 512);
    another.fd = open(device_path, O_RDWR | O_CLOEXEC);
    there.process = &another;
    err = another.fd < 0 ? EPROTO : get_context(&there, bytes);
    if (!err && (memcmp(at, expected, bytes) || at[bytes] != 0xa5)) err = EUCLEAN;
    close(another.fd);
    if (another.async_fd > 0) close(another.async_fd);
    another.async_fd = 0;
    return err;
}

/* That of rdma-core 65 takes the first 8 bytes for a mask of what the stock driver can. */
static int context_of_stock(struct worker* w, const struct base* b) {
    static const uint8_t zero[MANA_UAPI_CONTEXT_STOCK_BYTES];

    (void)b;
    return context_told(w, sizeof zero, zero);
}

static int context_of_older(struct worker* w, const struct base* b) {
    (void)b;
    return context_told(w, 16, &w->process->context);
}

/* A file that has no context yet. */
static int context_none(struct worker* w, const struct base* b) {
    struct process* p = w->process;
    int fd = p->fd;
    int err;

    (void)b;
    p->fd = open(device_path, O_RDWR);
    err = query_context(w, sizeof p->context);
    close(p->fd);
    p->fd = fd;
    return err;
}

static int pd_there(struct worker* w, const struct base* b) {
    return query_pd(w, b->pd);
}

static int pd_nowhere(struct worker* w, const struct base* b) {
    (void)b;
    return query_pd(w, 0x7fffff);
}

static int pd_other_kind(struct worker* w, const struct base* b) {
    return query_pd(w, b->mr);
}

static int mr_other_kind(struct worker* w, const struct base* b) {
    return query_mr(w, b->pd);
}

static int dm_nowhere(struct worker* w, const struct base* b) {
    (void)b;
    return query_dm(w, 0x7fffff, 8);
}

static int dm_other_kind(struct worker* w, const struct base* b) {
    return query_dm(w, b->pd, 8);
}

static int dm_no_room(struct worker* w, const struct base* b) {
    return query_dm(w, b->pd, 0);
}

/* A PD and an MR. By ioctl(): write() is for the process alone that opened the file. */
static int make_pd_and_mr(struct worker* w, uint32_t* pd, uint32_t* mr) {
    struct command alloc = {.number = IB_USER_VERBS_CMD_ALLOC_PD,
                            .core_bytes = sizeof(struct ib_uverbs_alloc_pd),
                            .answer_bytes = sizeof(struct ib_uverbs_alloc_pd_resp)};
    struct command reg = {.number = IB_USER_VERBS_CMD_REG_MR,
                          .core_bytes = sizeof(struct ib_uverbs_reg_mr),
                          .answer_bytes = sizeof(struct ib_uverbs_reg_mr_resp)};
    struct ib_uverbs_reg_mr core = {.start = (uintptr_t)w->process->arena,
                                    .length = PAGE,
                                    .hca_va = (uintptr_t)w->process->arena,
                                    .access_flags = 7};
    int err;

    w->spoilt = false;
    err = by_invoke(w, &alloc);
    *pd = core.pd_handle = answered(w, 0);
    memcpy(reg.core, &core, sizeof core);
    if (!err) err = by_invoke(w, &reg);
    *mr = answered(w, 0);
    return err;
}

/* The same by a child that is gone then: through the file that it has from us, or its own. */
static int of_child(struct worker* w, bool own_file, uint32_t* pd, uint32_t* mr) {
    struct {
        int err;
        uint32_t pd, mr;
    } said = {.err = EPROTO};
    int ends[2];
    pid_t child;

    if (pipe(ends)) return EPROTO;
    child = fork();
    if (!child) {
        struct process* p = w->process;

        if (own_file) p->fd = open(device_path, O_RDWR);
        said.err = own_file ? get_context(w, sizeof p->context) : 0;
        /* Handles are small numbers: these shall be none of ours. */
        for (int i = 0; own_file && i < 200 && !said.err; i++)
            said.err = make_pd_and_mr(w, &said.pd, &said.mr);
        if (!said.err) said.err = make_pd_and_mr(w, &said.pd, &said.mr);
        _exit(write(ends[1], &said, sizeof said) != sizeof said);
    }
    close(ends[1]);
    if (child < 0 || read(ends[0], &said, sizeof said) != sizeof said) said.err = EPROTO;
    close(ends[0]);
    waitpid(child, NULL, 0);
    *pd = said.pd;
    *mr = said.mr;
    return said.err;
}

/* What a process made lives as long as the file, and is for all who have it. */
static int outlives_its_maker(struct worker* w, const struct base* b) {
    uint64_t length;
    uint32_t pd, mr;
    int err = of_child(w, false, &pd, &mr);

    (void)b;
    if (!err) err = query_pd(w, pd);
    if (!err) err = query_mr(w, mr);
    if (err) return err;
    memcpy(&length, w->out + 16, sizeof length);
    if (length != PAGE) return EPROTO;
    err = destroy(w, K_MR, mr);
    return err ? err : destroy(w, K_PD, pd);
}

static int of_another_file(struct worker* w, const struct base* b) {
    uint32_t pd, mr;
    int err = of_child(w, true, &pd, &mr);

    (void)b;
    if (!err && query_pd(w, pd) != ENOENT) err = EPROTO;
    return err ? err : query_mr(w, mr);
}

/* -- copies of device memory */

enum { DM_BYTES = 1 << 20 }; /* as much as there is at once */

static int make_dm(struct worker* w, uint64_t bytes, uint32_t* handle) {
    uint32_t alignment = 0;
    struct ib_uverbs_attr* attr;
    struct method m;
    int err;

    w->spoilt = false;
    begin(&m, UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC);
    attr = add_handle(&m, UVERBS_ATTR_ALLOC_DM_HANDLE, 0);
    add_in(&m, UVERBS_ATTR_ALLOC_DM_LENGTH, &bytes, sizeof bytes);
    add_in(&m, UVERBS_ATTR_ALLOC_DM_ALIGNMENT, &alignment, sizeof alignment);
    err = by_method(w, &m);
    *handle = (uint32_t)attr->data;
    return err;
}

/* Memory of ours, filled or zero. */
static uint8_t* plain_memory(size_t bytes, uint32_t seed) {
    uint8_t* at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED) exit(2);
    for (size_t i = 0; seed && i < bytes; i++)
        at[i] = (uint8_t)(i * 31 + (i >> 8) * 7 + (i >> 16) * 101 + seed);
    return at;
}

static int put_dm(struct worker* w, uint32_t dm, uint64_t offset, const void* from, size_t bytes) {
    return copy_dm(w, dm, offset, (uintptr_t)from, bytes, MANA_UAPI_COPY_TO_DM);
}

static int get_dm(struct worker* w, uint32_t dm, uint64_t offset, void* to, size_t bytes) {
    return copy_dm(w, dm, offset, (uintptr_t)to, bytes, MANA_UAPI_COPY_FROM_DM);
}

/* All of it at once, and bytes of it alone. */
static int dm_copied(struct worker* w, const struct base* b) {
    static const size_t lengths[] = {1, 2, 3, 4095, 4097, 65535, 65536, 65537, 131073, 500000};
    uint8_t* to = plain_memory(DM_BYTES + PAGE, 0);
    uint8_t* from = plain_memory(DM_BYTES, 1);
    uint32_t dm;
    int err = make_dm(w, DM_BYTES, &dm);

    (void)b;
    if (err) return err;
    err = get_dm(w, dm, 0, to, DM_BYTES);
    for (size_t i = 0; i < DM_BYTES && !err; i++)
        if (to[i]) err = EUCLEAN; /* of somebody before us */
    if (!err) err = put_dm(w, dm, 0, from, DM_BYTES);
    if (!err) err = get_dm(w, dm, 0, to + 5, DM_BYTES);
    if (!err && (memcmp(to + 5, from, DM_BYTES) || to[4] || to[5 + DM_BYTES])) err = EUCLEAN;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths && !err; i++) {
        size_t bytes = lengths[i], offset = i % 2 ? DM_BYTES - bytes : 7 * i + 1;

        for (size_t k = 0; k < bytes; k++) from[offset + k] ^= 0x5a;
        err = put_dm(w, dm, offset, from + offset, bytes);
        memset(to, 0, DM_BYTES + PAGE);
        if (!err) err = get_dm(w, dm, offset, to + 1, bytes);
        if (!err && (memcmp(to + 1, from + offset, bytes) || to[0] || to[1 + bytes])) err = EUCLEAN;
        if (!err) err = get_dm(w, dm, 0, to, DM_BYTES);
        if (!err && memcmp(to, from, DM_BYTES)) err = EUCLEAN;
    }
    munmap(to, DM_BYTES + PAGE);
    munmap(from, DM_BYTES);
    return destroy(w, K_DM, dm) ? EPROTO : err;
}

/* One copy of memory of 100 bytes. */
static int dm_copy_of(struct worker* w, uint64_t offset, uint64_t address, uint64_t bytes,
                      uint32_t direction) {
    uint32_t dm;
    int err = make_dm(w, 100, &dm);

    if (err) return EPROTO;
    err = copy_dm(w, dm, offset, address, bytes, direction);
    return destroy(w, K_DM, dm) ? EPROTO : err;
}

static int dm_copy_nothing(struct worker* w, const struct base* b) {
    (void)b;
    return dm_copy_of(w, 100, (uintptr_t)w->process->hole, 0, MANA_UAPI_COPY_TO_DM);
}

static int dm_copy_beyond(struct worker* w, const struct base* b) {
    (void)b;
    return dm_copy_of(w, 97, (uintptr_t)w->process->arena, 4, MANA_UAPI_COPY_TO_DM);
}

static int dm_copy_behind(struct worker* w, const struct base* b) {
    (void)b;
    return dm_copy_of(w, 101, (uintptr_t)w->process->arena, 0, MANA_UAPI_COPY_FROM_DM);
}

static int dm_copy_wraps(struct worker* w, const struct base* b) {
    (void)b;
    return dm_copy_of(w, ~0ull, (uintptr_t)w->process->arena, 2, MANA_UAPI_COPY_FROM_DM);
}

static int dm_copy_all_bits(struct worker* w, const struct base* b) {
    (void)b;
    return dm_copy_of(w, 1, (uintptr_t)w->process->arena, ~0ull, MANA_UAPI_COPY_TO_DM);
}

static int dm_copy_nowhere(struct worker* w, const struct base* b) {
    (void)b;
    return dm_copy_of(w, 0, (uintptr_t)w->process->arena, 4, 2);
}

static int dm_copy_of_hole(struct worker* w, const struct base* b) {
    (void)b;
    return dm_copy_of(w, 0, (uintptr_t)w->process->hole, 4, MANA_UAPI_COPY_TO_DM);
}

static int dm_copy_into_hole(struct worker* w, const struct base* b) {
    (void)b;
    return dm_copy_of(w, 0, (uintptr_t)w->process->hole, 4, MANA_UAPI_COPY_FROM_DM);
}

static int dm_copy_into_readonly(struct worker* w, const struct base* b) {
    (void)b;
    return dm_copy_of(w, 0, (uintptr_t)w->process->readonly, 4, MANA_UAPI_COPY_FROM_DM);
}

static int dm_copy_of_kernel(struct worker* w, const struct base* b) {
    (void)b;
    return dm_copy_of(w, 0, 0xffff888000000000u, 64, MANA_UAPI_COPY_TO_DM);
}

static int dm_copy_into_kernel(struct worker* w, const struct base* b) {
    (void)b;
    return dm_copy_of(w, 0, 0xffff888000000000u, 64, MANA_UAPI_COPY_FROM_DM);
}

/* Large, and the memory ends in the middle. */
static int dm_copy_half(struct worker* w, const struct base* b) {
    uint8_t* from = plain_memory(DM_BYTES, 3);
    uint32_t dm;
    int err = make_dm(w, DM_BYTES, &dm);

    (void)b;
    if (err) return EPROTO;
    munmap(from + DM_BYTES / 2, DM_BYTES / 2);
    err = put_dm(w, dm, 0, from, DM_BYTES);
    munmap(from, DM_BYTES / 2);
    return destroy(w, K_DM, dm) ? EPROTO : err;
}

static int dm_copy_none(struct worker* w, const struct base* b) {
    (void)b;
    w->spoilt = false;
    return put_dm(w, 0x7fffff, 0, w->process->arena, 4);
}

static int dm_copy_other_kind(struct worker* w, const struct base* b) {
    w->spoilt = false;
    return put_dm(w, b->pd, 0, w->process->arena, 4);
}

static int dm_copy_freed(struct worker* w, const struct base* b) {
    uint32_t dm;

    (void)b;
    if (make_dm(w, 100, &dm) || destroy(w, K_DM, dm)) return EPROTO;
    return get_dm(w, dm, 0, w->process->arena, 4);
}

/* Through another context of the device. */
static int dm_copy_other(struct worker* w, const struct base* b) {
    static struct process another;
    struct worker there = *w;
    uint32_t dm;
    char path[32];
    int err;

    (void)b;
    if (make_dm(w, 64, &dm)) return EPROTO;
    snprintf(path, sizeof path, "/proc/self/fd/%d", w->process->fd);
    another.fd = open(path, O_RDWR | O_CLOEXEC);
    there.process = &another;
    err = another.fd < 0 || get_context(&there, sizeof another.context)
              ? EPROTO
              : get_dm(&there, dm, 0, w->process->arena, 4);
    close(another.fd);
    close(another.async_fd);
    return destroy(w, K_DM, dm) ? EPROTO : err;
}

/* Several processes, each with a part of one memory, of uneven size. */
static int dm_copy_processes(struct worker* w, const struct base* b) {
    enum { PROCESSES = 4, PART = 150001, ROUNDS = 20 };
    pid_t children[PROCESSES];
    uint32_t dm;
    int status, err = make_dm(w, PROCESSES * PART, &dm);

    (void)b;
    if (err) return err;
    for (uint32_t number = 0; number < PROCESSES; number++) {
        children[number] = fork();
        if (children[number]) continue;
        uint8_t* to = plain_memory(PART, 0);
        for (uint32_t round = 0; round < ROUNDS && !err; round++) {
            uint8_t* from = plain_memory(PART, number * ROUNDS + round + 1);
            err = put_dm(w, dm, number * PART, from, PART);
            if (!err) err = get_dm(w, dm, number * PART, to, PART);
            if (!err && memcmp(from, to, PART)) err = EUCLEAN;
            munmap(from, PART);
        }
        _exit(err);
    }
    for (uint32_t number = 0; number < PROCESSES; number++) {
        if (children[number] < 0 || waitpid(children[number], &status, 0) < 0) err = EPROTO;
        if (!err && status) err = WIFEXITED(status) ? WEXITSTATUS(status) : EPROTO;
    }
    return destroy(w, K_DM, dm) ? EPROTO : err;
}

static int dm_huge(struct worker* w, const struct base* b) {
    (void)b;
    return dm_of(w, DM_BYTES + 1, 0);
}

static const struct known known_cases[] = {
    {"a context as it was made", context_again, 0, ANY},
    {"a context with room for more", context_longer, 0, ANY},
    {"a context with room for less", context_shorter, 0, ANY},
    {"a context without room for the answer", context_no_room, EINVAL, ANY},
    {"a context whose answer goes where no memory is", context_in_hole, EFAULT, ANY},
    {"a context of the stock provider", context_of_stock, 0, ANY},
    {"a context of an older provider of ours", context_of_older, 0, ANY},
    {"a context that is none", context_none, EINVAL, ANY},
    {"a PD to be imported", pd_there, 0, ANY},
    {"a PD to be imported that is none", pd_nowhere, ENOENT, ANY},
    {"an MR to be imported as a PD", pd_other_kind, EINVAL, ANY},
    {"a PD to be imported as an MR", mr_other_kind, EINVAL, ANY},
    {"device memory to be imported that is none", dm_nowhere, ENOENT, RDMA},
    {"a PD to be imported as device memory", dm_other_kind, EINVAL, RDMA},
    {"device memory to be imported without room for the answer", dm_no_room, EINVAL, RDMA},
    {"objects whose maker is gone", outlives_its_maker, 0, ANY},
    {"objects of another file", of_another_file, ENOENT, ANY},
    {"a second context", context_twice, EINVAL, ANY},
    {"the doorbell page, mapped", map_one, 0, ANY},
    {"two doorbell pages", map_two, EINVAL, ANY},
    {"a doorbell page of another", map_other, EINVAL, ANY},
    {"a doorbell page to oneself", map_private, EINVAL, ANY},
    {"a CQ of no entries", cq_none, EINVAL, ANY},
    {"a CQ of too many entries", cq_huge, EINVAL, ANY},
    {"a CQ whose size is no power of two", cq_uneven, EINVAL, RDMA},
    {"a CQ with an unknown flag", cq_unknown_flag, EOPNOTSUPP, ANY},
    {"a CQ with an unknown flag of the core", cq_unknown_core_flag, EOPNOTSUPP, ANY},
    {"a CQ with a reserved field in use", cq_reserved, EOPNOTSUPP, RDMA},
    {"a CQ without the driver's part", cq_no_payload, EINVAL, ANY},
    {"a CQ with a longer driver's part, zero", cq_longer, 0, RDMA},
    {"a CQ with a longer driver's part, in use", cq_longer_used, EOPNOTSUPP, ANY},
    {"a CQ with room for a longer answer", cq_answer_longer, 0, ANY},
    {"a PD with a driver's part, zero", pd_zero_part, 0, ANY},
    {"a PD with room for an answer", pd_answer, 0, ANY},
    {"a PD with a driver's part, in use", pd_used_part, EOPNOTSUPP, ANY},
    {"an MR with a driver's part, in use", mr_used_part, EOPNOTSUPP, ANY},
    {"a memory window with a driver's part, in use", mw_used_part, EOPNOTSUPP, RDMA},
    {"a limit with a driver's part, in use", srq_used_part, EOPNOTSUPP, RDMA},
    {"a state with a driver's part, in use", qp_used_part, EOPNOTSUPP, RDMA},
    {"a CQ in the middle of a page", cq_odd_address, EINVAL, RDMA},
    {"a CQ where no memory is", cq_in_hole, EFAULT, RDMA},
    {"a CQ in memory that may be read only", cq_read_only, EFAULT, RDMA},
    {"a CQ resized", resize_right, 0, RDMA},
    {"a CQ of the public format resized", resize_stock, EOPNOTSUPP, RDMA},
    {"a CQ resized to no entries", resize_none, EINVAL, RDMA},
    {"a CQ resized to more than its ring", resize_below, EINVAL, RDMA},
    {"a CQ resized with a reserved field in use", resize_reserved, EOPNOTSUPP, RDMA},
    {"a QP with too short a driver's part", qp_short_payload, EINVAL, RDMA},
    {"a QP with a reserved field in use", qp_reserved, EOPNOTSUPP, RDMA},
    {"a QP with a queue of no bytes", qp_empty_queue, EINVAL, RDMA},
    {"a QP with a CQ of the other format", qp_wrong_cq, EINVAL, RDMA},
    {"a QP without a CQ", qp_no_cq, ENOENT, RDMA},
    {"an XRC QP", qp_xrc, EOPNOTSUPP, RDMA},
    {"a QP of the driver's own type", qp_driver, EOPNOTSUPP, RDMA},
    {"a GSI QP", qp_gsi, EINVAL, RDMA},
    {"a QP whose ring is no power of two", qp_uneven, EINVAL, RDMA},
    {"a QP with flags", qp_flags, EOPNOTSUPP, RDMA},
    {"a QP of the public format with an SRQ", qp_stock_shared, EOPNOTSUPP, RDMA},
    {"a QP that is too deep", qp_deep, EINVAL, RDMA},
    {"a QP that leaps to RTS", modify_leap, EINVAL, RDMA},
    {"a QP in a state that is none", modify_no_state, EINVAL, RDMA},
    {"a QP whose path migrates", modify_migration, EOPNOTSUPP, RDMA},
    {"a QP with another size", modify_size, EOPNOTSUPP, RDMA},
    {"a QP with the longest times and most retries", path_at_limits, 0, ADDRESS},
    {"a QP with a timeout of 6 bits", path_timeout, EINVAL, ADDRESS},
    {"a QP with 8 retries", path_retries, EINVAL, ADDRESS},
    {"a QP with 8 retries of a receiver that is not ready", path_rnr_retries, EINVAL, ADDRESS},
    {"a QP with a receiver's timer of 6 bits", path_rnr_timer, EINVAL, ADDRESS},
    {"a QP with an MTU that there is not", path_mtu, EINVAL, ADDRESS},
    {"a QP that is drained twice, and tells of it once", drain_told_once, 0, ADDRESS},
    {"a QP with a rate limit", modify_rate, EOPNOTSUPP, RDMA},
    {"a PD that goes before its objects", qp_in_use_pd, EBUSY, RDMA},
    {"an SRQ without stride", srq_no_stride, EINVAL, RDMA},
    {"an SRQ with more receives than room", srq_too_many, EINVAL, RDMA},
    {"an SRQ made with a limit", srq_made_with_limit, 0, RDMA},
    {"an SRQ that matches tags", srq_tags, EOPNOTSUPP, RDMA},
    {"an SRQ with another size", srq_size, EOPNOTSUPP, RDMA},
    {"an SRQ with a limit beyond its size", srq_limit, EINVAL, RDMA},
    {"an MR with paging on demand", mr_on_demand, EOPNOTSUPP, ANY},
    {"an MR that may be flushed", mr_flush, EOPNOTSUPP, ANY},
    {"an MR where no memory is", mr_hole, EFAULT, ANY},
    {"an MR across the end of the address space", mr_beyond, EINVAL, ANY},
    {"an MR of no bytes", mr_empty, EINVAL, ANY},
    {"an MR for remote writes alone", mr_rights, EINVAL, ANY},
    {"a memory window of type 3", mw_of_type, EINVAL, RDMA},
    {"device memory of no bytes", dm_empty, EINVAL, RDMA},
    {"device memory with an alignment of 2^200", dm_alignment, EINVAL, RDMA},
    {"more device memory than there is at once", dm_huge, EINVAL, RDMA},
    {"device memory, copied to and from", dm_copied, 0, RDMA},
    {"a copy of no bytes at the end of device memory", dm_copy_nothing, 0, RDMA},
    {"a copy beyond device memory", dm_copy_beyond, EINVAL, RDMA},
    {"a copy of no bytes behind device memory", dm_copy_behind, EINVAL, RDMA},
    {"a copy whose end wraps", dm_copy_wraps, EINVAL, RDMA},
    {"a copy of 2^64 - 1 bytes", dm_copy_all_bits, EINVAL, RDMA},
    {"a copy in no direction", dm_copy_nowhere, EINVAL, RDMA},
    {"a copy of what is not there to device memory", dm_copy_of_hole, EFAULT, RDMA},
    {"a copy of device memory to where nothing is", dm_copy_into_hole, EFAULT, RDMA},
    {"a copy of device memory to what is for reading", dm_copy_into_readonly, EFAULT, RDMA},
    {"a copy of the kernel's memory", dm_copy_of_kernel, EFAULT, RDMA},
    {"a copy to the kernel's memory", dm_copy_into_kernel, EFAULT, RDMA},
    {"a copy of memory that ends in the middle", dm_copy_half, EFAULT, RDMA},
    {"a copy to device memory that is none", dm_copy_none, ENOENT, RDMA},
    {"a copy to a PD", dm_copy_other_kind, EINVAL, RDMA},
    {"a copy of device memory that has ended", dm_copy_freed, ENOENT, RDMA},
    {"a copy of another's device memory", dm_copy_other, ENOENT, RDMA},
    {"copies of several processes at once", dm_copy_processes, 0, RDMA},
    {"a WQ with a state", wq_state, EOPNOTSUPP, RAW},
    {"a WQ that goes before its table", wq_in_table, EBUSY, RAW},
    {"a WQ with a data path, from beginning to end", packet_wq_life, 0, RDMA},
    {"a WQ with a data path, back to RESET", packet_wq_back, EOPNOTSUPP, RDMA},
    {"a WQ with a data path whose ring is no power of two", packet_wq_uneven, EINVAL, RDMA},
    {"a WQ with a data path and direct verbs", packet_wq_of_both, EOPNOTSUPP, RDMA},
    {"an RSS QP with a data path", spread_ready, 0, RDMA},
    {"an RSS QP over a WQ that has ended", spread_ended, EINVAL, RDMA},
    {"an RSS QP with a data path and a port", spread_port, EOPNOTSUPP, RDMA},
    {"an RSS QP with another hash function", rss_function, EOPNOTSUPP, RAW},
    {"an RC QP with a table of WQs", rc_with_table, EINVAL, RAW},
    {"a QP twice in a multicast group", group_twice, 0, RDMA},
    {"an AH of the other guest", ah_peer, 0, ADDRESS},
    {"an AH of a multicast group", ah_multicast, 0, ADDRESS},
    {"an AH of the address 0.0.0.0", ah_nobody, ENODEV, ADDRESS},
    {"a CQ polled by the kernel", no_poll, EOPNOTSUPP, ANY},
    {"a CQ armed by the kernel", no_notify, EOPNOTSUPP, ANY},
    {"sends posted by the kernel", no_post_send, EOPNOTSUPP, ANY},
    {"receives posted by the kernel", no_post_recv, EOPNOTSUPP, ANY},
    {"an XRC domain", no_xrcd, EOPNOTSUPP, ANY},
    {"moderation of a CQ", no_moderation, EOPNOTSUPP, ANY},
};

/* What the cases start from. Returns 0, or the errno of what could not be made. */
static int make_base(struct worker* w, struct base* b, bool rdma) {
    struct ib_uverbs_ex_create_qp core;
    struct mana_uapi_create_qp driver;
    struct process* p = w->process;
    int err;

    err = get_context(w, sizeof p->context);
    if (err) return err;
    err = op_pd(w);
    b->pd = handle_of(atomic_load(&p->slots[K_PD][0]));
    if (!err) {
        err = mr_of(w, b, (uintptr_t)p->arena, PAGE, 7);
        b->mr = answered(w, 0);
    }
    if (!err && p->raw) {
        err = cq_with(w, 64, 0);
        b->ethernet_cq = b->cq = answered(w, 0);
        keep(w, K_CQ, b->ethernet_cq, F_ETHERNET);
        if (!err) err = direct_wq(w);
        b->wq = handle_of(atomic_load(&p->slots[K_WQ][0]));
        if (!err) err = op_table(w);
        b->table = handle_of(atomic_load(&p->slots[K_TABLE][0]));
    }
    if (err || !rdma) return err;
    err = cq_with(w, 64, MANA_UAPI_CQ_RNIC);
    b->stock_cq = answered(w, 0);
    if (err) return err;
    err = cq_with(w, 64, extended_cq);
    b->cq = answered(w, 0);
    if (err) return err;
    err = srq_of(w, b, 64, 64);
    b->srq = answered(w, 0);
    if (err) return err;
    core = qp_core(b, b->cq);
    driver = qp_extended(w);
    err = make_qp(w, &core, &driver, sizeof driver);
    b->qp = answered(w, 0);
    return err;
}

/* Returns how many cases have another errno than they must have. */
static uint32_t run_known(struct process* p, bool rdma) {
    struct worker w;
    struct base base = {0};
    uint32_t wrong = 0;
    uint32_t count = 0;
    int err;

    init_worker(&w, p, 7);
    err = make_base(&w, &base, rdma);
    if (err) {
        fprintf(stderr, "uverbs_fuzz: no objects for the known cases: %s\n", strerror(err));
        return 1;
    }
    for (size_t i = 0; i < sizeof known_cases / sizeof *known_cases; i++) {
        const struct known* k = &known_cases[i];

        if (k->where == RAW && !p->raw) continue;
        if ((k->where == RDMA || k->where == ADDRESS) && !rdma) continue;
        if (k->where == ADDRESS && p->raw) continue;
        w.spoilt = false;
        err = k->run(&w, &base);
        count++;
        if (err == k->expected) continue;
        fprintf(stderr, "uverbs_fuzz: %s: %s, expected %s\n", k->name,
                err ? strerrorname_np(err) : "done",
                k->expected ? strerrorname_np(k->expected) : "done");
        wrong++;
    }
    printf("%u known cases\n", count);
    return wrong;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPENMANA_UVERBS_RIGHT_H
#define OPENMANA_UVERBS_RIGHT_H

/*
 * Commands that are right, and changes that make one of them wrong. A known case is a right command
 * and the fields of it that are changed, or a function and its operands; both are a line of a table
 * (uverbs_known.h).
 */
#include "uverbs_ops.h"

enum { CHANGES = 6, OPERANDS = 6 };

/* Objects that the cases start from. `none` stays 0. */
struct base {
    uint32_t none, pd, cq, stock_cq, ethernet_cq, srq, qp, mr, table, wq;
};

/* A number of a case: itself, or how far into the process's memory it is, or an object's handle. */
struct operand {
    enum { NUMBER, ARENA_AT, READONLY_AT, HOLE_AT, HANDLE } from;
    uint64_t value; /* HANDLE: the offset in struct base */
};

#define N(number) \
    { NUMBER, (uint64_t)(number) }
#define IN_ARENA(offset) \
    { ARENA_AT, (offset) }
#define IN_READONLY \
    { READONLY_AT, 0 }
#define IN_HOLE \
    { HOLE_AT, 0 }
#define OF(object) \
    { HANDLE, offsetof(struct base, object) }

/* One field of a command, or the bytes of one of its parts. */
struct change {
    enum { NOTHING, CORE, PART, PART_BYTES, PART_ANSWER } what; /* PART: the driver's */
    uint16_t at, bytes;
    struct operand to;
};

#define FIELD(what, type, field, ...) \
    { what, offsetof(struct type, field), sizeof(((struct type*)0)->field), __VA_ARGS__ }

/* What a function of a case gets. */
struct trial {
    const struct base* base;
    uint64_t with[OPERANDS];
};

static uint64_t number_of(const struct worker* w, const struct base* b,
                          const struct operand* operand) {
    const struct process* p = w->process;
    uint32_t handle;

    switch (operand->from) {
        case ARENA_AT:
            return (uintptr_t)p->arena + operand->value;
        case READONLY_AT:
            return (uintptr_t)p->readonly + operand->value;
        case HOLE_AT:
            return (uintptr_t)p->hole + operand->value;
        case HANDLE:
            memcpy(&handle, (const uint8_t*)b + operand->value, sizeof handle);
            return handle;
        default:
            return operand->value;
    }
}

/* The machine is little-endian: a field's bytes are the first ones of the number. */
static void change_command(const struct worker* w, const struct base* b,
                           const struct change* change, struct command* c) {
    uint64_t number = number_of(w, b, &change->to);

    switch (change->what) {
        case CORE:
            memcpy(c->core + change->at, &number, change->bytes);
            break;
        case PART:
            memcpy(c->driver + change->at, &number, change->bytes);
            break;
        case PART_BYTES:
            c->driver_bytes = (uint32_t)number;
            break;
        case PART_ANSWER:
            c->driver_answer_bytes = (uint32_t)number;
            break;
        default:
            break;
    }
}

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

/* A command of a structure of the core's, whose answer has so many bytes. */
static struct command command_of(uint32_t number, bool extended, const void* core,
                                 uint32_t core_bytes, uint32_t answer_bytes) {
    struct command c = {.number = number,
                        .extended = extended,
                        .core_bytes = core_bytes,
                        .answer_bytes = answer_bytes};

    memcpy(c.core, core, core_bytes);
    return c;
}

/* Gives a command the driver's part. */
static void add_part(struct command* c, const void* part, uint32_t bytes, uint32_t answer_bytes) {
    memcpy(c->driver, part, bytes);
    c->driver_bytes = bytes;
    c->driver_answer_bytes = answer_bytes;
}

static uint64_t arena(const struct worker* w) {
    return (uintptr_t)w->process->arena;
}

/* -- right commands */

static struct command right_cq(const struct worker* w, const struct base* b) {
    struct ib_uverbs_ex_create_cq core = {.cqe = 64, .comp_channel = -1};
    struct mana_uapi_create_cq part = {.address = arena(w),
                                       .flags = MANA_UAPI_CQ_RNIC | MANA_UAPI_CQ_EXTENDED};
    struct command c = command_of(IB_USER_VERBS_EX_CMD_CREATE_CQ, true, &core, sizeof core,
                                  sizeof(struct ib_uverbs_ex_create_cq_resp));

    (void)b;
    add_part(&c, &part, sizeof part, sizeof(struct mana_uapi_create_cq_resp));
    return c;
}

static struct command right_resize(const struct worker* w, const struct base* b) {
    struct ib_uverbs_resize_cq core = {.cq_handle = b->cq, .cqe = 128};
    struct mana_uapi_resize_cq part = {.address = arena(w), .entries = 128};
    struct command c = command_of(IB_USER_VERBS_CMD_RESIZE_CQ, false, &core, sizeof core,
                                  sizeof(struct ib_uverbs_resize_cq_resp));

    add_part(&c, &part, sizeof part, sizeof(struct mana_uapi_resize_cq_resp));
    return c;
}

static struct command qp_of(const struct base* b, uint32_t cq) {
    struct ib_uverbs_ex_create_qp core = {.pd_handle = b->pd,
                                          .send_cq_handle = cq,
                                          .recv_cq_handle = cq,
                                          .max_send_wr = 16,
                                          .max_recv_wr = 16,
                                          .max_send_sge = 1,
                                          .max_recv_sge = 1};

    core.qp_type = IB_UVERBS_QPT_RC;
    return command_of(IB_USER_VERBS_EX_CMD_CREATE_QP, true, &core, sizeof core,
                      sizeof(struct ib_uverbs_ex_create_qp_resp));
}

/* Of the extended format. */
static struct command right_qp(const struct worker* w, const struct base* b) {
    struct mana_uapi_create_qp part = {
        .buffer = arena(w), .sq_bytes = PAGE, .rq_bytes = PAGE, .rq_stride = 64};
    struct command c = qp_of(b, b->cq);

    add_part(&c, &part, sizeof part, sizeof(struct mana_uapi_create_qp_resp));
    return c;
}

static struct command right_stock_qp(const struct worker* w, const struct base* b) {
    struct mana_uapi_create_qp part = {0};
    struct command c = qp_of(b, b->stock_cq);

    for (int i = 0; i < MANA_UAPI_QP_QUEUES; i++) {
        part.address[i] = arena(w) + (uint32_t)i * PAGE;
        part.bytes[i] = PAGE;
    }
    add_part(&c, &part, sizeof part, sizeof(struct mana_uapi_create_qp_resp));
    return c;
}

static struct command right_rss_qp(const struct worker* w, const struct base* b) {
    struct ib_uverbs_ex_create_qp core = {.pd_handle = b->pd,
                                          .qp_type = IB_UVERBS_QPT_RAW_PACKET,
                                          .comp_mask = IB_UVERBS_CREATE_QP_MASK_IND_TABLE,
                                          .rwq_ind_tbl_handle = b->table};
    struct mana_uapi_create_rss_qp part = {
        .hash_function = MANA_UAPI_RSS_TOEPLITZ, .key_length = MANA_UAPI_RSS_KEY_BYTES, .port = 1};
    struct command c = command_of(IB_USER_VERBS_EX_CMD_CREATE_QP, true, &core, sizeof core,
                                  sizeof(struct ib_uverbs_ex_create_qp_resp));

    (void)w;
    add_part(&c, &part, sizeof part, 0);
    return c;
}

/* To INIT. */
static struct command right_modify(const struct worker* w, const struct base* b) {
    struct ib_uverbs_ex_modify_qp core = {.base = {.qp_handle = b->qp,
                                                   .attr_mask = 1,
                                                   .qp_state = 1,
                                                   .port_num = 1,
                                                   .alt_port_num = 1,
                                                   .dest = {.port_num = 1, .is_global = 1},
                                                   .alt_dest = {.port_num = 1, .is_global = 1}}};

    (void)w;
    return command_of(IB_USER_VERBS_EX_CMD_MODIFY_QP, true, &core, sizeof core,
                      sizeof(struct ib_uverbs_ex_modify_qp_resp));
}

/* To ERR, by the older command. */
static struct command right_older_modify(const struct worker* w, const struct base* b) {
    struct ib_uverbs_modify_qp core = {.qp_handle = b->qp, .attr_mask = 1, .qp_state = 6};

    (void)w;
    return command_of(IB_USER_VERBS_CMD_MODIFY_QP, false, &core, sizeof core, 0);
}

static struct command right_srq(const struct worker* w, const struct base* b) {
    struct ib_uverbs_create_srq core = {.pd_handle = b->pd, .max_wr = 16, .max_sge = 1};
    struct mana_uapi_create_srq part = {.buffer = arena(w), .ring_bytes = PAGE, .stride = 64};
    struct command c = command_of(IB_USER_VERBS_CMD_CREATE_SRQ, false, &core, sizeof core,
                                  sizeof(struct ib_uverbs_create_srq_resp));

    add_part(&c, &part, sizeof part, sizeof(struct mana_uapi_create_srq_resp));
    return c;
}

/* With matching of tags, which there is not. */
static struct command tag_srq(const struct worker* w, const struct base* b) {
    struct ib_uverbs_create_xsrq core = {
        .srq_type = 2, .pd_handle = b->pd, .max_wr = 16, .max_sge = 1, .cq_handle = b->cq};

    (void)w;
    return command_of(IB_USER_VERBS_CMD_CREATE_XSRQ, false, &core, sizeof core,
                      sizeof(struct ib_uverbs_create_srq_resp));
}

/* A limit of 1. */
static struct command right_modify_srq(const struct worker* w, const struct base* b) {
    struct ib_uverbs_modify_srq core = {
        .srq_handle = b->srq, .attr_mask = 2, .max_wr = 32, .srq_limit = 1};

    (void)w;
    return command_of(IB_USER_VERBS_CMD_MODIFY_SRQ, false, &core, sizeof core, 0);
}

/* For local writes. */
static struct command right_mr(const struct worker* w, const struct base* b) {
    struct ib_uverbs_reg_mr core = {.start = arena(w),
                                    .length = PAGE,
                                    .hca_va = arena(w),
                                    .pd_handle = b->pd,
                                    .access_flags = 1};

    return command_of(IB_USER_VERBS_CMD_REG_MR, false, &core, sizeof core,
                      sizeof(struct ib_uverbs_reg_mr_resp));
}

static struct command right_mw(const struct worker* w, const struct base* b) {
    struct ib_uverbs_alloc_mw core = {.pd_handle = b->pd, .mw_type = 1};

    (void)w;
    return command_of(IB_USER_VERBS_CMD_ALLOC_MW, false, &core, sizeof core,
                      sizeof(struct ib_uverbs_alloc_mw_resp));
}

static struct command right_pd(const struct worker* w, const struct base* b) {
    struct ib_uverbs_alloc_pd core = {0};

    (void)w;
    (void)b;
    return command_of(IB_USER_VERBS_CMD_ALLOC_PD, false, &core, sizeof core,
                      sizeof(struct ib_uverbs_alloc_pd_resp));
}

/* The end of the PD that everything else is in. */
static struct command end_of_pd(const struct worker* w, const struct base* b) {
    struct ib_uverbs_dealloc_pd core = {.pd_handle = b->pd};

    (void)w;
    return command_of(IB_USER_VERBS_CMD_DEALLOC_PD, false, &core, sizeof core, 0);
}

/* A second one, for the file has one. */
static struct command another_context(const struct worker* w, const struct base* b) {
    struct ib_uverbs_get_context core = {0};

    (void)w;
    (void)b;
    return command_of(IB_USER_VERBS_CMD_GET_CONTEXT, false, &core, sizeof core,
                      sizeof(struct ib_uverbs_get_context_resp));
}

/* With a data path. */
static struct command right_packet_wq(const struct worker* w, const struct base* b) {
    const struct mana_uapi_create_wq part = {
        .recv = {.address = arena(w), .cq_address = arena(w) + PAGE, .bytes = PAGE, .cqes = 64}};

    return wq_command(b->pd, b->cq, &part);
}

/* A queue of packets to RDY. */
static struct command right_modify_wq(const struct worker* w, const struct base* b) {
    struct ib_uverbs_ex_modify_wq core = {.attr_mask = 1, .wq_handle = b->wq, .wq_state = 1};

    (void)w;
    return command_of(IB_USER_VERBS_EX_CMD_MODIFY_WQ, true, &core, sizeof core, 0);
}

#endif

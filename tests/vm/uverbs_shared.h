/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPENMANA_UVERBS_SHARED_H
#define OPENMANA_UVERBS_SHARED_H

/* Known cases: what a process asks that has another's context. */
#include "uverbs_right.h"

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
static int context_again(struct worker* w, const struct trial* t) {
    const struct mana_uapi_context_resp* told = &w->process->context;
    int err = query_context(w, sizeof *told);

    (void)t;
    return err ? err : memcmp(w->out, told, sizeof *told) ? EPROTO : 0;
}

/* A newer provider knows more: what this driver does not say is zero. */
static int context_longer(struct worker* w, const struct trial* t) {
    const struct mana_uapi_context_resp* told = &w->process->context;
    int err = query_context(w, sizeof *told + 8);

    (void)t;
    if (err) return err;
    if (memcmp(w->out, told, sizeof *told) || answered(w, sizeof *told)) return EPROTO;
    return w->out[sizeof *told + 8] == 0xff ? 0 : EPROTO;
}

/* An older one has room for less. */
static int context_shorter(struct worker* w, const struct trial* t) {
    int err = query_context(w, 16);

    (void)t;
    if (err) return err;
    return memcmp(w->out, &w->process->context, 16) || w->out[16] != 0xff ? EPROTO : 0;
}

static int context_in_hole(struct worker* w, const struct trial* t) {
    struct method m;

    (void)t;
    w->spoilt = false;
    begin(&m, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT);
    add(&m, MANA_UAPI_ATTR_QUERY_CONTEXT_RESP, sizeof(struct mana_uapi_context_resp),
        (uintptr_t)w->process->hole);
    return by_method(w, &m);
}

/* A file of the device, of its own, with a context that has not asked for our formats. */
static int open_stock(struct worker* there, struct process* p, uint32_t driver_answer_bytes) {
    p->fd = open(device_path, O_RDWR | O_CLOEXEC);
    there->process = p;
    return p->fd < 0 ? EPROTO : stock_context(there, driver_answer_bytes);
}

static void close_stock(struct process* p) {
    close(p->fd);
    if (p->async_fd > 0) close(p->async_fd);
    p->async_fd = 0;
}

static bool is_rdma(const struct worker* w) {
    return w->process->context.flags & MANA_UAPI_CONTEXT_DMAC;
}

/* What a new context is answered: a mask, and nothing behind it. `with`: the room. */
static int context_of_stock(struct worker* w, const struct trial* t) {
    static struct process another;
    struct worker there = *w;
    const struct mana_uapi_alloc_context_resp mask = {is_rdma(w) ? MANA_UAPI_MASK_RC_QUEUES : 0};
    uint8_t told[64] = {0};
    uint8_t* at = w->out + sizeof(struct ib_uverbs_get_context_resp);
    uint32_t bytes = (uint32_t)t->with[0];
    int err;

    memcpy(told, &mask, sizeof mask);
    memset(w->out, 0xa5, 512);
    err = open_stock(&there, &another, bytes);
    if (!err && (memcmp(at, told, bytes) || at[bytes] != 0xa5)) err = EUCLEAN;
    close_stock(&another);
    return err;
}

/* A PD and a CQ of the stock format in a file of its own. */
static int stock_objects(struct worker* there, struct base* b) {
    static const struct change of_stock =
        FIELD(PART, mana_uapi_create_cq, flags, N(MANA_UAPI_CQ_RNIC));
    static const struct ib_uverbs_alloc_pd pd;
    struct command cq, domain = command_of(IB_USER_VERBS_CMD_ALLOC_PD, false, &pd, sizeof pd,
                                           sizeof(struct ib_uverbs_alloc_pd_resp));
    int err = plainly(there, &domain);

    b->pd = answered(there, 0);
    cq = right_cq(there, b);
    change_command(there, b, &of_stock, &cq);
    if (!err) err = plainly(there, &cq);
    b->stock_cq = answered(there, 0);
    return err;
}

/*
 * An RC QP as upstream's next provider asks for one, in a file of its own. `with`: its mask, the
 * bytes of the memory-management queue, and those of the request. That queue has an id if it is
 * asked for, of those of its QP; an answer of 16 bytes has none.
 */
static int rc_of_next_stock(struct worker* w, const struct trial* t) {
    static struct process another;
    const size_t at = sizeof(struct ib_uverbs_ex_create_qp_resp);
    struct mana_uapi_create_rc_qp part = {.mm_address = arena(w) + 4 * PAGE,
                                          .mm_bytes = (uint32_t)t->with[1],
                                          .mask = (uint32_t)t->with[0]};
    struct mana_uapi_create_rc_qp_resp answer;
    struct worker there = *w;
    struct base b = {0};
    struct command qp;
    int err = open_stock(&there, &another, 0);

    another.arena = w->process->arena;
    if (!err) err = stock_objects(&there, &b);
    for (int i = 0; i < MANA_UAPI_QP_QUEUES; i++) {
        part.address[i] = arena(w) + (uint32_t)i * PAGE;
        part.bytes[i] = PAGE;
    }
    qp = qp_of(&b, b.stock_cq);
    add_part(&qp, &part, (uint32_t)t->with[2], sizeof answer);
    if (!err) err = plainly(&there, &qp);
    memcpy(&answer, w->out + at, sizeof answer);
    close_stock(&another);
    if (err) return err;
    if (answer.reserved || answer.queue_id[MANA_UAPI_QP_RESPONDER_SQ] !=
                               answer.queue_id[MANA_UAPI_QP_REQUESTER_SQ] + 1)
        return EPROTO;
    if (!(part.mask & MANA_UAPI_RC_MM_QUEUE)) return answer.mm_queue_id ? EUCLEAN : 0;
    return answer.mm_queue_id == answer.queue_id[MANA_UAPI_QP_REQUESTER_SQ] + 2 ? 0 : EUCLEAN;
}

/* A CQ, a QP and an SRQ of our formats, in a file of their own. `with`: whether it asked for them.
 */
static int of_our_formats(struct worker* w, const struct trial* t) {
    static const struct change of_stock =
        FIELD(PART, mana_uapi_create_cq, flags, N(MANA_UAPI_CQ_RNIC));
    static const struct ib_uverbs_alloc_pd pd;
    static struct process another;
    struct worker there = *w;
    struct base b = {0};
    struct command cq = right_cq(w, &b), qp, srq;
    struct command domain = command_of(IB_USER_VERBS_CMD_ALLOC_PD, false, &pd, sizeof pd,
                                       sizeof(struct ib_uverbs_alloc_pd_resp));
    int err = open_stock(&there, &another, 0), said[3] = {0};

    if (!err && t->with[0]) err = query_context(&there, sizeof another.context);
    if (!err) err = plainly(&there, &domain);
    b.pd = answered(&there, 0);
    if (!err) said[0] = plainly(&there, &cq);
    if (said[0]) {
        change_command(w, &b, &of_stock, &cq);
        err = plainly(&there, &cq);
    }
    b.cq = answered(&there, 0);
    qp = right_qp(w, &b);
    srq = right_srq(w, &b);
    if (!err) said[1] = plainly(&there, &qp);
    if (!err) said[2] = plainly(&there, &srq);
    close_stock(&another);
    if (err) return err;
    return said[0] == said[1] && said[0] == said[2] ? said[0] : EUCLEAN;
}

/* A file that has no context yet. */
static int context_none(struct worker* w, const struct trial* t) {
    struct process* p = w->process;
    int fd = p->fd;
    int err;

    (void)t;
    p->fd = open(device_path, O_RDWR);
    err = query_context(w, sizeof p->context);
    close(p->fd);
    p->fd = fd;
    return err;
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
        said.err = own_file ? get_context(w) : 0;
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
static int outlives_its_maker(struct worker* w, const struct trial* t) {
    uint64_t length;
    uint32_t pd, mr;
    int err = of_child(w, false, &pd, &mr);

    (void)t;
    if (!err) err = query_pd(w, pd);
    if (!err) err = query_mr(w, mr);
    if (err) return err;
    memcpy(&length, w->out + 16, sizeof length);
    if (length != PAGE) return EPROTO;
    err = destroy(w, K_MR, mr);
    return err ? err : destroy(w, K_PD, pd);
}

static int of_another_file(struct worker* w, const struct trial* t) {
    uint32_t pd, mr;
    int err = of_child(w, true, &pd, &mr);

    (void)t;
    if (!err && query_pd(w, pd) != ENOENT) err = EPROTO;
    return err ? err : query_mr(w, mr);
}

/* Cases of one question. `with`: the room for the answer, or the handle (and the room). */

static int ask_context(struct worker* w, const struct trial* t) {
    return query_context(w, (uint32_t)t->with[0]);
}

static int ask_pd(struct worker* w, const struct trial* t) {
    return query_pd(w, (uint32_t)t->with[0]);
}

static int ask_mr(struct worker* w, const struct trial* t) {
    return query_mr(w, (uint32_t)t->with[0]);
}

static int ask_dm(struct worker* w, const struct trial* t) {
    return query_dm(w, (uint32_t)t->with[0], (uint32_t)t->with[1]);
}

#endif

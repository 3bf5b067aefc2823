/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPENMANA_UVERBS_SHARED_H
#define OPENMANA_UVERBS_SHARED_H

/* Known cases: what a process asks that has another's context. */
#include "uverbs_right.h"

/* A context's answer once more, in so many bytes. */
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
static int context_of_stock(struct worker* w, const struct trial* t) {
    static const uint8_t zero[MANA_UAPI_CONTEXT_STOCK_BYTES];

    (void)t;
    return context_told(w, sizeof zero, zero);
}

static int context_of_older(struct worker* w, const struct trial* t) {
    (void)t;
    return context_told(w, 16, &w->process->context);
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

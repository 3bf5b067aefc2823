/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPENMANA_UVERBS_CQ_H
#define OPENMANA_UVERBS_CQ_H

/* Known cases: completion queues, where their parts and answers are, and their ends. */
#include <time.h>

#include "uverbs_dm.h"

/* The last `bytes` of a page behind which no memory is. */
static uint8_t* at_the_edge(size_t bytes) {
    uint8_t* at = plain_memory(2 * PAGE, 0);

    if (munmap(at + PAGE, PAGE)) exit(2);
    return at + PAGE - bytes;
}

/* By ioctl(): the parts of a command are where the attributes say. */
static int invoke(struct worker* w, const struct command* c, const void* part, uint64_t core_answer,
                  uint64_t answer) {
    uint64_t number = c->number | (c->extended ? IB_USER_VERBS_CMD_FLAG_EXTENDED : 0);
    struct method m;

    w->spoilt = false;
    begin(&m, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
    add_in(&m, UVERBS_ATTR_WRITE_CMD, &number, sizeof number);
    add_in(&m, UVERBS_ATTR_CORE_IN, c->core, c->core_bytes);
    add(&m, UVERBS_ATTR_CORE_OUT, c->answer_bytes, core_answer);
    add(&m, UVERBS_ATTR_UHW_IN, c->driver_bytes, (uintptr_t)part);
    add(&m, UVERBS_ATTR_UHW_OUT, c->driver_answer_bytes, answer);
    return by_method(w, &m);
}

/* A newer provider's part, of which the end cannot be read. */
static int cq_part_ends_early(struct worker* w, const struct trial* t) {
    struct command c = right_cq(w, t->base);
    uint8_t* part = at_the_edge(c.driver_bytes);

    memcpy(part, c.driver, c.driver_bytes);
    c.driver_bytes += 32;
    return invoke(w, &c, part, (uintptr_t)w->out, (uintptr_t)w->out + 256);
}

static long pinned_kib(void) {
    char line[128];
    long kib = -1;
    FILE* status = fopen("/proc/self/status", "r");

    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "VmPin: %ld", &kib) == 1) break;
    if (status) fclose(status);
    return kib;
}

/* A resize with an answer that goes nowhere has not been: the CQ has the ring that it had. */
static int resize_without_answer(struct worker* w, const struct trial* t) {
    struct ib_uverbs_resize_cq core = {.cq_handle = t->base->cq, .cqe = 1024};
    struct mana_uapi_resize_cq part = {.address = arena(w), .entries = 1024};
    struct command c = command_of(IB_USER_VERBS_CMD_RESIZE_CQ, false, &core, sizeof core,
                                  sizeof(struct ib_uverbs_resize_cq_resp));
    uint64_t hole = (uintptr_t)w->process->hole, room = (uintptr_t)w->out;
    bool of_core = t->with[0];
    long before = pinned_kib();
    int err;

    add_part(&c, &part, sizeof part, sizeof(struct mana_uapi_resize_cq_resp));
    err = invoke(w, &c, c.driver, of_core ? hole : room, of_core ? room + 256 : hole);
    return before < 0 || pinned_kib() != before ? EUCLEAN : err;
}

/* A kernel of 7.2 lets a process name a CQ's buffer by attributes; an older one knows none. */
static int cq_of_attributes(struct worker* w, const struct trial* t) {
    enum { BUFFER_VA = UVERBS_ATTR_CREATE_CQ_EVENT_FD + 1, BUFFER_LENGTH };
    struct mana_uapi_create_cq part = {.address = (uintptr_t)w->process->hole,
                                       .flags = MANA_UAPI_CQ_RNIC | MANA_UAPI_CQ_EXTENDED};
    uint32_t entries = 64, vector = 0;
    uint64_t user = 0, address = arena(w), bytes = t->with[0];
    struct ib_uverbs_attr* attr;
    struct method m;
    int err;

    w->spoilt = false;
    begin(&m, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
    attr = add_handle(&m, UVERBS_ATTR_CREATE_CQ_HANDLE, 0);
    add_in(&m, UVERBS_ATTR_CREATE_CQ_CQE, &entries, sizeof entries);
    add_in(&m, UVERBS_ATTR_CREATE_CQ_USER_HANDLE, &user, sizeof user);
    add_in(&m, UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, &vector, sizeof vector);
    add(&m, UVERBS_ATTR_CREATE_CQ_RESP_CQE, sizeof entries, (uintptr_t)w->out);
    add_in(&m, BUFFER_VA, &address, sizeof address);
    add_in(&m, BUFFER_LENGTH, &bytes, sizeof bytes);
    add_in(&m, UVERBS_ATTR_UHW_IN, &part, sizeof part);
    add(&m, UVERBS_ATTR_UHW_OUT, 8, (uintptr_t)w->out + 8);
    err = by_method(w, &m);
    if (err == EPROTONOSUPPORT) return (int)t->with[1];
    return err ? err : destroy(w, K_CQ, (uint32_t)attr->data);
}

/* A kernel of 7.2 lets a process name a QP's queues, too: all of them, or those of one side. */
static int qp_of_attributes(struct worker* w, const struct trial* t) {
    enum { BUFFER = UVERBS_ATTR_CREATE_QP_RESP_QP_NUM + 1 };
    /* As struct ib_uverbs_buffer_desc: an address of the process. */
    struct {
        uint32_t type;
        int32_t fd;
        uint32_t flags, optional_flags;
        uint64_t address, length;
    } buffer = {.type = 1, .address = arena(w), .length = 2 * PAGE};
    struct ib_uverbs_qp_cap cap = {
        .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1};
    struct command right = right_qp(w, t->base);
    uint64_t user = 0, type = IB_UVERBS_QPT_RC;
    struct ib_uverbs_attr* attr;
    struct method m;
    int err;

    w->spoilt = false;
    begin(&m, UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
    attr = add_handle(&m, UVERBS_ATTR_CREATE_QP_HANDLE, 0);
    add_handle(&m, UVERBS_ATTR_CREATE_QP_PD_HANDLE, t->base->pd);
    add_handle(&m, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, t->base->cq);
    add_handle(&m, UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, t->base->cq);
    add_in(&m, UVERBS_ATTR_CREATE_QP_USER_HANDLE, &user, sizeof user);
    add_in(&m, UVERBS_ATTR_CREATE_QP_CAP, &cap, sizeof cap);
    add_in(&m, UVERBS_ATTR_CREATE_QP_TYPE, &type, sizeof type);
    add(&m, UVERBS_ATTR_CREATE_QP_RESP_CAP, sizeof cap, (uintptr_t)w->out);
    add(&m, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, sizeof(uint32_t), (uintptr_t)w->out + 64);
    if (t->with[0]) add_in(&m, BUFFER + (uint32_t)t->with[0] - 1, &buffer, sizeof buffer);
    add_in(&m, UVERBS_ATTR_UHW_IN, right.driver, right.driver_bytes);
    add(&m, UVERBS_ATTR_UHW_OUT, right.driver_answer_bytes, (uintptr_t)w->out + 128);
    err = by_method(w, &m);
    if (err == EPROTONOSUPPORT) return EOPNOTSUPP;
    return err ? err : destroy(w, K_QP, (uint32_t)attr->data);
}

static double seconds_now(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Many CQs end with their file in about the time that it took to make them. */
static int ends_with_cqs(struct worker* w, const struct trial* t) {
    static struct process another;
    struct worker there = *w;
    struct command c = right_cq(w, t->base);
    double begun = seconds_now(), made;
    uint64_t count = t->with[0];
    int err;

    another.fd = open(device_path, O_RDWR | O_CLOEXEC);
    there.process = &another;
    err = another.fd < 0 ? EPROTO : get_context(&there);
    if (another.async_fd > 0) close(another.async_fd);
    another.async_fd = 0;
    for (uint64_t i = 0; i < count && !err; i++) err = plainly(&there, &c);
    made = seconds_now() - begun;
    begun = seconds_now();
    close(another.fd);
    begun = seconds_now() - begun;
    printf("%u CQs: made in %.2f s, ended in %.2f s\n", (unsigned)count, made, begun);
    return err || begun < 3 * made ? err : ETIME;
}

#endif

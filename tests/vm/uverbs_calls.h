/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPENMANA_UVERBS_CALLS_H
#define OPENMANA_UVERBS_CALLS_H

/*
 * Commands of the uverbs interface, raw: by write(), by ioctl() around the same structures
 * (INVOKE_WRITE), and as methods with attributes. A worker says them, right or with something
 * wrong; nothing of libibverbs is used.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "mana-abi.h"

enum { PAGE = 4096, ARENA = 1 << 20, OUT = 8 * PAGE, SLOTS = 12, ATTRIBUTES = 20 };

/* splitmix64: the same seed, the same numbers. */
struct dice {
    uint64_t state;
};

static uint64_t roll(struct dice* d) {
    uint64_t z = d->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* A number below `bound`. */
static uint32_t below(struct dice* d, uint32_t bound) {
    return (uint32_t)(roll(d) % bound);
}

static bool percent(struct dice* d, uint32_t chance) {
    return below(d, 100) < chance;
}

/* Values at which something begins or ends. */
static uint64_t odd_value(struct dice* d) {
    static const uint64_t values[] = {0,          1,          2,          3,          7,
                                      8,          63,         64,         255,        256,
                                      4095,       4096,       65535,      65536,      0x7fffffff,
                                      0x80000000, 0xfffffffe, 0xffffffff, 1ull << 32, 1ull << 63,
                                      ~0ull,      ~0ull - 1,  INT64_MAX,  1 << 20,    1 << 26};
    if (percent(d, 25)) return roll(d);
    if (percent(d, 25)) return 1ull << below(d, 64);
    return values[below(d, sizeof values / sizeof *values)];
}

/* What a process has of the device. Objects are in slots, that any thread may take from. */
enum kind { K_PD, K_CQ, K_QP, K_SRQ, K_MR, K_MW, K_AH, K_WQ, K_TABLE, K_DM, K_FLOW, K_COUNT };

/* How a CQ or QP was made, in the note of its slot. */
enum flavour { F_EXTENDED, F_STOCK, F_ETHERNET, F_PACKETS };

static const uint64_t empty_slot = ~0ull;

struct process {
    int fd;
    int async_fd;
    int channel;
    uint8_t* arena;    /* memory for queues and regions */
    uint8_t* readonly; /* a page that may only be read */
    uint8_t* hole;     /* a page that is not there */
    uint8_t* doorbell; /* mapped from the device, or NULL */
    bool raw;          /* raw packet queues too: the interface is down */
    uint32_t wild;     /* chance in percent that a command is spoilt */
    struct mana_uapi_context_resp context;
    atomic_ullong slots[K_COUNT][SLOTS]; /* handle, flavour << 32, state << 40 */
};

struct worker {
    struct process* process;
    struct dice dice;
    uint8_t* in; /* ends at a page that is not there */
    uint8_t* out;
    uint8_t* place; /* for the device's pages, alone, since answers may go there */
    bool spoilt;    /* the command at hand */
};

static uint32_t handle_of(uint64_t slot) {
    return (uint32_t)slot;
}

static enum flavour flavour_of(uint64_t slot) {
    return (enum flavour)(slot >> 32 & 0xff);
}

static uint32_t state_of(uint64_t slot) {
    return slot >> 40 & 0xff;
}

/* A slot with an object in it, if there is one. */
static int find(struct worker* w, enum kind kind) {
    uint32_t at = below(&w->dice, SLOTS);

    for (int i = 0; i < SLOTS; i++, at = (at + 1) % SLOTS)
        if (atomic_load(&w->process->slots[kind][at]) != empty_slot) return (int)at;
    return -1;
}

static uint64_t slot_at(struct worker* w, enum kind kind, int at) {
    return at < 0 ? empty_slot : atomic_load(&w->process->slots[kind][at]);
}

/* An object of a flavour. */
static uint64_t pick_flavour(struct worker* w, enum kind kind, enum flavour flavour) {
    uint32_t at = below(&w->dice, SLOTS);

    for (int i = 0; i < SLOTS; i++, at = (at + 1) % SLOTS) {
        uint64_t slot = atomic_load(&w->process->slots[kind][at]);

        if (slot != empty_slot && flavour_of(slot) == flavour) return slot;
    }
    return empty_slot;
}

/* A handle of a kind; where the command is to be wrong, of another or of none. */
static uint32_t pick(struct worker* w, enum kind kind) {
    if (w->spoilt && percent(&w->dice, 15)) return (uint32_t)odd_value(&w->dice);
    if (w->spoilt && percent(&w->dice, 15)) kind = (enum kind)below(&w->dice, K_COUNT);
    return handle_of(slot_at(w, kind, find(w, kind)));
}

/* An address for a queue or region of so many bytes; sometimes one that is not fit. */
static uint64_t memory(struct worker* w, uint64_t bytes) {
    struct process* p = w->process;
    uint64_t room = bytes < ARENA ? ARENA - bytes : 0;
    uint64_t offset = room / PAGE ? below(&w->dice, (uint32_t)(room / PAGE) + 1) * PAGE : 0;

    if (!w->spoilt || percent(&w->dice, 70)) return (uintptr_t)p->arena + offset;
    switch (below(&w->dice, 8)) {
        case 0:
            return (uintptr_t)p->arena + offset + below(&w->dice, PAGE);
        case 1:
            return (uintptr_t)p->readonly;
        case 2:
            return (uintptr_t)p->hole;
        case 3:
            return (uintptr_t)p->arena + ARENA - PAGE; /* its end is beyond */
        case 4:
            return 0xffff888000000000u;
        case 5:
            return p->doorbell ? (uintptr_t)p->doorbell : 0;
        default:
            return odd_value(&w->dice);
    }
}

/* Changes something in what is sent. */
static void poke(struct worker* w, void* at, size_t bytes) {
    uint8_t* data = at;
    uint64_t value = odd_value(&w->dice);
    size_t width = (size_t)1 << below(&w->dice, 4);

    if (bytes < width) return;
    size_t offset = below(&w->dice, (uint32_t)(bytes / width)) * width;
    if (percent(&w->dice, 30)) /* a bit */
        data[offset] ^= (uint8_t)(1u << below(&w->dice, 8));
    else
        memcpy(data + offset, &value, width);
}

/* One command: the core's structure and the driver's, and room for both answers. */
struct command {
    uint32_t number;
    bool extended; /* of the newer kind, without a pointer to the answer in it */
    uint8_t core[320];
    uint32_t core_bytes;
    uint8_t driver[128];
    uint32_t driver_bytes;
    uint32_t answer_bytes;        /* of the core */
    uint32_t driver_answer_bytes; /* of the driver */
};

static uint32_t words(uint32_t bytes, uint32_t size) {
    return (bytes + size - 1) / size;
}

/* Where the answer is to go; in a wrong command perhaps where nothing may be written. */
static uint64_t answer_at(struct worker* w) {
    if (w->spoilt && percent(&w->dice, 8)) return memory(w, PAGE);
    return (uintptr_t)w->out;
}

static int sent(ssize_t result) {
    return result < 0 ? errno : 0;
}

/* write() of `bytes` that end where memory ends. */
static int write_bytes(struct worker* w, const void* data, size_t bytes) {
    uint8_t* at = w->in + OUT - bytes;

    memcpy(at, data, bytes);
    return sent(write(w->process->fd, at, bytes));
}

static int by_write(struct worker* w, struct command* c) {
    uint8_t whole[512] = {0};
    struct ib_uverbs_cmd_hdr* header = (struct ib_uverbs_cmd_hdr*)whole;
    uint32_t bytes = sizeof *header;
    uint64_t answer = answer_at(w);

    header->command = c->number;
    if (c->extended) {
        struct ib_uverbs_ex_cmd_hdr* more = (struct ib_uverbs_ex_cmd_hdr*)(header + 1);

        bytes += sizeof *more;
        header->command |= IB_USER_VERBS_CMD_FLAG_EXTENDED;
        header->in_words = (uint16_t)words(c->core_bytes, 8);
        header->out_words = (uint16_t)words(c->answer_bytes, 8);
        more->provider_in_words = (uint16_t)words(c->driver_bytes, 8);
        more->provider_out_words = (uint16_t)words(c->driver_answer_bytes, 8);
        more->response = c->answer_bytes || c->driver_answer_bytes ? answer : 0;
        memcpy(whole + bytes, c->core, c->core_bytes);
        bytes += words(c->core_bytes, 8) * 8;
        memcpy(whole + bytes, c->driver, c->driver_bytes);
        bytes += words(c->driver_bytes, 8) * 8;
    } else {
        memcpy(whole + bytes, c->core, c->core_bytes);
        if (c->answer_bytes) memcpy(whole + bytes, &answer, sizeof answer);
        bytes += c->core_bytes;
        memcpy(whole + bytes, c->driver, c->driver_bytes);
        bytes += c->driver_bytes;
        header->in_words = (uint16_t)words(bytes, 4);
        header->out_words = (uint16_t)words(c->answer_bytes + c->driver_answer_bytes, 4);
        bytes = words(bytes, 4) * 4;
    }
    if (w->spoilt && percent(&w->dice, 5)) poke(w, whole, c->extended ? 24 : 8);
    if (w->spoilt && percent(&w->dice, 3)) bytes = below(&w->dice, bytes + 1);
    return write_bytes(w, whole, bytes);
}

/* A method with attributes. */
struct method {
    struct ib_uverbs_ioctl_hdr header;
    struct ib_uverbs_attr attrs[ATTRIBUTES];
};

static void begin(struct method* m, uint32_t object, uint32_t method) {
    memset(m, 0, sizeof *m);
    m->header.object_id = (uint16_t)object;
    m->header.method_id = (uint16_t)method;
    m->header.driver_id = RDMA_DRIVER_MANA;
}

static struct ib_uverbs_attr* add(struct method* m, uint32_t id, uint32_t bytes, uint64_t data) {
    struct ib_uverbs_attr* attr = &m->attrs[m->header.num_attrs++];

    attr->attr_id = (uint16_t)id;
    attr->len = (uint16_t)bytes;
    attr->flags = UVERBS_ATTR_F_MANDATORY;
    attr->data = data;
    return attr;
}

/* What fits eight bytes travels in the attribute itself. */
static void add_in(struct method* m, uint32_t id, const void* from, uint32_t bytes) {
    uint64_t data = (uintptr_t)from;

    if (bytes <= sizeof data) {
        data = 0;
        memcpy(&data, from, bytes);
    }
    add(m, id, bytes, data);
}

/* An object's handle, or of a new one an id to be written. */
static struct ib_uverbs_attr* add_handle(struct method* m, uint32_t id, uint32_t handle) {
    return add(m, id, 0, handle);
}

static int by_method(struct worker* w, struct method* m) {
    struct dice* d = &w->dice;
    struct ib_uverbs_attr* attr;
    size_t bytes;
    int result;

    if (w->spoilt && m->header.num_attrs && percent(d, 40)) {
        attr = &m->attrs[below(d, m->header.num_attrs)];
        switch (below(d, 7)) {
            case 0:
                attr->attr_id = (uint16_t)(percent(d, 50) ? below(d, 24) : roll(d));
                break;
            case 1:
                attr->len = (uint16_t)(percent(d, 50) ? below(d, 72) : roll(d));
                break;
            case 2:
                attr->flags = (uint16_t)(percent(d, 50) ? 0 : roll(d));
                break;
            case 3:
                attr->attr_data.reserved = (uint16_t)odd_value(d);
                break;
            case 4:
                attr->data = memory(w, PAGE);
                break;
            case 5:
                attr->data = odd_value(d);
                break;
            default: /* it is there twice, or not at all */
                *attr = m->attrs[below(d, m->header.num_attrs)];
                m->header.num_attrs = (uint16_t)(m->header.num_attrs - percent(d, 50));
                break;
        }
    }
    bytes = sizeof m->header + m->header.num_attrs * sizeof *m->attrs;
    m->header.length = (uint16_t)bytes;
    if (w->spoilt && percent(d, 6)) poke(w, &m->header, sizeof m->header);
    memcpy(w->in + OUT - bytes, m, bytes);
    result = ioctl(w->process->fd, RDMA_VERBS_IOCTL, w->in + OUT - bytes);
    memcpy(m, w->in + OUT - bytes, bytes);
    return sent(result);
}

/* A copy between device memory and an address of ours. */
static int copy_dm(struct worker* w, uint32_t handle, uint64_t offset, uint64_t address,
                   uint64_t length, uint32_t direction) {
    struct method m;

    begin(&m, UVERBS_OBJECT_DM, MANA_UAPI_METHOD_COPY_DM);
    add_handle(&m, MANA_UAPI_ATTR_COPY_DM_HANDLE, handle);
    add_in(&m, MANA_UAPI_ATTR_COPY_DM_OFFSET, &offset, sizeof offset);
    add_in(&m, MANA_UAPI_ATTR_COPY_DM_ADDRESS, &address, sizeof address);
    add_in(&m, MANA_UAPI_ATTR_COPY_DM_LENGTH, &length, sizeof length);
    add_in(&m, MANA_UAPI_ATTR_COPY_DM_DIRECTION, &direction, sizeof direction);
    return by_method(w, &m);
}

static int by_invoke(struct worker* w, const struct command* c) {
    struct method m;
    uint64_t number = c->number | (c->extended ? IB_USER_VERBS_CMD_FLAG_EXTENDED : 0);
    uint64_t answer = answer_at(w);

    begin(&m, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
    add_in(&m, UVERBS_ATTR_WRITE_CMD, &number, sizeof number);
    if (c->core_bytes) add_in(&m, UVERBS_ATTR_CORE_IN, c->core, c->core_bytes);
    if (c->answer_bytes) add(&m, UVERBS_ATTR_CORE_OUT, c->answer_bytes, answer);
    if (c->driver_bytes) add_in(&m, UVERBS_ATTR_UHW_IN, c->driver, c->driver_bytes);
    if (c->driver_answer_bytes)
        add(&m, UVERBS_ATTR_UHW_OUT, c->driver_answer_bytes, answer + c->answer_bytes);
    return by_method(w, &m);
}

/* Says a command on one of the ways there are. The answers are in w->out. */
static int say(struct worker* w, struct command* c) {
    struct dice* d = &w->dice;

    memset(w->out, 0, 512);
    if (w->spoilt) {
        if (c->core_bytes && percent(d, 45)) poke(w, c->core, c->core_bytes);
        if (c->driver_bytes && percent(d, 45)) poke(w, c->driver, c->driver_bytes);
        if (percent(d, 12)) c->driver_bytes = below(d, sizeof c->driver / 8 + 1) * 8;
        if (percent(d, 4)) c->core_bytes = below(d, sizeof c->core / 8 + 1) * 8;
        if (percent(d, 6)) c->driver_answer_bytes = below(d, 80) * 8;
        if (percent(d, 6)) c->answer_bytes = below(d, 80) * 8;
    }
    return percent(d, 35) ? by_invoke(w, c) : by_write(w, c);
}

/* The end of an object, as a method and by a command. */
static const struct {
    uint16_t object, method;
    uint16_t command;
    bool extended;
    uint8_t core_bytes, answer_bytes, handle_at, response; /* UVERBS_ATTR_DESTROY_*_RESP */
} ends[K_COUNT] = {
    [K_PD] = {UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, IB_USER_VERBS_CMD_DEALLOC_PD, 0,
              sizeof(struct ib_uverbs_dealloc_pd), 0, 0, 0},
    [K_CQ] = {UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, IB_USER_VERBS_CMD_DESTROY_CQ, 0,
              sizeof(struct ib_uverbs_destroy_cq), sizeof(struct ib_uverbs_destroy_cq_resp), 8,
              sizeof(struct ib_uverbs_destroy_cq_resp)},
    [K_QP] = {UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, IB_USER_VERBS_CMD_DESTROY_QP, 0,
              sizeof(struct ib_uverbs_destroy_qp), sizeof(struct ib_uverbs_destroy_qp_resp), 8,
              sizeof(struct ib_uverbs_destroy_qp_resp)},
    [K_SRQ] = {UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY, IB_USER_VERBS_CMD_DESTROY_SRQ, 0,
               sizeof(struct ib_uverbs_destroy_srq), sizeof(struct ib_uverbs_destroy_srq_resp), 8,
               sizeof(struct ib_uverbs_destroy_srq_resp)},
    [K_MR] = {UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, IB_USER_VERBS_CMD_DEREG_MR, 0,
              sizeof(struct ib_uverbs_dereg_mr), 0, 0, 0},
    [K_MW] = {UVERBS_OBJECT_MW, UVERBS_METHOD_MW_DESTROY, IB_USER_VERBS_CMD_DEALLOC_MW, 0,
              sizeof(struct ib_uverbs_dealloc_mw), 0, 0, 0},
    [K_AH] = {UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY, IB_USER_VERBS_CMD_DESTROY_AH, 0,
              sizeof(struct ib_uverbs_destroy_ah), 0, 0, 0},
    [K_WQ] = {UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_DESTROY, IB_USER_VERBS_EX_CMD_DESTROY_WQ, 1,
              sizeof(struct ib_uverbs_ex_destroy_wq), sizeof(struct ib_uverbs_ex_destroy_wq_resp),
              4, sizeof(uint32_t)},
    [K_TABLE] = {UVERBS_OBJECT_RWQ_IND_TBL, UVERBS_METHOD_RWQ_IND_TBL_DESTROY,
                 IB_USER_VERBS_EX_CMD_DESTROY_RWQ_IND_TBL, 1,
                 sizeof(struct ib_uverbs_ex_destroy_rwq_ind_table), 0, 4, 0},
    [K_DM] = {UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE, 0, 0, 0, 0, 0, 0},
    [K_FLOW] = {UVERBS_OBJECT_FLOW, UVERBS_METHOD_FLOW_DESTROY, IB_USER_VERBS_EX_CMD_DESTROY_FLOW,
                1, sizeof(struct ib_uverbs_destroy_flow), 0, 4, 0},
};

static int destroy(struct worker* w, enum kind kind, uint32_t handle) {
    struct command c = {.number = ends[kind].command,
                        .extended = ends[kind].extended,
                        .core_bytes = ends[kind].core_bytes,
                        .answer_bytes = ends[kind].answer_bytes};
    struct method m;

    if (kind != K_DM && percent(&w->dice, 50)) {
        memcpy(c.core + ends[kind].handle_at, &handle, sizeof handle);
        return say(w, &c);
    }
    begin(&m, ends[kind].object, ends[kind].method);
    add_handle(&m, 0, handle);
    if (ends[kind].response) add(&m, 1, ends[kind].response, answer_at(w));
    return by_method(w, &m);
}

/* Remembers a new object. Where there is no room it takes the place of another, which goes. */
static void keep(struct worker* w, enum kind kind, uint32_t handle, enum flavour flavour) {
    uint64_t slot = handle | (uint64_t)flavour << 32;
    uint64_t old;
    int at = -1;

    for (int i = 0; i < SLOTS && at < 0; i++)
        if (atomic_load(&w->process->slots[kind][i]) == empty_slot) at = i;
    if (at < 0) at = (int)below(&w->dice, SLOTS);
    old = atomic_exchange(&w->process->slots[kind][at], slot);
    if (old != empty_slot) destroy(w, kind, handle_of(old));
}

/* The handle with which an answer begins, if the command succeeded. */
static void keep_answer(struct worker* w, int err, enum kind kind, size_t at,
                        enum flavour flavour) {
    uint32_t handle;

    if (err) return;
    memcpy(&handle, w->out + at, sizeof handle);
    keep(w, kind, handle, flavour);
}

/* What a context has, in so many bytes. */
static int query_context(struct worker* w, uint32_t bytes) {
    struct method m;

    w->spoilt = false;
    memset(w->out, 0xff, 512);
    begin(&m, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT);
    add(&m, MANA_UAPI_ATTR_QUERY_CONTEXT_RESP, bytes, (uintptr_t)w->out);
    return by_method(w, &m);
}

/* A context as a stock provider makes one. Around its structure 7.2 has no ioctl(). */
static int stock_context(struct worker* w, uint32_t driver_answer_bytes) {
    struct process* p = w->process;
    struct ib_uverbs_get_context_resp answer;
    struct command c = {.number = IB_USER_VERBS_CMD_GET_CONTEXT,
                        .core_bytes = sizeof(struct ib_uverbs_get_context),
                        .answer_bytes = sizeof answer,
                        .driver_answer_bytes = driver_answer_bytes};
    int err = by_write(w, &c);

    if (err) return err;
    memcpy(&answer, w->out, sizeof answer);
    p->async_fd = (int)answer.async_fd;
    return fcntl(p->async_fd, F_SETFL, O_NONBLOCK) ? errno : 0;
}

/* A process's first step: a context that speaks our formats. */
static int get_context(struct worker* w) {
    struct process* p = w->process;
    int err = stock_context(w, sizeof(struct mana_uapi_alloc_context_resp));

    if (!err) err = query_context(w, sizeof p->context);
    if (!err) memcpy(&p->context, w->out, sizeof p->context);
    return err;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPENMANA_UVERBS_OPS_H
#define OPENMANA_UVERBS_OPS_H

/*
 * What a worker does with a device: each verb with legal arguments, which say() and by_method()
 * spoil if the worker wants that, and things that are no verb.
 */
#include <poll.h>
#include <pthread.h>

#include "uverbs_calls.h"

enum op {
    O_PD,
    O_CQ,
    O_RESIZE,
    O_QP,
    O_MODIFY_QP,
    O_QUERY_QP,
    O_SRQ,
    O_MODIFY_SRQ,
    O_QUERY_SRQ,
    O_MR,
    O_REREG_MR,
    O_QUERY_MR,
    O_MW,
    O_AH,
    O_WQ,
    O_TABLE,
    O_RAW_QP,
    O_RSS_QP,
    O_PACKET_QP,
    O_FLOW,
    O_DM,
    O_DM_MR,
    O_DM_COPY,
    O_DMABUF_MR,
    O_MULTICAST,
    O_QUERY,
    O_IMPORT,
    O_DESTROY,
    O_MAP,
    O_DOORBELL,
    O_EVENTS,
    O_SCRIBBLE,
    O_ABSENT,
    O_RANDOM_METHOD,
    O_RANDOM_BYTES,
    O_COUNT
};

static const char* const op_names[O_COUNT] = {
    "alloc_pd",      "create_cq",   "resize_cq", "create_qp",     "modify_qp",   "query_qp",
    "create_srq",    "modify_srq",  "query_srq", "reg_mr",        "rereg_mr",    "query_mr",
    "alloc_mw",      "create_ah",   "create_wq", "create_table",  "create_raw",  "create_rss",
    "create_packet", "create_flow", "alloc_dm",  "reg_dm_mr",     "copy_dm",     "reg_dmabuf",
    "multicast",     "query",       "import",    "destroy",       "mmap",        "doorbell",
    "read_events",   "scribble",    "absent",    "random_method", "random_bytes"};

/* How often each is drawn. */
static const uint8_t op_weights[O_COUNT] = {3, 8, 4, 10, 16, 3, 4, 3, 2, 6, 5, 2, 3, 4, 5, 3, 4, 4,
                                            4, 4, 3, 3,  5,  2, 3, 4, 4, 9, 2, 6, 3, 4, 4, 6, 4};

static int op_pd(struct worker* w) {
    struct command c = {.number = IB_USER_VERBS_CMD_ALLOC_PD,
                        .core_bytes = sizeof(struct ib_uverbs_alloc_pd),
                        .answer_bytes = sizeof(struct ib_uverbs_alloc_pd_resp)};
    int err = say(w, &c);

    keep_answer(w, err, K_PD, 0, 0);
    return err;
}

/* A channel for completion events. */
static int channel(struct worker* w) {
    struct command c = {.number = IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL,
                        .core_bytes = sizeof(struct ib_uverbs_create_comp_channel),
                        .answer_bytes = sizeof(struct ib_uverbs_create_comp_channel_resp)};
    uint32_t fd;
    int err;

    w->spoilt = false;
    err = say(w, &c);
    if (err) return err;
    memcpy(&fd, w->out, sizeof fd);
    if (fcntl((int)fd, F_SETFL, O_NONBLOCK)) return errno;
    w->process->channel = (int)fd;
    return 0;
}

static int op_cq(struct worker* w) {
    struct dice* d = &w->dice;
    enum flavour flavour = (enum flavour)below(d, w->process->raw ? 3 : 2);
    struct mana_uapi_create_cq driver = {.flags = flavour == F_EXTENDED
                                                      ? MANA_UAPI_CQ_EXTENDED | MANA_UAPI_CQ_RNIC
                                                  : flavour == F_STOCK ? MANA_UAPI_CQ_RNIC
                                                                       : 0};
    uint32_t cqe = 64u << below(d, 5);
    int fd = percent(d, 50) ? w->process->channel : -1;
    struct command c = {.driver_bytes = sizeof driver,
                        .driver_answer_bytes = sizeof(struct mana_uapi_create_cq_resp)};
    struct method m;
    int err;

    driver.address = memory(w, cqe * 64 + PAGE);
    memcpy(c.driver, &driver, sizeof driver);
    switch (below(d, 3)) {
        case 0: {
            struct ib_uverbs_create_cq core = {.cqe = cqe, .comp_channel = fd};

            c.number = IB_USER_VERBS_CMD_CREATE_CQ;
            c.core_bytes = sizeof core;
            c.answer_bytes = sizeof(struct ib_uverbs_create_cq_resp);
            memcpy(c.core, &core, sizeof core);
            err = say(w, &c);
            break;
        }
        case 1: {
            struct ib_uverbs_ex_create_cq core = {.cqe = cqe, .comp_channel = fd};

            c.number = IB_USER_VERBS_EX_CMD_CREATE_CQ;
            c.extended = true;
            c.core_bytes = sizeof core;
            c.answer_bytes = sizeof(struct ib_uverbs_ex_create_cq_resp);
            if (flavour == F_EXTENDED && percent(d, 30)) core.flags = 1; /* time stamps */
            memcpy(c.core, &core, sizeof core);
            err = say(w, &c);
            break;
        }
        default: {
            uint64_t user = roll(d);
            uint32_t vector = 0;
            struct ib_uverbs_attr* attr;

            begin(&m, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
            attr = add_handle(&m, UVERBS_ATTR_CREATE_CQ_HANDLE, 0);
            add_in(&m, UVERBS_ATTR_CREATE_CQ_CQE, &cqe, sizeof cqe);
            add_in(&m, UVERBS_ATTR_CREATE_CQ_USER_HANDLE, &user, sizeof user);
            add_in(&m, UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, &vector, sizeof vector);
            if (fd >= 0) add(&m, UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, 0, (uint64_t)fd);
            add(&m, UVERBS_ATTR_CREATE_CQ_RESP_CQE, 4, (uintptr_t)w->out);
            add_in(&m, UVERBS_ATTR_UHW_IN, c.driver, sizeof driver);
            add(&m, UVERBS_ATTR_UHW_OUT, sizeof(struct mana_uapi_create_cq_resp),
                (uintptr_t)w->out + 8);
            err = by_method(w, &m);
            if (!err) keep(w, K_CQ, (uint32_t)attr->data, flavour);
            return err;
        }
    }
    keep_answer(w, err, K_CQ, 0, flavour);
    return err;
}

static int op_resize(struct worker* w) {
    uint32_t cqe = 64u << below(&w->dice, 6);
    struct ib_uverbs_resize_cq core = {
        .cq_handle =
            percent(&w->dice, 90) ? handle_of(pick_flavour(w, K_CQ, F_EXTENDED)) : pick(w, K_CQ),
        .cqe = cqe};
    struct mana_uapi_resize_cq driver = {.address = memory(w, cqe * 64 + PAGE), .entries = cqe};
    struct command c = {.number = IB_USER_VERBS_CMD_RESIZE_CQ,
                        .core_bytes = sizeof core,
                        .answer_bytes = sizeof(struct ib_uverbs_resize_cq_resp),
                        .driver_bytes = sizeof driver,
                        .driver_answer_bytes = sizeof(struct mana_uapi_resize_cq_resp)};

    memcpy(c.core, &core, sizeof core);
    memcpy(c.driver, &driver, sizeof driver);
    return say(w, &c);
}

/* A QP by its structure; on request by the attributes of the method. */
static int create_qp(struct worker* w, struct ib_uverbs_ex_create_qp* core, const void* driver,
                     uint32_t driver_bytes, uint32_t driver_answer_bytes, enum flavour flavour) {
    struct command c = {.number = IB_USER_VERBS_EX_CMD_CREATE_QP,
                        .extended = true,
                        .core_bytes = sizeof *core,
                        .answer_bytes = sizeof(struct ib_uverbs_ex_create_qp_resp),
                        .driver_bytes = driver_bytes,
                        .driver_answer_bytes = driver_answer_bytes};
    int err;

    memcpy(c.core, core, sizeof *core);
    memcpy(c.driver, driver, driver_bytes);
    if (!core->rwq_ind_tbl_handle && percent(&w->dice, 60)) {
        struct ib_uverbs_create_qp old;

        /* the older command has the same fields behind its pointer */
        c.number = IB_USER_VERBS_CMD_CREATE_QP;
        c.extended = false;
        c.core_bytes = sizeof old;
        c.answer_bytes = sizeof(struct ib_uverbs_create_qp_resp);
        memset(c.core, 0, sizeof c.core);
        memcpy(c.core + offsetof(struct ib_uverbs_create_qp, user_handle), core,
               sizeof old - offsetof(struct ib_uverbs_create_qp, user_handle));
    }
    err = say(w, &c);
    keep_answer(w, err, K_QP, 0, flavour);
    return err;
}

static int create_qp_by_method(struct worker* w, const struct ib_uverbs_ex_create_qp* core,
                               const void* driver, uint32_t driver_bytes, enum flavour flavour) {
    struct ib_uverbs_qp_cap cap = {.max_send_wr = core->max_send_wr,
                                   .max_recv_wr = core->max_recv_wr,
                                   .max_send_sge = core->max_send_sge,
                                   .max_recv_sge = core->max_recv_sge,
                                   .max_inline_data = core->max_inline_data};
    uint64_t type = core->qp_type;
    uint64_t flags = core->sq_sig_all ? IB_UVERBS_QP_CREATE_SQ_SIG_ALL : 0;
    struct ib_uverbs_attr* attr;
    struct method m;
    int err;

    begin(&m, UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
    attr = add_handle(&m, UVERBS_ATTR_CREATE_QP_HANDLE, 0);
    add_handle(&m, UVERBS_ATTR_CREATE_QP_PD_HANDLE, core->pd_handle);
    add_handle(&m, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, core->send_cq_handle);
    add_handle(&m, UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, core->recv_cq_handle);
    if (core->is_srq) add_handle(&m, UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, core->srq_handle);
    if (core->rwq_ind_tbl_handle)
        add_handle(&m, UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, core->rwq_ind_tbl_handle);
    add_in(&m, UVERBS_ATTR_CREATE_QP_USER_HANDLE, &core->user_handle, 8);
    add_in(&m, UVERBS_ATTR_CREATE_QP_CAP, &cap, sizeof cap);
    add_in(&m, UVERBS_ATTR_CREATE_QP_TYPE, &type, sizeof type);
    add_in(&m, UVERBS_ATTR_CREATE_QP_FLAGS, &flags, sizeof flags);
    add(&m, UVERBS_ATTR_CREATE_QP_RESP_CAP, sizeof cap, (uintptr_t)w->out);
    add(&m, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, 4, (uintptr_t)w->out + 64);
    add_in(&m, UVERBS_ATTR_UHW_IN, driver, driver_bytes);
    add(&m, UVERBS_ATTR_UHW_OUT, sizeof(struct mana_uapi_create_qp_resp), answer_at(w));
    err = by_method(w, &m);
    if (!err) keep(w, K_QP, (uint32_t)attr->data, flavour);
    return err;
}

static int op_qp(struct worker* w) {
    static const uint8_t types[] = {IB_UVERBS_QPT_RC, IB_UVERBS_QPT_RC, IB_UVERBS_QPT_UC,
                                    IB_UVERBS_QPT_UD};
    struct dice* d = &w->dice;
    enum flavour flavour = percent(d, 65) ? F_EXTENDED : F_STOCK;
    struct ib_uverbs_ex_create_qp core = {.user_handle = roll(d),
                                          .pd_handle = pick(w, K_PD),
                                          .max_send_wr = 16,
                                          .max_recv_wr = 16,
                                          .max_send_sge = 1 + below(d, 4),
                                          .max_recv_sge = 1 + below(d, 4),
                                          .max_inline_data = percent(d, 20) ? 64 : 0,
                                          .sq_sig_all = percent(d, 30),
                                          .qp_type = types[below(d, sizeof types)]};
    struct mana_uapi_create_qp driver = {0};
    uint32_t bytes = sizeof driver;

    if (w->spoilt && percent(d, 10)) core.qp_type = (uint8_t)below(d, 12);
    core.send_cq_handle =
        w->spoilt && percent(d, 30) ? pick(w, K_CQ) : handle_of(pick_flavour(w, K_CQ, flavour));
    core.recv_cq_handle =
        percent(d, 70) ? core.send_cq_handle : handle_of(pick_flavour(w, K_CQ, flavour));
    if (flavour == F_EXTENDED) {
        driver.sq_bytes = PAGE << below(d, 3);
        if (percent(d, 25)) {
            core.is_srq = 1;
            core.srq_handle = pick(w, K_SRQ);
        } else {
            driver.rq_bytes = PAGE;
            driver.rq_stride = 32u << below(d, 4);
        }
        driver.buffer = memory(w, driver.sq_bytes + driver.rq_bytes + PAGE);
    } else {
        for (int i = 0; i < MANA_UAPI_QP_QUEUES; i++) {
            driver.bytes[i] = PAGE << below(d, 3);
            driver.address[i] = memory(w, driver.bytes[i]);
        }
        if (percent(d, 50)) bytes = MANA_UAPI_CREATE_QP_STOCK_BYTES;
    }
    if (percent(d, 30)) return create_qp_by_method(w, &core, &driver, bytes, flavour);
    return create_qp(w, &core, &driver, bytes, sizeof(struct mana_uapi_create_qp_resp), flavour);
}

static int op_raw_qp(struct worker* w) {
    struct mana_uapi_create_raw_qp driver = {.sq_bytes = PAGE << below(&w->dice, 3), .port = 1};
    struct ib_uverbs_ex_create_qp core = {
        .pd_handle = pick(w, K_PD), .max_send_wr = 8, .max_send_sge = 2};

    core.qp_type = IB_UVERBS_QPT_RAW_PACKET;
    core.send_cq_handle = handle_of(pick_flavour(w, K_CQ, F_ETHERNET));
    core.recv_cq_handle = core.send_cq_handle;
    driver.sq_address = memory(w, driver.sq_bytes);
    return create_qp(w, &core, &driver, sizeof driver, sizeof(struct mana_uapi_create_raw_qp_resp),
                     F_ETHERNET);
}

static int op_rss_qp(struct worker* w) {
    struct mana_uapi_create_rss_qp driver = {.hash_fields = 0xf,
                                             .hash_function = MANA_UAPI_RSS_TOEPLITZ,
                                             .key_length = MANA_UAPI_RSS_KEY_BYTES,
                                             .port = percent(&w->dice, 60)};
    struct ib_uverbs_ex_create_qp core = {.pd_handle = pick(w, K_PD),
                                          .qp_type = IB_UVERBS_QPT_RAW_PACKET,
                                          .comp_mask = IB_UVERBS_CREATE_QP_MASK_IND_TABLE,
                                          .rwq_ind_tbl_handle = pick(w, K_TABLE)};

    return create_qp(w, &core, &driver, sizeof driver, sizeof(struct mana_uapi_create_rss_qp_resp),
                     F_ETHERNET);
}

/* Raw packets beside the interface: both queues, which stand from INIT on. */
static int op_packet_qp(struct worker* w) {
    struct mana_uapi_create_raw_qp driver = {.send = {.bytes = PAGE, .cqes = 64},
                                             .recv = {.bytes = PAGE, .cqes = 128}};
    struct ib_uverbs_ex_create_qp core = {.pd_handle = pick(w, K_PD),
                                          .send_cq_handle = pick(w, K_CQ),
                                          .recv_cq_handle = pick(w, K_CQ),
                                          .max_send_wr = 8,
                                          .max_recv_wr = 8,
                                          .max_send_sge = 2,
                                          .max_recv_sge = 2};

    core.qp_type = IB_UVERBS_QPT_RAW_PACKET;
    driver.send.address = memory(w, driver.send.bytes);
    driver.send.cq_address = memory(w, driver.send.cqes * 64);
    driver.recv.address = memory(w, driver.recv.bytes);
    driver.recv.cq_address = memory(w, driver.recv.cqes * 64);
    return create_qp(w, &core, &driver, sizeof driver, 16, F_PACKETS);
}

/* What of the frames a packet QP gets. */
static int op_flow(struct worker* w) {
    struct dice* d = &w->dice;
    struct ib_uverbs_create_flow core = {
        .qp_handle = handle_of(pick_flavour(w, K_QP, F_PACKETS)),
        .flow_attr = {.type = below(d, 3), .priority = (uint16_t)below(d, 4), .port = 1}};
    struct command c = {.number = IB_USER_VERBS_EX_CMD_CREATE_FLOW,
                        .extended = true,
                        .answer_bytes = sizeof(struct ib_uverbs_create_flow_resp)};
    struct ib_uverbs_flow_spec_eth eth = {.type = 0x20, .size = sizeof eth};
    struct ib_uverbs_flow_spec_ipv4 ip = {.type = 0x30, .size = sizeof ip};
    struct ib_uverbs_flow_spec_tcp_udp udp = {.type = 0x41, .size = sizeof udp};
    uint32_t bytes = sizeof core;
    int err;

    if (core.flow_attr.type == 0 && percent(d, 80)) {
        eth.mask.ether_type = percent(d, 50) ? 0xffff : 0;
        eth.val.ether_type = 0x0008;
        ip.mask.dst_ip = (uint32_t)odd_value(d);
        udp.mask.dst_port = 0xffff;
        udp.val.dst_port = (uint16_t)roll(d);
        memcpy(c.core + bytes, &eth, sizeof eth);
        memcpy(c.core + bytes + sizeof eth, &ip, sizeof ip);
        memcpy(c.core + bytes + sizeof eth + sizeof ip, &udp, sizeof udp);
        core.flow_attr.num_of_specs = (uint8_t)(1 + below(d, 3));
        core.flow_attr.size =
            (uint16_t)(sizeof eth + (core.flow_attr.num_of_specs > 1) * sizeof ip +
                       (core.flow_attr.num_of_specs > 2) * sizeof udp);
        bytes += core.flow_attr.size;
    }
    memcpy(c.core, &core, sizeof core);
    c.core_bytes = words(bytes, 8) * 8;
    err = say(w, &c);
    keep_answer(w, err, K_FLOW, offsetof(struct ib_uverbs_create_flow_resp, flow_handle), 0);
    return err;
}

/* The states a QP passes on its way, with what the table of the verbs wants for each step. */
static void next_step(struct worker* w, uint64_t slot, struct ib_uverbs_modify_qp* core) {
    enum { STATE = 1, ACCESS = 8, PKEY = 16, PORT = 32, QKEY = 64, AV = 128, MTU = 256 };
    enum { TIMEOUT = 512, RETRY = 1024, RNR = 2048, RQ_PSN = 4096, RD = 8192 };
    enum { MIN_RNR = 1 << 15, SQ_PSN = 1 << 16, DEST_RD = 1 << 17, DEST_QPN = 1 << 20 };
    struct dice* d = &w->dice;
    /* A slot does not tell RC from UD: a guess, which is wrong as often as it may be. */
    uint32_t kind = flavour_of(slot) == F_PACKETS ? 2 : below(d, 3);

    core->port_num = 1;
    core->path_mtu = 3;
    core->dest_qp_num = below(d, 64);
    core->timeout = 14;
    core->retry_cnt = 3;
    core->rnr_retry = 3;
    core->min_rnr_timer = 5;
    core->max_rd_atomic = 1;
    core->max_dest_rd_atomic = 1;
    core->qp_access_flags = 7;
    core->dest.is_global = 1;
    core->dest.port_num = 1;
    core->dest.sgid_index = (uint8_t)below(d, 4);
    core->dest.hop_limit = 64;
    core->dest.dgid[10] = core->dest.dgid[11] = 0xff;
    core->dest.dgid[12] = 10;
    core->dest.dgid[15] = 1;
    switch (state_of(slot)) {
        case 0:
            core->qp_state = 1;
            core->attr_mask = kind == 0   ? STATE | PKEY | PORT | ACCESS
                              : kind == 1 ? STATE | PKEY | PORT | QKEY
                                          : STATE | PORT;
            break;
        case 1:
            core->qp_state = 2;
            core->attr_mask = kind == 0   ? STATE | AV | MTU | DEST_QPN | RQ_PSN | DEST_RD | MIN_RNR
                              : kind == 1 ? STATE | AV | MTU | DEST_QPN | RQ_PSN
                                          : STATE;
            break;
        case 2:
            core->qp_state = 3;
            core->attr_mask = kind == 0   ? STATE | TIMEOUT | RETRY | RNR | SQ_PSN | RD
                              : kind == 1 ? STATE | SQ_PSN
                                          : STATE;
            break;
        default: /* drained, at work again, in error, reset */
            core->qp_state = (uint8_t)below(d, 7);
            core->attr_mask = STATE;
            break;
    }
}

static int op_modify_qp(struct worker* w) {
    struct process* p = w->process;
    int at = find(w, K_QP);
    uint64_t slot = slot_at(w, K_QP, at);
    struct ib_uverbs_ex_modify_qp core = {.base.qp_handle = handle_of(slot)};
    struct command c = {.number = IB_USER_VERBS_CMD_MODIFY_QP, .core_bytes = sizeof core.base};
    int err;

    next_step(w, slot, &core.base);
    if (w->spoilt) {
        if (percent(&w->dice, 30)) core.base.attr_mask = (uint32_t)roll(&w->dice) & 0x1fffff;
        if (percent(&w->dice, 20)) core.base.qp_state = (uint8_t)below(&w->dice, 9);
    }
    memcpy(c.core, &core, sizeof core);
    if (flavour_of(slot) == F_PACKETS || percent(&w->dice, 30)) {
        c.number = IB_USER_VERBS_EX_CMD_MODIFY_QP;
        c.extended = true;
        c.core_bytes = sizeof core;
        c.answer_bytes = sizeof(struct ib_uverbs_ex_modify_qp_resp);
        if (percent(&w->dice, 80))
            c.driver_answer_bytes = sizeof(struct mana_uapi_modify_packet_qp_resp);
    }
    err = say(w, &c);
    if (!err && !w->spoilt && at >= 0)
        atomic_compare_exchange_strong(
            &p->slots[K_QP][at], &slot,
            (slot & 0xffffffffffull) | (uint64_t)core.base.qp_state << 40);
    return err;
}

static int op_query_qp(struct worker* w) {
    struct ib_uverbs_query_qp core = {.qp_handle = pick(w, K_QP),
                                      .attr_mask = (uint32_t)roll(&w->dice)};
    struct command c = {.number = IB_USER_VERBS_CMD_QUERY_QP,
                        .core_bytes = sizeof core,
                        .answer_bytes = sizeof(struct ib_uverbs_query_qp_resp)};

    memcpy(c.core, &core, sizeof core);
    return say(w, &c);
}

static int op_srq(struct worker* w) {
    struct ib_uverbs_create_srq core = {
        .pd_handle = pick(w, K_PD), .max_wr = 64, .max_sge = 2, .srq_limit = below(&w->dice, 8)};
    struct mana_uapi_create_srq driver = {.ring_bytes = PAGE << below(&w->dice, 2), .stride = 64};
    struct command c = {.number = IB_USER_VERBS_CMD_CREATE_SRQ,
                        .core_bytes = sizeof core,
                        .answer_bytes = sizeof(struct ib_uverbs_create_srq_resp),
                        .driver_bytes = sizeof driver,
                        .driver_answer_bytes = sizeof(struct mana_uapi_create_srq_resp)};
    int err;

    driver.buffer = memory(w, driver.ring_bytes + PAGE);
    memcpy(c.core, &core, sizeof core);
    memcpy(c.driver, &driver, sizeof driver);
    err = say(w, &c);
    keep_answer(w, err, K_SRQ, 0, 0);
    return err;
}

static int op_modify_srq(struct worker* w) {
    struct ib_uverbs_modify_srq core = {
        .srq_handle = pick(w, K_SRQ), .attr_mask = 2, .srq_limit = below(&w->dice, 80)};
    struct command c = {.number = IB_USER_VERBS_CMD_MODIFY_SRQ, .core_bytes = sizeof core};

    memcpy(c.core, &core, sizeof core);
    return say(w, &c);
}

static int op_query_srq(struct worker* w) {
    struct ib_uverbs_query_srq core = {.srq_handle = pick(w, K_SRQ)};
    struct command c = {.number = IB_USER_VERBS_CMD_QUERY_SRQ,
                        .core_bytes = sizeof core,
                        .answer_bytes = sizeof(struct ib_uverbs_query_srq_resp)};

    memcpy(c.core, &core, sizeof core);
    return say(w, &c);
}

/* Rights that go together, of all that the driver has. */
static uint32_t rights(struct worker* w) {
    static const uint32_t values[] = {0, 1, 3, 7, 15, 0x17, 0x27, 1 << 20, 1 << 20 | 7};

    if (w->spoilt && percent(&w->dice, 30)) return (uint32_t)odd_value(&w->dice);
    return values[below(&w->dice, sizeof values / sizeof *values)];
}

static int op_mr(struct worker* w) {
    uint64_t bytes = 1 + below(&w->dice, 8 * PAGE);
    struct ib_uverbs_reg_mr core = {.start = memory(w, bytes),
                                    .length = bytes,
                                    .pd_handle = pick(w, K_PD),
                                    .access_flags = rights(w)};
    struct command c = {.number = IB_USER_VERBS_CMD_REG_MR,
                        .core_bytes = sizeof core,
                        .answer_bytes = sizeof(struct ib_uverbs_reg_mr_resp)};
    int err;

    if (percent(&w->dice, 40)) core.start += below(&w->dice, PAGE);
    core.hca_va = percent(&w->dice, 70)
                      ? core.start
                      : (roll(&w->dice) & ~(uint64_t)(PAGE - 1)) | (core.start & (PAGE - 1));
    if (w->spoilt && percent(&w->dice, 10)) core.length = odd_value(&w->dice);
    memcpy(c.core, &core, sizeof core);
    err = say(w, &c);
    keep_answer(w, err, K_MR, 0, 0);
    return err;
}

static int op_rereg_mr(struct worker* w) {
    uint64_t bytes = 1 + below(&w->dice, 8 * PAGE);
    struct ib_uverbs_rereg_mr core = {.mr_handle = pick(w, K_MR),
                                      .flags = 1 + below(&w->dice, 7),
                                      .start = memory(w, bytes),
                                      .length = bytes,
                                      .pd_handle = pick(w, K_PD),
                                      .access_flags = rights(w)};
    struct command c = {.number = IB_USER_VERBS_CMD_REREG_MR,
                        .core_bytes = sizeof core,
                        .answer_bytes = sizeof(struct ib_uverbs_rereg_mr_resp)};

    core.hca_va = core.start;
    memcpy(c.core, &core, sizeof core);
    return say(w, &c);
}

static int op_query_mr(struct worker* w) {
    struct method m;

    begin(&m, UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR);
    add_handle(&m, UVERBS_ATTR_QUERY_MR_HANDLE, pick(w, K_MR));
    add(&m, UVERBS_ATTR_QUERY_MR_RESP_LKEY, 4, answer_at(w));
    add(&m, UVERBS_ATTR_QUERY_MR_RESP_RKEY, 4, answer_at(w));
    add(&m, UVERBS_ATTR_QUERY_MR_RESP_LENGTH, 8, answer_at(w));
    add(&m, UVERBS_ATTR_QUERY_MR_RESP_IOVA, 8, answer_at(w));
    return by_method(w, &m);
}

/* What a process asks that imports a context, a PD or device memory. */
static int op_import(struct worker* w) {
    struct dice* d = &w->dice;
    struct method m;
    uint32_t bytes = w->spoilt ? below(d, 128) : sizeof(struct mana_uapi_context_resp);

    switch (below(d, 3)) {
        case 0:
            begin(&m, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT);
            if (percent(d, 50))
                add(&m, UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, 4, answer_at(w));
            if (percent(d, 50)) add(&m, UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, 8, answer_at(w));
            add(&m, MANA_UAPI_ATTR_QUERY_CONTEXT_RESP, bytes, answer_at(w));
            break;
        case 1:
            begin(&m, UVERBS_OBJECT_PD, MANA_UAPI_METHOD_QUERY_PD);
            add_handle(&m, MANA_UAPI_ATTR_QUERY_PD_HANDLE, pick(w, K_PD));
            break;
        default:
            begin(&m, UVERBS_OBJECT_DM, MANA_UAPI_METHOD_QUERY_DM);
            add_handle(&m, MANA_UAPI_ATTR_QUERY_DM_HANDLE, pick(w, K_DM));
            add(&m, MANA_UAPI_ATTR_QUERY_DM_LENGTH, 8, answer_at(w));
            break;
    }
    return by_method(w, &m);
}

static int op_mw(struct worker* w) {
    struct ib_uverbs_alloc_mw core = {.pd_handle = pick(w, K_PD),
                                      .mw_type = (uint8_t)(1 + below(&w->dice, 2))};
    struct command c = {.number = IB_USER_VERBS_CMD_ALLOC_MW,
                        .core_bytes = sizeof core,
                        .answer_bytes = sizeof(struct ib_uverbs_alloc_mw_resp)};
    int err;

    memcpy(c.core, &core, sizeof core);
    err = say(w, &c);
    keep_answer(w, err, K_MW, 0, 0);
    return err;
}

static int op_ah(struct worker* w) {
    struct ib_uverbs_create_ah core = {
        .pd_handle = pick(w, K_PD),
        .attr = {.is_global = 1,
                 .port_num = 1,
                 .grh = {.sgid_index = (uint8_t)below(&w->dice, 4), .hop_limit = 64}}};
    struct command c = {.number = IB_USER_VERBS_CMD_CREATE_AH,
                        .core_bytes = sizeof core,
                        .answer_bytes = sizeof(struct ib_uverbs_create_ah_resp),
                        .driver_answer_bytes = sizeof(struct mana_uapi_create_ah_resp)};
    int err;

    core.attr.grh.dgid[10] = core.attr.grh.dgid[11] = 0xff;
    core.attr.grh.dgid[12] = 10;
    core.attr.grh.dgid[15] = (uint8_t)(1 + below(&w->dice, 2));
    memcpy(c.core, &core, sizeof core);
    err = say(w, &c);
    keep_answer(w, err, K_AH, 0, 0);
    return err;
}

static struct command wq_command(uint32_t pd, uint32_t cq,
                                 const struct mana_uapi_create_wq* driver) {
    struct ib_uverbs_ex_create_wq core = {
        .wq_type = IB_UVERBS_WQT_RQ, .pd_handle = pd, .cq_handle = cq, .max_wr = 8, .max_sge = 1};
    struct command c = {.number = IB_USER_VERBS_EX_CMD_CREATE_WQ,
                        .extended = true,
                        .core_bytes = sizeof core,
                        .answer_bytes = sizeof(struct ib_uverbs_ex_create_wq_resp),
                        .driver_bytes = sizeof *driver,
                        .driver_answer_bytes = sizeof(struct mana_uapi_create_wq_resp)};

    memcpy(c.core, &core, sizeof core);
    memcpy(c.driver, driver, sizeof *driver);
    return c;
}

static int create_wq(struct worker* w, uint32_t cq, const struct mana_uapi_create_wq* driver) {
    struct command c = wq_command(pick(w, K_PD), cq, driver);
    int err = say(w, &c);

    keep_answer(w, err, K_WQ, offsetof(struct ib_uverbs_ex_create_wq_resp, wq_handle), 0);
    return err;
}

static int direct_wq(struct worker* w) {
    struct mana_uapi_create_wq driver = {.bytes = PAGE << below(&w->dice, 2)};
    uint32_t cq =
        percent(&w->dice, 85) ? handle_of(pick_flavour(w, K_CQ, F_ETHERNET)) : pick(w, K_CQ);

    driver.address = memory(w, driver.bytes);
    return create_wq(w, cq, &driver);
}

/* With a data path. */
static int packet_wq(struct worker* w) {
    struct mana_uapi_create_wq driver = {.recv = {.bytes = PAGE, .cqes = 64}};

    driver.recv.address = memory(w, driver.recv.bytes);
    driver.recv.cq_address = memory(w, driver.recv.cqes * 64);
    return create_wq(w, pick(w, K_CQ), &driver);
}

static int op_wq(struct worker* w) {
    return percent(&w->dice, 60) ? direct_wq(w) : packet_wq(w);
}

static int op_table(struct worker* w) {
    struct ib_uverbs_ex_create_rwq_ind_table core = {.log_ind_tbl_size = below(&w->dice, 3)};
    uint32_t count = 1u << core.log_ind_tbl_size;
    struct command c = {.number = IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL,
                        .extended = true,
                        .core_bytes = words((uint32_t)sizeof core + count * 4, 8) * 8,
                        .answer_bytes = sizeof(struct ib_uverbs_ex_create_rwq_ind_table_resp)};
    int err;

    memcpy(c.core, &core, sizeof core);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t wq = pick(w, K_WQ);

        memcpy(c.core + sizeof core + i * 4, &wq, sizeof wq);
    }
    err = say(w, &c);
    keep_answer(w, err, K_TABLE,
                offsetof(struct ib_uverbs_ex_create_rwq_ind_table_resp, ind_tbl_handle), 0);
    return err;
}

static int op_dm(struct worker* w) {
    uint64_t bytes = 64u << below(&w->dice, 8);
    uint32_t alignment = below(&w->dice, 8);
    struct ib_uverbs_attr* attr;
    struct method m;
    int err;

    if (w->spoilt && percent(&w->dice, 40)) bytes = odd_value(&w->dice);
    if (w->spoilt && percent(&w->dice, 40)) alignment = (uint32_t)odd_value(&w->dice);
    begin(&m, UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC);
    attr = add_handle(&m, UVERBS_ATTR_ALLOC_DM_HANDLE, 0);
    add_in(&m, UVERBS_ATTR_ALLOC_DM_LENGTH, &bytes, sizeof bytes);
    add_in(&m, UVERBS_ATTR_ALLOC_DM_ALIGNMENT, &alignment, sizeof alignment);
    err = by_method(w, &m);
    if (!err) keep(w, K_DM, (uint32_t)attr->data, 0);
    return err;
}

static int op_dm_mr(struct worker* w) {
    uint64_t offset = below(&w->dice, 4) * 16;
    uint64_t bytes = 1 + below(&w->dice, 64);
    uint32_t access = IB_UVERBS_ACCESS_ZERO_BASED | below(&w->dice, 8);
    struct ib_uverbs_attr* attr;
    struct method m;
    int err;

    if (w->spoilt && percent(&w->dice, 30)) offset = odd_value(&w->dice);
    if (w->spoilt && percent(&w->dice, 30)) bytes = odd_value(&w->dice);
    begin(&m, UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG);
    attr = add_handle(&m, UVERBS_ATTR_REG_DM_MR_HANDLE, 0);
    add_in(&m, UVERBS_ATTR_REG_DM_MR_OFFSET, &offset, sizeof offset);
    add_in(&m, UVERBS_ATTR_REG_DM_MR_LENGTH, &bytes, sizeof bytes);
    add_handle(&m, UVERBS_ATTR_REG_DM_MR_PD_HANDLE, pick(w, K_PD));
    add_in(&m, UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, &access, sizeof access);
    add_handle(&m, UVERBS_ATTR_REG_DM_MR_DM_HANDLE, pick(w, K_DM));
    add(&m, UVERBS_ATTR_REG_DM_MR_RESP_LKEY, 4, (uintptr_t)w->out);
    add(&m, UVERBS_ATTR_REG_DM_MR_RESP_RKEY, 4, (uintptr_t)w->out + 4);
    err = by_method(w, &m);
    if (!err) keep(w, K_MR, (uint32_t)attr->data, 0);
    return err;
}

static int op_dm_copy(struct worker* w) {
    struct dice* d = &w->dice;
    uint64_t offset = below(d, 4) * 16;
    uint64_t bytes = 1 + below(d, percent(d, 20) ? 8192 : 16);
    uint32_t direction = below(d, 2);

    if (w->spoilt && percent(d, 30)) offset = odd_value(d);
    if (w->spoilt && percent(d, 30)) bytes = odd_value(d);
    if (w->spoilt && percent(d, 10)) direction = (uint32_t)odd_value(d);
    return copy_dm(w, pick(w, K_DM), offset, memory(w, bytes), bytes, direction);
}

/* Descriptors that are none of a dma-buf. */
static int op_dmabuf_mr(struct worker* w) {
    const int fds[] = {w->process->fd, w->process->async_fd, w->process->channel, 0, -1};
    uint32_t fd = (uint32_t)fds[below(&w->dice, 5)];
    uint64_t offset = below(&w->dice, 2) * PAGE;
    uint64_t bytes = PAGE;
    uint64_t iova = offset;
    uint32_t access = below(&w->dice, 8);
    struct method m;

    begin(&m, UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR);
    add_handle(&m, UVERBS_ATTR_REG_DMABUF_MR_HANDLE, 0);
    add_handle(&m, UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, pick(w, K_PD));
    add_in(&m, UVERBS_ATTR_REG_DMABUF_MR_OFFSET, &offset, sizeof offset);
    add_in(&m, UVERBS_ATTR_REG_DMABUF_MR_LENGTH, &bytes, sizeof bytes);
    add_in(&m, UVERBS_ATTR_REG_DMABUF_MR_IOVA, &iova, sizeof iova);
    add(&m, UVERBS_ATTR_REG_DMABUF_MR_FD, 4, fd);
    add_in(&m, UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, &access, sizeof access);
    add(&m, UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, 4, (uintptr_t)w->out);
    add(&m, UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, 4, (uintptr_t)w->out + 4);
    return by_method(w, &m);
}

static int op_multicast(struct worker* w) {
    struct ib_uverbs_attach_mcast core = {.qp_handle = pick(w, K_QP),
                                          .gid = {[10] = 0xff, [11] = 0xff, [12] = 224}};
    struct command c = {.number = percent(&w->dice, 60) ? IB_USER_VERBS_CMD_ATTACH_MCAST
                                                        : IB_USER_VERBS_CMD_DETACH_MCAST,
                        .core_bytes = sizeof core};

    core.gid[15] = (uint8_t)below(&w->dice, 4);
    memcpy(c.core, &core, sizeof core);
    return say(w, &c);
}

/* Questions about the device. */
static int op_query(struct worker* w) {
    struct command c = {0};
    struct method m;
    uint64_t number = 1;
    uint8_t port = 1;

    switch (below(&w->dice, 5)) {
        case 0:
            c.number = IB_USER_VERBS_CMD_QUERY_DEVICE;
            c.core_bytes = 8;
            c.answer_bytes = sizeof(struct ib_uverbs_query_device_resp);
            return say(w, &c);
        case 1:
            c.number = IB_USER_VERBS_EX_CMD_QUERY_DEVICE;
            c.extended = true;
            c.core_bytes = sizeof(struct ib_uverbs_ex_query_device);
            c.answer_bytes = sizeof(struct ib_uverbs_ex_query_device_resp);
            return say(w, &c);
        case 2:
            c.number = IB_USER_VERBS_CMD_QUERY_PORT;
            c.core_bytes = sizeof(struct ib_uverbs_query_port);
            c.core[8] = 1;
            c.answer_bytes = sizeof(struct ib_uverbs_query_port_resp);
            return say(w, &c);
        case 3:
            begin(&m, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT);
            add_in(&m, UVERBS_ATTR_QUERY_PORT_PORT_NUM, &port, sizeof port);
            add(&m, UVERBS_ATTR_QUERY_PORT_RESP, sizeof(struct ib_uverbs_query_port_resp_ex),
                answer_at(w));
            return by_method(w, &m);
        default:
            number = below(&w->dice, 20);
            begin(&m, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INFO_HANDLES);
            add_in(&m, UVERBS_ATTR_INFO_OBJECT_ID, &number, sizeof number);
            add(&m, UVERBS_ATTR_INFO_TOTAL_HANDLES, 4, (uintptr_t)w->out);
            add(&m, UVERBS_ATTR_INFO_HANDLES_LIST, 256, answer_at(w));
            return by_method(w, &m);
    }
}

static int op_destroy(struct worker* w) {
    enum kind kind = (enum kind)below(&w->dice, K_COUNT);
    int at = find(w, kind);
    uint64_t slot = slot_at(w, kind, at);
    uint32_t handle = w->spoilt ? pick(w, kind) : handle_of(slot);
    int err = destroy(w, kind, handle);

    /* Sometimes the slot keeps the handle of what is gone. */
    if (!err && at >= 0 && percent(&w->dice, 90))
        atomic_compare_exchange_strong(&w->process->slots[kind][at], &slot, empty_slot);
    return err;
}

/* The doorbell page, and what is none. */
static int op_map(struct worker* w) {
    size_t bytes = w->spoilt && percent(&w->dice, 30) ? 2 * PAGE : PAGE;
    off_t offset =
        w->spoilt && percent(&w->dice, 30) ? (off_t)(odd_value(&w->dice) & ~0xfffull) : 0;
    int how = w->spoilt && percent(&w->dice, 30) ? MAP_PRIVATE : MAP_SHARED;
    int rights_of = w->spoilt ? (int)below(&w->dice, 8) : PROT_READ | PROT_WRITE;
    void* at = mmap(w->place, bytes, rights_of, how, w->process->fd, offset);

    if (at == MAP_FAILED) return errno;
    if (!w->process->doorbell && rights_of & PROT_WRITE)
        w->process->doorbell = at; /* stays: others may be about to use it */
    else
        munmap(at, bytes);
    return 0;
}

/* Anything, anywhere in the page: for the queues of this process, or of nobody. */
static int op_doorbell(struct worker* w) {
    uint8_t* page = w->process->doorbell;

    if (!page) return ENODATA;
    for (uint32_t i = below(&w->dice, 4); i; i--) {
        uint64_t value = percent(&w->dice, 50)
                             ? odd_value(&w->dice)
                             : below(&w->dice, 512) | (uint64_t)below(&w->dice, 4096) << 32;

        *(volatile uint64_t*)(page + below(&w->dice, PAGE / 8) * 8) = value;
    }
    return 0;
}

static int op_events(struct worker* w) {
    struct process* p = w->process;
    int fd = percent(&w->dice, 50) ? p->async_fd : p->channel;
    struct pollfd ready = {.fd = fd, .events = POLLIN};

    if (poll(&ready, 1, 0) < 0) return errno;
    return sent(read(fd, w->out, 1 + below(&w->dice, 64)));
}

/* Work requests, completions and records become anything. */
static int op_scribble(struct worker* w) {
    uint8_t* at = w->process->arena + below(&w->dice, ARENA / PAGE) * PAGE;

    if (percent(&w->dice, 20)) { /* the memory goes, a region keeps its pages */
        if (madvise(at, PAGE, MADV_DONTNEED)) return errno;
        return 0;
    }
    for (uint32_t i = 0; i < PAGE / 8; i++) {
        uint64_t value = percent(&w->dice, 50) ? below(&w->dice, 64) : roll(&w->dice);

        memcpy(at + i * 8, &value, sizeof value);
    }
    return 0;
}

/* Commands of features that the driver does not have, and numbers of no command. */
static int op_absent(struct worker* w) {
    static const uint8_t numbers[] = {IB_USER_VERBS_CMD_POLL_CQ,   IB_USER_VERBS_CMD_REQ_NOTIFY_CQ,
                                      IB_USER_VERBS_CMD_POST_SEND, IB_USER_VERBS_CMD_POST_RECV,
                                      IB_USER_VERBS_CMD_OPEN_XRCD, IB_USER_VERBS_CMD_POST_SRQ_RECV,
                                      IB_USER_VERBS_CMD_OPEN_QP,   IB_USER_VERBS_CMD_CREATE_XSRQ,
                                      IB_USER_VERBS_CMD_REG_SMR,   IB_USER_VERBS_CMD_BIND_MW,
                                      IB_USER_VERBS_CMD_PEEK_CQ,   IB_USER_VERBS_CMD_QUERY_AH,
                                      IB_USER_VERBS_CMD_MODIFY_AH, IB_USER_VERBS_CMD_QUERY_MR};
    static const uint8_t newer[] = {IB_USER_VERBS_EX_CMD_CREATE_FLOW,
                                    IB_USER_VERBS_EX_CMD_DESTROY_FLOW,
                                    IB_USER_VERBS_EX_CMD_MODIFY_WQ, IB_USER_VERBS_EX_CMD_MODIFY_CQ};
    struct command c = {.extended = percent(&w->dice, 30), .core_bytes = 40, .answer_bytes = 16};

    if (w->spoilt && percent(&w->dice, 20))
        c.number = below(&w->dice, 256);
    else
        c.number = c.extended ? newer[below(&w->dice, sizeof newer)]
                              : numbers[below(&w->dice, sizeof numbers)];
    for (uint32_t i = 8; i < c.core_bytes; i += 4) {
        uint32_t value = below(&w->dice, 12);

        memcpy(c.core + i, &value, sizeof value);
    }
    return say(w, &c);
}

/* Any method with any attributes. */
static int op_random_method(struct worker* w) {
    struct method m;

    begin(&m, below(&w->dice, 24), below(&w->dice, 10));
    for (uint32_t i = below(&w->dice, 10); i; i--) {
        uint32_t bytes = percent(&w->dice, 60) ? below(&w->dice, 17) : below(&w->dice, 200);
        uint64_t data = percent(&w->dice, 40)   ? memory(w, PAGE)
                        : percent(&w->dice, 50) ? below(&w->dice, 16)
                                                : odd_value(&w->dice);
        struct ib_uverbs_attr* attr = add(&m, below(&w->dice, 16), bytes, data);

        if (percent(&w->dice, 10))
            attr->attr_id = (uint16_t)(UVERBS_ATTR_UHW_IN + below(&w->dice, 4));
        attr->flags = (uint16_t)below(&w->dice, 2);
    }
    return by_method(w, &m);
}

static int op_random_bytes(struct worker* w) {
    uint8_t data[256];
    uint32_t bytes = below(&w->dice, sizeof data);
    struct ib_uverbs_cmd_hdr* header = (struct ib_uverbs_cmd_hdr*)data;

    for (uint32_t i = 0; i < sizeof data; i += 8) {
        uint64_t value = odd_value(&w->dice);

        memcpy(data + i, &value, sizeof value);
    }
    if (percent(&w->dice, 80)) {
        header->command = below(&w->dice, 62);
        header->in_words = (uint16_t)(bytes / 4);
        if (percent(&w->dice, 30)) header->command |= IB_USER_VERBS_CMD_FLAG_EXTENDED;
        bytes = bytes / 4 * 4;
    }
    return write_bytes(w, data, bytes);
}

static int (*const op_functions[O_COUNT])(struct worker*) = {op_pd,          op_cq,
                                                             op_resize,      op_qp,
                                                             op_modify_qp,   op_query_qp,
                                                             op_srq,         op_modify_srq,
                                                             op_query_srq,   op_mr,
                                                             op_rereg_mr,    op_query_mr,
                                                             op_mw,          op_ah,
                                                             op_wq,          op_table,
                                                             op_raw_qp,      op_rss_qp,
                                                             op_packet_qp,   op_flow,
                                                             op_dm,          op_dm_mr,
                                                             op_dm_copy,     op_dmabuf_mr,
                                                             op_multicast,   op_query,
                                                             op_import,      op_destroy,
                                                             op_map,         op_doorbell,
                                                             op_events,      op_scribble,
                                                             op_absent,      op_random_method,
                                                             op_random_bytes};

#endif

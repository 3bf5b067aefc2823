/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPENMANA_UVERBS_QP_H
#define OPENMANA_UVERBS_QP_H

/* Known cases: what takes more than one command of queue pairs, work queues and SRQs. */
#include "uverbs_right.h"

/* A right command with one other field. */
static int make(struct worker* w, const struct base* b,
                struct command (*right)(const struct worker*, const struct base*),
                struct change change) {
    struct command c = right(w, b);

    change_command(w, b, &change, &c);
    return plainly(w, &c);
}

static int make_qp(struct worker* w, const struct base* b, uint8_t type) {
    return make(w, b, right_qp,
                (struct change)FIELD(CORE, ib_uverbs_ex_create_qp, qp_type, N(type)));
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
    err = make_qp(w, b, IB_UVERBS_QPT_RC);
    if (err) return err;
    path->qp_handle = answered(w, 0);
    err = step(w, *path, TO_INIT, INIT);
    if (!err) err = step(w, *path, TO_RTR, RTR);
    return err ? err : step(w, *path, TO_RTS, RTS);
}

/* The usual path with another field. `with`: its offset, bytes and value. */
static int with_path(struct worker* w, const struct trial* t) {
    struct ib_uverbs_modify_qp path = usual_path;
    int err;

    memcpy((uint8_t*)&path + t->with[0], &t->with[2], t->with[1]);
    err = connected(w, t->base, &path);
    return destroy(w, K_QP, path.qp_handle) ? EPROTO : err;
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
static int drain_told_once(struct worker* w, const struct trial* t) {
    struct ib_uverbs_modify_qp path = usual_path;
    int err = connected(w, t->base, &path);

    path.en_sqd_async_notify = 1;
    if (!err) err = step(w, path, TO_STATE | NOTICE, SQD);
    if (!err && !drained(w, 10000)) err = ETIMEDOUT;
    if (!err) err = step(w, path, TO_STATE, RTS);
    if (!err) err = step(w, path, TO_STATE, SQD);
    if (!err && drained(w, 500)) err = EUCLEAN;
    return destroy(w, K_QP, path.qp_handle) ? EPROTO : err;
}

/* A limit is for those who modify an SRQ (ibv_create_srq(3)): here none is armed. */
static int srq_made_with_limit(struct worker* w, const struct trial* t) {
    struct ib_uverbs_query_srq question = {0};
    struct ib_uverbs_query_srq_resp told;
    struct command query;
    int err = make(w, t->base, right_srq,
                   (struct change)FIELD(CORE, ib_uverbs_create_srq, srq_limit, N(0x5a5a5a5a)));

    if (err) return err;
    question.srq_handle = answered(w, 0);
    query = command_of(IB_USER_VERBS_CMD_QUERY_SRQ, false, &question, sizeof question, sizeof told);
    err = plainly(w, &query);
    memcpy(&told, w->out, sizeof told);
    if (destroy(w, K_SRQ, question.srq_handle) || (!err && told.srq_limit)) return EPROTO;
    return err;
}

/* Whether a command's answer ends in zeros: room that the driver has nothing for, behind what it
 * knows. The object goes again. */
static int zeros_behind(struct worker* w, struct command c, uint32_t known, uint32_t more,
                        enum kind kind) {
    const uint8_t* end = w->out + c.answer_bytes + known;
    bool zero = true;
    int err;

    c.driver_answer_bytes = known + more;
    w->spoilt = false;
    memset(w->out, 0xa5, 512);
    err = by_write(w, &c);
    if (err) return err;
    for (uint32_t i = 0; i < more; i++) zero = zero && !end[i];
    if (end[more] != 0xa5) zero = false;
    err = destroy(w, kind, answered(w, 0));
    return err || zero ? err : EUCLEAN;
}

/* Room for an answer that there is none of ends in zeros too. */
static int pd_answer(struct worker* w, const struct trial* t) {
    return zeros_behind(w, right_pd(w, t->base), 0, 16, K_PD);
}

/* A provider that is newer than the driver finds zero in what the driver does not know. */
static int cq_answer_longer(struct worker* w, const struct trial* t) {
    struct command c = right_cq(w, t->base);
    struct change stock = FIELD(PART, mana_uapi_create_cq, flags, N(MANA_UAPI_CQ_RNIC));

    change_command(w, t->base, &stock, &c);
    return zeros_behind(w, c, c.driver_answer_bytes, 24, K_CQ);
}

/* -- raw packets */

/* A work queue with a data path; its handle is in `wq` then. */
static int make_packet_wq(struct worker* w, const struct base* b, uint32_t* wq) {
    struct command c = right_packet_wq(w, b);
    int err = plainly(w, &c);

    *wq = answered(w, offsetof(struct ib_uverbs_ex_create_wq_resp, wq_handle));
    return err;
}

static int wq_to(struct worker* w, uint32_t wq, uint32_t state) {
    struct ib_uverbs_ex_modify_wq core = {.attr_mask = 1, .wq_handle = wq, .wq_state = state};
    struct command c = {
        .number = IB_USER_VERBS_EX_CMD_MODIFY_WQ, .extended = true, .core_bytes = sizeof core};

    memcpy(c.core, &core, sizeof core);
    return plainly(w, &c);
}

/* To the states of `with`, and away. */
static int packet_wq_states(struct worker* w, const struct trial* t) {
    uint32_t wq;
    int err = make_packet_wq(w, t->base, &wq);

    for (int i = 0; !err && i < 2; i++) err = wq_to(w, wq, (uint32_t)t->with[i]);
    return err ? err : destroy(w, K_WQ, wq);
}

/* A QP over a table of one such queue. `with`: the queue's state, and the port. */
static int spread_qp(struct worker* w, const struct trial* t) {
    struct ib_uverbs_ex_create_rwq_ind_table table = {.log_ind_tbl_size = 0};
    struct mana_uapi_create_rss_qp part = {.hash_fields = 0x33,
                                           .hash_function = MANA_UAPI_RSS_TOEPLITZ,
                                           .key_length = MANA_UAPI_RSS_KEY_BYTES,
                                           .port = (uint32_t)t->with[1]};
    struct base over = *t->base;
    struct command c;
    uint32_t wq;
    int err = make_packet_wq(w, t->base, &wq);

    for (uint32_t next = 1; !err && next <= t->with[0]; next++) err = wq_to(w, wq, next);
    if (err) return err;
    c = command_of(IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL, true, &table, sizeof table,
                   sizeof(struct ib_uverbs_ex_create_rwq_ind_table_resp));
    memcpy(c.core + sizeof table, &wq, sizeof wq);
    c.core_bytes = words((uint32_t)sizeof table + 4, 8) * 8;
    err = plainly(w, &c);
    if (err) return err;
    over.table =
        answered(w, offsetof(struct ib_uverbs_ex_create_rwq_ind_table_resp, ind_tbl_handle));
    c = right_rss_qp(w, &over);
    add_part(&c, &part, sizeof part, 0);
    return plainly(w, &c);
}

static int wq_in_table(struct worker* w, const struct trial* t) {
    return destroy(w, K_WQ, t->base->wq);
}

/* -- groups and addresses */

static int multicast(struct worker* w, uint32_t number, uint32_t qp, uint16_t lid) {
    struct ib_uverbs_attach_mcast core = {
        .qp_handle = qp, .mlid = lid, .gid = {[10] = 0xff, [11] = 0xff, [12] = 224, [15] = 9}};
    struct command c = {.number = number, .core_bytes = sizeof core};

    memcpy(c.core, &core, sizeof core);
    return plainly(w, &c);
}

/* To the core two groups, to the device one: the QP could not go, nor its process without a warning
 * and objects that others still listed. */
static int group_twice(struct worker* w, const struct trial* t) {
    int err = make_qp(w, t->base, IB_UVERBS_QPT_UD);
    uint32_t qp = answered(w, 0);

    for (uint16_t lid = 0; !err && lid < 2; lid++)
        err = multicast(w, IB_USER_VERBS_CMD_ATTACH_MCAST, qp, lid);
    for (uint16_t lid = 0; !err && lid < 2; lid++)
        err = multicast(w, IB_USER_VERBS_CMD_DETACH_MCAST, qp, lid);
    return err ? err : destroy(w, K_QP, qp);
}

/* Of the IPv4 address of `with`. The core looks for the way to it, before the driver is asked. */
static int address_handle(struct worker* w, const struct trial* t) {
    struct ib_uverbs_create_ah core = {
        .pd_handle = t->base->pd,
        .attr = {.is_global = 1,
                 .port_num = 1,
                 .grh = {.sgid_index = 1, .hop_limit = 64, .dgid = {[10] = 0xff, [11] = 0xff}}}};
    struct command c;

    for (int i = 0; i < 4; i++) core.attr.grh.dgid[12 + i] = (uint8_t)t->with[i];
    c = command_of(IB_USER_VERBS_CMD_CREATE_AH, false, &core, sizeof core,
                   sizeof(struct ib_uverbs_create_ah_resp));
    c.driver_answer_bytes = sizeof(struct mana_uapi_create_ah_resp);
    return plainly(w, &c);
}

/* -- what there is not */

/* `with`: the command, whether it is of the newer kind, bytes of its structure and answer, where in
 * the structure a handle is, and that handle. */
static int absent(struct worker* w, const struct trial* t) {
    struct command c = {.number = (uint32_t)t->with[0],
                        .extended = t->with[1],
                        .core_bytes = (uint32_t)t->with[2],
                        .answer_bytes = (uint32_t)t->with[3]};

    memcpy(c.core + t->with[4], &t->with[5], sizeof(uint32_t));
    /* Of newer commands that are absent write() says EINVAL: it takes them for older ones. */
    return c.extended ? by_invoke(w, &c) : plainly(w, &c);
}

/* A page of the device. `with`: bytes, how, offset. */
static int map_of(struct worker* w, const struct trial* t) {
    size_t bytes = t->with[0];
    void* at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, (int)t->with[1], w->process->fd,
                    (off_t)t->with[2]);

    if (at == MAP_FAILED) return errno;
    munmap(at, bytes);
    return 0;
}

#endif

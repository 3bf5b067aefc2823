/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Posts that are refused: the errno, the work request that is named, and a queue that is as if it
 * had never been asked, so that the next one goes where this one would have gone. For each type
 * of QP, SRQs and work queues, and each way to post.
 */
#include <errno.h>
#include <mana/eth.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_test.h"

enum { RC, UC, UD, STOCK_RC, STOCK_UD, PACKET, QPS, SRQ = QPS, WQ, KINDS };
#define ONLY(kind) (1u << (kind))
#define ALL ((1u << QPS) - 1)
#define EXTENDED (ONLY(RC) | ONLY(UC) | ONLY(UD))
#define DATAGRAMS (ONLY(UD) | ONLY(STOCK_UD))
#define CONNECTED (ONLY(RC) | ONLY(UC))

static const struct {
    const char* name;
    enum ibv_qp_type type;
} kinds[KINDS] = {
    [RC] = {"RC", IBV_QPT_RC},
    [UC] = {"UC", IBV_QPT_UC},
    [UD] = {"UD", IBV_QPT_UD},
    [STOCK_RC] = {"stock RC", IBV_QPT_RC},
    [STOCK_UD] = {"stock UD", IBV_QPT_UD},
    [PACKET] = {"raw packet", IBV_QPT_RAW_PACKET},
    [SRQ] = {"SRQ", IBV_QPT_RC},
    [WQ] = {"WQ", IBV_QPT_RAW_PACKET},
};

#define DEPTH 4u
#define SGES 2u
#define INLINE_BYTES 64u

/* A queue with what its work requests name. */
struct rig {
    int kind;
    char what[80];
    struct mana_context* ctx;
    struct ibv_pd* pd;
    struct ibv_pd* other_pd;
    struct ibv_cq* cq;
    struct ibv_qp* qp;
    struct ibv_srq* srq;
    struct ibv_wq* wq;
    struct mana_ah ah;
    struct mana_mw mw;
    struct ibv_mr mr;
    struct ibv_sge sge[3];
    struct ibv_data_buf buffer;
    uint8_t bytes[256];
};

static struct mana_qp* mqp(const struct rig* r) {
    return to_mqp(r->qp);
}

static bool move(struct rig* r, enum ibv_qp_state state) {
    struct ibv_qp_attr attr = {.qp_state = state, .path_mtu = IBV_MTU_1024};
    int mask = IBV_QP_STATE;
    if (state == IBV_QPS_RTR && kinds[r->kind].type == IBV_QPT_RC) mask |= IBV_QP_PATH_MTU;
    if (state == IBV_QPS_RTS) mask |= IBV_QP_SQ_PSN;
    return !mana_modify_qp(r->qp, &attr, mask);
}

static bool move_to_rts(struct rig* r) {
    return move(r, IBV_QPS_INIT) && move(r, IBV_QPS_RTR) && move(r, IBV_QPS_RTS);
}

static void make_queue(struct rig* r) {
    static const uint64_t send_ops[] = {
        [RC] = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
               IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
               IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV,
        [UC] = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_BIND_MW |
               IBV_QP_EX_WITH_LOCAL_INV,
        [UD] = IBV_QP_EX_WITH_SEND,
    };
    if (r->kind == SRQ) {
        struct ibv_srq_init_attr attr = {.attr = {.max_wr = DEPTH, .max_sge = SGES}};
        r->srq = mana_create_srq(r->pd, &attr);
    } else if (r->kind == WQ) {
        struct ibv_wq_init_attr attr = {
            .wq_type = IBV_WQT_RQ, .max_wr = DEPTH, .max_sge = SGES, .pd = r->pd, .cq = r->cq};
        r->wq = mana_create_wq(&r->ctx->ibv_ctx.context, &attr);
    } else {
        struct ibv_qp_init_attr_ex attr = {.send_cq = r->cq,
                                           .recv_cq = r->cq,
                                           .cap = {DEPTH, DEPTH, SGES, SGES, INLINE_BYTES},
                                           .qp_type = kinds[r->kind].type,
                                           .comp_mask = IBV_QP_INIT_ATTR_PD,
                                           .pd = r->pd};
        if (EXTENDED & ONLY(r->kind)) {
            attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
            attr.send_ops_flags = send_ops[r->kind];
        }
        r->qp = mana_create_qp_ex(&r->ctx->ibv_ctx.context, &attr);
    }
    if (!r->qp && !r->srq && !r->wq) abort();
}

static void start_wq(struct rig* r) {
    struct ibv_wq_attr attr = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY};
    CHECK(!mana_modify_wq(r->wq, &attr));
}

/* In a state that takes posts, if it is `ready`. */
static struct rig* open_rig(int kind, const char* what, bool ready) {
    struct rig* r = calloc(1, sizeof(*r));
    if (!r) abort();
    r->kind = kind;
    snprintf(r->what, sizeof(r->what), "%s: %s", kinds[kind].name, what);
    r->ctx = make_context(kind != STOCK_RC && kind != STOCK_UD);
    if (kind == STOCK_UD) r->ctx->caps.flags = MANA_UAPI_CONTEXT_USER_UD;
    r->pd = mana_alloc_pd(&r->ctx->ibv_ctx.context);
    r->other_pd = mana_alloc_pd(&r->ctx->ibv_ctx.context);
    r->cq = mana_create_cq(&r->ctx->ibv_ctx.context, 64, NULL, 0);
    make_queue(r);
    r->ah.av.stock_address = 0x1000;
    r->mw.ibv_mw.pd = r->pd;
    r->mw.key = 0x900;
    r->mr.pd = r->pd;
    r->sge[0] = (struct ibv_sge){(uintptr_t)r->bytes, 8, 1};
    r->sge[1] = (struct ibv_sge){(uintptr_t)r->bytes, 8, 1};
    r->sge[2] = (struct ibv_sge){(uintptr_t)r->bytes, 8, 1};
    if (ready && r->qp) CHECK_OF(move_to_rts(r), r->what);
    if (ready && r->wq) start_wq(r);
    return r;
}

static void close_rig(struct rig* r) {
    if (r->qp) CHECK(!mana_destroy_qp(r->qp));
    if (r->srq) CHECK(!mana_destroy_srq(r->srq));
    if (r->wq) CHECK(!mana_destroy_wq(r->wq));
    CHECK(!mana_destroy_cq(r->cq));
    CHECK(!mana_dealloc_pd(r->other_pd) && !mana_dealloc_pd(r->pd));
    free_context(r->ctx);
    free(r);
}

/* All that a post may change: the object, its memory, and what was rung. */
struct snapshot {
    size_t bytes;
    uint8_t* data;
};

static void append(struct snapshot* s, const void* data, size_t bytes) {
    if (!data || !bytes) return;
    s->data = realloc(s->data, s->bytes + bytes);
    if (!s->data) abort();
    memcpy(s->data + s->bytes, data, bytes);
    s->bytes += bytes;
}

static struct snapshot look(const struct rig* r) {
    struct snapshot s = {0, NULL};
    append(&s, r->ctx->doorbell, MANA_DOORBELL_PAGE_BYTES);
    append(&s, &r->mw, sizeof(r->mw));
    if (r->srq) {
        append(&s, to_msrq(r->srq), sizeof(struct mana_srq));
        append(&s, to_msrq(r->srq)->buffer.address, to_msrq(r->srq)->buffer.length);
    } else if (r->wq) {
        append(&s, to_mwq(r->wq), sizeof(struct mana_wq));
        append(&s, to_mwq(r->wq)->buffer.address, to_mwq(r->wq)->buffer.length);
    } else {
        append(&s, mqp(r), sizeof(struct mana_qp));
        append(&s, mqp(r)->buffer.address, mqp(r)->buffer.length);
        append(&s, mqp(r)->inline_buffer.address, mqp(r)->inline_buffer.length);
        for (unsigned int i = 0; i < MANA_UAPI_QP_QUEUES; ++i)
            append(&s, mqp(r)->queue[i].address, mqp(r)->queue[i].length);
    }
    return s;
}

static bool as_it_was(const struct rig* r, struct snapshot s) {
    struct snapshot now = look(r);
    bool same = now.bytes == s.bytes && !memcmp(now.data, s.data, s.bytes);
    free(now.data);
    free(s.data);
    return same;
}

/* What was posted so far, whether the device was told of all, and the work request that the last
 * one put where it belongs: behind the one before. */

static uint32_t sends_posted(const struct rig* r) {
    if (EXTENDED & ONLY(r->kind)) return mqp(r)->ext.sq_posted;
    return r->kind == PACKET ? mqp(r)->packet.sends.head : mqp(r)->stock.sends.head;
}

static bool sends_told(const struct rig* r) {
    const struct mana_dp_sends* sends =
        r->kind == PACKET ? &mqp(r)->packet.sends : &mqp(r)->stock.sends;
    const uint64_t* rung = (uint64_t*)((uint8_t*)r->ctx->doorbell + MANA_HW_DB_SQ);
    if (EXTENDED & ONLY(r->kind)) return mqp(r)->ext.record->sq_producer == mqp(r)->ext.sq_producer;
    return *rung == mana_hw_wq_doorbell(sends->ring.id, 0, sends->ring.producer);
}

/* Where the next send begins, in the ring. */
static uint32_t send_place(const struct rig* r) {
    if (EXTENDED & ONLY(r->kind)) return mqp(r)->ext.sq_producer;
    return r->kind == PACKET ? mqp(r)->packet.sends.ring.producer
                             : mqp(r)->stock.sends.ring.producer;
}

/* The send that begins there is this one: its work request, and a SEND's WQE with its SGE. */
static bool send_is_at(const struct rig* r, uint32_t place, uint64_t wr_id) {
    const struct mana_ext_qp* ext = &mqp(r)->ext;
    const struct mana_dp_sends* sends =
        r->kind == PACKET ? &mqp(r)->packet.sends : &mqp(r)->stock.sends;
    const uint8_t* wqe;
    size_t sge = MANA_SEND_HEAD_BYTES;
    if (EXTENDED & ONLY(r->kind)) {
        const uint32_t slot = place & (ext->sq_units - 1);
        wqe = ext->sq + (size_t)slot * MANA_HW_EXT_WQE_UNIT;
        sge = sizeof(struct mana_hw_ext_control);
        if (ext->datagrams) sge += sizeof(struct mana_hw_ext_ud);
        if (ext->sent[slot].wr_id != wr_id || ext->sent[slot].number != ext->sq_posted ||
            *wqe != MANA_HW_EXT_WQE_SEND)
            return false;
    } else {
        wqe = sends->ring.base + (place & (sends->ring.bytes - 1));
        if (r->kind == PACKET) sge = sizeof(struct mana_hw_wqe_header) + 8;
        if (r->kind == STOCK_UD) sge += sizeof(struct mana_hw_sge); /* the address vector */
        if (sends->slot[(sends->head - 1) & sends->mask].wr_id != wr_id) return false;
    }
    return ((const struct mana_hw_sge*)(wqe + sge))->address == (uintptr_t)r->bytes;
}

static struct ibv_send_wr good_send(struct rig* r, uint64_t wr_id) {
    struct ibv_send_wr wr = {.wr_id = wr_id,
                             .sg_list = r->sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED};
    if (DATAGRAMS & ONLY(r->kind)) wr.wr.ud.ah = &r->ah.ibv_ah;
    return wr;
}

static void next_send_goes_on(struct rig* r, uint64_t wr_id) {
    struct ibv_send_wr wr = good_send(r, wr_id), *bad = NULL;
    struct ibv_sge sge = {(uintptr_t)r->bytes, 8, 1};
    const uint32_t before = sends_posted(r), place = send_place(r);
    wr.sg_list = &sge;
    CHECK_OF(!mana_post_send(r->qp, &wr, &bad) && !bad, r->what);
    CHECK_OF(sends_posted(r) == before + 1 && sends_told(r), r->what);
    CHECK_OF(send_is_at(r, place, wr_id), r->what);
}

#define SPOIL(name) static void name(struct rig* r, struct ibv_send_wr* wr)
#define OPCODE(name, number)                     \
    SPOIL(name) {                                \
        (void)r;                                 \
        wr->opcode = (enum ibv_wr_opcode)number; \
    }
OPCODE(write_, IBV_WR_RDMA_WRITE)
OPCODE(write_imm, IBV_WR_RDMA_WRITE_WITH_IMM)
OPCODE(read_, IBV_WR_RDMA_READ)
OPCODE(send_imm, IBV_WR_SEND_WITH_IMM)
OPCODE(send_inv, IBV_WR_SEND_WITH_INV)
OPCODE(cmp_swap, IBV_WR_ATOMIC_CMP_AND_SWP)
OPCODE(fetch_add, IBV_WR_ATOMIC_FETCH_AND_ADD)
OPCODE(local_inv, IBV_WR_LOCAL_INV)
OPCODE(tso, IBV_WR_TSO)
OPCODE(driver1, IBV_WR_DRIVER1)
OPCODE(no_opcode, 100)
OPCODE(negative_opcode, -1)
SPOIL(too_many_sges) {
    (void)r;
    wr->num_sge = SGES + 1;
}
SPOIL(negative_sges) {
    (void)r;
    wr->num_sge = -1;
}
SPOIL(too_long) {
    wr->num_sge = 2;
    r->sge[1].length = 0x80000000;
}
SPOIL(longer_than_mtu) {
    r->sge[0].length = 1025;
    (void)wr;
}
SPOIL(too_much_inline) {
    r->sge[0].length = mqp(r)->cap.max_inline_data + 1;
    wr->send_flags |= IBV_SEND_INLINE;
}
SPOIL(inline_read) {
    (void)r;
    wr->opcode = IBV_WR_RDMA_READ;
    wr->send_flags |= IBV_SEND_INLINE;
}
SPOIL(no_address) {
    (void)r;
    wr->wr.ud.ah = NULL;
}
SPOIL(atomic_of_two) {
    (void)r;
    wr->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    wr->num_sge = 2;
}
SPOIL(atomic_of_none) {
    (void)r;
    wr->opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    wr->num_sge = 0;
}
SPOIL(short_atomic) {
    wr->opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    r->sge[0].length = 4;
}
SPOIL(inline_atomic) {
    (void)r;
    wr->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    wr->send_flags |= IBV_SEND_INLINE;
}
SPOIL(bind) {
    wr->opcode = IBV_WR_BIND_MW;
    wr->num_sge = 0;
    wr->bind_mw.mw = &r->mw.ibv_mw;
    wr->bind_mw.rkey = 0x901;
    wr->bind_mw.bind_info = (struct ibv_mw_bind_info){
        .mr = &r->mr, .length = 8, .mw_access_flags = IBV_ACCESS_REMOTE_READ};
}
SPOIL(bind_nothing) {
    bind(r, wr);
    wr->bind_mw.mw = NULL;
}
SPOIL(bind_of_other_pd) {
    bind(r, wr);
    r->mw.ibv_mw.pd = r->other_pd;
}
SPOIL(bind_to_other_pd) {
    bind(r, wr);
    r->mr.pd = r->other_pd;
}
SPOIL(bind_to_nothing) {
    bind(r, wr);
    wr->bind_mw.bind_info.mr = NULL;
}
SPOIL(bind_with_strange_rights) {
    bind(r, wr);
    wr->bind_mw.bind_info.mw_access_flags |= IBV_ACCESS_ON_DEMAND;
}
SPOIL(bind_in_anothers_batch) {
    bind(r, wr);
    r->mw.binder = mqp(r) + 1;
}
SPOIL(checksums) {
    r->ctx->caps.features &= ~(uint64_t)MANA_HW_EXT_PACKET_CHECKSUMS;
    wr->send_flags |= IBV_SEND_IP_CSUM;
}

#define CASE(kinds, error, spoil) \
    { kinds, error, #spoil, spoil }
static const struct send_case {
    uint32_t kinds;
    int error;
    const char* what;
    void (*spoil)(struct rig* r, struct ibv_send_wr* wr);
} send_cases[] = {
    CASE(ALL, EINVAL, too_many_sges),
    CASE(ALL, EINVAL, negative_sges),
    CASE(ALL, EINVAL, too_long),
    CASE(ALL, EINVAL, too_much_inline),
    CASE(ALL, EOPNOTSUPP, tso),
    CASE(ALL, EOPNOTSUPP, driver1),
    CASE(ALL, EOPNOTSUPP, no_opcode),
    CASE(ALL, EOPNOTSUPP, negative_opcode),
    CASE(DATAGRAMS, EINVAL, longer_than_mtu),
    CASE(DATAGRAMS, EINVAL, no_address),
    CASE(ONLY(RC) | ONLY(STOCK_RC), EINVAL, inline_read),
    CASE(DATAGRAMS | ONLY(PACKET), EOPNOTSUPP, write_),
    CASE(DATAGRAMS | ONLY(PACKET), EOPNOTSUPP, write_imm),
    CASE(ONLY(PACKET), EOPNOTSUPP, send_imm),
    CASE(ALL & ~(ONLY(RC) | ONLY(STOCK_RC)), EOPNOTSUPP, read_),
    CASE(ALL & ~ONLY(RC), EOPNOTSUPP, cmp_swap),
    CASE(ALL & ~ONLY(RC), EOPNOTSUPP, fetch_add),
    CASE(ALL & ~ONLY(RC), EOPNOTSUPP, send_inv),
    CASE(ALL & ~CONNECTED, EOPNOTSUPP, local_inv),
    CASE(ALL & ~CONNECTED, EOPNOTSUPP, bind),
    CASE(ONLY(RC), EINVAL, atomic_of_two),
    CASE(ONLY(RC), EINVAL, atomic_of_none),
    CASE(ONLY(RC), EINVAL, short_atomic),
    CASE(ONLY(RC), EINVAL, inline_atomic),
    CASE(CONNECTED, EINVAL, bind_nothing),
    CASE(CONNECTED, EPERM, bind_of_other_pd),
    CASE(CONNECTED, EPERM, bind_to_other_pd),
    CASE(CONNECTED, EINVAL, bind_to_nothing),
    CASE(CONNECTED, EINVAL, bind_with_strange_rights),
    CASE(CONNECTED, EINVAL, bind_in_anothers_batch),
    CASE(ONLY(PACKET), EOPNOTSUPP, checksums),
};

static void refused_sends(int kind, const struct send_case* test) {
    struct rig* r = open_rig(kind, test->what, true);
    struct ibv_sge sge = {(uintptr_t)r->bytes, 8, 1};
    struct ibv_send_wr wr[3] = {good_send(r, 1), good_send(r, 2), good_send(r, 3)}, *bad = NULL;
    test->spoil(r, &wr[1]);
    wr[0].sg_list = wr[2].sg_list = &sge;

    struct snapshot before = look(r);
    CHECK_OF(mana_post_send(r->qp, &wr[1], &bad) == test->error && bad == &wr[1], r->what);
    CHECK_OF(as_it_was(r, before), r->what);

    /* Between others: those before it are rung, those behind it are not looked at. */
    const uint32_t place = send_place(r);
    wr[0].next = &wr[1];
    wr[1].next = &wr[2];
    bad = NULL;
    CHECK_OF(mana_post_send(r->qp, &wr[0], &bad) == test->error && bad == &wr[1], r->what);
    CHECK_OF(sends_posted(r) == 1 && sends_told(r) && send_is_at(r, place, 1), r->what);
    r->sge[0].length = 8;
    next_send_goes_on(r, 4);
    close_rig(r);
}

/* The device is through with the first send. */
static void finish_send(struct rig* r) {
    const struct mana_hw_ext_cqe ext = {.type = MANA_HW_EXT_CQE};
    const struct mana_hw_rnic_armed_cqe armed = {.type = MANA_HW_RNIC_CQE_ARMED,
                                                 .msn_syndrome = 0x1fu << 24};
    const struct mana_hw_rnic_ud_send_cqe datagram = {.type_vendor = MANA_HW_RNIC_CQE_UD};
    const struct mana_hw_eth_tx_cqe packet = {.type = MANA_HW_ETH_CQE_TX_OK};
    struct mana_dp_cq* cq = &to_mcq(r->cq)->dp;
    struct ibv_wc wc;
    if (r->kind == STOCK_RC)
        write_cqe(cq, 0, &armed, sizeof(armed), mqp(r)->stock.read.id, false);
    else if (r->kind == STOCK_UD)
        write_cqe(cq, 0, &datagram, sizeof(datagram), mqp(r)->stock.sends.ring.id, true);
    else if (r->kind == PACKET)
        write_cqe(&mqp(r)->packet.send_side.ring, 0, &packet, sizeof(packet),
                  mqp(r)->packet.sends.ring.id, true);
    else
        write_cqe(cq, 0, &ext, sizeof(ext), r->qp->qp_num, true);
    CHECK_OF(mana_poll_cq(r->cq, 1, &wc) == 1 && wc.wr_id == 1 && !wc.status, r->what);
}

static void full_send_queue(int kind) {
    struct rig* r = open_rig(kind, "full", true);
    struct ibv_send_wr list[DEPTH + 1], *bad = NULL;
    for (uint32_t i = 0; i <= DEPTH; ++i) {
        list[i] = good_send(r, 1 + i);
        list[i].next = i < DEPTH ? &list[i + 1] : NULL;
    }
    CHECK_OF(mana_post_send(r->qp, list, &bad) == ENOMEM && bad == &list[DEPTH], r->what);
    CHECK_OF(sends_posted(r) == DEPTH && sends_told(r), r->what);
    struct snapshot before = look(r);
    bad = NULL;
    CHECK_OF(mana_post_send(r->qp, &list[DEPTH], &bad) == ENOMEM && bad == &list[DEPTH], r->what);
    CHECK_OF(as_it_was(r, before), r->what);
    finish_send(r);
    next_send_goes_on(r, 9);
    before = look(r);
    bad = NULL;
    CHECK_OF(mana_post_send(r->qp, &list[DEPTH], &bad) == ENOMEM && bad == &list[DEPTH], r->what);
    CHECK_OF(as_it_was(r, before), r->what);
    close_rig(r);
}

static void refused_in_this_state(struct rig* r) {
    struct ibv_send_wr wr = good_send(r, 1), *bad = NULL;
    struct snapshot before = look(r);
    CHECK_OF(mana_post_send(r->qp, &wr, &bad) == EINVAL && bad == &wr, r->what);
    CHECK_OF(as_it_was(r, before), r->what);
}

static void states_of_sends(int kind) {
    struct rig* r = open_rig(kind, "wrong state", false);
    refused_in_this_state(r);
    CHECK_OF(move(r, IBV_QPS_INIT), r->what);
    refused_in_this_state(r);
    CHECK_OF(move(r, IBV_QPS_RTR), r->what);
    refused_in_this_state(r);
    CHECK_OF(move(r, IBV_QPS_RTS), r->what);
    next_send_goes_on(r, 1);
    CHECK_OF(move(r, IBV_QPS_ERR), r->what);
    if (EXTENDED & ONLY(kind))
        next_send_goes_on(r, 2); /* the device flushes it */
    else
        refused_in_this_state(r);
    CHECK_OF(move(r, IBV_QPS_RESET), r->what);
    refused_in_this_state(r);
    CHECK_OF(move_to_rts(r), r->what);
    CHECK_OF(send_place(r) == 0, r->what);
    next_send_goes_on(r, 3);
    close_rig(r);
}

/* Receives. */

static int post_recv(struct rig* r, struct ibv_recv_wr* wr, struct ibv_recv_wr** bad) {
    if (r->srq) return mana_post_srq_recv(r->srq, wr, bad);
    return r->wq ? mana_post_wq_recv(r->wq, wr, bad) : mana_post_recv(r->qp, wr, bad);
}

static const struct mana_dp_receives* receives_of(const struct rig* r) {
    if (r->wq) return &to_mwq(r->wq)->packet.receives;
    return r->kind == PACKET ? &mqp(r)->packet.receives : &mqp(r)->stock.receives;
}

static uint32_t receives_posted(const struct rig* r) {
    if (r->srq) return to_msrq(r->srq)->dp.producer;
    return EXTENDED & ONLY(r->kind) ? mqp(r)->ext.rq_producer : receives_of(r)->head;
}

static bool receives_told(const struct rig* r) {
    const uint64_t* rung = (uint64_t*)((uint8_t*)r->ctx->doorbell + MANA_HW_DB_RQ);
    if (r->srq) return to_msrq(r->srq)->dp.record->producer == to_msrq(r->srq)->dp.producer;
    if (EXTENDED & ONLY(r->kind)) return mqp(r)->ext.record->rq_producer == mqp(r)->ext.rq_producer;
    return *rung >> 32 == mana_hw_wq_doorbell(0, 0, receives_of(r)->ring.producer) >> 32;
}

/* The receive of this number is this one: its work request, and its SGE in the ring. */
static bool receive_is_at(const struct rig* r, uint32_t number, uint64_t wr_id) {
    const uint8_t* wqe;
    size_t sge = sizeof(struct mana_hw_ext_receive);
    uint64_t found;
    if (r->srq) {
        const struct mana_ext_srq* dp = &to_msrq(r->srq)->dp;
        wqe = dp->ring + (size_t)(number & (dp->count - 1)) * dp->stride;
        found = dp->wr_id[((const struct mana_hw_ext_receive*)wqe)->cookie];
    } else if (EXTENDED & ONLY(r->kind)) {
        const struct mana_ext_qp* ext = &mqp(r)->ext;
        wqe = ext->rq + ((size_t)(number & (ext->rq_count - 1)) << ext->rq_shift);
        found = ext->recv_wr_id[number & (ext->rq_count - 1)];
    } else {
        const struct mana_dp_receives* receives = receives_of(r);
        const struct mana_dp_receive* slot = &receives->slot[number & receives->mask];
        wqe = receives->ring.base + (slot->start & (receives->ring.bytes - 1));
        sge = MANA_RECV_HEAD_BYTES;
        found = slot->wr_id;
    }
    return found == wr_id &&
           ((const struct mana_hw_sge*)(wqe + sge))->address == (uintptr_t)r->bytes;
}

static struct ibv_recv_wr good_recv(struct rig* r, uint64_t wr_id) {
    return (struct ibv_recv_wr){.wr_id = wr_id, .sg_list = r->sge, .num_sge = 1};
}

static void next_receive_goes_on(struct rig* r, uint64_t wr_id) {
    struct ibv_recv_wr wr = good_recv(r, wr_id), *bad = NULL;
    const uint32_t before = receives_posted(r);
    CHECK_OF(!post_recv(r, &wr, &bad) && !bad, r->what);
    CHECK_OF(receives_posted(r) == before + 1 && receives_told(r), r->what);
    CHECK_OF(receive_is_at(r, before, wr_id), r->what);
}

static void receive_is_refused(struct rig* r, struct ibv_recv_wr* wr, int error) {
    struct ibv_recv_wr* bad = NULL;
    struct snapshot before = look(r);
    CHECK_OF(post_recv(r, wr, &bad) == error && bad == wr, r->what);
    CHECK_OF(as_it_was(r, before), r->what);
}

static void refused_receives(int kind, int sges) {
    struct rig* r = open_rig(kind, sges < 0 ? "negative SGEs" : "too many SGEs", true);
    struct ibv_recv_wr wr[3] = {good_recv(r, 1), good_recv(r, 2), good_recv(r, 3)}, *bad = NULL;
    wr[1].num_sge = sges;
    receive_is_refused(r, &wr[1], EINVAL);
    wr[0].next = &wr[1];
    wr[1].next = &wr[2];
    CHECK_OF(post_recv(r, wr, &bad) == EINVAL && bad == &wr[1], r->what);
    CHECK_OF(receives_posted(r) == 1 && receives_told(r) && receive_is_at(r, 0, 1), r->what);
    next_receive_goes_on(r, 4);
    close_rig(r);
}

/* A message fills the first receive. */
static void finish_receive(struct rig* r) {
    const struct mana_hw_ext_cqe ext = {.type = MANA_HW_EXT_CQE, .opcode = MANA_HW_EXT_WC_RECV};
    const struct mana_hw_rnic_recv_cqe stock = {
        .type = r->kind == STOCK_UD ? MANA_HW_RNIC_CQE_UD : MANA_HW_RNIC_CQE_SEND};
    const struct mana_hw_eth_rx_cqe packet = {.type = MANA_HW_ETH_CQE_RX_OK};
    struct mana_packet_qp* packets = r->wq ? &to_mwq(r->wq)->packet : NULL;
    struct mana_dp_cq* cq = &to_mcq(r->cq)->dp;
    struct ibv_wc wc;
    if (r->srq) { /* as the poller of one of its QPs does */
        CHECK_OF(mana_ext_srq_take(&to_msrq(r->srq)->dp, 0) == 1, r->what);
        return;
    }
    if (r->kind == PACKET) packets = &mqp(r)->packet;
    if (packets)
        write_cqe(&packets->recv_side.ring, 0, &packet, sizeof(packet), packets->receives.ring.id,
                  false);
    else if (EXTENDED & ONLY(r->kind))
        write_cqe(cq, 0, &ext, sizeof(ext), r->qp->qp_num, false);
    else
        write_cqe(cq, 0, &stock, sizeof(stock), r->qp->qp_num, false);
    CHECK_OF(mana_poll_cq(r->cq, 1, &wc) == 1 && wc.wr_id == 1 && !wc.status, r->what);
}

static void full_receive_queue(int kind) {
    struct rig* r = open_rig(kind, "full", true);
    struct ibv_recv_wr list[DEPTH + 1], *bad = NULL;
    for (uint32_t i = 0; i <= DEPTH; ++i) {
        list[i] = good_recv(r, 1 + i);
        list[i].next = i < DEPTH ? &list[i + 1] : NULL;
    }
    CHECK_OF(post_recv(r, list, &bad) == ENOMEM && bad == &list[DEPTH], r->what);
    CHECK_OF(receives_posted(r) == DEPTH && receives_told(r), r->what);
    receive_is_refused(r, &list[DEPTH], ENOMEM);
    finish_receive(r);
    next_receive_goes_on(r, 9);
    receive_is_refused(r, &list[DEPTH], ENOMEM);
    close_rig(r);
}

static void states_of_receives(int kind) {
    struct rig* r = open_rig(kind, "wrong state", false);
    struct ibv_recv_wr wr = good_recv(r, 1);
    receive_is_refused(r, &wr, EINVAL);
    if (kind == WQ) {
        struct ibv_wq_attr attr = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_ERR};
        start_wq(r);
        next_receive_goes_on(r, 2);
        CHECK_OF(!mana_modify_wq(r->wq, &attr), r->what);
        receive_is_refused(r, &wr, EINVAL);
        close_rig(r);
        return;
    }
    CHECK_OF(move(r, IBV_QPS_INIT), r->what);
    next_receive_goes_on(r, 2);
    CHECK_OF(move(r, IBV_QPS_ERR), r->what);
    if (EXTENDED & ONLY(kind))
        next_receive_goes_on(r, 3); /* the device flushes it */
    else
        receive_is_refused(r, &wr, EINVAL);
    CHECK_OF(move(r, IBV_QPS_RESET), r->what);
    receive_is_refused(r, &wr, EINVAL);
    CHECK_OF(move(r, IBV_QPS_INIT) && receives_posted(r) == 0, r->what);
    next_receive_goes_on(r, 4);
    close_rig(r);
}

static void receives_of_srqs_go_there(void) {
    struct rig* r = open_rig(SRQ, "its QP", true);
    struct ibv_qp_init_attr attr = {.send_cq = r->cq,
                                    .recv_cq = r->cq,
                                    .srq = r->srq,
                                    .cap = {DEPTH, 0, SGES, 0, 0},
                                    .qp_type = IBV_QPT_RC};
    struct ibv_qp* qp = mana_create_qp(r->pd, &attr);
    struct ibv_qp_attr state = {.qp_state = IBV_QPS_INIT};
    struct ibv_recv_wr wr = good_recv(r, 1), *bad = NULL;
    CHECK(qp && !mana_modify_qp(qp, &state, IBV_QP_STATE));
    CHECK(mana_post_recv(qp, &wr, &bad) == EINVAL && bad == &wr);
    CHECK(!mana_destroy_qp(qp));
    next_receive_goes_on(r, 2);
    close_rig(r);
}

/* Batches of ibv_wr_*. */

static struct ibv_qp_ex* ex_of(struct rig* r, uint64_t wr_id) {
    struct ibv_qp_ex* qp = &mqp(r)->vqp.qp_ex;
    qp->wr_id = wr_id;
    qp->wr_flags = IBV_SEND_SIGNALED;
    return qp;
}

static void build_send(struct rig* r, uint64_t wr_id) {
    struct ibv_qp_ex* qp = ex_of(r, wr_id);
    qp->wr_send(qp);
    if (r->kind == UD) qp->wr_set_ud_addr(qp, &r->ah.ibv_ah, 5, 6);
    qp->wr_set_sge(qp, 1, (uintptr_t)r->bytes, 8);
}

#define BUILD(name) static void name(struct rig* r, struct ibv_qp_ex* qp)
BUILD(build_too_many) {
    (void)qp;
    for (uint32_t i = 0; i <= DEPTH; ++i) build_send(r, 60 + i);
}
BUILD(build_three_sges) {
    build_send(r, 60);
    qp->wr_set_sge_list(qp, 2, r->sge);
}
BUILD(build_too_long) {
    build_send(r, 60);
    qp->wr_set_sge(qp, 1, 0, 0x80000000);
}
BUILD(build_too_much_inline) {
    build_send(r, 60);
    qp->wr_id = 61;
    qp->wr_send(qp);
    if (r->kind == UD) qp->wr_set_ud_addr(qp, &r->ah.ibv_ah, 5, 6);
    qp->wr_set_inline_data(qp, r->bytes, mqp(r)->cap.max_inline_data + 1);
}
BUILD(build_both_kinds_of_data) {
    build_send(r, 60);
    r->buffer = (struct ibv_data_buf){.addr = r->bytes, .length = 8};
    qp->wr_set_inline_data_list(qp, 1, &r->buffer);
}
BUILD(build_without_address) {
    (void)r;
    qp->wr_send(qp);
    qp->wr_set_sge(qp, 1, 0, 8);
}
BUILD(build_with_no_address) {
    (void)r;
    qp->wr_send(qp);
    qp->wr_set_ud_addr(qp, NULL, 5, 6);
    qp->wr_set_sge(qp, 1, 0, 8);
}
BUILD(build_atomic_without_data) {
    (void)r;
    qp->wr_atomic_fetch_add(qp, 1, 0, 1);
}
BUILD(build_short_atomic) {
    (void)r;
    qp->wr_atomic_cmp_swp(qp, 1, 0, 1, 2);
    qp->wr_set_sge(qp, 1, 0, 4);
}
BUILD(build_inline_read) {
    qp->wr_rdma_read(qp, 1, 0);
    qp->wr_set_inline_data(qp, r->bytes, 4);
}
BUILD(build_data_of_local_inv) {
    (void)r;
    qp->wr_local_inv(qp, 0x900);
    qp->wr_set_sge(qp, 1, 0, 4);
}
static void build_bind(struct rig* r, struct ibv_qp_ex* qp, uint32_t rkey) {
    const struct ibv_mw_bind_info info = {
        .mr = &r->mr, .length = 8, .mw_access_flags = IBV_ACCESS_REMOTE_READ};
    qp->wr_bind_mw(qp, &r->mw.ibv_mw, rkey, &info);
}
BUILD(build_data_of_binds) {
    build_bind(r, qp, 0x901);
    build_bind(r, qp, 0x902);
    qp->wr_set_sge(qp, 1, 0, 4);
}
BUILD(build_bind_of_other_pd) {
    r->mr.pd = r->other_pd;
    build_bind(r, qp, 0x901);
}
BUILD(build_bind_of_nothing) {
    (void)r;
    const struct ibv_mw_bind_info info = {};
    qp->wr_bind_mw(qp, NULL, 0x901, &info);
}

#define BATCH(kinds, error, build) \
    { kinds, error, #build, build }
static const struct batch_case {
    uint32_t kinds;
    int error;
    const char* what;
    void (*build)(struct rig* r, struct ibv_qp_ex* qp);
} batch_cases[] = {
    BATCH(EXTENDED, ENOMEM, build_too_many),
    BATCH(EXTENDED, EINVAL, build_three_sges),
    BATCH(EXTENDED, EINVAL, build_too_long),
    BATCH(EXTENDED, EINVAL, build_too_much_inline),
    BATCH(EXTENDED, EINVAL, build_both_kinds_of_data),
    BATCH(ONLY(UD), EINVAL, build_without_address),
    BATCH(ONLY(UD), EINVAL, build_with_no_address),
    BATCH(ONLY(RC), EINVAL, build_atomic_without_data),
    BATCH(ONLY(RC), EINVAL, build_short_atomic),
    BATCH(ONLY(RC), EINVAL, build_inline_read),
    BATCH(CONNECTED, EINVAL, build_data_of_local_inv),
    BATCH(CONNECTED, EINVAL, build_data_of_binds),
    BATCH(CONNECTED, EPERM, build_bind_of_other_pd),
    BATCH(CONNECTED, EINVAL, build_bind_of_nothing),
};

static void batch_goes_on(struct rig* r, uint64_t wr_id) {
    const uint32_t place = send_place(r), before = sends_posted(r);
    struct ibv_qp_ex* qp = ex_of(r, wr_id);
    qp->wr_start(qp);
    build_send(r, wr_id);
    CHECK_OF(!qp->wr_complete(qp), r->what);
    CHECK_OF(sends_posted(r) == before + 1 && sends_told(r), r->what);
    CHECK_OF(send_is_at(r, place, wr_id), r->what);
}

/* The bytes of slots that nobody was told of say nothing; all the rest is as it was. */
static void batch_left_nothing(struct rig* r, uint32_t place, uint32_t posted) {
    CHECK_OF(send_place(r) == place && sends_posted(r) == posted && sends_told(r), r->what);
    CHECK_OF(r->mw.key == 0x900 && !r->mw.binder && !mqp(r)->wr.bound, r->what);
    CHECK_OF(!mqp(r)->sq_lock.word, r->what);
}

static void refused_batches(int kind, const struct batch_case* test) {
    struct rig* r = open_rig(kind, test->what, true);
    struct ibv_qp_ex* qp = ex_of(r, 50);
    batch_goes_on(r, 1);
    const uint32_t place = send_place(r);
    for (int abandon = 0; abandon < 2; ++abandon) {
        qp = ex_of(r, 50);
        qp->wr_start(qp);
        build_send(r, 51);
        test->build(r, qp);
        if (abandon)
            qp->wr_abort(qp);
        else
            CHECK_OF(qp->wr_complete(qp) == test->error, r->what);
        batch_left_nothing(r, place, 1);
    }
    /* Also one that was all right is given up without a trace. */
    qp->wr_start(qp);
    build_send(r, 52);
    if (qp->wr_bind_mw) {
        r->mr.pd = r->pd;
        build_bind(r, qp, 0x901);
    }
    qp->wr_abort(qp);
    batch_left_nothing(r, place, 1);
    batch_goes_on(r, 2);
    next_send_goes_on(r, 3);
    close_rig(r);
}

static void states_of_batches(int kind) {
    static const enum ibv_qp_state states[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR};
    struct rig* r = open_rig(kind, "batch in the wrong state", false);
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); ++i) {
        struct ibv_qp_ex* qp = ex_of(r, 1);
        if (i) CHECK_OF(move(r, states[i]), r->what);
        qp->wr_start(qp);
        build_send(r, 1);
        CHECK_OF(qp->wr_complete(qp) == EINVAL, r->what);
        batch_left_nothing(r, 0, 0);
    }
    CHECK_OF(move(r, IBV_QPS_RTS), r->what);
    batch_goes_on(r, 2);
    close_rig(r);
}

static void bind_verb(int kind) {
    struct rig* r = open_rig(kind, "ibv_bind_mw", true);
    struct ibv_mw* mw = &r->mw.ibv_mw;
    struct ibv_mw_bind request = {
        .wr_id = 3,
        .send_flags = IBV_SEND_SIGNALED,
        .bind_info = {.mr = &r->mr, .length = 8, .mw_access_flags = IBV_ACCESS_REMOTE_READ}};
    mw->rkey = 0x900;
    const bool has_it = CONNECTED & ONLY(kind);
    struct snapshot before = look(r);
    struct ibv_mw_bind bad = request;
    bad.bind_info.mw_access_flags |= IBV_ACCESS_ZERO_BASED;
    CHECK_OF(mana_bind_mw(r->qp, mw, &bad) == EINVAL, r->what);
    bad = request;
    bad.bind_info.mr = NULL;
    CHECK_OF(mana_bind_mw(r->qp, mw, &bad) == (has_it ? EINVAL : EOPNOTSUPP), r->what);
    CHECK_OF(as_it_was(r, before), r->what);
    if (has_it) {
        r->mr.pd = r->other_pd;
        before = look(r);
        CHECK_OF(mana_bind_mw(r->qp, mw, &request) == EPERM, r->what);
        CHECK_OF(as_it_was(r, before), r->what);
        r->mr.pd = r->pd;
        for (uint32_t i = 0; i < DEPTH; ++i)
            CHECK_OF(!mana_bind_mw(r->qp, mw, &request) && mw->rkey == 0x901 + i, r->what);
        before = look(r);
        CHECK_OF(mana_bind_mw(r->qp, mw, &request) == ENOMEM, r->what);
        CHECK_OF(as_it_was(r, before), r->what);
    } else {
        next_send_goes_on(r, 4);
    }
    close_rig(r);
}

void check_posts(void) {
    for (int kind = 0; kind < QPS; ++kind) {
        for (size_t i = 0; i < sizeof(send_cases) / sizeof(send_cases[0]); ++i)
            if (send_cases[i].kinds & ONLY(kind)) refused_sends(kind, &send_cases[i]);
        full_send_queue(kind);
        states_of_sends(kind);
        bind_verb(kind);
        if (!(EXTENDED & ONLY(kind))) continue;
        for (size_t i = 0; i < sizeof(batch_cases) / sizeof(batch_cases[0]); ++i)
            if (batch_cases[i].kinds & ONLY(kind)) refused_batches(kind, &batch_cases[i]);
        states_of_batches(kind);
    }
    for (int kind = 0; kind < KINDS; ++kind) {
        refused_receives(kind, SGES + 1);
        refused_receives(kind, -1);
        full_receive_queue(kind);
        if (kind != SRQ) states_of_receives(kind);
    }
    receives_of_srqs_go_there();
}

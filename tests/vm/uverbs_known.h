/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPENMANA_UVERBS_KNOWN_H
#define OPENMANA_UVERBS_KNOWN_H

/*
 * The known cases: a right command with one thing wrong, and the errno that it must have. What the
 * driver does not have is EOPNOTSUPP, a wrong value EINVAL. A finding of the episodes becomes one
 * of them.
 */
#include "uverbs_cq.h"
#include "uverbs_qp.h"

struct known {
    const char* name;
    int expected;
    enum { ANY, RDMA, ADDRESS, RAW } where; /* ADDRESS: RDMA, while the interface is up */
    /* A command and what is changed in it; or a function and its operands. */
    struct command (*right)(const struct worker*, const struct base*);
    struct change changes[CHANGES];
    int (*run)(struct worker*, const struct trial*);
    struct operand with[OPERANDS];
    int ends; /* what the command made goes again: its kind and 1 */
};

#define SAY(name_, expected_, where_, right_, ...)                                           \
    {                                                                                        \
        .name = name_, .expected = expected_, .where = where_, .right = right_, .changes = { \
            __VA_ARGS__                                                                      \
        }                                                                                    \
    }
#define RUN(name_, expected_, where_, run_, ...)                                      \
    {                                                                                 \
        .name = name_, .expected = expected_, .where = where_, .run = run_, .with = { \
            __VA_ARGS__                                                               \
        }                                                                             \
    }

/* Fields of the structures, the core's and the driver's part. */
#define UNCHANGED \
    { NOTHING, 0, 0, N(0) }
#define NONE N(0)
#define CQ(field, ...) FIELD(CORE, ib_uverbs_ex_create_cq, field, __VA_ARGS__)
#define CQ_PART(field, ...) FIELD(PART, mana_uapi_create_cq, field, __VA_ARGS__)
#define RESIZE(field, ...) FIELD(CORE, ib_uverbs_resize_cq, field, __VA_ARGS__)
#define RESIZE_PART(field, ...) FIELD(PART, mana_uapi_resize_cq, field, __VA_ARGS__)
#define QP(field, ...) FIELD(CORE, ib_uverbs_ex_create_qp, field, __VA_ARGS__)
#define QP_PART(field, ...) FIELD(PART, mana_uapi_create_qp, field, __VA_ARGS__)
#define RSS_PART(field, ...) FIELD(PART, mana_uapi_create_rss_qp, field, __VA_ARGS__)
#define MODIFY(field, ...) FIELD(CORE, ib_uverbs_ex_modify_qp, base.field, __VA_ARGS__)
#define SRQ(field, ...) FIELD(CORE, ib_uverbs_create_srq, field, __VA_ARGS__)
#define SRQ_PART(field, ...) FIELD(PART, mana_uapi_create_srq, field, __VA_ARGS__)
#define MODIFY_SRQ(field, ...) FIELD(CORE, ib_uverbs_modify_srq, field, __VA_ARGS__)
#define MR(field, ...) FIELD(CORE, ib_uverbs_reg_mr, field, __VA_ARGS__)
#define MW(field, ...) FIELD(CORE, ib_uverbs_alloc_mw, field, __VA_ARGS__)
#define WQ_PART(field, ...) FIELD(PART, mana_uapi_create_wq, field, __VA_ARGS__)
/* The driver's part in so many bytes; a byte of it that has no meaning; room for the answer. */
#define BYTES(bytes) \
    { PART_BYTES, 0, 0, N(bytes) }
#define BYTE(at) \
    { PART, at, 1, N(1) }
#define ROOM(bytes) \
    { PART_ANSWER, 0, 0, N(bytes) }
/* A field of the path of a QP. */
#define PATH(field, value)                          \
    N(offsetof(struct ib_uverbs_modify_qp, field)), \
        N(sizeof(((struct ib_uverbs_modify_qp*)0)->field)), N(value)

static const struct known known_cases[] = {
    RUN("a context as it was made", 0, ANY, context_again, NONE),
    RUN("a context with room for more", 0, ANY, context_longer, NONE),
    RUN("a context with room for less", 0, ANY, context_shorter, NONE),
    RUN("a context without room for the answer", EINVAL, ANY, ask_context, N(0)),
    RUN("a context whose answer goes where no memory is", EFAULT, ANY, context_in_hole, NONE),
    RUN("a context of the stock provider", 0, ANY, context_of_stock,
        N(sizeof(struct mana_uapi_alloc_context_resp))),
    RUN("a context of an older provider of ours", 0, ANY, context_of_stock, N(56)),
    RUN("a context of a stock provider that asks for nothing", 0, ANY, context_of_stock, N(0)),
    RUN("our formats in a context that asked for them", 0, RDMA, of_our_formats, N(true)),
    RUN("our formats in a context that did not", EOPNOTSUPP, RDMA, of_our_formats, N(false)),
    RUN("RC of upstream's next provider with a memory-management queue", 0, RDMA, rc_of_next_stock,
        N(MANA_UAPI_RC_MM_QUEUE), N(PAGE), N(sizeof(struct mana_uapi_create_rc_qp))),
    RUN("RC of upstream's next provider with send WQEs of one size", 0, RDMA, rc_of_next_stock,
        N(MANA_UAPI_RC_FIXED_WQES), N(0), N(sizeof(struct mana_uapi_create_rc_qp))),
    RUN("RC of upstream's next provider with both", 0, RDMA, rc_of_next_stock,
        N(MANA_UAPI_RC_FIXED_WQES | MANA_UAPI_RC_MM_QUEUE), N(2 * PAGE),
        N(sizeof(struct mana_uapi_create_rc_qp))),
    RUN("RC of upstream's next provider with neither", 0, RDMA, rc_of_next_stock, N(0), N(0),
        N(sizeof(struct mana_uapi_create_rc_qp))),
    RUN("RC of upstream's next provider with what nobody knows", EOPNOTSUPP, RDMA, rc_of_next_stock,
        N(1 << 2), N(0), N(sizeof(struct mana_uapi_create_rc_qp))),
    RUN("RC of upstream's next provider with a queue of no bytes", EINVAL, RDMA, rc_of_next_stock,
        N(MANA_UAPI_RC_MM_QUEUE), N(0), N(sizeof(struct mana_uapi_create_rc_qp))),
    RUN("RC of upstream's provider", 0, RDMA, rc_of_next_stock, N(0), N(0),
        N(MANA_UAPI_CREATE_QP_STOCK_BYTES)),
    RUN("a context that is none", EINVAL, ANY, context_none, NONE),
    RUN("a PD to be imported", 0, ANY, ask_pd, OF(pd)),
    RUN("a PD to be imported that is none", ENOENT, ANY, ask_pd, N(0x7fffff)),
    RUN("an MR to be imported as a PD", EINVAL, ANY, ask_pd, OF(mr)),
    RUN("a PD to be imported as an MR", EINVAL, ANY, ask_mr, OF(pd)),
    RUN("device memory to be imported that is none", ENOENT, RDMA, ask_dm, N(0x7fffff), N(8)),
    RUN("a PD to be imported as device memory", EINVAL, RDMA, ask_dm, OF(pd), N(8)),
    RUN("device memory to be imported without room for the answer", EINVAL, RDMA, ask_dm, OF(pd),
        N(0)),
    RUN("objects whose maker is gone", 0, ANY, outlives_its_maker, NONE),
    RUN("objects of another file", ENOENT, ANY, of_another_file, NONE),
    SAY("a second context", EINVAL, ANY, another_context, UNCHANGED),
    RUN("the doorbell page, mapped", 0, ANY, map_of, N(PAGE), N(MAP_SHARED), N(0)),
    RUN("two doorbell pages", EINVAL, ANY, map_of, N(2 * PAGE), N(MAP_SHARED), N(0)),
    RUN("a doorbell page of another", EINVAL, ANY, map_of, N(PAGE), N(MAP_SHARED), N(PAGE)),
    RUN("a doorbell page to oneself", EINVAL, ANY, map_of, N(PAGE), N(MAP_PRIVATE), N(0)),
    SAY("a CQ of no entries", EINVAL, ANY, right_cq, CQ(cqe, N(0))),
    SAY("a CQ of too many entries", EINVAL, ANY, right_cq, CQ(cqe, N(1 << 30))),
    SAY("a CQ whose size is no power of two", EINVAL, RDMA, right_cq, CQ(cqe, N(100))),
    SAY("a CQ with an unknown flag", EOPNOTSUPP, ANY, right_cq,
        CQ_PART(flags, N(0x80 | MANA_UAPI_CQ_RNIC))),
    SAY("a CQ with an unknown flag of the core", EOPNOTSUPP, ANY, right_cq, CQ(flags, N(2))),
    SAY("a CQ with a reserved field in use", EOPNOTSUPP, RDMA, right_cq, CQ_PART(reserved1, N(1))),
    SAY("a CQ without the driver's part", EINVAL, ANY, right_cq, BYTES(0)),
    SAY("a CQ with a longer driver's part, zero", 0, RDMA, right_cq,
        BYTES(sizeof(struct mana_uapi_create_cq) + 32)),
    SAY("a CQ with a longer driver's part, in use", EOPNOTSUPP, ANY, right_cq,
        BYTES(sizeof(struct mana_uapi_create_cq) + 8), BYTE(sizeof(struct mana_uapi_create_cq) + 3),
        ROOM(8)),
    RUN("a CQ with room for a longer answer", 0, ANY, cq_answer_longer, NONE),
    {.name = "a PD with a driver's part, zero",
     .right = right_pd,
     .changes = {BYTES(16)},
     .ends = K_PD + 1},
    RUN("a PD with room for an answer", 0, ANY, pd_answer, NONE),
    SAY("a PD with a driver's part, in use", EOPNOTSUPP, ANY, right_pd, BYTES(16), BYTE(15)),
    SAY("an MR with a driver's part, in use", EOPNOTSUPP, ANY, right_mr, BYTES(16), BYTE(15)),
    SAY("a memory window with a driver's part, in use", EOPNOTSUPP, RDMA, right_mw, BYTES(16),
        BYTE(15)),
    SAY("a limit with a driver's part, in use", EOPNOTSUPP, RDMA, right_modify_srq, BYTES(16),
        BYTE(15)),
    SAY("a state with a driver's part, in use", EOPNOTSUPP, RDMA, right_older_modify, BYTES(16),
        BYTE(15)),
    SAY("a CQ in the middle of a page", EINVAL, RDMA, right_cq, CQ_PART(address, IN_ARENA(64))),
    SAY("a CQ where no memory is", EFAULT, RDMA, right_cq, CQ_PART(address, IN_HOLE)),
    SAY("a CQ in memory that may be read only", EFAULT, RDMA, right_cq,
        CQ_PART(address, IN_READONLY), CQ_PART(flags, N(MANA_UAPI_CQ_RNIC))),
    SAY("a CQ resized", 0, RDMA, right_resize, UNCHANGED),
    SAY("a CQ of the public format resized", EOPNOTSUPP, RDMA, right_resize,
        RESIZE(cq_handle, OF(stock_cq))),
    SAY("a CQ resized to no entries", EINVAL, RDMA, right_resize, RESIZE(cqe, N(0))),
    SAY("a CQ resized to more than its ring", EINVAL, RDMA, right_resize, RESIZE(cqe, N(256))),
    SAY("a CQ resized with a reserved field in use", EOPNOTSUPP, RDMA, right_resize,
        RESIZE_PART(reserved, N(1))),
    RUN("a CQ resized whose answer goes nowhere", EFAULT, RDMA, resize_without_answer, N(false)),
    RUN("a CQ resized and the core's answer goes nowhere", EFAULT, RDMA, resize_without_answer,
        N(true)),
    RUN("a CQ with a longer driver's part that ends early", EFAULT, RDMA, cq_part_ends_early, NONE),
    RUN("a CQ whose buffer is in attributes", 0, RDMA, cq_of_attributes, N(2 * PAGE), N(0)),
    RUN("a CQ with too short a buffer in attributes", EINVAL, RDMA, cq_of_attributes, N(PAGE),
        N(EINVAL)),
    RUN("a QP by attributes", 0, RDMA, qp_of_attributes, N(0)),
    RUN("a QP whose buffer is in attributes", EOPNOTSUPP, RDMA, qp_of_attributes, N(1)),
    RUN("a QP whose receive queue is in attributes", EOPNOTSUPP, RDMA, qp_of_attributes, N(2)),
    RUN("a QP whose send queue is in attributes", EOPNOTSUPP, RDMA, qp_of_attributes, N(3)),
    RUN("a file that ends with many CQs", 0, RDMA, ends_with_cqs, N(200)),
    SAY("a QP with too short a driver's part", EINVAL, RDMA, right_stock_qp,
        BYTES(MANA_UAPI_CREATE_QP_STOCK_BYTES - 8)),
    SAY("a QP with a reserved field in use", EOPNOTSUPP, RDMA, right_qp, QP_PART(reserved, N(1))),
    /* The core makes memory of 0 bytes of it, and shifts by the width of a word. */
    SAY("a QP with a queue of no bytes", EINVAL, RDMA, right_stock_qp, QP_PART(bytes[0], N(0)),
        QP_PART(address[0], IN_ARENA(8))),
    SAY("a QP with a CQ of the other format", EINVAL, RDMA, right_qp,
        QP(send_cq_handle, OF(stock_cq)), QP(recv_cq_handle, OF(stock_cq))),
    SAY("a QP without a CQ", ENOENT, RDMA, right_qp, QP(send_cq_handle, N(0xffff)),
        QP(recv_cq_handle, N(0xffff))),
    SAY("an XRC QP", EOPNOTSUPP, RDMA, right_qp, QP(qp_type, N(IB_UVERBS_QPT_XRC_INI))),
    SAY("a QP of the driver's own type", EOPNOTSUPP, RDMA, right_qp,
        QP(qp_type, N(IB_UVERBS_QPT_DRIVER))),
    SAY("a GSI QP", EINVAL, RDMA, right_qp, QP(qp_type, N(1))),
    SAY("a QP whose ring is no power of two", EINVAL, RDMA, right_qp,
        QP_PART(sq_bytes, N(3 * PAGE))),
    /* No multicast to itself. */
    SAY("a QP with flags", EOPNOTSUPP, RDMA, right_qp, QP(create_flags, N(1 << 1))),
    SAY("a QP of the public format with an SRQ", EOPNOTSUPP, RDMA, right_stock_qp, QP(is_srq, N(1)),
        QP(srq_handle, OF(srq))),
    SAY("a QP that is too deep", EINVAL, RDMA, right_qp, QP(max_send_wr, N(1 << 24))),
    SAY("a QP that leaps to RTS", EINVAL, RDMA, right_modify, MODIFY(qp_state, N(RTS))),
    SAY("a QP in a state that is none", EINVAL, RDMA, right_modify, MODIFY(qp_state, N(7))),
    SAY("a QP whose path migrates", EOPNOTSUPP, RDMA, right_modify,
        MODIFY(attr_mask, N(1 | 1 << 18))),
    SAY("a QP with another size", EOPNOTSUPP, RDMA, right_modify,
        MODIFY(attr_mask, N(1 | 1 << 19))),
    RUN("a QP with the longest times and most retries", 0, ADDRESS, with_path, PATH(timeout, 31)),
    RUN("a QP with a timeout of 6 bits", EINVAL, ADDRESS, with_path, PATH(timeout, 32)),
    RUN("a QP with 8 retries", EINVAL, ADDRESS, with_path, PATH(retry_cnt, 8)),
    RUN("a QP with 8 retries of a receiver that is not ready", EINVAL, ADDRESS, with_path,
        PATH(rnr_retry, 8)),
    RUN("a QP with a receiver's timer of 6 bits", EINVAL, ADDRESS, with_path,
        PATH(min_rnr_timer, 32)),
    RUN("a QP with an MTU that there is not", EINVAL, ADDRESS, with_path, PATH(path_mtu, 6)),
    RUN("a QP that is drained twice, and tells of it once", 0, ADDRESS, drain_told_once, NONE),
    SAY("a QP with a rate limit", EOPNOTSUPP, RDMA, right_modify,
        MODIFY(attr_mask, N(1 | 1 << 25))),
    SAY("a PD that goes before its objects", EBUSY, RDMA, end_of_pd, UNCHANGED),
    SAY("an SRQ without stride", EINVAL, RDMA, right_srq, SRQ_PART(stride, N(0))),
    SAY("an SRQ with more receives than room", EINVAL, RDMA, right_srq,
        SRQ(max_wr, N(PAGE / 64 + 1))),
    RUN("an SRQ made with a limit", 0, RDMA, srq_made_with_limit, NONE),
    SAY("an SRQ that matches tags", EOPNOTSUPP, RDMA, tag_srq, UNCHANGED),
    SAY("an SRQ with another size", EOPNOTSUPP, RDMA, right_modify_srq, MODIFY_SRQ(attr_mask, N(1)),
        MODIFY_SRQ(srq_limit, N(0))),
    SAY("an SRQ with a limit beyond its size", EINVAL, RDMA, right_modify_srq,
        MODIFY_SRQ(srq_limit, N(65))),
    SAY("an MR with paging on demand", EOPNOTSUPP, ANY, right_mr, MR(access_flags, N(1 | 1 << 6))),
    SAY("an MR that may be flushed", EOPNOTSUPP, ANY, right_mr, MR(access_flags, N(7 | 1 << 8))),
    SAY("an MR where no memory is", EFAULT, ANY, right_mr, MR(start, IN_HOLE), MR(hca_va, IN_HOLE)),
    SAY("an MR across the end of the address space", EINVAL, ANY, right_mr,
        MR(start, N(~0ull - PAGE)), MR(hca_va, N(~0ull - PAGE)), MR(length, N(2 * PAGE))),
    SAY("an MR of no bytes", EINVAL, ANY, right_mr, MR(start, IN_ARENA(8)), MR(hca_va, IN_ARENA(8)),
        MR(length, N(0))),
    SAY("an MR for remote writes alone", EINVAL, ANY, right_mr, MR(access_flags, N(2))),
    SAY("a memory window of type 3", EINVAL, RDMA, right_mw, MW(mw_type, N(3))),
    RUN("device memory of no bytes", EINVAL, RDMA, new_dm, N(0), N(0)),
    RUN("device memory with an alignment of 2^200", EINVAL, RDMA, new_dm, N(64), N(200)),
    RUN("more device memory than there is at once", EINVAL, RDMA, new_dm, N(DM_BYTES + 1), N(0)),
    RUN("device memory, copied to and from", 0, RDMA, dm_copied, NONE),
    RUN("a copy of no bytes at the end of device memory", 0, RDMA, copy_of_new, N(100), IN_HOLE,
        N(0), N(MANA_UAPI_COPY_TO_DM)),
    RUN("a copy beyond device memory", EINVAL, RDMA, copy_of_new, N(97), IN_ARENA(0), N(4),
        N(MANA_UAPI_COPY_TO_DM)),
    RUN("a copy of no bytes behind device memory", EINVAL, RDMA, copy_of_new, N(101), IN_ARENA(0),
        N(0), N(MANA_UAPI_COPY_FROM_DM)),
    RUN("a copy whose end wraps", EINVAL, RDMA, copy_of_new, N(~0ull), IN_ARENA(0), N(2),
        N(MANA_UAPI_COPY_FROM_DM)),
    RUN("a copy of 2^64 - 1 bytes", EINVAL, RDMA, copy_of_new, N(1), IN_ARENA(0), N(~0ull),
        N(MANA_UAPI_COPY_TO_DM)),
    RUN("a copy in no direction", EINVAL, RDMA, copy_of_new, N(0), IN_ARENA(0), N(4), N(2)),
    RUN("a copy of what is not there to device memory", EFAULT, RDMA, copy_of_new, N(0), IN_HOLE,
        N(4), N(MANA_UAPI_COPY_TO_DM)),
    RUN("a copy of device memory to where nothing is", EFAULT, RDMA, copy_of_new, N(0), IN_HOLE,
        N(4), N(MANA_UAPI_COPY_FROM_DM)),
    RUN("a copy of device memory to what is for reading", EFAULT, RDMA, copy_of_new, N(0),
        IN_READONLY, N(4), N(MANA_UAPI_COPY_FROM_DM)),
    RUN("a copy of the kernel's memory", EFAULT, RDMA, copy_of_new, N(0), N(0xffff888000000000u),
        N(64), N(MANA_UAPI_COPY_TO_DM)),
    RUN("a copy to the kernel's memory", EFAULT, RDMA, copy_of_new, N(0), N(0xffff888000000000u),
        N(64), N(MANA_UAPI_COPY_FROM_DM)),
    RUN("a copy of memory that ends in the middle", EFAULT, RDMA, dm_copy_half, NONE),
    RUN("a copy to device memory that is none", ENOENT, RDMA, copy_to, N(0x7fffff)),
    RUN("a copy to a PD", EINVAL, RDMA, copy_to, OF(pd)),
    RUN("a copy of device memory that has ended", ENOENT, RDMA, dm_copy_freed, NONE),
    RUN("a copy of another's device memory", ENOENT, RDMA, dm_copy_other, NONE),
    RUN("copies of several processes at once", 0, RDMA, dm_copy_processes, NONE),
    SAY("a WQ with a state", EOPNOTSUPP, RAW, right_modify_wq, UNCHANGED),
    RUN("a WQ that goes before its table", EBUSY, RAW, wq_in_table, NONE),
    RUN("a WQ with a data path, from beginning to end", 0, RDMA, packet_wq_states, N(1), N(2)),
    RUN("a WQ with a data path, back to RESET", EOPNOTSUPP, RDMA, packet_wq_states, N(1), N(0)),
    SAY("a WQ with a data path whose ring is no power of two", EINVAL, RDMA, right_packet_wq,
        WQ_PART(recv.bytes, N(3 * PAGE))),
    SAY("a WQ with a data path and direct verbs", EOPNOTSUPP, RDMA, right_packet_wq,
        WQ_PART(address, IN_ARENA(0)), WQ_PART(bytes, N(PAGE))),
    RUN("an RSS QP with a data path", 0, RDMA, spread_qp, N(1), N(0)),
    RUN("an RSS QP over a WQ that has ended", EINVAL, RDMA, spread_qp, N(2), N(0)),
    RUN("an RSS QP with a data path and a port", EOPNOTSUPP, RDMA, spread_qp, N(1), N(1)),
    SAY("an RSS QP with another hash function", EOPNOTSUPP, RAW, right_rss_qp,
        RSS_PART(hash_function, N(2))),
    /* Of a type that has no table: the core leaves the CQs out. */
    SAY("an RC QP with a table of WQs", EINVAL, RAW, right_qp, QP(send_cq_handle, OF(stock_cq)),
        QP(recv_cq_handle, OF(stock_cq)), QP(max_recv_wr, N(0)), QP(max_recv_sge, N(0)),
        QP(comp_mask, N(IB_UVERBS_CREATE_QP_MASK_IND_TABLE)), QP(rwq_ind_tbl_handle, OF(table))),
    RUN("a QP twice in a multicast group", 0, RDMA, group_twice, NONE),
    RUN("an AH of the other guest", 0, ADDRESS, address_handle, N(10), N(0), N(0), N(1)),
    RUN("an AH of a multicast group", 0, ADDRESS, address_handle, N(224), N(0), N(0), N(9)),
    RUN("an AH of the address 0.0.0.0", ENODEV, ADDRESS, address_handle, N(0)),
    RUN("a CQ polled by the kernel", EOPNOTSUPP, ANY, absent, N(IB_USER_VERBS_CMD_POLL_CQ),
        N(false), N(sizeof(struct ib_uverbs_poll_cq)), N(sizeof(struct ib_uverbs_poll_cq_resp)),
        N(8), OF(cq)),
    RUN("a CQ armed by the kernel", EOPNOTSUPP, ANY, absent, N(IB_USER_VERBS_CMD_REQ_NOTIFY_CQ),
        N(false), N(sizeof(struct ib_uverbs_req_notify_cq)), N(0), N(0), OF(cq)),
    RUN("sends posted by the kernel", EOPNOTSUPP, ANY, absent, N(IB_USER_VERBS_CMD_POST_SEND),
        N(false), N(sizeof(struct ib_uverbs_post_send)), N(4), N(8), OF(qp)),
    RUN("receives posted by the kernel", EOPNOTSUPP, ANY, absent, N(IB_USER_VERBS_CMD_POST_RECV),
        N(false), N(sizeof(struct ib_uverbs_post_recv)), N(4), N(8), OF(qp)),
    RUN("an XRC domain", EOPNOTSUPP, ANY, absent, N(IB_USER_VERBS_CMD_OPEN_XRCD), N(false),
        N(sizeof(struct ib_uverbs_open_xrcd)), N(4), N(8), OF(none)),
    RUN("moderation of a CQ", EOPNOTSUPP, ANY, absent, N(IB_USER_VERBS_EX_CMD_MODIFY_CQ), N(true),
        N(sizeof(struct ib_uverbs_ex_modify_cq)), N(0), N(0), OF(cq)),
};

/* Makes one of the objects that the cases start from. */
static int make_object(struct worker* w, const struct base* b, uint32_t* handle,
                       struct command (*right)(const struct worker*, const struct base*),
                       struct change change) {
    int err = make(w, b, right, change);

    *handle = answered(w, 0);
    return err;
}

/* What the cases start from. Returns 0, or the errno of what could not be made. */
static int make_base(struct worker* w, struct base* b, bool rdma) {
    static const struct change all = MR(access_flags, N(7));
    static const struct change of_ethernet = CQ_PART(flags, N(0));
    static const struct change of_stock = CQ_PART(flags, N(MANA_UAPI_CQ_RNIC));
    static const struct change of_64 = SRQ(max_wr, N(64));
    static const struct change unchanged = UNCHANGED;
    struct process* p = w->process;
    int err;

    err = get_context(w);
    if (err) return err;
    err = op_pd(w);
    b->pd = handle_of(atomic_load(&p->slots[K_PD][0]));
    if (!err) err = make_object(w, b, &b->mr, right_mr, all);
    if (!err && p->raw) {
        err = make_object(w, b, &b->ethernet_cq, right_cq, of_ethernet);
        b->cq = b->ethernet_cq;
        keep(w, K_CQ, b->ethernet_cq, F_ETHERNET);
        if (!err) err = direct_wq(w);
        b->wq = handle_of(atomic_load(&p->slots[K_WQ][0]));
        if (!err) err = op_table(w);
        b->table = handle_of(atomic_load(&p->slots[K_TABLE][0]));
    }
    if (err || !rdma) return err;
    err = make_object(w, b, &b->stock_cq, right_cq, of_stock);
    if (!err) err = make_object(w, b, &b->cq, right_cq, unchanged);
    if (!err) err = make_object(w, b, &b->srq, right_srq, of_64);
    return err ? err : make_object(w, b, &b->qp, right_qp, unchanged);
}

static int run_case(struct worker* w, const struct base* b, const struct known* k) {
    struct trial t = {.base = b};
    struct command c;
    int err;

    w->spoilt = false;
    if (k->run) {
        for (int i = 0; i < OPERANDS; i++) t.with[i] = number_of(w, b, &k->with[i]);
        return k->run(w, &t);
    }
    c = k->right(w, b);
    for (int i = 0; i < CHANGES; i++) change_command(w, b, &k->changes[i], &c);
    err = plainly(w, &c);
    return err || !k->ends ? err : destroy(w, (enum kind)(k->ends - 1), answered(w, 0));
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
        err = run_case(&w, &base, k);
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

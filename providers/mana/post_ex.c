// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The ibv_wr_* interface: work requests written straight into the ring. */
#include <endian.h>
#include <errno.h>

#include <ccan/array_size.h>

#include "mana.h"
#include "wr_flags.h"

static void fail(struct mana_qp *qp)
{
	if (!qp->wr.error)
		qp->wr.error = EINVAL;
}

static void finish_wqe(struct mana_qp *qp)
{
	const struct mana_hw_ext_control *control = (const void *)qp->wr.wqe.at;

	if (!qp->wr.open)
		return;
	/* an atomic has its 8 bytes, a datagram its address */
	if (MANA_UNLIKELY((mana_ext_is_atomic(control->opcode) && qp->wr.wqe.message) ||
			  qp->wr.no_address))
		fail(qp);
	mana_ext_wqe_end(&qp->ext, &qp->wr.wqe);
	qp->wr.open = false;
}

/* A new WQE with its control segment, or NULL once something was wrong. */
static inline struct mana_ext_wqe *begin_wqe(struct mana_qp *qp, uint8_t opcode, uint32_t value)
{
	struct mana_ext_wqe *wqe = &qp->wr.wqe;
	uint8_t flags;

	finish_wqe(qp);
	if (MANA_UNLIKELY(qp->wr.error))
		return NULL;
	if (MANA_UNLIKELY(mana_ext_sq_full(&qp->ext))) {
		qp->wr.error = ENOMEM;
		return NULL;
	}
	mana_ext_wqe_begin(&qp->ext, wqe, qp->ext.max_wqe_units);
	wqe->wr_id = qp->vqp.qp_ex.wr_id;
	/* the setter makes data inline, not the flag */
	flags = mana_wr_flags(qp->vqp.qp_ex.wr_flags) & (uint8_t)~MANA_HW_EXT_WQE_INLINE;
	mana_ext_wqe_control(wqe, opcode, flags | qp->ext.signal, value);
	mana_ext_wqe_open_data(&qp->ext, wqe, opcode);
	qp->wr.open = true;
	qp->wr.no_address = qp->ext.datagrams;
	return wqe;
}

/* SENDs of UD QPs leave room for the address, which may come before or after the data. */
static inline void begin_send(struct ibv_qp_ex *qp_ex, uint8_t opcode, uint32_t value)
{
	struct mana_qp *qp = ex_to_mqp(qp_ex);
	struct mana_ext_wqe *wqe = begin_wqe(qp, opcode, value);

	if (wqe && qp->ext.datagrams)
		wqe->bytes += sizeof(struct mana_hw_ext_ud);
}

static inline void begin_rdma(struct ibv_qp_ex *qp_ex, uint8_t opcode, uint32_t value,
			      uint32_t rkey, uint64_t remote_addr)
{
	struct mana_ext_wqe *wqe = begin_wqe(ex_to_mqp(qp_ex), opcode, value);

	if (wqe)
		mana_ext_wqe_remote(wqe, remote_addr, rkey);
}

static void wr_send(struct ibv_qp_ex *qp)
{
	begin_send(qp, MANA_HW_EXT_WQE_SEND, 0);
}

static void wr_send_imm(struct ibv_qp_ex *qp, __be32 imm_data)
{
	begin_send(qp, MANA_HW_EXT_WQE_SEND_IMM, be32toh(imm_data));
}

static void wr_send_inv(struct ibv_qp_ex *qp, uint32_t invalidate_rkey)
{
	begin_send(qp, MANA_HW_EXT_WQE_SEND_INV, invalidate_rkey);
}

static void wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr)
{
	begin_rdma(qp, MANA_HW_EXT_WQE_WRITE, 0, rkey, remote_addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
			      __be32 imm_data)
{
	begin_rdma(qp, MANA_HW_EXT_WQE_WRITE_IMM, be32toh(imm_data), rkey, remote_addr);
}

static void wr_rdma_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr)
{
	begin_rdma(qp, MANA_HW_EXT_WQE_READ, 0, rkey, remote_addr);
}

static void begin_atomic(struct ibv_qp_ex *qp_ex, uint8_t opcode, uint32_t rkey,
			 uint64_t remote_addr, uint64_t swap_add, uint64_t compare)
{
	struct mana_ext_wqe *wqe = begin_wqe(ex_to_mqp(qp_ex), opcode, 0);

	if (!wqe)
		return;
	mana_ext_wqe_remote(wqe, remote_addr, rkey);
	mana_ext_wqe_atomic(wqe, swap_add, compare);
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
			      uint64_t compare, uint64_t swap)
{
	begin_atomic(qp, MANA_HW_EXT_WQE_CMP_SWAP, rkey, remote_addr, swap, compare);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
				uint64_t add)
{
	begin_atomic(qp, MANA_HW_EXT_WQE_FETCH_ADD, rkey, remote_addr, add, 0);
}

static void wr_local_inv(struct ibv_qp_ex *qp, uint32_t invalidate_rkey)
{
	(void)begin_wqe(ex_to_mqp(qp), MANA_HW_EXT_WQE_LOCAL_INV, invalidate_rkey);
}

/* False: another QP's batch has bound the window and is not complete. */
static bool move_key(struct mana_qp *qp, struct mana_mw *mw, uint32_t key)
{
	struct mana_qp *none = NULL;

	if (__atomic_compare_exchange_n(&mw->binder, &none, qp, false, __ATOMIC_ACQUIRE,
					__ATOMIC_RELAXED)) {
		mw->old_key = mw->key;
		mw->next_bound = qp->wr.bound;
		qp->wr.bound = mw;
	} else if (none != qp) {
		return false;
	}
	mw->key = key;
	return true;
}

/* The end of a batch. If it is given up the device never hears of its binds. */
static void release_windows(struct mana_qp *qp, bool undo)
{
	while (qp->wr.bound) {
		struct mana_mw *mw = qp->wr.bound;

		qp->wr.bound = mw->next_bound;
		if (undo)
			mw->key = mw->old_key;
		__atomic_store_n(&mw->binder, NULL, __ATOMIC_RELEASE);
	}
}

static void wr_bind_mw(struct ibv_qp_ex *qp_ex, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *info)
{
	struct mana_qp *qp = ex_to_mqp(qp_ex);
	struct mana_hw_ext_bind bind;
	struct mana_ext_wqe *wqe;
	int ret;

	wqe = begin_wqe(qp, MANA_HW_EXT_WQE_BIND_MW, 0);
	if (!wqe)
		return;
	if (MANA_UNLIKELY(!mw)) {
		fail(qp);
		return;
	}
	ret = mana_fill_bind(qp, to_mmw(mw), rkey, info, &bind);
	if (!ret && !move_key(qp, to_mmw(mw), rkey))
		ret = EINVAL;
	if (ret)
		qp->wr.error = ret;
	else
		mana_ext_wqe_bind(wqe, &bind);
}

static void wr_set_ud_addr(struct ibv_qp_ex *qp_ex, struct ibv_ah *ah, uint32_t remote_qpn,
			   uint32_t remote_qkey)
{
	struct mana_qp *qp = ex_to_mqp(qp_ex);

	/* without an address the work request is not complete */
	if (MANA_UNLIKELY(!qp->wr.open || !ah))
		return;
	mana_ext_wqe_ud((struct mana_hw_ext_ud *)(qp->wr.wqe.at + MANA_EXT_CONTROL_BYTES),
			&to_mah(ah)->av, remote_qpn, remote_qkey);
	qp->wr.no_address = false;
}

static void wr_set_sge(struct ibv_qp_ex *qp_ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct mana_qp *qp = ex_to_mqp(qp_ex);

	if (MANA_UNLIKELY(!qp->wr.open))
		return;
	if (MANA_UNLIKELY(!mana_ext_wqe_add_sge(&qp->wr.wqe, addr, lkey, length)))
		fail(qp);
}

static void wr_set_sge_list(struct ibv_qp_ex *qp_ex, size_t num_sge, const struct ibv_sge *list)
{
	for (size_t i = 0; i < num_sge; i++)
		wr_set_sge(qp_ex, list[i].lkey, list[i].addr, list[i].length);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *qp_ex, size_t num_buf,
				    const struct ibv_data_buf *list)
{
	struct mana_qp *qp = ex_to_mqp(qp_ex);

	if (MANA_UNLIKELY(!qp->wr.open))
		return;
	for (size_t i = 0; i < num_buf; i++)
		if (MANA_UNLIKELY(!mana_ext_wqe_add_inline(&qp->wr.wqe, list[i].addr,
							   list[i].length)))
			fail(qp);
}

static void wr_set_inline_data(struct ibv_qp_ex *qp, void *addr, size_t length)
{
	const struct ibv_data_buf buffer = { .addr = addr, .length = length };

	wr_set_inline_data_list(qp, 1, &buffer);
}

static void wr_start(struct ibv_qp_ex *qp_ex)
{
	struct mana_qp *qp = ex_to_mqp(qp_ex);

	mana_lock(&qp->sq_lock);
	qp->wr.first = qp->ext.sq_producer;
	qp->wr.posted = qp->ext.sq_posted;
	qp->wr.error = mana_load_flag(&qp->ext.can_send) ? 0 : EINVAL;
	qp->wr.open = false;
}

static void forget(struct mana_qp *qp)
{
	qp->ext.sq_producer = qp->wr.first;
	qp->ext.sq_posted = qp->wr.posted;
	qp->wr.open = false;
	release_windows(qp, true);
}

static int wr_complete(struct ibv_qp_ex *qp_ex)
{
	struct mana_qp *qp = ex_to_mqp(qp_ex);
	int ret;

	finish_wqe(qp);
	ret = qp->wr.error;
	if (MANA_UNLIKELY(ret)) {
		forget(qp);
	} else {
		release_windows(qp, false);
		mana_ext_ring_send(&qp->ext);
	}
	mana_unlock(&qp->sq_lock);
	return ret;
}

static void wr_abort(struct ibv_qp_ex *qp_ex)
{
	struct mana_qp *qp = ex_to_mqp(qp_ex);

	forget(qp);
	mana_unlock(&qp->sq_lock);
}

/* What ibv_wr_* has for each opcode. */
static uint64_t possible_ops(const struct mana_ext_qp *qp)
{
	static const uint64_t ops[] = {
		[MANA_HW_EXT_WQE_SEND] = IBV_QP_EX_WITH_SEND,
		[MANA_HW_EXT_WQE_SEND_IMM] = IBV_QP_EX_WITH_SEND_WITH_IMM,
		[MANA_HW_EXT_WQE_SEND_INV] = IBV_QP_EX_WITH_SEND_WITH_INV,
		[MANA_HW_EXT_WQE_WRITE] = IBV_QP_EX_WITH_RDMA_WRITE,
		[MANA_HW_EXT_WQE_WRITE_IMM] = IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
		[MANA_HW_EXT_WQE_READ] = IBV_QP_EX_WITH_RDMA_READ,
		[MANA_HW_EXT_WQE_CMP_SWAP] = IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
		[MANA_HW_EXT_WQE_FETCH_ADD] = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
		[MANA_HW_EXT_WQE_LOCAL_INV] = IBV_QP_EX_WITH_LOCAL_INV,
		[MANA_HW_EXT_WQE_BIND_MW] = IBV_QP_EX_WITH_BIND_MW,
	};
	uint64_t possible = 0;

	for (uint8_t opcode = 0; opcode < ARRAY_SIZE(ops); opcode++)
		if (mana_ext_has_opcode(qp, opcode))
			possible |= ops[opcode];
	return possible;
}

int mana_set_wr_ops(struct mana_qp *qp, uint64_t send_ops)
{
	struct ibv_qp_ex *ex = &qp->vqp.qp_ex;

	if (send_ops & ~possible_ops(&qp->ext))
		return EOPNOTSUPP;
	qp->vqp.comp_mask |= VERBS_QP_EX;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	if (qp->ext.datagrams)
		ex->wr_set_ud_addr = wr_set_ud_addr;
	if (send_ops & IBV_QP_EX_WITH_SEND)
		ex->wr_send = wr_send;
	if (send_ops & IBV_QP_EX_WITH_SEND_WITH_IMM)
		ex->wr_send_imm = wr_send_imm;
	if (send_ops & IBV_QP_EX_WITH_SEND_WITH_INV)
		ex->wr_send_inv = wr_send_inv;
	if (send_ops & IBV_QP_EX_WITH_RDMA_WRITE)
		ex->wr_rdma_write = wr_rdma_write;
	if (send_ops & IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM)
		ex->wr_rdma_write_imm = wr_rdma_write_imm;
	if (send_ops & IBV_QP_EX_WITH_RDMA_READ)
		ex->wr_rdma_read = wr_rdma_read;
	if (send_ops & IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP)
		ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	if (send_ops & IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
		ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	if (send_ops & IBV_QP_EX_WITH_LOCAL_INV)
		ex->wr_local_inv = wr_local_inv;
	if (send_ops & IBV_QP_EX_WITH_BIND_MW)
		ex->wr_bind_mw = wr_bind_mw;
	return 0;
}

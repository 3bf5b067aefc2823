// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <endian.h>
#include <errno.h>

#include "mana.h"
#include "wr_flags.h"

/* SGEs are handed on as they are. */
static_assert(sizeof(struct ibv_sge) == sizeof(struct mana_dp_sge), "SGE");
static_assert(offsetof(struct ibv_sge, length) == offsetof(struct mana_dp_sge, length), "length");
static_assert(offsetof(struct ibv_sge, lkey) == offsetof(struct mana_dp_sge, lkey), "key");
/* Completions have the numbers of the verbs. */
static_assert((int)MANA_WC_RECV_RDMA_WITH_IMM == (int)IBV_WC_RECV_RDMA_WITH_IMM, "with immediate");
static_assert((int)MANA_WC_BIND_MW == (int)IBV_WC_BIND_MW, "bind");
static_assert((int)MANA_WC_LOCAL_INV == (int)IBV_WC_LOCAL_INV, "local invalidate");
static_assert((int)MANA_WC_WITH_INV == (int)IBV_WC_WITH_INV, "with invalidate");
static_assert((int)MANA_HW_WC_GENERAL_ERR == (int)IBV_WC_GENERAL_ERR, "status");

#define NO_OPCODE 0xff

static const uint8_t opcodes[] = {
	[IBV_WR_RDMA_WRITE] = MANA_HW_EXT_WQE_WRITE,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = MANA_HW_EXT_WQE_WRITE_IMM,
	[IBV_WR_SEND] = MANA_HW_EXT_WQE_SEND,
	[IBV_WR_SEND_WITH_IMM] = MANA_HW_EXT_WQE_SEND_IMM,
	[IBV_WR_RDMA_READ] = MANA_HW_EXT_WQE_READ,
	[IBV_WR_ATOMIC_CMP_AND_SWP] = MANA_HW_EXT_WQE_CMP_SWAP,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = MANA_HW_EXT_WQE_FETCH_ADD,
	[IBV_WR_LOCAL_INV] = MANA_HW_EXT_WQE_LOCAL_INV,
	[IBV_WR_BIND_MW] = MANA_HW_EXT_WQE_BIND_MW,
	[IBV_WR_SEND_WITH_INV] = MANA_HW_EXT_WQE_SEND_INV,
	[IBV_WR_TSO] = NO_OPCODE,
	[IBV_WR_DRIVER1] = NO_OPCODE,
};

static int fill_bind(struct mana_qp *qp, const struct ibv_send_wr *wr, struct mana_dp_send *send)
{
	if (!mana_is_extended(qp) || !mana_ext_has_opcode(&qp->ext, MANA_HW_EXT_WQE_BIND_MW))
		return EOPNOTSUPP;
	/* A batch that is given up puts the old key back, and would undo this bind's. */
	if (!wr->bind_mw.mw || __atomic_load_n(&to_mmw(wr->bind_mw.mw)->binder, __ATOMIC_ACQUIRE))
		return EINVAL;
	return mana_fill_bind(qp, to_mmw(wr->bind_mw.mw), wr->bind_mw.rkey,
			      &wr->bind_mw.bind_info, &send->bind);
}

/* The data path's form of a work request. */
static inline int convert(struct mana_qp *qp, const struct ibv_send_wr *wr, bool datagrams,
			  struct mana_dp_send *send)
{
	if (MANA_UNLIKELY((unsigned int)wr->opcode >= sizeof(opcodes) ||
			  opcodes[wr->opcode] == NO_OPCODE))
		return EOPNOTSUPP;
	if (MANA_UNLIKELY(wr->num_sge < 0))
		return EINVAL;
	send->wr_id = wr->wr_id;
	send->sge = (const struct mana_dp_sge *)wr->sg_list;
	send->sge_count = (uint32_t)wr->num_sge;
	send->opcode = opcodes[wr->opcode];
	send->flags = mana_wr_flags(wr->send_flags);
	send->value = 0;
	switch (wr->opcode) {
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		send->value = be32toh(wr->imm_data);
		break;
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_LOCAL_INV:
		send->value = wr->invalidate_rkey;
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		send->swap_add = wr->wr.atomic.swap;
		send->compare = wr->wr.atomic.compare_add;
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		send->swap_add = wr->wr.atomic.compare_add;
		send->compare = 0;
		break;
	case IBV_WR_BIND_MW:
		return fill_bind(qp, wr, send);
	default:
		break;
	}
	if (datagrams) {
		send->av = MANA_LIKELY(wr->wr.ud.ah) ? &to_mah(wr->wr.ud.ah)->av : NULL;
		send->dest_qpn = wr->wr.ud.remote_qpn;
		send->qkey = wr->wr.ud.remote_qkey;
	} else if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		   wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		send->remote_address = wr->wr.atomic.remote_addr;
		send->rkey = wr->wr.atomic.rkey;
	} else {
		send->remote_address = wr->wr.rdma.remote_addr;
		send->rkey = wr->wr.rdma.rkey;
	}
	return 0;
}

/* Raw packets: sends and no more. */
static int post_packets(struct mana_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	bool has_checksums = mana_has(to_mctx(qp->vqp.qp.context), MANA_HW_EXT_PACKET_CHECKSUMS);
	struct mana_dp_send send = {};
	int ret = 0;

	mana_lock(&qp->sq_lock);
	for (; wr; wr = wr->next) {
		ret = convert(qp, wr, false, &send);
		send.checksums = wr->send_flags & IBV_SEND_IP_CSUM;
		if (!ret && send.checksums && !has_checksums)
			ret = EOPNOTSUPP;
		if (!ret)
			ret = mana_packet_send(&qp->packet, &send);
		if (ret) {
			*bad_wr = wr;
			break;
		}
	}
	mana_packet_ring_send(&qp->packet);
	mana_unlock(&qp->sq_lock);
	return ret;
}

static int post_stock(struct mana_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	bool datagrams = qp->dp.format == MANA_DP_UD;
	struct mana_dp_send send;
	int ret = 0;

	mana_lock(&qp->sq_lock);
	for (; wr; wr = wr->next) {
		ret = convert(qp, wr, datagrams, &send);
		if (MANA_LIKELY(!ret))
			ret = mana_stock_send(&qp->stock, &send);
		if (MANA_UNLIKELY(ret)) {
			*bad_wr = wr;
			break;
		}
	}
	mana_stock_ring_send(&qp->stock);
	mana_unlock(&qp->sq_lock);
	return ret;
}

int mana_post_send(struct ibv_qp *ibv_qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct mana_qp *qp = to_mqp(ibv_qp);
	struct mana_dp_send send;
	int ret = 0;

	if (MANA_UNLIKELY(!mana_is_extended(qp))) {
		if (qp->dp.format == MANA_DP_PACKET)
			return post_packets(qp, wr, bad_wr);
		if (qp->dp.format != MANA_DP_RAW)
			return post_stock(qp, wr, bad_wr);
		*bad_wr = wr;
		return EOPNOTSUPP;
	}
	mana_lock(&qp->sq_lock);
	for (; wr; wr = wr->next) {
		ret = convert(qp, wr, qp->ext.datagrams, &send);
		if (MANA_LIKELY(!ret))
			ret = mana_ext_send(&qp->ext, &send);
		if (MANA_UNLIKELY(ret)) {
			*bad_wr = wr;
			break;
		}
		if (MANA_UNLIKELY(wr->opcode == IBV_WR_BIND_MW))
			to_mmw(wr->bind_mw.mw)->key = wr->bind_mw.rkey;
	}
	mana_ext_ring_send(&qp->ext);
	mana_unlock(&qp->sq_lock);
	return ret;
}

int mana_bind_mw(struct ibv_qp *ibv_qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr *bad_wr;
	struct ibv_send_wr wr = {
		.wr_id = bind->wr_id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = bind->send_flags,
		.bind_mw.mw = mw,
		.bind_mw.rkey = ibv_inc_rkey(to_mmw(mw)->key),
		.bind_mw.bind_info = bind->bind_info,
	};
	int ret;

	if (bind->bind_info.mw_access_flags & IBV_ACCESS_ZERO_BASED)
		return EINVAL;
	ret = mana_post_send(ibv_qp, &wr, &bad_wr);
	if (ret)
		return ret;
	mw->rkey = wr.bind_mw.rkey;
	return 0;
}

static int post_stock_recv(struct mana_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	uint32_t count = 0;
	int ret = 0;

	mana_lock(&qp->rq_lock);
	for (; wr; wr = wr->next) {
		ret = wr->num_sge < 0 ? EINVAL :
					mana_stock_recv(&qp->stock, wr->wr_id,
							(const struct mana_dp_sge *)wr->sg_list,
							(uint32_t)wr->num_sge);
		if (ret) {
			*bad_wr = wr;
			break;
		}
		count++;
	}
	if (count)
		mana_stock_ring_recv(&qp->stock, count);
	mana_unlock(&qp->rq_lock);
	return ret;
}

static int post_packet_recv(struct mana_packet_qp *packet, struct mana_lock *lock,
			    struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	bool posted = false;
	int ret = 0;

	mana_lock(lock);
	for (; wr; wr = wr->next) {
		ret = wr->num_sge < 0 ? EINVAL :
					mana_packet_recv(packet, wr->wr_id,
							 (const struct mana_dp_sge *)wr->sg_list,
							 (uint32_t)wr->num_sge);
		if (ret) {
			*bad_wr = wr;
			break;
		}
		posted = true;
	}
	if (posted)
		mana_packet_ring_recv(packet);
	mana_unlock(lock);
	return ret;
}

int mana_post_wq_recv(struct ibv_wq *ibv_wq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct mana_wq *wq = to_mwq(ibv_wq);

	if (wq->has_path)
		return post_packet_recv(&wq->packet, &wq->lock, wr, bad_wr);
	*bad_wr = wr;
	return EOPNOTSUPP;
}

int mana_post_recv(struct ibv_qp *ibv_qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct mana_qp *qp = to_mqp(ibv_qp);
	int ret = 0;

	if (MANA_UNLIKELY(!mana_is_extended(qp))) {
		if (qp->dp.format == MANA_DP_PACKET)
			return post_packet_recv(&qp->packet, &qp->rq_lock, wr, bad_wr);
		if (qp->dp.format != MANA_DP_RAW)
			return post_stock_recv(qp, wr, bad_wr);
		*bad_wr = wr;
		return EOPNOTSUPP;
	}
	mana_lock(&qp->rq_lock);
	for (; wr; wr = wr->next) {
		ret = wr->num_sge < 0 ? EINVAL :
					mana_ext_recv(&qp->ext, wr->wr_id,
						      (const struct mana_dp_sge *)wr->sg_list,
						      (uint32_t)wr->num_sge);
		if (MANA_UNLIKELY(ret)) {
			*bad_wr = wr;
			break;
		}
	}
	mana_ext_ring_recv(&qp->ext);
	mana_unlock(&qp->rq_lock);
	return ret;
}

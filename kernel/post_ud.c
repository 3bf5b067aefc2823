// SPDX-License-Identifier: GPL-2.0
/*
 * Datagrams of the kernel in the public format: QP1 and UD where the device
 * has no extension (RNIC 7).
 */
#include "ah.h"
#include "post.h"

#include <rdma/ib_mad.h>

/**
 * mana_ib_ud_send_bytes - size of a datagram: header, OOB, address vector and SGEs
 * @max_sge: of its SGEs
 */
u32 mana_ib_ud_send_bytes(u32 max_sge)
{
	return ALIGN(sizeof(struct mana_hw_wqe_header) +
			     sizeof(struct mana_hw_rnic_send_oob) +
			     (max_sge + 1) * sizeof(struct mana_hw_sge),
		     MANA_HW_WQE_UNIT);
}

/**
 * mana_ib_ud_receive_bytes - size of a receive
 * @max_sge: of its SGEs
 */
u32 mana_ib_ud_receive_bytes(u32 max_sge)
{
	return ALIGN(sizeof(struct mana_hw_wqe_header) +
			     sizeof(struct mana_hw_rnic_recv_oob) +
			     max(1U, max_sge) * sizeof(struct mana_hw_sge),
		     MANA_HW_WQE_UNIT);
}

static bool mana_ib_has_room(const struct mana_ib_ring *ring, u32 bytes)
{
	u32 used = ring->producer - READ_ONCE(ring->consumer);

	return used <= ring->bytes && bytes <= ring->bytes - used;
}

static u32 mana_ib_write_sge(const struct mana_ib_ring *ring, u32 position,
			     u64 address, u32 key, u32 length)
{
	struct mana_hw_sge sge = { .address = address,
				   .key = key,
				   .length = length };

	mana_ib_ring_write(ring, position, &sge, sizeof(sge));
	return position + sizeof(sge);
}

/**
 * mana_ib_post_send_ud - writes one datagram in the public format
 * @qp: QP; the lock of its send queue is held
 * @wr: send
 */
int mana_ib_post_send_ud(struct mana_ib_qp *qp, const struct ib_send_wr *wr)
{
	const struct ib_ud_wr *ud = ud_wr(wr);
	struct mana_ib_ah *ah = to_mana_ah(ud->ah);
	struct mana_ib_ring *ring = &qp->work.sq;
	struct mana_hw_rnic_send_oob oob = {};
	struct mana_hw_wqe_header header = {};
	u32 bytes, position, i;

	if (wr->opcode != IB_WR_SEND || wr->send_flags & IB_SEND_INLINE)
		return -EOPNOTSUPP;
	if (wr->num_sge > qp->attr.cap.max_send_sge || !ah->av)
		return -EINVAL;
	bytes = mana_ib_ud_send_bytes(wr->num_sge);
	if (!mana_ib_has_room(ring, bytes))
		return -ENOMEM;

	header.word1 = (wr->num_sge + 1) |
		       MANA_HW_OOB_LARGE << MANA_HW_WQE_OOB_CODE_SHIFT |
		       MANA_HW_WQE_OOB_IN_SGL |
		       qp->ud.mtu << MANA_HW_WQE_DATA_UNIT_SHIFT;
	oob.flags_psn = MANA_HW_RNIC_WQE_UD_SEND |
			qp->ud.send_psn << MANA_HW_RNIC_OOB_PSN_SHIFT;
	if (qp->signal_all || wr->send_flags & IB_SEND_SIGNALED)
		oob.flags_psn |= MANA_HW_RNIC_OOB_SIGNALED;
	if (wr->send_flags & IB_SEND_SOLICITED)
		oob.flags_psn |= MANA_HW_RNIC_OOB_SOLICITED;
	if (wr->send_flags & IB_SEND_FENCE)
		oob.flags_psn |= MANA_HW_RNIC_OOB_FENCE;
	oob.ssn = ud->remote_qpn;
	if (qp->ibqp.qp_type == IB_QPT_GSI)
		oob.u.ud.qkey = IB_QP1_QKEY;
	else if (ud->remote_qkey & BIT(31))
		oob.u.ud.qkey = READ_ONCE(qp->attr.qkey); /* IBTA 10.2.5: its own */
	else
		oob.u.ud.qkey = ud->remote_qkey;
	qp->ud.send_psn = (qp->ud.send_psn + 1) & MANA_HW_RNIC_24BIT;

	position = ring->producer;
	mana_ib_ring_write(ring, position, &header, sizeof(header));
	position += sizeof(header);
	mana_ib_ring_write(ring, position, &oob, sizeof(oob));
	position += sizeof(oob);
	position = mana_ib_write_sge(ring, position, ah->av_dma,
				     qp->ibqp.pd->local_dma_lkey,
				     sizeof(*ah->av));
	for (i = 0; i < wr->num_sge; i++)
		position = mana_ib_write_sge(ring, position,
					     wr->sg_list[i].addr,
					     wr->sg_list[i].lkey,
					     wr->sg_list[i].length);
	mana_ib_ring_push(ring, wr->wr_id, IB_WC_SEND,
			  oob.flags_psn & MANA_HW_RNIC_OOB_SIGNALED, bytes);
	return 0;
}

/**
 * mana_ib_post_recv_ud - writes one receive in the public format
 * @qp: QP; the lock of its receive queue is held
 * @wr: receive
 */
int mana_ib_post_recv_ud(struct mana_ib_qp *qp, const struct ib_recv_wr *wr)
{
	struct mana_hw_rnic_recv_oob oob = {};
	struct mana_hw_wqe_header header = {};
	struct mana_ib_ring *ring = &qp->work.rq;
	u32 bytes, position, i;

	if (wr->num_sge > qp->attr.cap.max_recv_sge)
		return -EINVAL;
	bytes = mana_ib_ud_receive_bytes(wr->num_sge);
	if (!mana_ib_has_room(ring, bytes))
		return -ENOMEM;

	header.word1 = max(1, wr->num_sge) |
		       MANA_HW_OOB_SMALL << MANA_HW_WQE_OOB_CODE_SHIFT;
	position = ring->producer;
	mana_ib_ring_write(ring, position, &header, sizeof(header));
	position += sizeof(header);
	mana_ib_ring_write(ring, position, &oob, sizeof(oob));
	position += sizeof(oob);
	for (i = 0; i < wr->num_sge; i++)
		position = mana_ib_write_sge(ring, position,
					     wr->sg_list[i].addr,
					     wr->sg_list[i].lkey,
					     wr->sg_list[i].length);
	if (!wr->num_sge)
		mana_ib_write_sge(ring, position,
				  MANA_HW_RNIC_DUMMY_SGE_ADDRESS, 0, 0);
	mana_ib_ring_push(ring, wr->wr_id, IB_WC_RECV, true, bytes);
	return 0;
}

// SPDX-License-Identifier: GPL-2.0
/* Work requests of the kernel in the extension's format. */
#include "ah.h"
#include "mr.h"
#include "post.h"

#include <linux/log2.h>
#include <rdma/ib_mad.h>

/**
 * mana_ib_ext_send_bytes - size of the largest send
 * @max_sge: of its SGEs
 * @datagram: it has an address
 */
u32 mana_ib_ext_send_bytes(u32 max_sge, bool datagram)
{
	u32 bytes = sizeof(struct mana_hw_ext_control) +
		    max_sge * sizeof(struct mana_hw_sge);

	/* The largest segments that come between. */
	if (datagram)
		bytes += sizeof(struct mana_hw_ext_ud);
	else
		bytes += sizeof(struct mana_hw_ext_remote);
	return ALIGN(bytes, MANA_HW_EXT_WQE_UNIT);
}

/**
 * mana_ib_ext_receive_stride - bytes of a receive WQE
 * @max_sge: of its SGEs
 */
u32 mana_ib_ext_receive_stride(u32 max_sge)
{
	return roundup_pow_of_two(sizeof(struct mana_hw_ext_receive) +
				  max(1U, max_sge) *
					  sizeof(struct mana_hw_sge));
}

/* What the device and the completion call a kind of request. */
struct mana_ib_kind {
	u8 opcode;
	u8 completion;
	bool known;
	bool remote;
};

static const struct mana_ib_kind mana_ib_kinds[] = {
	[IB_WR_SEND] = { MANA_HW_EXT_WQE_SEND, IB_WC_SEND, true, false },
	[IB_WR_SEND_WITH_IMM] = { MANA_HW_EXT_WQE_SEND_IMM, IB_WC_SEND, true,
				  false },
	[IB_WR_SEND_WITH_INV] = { MANA_HW_EXT_WQE_SEND_INV, IB_WC_SEND, true,
				  false },
	[IB_WR_RDMA_WRITE] = { MANA_HW_EXT_WQE_WRITE, IB_WC_RDMA_WRITE, true,
			       true },
	[IB_WR_RDMA_WRITE_WITH_IMM] = { MANA_HW_EXT_WQE_WRITE_IMM,
					IB_WC_RDMA_WRITE, true, true },
	[IB_WR_RDMA_READ] = { MANA_HW_EXT_WQE_READ, IB_WC_RDMA_READ, true,
			      true },
	[IB_WR_ATOMIC_CMP_AND_SWP] = { MANA_HW_EXT_WQE_CMP_SWAP,
				       IB_WC_COMP_SWAP, true, true },
	[IB_WR_ATOMIC_FETCH_AND_ADD] = { MANA_HW_EXT_WQE_FETCH_ADD,
					 IB_WC_FETCH_ADD, true, true },
	[IB_WR_LOCAL_INV] = { MANA_HW_EXT_WQE_LOCAL_INV, IB_WC_LOCAL_INV, true,
			      false },
	[IB_WR_REG_MR] = { MANA_HW_EXT_WQE_FAST_REGISTER, IB_WC_REG_MR, true,
			   false },
};

/* A WQE while it is written: the position is in bytes. */
struct mana_ib_writer {
	const struct mana_ib_ring *ring;
	u32 position;
};

static void mana_ib_write(struct mana_ib_writer *writer, const void *from,
			  u32 bytes)
{
	mana_ib_ring_write(writer->ring, writer->position, from, bytes);
	writer->position += bytes;
}

static void mana_ib_write_remote(struct mana_ib_writer *writer, u64 address,
				 u32 rkey)
{
	struct mana_hw_ext_remote remote = { .address = address,
					     .rkey = rkey };

	mana_ib_write(writer, &remote, sizeof(remote));
}

static void mana_ib_write_atomic(struct mana_ib_writer *writer,
				 const struct ib_atomic_wr *wr)
{
	bool swap = wr->wr.opcode == IB_WR_ATOMIC_CMP_AND_SWP;
	struct mana_hw_ext_atomic atomic = {
		.swap_add = swap ? wr->swap : wr->compare_add,
		.compare = swap ? wr->compare_add : 0,
	};

	mana_ib_write_remote(writer, wr->remote_addr, wr->rkey);
	mana_ib_write(writer, &atomic, sizeof(atomic));
}

static void mana_ib_write_ud(struct mana_ib_writer *writer,
			     const struct mana_ib_qp *qp,
			     const struct ib_ud_wr *wr)
{
	struct mana_hw_ext_ud ud = to_mana_ah(wr->ah)->ud;

	ud.dest_qpn = wr->remote_qpn;
	if (qp->ibqp.qp_type == IB_QPT_GSI)
		ud.qkey = IB_QP1_QKEY;
	else if (wr->remote_qkey & BIT(31))
		ud.qkey = READ_ONCE(qp->attr.qkey); /* IBTA 10.2.5: its own */
	else
		ud.qkey = wr->remote_qkey;
	mana_ib_write(writer, &ud, sizeof(ud));
}

static void mana_ib_write_register(struct mana_ib_writer *writer,
				   const struct ib_reg_wr *wr)
{
	const struct mana_ib_mr *mr = to_mana_mr(wr->mr);
	struct mana_hw_ext_register segment = {
		.key = wr->key,
		.access = mana_ib_hw_access(wr->access),
		.iova = wr->mr->iova,
		.length = wr->mr->length,
		.page_list = mr->pages_dma,
		.pages = mr->page_count,
		.page_shift = ilog2(wr->mr->page_size),
	};

	mana_ib_write(writer, &segment, sizeof(segment));
}

static void mana_ib_write_sges(struct mana_ib_writer *writer,
			       const struct ib_sge *list, int count)
{
	struct mana_hw_sge sge;
	int i;

	for (i = 0; i < count; i++) {
		sge.address = list[i].addr;
		sge.key = list[i].lkey;
		sge.length = list[i].length;
		mana_ib_write(writer, &sge, sizeof(sge));
	}
}

/* Bytes of the segments behind the control segment, without data. */
static u32 mana_ib_segment_bytes(enum ib_wr_opcode opcode, bool datagram)
{
	switch (opcode) {
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
	case IB_WR_RDMA_READ:
		return sizeof(struct mana_hw_ext_remote);
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		return sizeof(struct mana_hw_ext_remote) +
		       sizeof(struct mana_hw_ext_atomic);
	case IB_WR_REG_MR:
		return sizeof(struct mana_hw_ext_register);
	default:
		return datagram ? sizeof(struct mana_hw_ext_ud) : 0;
	}
}

static u32 mana_ib_wr_value(const struct ib_send_wr *wr)
{
	switch (wr->opcode) {
	case IB_WR_SEND_WITH_IMM:
	case IB_WR_RDMA_WRITE_WITH_IMM:
		return be32_to_cpu(wr->ex.imm_data);
	case IB_WR_SEND_WITH_INV:
	case IB_WR_LOCAL_INV:
		return wr->ex.invalidate_rkey;
	default:
		return 0;
	}
}

static bool mana_ib_has_data(enum ib_wr_opcode opcode)
{
	return opcode != IB_WR_LOCAL_INV && opcode != IB_WR_REG_MR;
}

static u8 mana_ib_wr_flags(const struct mana_ib_qp *qp,
			   const struct ib_send_wr *wr)
{
	u8 flags = 0;

	if (qp->signal_all || wr->send_flags & IB_SEND_SIGNALED)
		flags |= MANA_HW_EXT_WQE_SIGNALED;
	if (wr->send_flags & IB_SEND_SOLICITED)
		flags |= MANA_HW_EXT_WQE_SOLICITED;
	if (wr->send_flags & IB_SEND_FENCE)
		flags |= MANA_HW_EXT_WQE_FENCE;
	return flags;
}

/**
 * mana_ib_post_send_ext - writes one send in the extension's format
 * @qp: QP; the lock of its send queue is held
 * @wr: send
 */
int mana_ib_post_send_ext(struct mana_ib_qp *qp, const struct ib_send_wr *wr)
{
	bool datagram = qp->ibqp.qp_type == IB_QPT_UD ||
			qp->ibqp.qp_type == IB_QPT_GSI;
	const struct mana_ib_kind *kind;
	struct mana_hw_ext_control control = {};
	struct mana_ib_ring *ring = &qp->work.sq;
	struct mana_ib_writer writer;
	u32 bytes, units, used;
	int sges;

	if (wr->opcode >= ARRAY_SIZE(mana_ib_kinds) ||
	    !mana_ib_kinds[wr->opcode].known ||
	    wr->send_flags & IB_SEND_INLINE)
		return -EOPNOTSUPP;
	kind = &mana_ib_kinds[wr->opcode];
	if (datagram && wr->opcode != IB_WR_SEND &&
	    wr->opcode != IB_WR_SEND_WITH_IMM)
		return -EINVAL;
	sges = mana_ib_has_data(wr->opcode) ? wr->num_sge : 0;
	if (sges > (int)qp->attr.cap.max_send_sge)
		return -EINVAL;

	bytes = sizeof(control) + mana_ib_segment_bytes(wr->opcode, datagram) +
		sges * sizeof(struct mana_hw_sge);
	units = DIV_ROUND_UP(bytes, MANA_HW_EXT_WQE_UNIT);
	used = ring->producer - READ_ONCE(ring->consumer);
	if (used + units > ring->bytes / MANA_HW_EXT_WQE_UNIT)
		return -ENOMEM;

	control.opcode = kind->opcode;
	control.flags = mana_ib_wr_flags(qp, wr);
	control.size = bytes / 16;
	control.value = mana_ib_wr_value(wr);
	writer.ring = ring;
	writer.position = ring->producer * MANA_HW_EXT_WQE_UNIT;
	mana_ib_write(&writer, &control, sizeof(control));
	if (datagram)
		mana_ib_write_ud(&writer, qp, ud_wr(wr));
	else if (wr->opcode == IB_WR_REG_MR)
		mana_ib_write_register(&writer, reg_wr(wr));
	else if (wr->opcode == IB_WR_ATOMIC_CMP_AND_SWP ||
		 wr->opcode == IB_WR_ATOMIC_FETCH_AND_ADD)
		mana_ib_write_atomic(&writer, atomic_wr(wr));
	else if (kind->remote)
		mana_ib_write_remote(&writer, rdma_wr(wr)->remote_addr,
				     rdma_wr(wr)->rkey);
	mana_ib_write_sges(&writer, wr->sg_list, sges);

	mana_ib_ring_push(ring, wr->wr_id, kind->completion,
			  control.flags & MANA_HW_EXT_WQE_SIGNALED, units);
	return 0;
}

/**
 * mana_ib_post_recv_ext - writes one receive in the extension's format
 * @qp: QP; the lock of its receive queue is held
 * @wr: receive
 */
int mana_ib_post_recv_ext(struct mana_ib_qp *qp, const struct ib_recv_wr *wr)
{
	struct mana_ib_ring *ring = &qp->work.rq;
	struct mana_hw_ext_receive receive = {};
	struct mana_ib_writer writer;

	if (wr->num_sge > (int)qp->attr.cap.max_recv_sge)
		return -EINVAL;
	receive.sge_count = wr->num_sge;
	receive.cookie = ring->producer;
	writer.ring = ring;
	writer.position = ring->producer * qp->ext.receive_stride;
	mana_ib_write(&writer, &receive, sizeof(receive));
	mana_ib_write_sges(&writer, wr->sg_list, wr->num_sge);
	mana_ib_ring_push(ring, wr->wr_id, IB_WC_RECV, true, 1);
	return 0;
}

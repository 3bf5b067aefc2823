// SPDX-License-Identifier: GPL-2.0
/* Completions of the kernel's queues. */
#include "post.h"
#include "srq.h"
#include "trace.h"

/* Taken at once: they are on the stack meanwhile. */
#define MANA_IB_CQ_BATCH 8

static struct mana_hw_cqe *mana_ib_cq_entry(struct mana_ib_cq *cq, u32 index)
{
	struct mana_hw_cqe *ring = cq->buffer.cpu;

	return &ring[index & (cq->entries - 1)];
}

/* The owner bits tell the pass in which an entry was written (GDMA 3.7). */
static bool mana_ib_entry_valid(struct mana_ib_cq *cq, u32 index)
{
	u32 pass = (index / cq->entries) & MANA_HW_OWNER_MASK;

	return READ_ONCE(mana_ib_cq_entry(cq, index)->word) >>
		       MANA_HW_OWNER_SHIFT ==
	       pass;
}

/**
 * mana_ib_ring_cq - rings the doorbell of a CQ in the public format
 * @dev: device
 * @cq: CQ of the kernel, its lock held
 * @arm: asks for an event too
 */
void mana_ib_ring_cq(struct mana_ib_dev *dev, struct mana_ib_cq *cq, bool arm)
{
	/* 8 passes of the ring are told apart. */
	u32 index = cq->consumer & (8 * cq->entries - 1);

	cq->rung = cq->consumer;
	mana_ib_ring_doorbell(dev, MANA_HW_DB_CQ,
			      mana_hw_entry_doorbell(cq->id, index, arm));
}

static u32 mana_ib_ring_head(const struct mana_ib_ring *ring)
{
	/* Pairs with the store of those who post: the requests are written. */
	return smp_load_acquire(&ring->head);
}

static bool mana_ib_ring_empty(const struct mana_ib_ring *ring)
{
	return mana_ib_ring_head(ring) == ring->tail;
}

/* Retires the oldest request of a ring. */
static void mana_ib_retire(struct mana_ib_ring *ring,
			   const struct mana_ib_request *request)
{
	WRITE_ONCE(ring->consumer, request->end);
	/* Whoever posts next may overwrite the request. */
	smp_store_release(&ring->tail, ring->tail + 1);
}

static bool mana_ib_complete_receive(struct mana_ib_ring *ring,
				     struct ib_wc *wc)
{
	struct mana_ib_request *request;

	if (mana_ib_ring_empty(ring))
		return false;
	request = mana_ib_ring_request(ring, ring->tail);
	wc->wr_id = request->wr_id;
	mana_ib_retire(ring, request);
	return true;
}

/*
 * A send completion finishes the sends before it too. False if nobody waits for
 * it, or if no such request is outstanding.
 */
static bool mana_ib_complete_send(struct mana_ib_ring *ring, u32 start,
				  struct ib_wc *wc)
{
	u32 head = mana_ib_ring_head(ring);
	struct mana_ib_request *request;
	u32 found;

	for (found = ring->tail; found != head; found++)
		if (mana_ib_ring_request(ring, found)->start == start)
			break;
	if (found == head)
		return false;
	while (ring->tail != found)
		mana_ib_retire(ring, mana_ib_ring_request(ring, ring->tail));
	request = mana_ib_ring_request(ring, found);
	wc->wr_id = request->wr_id;
	wc->opcode = request->opcode;
	found = request->signaled;
	mana_ib_retire(ring, request);
	return found || wc->status != IB_WC_SUCCESS;
}

static void mana_ib_ext_datagram(const struct mana_hw_ext_cqe *cqe,
				 struct ib_wc *wc)
{
	wc->src_qp = cqe->source_qpn;
	if (!(cqe->flags & MANA_HW_EXT_CQE_GRH))
		return;
	wc->wc_flags |= IB_WC_GRH | IB_WC_WITH_NETWORK_HDR_TYPE |
			IB_WC_WITH_SMAC;
	wc->network_hdr_type = cqe->flags & MANA_HW_EXT_CQE_IPV4 ?
				       RDMA_NETWORK_IPV4 :
				       RDMA_NETWORK_IPV6;
	memcpy(wc->smac, cqe->source_mac, ETH_ALEN);
	if (!(cqe->vlan & MANA_HW_EXT_VLAN_ID))
		return;
	wc->wc_flags |= IB_WC_WITH_VLAN;
	wc->vlan_id = cqe->vlan & MANA_HW_EXT_VLAN_ID;
	wc->sl = cqe->vlan >> MANA_HW_EXT_VLAN_PRIORITY_SHIFT;
}

static bool mana_ib_ext_receive(struct mana_ib_qp *qp,
				const struct mana_hw_ext_cqe *cqe,
				struct ib_wc *wc)
{
	if (qp->ibqp.srq) {
		if (!mana_ib_complete_srq(to_mana_srq(qp->ibqp.srq),
					  cqe->cookie, &wc->wr_id))
			return false;
	} else if (!mana_ib_complete_receive(&qp->work.rq, wc)) {
		return false;
	}
	wc->opcode = cqe->opcode == MANA_HW_EXT_WC_RECV_WRITE_IMM ?
			     IB_WC_RECV_RDMA_WITH_IMM :
			     IB_WC_RECV;
	if (cqe->flags & MANA_HW_EXT_CQE_IMMEDIATE) {
		wc->wc_flags |= IB_WC_WITH_IMM;
		wc->ex.imm_data = cpu_to_be32(cqe->value);
	} else if (cqe->flags & MANA_HW_EXT_CQE_INVALIDATED) {
		wc->wc_flags |= IB_WC_WITH_INVALIDATE;
		wc->ex.invalidate_rkey = cqe->value;
	}
	mana_ib_ext_datagram(cqe, wc);
	return true;
}

/* The device and the core count the same way. */
static enum ib_wc_status mana_ib_wc_status(u8 status)
{
#define MANA_IB_SAME_STATUS(name) \
	BUILD_BUG_ON(MANA_HW_WC_##name != (int)IB_WC_##name)

	MANA_IB_SAME_STATUS(SUCCESS);
	MANA_IB_SAME_STATUS(LOC_LEN_ERR);
	MANA_IB_SAME_STATUS(LOC_QP_OP_ERR);
	MANA_IB_SAME_STATUS(LOC_PROT_ERR);
	MANA_IB_SAME_STATUS(WR_FLUSH_ERR);
	MANA_IB_SAME_STATUS(MW_BIND_ERR);
	MANA_IB_SAME_STATUS(BAD_RESP_ERR);
	MANA_IB_SAME_STATUS(LOC_ACCESS_ERR);
	MANA_IB_SAME_STATUS(REM_INV_REQ_ERR);
	MANA_IB_SAME_STATUS(REM_ACCESS_ERR);
	MANA_IB_SAME_STATUS(REM_OP_ERR);
	MANA_IB_SAME_STATUS(RETRY_EXC_ERR);
	MANA_IB_SAME_STATUS(RNR_RETRY_EXC_ERR);
	MANA_IB_SAME_STATUS(REM_ABORT_ERR);
	MANA_IB_SAME_STATUS(FATAL_ERR);
	MANA_IB_SAME_STATUS(GENERAL_ERR);
	return (enum ib_wc_status)status;

#undef MANA_IB_SAME_STATUS
}

static bool mana_ib_ext_completion(struct mana_ib_dev *dev,
				   const struct mana_hw_cqe *entry,
				   struct ib_wc *wc)
{
	const struct mana_hw_ext_cqe *cqe = (const void *)entry->data;
	struct mana_ib_qp *qp;

	qp = mana_ib_find_qp(&dev->qps, entry->word & MANA_HW_CQE_QUEUE_ID);
	if (!qp || !qp->kernel)
		return false;
	wc->qp = &qp->ibqp;
	wc->port_num = READ_ONCE(qp->attr.port_num);
	wc->status = mana_ib_wc_status(cqe->status);
	wc->vendor_err = cqe->vendor_error;
	wc->byte_len = cqe->length;
	if (entry->word & MANA_HW_CQE_IS_SQ)
		return mana_ib_complete_send(&qp->work.sq, cqe->cookie, wc);
	return mana_ib_ext_receive(qp, cqe, wc);
}

/* Each UD send has its completion, signaled or not, in order (RNIC 7.4). */
static bool mana_ib_stock_send(struct mana_ib_dev *dev, u32 sq_id,
			       struct ib_wc *wc)
{
	struct mana_ib_qp *qp = mana_ib_find_qp(&dev->sqs, sq_id);
	struct mana_ib_ring *ring;

	if (!qp)
		return false;
	ring = &qp->work.sq;
	if (mana_ib_ring_empty(ring))
		return false;
	wc->qp = &qp->ibqp;
	wc->port_num = READ_ONCE(qp->attr.port_num);
	return mana_ib_complete_send(ring,
				     mana_ib_ring_request(ring, ring->tail)
					     ->start,
				     wc);
}

static bool mana_ib_stock_receive(struct mana_ib_dev *dev,
				  const struct mana_hw_cqe *entry,
				  struct ib_wc *wc)
{
	const struct mana_hw_rnic_ud_recv_cqe *cqe = (const void *)entry->data;
	struct mana_ib_qp *qp;

	qp = mana_ib_find_qp(&dev->qps, entry->word & MANA_HW_CQE_QUEUE_ID);
	if (!qp || !qp->kernel || qp->format != MANA_IB_QP_STOCK_UD ||
	    !mana_ib_complete_receive(&qp->work.rq, wc))
		return false;
	wc->qp = &qp->ibqp;
	wc->port_num = READ_ONCE(qp->attr.port_num);
	wc->opcode = IB_WC_RECV;
	wc->byte_len = cqe->length;
	wc->src_qp = cqe->source_qpn & MANA_HW_RNIC_24BIT;
	wc->wc_flags = IB_WC_GRH;
	if ((cqe->type & MANA_HW_RNIC_CQE_TYPE) == MANA_HW_RNIC_CQE_UD_IMM) {
		wc->wc_flags |= IB_WC_WITH_IMM;
		wc->ex.imm_data = cpu_to_be32(cqe->immediate);
	}
	return true;
}

/* False if the entry is nobody's: its QP is gone, or it was a silent send's. */
static bool mana_ib_completion_of(struct mana_ib_dev *dev,
				  const struct mana_hw_cqe *entry,
				  struct ib_wc *wc)
{
	u32 queue;

	memset(wc, 0, sizeof(*wc));
	switch (entry->data[0]) {
	case MANA_HW_EXT_CQE:
		return mana_ib_ext_completion(dev, entry, wc);
	case MANA_HW_RNIC_CQE_UD:
	case MANA_HW_RNIC_CQE_UD_IMM:
		if (!(entry->word & MANA_HW_CQE_IS_SQ))
			return mana_ib_stock_receive(dev, entry, wc);
		queue = entry->word & MANA_HW_CQE_QUEUE_ID;
		return mana_ib_stock_send(dev, queue, wc);
	default:
		return false;
	}
}

/* Requests that no device will complete. */
static int mana_ib_poll_flush(struct mana_ib_cq *cq, int count,
			      struct ib_wc *wc)
{
	struct mana_ib_flush *flush;
	struct mana_ib_request *request;
	struct mana_ib_ring *ring;
	int done = 0;

	list_for_each_entry(flush, &cq->flushing, entry) {
		ring = flush->send ? &flush->qp->work.sq : &flush->qp->work.rq;
		while (done < count && !mana_ib_ring_empty(ring)) {
			request = mana_ib_ring_request(ring, ring->tail);
			memset(&wc[done], 0, sizeof(*wc));
			wc[done].wr_id = request->wr_id;
			wc[done].opcode = request->opcode;
			wc[done].status = IB_WC_WR_FLUSH_ERR;
			wc[done].qp = &flush->qp->ibqp;
			wc[done].port_num =
				READ_ONCE(flush->qp->attr.port_num);
			mana_ib_retire(ring, request);
			done++;
		}
	}
	return done;
}

/* Tells the device what was taken. */
static void mana_ib_give_back(struct mana_ib_dev *dev, struct mana_ib_cq *cq)
{
	if (cq->extended) {
		/* The entries are read before they are given back. */
		mb();
		WRITE_ONCE(cq->record->consumer, cq->consumer);
		/*
		 * The record comes before the room for others. Pairs with the
		 * barrier of those who post, before they tell the device.
		 */
		dma_wmb();
	} else if (cq->consumer - cq->rung >= 4 * cq->entries) {
		/* Hardware wants a doorbell in 8 passes (RNIC 4.3). */
		mana_ib_ring_cq(dev, cq, false);
	}
}

/*
 * Copies entries, which are the device's again on return: once a request is
 * retired another may be posted in its place, and its completion may come at
 * once, to a ring that is no bigger than the requests are many.
 */
static int mana_ib_take_entries(struct mana_ib_dev *dev, struct mana_ib_cq *cq,
				int count, struct mana_hw_cqe *entries)
{
	int taken = 0;

	count = min(count, MANA_IB_CQ_BATCH);
	while (taken < count && mana_ib_entry_valid(cq, cq->consumer)) {
		/* The rest of the entry is read after its owner bits. */
		dma_rmb();
		entries[taken] = *mana_ib_cq_entry(cq, cq->consumer);
		trace_cqe(dev, cq->id, cq->consumer,
			  entries[taken].word & MANA_HW_CQE_QUEUE_ID,
			  entries[taken].word & MANA_HW_CQE_IS_SQ);
		cq->consumer++;
		taken++;
	}
	if (taken)
		mana_ib_give_back(dev, cq);
	return taken;
}

int mana_ib_poll_cq(struct ib_cq *ibcq, int count, struct ib_wc *wc)
{
	struct mana_hw_cqe entries[MANA_IB_CQ_BATCH];
	struct mana_ib_dev *dev = to_mana_dev(ibcq->device);
	struct mana_ib_cq *cq = to_mana_cq(ibcq);
	unsigned long flags;
	int taken, i;
	int done = 0;

	spin_lock_irqsave(&cq->lock, flags);
	do {
		taken = mana_ib_take_entries(dev, cq, count - done, entries);
		for (i = 0; i < taken; i++)
			if (mana_ib_completion_of(dev, &entries[i], &wc[done]))
				done++;
	} while (taken);
	if (done < count && !list_empty(&cq->flushing))
		done += mana_ib_poll_flush(cq, count - done, wc + done);
	spin_unlock_irqrestore(&cq->lock, flags);
	return done;
}

/**
 * mana_ib_cq_has_completion - whether a poll would find something
 * @cq: CQ of the kernel, its lock held
 */
bool mana_ib_cq_has_completion(struct mana_ib_cq *cq)
{
	struct mana_ib_flush *flush;

	if (mana_ib_entry_valid(cq, cq->consumer))
		return true;
	list_for_each_entry(flush, &cq->flushing, entry)
		if (mana_ib_ring_outstanding(flush->send ? &flush->qp->work.sq :
							   &flush->qp->work.rq))
			return true;
	return false;
}

static bool mana_ib_entry_of(const struct mana_hw_cqe *entry,
			     const struct mana_ib_qp *qp)
{
	bool extended = qp->format == MANA_IB_QP_EXTENDED;
	u32 id = entry->word & MANA_HW_CQE_QUEUE_ID;
	bool entry_extended = entry->data[0] == MANA_HW_EXT_CQE;

	/* Ids of the two formats are not of one kind. */
	if (entry_extended != extended)
		return false;
	if (qp->format == MANA_IB_QP_STOCK_UD &&
	    entry->word & MANA_HW_CQE_IS_SQ)
		return id == qp->sq_id;
	return id == qp->ibqp.qp_num;
}

/**
 * mana_ib_forget_entries - makes a CQ forget a QP that ends
 * @cq: CQ of the kernel
 * @qp: not known to the device any more
 *
 * A later QP may get the same number, so entries that nobody has polled are
 * made void. Receives of an SRQ go back to it. On return nobody who polls
 * holds the QP.
 */
void mana_ib_forget_entries(struct mana_ib_cq *cq, struct mana_ib_qp *qp)
{
	const struct mana_hw_ext_cqe *cqe;
	struct mana_hw_cqe *entry;
	unsigned long flags;
	u32 index;
	u64 wr_id;

	if (!cq->kernel)
		return;
	spin_lock_irqsave(&cq->lock, flags);
	for (index = cq->consumer; mana_ib_entry_valid(cq, index); index++) {
		/* The rest of the entry is read after its owner bits. */
		dma_rmb();
		entry = mana_ib_cq_entry(cq, index);
		if (!entry->data[0] || !mana_ib_entry_of(entry, qp))
			continue;
		cqe = (const void *)entry->data;
		if (qp->ibqp.srq && cqe->type == MANA_HW_EXT_CQE &&
		    !(entry->word & MANA_HW_CQE_IS_SQ))
			mana_ib_complete_srq(to_mana_srq(qp->ibqp.srq),
					     cqe->cookie, &wr_id);
		entry->data[0] = 0;
	}
	spin_unlock_irqrestore(&cq->lock, flags);
}

/**
 * mana_ib_wake_flush - an event for completions that software makes
 * @cq: CQ of the kernel
 */
void mana_ib_wake_flush(struct mana_ib_cq *cq)
{
	if (!xchg(&cq->armed, false))
		return;
	if (cq->ibcq.comp_handler)
		cq->ibcq.comp_handler(&cq->ibcq, cq->ibcq.cq_context);
}

static void mana_ib_list_flush(struct mana_ib_cq *cq,
			       struct mana_ib_flush *flush)
{
	unsigned long flags;

	spin_lock_irqsave(&cq->lock, flags);
	if (list_empty(&flush->entry))
		list_add_tail(&flush->entry, &cq->flushing);
	spin_unlock_irqrestore(&cq->lock, flags);
	mana_ib_wake_flush(cq);
}

static void mana_ib_unlist_flush(struct mana_ib_cq *cq,
				 struct mana_ib_flush *flush)
{
	unsigned long flags;

	spin_lock_irqsave(&cq->lock, flags);
	list_del_init(&flush->entry);
	spin_unlock_irqrestore(&cq->lock, flags);
}

/**
 * mana_ib_start_flush - from now on software completes what is posted and what was
 * @qp: QP of the kernel
 */
void mana_ib_start_flush(struct mana_ib_qp *qp)
{
	WRITE_ONCE(qp->work.flush, true);
	mana_ib_list_flush(to_mana_cq(qp->ibqp.send_cq), &qp->work.send_flush);
	if (!qp->ibqp.srq)
		mana_ib_list_flush(to_mana_cq(qp->ibqp.recv_cq),
				   &qp->work.recv_flush);
}

/**
 * mana_ib_stop_flush - undoes mana_ib_start_flush()
 * @qp: QP of the kernel
 */
void mana_ib_stop_flush(struct mana_ib_qp *qp)
{
	mana_ib_unlist_flush(to_mana_cq(qp->ibqp.send_cq), &qp->work.send_flush);
	mana_ib_unlist_flush(to_mana_cq(qp->ibqp.recv_cq), &qp->work.recv_flush);
	WRITE_ONCE(qp->work.flush, false);
}

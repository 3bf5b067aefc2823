// SPDX-License-Identifier: GPL-2.0
/* What the making and the end of QPs of all formats have in common. */
#include "pd.h"
#include "qp.h"
#include "srq.h"

/**
 * mana_ib_fill_qp_params - what the device needs for a QP of whatever format
 * @qp: QP
 * @attr: of the core
 * @doorbell_page: that it is rung from
 * @params: answer; refers to @attr
 */
void mana_ib_fill_qp_params(const struct mana_ib_qp *qp,
			    const struct ib_qp_init_attr *attr,
			    u32 doorbell_page,
			    struct mana_ib_qp_params *params)
{
	*params = (struct mana_ib_qp_params){
		.pd = to_mana_pd(qp->ibqp.pd)->handle,
		.send_cq = to_mana_cq(attr->send_cq)->handle,
		.recv_cq = to_mana_cq(attr->recv_cq)->handle,
		.srq = attr->srq ? to_mana_srq(attr->srq)->handle : 0,
		.type = attr->qp_type,
		.doorbell_page = doorbell_page,
		.cap = &attr->cap,
	};
}

/**
 * mana_ib_qp_made - takes over what the device calls a QP
 * @qp: QP
 * @result: of the device
 */
void mana_ib_qp_made(struct mana_ib_qp *qp,
		     const struct mana_ib_qp_result *result)
{
	qp->handle = result->handle;
	qp->sq_id = result->sq_id;
	qp->ibqp.qp_num = result->qpn;
}

static void mana_ib_forget_umem(struct mana_ib_dev *dev, struct ib_umem **umem)
{
	mana_ib_release_umem(dev, *umem);
	*umem = NULL;
}

/**
 * mana_ib_free_queues - gives the memory of the queues back
 * @dev: device, which does not use it any more
 * @qp: RDMA QP of whatever format
 */
void mana_ib_free_queues(struct mana_ib_dev *dev, struct mana_ib_qp *qp)
{
	unsigned int i;

	switch (qp->format) {
	case MANA_IB_QP_STOCK_RC:
		for (i = 0; i < ARRAY_SIZE(qp->rc.umems); i++)
			mana_ib_forget_umem(dev, &qp->rc.umems[i]);
		mana_ib_forget_umem(dev, &qp->rc.mm_umem);
		break;
	case MANA_IB_QP_STOCK_UD:
		mana_ib_forget_umem(dev, &qp->ud.sq_umem);
		mana_ib_forget_umem(dev, &qp->ud.rq_umem);
		mana_ib_free_buffer(dev, &qp->ud.sq_buffer);
		mana_ib_free_buffer(dev, &qp->ud.rq_buffer);
		break;
	case MANA_IB_QP_EXTENDED:
		mana_ib_forget_umem(dev, &qp->ext.umem);
		mana_ib_free_buffer(dev, &qp->ext.buffer);
		break;
	default:
		return;
	}
	mana_ib_ring_free(&qp->work.sq);
	mana_ib_ring_free(&qp->work.rq);
}

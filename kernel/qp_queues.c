// SPDX-License-Identifier: GPL-2.0
/* What the making and the end of QPs of all formats have in common. */
#include "pd.h"
#include "qp.h"
#include "srq.h"

/* What the device needs for a QP of whatever format. */
void mana_ib_qp_params(const struct mana_ib_qp *qp,
		       const struct ib_qp_init_attr *attr, u32 doorbell_page,
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

/* What the device made. */
void mana_ib_qp_made(struct mana_ib_qp *qp,
		     const struct mana_ib_qp_result *result)
{
	qp->handle = result->handle;
	qp->sq_id = result->sq_id;
	qp->ibqp.qp_num = result->qpn;
}

/* Memory of the queues; the device does not use it any more. */
void mana_ib_free_queues(struct mana_ib_dev *dev, struct mana_ib_qp *qp)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(qp->umems); i++) {
		mana_ib_release_umem(dev, qp->umems[i]);
		qp->umems[i] = NULL;
	}
	mana_ib_free_buffer(dev, &qp->buffer);
	mana_ib_free_buffer(dev, &qp->rq_buffer);
	mana_ib_ring_free(&qp->sq);
	mana_ib_ring_free(&qp->rq);
}

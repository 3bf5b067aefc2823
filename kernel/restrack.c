// SPDX-License-Identifier: GPL-2.0
/* What `rdma resource show -dd` tells of our objects. */
#include "mr.h"
#include "qp.h"
#include "srq.h"
#include "stats.h"

#include <rdma/restrack.h>
#include <uapi/rdma/rdma_netlink.h>

struct mana_ib_detail {
	const char *name;
	u32 value;
};

static int mana_ib_fill(struct sk_buff *msg,
			const struct mana_ib_detail *details,
			unsigned int count)
{
	struct nlattr *table;
	unsigned int i;

	table = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
	if (!table)
		return -EMSGSIZE;
	for (i = 0; i < count; i++)
		if (rdma_nl_put_driver_u32(msg, details[i].name,
					   details[i].value))
			goto err_cancel;
	nla_nest_end(msg, table);
	return 0;

err_cancel:
	nla_nest_cancel(msg, table);
	return -EMSGSIZE;
}

int mana_ib_fill_qp(struct sk_buff *msg, struct ib_qp *ibqp)
{
	const struct mana_ib_qp *qp = to_mana_qp(ibqp);
	const struct mana_ib_detail details[] = {
		{ "format", qp->format },
		{ "sq_id", qp->sq_id },
		{ "max_send_wr", qp->attr.cap.max_send_wr },
		{ "max_recv_wr", qp->attr.cap.max_recv_wr },
	};

	return mana_ib_fill(msg, details, ARRAY_SIZE(details));
}

int mana_ib_fill_cq(struct sk_buff *msg, struct ib_cq *ibcq)
{
	const struct mana_ib_cq *cq = to_mana_cq(ibcq);
	const struct mana_ib_detail details[] = {
		{ "cq_id", READ_ONCE(cq->id) },
		{ "extended", cq->extended },
		{ "vector", cq->vector },
	};

	return mana_ib_fill(msg, details, ARRAY_SIZE(details));
}

int mana_ib_fill_mr(struct sk_buff *msg, struct ib_mr *ibmr)
{
	const struct mana_ib_mr *mr = to_mana_mr(ibmr);
	const struct mana_ib_detail details[] = {
		{ "access", READ_ONCE(mr->access) },
		{ "max_pages", mr->max_pages },
	};

	return mana_ib_fill(msg, details, ARRAY_SIZE(details));
}

int mana_ib_fill_srq(struct sk_buff *msg, struct ib_srq *ibsrq)
{
	const struct mana_ib_srq *srq = to_mana_srq(ibsrq);
	const struct mana_ib_detail details[] = {
		{ "srq_id", srq->id },
		{ "max_wr", srq->max_wr },
		{ "stride", srq->stride },
	};

	return mana_ib_fill(msg, details, ARRAY_SIZE(details));
}

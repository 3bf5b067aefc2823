// SPDX-License-Identifier: GPL-2.0
/* Completion events of CQs, by way of the parent's table. */
#include "cq.h"
#include "parent.h"

/* Hard interrupt context. */
static void mana_ib_completion(void *context)
{
	struct mana_ib_cq *cq = context;

	if (cq->kernel)
		WRITE_ONCE(cq->armed, false);
	if (cq->ibcq.comp_handler)
		cq->ibcq.comp_handler(&cq->ibcq, cq->ibcq.cq_context);
}

/**
 * mana_ib_hook_cq - completion events of a CQ reach it from now on
 * @dev: device
 * @cq: CQ with its id; the table of the parent is that of Ethernet too
 */
int mana_ib_hook_cq(struct mana_ib_dev *dev, struct mana_ib_cq *cq)
{
	int err;

	err = mana_ib_parent_hook_cq(dev, cq->id, mana_ib_completion, cq,
				     &cq->hook);
	if (err == -EPROTO)
		ibdev_err_ratelimited(&dev->ibdev, "cq[%u]: impossible id\n",
				      cq->id);
	return err;
}

/**
 * mana_ib_mute_cq - on return nobody is told of completions any more
 * @cq: CQ, hooked or not
 */
void mana_ib_mute_cq(struct mana_ib_cq *cq)
{
	if (cq->hook)
		mana_ib_parent_mute_cq(cq->hook);
}

/**
 * mana_ib_unhook_cq - takes a CQ out of the table that the device has no more
 * @dev: device
 * @cq: it was muted before
 *
 * The parent warns of events of a CQ that is not in the table.
 */
void mana_ib_unhook_cq(struct mana_ib_dev *dev, struct mana_ib_cq *cq)
{
	if (!cq->hook)
		return;
	mana_ib_parent_unhook_cq(dev, cq->hook);
	cq->hook = NULL;
}

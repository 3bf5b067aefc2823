// SPDX-License-Identifier: GPL-2.0
/* The end of the kernel's QPs when the device is given up. */
#include "cmd.h"
#include "post.h"
#include "trace.h"

/**
 * mana_ib_end_by_software - completes what a device does not that is gone
 * @qp: QP of the kernel in ERR, its mutex held
 *
 * Who drains a QP with an SRQ waits for the event, for a minute if need be.
 */
void mana_ib_end_by_software(struct mana_ib_qp *qp)
{
	struct ib_event event = { .device = qp->ibqp.device,
				  .element.qp = &qp->ibqp,
				  .event = IB_EVENT_QP_LAST_WQE_REACHED };
	bool ended = qp->work.flush;

	/* Who is told of the end takes the buffers back. */
	mana_ib_cmd_stop_qp(to_mana_dev(qp->ibqp.device), qp->handle);
	mana_ib_start_flush(qp);
	if (!ended && qp->ibqp.srq && qp->ibqp.event_handler)
		qp->ibqp.event_handler(&event, qp->ibqp.qp_context);
}

/* A QP of the kernel goes to ERR with its device; one in RESET stays there. */
static void mana_ib_end_qp(struct mana_ib_qp *qp)
{
	mutex_lock(&qp->mutex);
	if (qp->state != IB_QPS_RESET) {
		trace_qp_state(to_mana_dev(qp->ibqp.device), qp->ibqp.qp_num,
			       qp->state, IB_QPS_ERR, 0);
		WRITE_ONCE(qp->state, IB_QPS_ERR);
		mana_ib_end_by_software(qp);
	}
	mutex_unlock(&qp->mutex);
}

/**
 * mana_ib_end_qps - ends the kernel's QPs: the device completes nothing any more
 * @work: lost_work of a device that was given up
 */
void mana_ib_end_qps(struct work_struct *work)
{
	struct mana_ib_dev *dev =
		container_of(work, struct mana_ib_dev, lost_work);
	struct mana_ib_event_target *target;
	struct mana_ib_qp *qp;
	unsigned long id;

	/* Each may go meanwhile: it is used with a reference alone. */
	xa_for_each(&dev->qps, id, target) {
		target = mana_ib_target_get(&dev->qps, id);
		if (!target)
			continue;
		qp = mana_ib_target_qp(target);
		if (qp->kernel)
			mana_ib_end_qp(qp);
		mana_ib_target_put(target);
	}
}

// SPDX-License-Identifier: GPL-2.0
/* Event queues: completion events of CQs, asynchronous events of QPs, CQs, SRQs. */
#include "cmd.h"

void mana_ib_target_init(struct mana_ib_event_target *target)
{
	refcount_set(&target->references, 1);
	init_completion(&target->released);
}

static void mana_ib_target_put(struct mana_ib_event_target *target)
{
	if (refcount_dec_and_test(&target->references))
		complete(&target->released);
}

/* The owner's reference; on return no event handler uses the object. */
void mana_ib_target_release(struct mana_ib_event_target *target)
{
	mana_ib_target_put(target);
	wait_for_completion(&target->released);
}

/**
 * mana_ib_track - makes an object known to event handlers and pollers
 * @table: of its kind
 * @id: that the device gave it
 * @object: it
 */
int mana_ib_track(struct xarray *table, u32 id, void *object)
{
	return xa_insert_irq(table, id, object, GFP_KERNEL);
}

void mana_ib_untrack(struct xarray *table, u32 id)
{
	xa_erase_irq(table, id);
}

/* Takes a reference for an event handler. */
#define mana_ib_event_get(table, id, type)                                     \
	({                                                                     \
		struct xarray *_table = (table);                               \
		unsigned long _flags;                                          \
		type *_object;                                                 \
									       \
		xa_lock_irqsave(_table, _flags);                               \
		_object = xa_load(_table, id);                                 \
		if (_object)                                                   \
			refcount_inc(&_object->target.references);             \
		xa_unlock_irqrestore(_table, _flags);                          \
		_object;                                                       \
	})

static void mana_ib_qp_event(struct mana_ib_dev *dev, u32 id,
			     enum ib_event_type type)
{
	struct mana_ib_qp *qp;
	struct ib_event event;

	qp = mana_ib_event_get(&dev->qps, id, struct mana_ib_qp);
	if (!qp)
		return;
	/* An extended QP is asked for its state when that matters. */
	if (type == IB_EVENT_QP_FATAL && qp->format == MANA_IB_QP_STOCK_RC)
		WRITE_ONCE(qp->state, IB_QPS_ERR);
	if (type == IB_EVENT_SQ_DRAINED &&
	    !READ_ONCE(qp->attr.en_sqd_async_notify))
		goto out;
	if (qp->ibqp.event_handler) {
		event.device = &dev->ibdev;
		event.element.qp = &qp->ibqp;
		event.event = type;
		qp->ibqp.event_handler(&event, qp->ibqp.qp_context);
	}
out:
	mana_ib_target_put(&qp->target);
}

/* The device was given up, and completes nothing of the kernel's QPs any more. */
void mana_ib_end_qps(struct work_struct *work)
{
	struct mana_ib_dev *dev =
		container_of(work, struct mana_ib_dev, lost_work);
	struct mana_ib_qp *qp;
	unsigned long id;

	/* Each may go meanwhile: it is used with a reference alone. */
	xa_for_each(&dev->qps, id, qp) {
		qp = mana_ib_event_get(&dev->qps, id, struct mana_ib_qp);
		if (!qp)
			continue;
		if (qp->kernel)
			mana_ib_end_qp(qp);
		mana_ib_target_put(&qp->target);
	}
}

static void mana_ib_srq_event(struct mana_ib_dev *dev, u32 id,
			      enum ib_event_type type)
{
	struct mana_ib_srq *srq;
	struct ib_event event;

	srq = mana_ib_event_get(&dev->srqs, id, struct mana_ib_srq);
	if (!srq)
		return;
	if (srq->ibsrq.event_handler) {
		event.device = &dev->ibdev;
		event.element.srq = &srq->ibsrq;
		event.event = type;
		srq->ibsrq.event_handler(&event, srq->ibsrq.srq_context);
	}
	mana_ib_target_put(&srq->target);
}

static void mana_ib_cq_event(struct mana_ib_dev *dev, u32 id,
			     enum ib_event_type type)
{
	struct mana_ib_cq *cq;
	struct ib_event event;

	cq = mana_ib_event_get(&dev->cqs, id, struct mana_ib_cq);
	if (!cq)
		return;
	if (cq->ibcq.event_handler) {
		event.device = &dev->ibdev;
		event.element.cq = &cq->ibcq;
		event.event = type;
		cq->ibcq.event_handler(&event, cq->ibcq.cq_context);
	}
	mana_ib_target_put(&cq->target);
}

/*
 * Asynchronous events, in hard interrupt context. The parent hands on the type
 * QP-fatal alone, so the extension's events hide behind it (ext.h).
 */
static void mana_ib_event(void *context, struct gdma_queue *eq,
			  struct gdma_event *event)
{
	struct mana_ib_dev *dev = context;
	u32 id = event->details[0];
	u32 type = MANA_HW_EXT_EVENT_QP_FATAL;

	if (event->type != MANA_HW_EQE_QP_FATAL)
		return;
	if (dev->ext.features && event->details[1] & MANA_HW_EXT_EVENT_MARK)
		type = event->details[1] & ~MANA_HW_EXT_EVENT_MARK;

	switch (type) {
	case MANA_HW_EXT_EVENT_QP_FATAL:
	case MANA_HW_EXT_EVENT_QP_REQUEST_ERROR:
	case MANA_HW_EXT_EVENT_QP_ACCESS_ERROR:
	case MANA_HW_EXT_EVENT_COMMUNICATION_ESTABLISHED:
	case MANA_HW_EXT_EVENT_SQ_DRAINED:
	case MANA_HW_EXT_EVENT_LAST_WQE_REACHED:
		mana_ib_qp_event(dev, id, (enum ib_event_type)type);
		break;
	case MANA_HW_EXT_EVENT_SRQ_ERROR:
	case MANA_HW_EXT_EVENT_SRQ_LIMIT:
		mana_ib_srq_event(dev, id, (enum ib_event_type)type);
		break;
	case MANA_HW_EXT_EVENT_CQ_ERROR:
		mana_ib_cq_event(dev, id, IB_EVENT_CQ_ERR);
		break;
	default:
		dev_warn_ratelimited(dev->gc->dev,
				     "mana_ib: unknown event %u of %#x\n", type,
				     id);
	}
}

/* Completion event, in hard interrupt context, under RCU's read lock. */
static void mana_ib_completion(void *context, struct gdma_queue *hook)
{
	struct mana_ib_cq *cq = context;

	if (cq->kernel)
		WRITE_ONCE(cq->armed, false);
	if (cq->ibcq.comp_handler)
		cq->ibcq.comp_handler(&cq->ibcq, cq->ibcq.cq_context);
}

/* Of a CQ that is about to be destroyed. */
static void mana_ib_no_completion(void *context, struct gdma_queue *hook)
{
}

/**
 * mana_ib_hook_cq - completion events of a CQ reach it from now on
 * @dev: device
 * @cq: CQ with its id; the table of the parent is that of Ethernet too
 */
int mana_ib_hook_cq(struct mana_ib_dev *dev, struct mana_ib_cq *cq)
{
	struct gdma_context *gc = dev->gc;
	struct gdma_queue *hook;

	hook = kzalloc(sizeof(*hook), GFP_KERNEL);
	if (!hook)
		return -ENOMEM;
	/* Who has just destroyed a CQ of this id may not have unhooked it. */
	mutex_lock(&dev->hook_lock);
	if (cq->id >= gc->max_num_cqs || gc->cq_table[cq->id]) {
		mutex_unlock(&dev->hook_lock);
		ibdev_err_ratelimited(&dev->ibdev, "cq[%u]: impossible id\n",
				      cq->id);
		kfree(hook);
		return -EPROTO;
	}
	hook->gdma_dev = dev->gdev;
	hook->type = GDMA_CQ;
	hook->id = cq->id;
	hook->cq.context = cq;
	hook->cq.callback = mana_ib_completion;
	cq->hook = hook;
	/* The parent's reader finds a whole entry. */
	smp_store_release(&gc->cq_table[cq->id], hook);
	mutex_unlock(&dev->hook_lock);
	return 0;
}

/* On return nobody is told of completions any more. */
void mana_ib_mute_cq(struct mana_ib_cq *cq)
{
	if (!cq->hook)
		return;
	WRITE_ONCE(cq->hook->cq.callback, mana_ib_no_completion);
	synchronize_rcu();
}

/*
 * Of a CQ that the device has no more: the parent warns of events of a CQ that
 * is not in the table. It was muted before, and hook_lock is held since.
 */
void mana_ib_unhook_cq(struct mana_ib_dev *dev, struct mana_ib_cq *cq)
{
	lockdep_assert_held(&dev->hook_lock);
	if (!cq->hook)
		return;
	/* Unless the device has given the id to Ethernet meanwhile. */
	cmpxchg(&dev->gc->cq_table[cq->id], cq->hook, NULL);
	kfree_rcu_mightsleep(cq->hook);
	cq->hook = NULL;
}

static void mana_ib_destroy_eq(struct mana_ib_dev *dev, struct mana_ib_eq *eq)
{
	if (!eq->queue)
		return;
	/* Of a device that does not answer, no answer is waited for. */
	if (dev->gone)
		eq->queue->eq.disable_needed = false;
	/* The parent frees what it finds there. */
	if (mana_ib_keeps_memory(dev))
		eq->queue->mem_info.virt_addr = NULL;
	mana_gd_destroy_queue(dev->gc, eq->queue);
	compat_put_interrupt(dev->gc, eq->msix);
	eq->queue = NULL;
}

static int mana_ib_create_eq(struct mana_ib_dev *dev, struct gdma_dev *gdev,
			     unsigned int msix, struct mana_ib_eq *eq)
{
	struct gdma_queue_spec spec = {
		.type = GDMA_EQ,
		.queue_size = MANA_IB_EQ_BYTES,
		.eq.callback = mana_ib_event,
		.eq.context = dev,
		.eq.log2_throttle_limit = MANA_IB_EQ_LOG2_THROTTLE,
	};
	int err;

	eq->msix = msix;
	err = compat_get_interrupt(dev->gc, &eq->msix);
	if (err)
		return err;
	spec.eq.msix_index = eq->msix;
	err = mana_gd_create_mana_eq(gdev, &spec, &eq->queue);
	if (err) {
		eq->queue = NULL;
		compat_put_interrupt(dev->gc, eq->msix);
	}
	return err;
}

static void mana_ib_destroy_vector_eqs(struct mana_ib_dev *dev,
				       struct mana_ib_eq *eqs,
				       unsigned int count)
{
	while (count--)
		mana_ib_destroy_eq(dev, &eqs[count]);
	kfree(eqs);
}

/* An EQ for each completion vector; vector 0 of the interrupts is the HWC's. */
static struct mana_ib_eq *mana_ib_create_vector_eqs(struct mana_ib_dev *dev,
						    struct gdma_dev *gdev,
						    unsigned int count)
{
	struct mana_ib_eq *eqs;
	unsigned int i;
	int err;

	eqs = kcalloc(count, sizeof(*eqs), GFP_KERNEL);
	if (!eqs)
		return ERR_PTR(-ENOMEM);
	for (i = 0; i < count; i++) {
		err = mana_ib_create_eq(dev, gdev,
					(i + 1) % dev->gc->num_msix_usable,
					&eqs[i]);
		if (err) {
			mana_ib_destroy_vector_eqs(dev, eqs, i);
			return ERR_PTR(err);
		}
	}
	return eqs;
}

int mana_ib_create_eqs(struct mana_ib_dev *dev)
{
	unsigned int count = max(1U, dev->gc->max_num_queues);
	int err;

	err = mana_ib_create_eq(dev, dev->gdev, 0, &dev->event_eq);
	if (err)
		return err;
	dev->eqs = mana_ib_create_vector_eqs(dev, dev->gdev, count);
	if (IS_ERR(dev->eqs)) {
		err = PTR_ERR(dev->eqs);
		dev->eqs = NULL;
		mana_ib_destroy_eq(dev, &dev->event_eq);
		return err;
	}
	dev->eq_count = count;
	return 0;
}

/**
 * mana_ib_get_raw_eqs - event queues for raw packet queues
 * @dev: device
 *
 * They are of the Ethernet device and our own, since those of a port come and go
 * with its interface. The first raw packet QP makes them, the last ends them.
 */
int mana_ib_get_raw_eqs(struct mana_ib_dev *dev)
{
	struct mana_ib_eq *eqs;
	int err = 0;

	mutex_lock(&dev->raw_lock);
	if (!dev->raw_users) {
		eqs = mana_ib_create_vector_eqs(dev, &dev->gc->mana,
						dev->ibdev.num_comp_vectors);
		if (IS_ERR(eqs))
			err = PTR_ERR(eqs);
		else
			dev->raw_eqs = eqs;
	}
	if (!err)
		dev->raw_users++;
	mutex_unlock(&dev->raw_lock);
	return err;
}

void mana_ib_put_raw_eqs(struct mana_ib_dev *dev)
{
	mutex_lock(&dev->raw_lock);
	if (!--dev->raw_users) {
		mana_ib_destroy_vector_eqs(dev, dev->raw_eqs,
					   dev->ibdev.num_comp_vectors);
		dev->raw_eqs = NULL;
	}
	mutex_unlock(&dev->raw_lock);
}

void mana_ib_destroy_eqs(struct mana_ib_dev *dev)
{
	if (dev->eqs)
		mana_ib_destroy_vector_eqs(dev, dev->eqs, dev->eq_count);
	dev->eqs = NULL;
	dev->eq_count = 0;
	mana_ib_destroy_eq(dev, &dev->event_eq);
}

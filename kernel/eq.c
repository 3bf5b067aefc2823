// SPDX-License-Identifier: GPL-2.0
/* Event queues: of asynchronous events, and one for each completion vector. */
#include "eq.h"
#include "cmd.h"
#include "parent.h"

static void mana_ib_destroy_eq(struct mana_ib_dev *dev, struct mana_ib_eq *eq)
{
	int err;

	/* First: when the device has ended it, interrupts would ring another of its id. */
	mana_ib_parent_mute_eq(dev, eq);
	err = mana_ib_cmd_destroy_eq(dev, eq->ethernet, eq->id);
	mana_ib_parent_free_eq(dev, eq, err && mana_ib_may_write(dev));
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
						    bool ethernet,
						    unsigned int count)
{
	struct mana_ib_eq *eqs;
	unsigned int i;
	int err;

	eqs = kcalloc(count, sizeof(*eqs), GFP_KERNEL);
	if (!eqs)
		return ERR_PTR(-ENOMEM);
	for (i = 0; i < count; i++) {
		err = mana_ib_parent_create_eq(dev, ethernet, i + 1, &eqs[i]);
		if (err) {
			mana_ib_destroy_vector_eqs(dev, eqs, i);
			return ERR_PTR(err);
		}
	}
	return eqs;
}

/**
 * mana_ib_create_eqs - event queues of the RDMA device
 * @dev: device; its on_event is set
 */
int mana_ib_create_eqs(struct mana_ib_dev *dev)
{
	int err;

	err = mana_ib_parent_create_eq(dev, false, 0, &dev->event_eq);
	if (err)
		return err;
	dev->eqs = mana_ib_create_vector_eqs(dev, false, dev->vectors);
	if (IS_ERR(dev->eqs)) {
		err = PTR_ERR(dev->eqs);
		dev->eqs = NULL;
		mana_ib_destroy_eq(dev, &dev->event_eq);
		return err;
	}
	dev->eq_count = dev->vectors;
	return 0;
}

/**
 * mana_ib_destroy_eqs - undoes mana_ib_create_eqs()
 * @dev: device without CQs and adapter
 */
void mana_ib_destroy_eqs(struct mana_ib_dev *dev)
{
	if (dev->eqs)
		mana_ib_destroy_vector_eqs(dev, dev->eqs, dev->eq_count);
	dev->eqs = NULL;
	dev->eq_count = 0;
	mana_ib_destroy_eq(dev, &dev->event_eq);
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
		eqs = mana_ib_create_vector_eqs(dev, true,
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

/**
 * mana_ib_put_raw_eqs - undoes mana_ib_get_raw_eqs()
 * @dev: device
 */
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

// SPDX-License-Identifier: GPL-2.0
/* Requests of event queues. The parent makes them: interrupts are its own. */
#include "hwc.h"

/**
 * mana_ib_cmd_destroy_eq - ends an event queue (GDMA 5.12)
 * @dev: device
 * @ethernet: it is of the Ethernet device beside ours
 * @id: of the queue, which nobody rings any more
 *
 * Not by the parent, for the reason of mana_ib_cmd_destroy_wq_object().
 *
 * Return: 0, or an errno if the device may still write to the queue.
 */
int mana_ib_cmd_destroy_eq(struct mana_ib_dev *dev, bool ethernet, u32 id)
{
	struct mana_hw_disable_queue_req request = {
		.type = MANA_HW_QUEUE_EQ,
		.queue_id = id,
		.id_allocated_on_creation = 1,
	};

	return mana_ib_hwc_destroy(dev, MANA_HW_DISABLE_QUEUE,
				   ethernet ? MANA_IB_TO_ETHERNET :
					      MANA_IB_TO_DEVICE,
				   &request, sizeof(request));
}

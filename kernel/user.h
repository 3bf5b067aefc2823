/* SPDX-License-Identifier: GPL-2.0 */
/* What a user of the system has of what all of them share. */
#ifndef MANA_IB_USER_H
#define MANA_IB_USER_H

#include "mana_ib.h"

#include <linux/semaphore.h>
#include <linux/uidgid.h>

/* What is shared, and costs a process no memory that counts as pinned. */
enum mana_ib_share {
	MANA_IB_SHARE_CONTEXTS, /* a doorbell page each */
	MANA_IB_SHARE_PDS,
	MANA_IB_SHARE_KEYS, /* windows, and regions of device memory */
	MANA_IB_SHARE_DM, /* bytes of device memory */
	MANA_IB_SHARE_GROUPS, /* memberships of multicast groups */
	MANA_IB_SHARE_HANDLES, /* objects that the device knows nothing of */
	MANA_IB_SHARES
};

/**
 * struct mana_ib_user - account of a user of a function
 * @entry: in the function's list
 * @uid: of its processes
 * @privileged: they have CAP_SYS_RESOURCE: an account apart, so that a container's
 *	root is not limited by what the host's has
 * @references: contexts, and requests under way
 * @used: of each share
 * @turns: requests that it may have under way
 */
struct mana_ib_user {
	struct list_head entry;
	kuid_t uid;
	bool privileged;
	u32 references;
	u64 used[MANA_IB_SHARES];
	struct semaphore turns;
};

void mana_ib_limit_pds(struct mana_ib_dev *dev);
struct mana_ib_user *mana_ib_get_account(struct mana_ib_dev *dev);
void mana_ib_put_account(struct mana_ib_dev *dev, struct mana_ib_user *user);
struct mana_ib_user *mana_ib_get_user(struct mana_ib_dev *dev);
void mana_ib_put_user(struct mana_ib_dev *dev, struct mana_ib_user *user);
int mana_ib_take_share(struct mana_ib_dev *dev, struct mana_ib_user *user,
		       enum mana_ib_share share, u64 amount);
void mana_ib_give_share(struct mana_ib_dev *dev, struct mana_ib_user *user,
			enum mana_ib_share share, u64 amount);

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/* Turns of users who ask the device. */
#ifndef MANA_IB_TURN_H
#define MANA_IB_TURN_H

#include "mana_ib.h"

struct mana_ib_user;

/**
 * struct mana_ib_turn - requests of a thread that wait for no turn, for a while
 * @dev: device; NULL: there is nothing to end
 * @entry: in the list of its function
 * @task: the thread
 * @user: whose turn it is, NULL: nobody's
 */
struct mana_ib_turn {
	struct mana_ib_dev *dev;
	struct list_head entry;
	const struct task_struct *task;
	struct mana_ib_user *user;
};

int mana_ib_take_turn(struct mana_ib_dev *dev, bool undoes,
		      struct mana_ib_turn *turn);
void mana_ib_skip_turns(struct mana_ib_dev *dev, bool skip,
			struct mana_ib_turn *turn);
void mana_ib_end_turn(struct mana_ib_turn *turn);

#endif

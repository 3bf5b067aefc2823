// SPDX-License-Identifier: GPL-2.0
/*
 * Turns of users who ask the device. At the parent it is first come, first served, one
 * request at a time. However many threads of a user ask, others find few of their
 * requests there: a user has two turns, and its other threads wait for these.
 *
 * Nobody waits for a turn of its own while holding what others wait for, or they would
 * wait for all threads of that user. So requests under a lock of the device or of the
 * core take none, or the turn is taken first; nor do those of the kernel's objects,
 * whose users lock what they like. Each such lock lets few in at a time. (That of raw
 * packet queues is for those who may have them, with CAP_NET_RAW.)
 */
#include "turn.h"
#include "user.h"

#include <linux/sched.h>

/* Threads of the kernel are not a user's. */
static bool mana_ib_needs_turn(struct mana_ib_function *function)
{
	const struct mana_ib_turn *turn;
	bool needs = true;

	if (current->flags & PF_KTHREAD)
		return false;
	spin_lock(&function->users_lock);
	list_for_each_entry(turn, &function->turns, entry)
		needs &= turn->task != current;
	spin_unlock(&function->users_lock);
	return needs;
}

static void mana_ib_begin_turn(struct mana_ib_dev *dev,
			       struct mana_ib_user *user,
			       struct mana_ib_turn *turn)
{
	struct mana_ib_function *function = dev->function;

	turn->dev = dev;
	turn->task = current;
	turn->user = user;
	spin_lock(&function->users_lock);
	list_add(&turn->entry, &function->turns);
	spin_unlock(&function->users_lock);
}

/**
 * mana_ib_take_turn - waits until the calling process may ask the device
 * @dev: device
 * @undoes: what is asked for must be, whatever becomes of the process
 * @turn: to be ended; until then requests of this thread wait for no other turn
 *
 * Return: -EINTR if the process is killed meanwhile, or -ENOMEM; never if it undoes.
 */
int mana_ib_take_turn(struct mana_ib_dev *dev, bool undoes,
		      struct mana_ib_turn *turn)
{
	struct mana_ib_user *user;

	turn->dev = NULL;
	if (!mana_ib_needs_turn(dev->function))
		return 0;
	user = mana_ib_get_account(dev);
	if (!user)
		return undoes ? 0 : -ENOMEM;
	if (undoes) {
		down(&user->turns);
	} else if (down_killable(&user->turns)) {
		mana_ib_put_account(dev, user);
		return -EINTR;
	}
	mana_ib_begin_turn(dev, user, turn);
	return 0;
}

/**
 * mana_ib_skip_turns - requests of the calling thread wait for no turn
 * @dev: device
 * @skip: false: they do
 * @turn: to be ended
 */
void mana_ib_skip_turns(struct mana_ib_dev *dev, bool skip,
			struct mana_ib_turn *turn)
{
	turn->dev = NULL;
	if (skip)
		mana_ib_begin_turn(dev, NULL, turn);
}

/**
 * mana_ib_end_turn - the next one has the turn
 * @turn: zeroed, or of this thread; nothing is done if no turn was taken or skipped
 */
void mana_ib_end_turn(struct mana_ib_turn *turn)
{
	struct mana_ib_dev *dev = turn->dev;

	if (!dev)
		return;
	turn->dev = NULL;
	spin_lock(&dev->function->users_lock);
	list_del(&turn->entry);
	spin_unlock(&dev->function->users_lock);
	if (!turn->user)
		return;
	up(&turn->user->turns);
	mana_ib_put_account(dev, turn->user);
}

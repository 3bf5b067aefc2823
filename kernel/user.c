// SPDX-License-Identifier: GPL-2.0
/*
 * What a user may take of what all users of a function share. What pins memory is
 * limited by RLIMIT_MEMLOCK, and other objects of the device by the rdma cgroup; but
 * of what costs a process nothing it could take all: doorbell pages, protection
 * domains, keys to no memory of its own, device memory, multicast groups and memory
 * of the kernel. It is the user who is limited, who may start any number of
 * processes. Who has CAP_SYS_RESOURCE is not, and has an account apart.
 */
#include "user.h"

#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/user_namespace.h>

#define MANA_IB_USER_CONTEXTS 64 /* at least, whatever the device says */
#define MANA_IB_USER_DM SZ_4M
#define MANA_IB_USER_TURNS 2
/* Handles are half a KiB each, and take a 32nd of the memory at most. */
#define MANA_IB_HANDLE_SHIFT (9 + 5)

static u64 mana_ib_most_of(const struct mana_ib_dev *dev,
			   enum mana_ib_share share)
{
	switch (share) {
	case MANA_IB_SHARE_CONTEXTS:
		return max_t(u64, MANA_IB_USER_CONTEXTS,
			     dev->max_contexts / 2);
	case MANA_IB_SHARE_PDS:
		return max(1U, READ_ONCE(dev->function->max_pd) / 2);
	case MANA_IB_SHARE_KEYS:
		return max(1U, dev->limits.max_mw / 2);
	case MANA_IB_SHARE_DM:
		return MANA_IB_USER_DM;
	case MANA_IB_SHARE_GROUPS:
		return max(1U, dev->ext.max_multicast_groups / 4);
	default:
		return (u64)totalram_pages() << PAGE_SHIFT >>
		       MANA_IB_HANDLE_SHIFT;
	}
}

static bool mana_ib_share_fits(const struct mana_ib_user *user,
			       enum mana_ib_share share, u64 amount, u64 most)
{
	return user->used[share] < most && amount <= most - user->used[share];
}

/**
 * mana_ib_limit_pds - users may have no more PDs than a device knows of
 * @dev: device whose limits are known
 *
 * All devices of a function take from the same, but only that of RDMA is told how
 * many these are.
 */
void mana_ib_limit_pds(struct mana_ib_dev *dev)
{
	struct mana_ib_function *function = dev->function;

	spin_lock(&function->users_lock);
	WRITE_ONCE(function->max_pd,
		   min_not_zero(function->max_pd, dev->limits.max_pd));
	spin_unlock(&function->users_lock);
}

/**
 * mana_ib_take_share - a process takes of what all share
 * @dev: device
 * @user: of the process; NULL: the kernel, which is not limited
 * @share: of what
 * @amount: how much
 *
 * Return: -EDQUOT if that is more than its user may have.
 */
int mana_ib_take_share(struct mana_ib_dev *dev, struct mana_ib_user *user,
		       enum mana_ib_share share, u64 amount)
{
	struct mana_ib_function *function = dev->function;
	u64 most = mana_ib_most_of(dev, share);
	bool fits;

	if (!user)
		return 0;
	spin_lock(&function->users_lock);
	fits = mana_ib_share_fits(user, share, amount, most);
	if (fits)
		user->used[share] += amount;
	spin_unlock(&function->users_lock);
	if (fits)
		return 0;
	if (!capable(CAP_SYS_RESOURCE))
		return -EDQUOT;
	spin_lock(&function->users_lock);
	user->used[share] += amount;
	spin_unlock(&function->users_lock);
	return 0;
}

/**
 * mana_ib_give_share - undoes mana_ib_take_share()
 * @dev: device
 * @user: as there
 * @share: as there
 * @amount: as there
 */
void mana_ib_give_share(struct mana_ib_dev *dev, struct mana_ib_user *user,
			enum mana_ib_share share, u64 amount)
{
	struct mana_ib_function *function = dev->function;

	if (!user)
		return;
	spin_lock(&function->users_lock);
	user->used[share] -= amount;
	spin_unlock(&function->users_lock);
}

/*
 * By what id the calling process is accounted. In a user namespace a user may have
 * any number of ids (subuid(5), unshare --map-auto): it is whoever made the outermost
 * one. A namespace that root has made, for a container, is whom its root is outside.
 */
static kuid_t mana_ib_account_id(void)
{
	struct user_namespace *outermost = current_user_ns();
	kuid_t root;

	if (outermost == &init_user_ns)
		return current_uid();
	while (outermost->parent != &init_user_ns)
		outermost = outermost->parent;
	if (!uid_eq(outermost->owner, GLOBAL_ROOT_UID))
		return outermost->owner;
	root = make_kuid(outermost, 0);
	if (uid_valid(root) && !uid_eq(root, GLOBAL_ROOT_UID))
		return root;
	return current_uid();
}

/* The account that is like another one; the function's users_lock is held. */
static struct mana_ib_user *mana_ib_find_user(struct mana_ib_function *function,
					      const struct mana_ib_user *like)
{
	struct mana_ib_user *user;

	list_for_each_entry(user, &function->users, entry)
		if (uid_eq(user->uid, like->uid) &&
		    user->privileged == like->privileged)
			return user;
	return NULL;
}

/**
 * mana_ib_get_account - the account of the calling process
 * @dev: device
 *
 * Return: to be given back with mana_ib_put_account(); NULL if there is no memory.
 */
struct mana_ib_user *mana_ib_get_account(struct mana_ib_dev *dev)
{
	struct mana_ib_function *function = dev->function;
	struct mana_ib_user *made = NULL, *user;
	/* Nothing is refused, so nobody is to be told of those who have not. */
	struct mana_ib_user like = {
		.uid = mana_ib_account_id(),
		.privileged = ns_capable_noaudit(&init_user_ns,
						 CAP_SYS_RESOURCE),
	};

	for (;;) {
		spin_lock(&function->users_lock);
		user = mana_ib_find_user(function, &like);
		if (!user && made) {
			list_add(&made->entry, &function->users);
			user = made;
			made = NULL;
		}
		if (user)
			user->references++;
		spin_unlock(&function->users_lock);
		if (user)
			break;
		made = kmemdup(&like, sizeof(like), GFP_KERNEL);
		if (!made)
			break;
		sema_init(&made->turns, MANA_IB_USER_TURNS);
	}
	kfree(made);
	return user;
}

/**
 * mana_ib_put_account - undoes mana_ib_get_account()
 * @dev: device
 * @user: account
 */
void mana_ib_put_account(struct mana_ib_dev *dev, struct mana_ib_user *user)
{
	struct mana_ib_function *function = dev->function;
	bool last;

	spin_lock(&function->users_lock);
	last = !--user->references;
	if (last)
		list_del(&user->entry);
	spin_unlock(&function->users_lock);
	if (last)
		kfree(user);
}

/**
 * mana_ib_get_user - the user of a context that the calling process makes
 * @dev: device
 *
 * Return: to be given back with mana_ib_put_user(), when all that was taken has
 * been given back; -EDQUOT if it has as many contexts as it may.
 */
struct mana_ib_user *mana_ib_get_user(struct mana_ib_dev *dev)
{
	struct mana_ib_user *user = mana_ib_get_account(dev);
	int err;

	if (!user)
		return ERR_PTR(-ENOMEM);
	err = mana_ib_take_share(dev, user, MANA_IB_SHARE_CONTEXTS, 1);
	if (err) {
		mana_ib_put_account(dev, user);
		return ERR_PTR(err);
	}
	return user;
}

/**
 * mana_ib_put_user - a context ends
 * @dev: device
 * @user: of the context
 */
void mana_ib_put_user(struct mana_ib_dev *dev, struct mana_ib_user *user)
{
	mana_ib_give_share(dev, user, MANA_IB_SHARE_CONTEXTS, 1);
	mana_ib_put_account(dev, user);
}

// SPDX-License-Identifier: GPL-2.0
/*
 * Addresses that users send from: those of their own network namespace. The core
 * lets a process use any GID of the port. Connected QPs have the one that we tell
 * the device. The work requests of datagrams name theirs, and are written by the
 * process: the device sends them from addresses that their PD was granted, which it
 * is when an address handle is made.
 */
#include "source.h"
#include "cmd.h"
#include "link.h"
#include "turn.h"

#include <linux/capability.h>
#include <linux/nsproxy.h>
#include <net/net_namespace.h>
#include <rdma/ib_cache.h>

/**
 * mana_ib_init_sources - nothing is granted
 * @dev: device, zeroed but for the core's part
 */
void mana_ib_init_sources(struct mana_ib_dev *dev)
{
	unsigned int i;

	init_rwsem(&dev->source_lock);
	for (i = 0; i < ARRAY_SIZE(dev->sources); i++)
		dev->sources[i] = 1;
}

/* Who has CAP_NET_RAW may be anybody: it could send whole packets of its own. */
static int mana_ib_check_namespace(const struct net_device *ndev)
{
	if (net_eq(dev_net(ndev), current->nsproxy->net_ns) ||
	    capable(CAP_NET_RAW))
		return 0;
	return -EPERM;
}

/**
 * mana_ib_check_source - whether the calling process may send from an address
 * @sgid: of the address
 *
 * The namespace is that of the call, whoever has made the context.
 *
 * Return: -EPERM if it may not; -ENODEV if the address goes.
 */
int mana_ib_check_source(const struct ib_gid_attr *sgid)
{
	struct net_device *ndev;
	int err;

	rcu_read_lock();
	ndev = rdma_read_gid_attr_ndev_rcu(sgid);
	/* Of one that goes, kernels differ in what they say. */
	err = IS_ERR(ndev) ? -ENODEV : mana_ib_check_namespace(ndev);
	rcu_read_unlock();
	return err;
}

/**
 * mana_ib_check_datagrams - whether the calling process may have datagram QPs
 * @dev: device
 *
 * A device that knows no grants sends from any address of the adapter. So that
 * nobody speaks for the namespace of the port's interface who is not in it, others
 * have none.
 */
int mana_ib_check_datagrams(struct mana_ib_dev *dev)
{
	struct net_device *ndev;
	int err;

	if (mana_ib_has(dev, MANA_HW_EXT_SOURCES))
		return 0;
	ndev = ib_device_get_netdev(&dev->ibdev, 1);
	if (!ndev)
		return -ENODEV;
	err = mana_ib_check_namespace(ndev);
	dev_put(ndev);
	return err;
}

/*
 * Grants an address that was not granted yet, or says with -EAGAIN that the caller is
 * to take a turn for that before it locks. A GID that goes is told of after it has
 * become invalid: so with the lock held for reading, whatever is granted was valid,
 * and is revoked after that.
 */
static int mana_ib_try_grant(struct mana_ib_pd *pd,
			     const struct ib_gid_attr *sgid, bool has_turn)
{
	struct mana_ib_dev *dev = to_mana_dev(pd->ibpd.device);
	u32 number = sgid->index;
	u8 mac[ETH_ALEN];
	u16 vlan;
	int err;

	down_read(&dev->source_lock);
	err = mana_ib_check_source(sgid);
	if (err || READ_ONCE(pd->sources[number]) == dev->sources[number])
		goto unlock;
	err = -EAGAIN;
	if (!has_turn)
		goto unlock;
	err = mana_ib_source_link(sgid, mac, &vlan);
	if (err)
		goto unlock;
	/* Twice is as good as once: several threads may come here. */
	err = mana_ib_cmd_grant_source(dev, pd->handle, &sgid->gid, vlan,
				       number);
	if (!err)
		WRITE_ONCE(pd->sources[number], dev->sources[number]);
unlock:
	up_read(&dev->source_lock);
	return err;
}

/**
 * mana_ib_grant_source - datagrams of a user's PD may come from an address
 * @pd: of the calling process
 * @sgid: of the address
 *
 * It is granted until the address goes, not just as long as the process has a handle
 * with it. Whose address goes, and with it all others, waits for the device alone, not
 * for turns of this user.
 */
int mana_ib_grant_source(struct mana_ib_pd *pd, const struct ib_gid_attr *sgid)
{
	struct mana_ib_dev *dev = to_mana_dev(pd->ibpd.device);
	struct mana_ib_turn turn;
	int err;

	BUILD_BUG_ON(MANA_IB_GID_ENTRIES > MANA_HW_EXT_PD_SOURCES);
	if (!mana_ib_has(dev, MANA_HW_EXT_SOURCES))
		return mana_ib_check_source(sgid);
	if (sgid->port_num != 1 || sgid->index >= MANA_IB_GID_ENTRIES)
		return -EOPNOTSUPP;
	err = mana_ib_try_grant(pd, sgid, false);
	if (err != -EAGAIN)
		return err;
	err = mana_ib_take_turn(dev, false, &turn);
	if (err)
		return err;
	err = mana_ib_try_grant(pd, sgid, true);
	mana_ib_end_turn(&turn);
	return err;
}

/**
 * mana_ib_revoke_source - no user sends datagrams from an address any more
 * @dev: device
 * @sgid: of the address, which goes
 */
void mana_ib_revoke_source(struct mana_ib_dev *dev,
			   const struct ib_gid_attr *sgid)
{
	int err;

	if (!mana_ib_has(dev, MANA_HW_EXT_SOURCES) || sgid->port_num != 1 ||
	    sgid->index >= MANA_IB_GID_ENTRIES)
		return;
	down_write(&dev->source_lock);
	dev->sources[sgid->index]++;
	err = mana_ib_cmd_revoke_source(dev, sgid->index);
	up_write(&dev->source_lock);
	if (err && !mana_ib_is_gone(dev))
		ibdev_err_ratelimited(&dev->ibdev, "gid[%u]: not revoked: %pe\n",
				      sgid->index, ERR_PTR(err));
}

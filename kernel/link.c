// SPDX-License-Identifier: GPL-2.0
/* What the link layer has of packets: MAC address and tag. */
#include "link.h"

#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <rdma/ib_cache.h>

/* The tags that an interface and those below it put on packets. */
struct mana_ib_tags {
	unsigned int count;
	bool plain; /* all are of 802.1Q */
	u16 vlan; /* of the lowest one */
};

static void mana_ib_count_tag(struct net_device *ndev,
			      struct mana_ib_tags *tags)
{
	if (!is_vlan_dev(ndev))
		return;
	tags->count++;
	tags->vlan = vlan_dev_vlan_id(ndev);
	if (vlan_dev_vlan_proto(ndev) != htons(ETH_P_8021Q))
		tags->plain = false;
}

static int mana_ib_count_lower_tag(struct net_device *lower,
				   struct netdev_nested_priv *priv)
{
	mana_ib_count_tag(lower, priv->data);
	return 0;
}

/**
 * mana_ib_source_link - what the link layer has of packets with a GID
 * @sgid: GID, which may still be on its way into the core's table
 * @mac: that they come from
 * @vlan: that they are in; 0: none
 *
 * Packets that the device cannot tag would leave without a tag, into another network:
 * -EOPNOTSUPP. It puts one tag on, of 802.1Q, and none that has a priority alone.
 */
int mana_ib_source_link(const struct ib_gid_attr *sgid, u8 *mac, u16 *vlan)
{
	struct mana_ib_tags tags = { .plain = true };
	struct netdev_nested_priv priv = { .data = &tags };
	struct net_device *ndev;

	rcu_read_lock();
	ndev = rcu_dereference(sgid->ndev);
	if (ndev) {
		ether_addr_copy(mac, ndev->dev_addr);
		mana_ib_count_tag(ndev, &tags);
		netdev_walk_all_lower_dev_rcu(ndev, mana_ib_count_lower_tag,
					      &priv);
	}
	rcu_read_unlock();
	if (!ndev)
		return -ENODEV;
	*vlan = tags.vlan;
	if (!tags.count)
		return 0;
	if (tags.count > 1 || !tags.plain || !tags.vlan ||
	    !mana_ib_has(to_mana_dev(sgid->device), MANA_HW_EXT_VLANS))
		return -EOPNOTSUPP;
	return 0;
}

/**
 * mana_ib_make_tag - the tag of packets
 * @vlan: that they are in; 0: none
 * @sl: service level that somebody wants for them
 *
 * The priority is the service level, as with other RoCE NICs; the core has made it of
 * the type of service where there is a connection manager. A level above 7 is none
 * (IBTA A17.4.2), but what a completion told a program: then the priority is in it.
 */
u16 mana_ib_make_tag(u16 vlan, u8 sl)
{
	if (!vlan)
		return 0;
	if (sl & MANA_UAPI_SL_DATAGRAM)
		sl >>= MANA_UAPI_SL_PRIORITY_SHIFT;
	return vlan | (sl & 7) << MANA_HW_EXT_VLAN_PRIORITY_SHIFT;
}

// SPDX-License-Identifier: GPL-2.0
/* What the link layer has of packets: MAC address and tag. */
#include "link.h"
#include "parent.h"

#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <rdma/ib_cache.h>

/* The tags that an interface and those between it and the port put on packets. */
struct mana_ib_tags {
	struct net_device *port;
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

/* What a bridge or a bond has beside the port has nothing to do with its packets. */
static int mana_ib_count_lower_tag(struct net_device *lower,
				   struct netdev_nested_priv *priv)
{
	struct mana_ib_tags *tags = priv->data;

	if (netdev_has_upper_dev_all_rcu(tags->port, lower))
		mana_ib_count_tag(lower, tags);
	return 0;
}

/* What the device can put on packets, and takes off those that come. */
static bool mana_ib_can_tag(const struct mana_ib_dev *dev,
			    const struct mana_ib_tags *tags, const u8 *mac)
{
	return mana_ib_has(dev, MANA_HW_EXT_VLANS) && tags->count == 1 &&
	       tags->plain && tags->vlan &&
	       (mana_ib_has(dev, MANA_HW_EXT_MACS) ||
		ether_addr_equal(mac, tags->port->dev_addr));
}

/**
 * mana_ib_is_port_mac - whether a MAC address is that of the parent's interface
 * @dev: device
 * @port: number, from 1 on; there is such a port
 * @mac: of an interface over the port, such as a macvlan
 */
bool mana_ib_is_port_mac(const struct mana_ib_dev *dev, u32 port, const u8 *mac)
{
	return ether_addr_equal(mac, mana_ib_parent_lower(dev, port)->dev_addr);
}

/**
 * mana_ib_source_link - what the link layer has of packets with a GID
 * @sgid: GID, which may still be on its way into the core's table
 * @mac: that they come from
 * @vlan: that they are in; 0: none
 *
 * Packets that the device cannot tag would leave without a tag, into another network:
 * -EOPNOTSUPP. It puts one tag on, of 802.1Q, and none that has a priority alone. An
 * older device knows what comes in VLANs by the port's MAC address alone. The core,
 * which looks at the first interface below, and the connection manager with it, has to
 * see the same VLAN.
 */
int mana_ib_source_link(const struct ib_gid_attr *sgid, u8 *mac, u16 *vlan)
{
	const struct mana_ib_dev *dev = to_mana_dev(sgid->device);
	struct mana_ib_tags tags = {
		.port = mana_ib_parent_lower(dev, sgid->port_num),
		.plain = true
	};
	struct netdev_nested_priv priv = { .data = &tags };
	struct net_device *ndev;
	u16 seen;
	int err;

	err = rdma_read_gid_l2_fields(sgid, &seen, mac);
	if (err)
		return err;
	rcu_read_lock();
	ndev = rcu_dereference(sgid->ndev);
	if (ndev) {
		mana_ib_count_tag(ndev, &tags);
		netdev_walk_all_lower_dev_rcu(ndev, mana_ib_count_lower_tag,
					      &priv);
	}
	rcu_read_unlock();
	if (!ndev)
		return -ENODEV;
	*vlan = tags.vlan;
	if (!tags.count)
		return seen < VLAN_N_VID ? -EOPNOTSUPP : 0;
	if (seen != tags.vlan || !mana_ib_can_tag(dev, &tags, mac))
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

// SPDX-License-Identifier: GPL-2.0
/* The device and its ports: attributes, GIDs, network devices. */
#include "device.h"
#include "cmd.h"
#include "link.h"
#include "parent.h"
#include "source.h"
#include "udata.h"

#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/if_vlan.h>
#include <linux/rtnetlink.h>
#include <net/addrconf.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_mad.h>

#define MANA_IB_VENDOR 0x1414
/* 4.096 us * 2^16: some 268 ms (RNIC 5.4) */
#define MANA_IB_ACK_DELAY 16
/* In Mb/s, where the parent does not tell: what 4X EDR stands for. */
#define MANA_IB_DEFAULT_SPEED 100000

static void mana_ib_ext_attributes(const struct mana_ib_dev *dev,
				   struct ib_device_attr *attr)
{
	const struct mana_ib_ext_limits *ext = &dev->ext;

	attr->max_cqe = max_t(u32, attr->max_cqe, ext->max_cqe);
	if (mana_ib_has(dev, MANA_HW_EXT_SRQ)) {
		attr->max_srq = ext->max_srq;
		attr->max_srq_wr = ext->max_srq_wr;
		attr->max_srq_sge = ext->max_srq_sge;
	}
	if (mana_ib_has(dev, MANA_HW_EXT_ATOMICS))
		attr->atomic_cap = IB_ATOMIC_HCA;
	if (mana_ib_has(dev, MANA_HW_EXT_MEMORY_WINDOWS)) {
		attr->max_mw = dev->limits.max_mw;
		attr->device_cap_flags |= IB_DEVICE_MEM_WINDOW |
					  IB_DEVICE_MEM_WINDOW_TYPE_2B;
	}
	if (mana_ib_has(dev, MANA_HW_EXT_FAST_REGISTRATION)) {
		attr->device_cap_flags |= IB_DEVICE_MEM_MGT_EXTENSIONS;
		attr->max_fast_reg_page_list_len = ext->max_fast_reg_pages;
	}
	if (mana_ib_has(dev, MANA_HW_EXT_TIMESTAMPS)) {
		attr->timestamp_mask = U64_MAX;
		attr->hca_core_clock = ext->clock_khz;
	}
	if (mana_ib_has(dev, MANA_HW_EXT_MULTICAST)) {
		attr->max_mcast_grp = ext->max_multicast_groups;
		attr->max_mcast_qp_attach = ext->max_multicast_qps;
		attr->max_total_mcast_qp_attach =
			min_t(u64, INT_MAX,
			      (u64)ext->max_multicast_groups *
				      ext->max_multicast_qps);
	}
}

/*
 * One answer for QPs of both formats, since a caller does not know which it
 * will get: the smaller of the two limits.
 */
static u32 mana_ib_common_limit(u32 stock, u32 extended)
{
	return extended ? min(stock, extended) : stock;
}

/**
 * mana_ib_interface_version - what stands for a firmware, of which no NIC tells
 * @dev: device
 *
 * In three numbers as drivers of NICs have them: the protocol of requests, of which
 * parents ask for 1 and no other; 0; and the extension's version, or 0.
 */
u64 mana_ib_interface_version(const struct mana_ib_dev *dev)
{
	return BIT_ULL(32) | (dev->ext.features ? MANA_HW_EXT_VERSION : 0);
}

int mana_ib_query_device(struct ib_device *ibdev, struct ib_device_attr *attr,
			 struct ib_udata *udata)
{
	struct mana_ib_dev *dev = to_mana_dev(ibdev);
	const struct mana_ib_limits *limits = &dev->limits;
	const struct mana_ib_ext_limits *ext = &dev->ext;
	int err;

	err = mana_ib_udata_empty(udata);
	if (err)
		return err;

	memset(attr, 0, sizeof(*attr));
	attr->fw_ver = mana_ib_interface_version(dev);
	attr->vendor_id = MANA_IB_VENDOR;
	/* DPDK takes raw packet devices by the type of the Ethernet device. */
	attr->vendor_part_id = dev->raw ? GDMA_DEVICE_MANA :
					  dev->part_id;
	attr->sys_image_guid = ibdev->node_guid;
	attr->max_mr_size = U64_MAX;
	attr->page_size_cap = dev->page_sizes;
	attr->max_qp = limits->max_qp;
	attr->max_qp_wr = min(mana_ib_common_limit(limits->max_send_wr,
						   ext->max_send_wr),
			      mana_ib_common_limit(limits->max_recv_wr,
						   ext->max_recv_wr));
	attr->device_cap_flags = IB_DEVICE_RC_RNR_NAK_GEN;
	attr->max_send_sge = mana_ib_common_limit(limits->max_send_sge,
						  ext->max_send_sge);
	attr->max_recv_sge = mana_ib_common_limit(limits->max_recv_sge,
						  ext->max_recv_sge);
	attr->max_sge_rd = attr->max_recv_sge;
	attr->max_cq = limits->max_cq;
	attr->max_cqe = limits->max_cqe;
	attr->max_mr = limits->max_mr;
	attr->max_pd = limits->max_pd;
	attr->max_ah = INT_MAX;
	attr->max_pkeys = 1;
	attr->local_ca_ack_delay = MANA_IB_ACK_DELAY;
	if (dev->rdma) {
		attr->device_cap_flags |= IB_DEVICE_PORT_ACTIVE_EVENT |
					  IB_DEVICE_SYS_IMAGE_GUID;
		attr->max_qp_rd_atom = limits->max_read_in;
		attr->max_qp_init_rd_atom = limits->max_read_out;
		attr->max_res_rd_atom =
			min_t(u64, INT_MAX,
			      (u64)limits->max_read_in * limits->max_qp);
		attr->max_dm_size = MANA_IB_MAX_DM;
	}
	if (dev->raw)
		attr->raw_packet_caps = IB_RAW_PACKET_CAP_IP_CSUM;
	if (dev->raw || mana_ib_has(dev, MANA_HW_EXT_PACKET_SPREAD)) {
		attr->max_raw_ethy_qp = attr->max_qp;
		attr->max_wq_type_rq = attr->max_qp;
		attr->rss_caps.supported_qpts = BIT(IB_QPT_RAW_PACKET);
		attr->rss_caps.max_rwq_indirection_tables = attr->max_qp;
		attr->rss_caps.max_rwq_indirection_table_size =
			MANA_UAPI_RSS_QUEUES;
	}
	if (mana_ib_has(dev, MANA_HW_EXT_PACKETS)) {
		attr->device_cap_flags |= IB_DEVICE_MANAGED_FLOW_STEERING;
		attr->max_raw_ethy_qp = attr->max_qp;
	}
	if (mana_ib_has(dev, MANA_HW_EXT_PACKET_CHECKSUMS)) {
		attr->device_cap_flags |= IB_DEVICE_RAW_IP_CSUM;
		attr->raw_packet_caps |= IB_RAW_PACKET_CAP_IP_CSUM;
	}
	if (ext->features)
		mana_ib_ext_attributes(dev, attr);
	return 0;
}

/* What fits frames of that size; the smallest one is there always. */
static enum ib_mtu mana_ib_mtu(int ethernet)
{
	return iboe_get_mtu(ethernet) ? : IB_MTU_256;
}

/**
 * mana_ib_max_mtu - what the NIC takes at most, whatever the interfaces are set to
 * @dev: device
 */
enum ib_mtu mana_ib_max_mtu(const struct mana_ib_dev *dev)
{
	return mana_ib_mtu(mana_ib_parent_mtu(dev) - ETH_HLEN);
}

int mana_ib_query_port(struct ib_device *ibdev, u32 port,
		       struct ib_port_attr *attr)
{
	struct mana_ib_dev *dev = to_mana_dev(ibdev);
	struct net_device *ndev;
	bool running, up, knows_speed;

	ndev = ib_device_get_netdev(ibdev, port);
	if (!ndev)
		return -EINVAL;

	running = netif_running(ndev);
	up = running && netif_carrier_ok(ndev);
	attr->max_mtu = mana_ib_max_mtu(dev);
	/* It changes under a lock that is not held here. */
	attr->active_mtu = mana_ib_mtu(READ_ONCE(ndev->mtu));
	knows_speed = ndev->ethtool_ops &&
		      ndev->ethtool_ops->get_link_ksettings;
	dev_put(ndev);
	/* Older parents do not tell the speed; the core would complain of that. */
	attr->active_speed = IB_SPEED_EDR;
	attr->active_width = IB_WIDTH_4X;
	if (knows_speed)
		ib_get_eth_speed(ibdev, port, &attr->active_speed,
				 &attr->active_width);

	if (up) {
		attr->state = IB_PORT_ACTIVE;
		attr->phys_state = IB_PORT_PHYS_STATE_LINK_UP;
	} else {
		attr->state = IB_PORT_DOWN;
		/* An interface that is up waits for its link. */
		attr->phys_state = running ? IB_PORT_PHYS_STATE_POLLING :
					     IB_PORT_PHYS_STATE_DISABLED;
	}
	attr->pkey_tbl_len = 1;
	attr->max_msg_sz = MANA_IB_MAX_MESSAGE;
	if (mana_ib_port_is_rdma(dev, port)) {
		attr->gid_tbl_len = MANA_IB_GID_ENTRIES;
		attr->port_cap_flags = IB_PORT_CM_SUP;
		attr->ip_gids = true;
	}
	return 0;
}

/* In units of 100 Mb/s, as they are: a port's attributes know links of InfiniBand. */
int mana_ib_query_port_speed(struct ib_device *ibdev, u32 port, u64 *speed)
{
	struct ethtool_link_ksettings settings;
	struct net_device *ndev;
	int err;

	ndev = ib_device_get_netdev(ibdev, port);
	if (!ndev)
		return -EINVAL;
	*speed = 0;
	if (netif_running(ndev) && netif_carrier_ok(ndev)) {
		rtnl_lock();
		err = __ethtool_get_link_ksettings(ndev, &settings);
		rtnl_unlock();
		if (err || !settings.base.speed ||
		    settings.base.speed == (u32)SPEED_UNKNOWN)
			settings.base.speed = MANA_IB_DEFAULT_SPEED;
		*speed = settings.base.speed / 100;
	}
	dev_put(ndev);
	return 0;
}

int mana_ib_port_immutable(struct ib_device *ibdev, u32 port,
			   struct ib_port_immutable *immutable)
{
	struct mana_ib_dev *dev = to_mana_dev(ibdev);
	struct ib_port_attr attr = {};
	int err;

	err = ib_query_port(ibdev, port, &attr);
	if (err)
		return err;

	immutable->pkey_tbl_len = attr.pkey_tbl_len;
	immutable->gid_tbl_len = attr.gid_tbl_len;
	if (mana_ib_port_is_rdma(dev, port)) {
		immutable->core_cap_flags = RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP;
		immutable->max_mad_size = IB_MGMT_MAD_SIZE;
	}
	if (mana_ib_has_packets(dev))
		immutable->core_cap_flags |= RDMA_CORE_PORT_RAW_PACKET;
	return 0;
}

enum rdma_link_layer mana_ib_link_layer(struct ib_device *ibdev, u32 port)
{
	return IB_LINK_LAYER_ETHERNET;
}

int mana_ib_query_pkey(struct ib_device *ibdev, u32 port, u16 index, u16 *pkey)
{
	if (index)
		return -EINVAL;
	*pkey = MANA_IB_DEFAULT_PKEY;
	return 0;
}

static int mana_ib_tell_address(struct mana_ib_dev *dev,
				const struct mana_ib_address *address)
{
	int err;

	err = mana_ib_cmd_add_address(dev, address);
	if (err == -EINVAL && !is_zero_ether_addr(address->mac)) {
		ibdev_warn_ratelimited(&dev->ibdev,
				       "no RDMA by %pI6c: the NIC may not have its interface's MAC address %pM (manad --policy macs=)\n",
				       &address->gid, address->mac);
		err = -EPERM;
	}
	return err;
}

/*
 * The entry's context is the address as the device knows it; it is NULL if the device
 * does not. Nothing can use the address then, but a GID that is refused would be an
 * error in the log for each address of such an interface. What the NIC's policy
 * forbids is such an error.
 */
int mana_ib_add_gid(const struct ib_gid_attr *attr, void **context)
{
	struct mana_ib_dev *dev = to_mana_dev(attr->device);
	struct mana_ib_address *address;
	u8 mac[ETH_ALEN];
	u16 vlan;
	int err;

	err = mana_ib_source_link(attr, mac, &vlan);
	if (err)
		return err == -EOPNOTSUPP ? 0 : err;
	address = kzalloc(sizeof(*address), GFP_KERNEL);
	if (!address)
		return -ENOMEM;
	address->gid = attr->gid;
	address->vlan = vlan;
	if (mana_ib_has(dev, MANA_HW_EXT_MACS) &&
	    !mana_ib_is_port_mac(dev, attr->port_num, mac))
		ether_addr_copy(address->mac, mac);
	err = mana_ib_tell_address(dev, address);
	if (err)
		kfree(address);
	else
		*context = address;
	return err;
}

int mana_ib_del_gid(const struct ib_gid_attr *attr, void **context)
{
	struct mana_ib_dev *dev = to_mana_dev(attr->device);
	struct mana_ib_address *address = *context;
	int err;

	mana_ib_revoke_source(dev, attr);
	if (!address)
		return 0;
	*context = NULL;
	err = mana_ib_cmd_remove_address(dev, address);
	kfree(address);
	return err;
}

static int mana_ib_associate_netdev(struct mana_ib_dev *dev, u32 port)
{
	struct net_device *ndev;
	int err;

	ndev = mana_ib_parent_netdev(dev, port);
	if (!ndev)
		return -ENODEV;
	err = ib_device_set_netdev(&dev->ibdev, ndev, port);
	if (!err && port == 1 && !dev->ibdev.node_guid)
		addrconf_addr_eui48((u8 *)&dev->ibdev.node_guid,
				    ndev->dev_addr);
	dev_put(ndev);
	return err;
}

/**
 * mana_ib_associate_netdevs - tells the core the interfaces of all ports
 * @dev: device
 */
int mana_ib_associate_netdevs(struct mana_ib_dev *dev)
{
	u32 i;
	int err;

	for (i = 0; i < dev->ports; i++) {
		err = mana_ib_associate_netdev(dev, i + 1);
		if (err)
			return err;
	}
	return 0;
}

/**
 * mana_ib_configure_macs - frames to the interfaces of RDMA ports are the adapter's
 * @dev: device with an adapter
 */
int mana_ib_configure_macs(struct mana_ib_dev *dev)
{
	struct net_device *ndev;
	u8 mac[ETH_ALEN];
	u32 i;
	int err;

	for (i = 0; i < dev->ports; i++) {
		if (!mana_ib_port_is_rdma(dev, i + 1))
			continue;
		ndev = mana_ib_parent_netdev(dev, i + 1);
		if (!ndev)
			return -ENODEV;
		ether_addr_copy(mac, ndev->dev_addr);
		dev_put(ndev);
		err = mana_ib_cmd_add_mac(dev, mac);
		if (err)
			return err;
	}
	return 0;
}

/**
 * mana_ib_netdev_mtu - the largest payload of a datagram on a port, in bytes
 * @dev: device
 * @port: number
 */
u32 mana_ib_netdev_mtu(struct mana_ib_dev *dev, u32 port)
{
	enum ib_mtu mtu = IB_MTU_1024;
	struct net_device *ndev;

	ndev = ib_device_get_netdev(&dev->ibdev, port);
	if (ndev) {
		mtu = mana_ib_mtu(READ_ONCE(ndev->mtu));
		dev_put(ndev);
	}
	return ib_mtu_enum_to_int(mtu);
}

static void mana_ib_port_event(struct mana_ib_dev *dev, u32 port,
			       struct net_device *ndev)
{
	struct ib_event event = {
		.device = &dev->ibdev,
		.element.port_num = port,
	};

	event.event = netif_running(ndev) && netif_carrier_ok(ndev) ?
			      IB_EVENT_PORT_ACTIVE :
			      IB_EVENT_PORT_ERR;
	ib_dispatch_event(&event);
}

static int mana_ib_netdev_event(struct notifier_block *block,
				unsigned long event, void *info)
{
	struct mana_ib_dev *dev =
		container_of(block, struct mana_ib_dev, netdev_events);
	struct net_device *changed = netdev_notifier_info_to_dev(info);
	struct net_device *ndev;
	u32 i;

	/* To a notifier that leaves every interface seems to go down. */
	if (!READ_ONCE(dev->notifying))
		return NOTIFY_DONE;
	for (i = 0; i < dev->ports; i++) {
		if (event == NETDEV_CHANGEUPPER) {
			/* A master that came or went stands for the port. */
			if (changed == mana_ib_parent_lower(dev, i + 1))
				mana_ib_associate_netdev(dev, i + 1);
			continue;
		}
		if (COMPAT_CORE_PORT_EVENTS ||
		    (event != NETDEV_UP && event != NETDEV_DOWN &&
		     event != NETDEV_CHANGE))
			continue;
		ndev = ib_device_get_netdev(&dev->ibdev, i + 1);
		if (ndev == changed)
			mana_ib_port_event(dev, i + 1, ndev);
		dev_put(ndev);
	}
	return NOTIFY_DONE;
}

/**
 * mana_ib_watch_netdevs - follows the interfaces of the ports from now on
 * @dev: registered device
 */
int mana_ib_watch_netdevs(struct mana_ib_dev *dev)
{
	int err;

	dev->netdev_events.notifier_call = mana_ib_netdev_event;
	dev->notifying = true;
	err = register_netdevice_notifier(&dev->netdev_events);
	if (err)
		dev->notifying = false;
	return err;
}

/**
 * mana_ib_unwatch_netdevs - undoes mana_ib_watch_netdevs(), if it was done
 * @dev: device
 */
void mana_ib_unwatch_netdevs(struct mana_ib_dev *dev)
{
	if (!dev->notifying)
		return;
	WRITE_ONCE(dev->notifying, false);
	unregister_netdevice_notifier(&dev->netdev_events);
}

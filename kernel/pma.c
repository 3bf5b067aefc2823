// SPDX-License-Identifier: GPL-2.0
/*
 * The counters of a port that every InfiniBand port has ("counters" in sysfs). The
 * core asks for them as a manager of the fabric would, by performance management
 * (IBTA 16.1): a question is a datagram, and the driver fills in the answer.
 */
#include "cmd.h"
#include "parent.h"
#include "stats.h"
#include "turn.h"

#include <rdma/ib_pma.h>

#define MANA_IB_PMA_VERSION 1

static bool mana_ib_is_fresh(const struct mana_ib_traffic *traffic)
{
	return time_before(jiffies, traffic->asked +
			   msecs_to_jiffies(RDMA_HW_STATS_DEFAULT_LIFESPAN));
}

/* Of a RoCE port: what the adapter counts. Which of it were multicasts, it does not. */
static int mana_ib_ask_adapter(struct mana_ib_dev *dev,
			       struct mana_ib_traffic *traffic)
{
	u64 values[MANA_IB_VF_COUNTERS];
	int err;

	err = mana_ib_cmd_vf_counters(dev, values);
	if (err)
		return err;
	traffic->xmit_bytes = values[MANA_IB_VF_TX_BYTES];
	traffic->rcv_bytes = values[MANA_IB_VF_RX_BYTES];
	traffic->xmit_packets = values[MANA_IB_VF_TX_PACKETS];
	traffic->rcv_packets = values[MANA_IB_VF_RX_PACKETS];
	return 0;
}

/*
 * What passes the ports of an adapter, or of the Ethernet device: each of these
 * counts for all its ports together. Anybody may read the files, each of which is a
 * question of its own, so the device is asked as seldom as for other counters. What
 * it said last holds if it does not answer: a port whose counters fail is more than
 * programs that look at all devices can do with.
 */
static void mana_ib_get_traffic(struct mana_ib_dev *dev, bool roce,
				struct mana_ib_traffic *traffic)
{
	struct mana_ib_traffic *kept = &dev->traffic[roce];
	struct mana_ib_turn turn __cleanup(mana_ib_end_turn) = {};
	struct mana_ib_traffic now = {};
	int err;

	mana_ib_skip_turns(dev, true, &turn);
	mutex_lock(&dev->traffic_lock);
	if (!mana_ib_is_fresh(kept)) {
		err = roce ? mana_ib_ask_adapter(dev, &now) :
			     mana_ib_cmd_ethernet_traffic(dev, &now);
		if (!err)
			*kept = now;
		kept->asked = jiffies;
	}
	*traffic = *kept;
	mutex_unlock(&dev->traffic_lock);
}

/**
 * mana_ib_start_traffic - whether the device counts what passes its ports
 * @dev: device that is not registered yet
 */
bool mana_ib_start_traffic(struct mana_ib_dev *dev)
{
	struct mana_ib_traffic *roce = &dev->traffic[true];
	struct mana_ib_traffic *ethernet = &dev->traffic[false];

	if (dev->rdma && mana_ib_ask_adapter(dev, roce))
		return false;
	/* A RoCE device may have such ports beside the first. */
	if (!mana_ib_port_is_rdma(dev, dev->ports) &&
	    mana_ib_cmd_ethernet_traffic(dev, ethernet))
		return false;
	roce->asked = jiffies;
	ethernet->asked = jiffies;
	return true;
}

/* How often the interface lost its carrier. */
static u32 mana_ib_links_downed(const struct mana_ib_dev *dev, u32 port)
{
	const struct net_device *ndev = mana_ib_parent_lower(dev, port);

	return atomic_read(&ndev->carrier_down_count);
}

/* A counter that is full stays so (IBTA 16.1.3.5). */
static u8 mana_ib_full_at_8(u64 value)
{
	return min_t(u64, value, U8_MAX);
}

static __be16 mana_ib_full_at_16(u64 value)
{
	return cpu_to_be16(min_t(u64, value, U16_MAX));
}

static __be32 mana_ib_full_at_32(u64 value)
{
	return cpu_to_be32(min_t(u64, value, U32_MAX));
}

/* IBTA 13.4.8.1 */
static void mana_ib_fill_class_info(struct ib_class_port_info *info, bool roce)
{
	info->base_version = IB_MGMT_BASE_VERSION;
	info->class_version = MANA_IB_PMA_VERSION;
	/* Without "IETF" there are no counters of unicast and multicast packets. */
	info->capability_mask = roce ? IB_PMA_CLASS_CAP_EXT_WIDTH_NOIETF :
				       IB_PMA_CLASS_CAP_EXT_WIDTH;
}

/* IBTA 16.1.3.5; data is counted in units of four bytes. */
static void mana_ib_fill_counters(struct ib_pma_portcounters *counters,
				  const struct mana_ib_traffic *traffic,
				  u32 port, u32 links_downed)
{
	counters->port_select = port;
	counters->link_downed_counter = mana_ib_full_at_8(links_downed);
	counters->port_rcv_errors = mana_ib_full_at_16(traffic->rcv_overruns);
	counters->port_xmit_discards =
		mana_ib_full_at_16(traffic->xmit_discards);
	counters->port_xmit_constraint_errors =
		mana_ib_full_at_8(traffic->xmit_forbidden);
	counters->port_xmit_data = mana_ib_full_at_32(traffic->xmit_bytes / 4);
	counters->port_rcv_data = mana_ib_full_at_32(traffic->rcv_bytes / 4);
	counters->port_xmit_packets = mana_ib_full_at_32(traffic->xmit_packets);
	counters->port_rcv_packets = mana_ib_full_at_32(traffic->rcv_packets);
}

/* IBTA 16.1.4.11 */
static void mana_ib_fill_ext_counters(struct ib_pma_portcounters_ext *counters,
				      const struct mana_ib_traffic *traffic,
				      u32 port)
{
	counters->port_select = port;
	counters->port_xmit_data = cpu_to_be64(traffic->xmit_bytes / 4);
	counters->port_rcv_data = cpu_to_be64(traffic->rcv_bytes / 4);
	counters->port_xmit_packets = cpu_to_be64(traffic->xmit_packets);
	counters->port_rcv_packets = cpu_to_be64(traffic->rcv_packets);
	counters->port_unicast_xmit_packets =
		cpu_to_be64(traffic->xmit_unicasts);
	counters->port_unicast_rcv_packets = cpu_to_be64(traffic->rcv_unicasts);
	counters->port_multicast_xmit_packets =
		cpu_to_be64(traffic->xmit_multicasts);
	counters->port_multicast_rcv_packets =
		cpu_to_be64(traffic->rcv_multicasts);
}

/*
 * Answers the core. What comes from the network (with a completion) is left to it,
 * which answers that there is no such thing: a neighbour is not told what a guest
 * sends, and has no way to make the driver ask the device.
 */
int mana_ib_process_mad(struct ib_device *ibdev, int flags, u32 port,
			const struct ib_wc *in_wc, const struct ib_grh *in_grh,
			const struct ib_mad *in, struct ib_mad *out,
			size_t *out_bytes, u16 *out_pkey_index)
{
	const struct ib_mad_hdr *header = &in->mad_hdr;
	struct ib_pma_mad *answer = (struct ib_pma_mad *)out;
	struct mana_ib_dev *dev = to_mana_dev(ibdev);
	bool roce = mana_ib_port_is_rdma(dev, port);
	struct mana_ib_traffic traffic;

	BUILD_BUG_ON(sizeof(*answer) != sizeof(*out));
	if (in_wc || header->mgmt_class != IB_MGMT_CLASS_PERF_MGMT ||
	    header->class_version != MANA_IB_PMA_VERSION ||
	    header->method != IB_MGMT_METHOD_GET)
		return IB_MAD_RESULT_SUCCESS;
	if (*out_bytes < sizeof(*out))
		return IB_MAD_RESULT_FAILURE;

	memset(out, 0, sizeof(*out));
	answer->mad_hdr = *header;
	answer->mad_hdr.method = IB_MGMT_METHOD_GET_RESP;
	switch (header->attr_id) {
	case IB_PMA_CLASS_PORT_INFO:
		mana_ib_fill_class_info((void *)answer->data, roce);
		break;
	case IB_PMA_PORT_COUNTERS:
		mana_ib_get_traffic(dev, roce, &traffic);
		mana_ib_fill_counters((void *)answer->data, &traffic, port,
				      mana_ib_links_downed(dev, port));
		break;
	case IB_PMA_PORT_COUNTERS_EXT:
		mana_ib_get_traffic(dev, roce, &traffic);
		mana_ib_fill_ext_counters((void *)answer->data, &traffic, port);
		break;
	default:
		return IB_MAD_RESULT_SUCCESS;
	}
	return IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_REPLY;
}

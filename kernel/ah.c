// SPDX-License-Identifier: GPL-2.0
/* Address handles. */
#include "ah.h"
#include "link.h"
#include "source.h"
#include "udata.h"
#include "user.h"

#include <linux/dma-mapping.h>

#define MANA_IB_DEFAULT_HOPS 64

/* The address vector of the public format takes its own memory: the device reads it. */
#define MANA_IB_AV_BYTES 64

static void mana_ib_fill_ud(struct mana_ib_ah *ah,
			    const struct rdma_ah_attr *attr, u16 vlan)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(attr);
	struct mana_hw_ext_ud *ud = &ah->ud;

	memcpy(ud->dest_gid, grh->dgid.raw, sizeof(ud->dest_gid));
	memcpy(ud->source_gid, grh->sgid_attr->gid.raw, sizeof(ud->source_gid));
	memcpy(ud->dest_mac, attr->roce.dmac, sizeof(ud->dest_mac));
	ud->udp_source_port = rdma_flow_label_to_udp_sport(grh->flow_label);
	ud->hop_limit = grh->hop_limit ? : MANA_IB_DEFAULT_HOPS;
	ud->traffic_class = grh->traffic_class;
	ud->flow_label = grh->flow_label;
	ud->vlan = mana_ib_make_tag(vlan, rdma_ah_get_sl(attr));
}

/* IPv6 addresses go back to front, IPv4 ones stay at the end (RNIC 7.3). */
static void mana_ib_fill_av(struct mana_hw_rnic_av *av,
			    const struct mana_hw_ext_ud *ud)
{
	av->path = ud->hop_limit |
		   (ud->traffic_class >> 2) << MANA_HW_RNIC_AV_DSCP_SHIFT;
	if (ipv6_addr_v4mapped((const struct in6_addr *)ud->source_gid)) {
		av->dest[10] = 0xff;
		av->dest[11] = 0xff;
		mana_ib_reverse(&av->dest[12], &ud->dest_gid[12], 4);
		mana_ib_reverse(&av->source[12], &ud->source_gid[12], 4);
	} else {
		mana_ib_reverse(av->dest, ud->dest_gid, sizeof(av->dest));
		mana_ib_reverse(av->source, ud->source_gid, sizeof(av->source));
		av->path |= MANA_HW_RNIC_AV_IPV6;
	}
	mana_ib_reverse(av->dest_mac, ud->dest_mac, sizeof(av->dest_mac));
	av->udp_source_port = ud->udp_source_port;
}

static int mana_ib_map_av(struct mana_ib_dev *dev, struct mana_ib_ah *ah,
			  gfp_t gfp)
{
	ah->av = kzalloc(MANA_IB_AV_BYTES, gfp);
	if (!ah->av)
		return -ENOMEM;
	mana_ib_fill_av(ah->av, &ah->ud);
	ah->av_dma = dma_map_single(dev->parent, ah->av, MANA_IB_AV_BYTES,
				    DMA_TO_DEVICE);
	if (dma_mapping_error(dev->parent, ah->av_dma)) {
		kfree(ah->av);
		ah->av = NULL;
		return -ENOMEM;
	}
	return 0;
}

int mana_ib_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *init,
		      struct ib_udata *udata)
{
	struct mana_ib_dev *dev = to_mana_dev(ibah->device);
	const struct rdma_ah_attr *attr = init->ah_attr;
	struct mana_uapi_create_ah_resp response = {};
	struct mana_ib_ah *ah = to_mana_ah(ibah);
	u8 mac[ETH_ALEN];
	u16 vlan;
	int err;

	err = mana_ib_udata_empty(udata);
	if (err)
		return err;
	if (attr->type != RDMA_AH_ATTR_TYPE_ROCE ||
	    !(rdma_ah_get_ah_flags(attr) & IB_AH_GRH) || !attr->grh.sgid_attr)
		return -EINVAL;

	err = mana_ib_source_link(attr->grh.sgid_attr, mac, &vlan);
	if (err)
		return err;
	/* Address vectors of the public format have no tag. */
	if (vlan && !mana_ib_has(dev, MANA_HW_EXT_UD))
		return -EOPNOTSUPP;
	ah->attr = *attr;
	ah->attr.grh.sgid_attr = NULL;
	mana_ib_fill_ud(ah, attr, vlan);
	if (udata) {
		err = mana_ib_grant_source(to_mana_pd(ibah->pd),
					   attr->grh.sgid_attr);
		if (err)
			return err;
		ah->user = mana_ib_caller(udata);
		err = mana_ib_take_share(dev, ah->user, MANA_IB_SHARE_HANDLES,
					 1);
		if (err)
			return err;
		memcpy(response.dest_mac, attr->roce.dmac, ETH_ALEN);
		response.vlan = ah->ud.vlan;
		err = mana_ib_udata_out(udata, &response,
					mana_ib_speaks_ours(udata) ?
						sizeof(response) :
						0);
		if (err)
			mana_ib_give_share(dev, ah->user,
					   MANA_IB_SHARE_HANDLES, 1);
		return err;
	}
	if (mana_ib_has(dev, MANA_HW_EXT_UD))
		return 0;
	return mana_ib_map_av(dev, ah,
			      init->flags & RDMA_CREATE_AH_SLEEPABLE ?
				      GFP_KERNEL :
				      GFP_ATOMIC);
}

int mana_ib_query_ah(struct ib_ah *ibah, struct rdma_ah_attr *attr)
{
	*attr = to_mana_ah(ibah)->attr;
	return 0;
}

int mana_ib_destroy_ah(struct ib_ah *ibah, u32 flags)
{
	struct mana_ib_dev *dev = to_mana_dev(ibah->device);
	struct mana_ib_ah *ah = to_mana_ah(ibah);

	if (ah->av) {
		dma_unmap_single(dev->parent, ah->av_dma, MANA_IB_AV_BYTES,
				 DMA_TO_DEVICE);
		kfree(ah->av);
	}
	mana_ib_give_share(dev, ah->user, MANA_IB_SHARE_HANDLES, 1);
	return 0;
}

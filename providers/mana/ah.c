// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"
#include "mana.h"

#define DEFAULT_HOPS 64

/* RoCE v2 source port from a flow label (RNIC 7.3). */
static uint16_t udp_source_port(uint32_t flow_label)
{
	return (uint16_t)(0xc000 | ((flow_label & 0x3fff) ^ ((flow_label >> 14) & 0x3f)));
}

static bool is_ipv4(const uint8_t gid[16])
{
	static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(gid, prefix, sizeof(prefix)) == 0;
}

static void reverse(uint8_t *to, const uint8_t *from, size_t count)
{
	for (size_t i = 0; i < count; i++)
		to[i] = from[count - 1 - i];
}

/* The address vector of the stock format (RNIC 7.3). */
static void fill_stock_av(struct mana_hw_rnic_av *av, const struct mana_hw_ext_ud *ud)
{
	bool ipv4 = is_ipv4(ud->dest_gid);

	memset(av, 0, sizeof(*av));
	if (ipv4) {
		av->dest[10] = 0xff;
		av->dest[11] = 0xff;
		reverse(av->dest + 12, ud->dest_gid + 12, 4);
		reverse(av->source + 12, ud->source_gid + 12, 4);
	} else {
		reverse(av->dest, ud->dest_gid, sizeof(av->dest));
		reverse(av->source, ud->source_gid, sizeof(av->source));
	}
	reverse(av->dest_mac, ud->dest_mac, sizeof(av->dest_mac));
	av->udp_source_port = ud->udp_source_port;
	av->path = (ud->hop_limit & MANA_HW_RNIC_AV_HOP_LIMIT) |
		   (uint32_t)(ud->traffic_class >> 2) << MANA_HW_RNIC_AV_DSCP_SHIFT |
		   (ipv4 ? 0 : MANA_HW_RNIC_AV_IPV6);
}

/* Address handles understand what completions say. */
static_assert(MANA_UAPI_SL_DATAGRAM == MANA_WC_SL_UDP, "datagrams");
static_assert(MANA_UAPI_SL_PRIORITY_SHIFT == MANA_WC_SL_PRIORITY_SHIFT, "priority");

static int fill_av(struct mana_ah *ah, struct ibv_pd *pd, struct ibv_ah_attr *attr,
		   const struct mana_uapi_create_ah_resp *resp)
{
	const struct mana_context *ctx = to_mctx(pd->context);
	struct mana_hw_ext_ud *ud = &ah->av.ud;
	struct mana_pd *protection;
	union ibv_gid source;
	uint16_t vid;
	int ret;

	if (ibv_query_gid(pd->context, attr->port_num, attr->grh.sgid_index, &source))
		return EINVAL;
	memcpy(ud->dest_gid, attr->grh.dgid.raw, sizeof(ud->dest_gid));
	memcpy(ud->source_gid, source.raw, sizeof(ud->source_gid));
	ud->udp_source_port = udp_source_port(attr->grh.flow_label);
	ud->hop_limit = attr->grh.hop_limit ? attr->grh.hop_limit : DEFAULT_HOPS;
	ud->traffic_class = attr->grh.traffic_class;
	ud->flow_label = attr->grh.flow_label;
	/* What the driver has made of `sl` and of the interface with that GID. */
	ud->vlan = resp->vlan;
	if (ctx->caps.flags & MANA_UAPI_CONTEXT_DMAC) {
		memcpy(ud->dest_mac, resp->dest_mac, sizeof(ud->dest_mac));
	} else {
		ret = ibv_resolve_eth_l2_from_gid(pd->context, attr, ud->dest_mac, &vid);
		if (ret)
			return ret < 0 ? -ret : ret;
	}
	if (mana_has(ctx, MANA_HW_EXT_UD))
		return 0;
	protection = mana_protection(to_mpd(pd));
	ret = mana_take_av_slot(ah, protection);
	if (ret)
		return ret;
	ah->pd = protection;
	mana_get_pd(protection);
	fill_stock_av((struct mana_hw_rnic_av *)(uintptr_t)ah->av.stock_address, ud);
	return 0;
}

struct ibv_ah *mana_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct mana_context *ctx = to_mctx(pd->context);
	struct mana_cmd_ah_resp resp = {};
	struct mana_ah *ah;
	int ret;

	if (!mana_has(ctx, MANA_HW_EXT_UD) && !(ctx->caps.flags & MANA_UAPI_CONTEXT_USER_UD)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!attr->is_global) {
		errno = EINVAL;
		return NULL;
	}
	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return NULL;
	ret = ibv_cmd_create_ah(pd, &ah->ibv_ah, attr, &resp.ibv_resp, sizeof(resp));
	if (ret) {
		free(ah);
		errno = ret;
		return NULL;
	}
	ret = fill_av(ah, pd, attr, &resp.drv_payload);
	if (ret) {
		ibv_cmd_destroy_ah(&ah->ibv_ah);
		free(ah);
		errno = ret;
		return NULL;
	}
	ah->parent = mana_enter_parent_of(pd);
	return &ah->ibv_ah;
}

int mana_destroy_ah(struct ibv_ah *ibv_ah)
{
	struct mana_ah *ah = to_mah(ibv_ah);
	int ret = ibv_cmd_destroy_ah(ibv_ah);

	if (ret)
		return ret;
	if (ah->pd) {
		mana_return_av_slot(ah);
		mana_put_pd(ah->pd);
	}
	mana_leave_parent(ah->parent);
	free(ah);
	return 0;
}

int mana_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	if (!mana_has(to_mctx(qp->context), MANA_HW_EXT_MULTICAST))
		return EOPNOTSUPP;
	return ibv_cmd_attach_mcast(qp, gid, lid);
}

int mana_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	if (!mana_has(to_mctx(qp->context), MANA_HW_EXT_MULTICAST))
		return EOPNOTSUPP;
	return ibv_cmd_detach_mcast(qp, gid, lid);
}

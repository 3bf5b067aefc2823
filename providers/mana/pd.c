// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <stdlib.h>

#include "abi.h"
#include "mana.h"

struct mana_pd *mana_new_pd(void)
{
	struct mana_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return NULL;
	pthread_mutex_init(&pd->av_lock, NULL);
	pd->users = 1;
	return pd;
}

static void free_pd(struct mana_pd *pd)
{
	mana_free_av_blocks(pd);
	pthread_mutex_destroy(&pd->av_lock);
	free(pd);
}

void mana_get_pd(struct mana_pd *pd)
{
	__atomic_fetch_add(&pd->users, 1, __ATOMIC_RELAXED);
}

void mana_put_pd(struct mana_pd *pd)
{
	if (__atomic_fetch_sub(&pd->users, 1, __ATOMIC_ACQ_REL) == 1)
		free_pd(pd);
}

struct ibv_pd *mana_alloc_pd(struct ibv_context *context)
{
	struct ib_uverbs_alloc_pd_resp resp = {};
	struct ibv_alloc_pd cmd = {};
	struct mana_pd *pd;
	int ret;

	pd = mana_new_pd();
	if (!pd)
		return NULL;
	ret = ibv_cmd_alloc_pd(context, &pd->ibv_pd, &cmd, sizeof(cmd), &resp, sizeof(resp));
	if (ret) {
		free_pd(pd);
		errno = ret;
		return NULL;
	}
	return &pd->ibv_pd;
}

struct ibv_pd *mana_alloc_parent_domain(struct ibv_context *context,
					struct ibv_parent_domain_init_attr *attr)
{
	struct mana_pd *protection;
	struct mana_pd *pd;

	if (ibv_check_alloc_parent_domain(attr))
		return NULL;
	if (!check_comp_mask(attr->comp_mask, IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
						      IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;
	protection = mana_protection(to_mpd(attr->pd));
	ibv_initialize_parent_domain(&pd->ibv_pd, &protection->ibv_pd);
	pd->protection = protection;
	mana_get_pd(protection);
	if (attr->td) {
		pd->td = container_of(attr->td, struct mana_td, ibv_td);
		__atomic_fetch_add(&pd->td->users, 1, __ATOMIC_RELAXED);
	}
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) {
		pd->alloc = attr->alloc;
		pd->free = attr->free;
	}
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
		pd->context = attr->pd_context;
	return &pd->ibv_pd;
}

static int dealloc_parent_domain(struct mana_pd *pd)
{
	if (__atomic_load_n(&pd->users, __ATOMIC_ACQUIRE))
		return EBUSY;
	if (pd->td)
		__atomic_fetch_sub(&pd->td->users, 1, __ATOMIC_RELAXED);
	mana_put_pd(pd->protection);
	free(pd);
	return 0;
}

int mana_dealloc_pd(struct ibv_pd *ibv_pd)
{
	struct mana_pd *pd = to_mpd(ibv_pd);
	int ret;

	if (pd->protection)
		return dealloc_parent_domain(pd);
	if (__atomic_load_n(&pd->users, __ATOMIC_ACQUIRE) > 1)
		return EBUSY;
	/* To the kernel the blocks are regions in use. */
	mana_free_av_blocks(pd);
	ret = ibv_cmd_dealloc_pd(ibv_pd);
	if (ret)
		return ret;
	free_pd(pd);
	return 0;
}

struct ibv_td *mana_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct mana_td *td;

	if (attr->comp_mask) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	td = calloc(1, sizeof(*td));
	if (!td)
		return NULL;
	td->ibv_td.context = context;
	return &td->ibv_td;
}

int mana_dealloc_td(struct ibv_td *ibv_td)
{
	struct mana_td *td = container_of(ibv_td, struct mana_td, ibv_td);

	if (__atomic_load_n(&td->users, __ATOMIC_RELAXED))
		return EBUSY;
	free(td);
	return 0;
}

// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Address vectors of stock UD, in memory that the device can read: blocks of a PD. */
#include <errno.h>
#include <stdlib.h>

#include "mana.h"

#define SLOTS (MANA_HW_PAGE_BYTES / MANA_AV_BYTES)

static struct mana_av_block *new_block(struct mana_pd *pd)
{
	struct ib_uverbs_reg_mr_resp resp = {};
	struct ibv_reg_mr cmd = {};
	struct mana_av_block *block;
	int ret;

	block = calloc(1, sizeof(*block));
	if (!block)
		return NULL;
	ret = mana_buffer_alloc(&block->buffer, NULL, MANA_HW_PAGE_BYTES, MANA_RES_QP);
	if (!ret)
		ret = ibv_cmd_reg_mr(&pd->ibv_pd, block->buffer.address, MANA_HW_PAGE_BYTES,
				     (uintptr_t)block->buffer.address, IBV_ACCESS_LOCAL_WRITE,
				     &block->mr, &cmd, sizeof(cmd), &resp, sizeof(resp));
	if (ret) {
		mana_buffer_free(&block->buffer, NULL, MANA_RES_QP);
		free(block);
		errno = ret;
		return NULL;
	}
	block->mr.ibv_mr.context = pd->ibv_pd.context;
	block->next = pd->av_blocks;
	pd->av_blocks = block;
	return block;
}

int mana_take_av_slot(struct mana_ah *ah, struct mana_pd *pd)
{
	struct mana_av_block *block;
	int ret = 0;

	pthread_mutex_lock(&pd->av_lock);
	for (block = pd->av_blocks; block && !~block->used; block = block->next)
		;
	if (!block)
		block = new_block(pd);
	if (block) {
		ah->slot = (unsigned int)__builtin_ctzll(~block->used);
		block->used |= 1ULL << ah->slot;
		ah->block = block;
		ah->av.stock_address = (uintptr_t)block->buffer.address +
				       (uint64_t)ah->slot * MANA_AV_BYTES;
		ah->av.stock_lkey = block->mr.ibv_mr.lkey;
	} else {
		ret = errno;
	}
	pthread_mutex_unlock(&pd->av_lock);
	return ret;
}

void mana_return_av_slot(struct mana_ah *ah)
{
	pthread_mutex_lock(&ah->pd->av_lock);
	ah->block->used &= ~(1ULL << ah->slot);
	pthread_mutex_unlock(&ah->pd->av_lock);
}

void mana_free_av_blocks(struct mana_pd *pd)
{
	static_assert(SLOTS == 64, "one word of bits");

	while (pd->av_blocks) {
		struct mana_av_block *block = pd->av_blocks;

		pd->av_blocks = block->next;
		ibv_cmd_dereg_mr(&block->mr);
		mana_buffer_free(&block->buffer, NULL, MANA_RES_QP);
		free(block);
	}
}

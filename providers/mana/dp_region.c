// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "dp_region.h"

/* Spreads keys by all of their bits: which ones differ, the device says. */
static struct mana_dp_region **chain_of(struct mana_dp_regions *table, uint32_t lkey)
{
	return &table->chain[lkey * 0x9e3779b1u >> (32 - MANA_DP_REGION_BITS)];
}

void mana_dp_region_enter(struct mana_dp_regions *table, struct mana_dp_region *region,
			  uint32_t lkey, uint64_t address, uint64_t length)
{
	struct mana_dp_region **chain = chain_of(table, lkey);

	mana_dp_region_leave(region);
	mana_lock(&table->lock);
	region->table = table;
	region->address = address;
	region->length = length;
	region->lkey = lkey;
	region->next = *chain;
	*chain = region;
	mana_unlock(&table->lock);
}

void mana_dp_region_leave(struct mana_dp_region *region)
{
	struct mana_dp_regions *table = region->table;
	struct mana_dp_region **at;

	if (!table)
		return;
	mana_lock(&table->lock);
	for (at = chain_of(table, region->lkey); *at != region; at = &(*at)->next)
		;
	*at = region->next;
	region->table = NULL;
	mana_unlock(&table->lock);
}

bool mana_dp_region_peek(struct mana_dp_regions *table, uint32_t lkey, uint64_t address,
			 uint8_t *byte)
{
	const struct mana_dp_region *region;

	mana_lock(&table->lock);
	for (region = *chain_of(table, lkey); region; region = region->next) {
		/* an address below wraps to one that is behind the end */
		if (region->lkey == lkey && address - region->address < region->length) {
			*byte = *(const uint8_t *)(uintptr_t)address;
			break;
		}
	}
	mana_unlock(&table->lock);
	return region;
}

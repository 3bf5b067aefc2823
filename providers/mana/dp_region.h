/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef MANA_DP_REGION_H
#define MANA_DP_REGION_H

#include "dp_base.h"
#include "lock.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Memory that was registered at the addresses that it has in this process, by lkey. Of what any
 * other lkey names, as another process's of the same PD, the address in an SGE says nothing here.
 * Zeroed, the table is empty.
 */
#define MANA_DP_REGION_BITS 12
#define MANA_DP_REGION_CHAINS (1u << MANA_DP_REGION_BITS)

struct mana_dp_regions {
	/* Taken within that of a CQ; held while memory is looked at, which so does not go. */
	struct mana_lock lock;
	struct mana_dp_region *chain[MANA_DP_REGION_CHAINS];
};

/* One of them. Its owner alone changes it, under the lock of the table. */
struct mana_dp_region {
	struct mana_dp_regions *table; /* that it is in, or NULL */
	struct mana_dp_region *next;
	uint64_t address;
	uint64_t length;
	uint32_t lkey;
};

/*
 * Takes it out of the table that it is in, if any, and puts it in this one. Some may have the
 * same lkey: the device gives one to the next before its last owner hears that it is free.
 */
void mana_dp_region_enter(struct mana_dp_regions *table, struct mana_dp_region *region,
			  uint32_t lkey, uint64_t address, uint64_t length);
/* If it is in one. Once this returns, nobody looks at its memory. */
void mana_dp_region_leave(struct mana_dp_region *region);
/* The byte at the address; false if that is in no region of this lkey. */
bool mana_dp_region_peek(struct mana_dp_regions *table, uint32_t lkey, uint64_t address,
			 uint8_t *byte);

#ifdef __cplusplus
}
#endif
#endif

// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "dp_table.h"

#include <stdlib.h>

int mana_dp_table_add(struct mana_dp_table *table, uint32_t id, struct mana_dp_qp *qp)
{
	struct mana_dp_qp ***slot;
	struct mana_dp_qp **leaf;

	if (id > MANA_HW_RNIC_24BIT)
		return EINVAL;
	slot = &table->leaf[id >> MANA_DP_TABLE_BITS];
	leaf = *slot;
	if (!leaf) {
		leaf = calloc(MANA_DP_TABLE_LEAF, sizeof(*leaf));
		if (!leaf)
			return ENOMEM;
		__atomic_store_n(slot, leaf, __ATOMIC_RELEASE);
	}
	leaf += id & (MANA_DP_TABLE_LEAF - 1);
	if (*leaf)
		return EEXIST;
	__atomic_store_n(leaf, qp, __ATOMIC_RELEASE);
	return 0;
}

void mana_dp_table_remove(struct mana_dp_table *table, uint32_t id, const struct mana_dp_qp *qp)
{
	if (id > MANA_HW_RNIC_24BIT || mana_dp_table_get(table, id) != qp)
		return;
	__atomic_store_n(&table->leaf[id >> MANA_DP_TABLE_BITS][id & (MANA_DP_TABLE_LEAF - 1)],
			 NULL, __ATOMIC_RELEASE);
}

void mana_dp_table_free(struct mana_dp_table *table)
{
	for (size_t i = 0; i < MANA_DP_TABLE_LEAF; i++) {
		free(table->leaf[i]);
		table->leaf[i] = NULL;
	}
}

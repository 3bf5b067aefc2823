/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef MANA_DP_TABLE_H
#define MANA_DP_TABLE_H

#include "dp_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * QPs by a 24-bit queue id. Changes are serialised by the caller; looking up
 * needs no lock, since leaves stay until the table goes.
 */
#define MANA_DP_TABLE_BITS 12
#define MANA_DP_TABLE_LEAF (1u << MANA_DP_TABLE_BITS)

struct mana_dp_table {
	struct mana_dp_qp **leaf[MANA_DP_TABLE_LEAF];
};

/* 0, ENOMEM, EINVAL for an id of more than 24 bits, EEXIST. */
int mana_dp_table_add(struct mana_dp_table *table, uint32_t id, struct mana_dp_qp *qp);
/* Takes the id out if it stands for this QP. */
void mana_dp_table_remove(struct mana_dp_table *table, uint32_t id, const struct mana_dp_qp *qp);
void mana_dp_table_free(struct mana_dp_table *table);

static inline struct mana_dp_qp *mana_dp_table_get(const struct mana_dp_table *table, uint32_t id)
{
	struct mana_dp_qp **leaf;

	leaf = __atomic_load_n(&table->leaf[(id >> MANA_DP_TABLE_BITS) & (MANA_DP_TABLE_LEAF - 1)],
			       __ATOMIC_ACQUIRE);
	if (!leaf)
		return NULL;
	return __atomic_load_n(&leaf[id & (MANA_DP_TABLE_LEAF - 1)], __ATOMIC_ACQUIRE);
}

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: GPL-2.0 */
/* Addresses that users send from. */
#ifndef MANA_IB_SOURCE_H
#define MANA_IB_SOURCE_H

#include "pd.h"

void mana_ib_init_sources(struct mana_ib_dev *dev);
int mana_ib_check_source(const struct ib_gid_attr *sgid);
int mana_ib_check_datagrams(struct mana_ib_dev *dev);
int mana_ib_grant_source(struct mana_ib_pd *pd, const struct ib_gid_attr *sgid);
void mana_ib_revoke_source(struct mana_ib_dev *dev,
			   const struct ib_gid_attr *sgid);

#endif

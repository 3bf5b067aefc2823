/* SPDX-License-Identifier: GPL-2.0 */
/* Event queues: one for each completion vector. */
#ifndef MANA_IB_EQ_H
#define MANA_IB_EQ_H

#include "mana_ib.h"

int mana_ib_create_eqs(struct mana_ib_dev *dev);
void mana_ib_destroy_eqs(struct mana_ib_dev *dev);
int mana_ib_get_raw_eqs(struct mana_ib_dev *dev);
void mana_ib_put_raw_eqs(struct mana_ib_dev *dev);

#endif

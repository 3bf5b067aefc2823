/* SPDX-License-Identifier: GPL-2.0 */
/* What the link layer has of packets. */
#ifndef MANA_IB_LINK_H
#define MANA_IB_LINK_H

#include "mana_ib.h"

int mana_ib_source_link(const struct ib_gid_attr *sgid, u8 *mac, u16 *vlan);
bool mana_ib_is_port_mac(const struct mana_ib_dev *dev, u32 port, const u8 *mac);
u16 mana_ib_make_tag(u16 vlan, u8 sl);

#endif

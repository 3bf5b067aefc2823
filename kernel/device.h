/* SPDX-License-Identifier: GPL-2.0 */
/* The device and its ports, as the core asks for them. */
#ifndef MANA_IB_DEVICE_H
#define MANA_IB_DEVICE_H

#include "mana_ib.h"

u64 mana_ib_interface_version(const struct mana_ib_dev *dev);
int mana_ib_query_device(struct ib_device *ibdev, struct ib_device_attr *attr,
			 struct ib_udata *udata);
int mana_ib_query_port(struct ib_device *ibdev, u32 port,
		       struct ib_port_attr *attr);
int mana_ib_port_immutable(struct ib_device *ibdev, u32 port,
			   struct ib_port_immutable *immutable);
enum rdma_link_layer mana_ib_link_layer(struct ib_device *ibdev, u32 port);
int mana_ib_query_pkey(struct ib_device *ibdev, u32 port, u16 index, u16 *pkey);
int mana_ib_add_gid(const struct ib_gid_attr *attr, void **context);
int mana_ib_del_gid(const struct ib_gid_attr *attr, void **context);
int mana_ib_associate_netdevs(struct mana_ib_dev *dev);
int mana_ib_configure_macs(struct mana_ib_dev *dev);
int mana_ib_watch_netdevs(struct mana_ib_dev *dev);
void mana_ib_unwatch_netdevs(struct mana_ib_dev *dev);
enum ib_mtu mana_ib_max_mtu(const struct mana_ib_dev *dev);
u32 mana_ib_netdev_mtu(struct mana_ib_dev *dev, u32 port);

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the driver needs of its parent, mana.ko. Structures of <net/mana/...> are
 * opened in parent.c alone: they are another module's, and change with it.
 */
#ifndef MANA_IB_PARENT_H
#define MANA_IB_PARENT_H

#include "mana_ib.h"

struct mana_ib_hook;

/* device */
int mana_ib_parent_attach(struct mana_ib_dev *dev, struct gdma_dev *mdev);
void mana_ib_parent_detach(struct mana_ib_dev *dev);
bool mana_ib_parent_is_present(const struct mana_ib_dev *dev);
bool mana_ib_parent_masters_bus(const struct mana_ib_dev *dev);
bool mana_ib_parent_cut_off(struct mana_ib_dev *dev);
int mana_ib_parent_let_in(struct mana_ib_dev *dev);
u32 mana_ib_parent_mtu(const struct mana_ib_dev *dev);
unsigned long mana_ib_parent_doorbell_pfn(const struct mana_ib_dev *dev,
					  u32 page);

/* channel for requests */
struct gdma_dev_id mana_ib_parent_device_id(const struct mana_ib_dev *dev);
struct gdma_dev_id mana_ib_parent_ethernet_id(const struct mana_ib_dev *dev);
int mana_ib_parent_request(struct mana_ib_dev *dev, u32 request_bytes,
			   const void *request, u32 response_bytes,
			   void *response);
u32 mana_ib_parent_waiting(const struct mana_ib_dev *dev);
u32 mana_ib_parent_set_waiting(struct mana_ib_dev *dev, u32 ms);
void mana_ib_parent_forget_frames(struct mana_ib_dev *dev);

/* event queues, and the table of CQs */
int mana_ib_parent_create_eq(struct mana_ib_dev *dev, bool ethernet,
			     unsigned int vector, struct mana_ib_eq *eq);
void mana_ib_parent_mute_eq(struct mana_ib_dev *dev, struct mana_ib_eq *eq);
void mana_ib_parent_free_eq(struct mana_ib_dev *dev, struct mana_ib_eq *eq,
			    bool keep_memory);
struct mana_ib_hook **mana_ib_parent_make_hooks(const struct mana_ib_dev *dev);
int mana_ib_parent_hook_cq(struct mana_ib_dev *dev, u32 id,
			   void (*callback)(void *context), void *context,
			   struct mana_ib_hook **hook);
void mana_ib_parent_mute_cq(struct mana_ib_hook *hook);
void mana_ib_parent_unhook_cq(struct mana_ib_dev *dev,
			      struct mana_ib_hook *hook);

/* Ethernet ports */
u32 mana_ib_parent_ports(const struct mana_ib_dev *dev);
struct net_device *mana_ib_parent_netdev(const struct mana_ib_dev *dev,
					 u32 port);
struct net_device *mana_ib_parent_lower(const struct mana_ib_dev *dev,
					u32 port);
struct mana_port_context *mana_ib_parent_port(const struct mana_ib_dev *dev,
					      u32 port);
u64 mana_ib_port_vport(const struct mana_port_context *port);
u32 mana_ib_port_tx_offset(const struct mana_port_context *port);
bool mana_ib_port_is_running(const struct mana_port_context *port);
int mana_ib_port_take(struct mana_port_context *port, u32 pd_id,
		      u32 doorbell_page);
void mana_ib_port_give(struct mana_port_context *port);

#endif

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * RDMA driver of MANA NICs: the device. Its objects have a header each. What is said
 * to the device is in <mana/...>, what is said to user space in <uapi/mana-abi.h>.
 */
#ifndef MANA_IB_H
#define MANA_IB_H

#include <linux/atomic.h>
#include <linux/auxiliary_bus.h>
#include <linux/completion.h>
#include <linux/idr.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "compat.h"

#include <mana/ext.h>
#include <mana/gdma.h>
#include <mana/queue.h>
#include <uapi/mana-abi.h>

#define MANA_IB_GID_ENTRIES 16
#define MANA_IB_EQ_BYTES 32768
#define MANA_IB_EQ_LOG2_THROTTLE 3
#define MANA_IB_NO_HANDLE U64_MAX
#define MANA_IB_NO_ID U32_MAX
#define MANA_IB_GSI_QPN 1
#define MANA_IB_DEFAULT_PKEY 0xffff
#define MANA_IB_STOCK_CQES 65536
#define MANA_IB_MAX_MESSAGE SZ_1G
#define MANA_IB_MAX_DM SZ_1M
#define MANA_IB_PROBE_MS 2000 /* for an answer that nothing stands in the way of */
#define MANA_IB_WAITING_MS 30000 /* of parents that nobody told otherwise */
#define MANA_IB_VF_COUNTERS 34
#define MANA_IB_DEVICE_COUNTERS 8

/* Of the counters of the adapter, those that the driver itself reads (RNIC 2.11). */
enum {
	MANA_IB_VF_TX_BYTES = 27,
	MANA_IB_VF_RX_BYTES = 28,
	MANA_IB_VF_TX_PACKETS = 32,
	MANA_IB_VF_RX_PACKETS = 33
};

/* What passes ports; 0 where the device does not count it. */
struct mana_ib_traffic {
	u64 xmit_bytes;
	u64 rcv_bytes;
	u64 xmit_packets;
	u64 rcv_packets;
	u64 xmit_unicasts;
	u64 rcv_unicasts;
	u64 xmit_multicasts; /* and broadcasts */
	u64 rcv_multicasts;
	u64 rcv_overruns; /* nobody had room for them */
	u64 xmit_discards;
	u64 xmit_forbidden;
	unsigned long asked; /* in jiffies */
};

/* An event queue of the parent, and its reference to an interrupt. */
struct mana_ib_eq {
	struct gdma_queue *queue;
	struct gdma_queue *memory; /* of the queue, once that is muted */
	bool ethernet; /* of the Ethernet device beside ours */
	int msix;
	u32 id;
};

/* What the device can do, in the terms of the verbs. */
struct mana_ib_limits {
	u32 max_qp;
	u32 max_cq;
	u32 max_mr;
	u32 max_pd;
	u32 max_mw;
	u32 max_srq;
	u32 max_send_wr; /* of stock QPs */
	u32 max_recv_wr;
	u32 max_send_sge;
	u32 max_recv_sge;
	u32 max_cqe;
	u32 max_read_in;
	u32 max_read_out;
	u64 caps; /* MANA_HW_RNIC_CAP_* */
};

/* What MANA_HW_EXT_QUERY_CAPS says; features 0: no extension. */
struct mana_ib_ext_limits {
	u64 features;
	u32 max_srq;
	u32 max_srq_wr;
	u32 max_srq_sge;
	u32 max_send_wr;
	u32 max_recv_wr;
	u32 max_send_sge;
	u32 max_recv_sge;
	u32 max_inline_bytes;
	u32 max_cqe;
	u32 max_fast_reg_pages;
	u32 max_multicast_groups;
	u32 max_multicast_qps;
	u32 clock_khz;
};

struct mana_ib_hook;

/**
 * struct mana_ib_function - what the IB devices of one function share
 * @entry: in the list of all functions
 * @parent: which it is
 * @activity: of the last request. It begins anywhere, so that requests of the parent,
 *	and of a driver that was there before, have others
 * @lock: protects what follows, and how long requests wait. It is held until a
 *	device that does not answer is known to be slow, or is cut off; nothing of
 *	ours is locked inside it
 * @devices: the IB devices
 * @cut_off: a second request was not answered either, or a device that was given up
 *	did not carry one out: nothing of the function reaches memory, all its
 *	devices are given up, and Ethernet waits no more
 * @keeps: memory was kept, and that was said
 * @waiting: how long requests waited when the first device came, in ms
 * @hooks_lock: protects @hooks, and our entries in the parent's table of CQs
 * @hooks: which entries of that are ours, by CQ id; parent.c
 * @users_lock: protects @max_pd, @users, what each has taken, and @turns
 * @max_pd: protection domains that its devices take from: the least that one of them
 *	knows of, 0: none has been asked
 * @users: users of the system who have contexts or requests
 * @turns: threads that wait for no turn; turn.c
 */
struct mana_ib_function {
	struct list_head entry;
	struct device *parent;
	atomic_t activity;
	struct mutex lock; /* what follows, and how long requests wait */
	struct list_head devices;
	bool cut_off;
	bool keeps;
	u32 waiting;
	spinlock_t hooks_lock; /* hooks */
	struct mana_ib_hook **hooks;
	spinlock_t users_lock; /* max_pd, users, what they have, turns */
	u32 max_pd;
	struct list_head users;
	struct list_head turns;
};

/**
 * struct mana_ib_dev - one IB device
 * @ibdev: that of the core
 * @gdev: GDMA device it stands for: that of RDMA, or that of Ethernet; parent.c
 * @gc: function it belongs to; parent.c
 * @eth: Ethernet part of the function; parent.c
 * @parent: the function: for DMA and messages
 * @node: NUMA node of it
 * @part_id: type of @gdev
 * @doorbell_page: the kernel's, by number
 * @doorbells: the kernel's
 * @vectors: completion vectors that the function has
 * @rdma: has RoCE ports
 * @raw: has raw packet QPs
 * @registered: we registered @gdev and have to take that back
 * @notifying: @netdev_events is registered
 * @gone: the device does not answer any more
 * @lost_work: ends the kernel's QPs when that is so
 * @function: what it shares with the other IB device of its function
 * @neighbour: in the function's list
 * @announced: the core takes events
 * @adapter: handle of the RDMA adapter
 * @ports: number of ports
 * @max_contexts: doorbell pages that the function has
 * @page_sizes: of DMA regions, a bit each
 * @limits: of the stock interface
 * @ext: of the extension
 * @on_event: called for each of these, in hard interrupt context: what it is about,
 *	and the extension's word for it
 * @event_eq: events of QPs, CQs and SRQs
 * @eqs: one for each completion vector
 * @eq_count: how many
 * @raw_lock: protects @raw_eqs, and raw packet queues while they are made and
 *	destroyed: what CQs and WQs say of them
 * @raw_eqs: the same for raw packet queues, as long as there are any
 * @raw_users: raw packet QPs
 * @source_lock: protects @sources: held for reading while one is granted
 * @sources: by GID index: counts how often what was granted has ended
 * @qps: QP number to event target of the QP
 * @sqs: SQ id to the same, stock UD QPs of the kernel only
 * @srqs: SRQ id to event target of the SRQ
 * @cqs: CQ id to event target of the CQ
 * @counters: id to struct mana_ib_counter
 * @counted: what QPs have counted while they were bound to a counter, without
 *	those that still are
 * @counter_lock: protects @counters, what is in them, and @counted
 * @traffic: of the Ethernet device's ports, and of the adapter's, as last told
 * @traffic_lock: protects @traffic
 * @packet_qpns: numbers of raw packet QPs with both queues
 * @netdev_events: of the ports' netdevs
 */
struct mana_ib_dev {
	struct ib_device ibdev;
	struct gdma_dev *gdev;
	struct gdma_context *gc;
	struct mana_context *eth;
	struct device *parent;
	int node;
	u32 part_id;
	u32 doorbell_page;
	void __iomem *doorbells;
	unsigned int vectors;
	bool rdma;
	bool raw;
	bool registered;
	bool notifying;
	bool gone;
	struct work_struct lost_work;
	struct mana_ib_function *function;
	struct list_head neighbour;
	bool announced;
	u64 adapter;
	u32 ports;
	u32 max_contexts;
	unsigned long page_sizes;
	struct mana_ib_limits limits;
	struct mana_ib_ext_limits ext;
	void (*on_event)(struct mana_ib_dev *dev, u32 id, u32 word);
	struct mana_ib_eq event_eq;
	struct mana_ib_eq *eqs;
	unsigned int eq_count;
	struct mutex raw_lock; /* raw_eqs and raw packet queues */
	struct mana_ib_eq *raw_eqs;
	u32 raw_users;
	struct rw_semaphore source_lock; /* sources */
	u32 sources[MANA_IB_GID_ENTRIES];
	struct xarray qps;
	struct xarray sqs;
	struct xarray srqs;
	struct xarray cqs;
	struct xarray counters;
	u64 counted[MANA_IB_VF_COUNTERS];
	struct mutex counter_lock; /* counters, their QPs, counted */
	struct mana_ib_traffic traffic[2];
	struct mutex traffic_lock; /* traffic */
	struct ida packet_qpns;
	struct notifier_block netdev_events;
};

static inline struct mana_ib_dev *to_mana_dev(struct ib_device *ibdev)
{
	return container_of(ibdev, struct mana_ib_dev, ibdev);
}

static inline bool mana_ib_has(const struct mana_ib_dev *dev, u64 features)
{
	return (dev->ext.features & features) == features;
}

/* Whether the device was given up, which any thread may find meanwhile. */
static inline bool mana_ib_is_gone(const struct mana_ib_dev *dev)
{
	return READ_ONCE(dev->gone);
}

/* Raw packet QPs of whatever kind. */
static inline bool mana_ib_has_packets(const struct mana_ib_dev *dev)
{
	return dev->raw || mana_ib_has(dev, MANA_HW_EXT_PACKETS);
}

/* Whether a port speaks RoCE; on the others there are raw packets alone. */
static inline bool mana_ib_port_is_rdma(const struct mana_ib_dev *dev, u32 port)
{
	return dev->rdma && (port == 1 || !dev->raw);
}

/* Copies a byte string of the network into the device's order. */
static inline void mana_ib_reverse(u8 *to, const u8 *from, size_t bytes)
{
	while (bytes--)
		*to++ = from[bytes];
}

#endif

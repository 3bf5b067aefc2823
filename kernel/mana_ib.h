/* SPDX-License-Identifier: GPL-2.0 */
/*
 * RDMA driver of MANA NICs: the driver's own structures. What is said to the
 * device is in <mana/...>, what is said to user space in <uapi/mana-abi.h>.
 */
#ifndef MANA_IB_H
#define MANA_IB_H

#include <linux/auxiliary_bus.h>
#include <linux/completion.h>
#include <linux/idr.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
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

/* An event queue of the parent, and its reference to an interrupt. */
struct mana_ib_eq {
	struct gdma_queue *queue;
	int msix;
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

/**
 * struct mana_ib_dev - one IB device
 * @ibdev: that of the core
 * @gdev: GDMA device it stands for: that of RDMA, or that of Ethernet
 * @gc: function it belongs to
 * @eth: Ethernet part of the function: ports, netdevs
 * @rdma: has RoCE ports
 * @raw: has raw packet QPs
 * @registered: we registered @gdev and have to take that back
 * @notifying: @netdev_events is registered
 * @gone: the device does not answer any more
 * @lost_work: ends the kernel's QPs when that is so
 * @silent: a second request was not answered either; Ethernet waits no more
 * @waiting: how long it did before, in ms
 * @announced: the core takes events
 * @adapter: handle of the RDMA adapter
 * @ports: number of ports
 * @page_sizes: of DMA regions, a bit each
 * @limits: of the stock interface
 * @ext: of the extension
 * @event_eq: events of QPs, CQs and SRQs
 * @eqs: one for each completion vector
 * @eq_count: how many
 * @hook_lock: taken before the device's CQ goes, until its hook is gone too;
 *	inside @raw_lock
 * @raw_lock: protects @raw_eqs, and raw packet queues while they are made and
 *	destroyed: what CQs and WQs say of them
 * @raw_eqs: the same for raw packet queues, as long as there are any
 * @raw_users: raw packet QPs
 * @qps: QP number to QP
 * @sqs: SQ id to QP, stock UD QPs of the kernel only
 * @srqs: SRQ id to SRQ
 * @cqs: CQ id to CQ, with the lock and the references of events
 * @counters: id to struct mana_ib_counter
 * @counted: what QPs have counted while they were bound to a counter, without
 *	those that still are
 * @counter_lock: protects @counters, what is in them, and @counted
 * @packet_qpns: numbers of raw packet QPs with both queues
 * @netdev_events: of the ports' netdevs
 */
struct mana_ib_dev {
	struct ib_device ibdev;
	struct gdma_dev *gdev;
	struct gdma_context *gc;
	struct mana_context *eth;
	bool rdma;
	bool raw;
	bool registered;
	bool notifying;
	bool gone;
	struct work_struct lost_work;
	bool silent;
	u32 waiting;
	bool announced;
	u64 adapter;
	u32 ports;
	unsigned long page_sizes;
	struct mana_ib_limits limits;
	struct mana_ib_ext_limits ext;
	struct mana_ib_eq event_eq;
	struct mana_ib_eq *eqs;
	unsigned int eq_count;
	struct mutex hook_lock; /* hooks of CQs that go */
	struct mutex raw_lock; /* raw_eqs and raw packet queues */
	struct mana_ib_eq *raw_eqs;
	u32 raw_users;
	struct xarray qps;
	struct xarray sqs;
	struct xarray srqs;
	struct xarray cqs;
	struct xarray counters;
	u64 counted[MANA_IB_VF_COUNTERS];
	struct mutex counter_lock; /* counters, their QPs, counted */
	struct ida packet_qpns;
	struct notifier_block netdev_events;
};

struct mana_ib_ucontext {
	struct ib_ucontext ibcontext;
	u32 doorbell_page;
};

/**
 * struct mana_ib_pd - protection domain
 * @ibpd: that of the core
 * @handle: for memory and RDMA QPs
 * @id: for Ethernet queues
 * @vport_lock: protects what follows
 * @vport: Ethernet port this PD's raw packet QPs send on
 * @vport_users: raw packet QPs there
 */
struct mana_ib_pd {
	struct ib_pd ibpd;
	u64 handle;
	u32 id;
	struct mutex vport_lock; /* vport, vport_users */
	struct mana_port_context *vport;
	u32 vport_users;
};

struct mana_ib_mr {
	struct ib_mr ibmr;
	struct ib_umem *umem;
	u64 handle;
	int access;
	/* fast registration: the page list the device reads */
	u64 *pages;
	dma_addr_t pages_dma;
	u32 page_count;
	u32 max_pages;
};

struct mana_ib_mw {
	struct ib_mw ibmw;
	u64 handle;
};

struct mana_ib_dm {
	struct ib_dm ibdm;
	u64 handle;
};

/* Memory of a queue of the kernel; the record, if there is one, is its end. */
struct mana_ib_buffer {
	void *cpu;
	dma_addr_t dma;
	size_t bytes;
	u64 region;
};

/* An object that asynchronous events may name. */
struct mana_ib_event_target {
	refcount_t references;
	struct completion released;
};

/**
 * struct mana_ib_cq - completion queue
 * @ibcq: that of the core
 * @handle: of the device, or MANA_IB_NO_HANDLE: an Ethernet CQ
 * @id: of the device; MANA_IB_NO_ID as long as an Ethernet CQ has no queue
 * @vector: completion vector
 * @extended: entries are those of the extension
 * @kernel: polled by us
 * @resize_lock: one resize at a time
 * @umem: ring of a user
 * @buffer: ring of the kernel
 * @record: shared with the device, extended CQs of the kernel
 * @hook: what the parent calls for completion events
 * @target: references of event handlers
 * @lock: protects what follows: polling and arming
 * @consumer: entries taken, counted from @entries on
 * @entries: in the ring, a power of two
 * @arm_sequence: of the last arm
 * @armed: the user waits for an event
 * @rung: consumer at the last stock doorbell
 * @flushing: queues whose requests are completed by software
 */
struct mana_ib_cq {
	struct ib_cq ibcq;
	u64 handle;
	u32 id;
	u32 vector;
	bool extended;
	bool kernel;
	struct mutex resize_lock; /* umem and size of a user's ring */
	struct ib_umem *umem;
	struct mana_ib_buffer buffer;
	struct mana_hw_ext_cq_record *record;
	struct gdma_queue *hook;
	struct mana_ib_event_target target;
	spinlock_t lock; /* polling and arming */
	u32 consumer;
	u32 entries;
	u32 arm_sequence;
	bool armed;
	u32 rung;
	struct list_head flushing;
};

/* A work request that is not completed: what its completion needs. */
struct mana_ib_request {
	u64 wr_id;
	u32 start; /* position of its WQE */
	u32 end; /* position behind its WQE */
	u8 opcode; /* enum ib_wc_opcode */
	bool signaled;
};

/**
 * struct mana_ib_ring - a work queue of the kernel
 * @lock: taken by those who post
 * @wqes: the ring
 * @bytes: its size, a power of two
 * @producer: position behind the newest WQE, in units of the ring
 * @consumer: position behind the newest completed WQE
 * @requests: ring of outstanding requests, @request_mask + 1 of them
 * @head: requests posted; written by those who post, under @lock
 * @tail: requests completed; written by those who poll, under the CQ's lock
 */
struct mana_ib_ring {
	spinlock_t lock; /* posting */
	void *wqes;
	u32 bytes;
	u32 producer;
	u32 consumer;
	struct mana_ib_request *requests;
	u32 request_mask;
	u32 head;
	u32 tail;
};

/* Entry in a CQ's list of queues that software completes. */
struct mana_ib_flush {
	struct list_head entry;
	struct mana_ib_qp *qp;
	bool send;
};

enum mana_ib_qp_format {
	MANA_IB_QP_STOCK_RC,
	MANA_IB_QP_STOCK_UD,
	MANA_IB_QP_EXTENDED,
	MANA_IB_QP_RAW,
	MANA_IB_QP_RSS,
	MANA_IB_QP_PACKET
};

/**
 * struct mana_ib_packet_queue - one direction of a raw packet QP with both queues
 * @cq: the queue's own; its events go to the user's CQ
 * @umem: ring
 * @bytes: size of it
 * @object: of the device, or MANA_IB_NO_HANDLE
 * @id: for doorbells
 */
struct mana_ib_packet_queue {
	struct mana_ib_cq cq;
	struct ib_umem *umem;
	u32 bytes;
	u64 object;
	u32 id;
};

/**
 * struct mana_ib_packets - what a raw packet QP with a data path has
 * @send: send queue
 * @recv: receive queue
 * @spread: it has no queues but this, which receives for it; or MANA_IB_NO_HANDLE
 * @doorbell_page: of the process
 * @port: of the queues
 * @live: the queues, or the spread, exist
 * @flows: rules that give frames to the receive queue or the spread
 *
 * The QP's mutex protects the last three.
 */
struct mana_ib_packets {
	struct mana_ib_packet_queue send;
	struct mana_ib_packet_queue recv;
	u64 spread;
	u32 doorbell_page;
	u32 port;
	bool live;
	struct list_head flows;
};

/**
 * struct mana_ib_qp - queue pair
 * @ibqp: that of the core
 * @format: of its queues
 * @kernel: posted to by us
 * @handle: of the device
 * @sq_id: for doorbells
 * @queue_ids: of a stock RC QP, in the order of the device
 * @target: references of event handlers
 * @mutex: one change of attributes at a time
 * @state: as far as we know
 * @attr: attributes as they were set, and capabilities
 * @signal_all: each send gives a completion
 * @mtu: of stock UD sends, bytes
 * @umems: queues of a user
 * @buffer: queues of the kernel; stock: the SQ
 * @rq_buffer: stock: the RQ
 * @record: shared with the device, extended QPs of the kernel
 * @sq: send queue of the kernel
 * @rq: receive queue of the kernel
 * @send_psn: of stock UD sends
 * @receive_stride: bytes of a receive WQE, extended QPs of the kernel
 * @flush: requests are completed by software
 * @send_flush: entry in the send CQ's list, when @flush
 * @recv_flush: the same in the receive CQ's list
 * @port: Ethernet port of a raw packet QP
 * @has_vport: receive queues took the transmit side of @port for their PD
 * @packets: of a raw packet QP with both queues
 * @counter_base: device counters when the QP was bound to its counter
 * @counter_entry: in the list of that counter
 */
struct mana_ib_qp {
	struct ib_qp ibqp;
	enum mana_ib_qp_format format;
	bool kernel;
	u64 handle;
	u32 sq_id;
	u32 queue_ids[MANA_HW_RNIC_RC_QUEUES];
	struct mana_ib_event_target target;
	struct mutex mutex; /* state and attributes */
	enum ib_qp_state state;
	struct ib_qp_attr attr;
	bool signal_all;
	u32 mtu;
	struct ib_umem *umems[MANA_UAPI_QP_QUEUES];
	struct mana_ib_buffer buffer;
	struct mana_ib_buffer rq_buffer;
	struct mana_hw_ext_qp_record *record;
	struct mana_ib_ring sq;
	struct mana_ib_ring rq;
	u32 send_psn;
	u32 receive_stride;
	bool flush;
	struct mana_ib_flush send_flush;
	struct mana_ib_flush recv_flush;
	struct mana_port_context *port;
	bool has_vport;
	struct mana_ib_packets *packets;
	u64 counter_base[MANA_IB_VF_COUNTERS];
	struct list_head counter_entry;
};

/* A counter of the core, and the QPs that are bound to it. */
struct mana_ib_counter {
	struct list_head qps;
	u64 passed[MANA_IB_VF_COUNTERS]; /* by QPs that were unbound */
};

/**
 * struct mana_ib_srq - shared receive queue
 * @ibsrq: that of the core
 * @handle: of the device
 * @id: of the device
 * @max_wr: receives it holds
 * @max_sge: of one
 * @target: references of event handlers
 * @umem: ring of a user
 * @buffer: ring of the kernel
 * @record: shared with the device
 * @stride: bytes of a WQE
 * @lock: protects what follows, of the kernel's
 * @producer: receives posted
 * @wr_ids: by cookie
 * @free: stack of cookies, @free_count of them
 * @free_count: receives that may be posted
 */
struct mana_ib_srq {
	struct ib_srq ibsrq;
	u64 handle;
	u32 id;
	u32 max_wr;
	u32 max_sge;
	struct mana_ib_event_target target;
	struct ib_umem *umem;
	struct mana_ib_buffer buffer;
	struct mana_hw_ext_srq_record *record;
	u32 stride;
	spinlock_t lock; /* the kernel's receives */
	u32 producer;
	u64 *wr_ids;
	u32 *free;
	u32 free_count;
};

struct mana_ib_ah {
	struct ib_ah ibah;
	struct rdma_ah_attr attr;
	struct mana_hw_ext_ud ud; /* qpn and qkey are of the work request */
	struct mana_hw_rnic_av *av; /* stock sends: read by the device */
	dma_addr_t av_dma;
};

/**
 * struct mana_ib_wq - receive work queue
 * @ibwq: that of the core
 * @umem: ring; direct verbs: the device knows it as part of an RSS QP
 * @object: of the device, or MANA_IB_NO_HANDLE
 * @id: for doorbells
 * @bytes: size of the ring
 * @packet: the queue, if it has a data path; then the above are not used
 * @mutex: protects the states of @packet
 */
struct mana_ib_wq {
	struct ib_wq ibwq;
	struct ib_umem *umem;
	u64 object;
	u32 id;
	u32 bytes;
	struct mana_ib_packet_queue *packet;
	struct mutex mutex; /* states */
};

struct mana_ib_rwq_table {
	struct ib_rwq_ind_table ibtable;
};

static inline struct mana_ib_dev *to_mana_dev(struct ib_device *ibdev)
{
	return container_of(ibdev, struct mana_ib_dev, ibdev);
}

static inline struct mana_ib_ucontext *
to_mana_ucontext(struct ib_ucontext *ibcontext)
{
	return container_of(ibcontext, struct mana_ib_ucontext, ibcontext);
}

/* The context of the process that makes a call. */
static inline struct mana_ib_ucontext *to_user_context(struct ib_udata *udata)
{
	return rdma_udata_to_drv_context(udata, struct mana_ib_ucontext,
					 ibcontext);
}

static inline struct mana_ib_pd *to_mana_pd(struct ib_pd *ibpd)
{
	return container_of(ibpd, struct mana_ib_pd, ibpd);
}

static inline struct mana_ib_mr *to_mana_mr(struct ib_mr *ibmr)
{
	return container_of(ibmr, struct mana_ib_mr, ibmr);
}

static inline struct mana_ib_mw *to_mana_mw(struct ib_mw *ibmw)
{
	return container_of(ibmw, struct mana_ib_mw, ibmw);
}

static inline struct mana_ib_dm *to_mana_dm(struct ib_dm *ibdm)
{
	return container_of(ibdm, struct mana_ib_dm, ibdm);
}

static inline struct mana_ib_cq *to_mana_cq(struct ib_cq *ibcq)
{
	return container_of(ibcq, struct mana_ib_cq, ibcq);
}

static inline struct mana_ib_qp *to_mana_qp(struct ib_qp *ibqp)
{
	return container_of(ibqp, struct mana_ib_qp, ibqp);
}

static inline struct mana_ib_srq *to_mana_srq(struct ib_srq *ibsrq)
{
	return container_of(ibsrq, struct mana_ib_srq, ibsrq);
}

static inline struct mana_ib_ah *to_mana_ah(struct ib_ah *ibah)
{
	return container_of(ibah, struct mana_ib_ah, ibah);
}

static inline struct mana_ib_wq *to_mana_wq(struct ib_wq *ibwq)
{
	return container_of(ibwq, struct mana_ib_wq, ibwq);
}

static inline bool mana_ib_has(const struct mana_ib_dev *dev, u64 features)
{
	return (dev->ext.features & features) == features;
}

/* One store rings a doorbell of the kernel's page. */
static inline void mana_ib_ring_doorbell(struct mana_ib_dev *dev, u32 offset,
					 u64 value)
{
	struct gdma_context *gc = dev->gc;

	/* The queue's memory is written before the device is told. */
	wmb();
	writeq(value, gc->db_page_base +
			      gc->db_page_size * dev->gdev->doorbell + offset);
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

/* The page that queues of this caller are rung from. */
static inline u32 mana_ib_doorbell_page(struct mana_ib_dev *dev,
					struct mana_ib_ucontext *context)
{
	return context ? context->doorbell_page : dev->gdev->doorbell;
}

/* Copies a byte string of the network into the device's order. */
static inline void mana_ib_reverse(u8 *to, const u8 *from, size_t bytes)
{
	while (bytes--)
		*to++ = from[bytes];
}

struct mana_ib_qp_params;
struct mana_ib_qp_result;

/* device.c */
int mana_ib_query_device(struct ib_device *ibdev, struct ib_device_attr *attr,
			 struct ib_udata *udata);
int mana_ib_query_port(struct ib_device *ibdev, u32 port,
		       struct ib_port_attr *attr);
int mana_ib_port_immutable(struct ib_device *ibdev, u32 port,
			   struct ib_port_immutable *immutable);
enum rdma_link_layer mana_ib_link_layer(struct ib_device *ibdev, u32 port);
int mana_ib_query_pkey(struct ib_device *ibdev, u32 port, u16 index, u16 *pkey);
int mana_ib_source_mac(const struct ib_gid_attr *sgid, u8 *mac);
int mana_ib_add_gid(const struct ib_gid_attr *attr, void **context);
int mana_ib_del_gid(const struct ib_gid_attr *attr, void **context);
int mana_ib_associate_netdevs(struct mana_ib_dev *dev);
int mana_ib_configure_macs(struct mana_ib_dev *dev);
int mana_ib_watch_netdevs(struct mana_ib_dev *dev);
void mana_ib_unwatch_netdevs(struct mana_ib_dev *dev);
enum ib_mtu mana_ib_max_mtu(const struct mana_ib_dev *dev);
u32 mana_ib_netdev_mtu(struct mana_ib_dev *dev, u32 port);

/* events.c */
int mana_ib_create_eqs(struct mana_ib_dev *dev);
void mana_ib_destroy_eqs(struct mana_ib_dev *dev);
int mana_ib_get_raw_eqs(struct mana_ib_dev *dev);
void mana_ib_put_raw_eqs(struct mana_ib_dev *dev);
void mana_ib_target_init(struct mana_ib_event_target *target);
void mana_ib_target_release(struct mana_ib_event_target *target);
int mana_ib_hook_cq(struct mana_ib_dev *dev, struct mana_ib_cq *cq);
void mana_ib_mute_cq(struct mana_ib_cq *cq);
void mana_ib_unhook_cq(struct mana_ib_dev *dev, struct mana_ib_cq *cq);
int mana_ib_track(struct xarray *table, u32 id, void *object);
void mana_ib_untrack(struct xarray *table, u32 id);
void mana_ib_end_qps(struct work_struct *work);

/* region.c */
int mana_ib_create_region(struct mana_ib_dev *dev, struct ib_umem *umem,
			  unsigned long page_size, u32 offset, u64 length,
			  u64 *region);
int mana_ib_queue_region(struct mana_ib_dev *dev, u64 address, size_t bytes,
			 struct ib_umem **umem, u64 *region);
int mana_ib_umem_region(struct mana_ib_dev *dev, struct ib_umem *umem,
			u64 *region);
int mana_ib_alloc_buffer(struct mana_ib_dev *dev, size_t bytes,
			 struct mana_ib_buffer *buffer);
void mana_ib_free_buffer(struct mana_ib_dev *dev,
			 struct mana_ib_buffer *buffer);
bool mana_ib_keeps_memory(struct mana_ib_dev *dev);
void mana_ib_release_umem(struct mana_ib_dev *dev, struct ib_umem *umem);

/* ucontext.c, import.c, pd.c */
void mana_ib_describe_context(const struct mana_ib_dev *dev,
			      struct mana_uapi_context_resp *response);
int mana_ib_query_ucontext(struct ib_ucontext *ibcontext,
			   struct uverbs_attr_bundle *attrs);
extern const struct uapi_definition mana_ib_import_defs[];
int mana_ib_alloc_ucontext(struct ib_ucontext *ibcontext,
			   struct ib_udata *udata);
void mana_ib_dealloc_ucontext(struct ib_ucontext *ibcontext);
void mana_ib_disassociate_ucontext(struct ib_ucontext *ibcontext);
int mana_ib_mmap(struct ib_ucontext *ibcontext, struct vm_area_struct *vma);
int mana_ib_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);
int mana_ib_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);

/* mr.c, mw.c */
struct ib_mr *mana_ib_get_dma_mr(struct ib_pd *ibpd, int access);
struct ib_mr *mana_ib_rereg_user_mr(struct ib_mr *ibmr, int flags, u64 start,
				    u64 length, u64 iova, int access,
				    struct ib_pd *ibpd, struct ib_udata *udata);
struct ib_mr *mana_ib_alloc_mr(struct ib_pd *ibpd, enum ib_mr_type type,
			       u32 max_pages);
int mana_ib_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg, int count,
		      unsigned int *offset);
int mana_ib_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata);
struct ib_dm *mana_ib_alloc_dm(struct ib_device *ibdev,
			       struct ib_ucontext *ibcontext,
			       struct ib_dm_alloc_attr *attr,
			       struct uverbs_attr_bundle *attrs);
int mana_ib_dealloc_dm(struct ib_dm *ibdm, struct uverbs_attr_bundle *attrs);
struct ib_mr *mana_ib_reg_dm_mr(struct ib_pd *ibpd, struct ib_dm *ibdm,
				struct ib_dm_mr_attr *attr,
				struct uverbs_attr_bundle *attrs);
int mana_ib_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata);
int mana_ib_dealloc_mw(struct ib_mw *ibmw);
u32 mana_ib_hw_access(int access);

/* cq.c */
int mana_ib_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata);
int mana_ib_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags);

/* poll.c */
int mana_ib_poll_cq(struct ib_cq *ibcq, int count, struct ib_wc *wc);
bool mana_ib_cq_has_completion(struct mana_ib_cq *cq);
void mana_ib_forget_entries(struct mana_ib_cq *cq, struct mana_ib_qp *qp);
void mana_ib_start_flush(struct mana_ib_qp *qp);
void mana_ib_stop_flush(struct mana_ib_qp *qp);
void mana_ib_wake_flush(struct mana_ib_cq *cq);
void mana_ib_ring_cq(struct mana_ib_dev *dev, struct mana_ib_cq *cq, bool arm);

/* qp.c, qp_stock.c, qp_ext.c, qp_state.c */
int mana_ib_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *attr,
		      struct ib_udata *udata);
int mana_ib_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata);
int mana_ib_create_stock_rc(struct mana_ib_qp *qp, struct ib_qp_init_attr *attr,
			    const struct mana_uapi_create_qp *request,
			    struct ib_udata *udata);
int mana_ib_create_stock_ud(struct mana_ib_qp *qp, struct ib_qp_init_attr *attr,
			    const struct mana_uapi_create_qp *request,
			    struct ib_udata *udata);
int mana_ib_create_extended(struct mana_ib_qp *qp, struct ib_qp_init_attr *attr,
			    const struct mana_uapi_create_qp *request,
			    struct ib_udata *udata);
void mana_ib_qp_params(const struct mana_ib_qp *qp,
		       const struct ib_qp_init_attr *attr, u32 doorbell_page,
		       struct mana_ib_qp_params *params);
void mana_ib_qp_made(struct mana_ib_qp *qp,
		     const struct mana_ib_qp_result *result);
void mana_ib_free_queues(struct mana_ib_dev *dev, struct mana_ib_qp *qp);
int mana_ib_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		      struct ib_udata *udata);
void mana_ib_end_qp(struct mana_ib_qp *qp);
int mana_ib_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		     struct ib_qp_init_attr *init);

/* queue.c */
int mana_ib_ring_init(struct mana_ib_ring *ring, void *wqes, u32 bytes,
		      u32 requests, int node);
void mana_ib_ring_free(struct mana_ib_ring *ring);
void mana_ib_ring_reset(struct mana_ib_ring *ring);
void mana_ib_ring_write(const struct mana_ib_ring *ring, u32 position,
			const void *from, u32 bytes);
void mana_ib_ring_push(struct mana_ib_ring *ring, u64 wr_id, u8 opcode,
		       bool signaled, u32 length);
int mana_ib_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		      const struct ib_send_wr **bad);
int mana_ib_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		      const struct ib_recv_wr **bad);

static inline u32 mana_ib_ring_outstanding(const struct mana_ib_ring *ring)
{
	return READ_ONCE(ring->head) - READ_ONCE(ring->tail);
}

static inline struct mana_ib_request *
mana_ib_ring_request(struct mana_ib_ring *ring, u32 index)
{
	return &ring->requests[index & ring->request_mask];
}

/* post_ud.c, post_ext.c: one work request; the ring's lock is held */
int mana_ib_post_send_ud(struct mana_ib_qp *qp, const struct ib_send_wr *wr);
int mana_ib_post_recv_ud(struct mana_ib_qp *qp, const struct ib_recv_wr *wr);
int mana_ib_post_send_ext(struct mana_ib_qp *qp, const struct ib_send_wr *wr);
int mana_ib_post_recv_ext(struct mana_ib_qp *qp, const struct ib_recv_wr *wr);
void mana_ib_ring_send_ud(struct mana_ib_qp *qp);
void mana_ib_ring_recv_ud(struct mana_ib_qp *qp);
void mana_ib_ring_send_ext(struct mana_ib_qp *qp);
void mana_ib_ring_recv_ext(struct mana_ib_qp *qp);
u32 mana_ib_ext_send_bytes(u32 max_sge, bool datagram);
u32 mana_ib_ext_receive_stride(u32 max_sge);
u32 mana_ib_ud_send_bytes(u32 max_sge);
u32 mana_ib_ud_receive_bytes(u32 max_sge);

/* dm.c */
extern const struct uapi_definition mana_ib_dm_defs[];

/* srq.c */
int mana_ib_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *attr,
		       struct ib_udata *udata);
int mana_ib_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
		       enum ib_srq_attr_mask mask, struct ib_udata *udata);
int mana_ib_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr);
int mana_ib_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata);
int mana_ib_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
			  const struct ib_recv_wr **bad);
bool mana_ib_complete_srq(struct mana_ib_srq *srq, u32 cookie, u64 *wr_id);

/* ah.c */
int mana_ib_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *attr,
		      struct ib_udata *udata);
int mana_ib_query_ah(struct ib_ah *ibah, struct rdma_ah_attr *attr);
int mana_ib_destroy_ah(struct ib_ah *ibah, u32 flags);

/* multicast.c */
int mana_ib_attach_multicast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);
int mana_ib_detach_multicast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);

/* raw.c */
int mana_ib_create_raw_qp(struct mana_ib_qp *qp, struct ib_qp_init_attr *attr,
			  struct ib_udata *udata);
void mana_ib_destroy_raw_qp(struct mana_ib_qp *qp);
int mana_ib_create_rss_qp(struct mana_ib_qp *qp, struct ib_qp_init_attr *attr,
			  struct ib_udata *udata);
void mana_ib_destroy_rss_qp(struct mana_ib_qp *qp);
struct ib_wq *mana_ib_create_wq(struct ib_pd *ibpd,
				struct ib_wq_init_attr *attr,
				struct ib_udata *udata);
int mana_ib_modify_wq(struct ib_wq *ibwq, struct ib_wq_attr *attr, u32 mask,
		      struct ib_udata *udata);
int mana_ib_destroy_wq(struct ib_wq *ibwq, struct ib_udata *udata);
int mana_ib_create_rwq_table(struct ib_rwq_ind_table *ibtable,
			     struct ib_rwq_ind_table_init_attr *attr,
			     struct ib_udata *udata);
int mana_ib_destroy_rwq_table(struct ib_rwq_ind_table *ibtable);

/* packet.c */
int mana_ib_create_packet_qp(struct mana_ib_qp *qp,
			     struct ib_qp_init_attr *attr,
			     const struct mana_uapi_create_raw_qp *request,
			     struct ib_udata *udata);
int mana_ib_modify_packet_qp(struct mana_ib_qp *qp, enum ib_qp_state state,
			     u32 port, struct ib_udata *udata);
void mana_ib_destroy_packet_qp(struct mana_ib_qp *qp);
int mana_ib_create_packet_wq(struct mana_ib_wq *wq, struct ib_pd *ibpd,
			     struct ib_wq_init_attr *attr,
			     const struct mana_uapi_packet_queue *from,
			     struct ib_udata *udata);
int mana_ib_modify_packet_wq(struct mana_ib_wq *wq, enum ib_wq_state state);
void mana_ib_destroy_packet_wq(struct mana_ib_wq *wq);
int mana_ib_create_spread_qp(struct mana_ib_qp *qp,
			     struct ib_rwq_ind_table *table,
			     const struct mana_uapi_create_rss_qp *request);

/* flow.c */
int mana_ib_install_flows(struct mana_ib_dev *dev,
			  struct mana_ib_packets *packets);
void mana_ib_forget_flows(struct mana_ib_packets *packets);
struct ib_flow *mana_ib_create_flow(struct ib_qp *ibqp,
				    struct ib_flow_attr *attr,
				    struct ib_udata *udata);
int mana_ib_destroy_flow(struct ib_flow *ibflow);

/* counters.c */
struct rdma_hw_stats *mana_ib_alloc_port_stats(struct ib_device *ibdev,
					       u32 port);
struct rdma_hw_stats *mana_ib_alloc_device_stats(struct ib_device *ibdev);
int mana_ib_get_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats,
		      u32 port, int index);
struct rdma_hw_stats *mana_ib_counter_stats(struct rdma_counter *counter);
int mana_ib_counter_update(struct rdma_counter *counter);
int mana_ib_counter_dealloc(struct rdma_counter *counter);

/* restrack.c */
int mana_ib_fill_qp(struct sk_buff *msg, struct ib_qp *ibqp);
int mana_ib_fill_cq(struct sk_buff *msg, struct ib_cq *ibcq);
int mana_ib_fill_mr(struct sk_buff *msg, struct ib_mr *ibmr);
int mana_ib_fill_srq(struct sk_buff *msg, struct ib_srq *ibsrq);

#endif

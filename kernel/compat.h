/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between kernels, and nothing else: HAVE_* (compat-probe.sh)
 * appears here alone. A shim has the newest kernel's meaning and goes when the
 * oldest supported kernel has what it stands for.
 */
#ifndef MANA_IB_COMPAT_H
#define MANA_IB_COMPAT_H

#include <linux/err.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/overflow.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <net/mana/mana.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_counter.h>
#include <rdma/uverbs_ioctl.h>
#ifdef HAVE_RDMA_ITER
#include <rdma/iter.h>
#endif

/* Since 6.13 the namespace is a string. */
#ifdef HAVE_IMPORT_NS_STRING
#define COMPAT_IMPORT_NS(ns) MODULE_IMPORT_NS(#ns)
#else
#define COMPAT_IMPORT_NS(ns) MODULE_IMPORT_NS(ns)
#endif

/* Since 6.10; goes when that is the oldest kernel. */
#ifndef HAVE_KVCALLOC_NODE
static inline void *kvcalloc_node(size_t count, size_t size, gfp_t flags,
				  int node)
{
	size_t bytes;

	if (check_mul_overflow(count, size, &bytes))
		return NULL;
	return kvzalloc_node(bytes, flags, node);
}
#endif

/*
 * The core keeps it to itself before 6.12; goes when that is the oldest kernel.
 * The interface that was set for the port, to be released with dev_put(); not
 * one that is about to go. The core's lock protects the core's reference, which
 * must not go before there is ours. Ours is no driver with get_netdev.
 */
#ifndef HAVE_DEVICE_GET_NETDEV
static inline struct net_device *ib_device_get_netdev(struct ib_device *ibdev,
						      u32 port)
{
	struct net_device *ndev;
	struct ib_port_data *data;
	unsigned long flags;

	if (!rdma_is_port_valid(ibdev, port))
		return NULL;
	data = &ibdev->port_data[port];
	spin_lock_irqsave(&data->netdev_lock, flags);
	ndev = rcu_dereference_protected(data->netdev,
					 lockdep_is_held(&data->netdev_lock));
	if (ndev && ndev->reg_state != NETREG_REGISTERED)
		ndev = NULL;
	dev_hold(ndev);
	spin_unlock_irqrestore(&data->netdev_lock, flags);
	return ndev;
}
#endif

/*
 * Newer parents register the RDMA device themselves, and have an auxiliary
 * device of its own for Ethernet.
 */
static inline struct gdma_dev *compat_rdma_device(struct gdma_dev *mdev)
{
#ifdef HAVE_GDMA_REGISTER_DEVICE
	struct gdma_context *gc = mdev->gdma_context;

	if (gc->mana_ib.dev_id.type == GDMA_DEVICE_MANA_IB)
		return &gc->mana_ib;
#endif
	return mdev;
}

#ifdef HAVE_GDMA_REGISTER_DEVICE
#define compat_register_device(gdev) mana_gd_register_device(gdev)
#define compat_deregister_device(gdev) mana_gd_deregister_device(gdev)
#define COMPAT_RAW_WITH_RDMA true
#else
static inline int compat_register_device(struct gdma_dev *gdev)
{
	return 0;
}

static inline void compat_deregister_device(struct gdma_dev *gdev)
{
}

#define COMPAT_RAW_WITH_RDMA false
#endif

/* Newer parents want a reference to the interrupt of an EQ. */
static inline int compat_get_interrupt(struct gdma_context *gc, int *msix)
{
#ifdef HAVE_GDMA_GIC
	return PTR_ERR_OR_ZERO(mana_gd_get_gic(gc, false, msix));
#else
	return 0;
#endif
}

static inline void compat_put_interrupt(struct gdma_context *gc, int msix)
{
#ifdef HAVE_GDMA_GIC
	mana_gd_put_gic(gc, false, msix);
#endif
}

/* How long requests wait for an answer, in ms, or 0 if the parent does not say. */
static inline u32 compat_waiting(struct gdma_context *gc)
{
#ifdef HAVE_HWC_TIMEOUT
	struct hw_channel_context *hwc = gc->hwc.driver_data;

	return hwc ? READ_ONCE(hwc->hwc_timeout) : 0;
#else
	return 0;
#endif
}

/*
 * How long requests of the parent and of ours wait for an answer, in ms; what it
 * was before, or 0 if the parent does not say. A parent that got no answer makes
 * it 1 by itself if it is new.
 */
static inline u32 compat_set_waiting(struct gdma_context *gc, u32 ms)
{
#ifdef HAVE_HWC_TIMEOUT
	struct hw_channel_context *hwc = gc->hwc.driver_data;

	return hwc ? xchg(&hwc->hwc_timeout, ms) : 0;
#else
	return 0;
#endif
}

/* Newer parents have a table of pointers to their send queues. */
#ifdef HAVE_TX_QP_POINTERS
#define compat_txq(port, index) (&(port)->tx_qp[index]->txq)
#else
#define compat_txq(port, index) (&(port)->tx_qp[index].txq)
#endif

/*
 * When it ends a queue, a parent frees the memory that it finds there. Newer ones
 * may have it in pages, and free each.
 */
static inline void compat_keep_queue_memory(struct gdma_queue *queue)
{
#ifdef HAVE_QUEUE_PAGES
	queue->mem_info.nr_pages = 0;
#endif
	queue->mem_info.virt_addr = NULL;
}

/* Page sizes beyond 2 MiB are negotiated by newer parents. */
static inline bool compat_big_pages(struct gdma_context *gc)
{
#ifdef HAVE_GDMA_PF_CAPS
	return gc->pf_cap_flags1 & BIT_ULL(4);
#else
	return false;
#endif
}

/* The netdev of a port, or its master; to be released with dev_put(). */
static inline struct net_device *compat_port_netdev(struct mana_context *ac,
						    u32 index)
{
#ifdef HAVE_PRIMARY_NETDEV
	netdevice_tracker tracker;
	struct net_device *ndev;

	ndev = mana_get_primary_netdev(ac, index, &tracker);
	if (ndev) {
		/* The caller's reference is a plain one. */
		dev_hold(ndev);
		netdev_put(ndev, &tracker);
	}
	return ndev;
#else
	struct net_device *ndev;

	if (index >= ac->num_ports)
		return NULL;
	rcu_read_lock();
	ndev = ac->ports[index];
	if (ndev && READ_ONCE(ndev->flags) & IFF_SLAVE)
		ndev = netdev_master_upper_dev_get_rcu(ndev);
	dev_hold(ndev);
	rcu_read_unlock();
	return ndev;
#endif
}

static inline int compat_configure_vport(struct mana_port_context *port,
					 u32 pd_id, u32 doorbell_page)
{
#ifdef HAVE_VPORT_CHANNEL_CHECK
	return mana_cfg_vport(port, pd_id, doorbell_page, true);
#else
	return mana_cfg_vport(port, pd_id, doorbell_page);
#endif
}

static inline struct ib_umem *compat_umem_get(struct ib_device *ibdev, u64 addr,
					      size_t size, int access)
{
#ifdef HAVE_UMEM_GET_VA
	return ib_umem_get_va(ibdev, addr, size, access);
#else
	return ib_umem_get(ibdev, addr, size, access);
#endif
}

/*
 * Newer cores let a process name the ring of a CQ by attributes of the command. In
 * between there were some that pin it before they ask the driver, and end it if the
 * driver refuses.
 */
static inline struct ib_umem *compat_cq_umem_get(struct ib_cq *ibcq,
						 struct ib_udata *udata,
						 u64 addr, size_t size,
						 int access)
{
#ifdef HAVE_CQ_BUFFER
	return ib_umem_get_cq_buf_or_va(ibcq->device,
					rdma_udata_to_uverbs_attr_bundle(udata),
					addr, size, access);
#else
#ifdef HAVE_CQ_UMEM
	if (ibcq->umem)
		return ERR_PTR(-EOPNOTSUPP);
#endif
	return compat_umem_get(ibcq->device, addr, size, access);
#endif
}

/*
 * Since 7.2; goes when that is the oldest kernel. What a provider sends may be longer than
 * what the driver knows if it ends in zeros, and an answer that is longer ends in zeros.
 */
#ifndef HAVE_UDATA_HELPERS
static inline int _ib_copy_validate_udata_in(struct ib_udata *udata, void *req,
					     size_t kernel_size,
					     size_t minimum_size)
{
	int err = -EINVAL;

	if (udata->inlen >= minimum_size)
		err = copy_struct_from_user(req, kernel_size, udata->inbuf,
					    udata->inlen);
	return err == -E2BIG ? -EOPNOTSUPP : err;
}

static inline int _ib_respond_udata(struct ib_udata *udata, const void *src,
				    size_t len)
{
	size_t bytes = min(len, udata->outlen);
	size_t rest = udata->outlen - bytes;

	if (copy_to_user(udata->outbuf, src, bytes) ||
	    clear_user(udata->outbuf + bytes, rest))
		return -EFAULT;
	return 0;
}

static inline int ib_is_udata_in_empty(struct ib_udata *udata)
{
	return udata ? _ib_copy_validate_udata_in(udata, NULL, 0, 0) : 0;
}

static inline int ib_respond_empty_udata(struct ib_udata *udata)
{
	return udata ? _ib_respond_udata(udata, NULL, 0) : 0;
}
#endif

/* Newer cores let a process name the queues of a QP by attributes of the command. */
static inline bool compat_names_queues(struct ib_udata *udata)
{
#ifdef HAVE_QP_BUFFERS
	const struct uverbs_attr_bundle *attrs =
		rdma_udata_to_uverbs_attr_bundle(udata);

	return uverbs_attr_is_valid(attrs, UVERBS_ATTR_CREATE_QP_BUF_UMEM) ||
	       uverbs_attr_is_valid(attrs, UVERBS_ATTR_CREATE_QP_RQ_BUF_UMEM) ||
	       uverbs_attr_is_valid(attrs, UVERBS_ATTR_CREATE_QP_SQ_BUF_UMEM);
#else
	return false;
#endif
}

/* Newer cores turn netdev events into port events. */
#ifdef HAVE_CORE_PORT_EVENTS
#define COMPAT_CORE_PORT_EVENTS true
#else
#define COMPAT_CORE_PORT_EVENTS false
#endif

/*
 * Verbs whose prototypes changed. The driver implements mana_ib_*, the tables
 * of operations name compat_*.
 */
int mana_ib_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		      struct ib_udata *udata);
int mana_ib_resize_cq(struct ib_cq *ibcq, unsigned int entries,
		      struct ib_udata *udata);
struct ib_mr *mana_ib_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length,
				  u64 iova, int access, struct ib_udata *udata);
struct ib_mr *mana_ib_reg_dmabuf_mr(struct ib_pd *ibpd, u64 offset, u64 length,
				    u64 iova, int fd, int access);
int mana_ib_counter_bind_qp(struct rdma_counter *counter, struct ib_qp *ibqp);
int mana_ib_counter_unbind_qp(struct ib_qp *ibqp);
int mana_ib_query_port_speed(struct ib_device *ibdev, u32 port, u64 *speed);

#ifdef HAVE_CREATE_USER_CQ
static inline int compat_create_cq(struct ib_cq *ibcq,
				   const struct ib_cq_init_attr *attr,
				   struct uverbs_attr_bundle *attrs)
{
	return mana_ib_create_cq(ibcq, attr, NULL);
}

static inline int compat_create_user_cq(struct ib_cq *ibcq,
					const struct ib_cq_init_attr *attr,
					struct uverbs_attr_bundle *attrs)
{
	return mana_ib_create_cq(ibcq, attr, &attrs->driver_udata);
}

#define COMPAT_CREATE_CQ_OPS                                                   \
	.create_cq = compat_create_cq, .create_user_cq = compat_create_user_cq
#elif defined(HAVE_CREATE_CQ_BUNDLE)
static inline int compat_create_cq(struct ib_cq *ibcq,
				   const struct ib_cq_init_attr *attr,
				   struct uverbs_attr_bundle *attrs)
{
	return mana_ib_create_cq(ibcq, attr,
				 attrs ? &attrs->driver_udata : NULL);
}

#define COMPAT_CREATE_CQ_OPS .create_cq = compat_create_cq
#else
#define COMPAT_CREATE_CQ_OPS .create_cq = mana_ib_create_cq
#endif

#ifdef HAVE_RESIZE_USER_CQ
#define COMPAT_RESIZE_CQ_OPS .resize_user_cq = mana_ib_resize_cq
#else
static inline int compat_resize_cq(struct ib_cq *ibcq, int entries,
				   struct ib_udata *udata)
{
	return entries < 0 ? -EINVAL :
			     mana_ib_resize_cq(ibcq, entries, udata);
}

#define COMPAT_RESIZE_CQ_OPS .resize_cq = compat_resize_cq
#endif

#ifdef HAVE_DMAH
static inline struct ib_mr *compat_reg_user_mr(struct ib_pd *ibpd, u64 start,
					       u64 length, u64 iova, int access,
					       struct ib_dmah *dmah,
					       struct ib_udata *udata)
{
	if (dmah)
		return ERR_PTR(-EOPNOTSUPP);
	return mana_ib_reg_user_mr(ibpd, start, length, iova, access, udata);
}

static inline struct ib_mr *
compat_reg_dmabuf_mr(struct ib_pd *ibpd, u64 offset, u64 length, u64 iova,
		     int fd, int access, struct ib_dmah *dmah,
		     struct uverbs_attr_bundle *attrs)
{
	if (dmah)
		return ERR_PTR(-EOPNOTSUPP);
	return mana_ib_reg_dmabuf_mr(ibpd, offset, length, iova, fd, access);
}
#else
static inline struct ib_mr *compat_reg_user_mr(struct ib_pd *ibpd, u64 start,
					       u64 length, u64 iova, int access,
					       struct ib_udata *udata)
{
	return mana_ib_reg_user_mr(ibpd, start, length, iova, access, udata);
}

#ifdef HAVE_DMABUF_BUNDLE
#define compat_dmabuf_arguments uverbs_attr_bundle
#else
#define compat_dmabuf_arguments ib_udata
#endif

static inline struct ib_mr *
compat_reg_dmabuf_mr(struct ib_pd *ibpd, u64 offset, u64 length, u64 iova,
		     int fd, int access, struct compat_dmabuf_arguments *unused)
{
	return mana_ib_reg_dmabuf_mr(ibpd, offset, length, iova, fd, access);
}
#endif

#ifdef HAVE_COUNTER_PORT
static inline int compat_counter_bind_qp(struct rdma_counter *counter,
					 struct ib_qp *ibqp, u32 port)
{
	return mana_ib_counter_bind_qp(counter, ibqp);
}

static inline int compat_counter_unbind_qp(struct ib_qp *ibqp, u32 port)
{
	return mana_ib_counter_unbind_qp(ibqp);
}
#else
#define compat_counter_bind_qp mana_ib_counter_bind_qp
#define compat_counter_unbind_qp mana_ib_counter_unbind_qp
#endif

/* Newer cores let the driver embed the counter; ours adds nothing to it. */
#ifdef HAVE_COUNTER_OBJECT
#define COMPAT_COUNTER_OBJECT_OPS                                              \
	.size_rdma_counter = sizeof(struct rdma_counter),
#else
#define COMPAT_COUNTER_OBJECT_OPS
#endif

#ifdef HAVE_COUNTER_INIT
/* What the core made says it all; but the core does not do without this. */
static inline void compat_counter_init(struct rdma_counter *counter)
{
}

#define COMPAT_COUNTER_INIT_OPS .counter_init = compat_counter_init,
#else
#define COMPAT_COUNTER_INIT_OPS
#endif

/*
 * Newer cores tell providers that each command's part of theirs is checked, and its
 * answer filled to the end: mana_ib_udata_*() alone see these.
 */
#ifdef HAVE_ROBUST_UDATA
#define COMPAT_ROBUST_UDATA_OPS .uverbs_robust_udata = true,
#else
#define COMPAT_ROBUST_UDATA_OPS
#endif

#ifdef HAVE_QUERY_PORT_SPEED
#define COMPAT_PORT_SPEED_OPS .query_port_speed = mana_ib_query_port_speed,
#else
#define COMPAT_PORT_SPEED_OPS
#endif

#endif

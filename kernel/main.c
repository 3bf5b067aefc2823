// SPDX-License-Identifier: GPL-2.0
/* Module, probe and remove, tables of operations. */
#include "ah.h"
#include "cmd.h"
#include "device.h"
#include "eq.h"
#include "mr.h"
#include "parent.h"
#include "pd.h"
#include "post.h"
#include "raw.h"
#include "source.h"
#include "srq.h"
#include "stats.h"

#include <linux/dma-mapping.h>
#include <net/mana/mana_auxiliary.h>
#include <rdma/uverbs_ioctl.h>

static void mana_ib_firmware(struct ib_device *ibdev, char *text)
{
	u64 version = mana_ib_interface_version(to_mana_dev(ibdev));

	/* As providers take it apart. */
	snprintf(text, IB_FW_VERSION_NAME_MAX, "%u.%u.%u",
		 (u16)(version >> 32), (u16)(version >> 16), (u16)version);
}

/* Ethernet and RDMA alike. */
static const struct ib_device_ops mana_ib_ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_MANA,
	.uverbs_abi_ver = MANA_UAPI_VERSION,

	COMPAT_CREATE_CQ_OPS,
	COMPAT_PORT_SPEED_OPS
	COMPAT_ROBUST_UDATA_OPS
	.alloc_mw = mana_ib_alloc_mw,
	.alloc_pd = mana_ib_alloc_pd,
	.alloc_ucontext = mana_ib_alloc_ucontext,
	.create_qp = mana_ib_create_qp,
	.dealloc_mw = mana_ib_dealloc_mw,
	.dealloc_pd = mana_ib_dealloc_pd,
	.dealloc_ucontext = mana_ib_dealloc_ucontext,
	.dereg_mr = mana_ib_dereg_mr,
	.destroy_cq = mana_ib_destroy_cq,
	.destroy_qp = mana_ib_destroy_qp,
	.disassociate_ucontext = mana_ib_disassociate_ucontext,
	.fill_res_cq_entry = mana_ib_fill_cq,
	.fill_res_mr_entry = mana_ib_fill_mr,
	.fill_res_qp_entry = mana_ib_fill_qp,
	.get_dev_fw_str = mana_ib_firmware,
	.get_link_layer = mana_ib_link_layer,
	.get_port_immutable = mana_ib_port_immutable,
	.mmap = mana_ib_mmap,
	.modify_qp = mana_ib_modify_qp,
	.query_device = mana_ib_query_device,
	.query_pkey = mana_ib_query_pkey,
	.query_port = mana_ib_query_port,
	.query_qp = mana_ib_query_qp,
	.query_ucontext = mana_ib_query_ucontext,
	.reg_user_mr = compat_reg_user_mr,
	.reg_user_mr_dmabuf = compat_reg_dmabuf_mr,
	.rereg_user_mr = mana_ib_rereg_user_mr,

	INIT_RDMA_OBJ_SIZE(ib_cq, mana_ib_cq, ibcq),
	INIT_RDMA_OBJ_SIZE(ib_mw, mana_ib_mw, ibmw),
	INIT_RDMA_OBJ_SIZE(ib_pd, mana_ib_pd, ibpd),
	INIT_RDMA_OBJ_SIZE(ib_qp, mana_ib_qp, ibqp),
	INIT_RDMA_OBJ_SIZE(ib_ucontext, mana_ib_ucontext, ibcontext),
};

static const struct ib_device_ops mana_ib_raw_ops = {
	.create_rwq_ind_table = mana_ib_create_rwq_table,
	.create_wq = mana_ib_create_wq,
	.destroy_rwq_ind_table = mana_ib_destroy_rwq_table,
	.destroy_wq = mana_ib_destroy_wq,
	.modify_wq = mana_ib_modify_wq,

	INIT_RDMA_OBJ_SIZE(ib_rwq_ind_table, mana_ib_rwq_table, ibtable),
};

static const struct ib_device_ops mana_ib_rdma_ops = {
	.add_gid = mana_ib_add_gid,
	.alloc_dm = mana_ib_alloc_dm,
	.create_ah = mana_ib_create_ah,
	.create_user_ah = mana_ib_create_ah,
	.dealloc_dm = mana_ib_dealloc_dm,
	.del_gid = mana_ib_del_gid,
	.destroy_ah = mana_ib_destroy_ah,
	.get_dma_mr = mana_ib_get_dma_mr,
	.poll_cq = mana_ib_poll_cq,
	.post_recv = mana_ib_post_recv,
	.post_send = mana_ib_post_send,
	.query_ah = mana_ib_query_ah,
	.reg_dm_mr = mana_ib_reg_dm_mr,
	.req_notify_cq = mana_ib_req_notify_cq,

	INIT_RDMA_OBJ_SIZE(ib_ah, mana_ib_ah, ibah),
};

static const struct ib_device_ops mana_ib_port_stats_ops = {
	.alloc_hw_port_stats = mana_ib_alloc_port_stats,
	.get_hw_stats = mana_ib_get_stats,
};

static const struct ib_device_ops mana_ib_pma_ops = {
	.process_mad = mana_ib_process_mad,
};

static const struct ib_device_ops mana_ib_device_stats_ops = {
	.alloc_hw_device_stats = mana_ib_alloc_device_stats,
	.get_hw_stats = mana_ib_get_stats,
};

/* One table for each feature of the extension. */
static const struct ib_device_ops mana_ib_srq_ops = {
	.create_srq = mana_ib_create_srq,
	.destroy_srq = mana_ib_destroy_srq,
	.fill_res_srq_entry = mana_ib_fill_srq,
	.modify_srq = mana_ib_modify_srq,
	.post_srq_recv = mana_ib_post_srq_recv,
	.query_srq = mana_ib_query_srq,

	INIT_RDMA_OBJ_SIZE(ib_srq, mana_ib_srq, ibsrq),
};

static const struct ib_device_ops mana_ib_fast_reg_ops = {
	.alloc_mr = mana_ib_alloc_mr,
	.map_mr_sg = mana_ib_map_mr_sg,
};

static const struct ib_device_ops mana_ib_resize_ops = {
	COMPAT_RESIZE_CQ_OPS,
};

static const struct ib_device_ops mana_ib_multicast_ops = {
	.attach_mcast = mana_ib_attach_multicast,
	.detach_mcast = mana_ib_detach_multicast,
};

static const struct ib_device_ops mana_ib_counter_ops = {
	COMPAT_COUNTER_OBJECT_OPS
	COMPAT_COUNTER_INIT_OPS
	.counter_alloc_stats = mana_ib_counter_stats,
	.counter_bind_qp = compat_counter_bind_qp,
	.counter_dealloc = mana_ib_counter_dealloc,
	.counter_unbind_qp = compat_counter_unbind_qp,
	.counter_update_stats = mana_ib_counter_update,
};

static const struct ib_device_ops mana_ib_flow_ops = {
	.create_flow = mana_ib_create_flow,
	.destroy_flow = mana_ib_destroy_flow,
};

static void mana_ib_set_ops(struct mana_ib_dev *dev)
{
	static const struct {
		u64 features;
		const struct ib_device_ops *ops;
	} extended[] = {
		{ MANA_HW_EXT_SRQ, &mana_ib_srq_ops },
		{ MANA_HW_EXT_FAST_REGISTRATION, &mana_ib_fast_reg_ops },
		{ MANA_HW_EXT_RESIZE, &mana_ib_resize_ops },
		{ MANA_HW_EXT_MULTICAST, &mana_ib_multicast_ops },
		{ MANA_HW_EXT_PACKETS, &mana_ib_flow_ops },
		{ MANA_HW_EXT_PACKET_SPREAD, &mana_ib_raw_ops },
	};
	struct ib_device *ibdev = &dev->ibdev;
	u64 counters[MANA_IB_VF_COUNTERS];
	unsigned int i;

	ib_set_device_ops(ibdev, &mana_ib_ops);
	ibdev->driver_def = mana_ib_import_defs;
	if (dev->raw)
		ib_set_device_ops(ibdev, &mana_ib_raw_ops);
	if (mana_ib_start_traffic(dev))
		ib_set_device_ops(ibdev, &mana_ib_pma_ops);
	if (!dev->rdma)
		return;

	ib_set_device_ops(ibdev, &mana_ib_rdma_ops);
	/* The core cannot do with counters that fail. */
	if (dev->limits.caps & MANA_HW_RNIC_CAP_DEVICE_COUNTERS &&
	    !mana_ib_cmd_device_counters(dev, counters))
		ib_set_device_ops(ibdev, &mana_ib_device_stats_ops);
	if (!mana_ib_cmd_vf_counters(dev, counters)) {
		ib_set_device_ops(ibdev, &mana_ib_port_stats_ops);
		if (mana_ib_has(dev, MANA_HW_EXT_QP_COUNTERS))
			ib_set_device_ops(ibdev, &mana_ib_counter_ops);
	}
	for (i = 0; i < ARRAY_SIZE(extended); i++)
		if (mana_ib_has(dev, extended[i].features))
			ib_set_device_ops(ibdev, extended[i].ops);
}

/* Makes the RDMA adapter, and asks for the extension. */
static int mana_ib_start_rdma(struct mana_ib_dev *dev)
{
	int err;

	err = mana_ib_create_eqs(dev);
	if (err) {
		dev_err(dev->parent, "mana_ib: no event queues: %pe\n",
			ERR_PTR(err));
		return err;
	}
	err = mana_ib_cmd_create_adapter(dev, dev->event_eq.id,
					 &dev->adapter);
	if (err) {
		dev_err(dev->parent, "mana_ib: no adapter: %pe\n",
			ERR_PTR(err));
		goto err_destroy_eqs;
	}
	if (dev->limits.caps & MANA_HW_RNIC_CAP_EXTENSIONS) {
		err = mana_ib_cmd_query_ext_limits(dev, &dev->ext);
		if (err)
			dev_warn(dev->parent,
				 "mana_ib: going on without extension: %pe\n",
				 ERR_PTR(err));
	}
	err = mana_ib_configure_macs(dev);
	if (err) {
		dev_err(dev->parent, "mana_ib: no MAC address: %pe\n",
			ERR_PTR(err));
		goto err_destroy_adapter;
	}
	return 0;

err_destroy_adapter:
	mana_ib_cmd_destroy_adapter(dev);
err_destroy_eqs:
	mana_ib_destroy_eqs(dev);
	return err;
}

static void mana_ib_stop_rdma(struct mana_ib_dev *dev)
{
	mana_ib_cmd_destroy_adapter(dev);
	mana_ib_destroy_eqs(dev);
}

/* Finds out what the device can do, and its ports. */
static int mana_ib_identify(struct mana_ib_dev *dev)
{
	int err;

	if (dev->rdma)
		err = mana_ib_cmd_query_limits(dev, &dev->limits);
	else
		err = mana_ib_cmd_query_ethernet_limits(dev, &dev->limits);
	if (!err)
		err = mana_ib_cmd_query_doorbell_pages(dev, &dev->max_contexts);
	if (err) {
		dev_err(dev->parent, "mana_ib: no capabilities: %pe\n",
			ERR_PTR(err));
		return err;
	}
	mana_ib_limit_pds(dev);
	dev->ports = mana_ib_parent_ports(dev);
	if (!dev->ports) {
		dev_err(dev->parent, "mana_ib: no port has an interface\n");
		return -ENODEV;
	}
	/* RDMA on each port only where the device says so. */
	if (!dev->raw && !(dev->limits.caps & MANA_HW_RNIC_CAP_MULTI_PORT))
		dev->ports = 1;
	return 0;
}

static void mana_ib_init_tables(struct mana_ib_dev *dev)
{
	xa_init_flags(&dev->qps, XA_FLAGS_LOCK_IRQ);
	xa_init_flags(&dev->sqs, XA_FLAGS_LOCK_IRQ);
	xa_init_flags(&dev->srqs, XA_FLAGS_LOCK_IRQ);
	xa_init_flags(&dev->cqs, XA_FLAGS_LOCK_IRQ);
	/* No interrupt uses it, but to lockdep the tables' locks are one. */
	xa_init_flags(&dev->counters, XA_FLAGS_ALLOC1 | XA_FLAGS_LOCK_IRQ);
	INIT_WORK(&dev->lost_work, mana_ib_end_qps);
	mutex_init(&dev->counter_lock);
	mutex_init(&dev->traffic_lock);
	mutex_init(&dev->raw_lock);
	mana_ib_init_sources(dev);
	ida_init(&dev->packet_qpns);
}

static void mana_ib_destroy_tables(struct mana_ib_dev *dev)
{
	/* There are no more requests, so nothing starts it again. */
	cancel_work_sync(&dev->lost_work);
	xa_destroy(&dev->qps);
	xa_destroy(&dev->sqs);
	xa_destroy(&dev->srqs);
	xa_destroy(&dev->cqs);
	xa_destroy(&dev->counters);
	mutex_destroy(&dev->counter_lock);
	mutex_destroy(&dev->traffic_lock);
	mutex_destroy(&dev->raw_lock);
	ida_destroy(&dev->packet_qpns);
}

static int mana_ib_register(struct mana_ib_dev *dev)
{
	struct ib_device *ibdev = &dev->ibdev;
	int err;

	mana_ib_set_ops(dev);
	ibdev->phys_port_cnt = dev->ports;
	ibdev->node_type = RDMA_NODE_IB_CA;
	ibdev->num_comp_vectors = dev->vectors;
	if (dev->eq_count)
		ibdev->num_comp_vectors = dev->eq_count;
	ibdev->dev.parent = dev->parent;
	dma_set_max_seg_size(dev->parent, UINT_MAX);

	err = mana_ib_associate_netdevs(dev);
	if (err) {
		dev_err(dev->parent, "mana_ib: no network device: %pe\n",
			ERR_PTR(err));
		return err;
	}
	return ib_register_device(ibdev,
				  dev->rdma ? "mana_%d" : "manae_%d",
				  dev->parent);
}

/* What an auxiliary device is for, if nothing else. */
#define MANA_IB_RAW_DEVICE 1

/* Some software wants one IB device of a PCI function, as the RDMA plugin of Kubernetes. */
static bool mana_ib_raw_devices = true;
module_param_named(raw_devices, mana_ib_raw_devices, bool, 0444);
MODULE_PARM_DESC(raw_devices,
		 "Also make manae_N, for raw packets by direct verbs (kernels since 7.2; default: yes)");

static int mana_ib_probe(struct auxiliary_device *adev,
			 const struct auxiliary_device_id *id)
{
	struct mana_adev *madev = container_of(adev, struct mana_adev, adev);
	struct mana_ib_dev *dev;
	int err;

	if (id->driver_data == MANA_IB_RAW_DEVICE && !mana_ib_raw_devices)
		return -ENODEV;
	dev = ib_alloc_device(mana_ib_dev, ibdev);
	if (!dev)
		return -ENOMEM;

	mana_ib_init_tables(dev);
	dev->on_event = mana_ib_event;
	err = mana_ib_parent_attach(dev, madev->mdev);
	if (err) {
		dev_err(dev->parent, "mana_ib: not registered: %pe\n",
			ERR_PTR(err));
		goto err_free;
	}
	err = mana_ib_join_function(dev);
	if (err) {
		dev_err(dev->parent, "mana_ib: not taken: %pe\n", ERR_PTR(err));
		goto err_deregister;
	}
	err = mana_ib_identify(dev);
	if (err)
		goto err_deregister;
	if (dev->rdma) {
		err = mana_ib_start_rdma(dev);
		if (err)
			goto err_deregister;
	}
	err = mana_ib_register(dev);
	if (err) {
		dev_err(dev->parent, "mana_ib: not an IB device: %pe\n",
			ERR_PTR(err));
		goto err_stop;
	}
	WRITE_ONCE(dev->announced, true);
	err = mana_ib_watch_netdevs(dev);
	if (err) {
		ibdev_err(&dev->ibdev, "no network device events: %pe\n",
			  ERR_PTR(err));
		goto err_unregister;
	}
	dev_set_drvdata(&adev->dev, dev);
	ibdev_info(&dev->ibdev, "%s, %u port%s, extension %#llx\n",
		   dev->rdma ? "RDMA" : "raw packets", dev->ports,
		   dev->ports == 1 ? "" : "s", dev->ext.features);
	return 0;

err_unregister:
	WRITE_ONCE(dev->announced, false);
	ib_unregister_device(&dev->ibdev);
err_stop:
	if (dev->rdma)
		mana_ib_stop_rdma(dev);
err_deregister:
	mana_ib_parent_detach(dev);
err_free:
	mana_ib_leave_function(dev);
	mana_ib_destroy_tables(dev);
	ib_dealloc_device(&dev->ibdev);
	return err;
}

static void mana_ib_remove(struct auxiliary_device *adev)
{
	struct mana_ib_dev *dev = dev_get_drvdata(&adev->dev);

	mana_ib_unwatch_netdevs(dev);
	WRITE_ONCE(dev->announced, false);
	ib_unregister_device(&dev->ibdev);
	if (dev->rdma)
		mana_ib_stop_rdma(dev);
	if (!mana_ib_is_gone(dev))
		mana_ib_parent_detach(dev);
	mana_ib_leave_function(dev);
	mana_ib_destroy_tables(dev);
	ib_dealloc_device(&dev->ibdev);
}

static const struct auxiliary_device_id mana_ib_ids[] = {
	{ .name = "mana.rdma" },
	{ .name = "mana.eth", .driver_data = MANA_IB_RAW_DEVICE },
	{},
};
MODULE_DEVICE_TABLE(auxiliary, mana_ib_ids);

static struct auxiliary_driver mana_ib_driver = {
	.probe = mana_ib_probe,
	.remove = mana_ib_remove,
	.id_table = mana_ib_ids,
};
module_auxiliary_driver(mana_ib_driver);

MODULE_DESCRIPTION("RDMA driver of Microsoft Azure Network Adapters (OpenMANA)");
MODULE_AUTHOR("The OpenMANA authors");
MODULE_LICENSE("GPL");
MODULE_VERSION(MANA_IB_VERSION);
COMPAT_IMPORT_NS(NET_MANA);

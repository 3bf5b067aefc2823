// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <infiniband/cmd_ioctl.h>
#include <rdma/ib_user_ioctl_cmds.h>

#include "abi.h"
#include "compat.h"
#include "mana.h"

static const struct verbs_match_ent match_table[] = {
	VERBS_DRIVER_ID(RDMA_DRIVER_MANA),
	{},
};

static void mana_free_context(struct ibv_context *context);

static const struct verbs_context_ops context_ops = {
	.alloc_dm = mana_alloc_dm,
	.alloc_mw = mana_alloc_mw,
	.alloc_parent_domain = mana_alloc_parent_domain,
	.alloc_pd = mana_alloc_pd,
	.alloc_td = mana_alloc_td,
	.async_event = mana_async_event,
	.attach_mcast = mana_attach_mcast,
	.cq_event = mana_cq_event,
	.create_ah = mana_create_ah,
	.create_cq = mana_create_cq,
	.create_cq_ex = mana_create_cq_ex,
	.create_flow = mana_create_flow,
	.create_qp = mana_create_qp,
	.create_qp_ex = mana_create_qp_ex,
	.create_rwq_ind_table = mana_create_rwq_ind_table,
	.create_srq = mana_create_srq,
	.create_srq_ex = mana_create_srq_ex,
	.create_wq = mana_create_wq,
	.dealloc_mw = mana_dealloc_mw,
	.dealloc_pd = mana_dealloc_pd,
	.dealloc_td = mana_dealloc_td,
	.dereg_mr = mana_dereg_mr,
	.destroy_ah = mana_destroy_ah,
	.destroy_cq = mana_destroy_cq,
	.destroy_flow = mana_destroy_flow,
	.destroy_qp = mana_destroy_qp,
	.destroy_rwq_ind_table = mana_destroy_rwq_ind_table,
	.destroy_srq = mana_destroy_srq,
	.destroy_wq = mana_destroy_wq,
	.detach_mcast = mana_detach_mcast,
	.free_context = mana_free_context,
	.free_dm = mana_free_dm,
	.get_srq_num = mana_get_srq_num,
	.import_dm = mana_import_dm,
	.import_mr = mana_import_mr,
	.import_pd = mana_import_pd,
	.modify_qp = mana_modify_qp,
	.modify_srq = mana_modify_srq,
	.modify_wq = mana_modify_wq,
	.poll_cq = mana_poll_cq,
	.post_recv = mana_post_recv,
	.post_send = mana_post_send,
	.post_srq_recv = mana_post_srq_recv,
	.query_device_ex = mana_query_device_ex,
	.query_port = mana_query_port,
	MANA_PORT_SPEED_OPS
	.query_qp = mana_query_qp,
	.query_srq = mana_query_srq,
	.reg_dm_mr = mana_reg_dm_mr,
	.reg_dmabuf_mr = mana_reg_dmabuf_mr,
	.reg_mr = mana_reg_mr,
	.req_notify_cq = mana_arm_cq,
	.rereg_mr = mana_rereg_mr,
	.resize_cq = mana_resize_cq,
	.unimport_dm = mana_unimport_dm,
	.unimport_mr = mana_unimport_mr,
	.unimport_pd = mana_unimport_pd,
};

/* Binding is a work request, so it needs QPs of the extended format. */
static const struct verbs_context_ops window_ops = {
	.bind_mw = mana_bind_mw,
};

/* Asks for what the context has, and with that for our formats in its commands. */
static int query_context(struct mana_context *ctx)
{
	DECLARE_COMMAND_BUFFER_LINK(driver, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT, 1,
				    NULL);
	struct mana_uapi_context_resp resp = {};
	int ret;

	fill_attr_out_ptr(driver, MANA_UAPI_ATTR_QUERY_CONTEXT_RESP, &resp);
	ret = ibv_cmd_query_context(&ctx->ibv_ctx.context, driver);
	/* A stock driver does not know the attribute. */
	if (ret == EPROTONOSUPPORT)
		return EOPNOTSUPP;
	if (!ret)
		ctx->caps = resp;
	return ret;
}

static int get_context(struct mana_context *ctx)
{
	struct mana_cmd_context_resp resp = {};
	struct ibv_get_context cmd = {};
	int ret;

	ret = mana_cmd_get_context(&ctx->ibv_ctx, &cmd, sizeof(cmd), &resp.ibv_resp, sizeof(resp));
	if (ret)
		return ret;
	ret = query_context(ctx);
	/* A stock driver has none of that. */
	return ret == EOPNOTSUPP ? 0 : ret;
}

/*
 * A context, by `ask` the owner's or an importer's. Doorbell page and limits are
 * the same for both; tables, locks and memory of queues are each one's own, so a
 * queue is used through the context that made it.
 */
static struct verbs_context *open_context(struct ibv_device *device, int cmd_fd,
					  int (*ask)(struct mana_context *ctx))
{
	struct mana_context *ctx;
	int ret;

	ctx = verbs_init_and_alloc_context(device, cmd_fd, ctx, ibv_ctx, RDMA_DRIVER_MANA);
	if (!ctx)
		return NULL;
	ret = ask(ctx);
	if (ret)
		goto err_context;
	ctx->doorbell = mmap(NULL, MANA_DOORBELL_PAGE_BYTES, PROT_WRITE, MAP_SHARED, cmd_fd, 0);
	if (ctx->doorbell == MAP_FAILED) {
		ret = errno;
		goto err_context;
	}
	pthread_mutex_init(&ctx->table_lock, NULL);
	pthread_cond_init(&ctx->failed, NULL);
	verbs_set_ops(&ctx->ibv_ctx, &context_ops);
	if (mana_has(ctx, MANA_HW_EXT_MEMORY_WINDOWS))
		verbs_set_ops(&ctx->ibv_ctx, &window_ops);
	return &ctx->ibv_ctx;

err_context:
	verbs_uninit_context(&ctx->ibv_ctx);
	free(ctx);
	errno = ret;
	return NULL;
}

static struct verbs_context *mana_alloc_context(struct ibv_device *device, int cmd_fd,
						void *private_data)
{
	return open_context(device, cmd_fd, get_context);
}

static struct verbs_context *mana_import_context(struct ibv_device *device, int cmd_fd)
{
	return open_context(device, cmd_fd, query_context);
}

static void mana_free_context(struct ibv_context *context)
{
	struct mana_context *ctx = to_mctx(context);

	munmap(ctx->doorbell, MANA_DOORBELL_PAGE_BYTES);
	mana_dp_table_free(&ctx->sq_table);
	mana_dp_table_free(&ctx->rq_table);
	pthread_cond_destroy(&ctx->failed);
	pthread_mutex_destroy(&ctx->table_lock);
	verbs_uninit_context(&ctx->ibv_ctx);
	free(ctx);
}

static struct verbs_device *mana_alloc_device(struct verbs_sysfs_dev *sysfs_dev)
{
	return calloc(1, sizeof(struct verbs_device));
}

static void mana_uninit_device(struct verbs_device *device)
{
	free(device);
}

static const struct verbs_device_ops device_ops = {
	.name = "mana",
	.match_min_abi_version = MANA_UAPI_VERSION,
	.match_max_abi_version = MANA_UAPI_VERSION,
	.match_table = match_table,
	.alloc_device = mana_alloc_device,
	.uninit_device = mana_uninit_device,
	.alloc_context = mana_alloc_context,
	.import_context = mana_import_context,
};
PROVIDER_DRIVER(mana, device_ops);

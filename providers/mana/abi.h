/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* The commands of this driver as libibverbs sends them: generic part, our part. */
#ifndef MANA_ABI_H
#define MANA_ABI_H

#include <infiniband/kern-abi.h>

#include <uapi/mana-abi.h>

/* libibverbs mixes our members into its structs; drv_payload is all we use. */
#define _STRUCT_mana_uapi_alloc_context_resp struct {}
#define _STRUCT_mana_uapi_create_cq struct {}
#define _STRUCT_mana_uapi_create_cq_resp struct {}
#define _STRUCT_mana_uapi_resize_cq struct {}
#define _STRUCT_mana_uapi_resize_cq_resp struct {}
#define _STRUCT_mana_uapi_create_qp struct {}
#define _STRUCT_mana_uapi_create_qp_resp struct {}
#define _STRUCT_mana_uapi_create_srq struct {}
#define _STRUCT_mana_uapi_create_srq_resp struct {}
#define _STRUCT_mana_uapi_create_ah_resp struct {}
#define _STRUCT_mana_uapi_create_raw_qp struct {}
#define _STRUCT_mana_uapi_create_raw_qp_resp struct {}
#define _STRUCT_mana_uapi_modify_packet_qp_resp struct {}
#define _STRUCT_mana_uapi_create_wq struct {}
#define _STRUCT_mana_uapi_create_wq_resp struct {}
#define _STRUCT_mana_uapi_create_rss_qp struct {}
#define _STRUCT_mana_uapi_create_rss_qp_resp struct {}

DECLARE_DRV_CMD(mana_cmd_context, IB_USER_VERBS_CMD_GET_CONTEXT, empty,
		mana_uapi_alloc_context_resp);
DECLARE_DRV_CMD(mana_cmd_pd, IB_USER_VERBS_CMD_ALLOC_PD, empty, empty);
DECLARE_DRV_CMD(mana_cmd_cq, IB_USER_VERBS_CMD_CREATE_CQ, mana_uapi_create_cq,
		mana_uapi_create_cq_resp);
DECLARE_DRV_CMD(mana_cmd_resize, IB_USER_VERBS_CMD_RESIZE_CQ, mana_uapi_resize_cq,
		mana_uapi_resize_cq_resp);
DECLARE_DRV_CMD(mana_cmd_qp, IB_USER_VERBS_CMD_CREATE_QP, mana_uapi_create_qp,
		mana_uapi_create_qp_resp);
DECLARE_DRV_CMD(mana_cmd_srq, IB_USER_VERBS_CMD_CREATE_SRQ, mana_uapi_create_srq,
		mana_uapi_create_srq_resp);
DECLARE_DRV_CMD(mana_cmd_xsrq, IB_USER_VERBS_CMD_CREATE_XSRQ, mana_uapi_create_srq,
		mana_uapi_create_srq_resp);
DECLARE_DRV_CMD(mana_cmd_ah, IB_USER_VERBS_CMD_CREATE_AH, empty, mana_uapi_create_ah_resp);
DECLARE_DRV_CMD(mana_cmd_raw_qp, IB_USER_VERBS_CMD_CREATE_QP, mana_uapi_create_raw_qp,
		mana_uapi_create_raw_qp_resp);
DECLARE_DRV_CMD(mana_cmd_modify_packet_qp, IB_USER_VERBS_EX_CMD_MODIFY_QP, empty,
		mana_uapi_modify_packet_qp_resp);
DECLARE_DRV_CMD(mana_cmd_wq, IB_USER_VERBS_EX_CMD_CREATE_WQ, mana_uapi_create_wq,
		mana_uapi_create_wq_resp);
DECLARE_DRV_CMD(mana_cmd_rss_qp, IB_USER_VERBS_EX_CMD_CREATE_QP, mana_uapi_create_rss_qp,
		mana_uapi_create_rss_qp_resp);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What the provider's objects refer to and verbs_test.c has no use for. */
#include <stdlib.h>

#define UNUSED_COMMAND(name) \
    void name(void);         \
    void name(void) {        \
        abort();             \
    }

UNUSED_COMMAND(ibv_cmd_alloc_dm)
UNUSED_COMMAND(ibv_cmd_attach_mcast)
UNUSED_COMMAND(ibv_cmd_create_flow)
UNUSED_COMMAND(ibv_cmd_create_qp_ex2)
UNUSED_COMMAND(ibv_cmd_create_rwq_ind_table)
UNUSED_COMMAND(ibv_cmd_create_srq_ex)
UNUSED_COMMAND(ibv_cmd_destroy_flow)
UNUSED_COMMAND(ibv_cmd_destroy_rwq_ind_table)
UNUSED_COMMAND(ibv_cmd_detach_mcast)
UNUSED_COMMAND(ibv_cmd_free_dm)
UNUSED_COMMAND(ibv_cmd_modify_srq)
UNUSED_COMMAND(ibv_cmd_query_srq)
UNUSED_COMMAND(ibv_cmd_reg_dm_mr)
UNUSED_COMMAND(ibv_cmd_resize_cq)
UNUSED_COMMAND(ibv_resolve_eth_l2_from_gid)

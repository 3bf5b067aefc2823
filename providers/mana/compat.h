/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef MANA_COMPAT_H
#define MANA_COMPAT_H

#include <infiniband/driver.h>

/*
 * Newer trees gave two commands one argument more. Shims for rdma-core 56; they
 * can go when 65 is the oldest tree that counts.
 */
#ifdef MANA_NEWER_COMMANDS
#define mana_cmd_get_context(ctx, cmd, cmd_size, resp, resp_size)                                 \
	ibv_cmd_get_context(ctx, cmd, cmd_size, NULL, resp, resp_size)
#define mana_cmd_create_qp_ex2(ctx, qp, attr, cmd, cmd_size, resp, resp_size)                     \
	ibv_cmd_create_qp_ex2(ctx, qp, attr, cmd, cmd_size, resp, resp_size, NULL)
#else
#define mana_cmd_get_context ibv_cmd_get_context
#define mana_cmd_create_qp_ex2 ibv_cmd_create_qp_ex2
#endif

#endif

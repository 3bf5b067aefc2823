/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef MANA_COMPAT_H
#define MANA_COMPAT_H

#include <errno.h>

#include <infiniband/driver.h>

/*
 * Newer trees gave two commands one argument more, and have a verb for the port's
 * speed. Shims for rdma-core 56; they can go when 65 is the oldest tree that counts.
 */
#ifdef MANA_NEWER_COMMANDS
#define mana_cmd_get_context(ctx, cmd, cmd_size, resp, resp_size)                                 \
	ibv_cmd_get_context(ctx, cmd, cmd_size, NULL, resp, resp_size)
#define mana_cmd_create_qp_ex2(ctx, qp, attr, cmd, cmd_size, resp, resp_size)                     \
	ibv_cmd_create_qp_ex2(ctx, qp, attr, cmd, cmd_size, resp, resp_size, NULL)

static inline int mana_query_port_speed(struct ibv_context *context, uint32_t port,
					uint64_t *speed)
{
	int ret = ibv_cmd_query_port_speed(context, port, speed);

	/* A kernel that does not know the method */
	return ret == EPROTONOSUPPORT ? EOPNOTSUPP : ret;
}

#define MANA_PORT_SPEED_OPS .query_port_speed = mana_query_port_speed,
#else
#define mana_cmd_get_context ibv_cmd_get_context
#define mana_cmd_create_qp_ex2 ibv_cmd_create_qp_ex2
#define MANA_PORT_SPEED_OPS
#endif

#endif

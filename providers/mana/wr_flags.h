/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef MANA_WR_FLAGS_H
#define MANA_WR_FLAGS_H

#include <assert.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include <mana/ext_queue.h>

/* Flags of the verbs. */
static_assert(IBV_SEND_FENCE == 1 && IBV_SEND_SIGNALED == 2, "fence, signaled");
static_assert(IBV_SEND_SOLICITED == 4 && IBV_SEND_INLINE == 8, "solicited, inline");
/* Flags of the device. */
static_assert(MANA_HW_EXT_WQE_SIGNALED == 1 && MANA_HW_EXT_WQE_SOLICITED == 2, "events");
static_assert(MANA_HW_EXT_WQE_FENCE == 4 && MANA_HW_EXT_WQE_INLINE == 8, "fence, inline");

/* Flags of a send in the device's numbers. */
static inline uint8_t mana_wr_flags(unsigned int send_flags)
{
	return (uint8_t)((send_flags >> 1 & 3) | (send_flags << 2 & 4) | (send_flags & 8));
}

#endif

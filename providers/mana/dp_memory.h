/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Copies between the host and device memory that is mapped into the process. */
#ifndef MANA_DP_MEMORY_H
#define MANA_DP_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Offsets and lengths are multiples of this, as other RDMA NICs want it too. */
#define MANA_DP_MEMORY_GRANULE 4

struct mana_dp_memory {
	volatile uint8_t *bytes; /* NULL: not mapped */
	size_t length;
};

/* 0; EINVAL for an odd offset or length, EFAULT beyond the end, EOPNOTSUPP if it is not mapped. */
int mana_dp_copy_to(const struct mana_dp_memory *memory, uint64_t offset, const void *from,
		    size_t length);
int mana_dp_copy_from(void *to, const struct mana_dp_memory *memory, uint64_t offset,
		      size_t length);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: (GPL-2.0 OR Linux-OpenIB) OR Apache-2.0 */
/*
 * What the headers of the hardware ABI are built from: fixed-width integers,
 * packing, and compile-time checks of size and offset.
 *
 * All fields are little endian; both sides of the interface are little-endian
 * machines, so they are declared as plain integers. Every type is named
 * mana_hw_*, every constant MANA_HW_*, so that they can stand beside the names
 * of the Linux driver and of rdma-core in one source file.
 */
#ifndef MANA_TYPES_H
#define MANA_TYPES_H

#ifdef __KERNEL__
#include <linux/build_bug.h>
#include <linux/stddef.h>
#include <linux/types.h>
#else
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#endif

#define MANA_HW_ASSERT(condition) static_assert(condition, #condition)

#define MANA_HW_PACKED __attribute__((packed))

/* To be put behind the definition of each structure. */
#define MANA_HW_SIZE(type, bytes) MANA_HW_ASSERT(sizeof(type) == (bytes))
#define MANA_HW_AT(type, member, at) MANA_HW_ASSERT(offsetof(type, member) == (at))

/* Mask of bits high:low of a 32-bit or 64-bit word, and access to such a field. */
#define MANA_HW_BITS32(high, low) ((0xffffffffU >> (31 - (high))) & ~((1U << (low)) - 1U))
#define MANA_HW_BITS64(high, low) ((~0ULL >> (63 - (high))) & ~((1ULL << (low)) - 1ULL))

/* The DMA unit of the device, whatever the page size of the CPU (GDMA 0.3). */
#define MANA_HW_PAGE_SHIFT 12
#define MANA_HW_PAGE_BYTES 4096

#endif /* MANA_TYPES_H */

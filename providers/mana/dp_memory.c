// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <string.h>

#include "dp_base.h"
#include "dp_memory.h"

static int check(const struct mana_dp_memory *memory, uint64_t offset, size_t length)
{
	if (!memory->bytes)
		return EOPNOTSUPP;
	if (offset % MANA_DP_MEMORY_GRANULE || length % MANA_DP_MEMORY_GRANULE)
		return EINVAL;
	if (length > memory->length || offset > memory->length - length)
		return EFAULT;
	return 0;
}

/*
 * Plain words, and not memcpy(): a hypervisor that has not mapped the BAR into its
 * guest emulates each access, and does not know the vector instructions.
 */
int mana_dp_copy_to(const struct mana_dp_memory *memory, uint64_t offset, const void *from,
		    size_t length)
{
	const int ret = check(memory, offset, length);
	const uint8_t *source = from;
	volatile uint8_t *to;
	uint64_t wide;
	uint32_t word;

	if (ret)
		return ret;
	to = memory->bytes + offset;
	for (; length && (uintptr_t)to % sizeof(wide); length -= sizeof(word)) {
		memcpy(&word, source, sizeof(word));
		*(volatile uint32_t *)to = word;
		to += sizeof(word);
		source += sizeof(word);
	}
	for (; length >= sizeof(wide); length -= sizeof(wide)) {
		memcpy(&wide, source, sizeof(wide));
		*(volatile uint64_t *)to = wide;
		to += sizeof(wide);
		source += sizeof(wide);
	}
	if (length) {
		memcpy(&word, source, sizeof(word));
		*(volatile uint32_t *)to = word;
	}
	/* Write combining: nothing waits in a buffer when the next work request is posted. */
	mana_write_barrier();
	return 0;
}

int mana_dp_copy_from(void *to, const struct mana_dp_memory *memory, uint64_t offset,
		      size_t length)
{
	const int ret = check(memory, offset, length);
	const volatile uint8_t *from;
	uint8_t *target = to;
	uint64_t wide;
	uint32_t word;

	if (ret)
		return ret;
	from = memory->bytes + offset;
	for (; length && (uintptr_t)from % sizeof(wide); length -= sizeof(word)) {
		word = *(const volatile uint32_t *)from;
		memcpy(target, &word, sizeof(word));
		from += sizeof(word);
		target += sizeof(word);
	}
	for (; length >= sizeof(wide); length -= sizeof(wide)) {
		wide = *(const volatile uint64_t *)from;
		memcpy(target, &wide, sizeof(wide));
		from += sizeof(wide);
		target += sizeof(wide);
	}
	if (length) {
		word = *(const volatile uint32_t *)from;
		memcpy(target, &word, sizeof(word));
	}
	return 0;
}

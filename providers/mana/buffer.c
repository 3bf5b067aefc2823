// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mana.h"

static size_t to_pages(size_t length)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (length + page - 1) / page * page;
}

/* True if the parent domain's allocator gave memory, or refused with an errno. */
static bool from_parent(struct mana_buffer *buffer, struct mana_pd *parent, size_t length,
			uint64_t resource_type, int *ret)
{
	void *address;

	if (!parent || !parent->alloc)
		return false;
	address = parent->alloc(&parent->ibv_pd, parent->context, length,
				(size_t)sysconf(_SC_PAGESIZE), resource_type);
	if (address == IBV_ALLOCATOR_USE_DEFAULT)
		return false;
	if (!address) {
		*ret = ENOMEM;
		return true;
	}
	memset(address, 0, length);
	buffer->address = address;
	buffer->length = length;
	buffer->parent = parent;
	*ret = 0;
	return true;
}

int mana_buffer_alloc(struct mana_buffer *buffer, struct mana_pd *parent, size_t length,
		      uint64_t resource_type)
{
	int ret;

	memset(buffer, 0, sizeof(*buffer));
	length = to_pages(length);
	if (from_parent(buffer, parent, length, resource_type, &ret))
		return ret;
	buffer->address = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			       -1, 0);
	if (buffer->address == MAP_FAILED) {
		buffer->address = NULL;
		return errno;
	}
	if (ibv_dontfork_range(buffer->address, length)) {
		ret = errno;
		munmap(buffer->address, length);
		buffer->address = NULL;
		return ret;
	}
	buffer->length = length;
	return 0;
}

int mana_buffer_alloc_external(struct mana_buffer *buffer, struct mana_context *ctx, size_t length)
{
	memset(buffer, 0, sizeof(*buffer));
	buffer->address = ctx->allocators.alloc(length, ctx->allocators.data);
	if (!buffer->address)
		return ENOMEM;
	buffer->length = length;
	buffer->external = true;
	return 0;
}

void mana_buffer_free(struct mana_buffer *buffer, struct mana_context *ctx, uint64_t resource_type)
{
	if (!buffer->address)
		return;
	if (buffer->external) {
		ctx->allocators.free(buffer->address, ctx->allocators.data);
	} else if (buffer->parent) {
		buffer->parent->free(&buffer->parent->ibv_pd, buffer->parent->context,
				     buffer->address, resource_type);
	} else {
		ibv_dofork_range(buffer->address, buffer->length);
		munmap(buffer->address, buffer->length);
	}
	buffer->address = NULL;
}

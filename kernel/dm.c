// SPDX-License-Identifier: GPL-2.0
/*
 * Copies between a process and its device memory. No BAR shows that memory, so
 * each copy is a request to the device, by way of a buffer of the kernel.
 */
#include "cmd.h"
#include "mr.h"
#include "pd.h"
#include "region.h"
#include "udata.h"

#include <linux/dma-mapping.h>

#define UVERBS_MODULE_NAME mana_ib
#include <rdma/uverbs_named_ioctl.h>

/* Each copy has a buffer of its own: several wait for the device alone. */
struct mana_ib_bounce {
	void *cpu;
	dma_addr_t dma;
	size_t bytes;
};

/* As much as one request takes; a page is enough where memory is scarce. */
static int mana_ib_alloc_bounce(struct mana_ib_dev *dev, u64 length,
				struct mana_ib_bounce *bounce)
{
	bounce->bytes = min_t(u64, length, MANA_HW_EXT_COPY_DM_BYTES);
	bounce->cpu = dma_alloc_coherent(dev->parent, bounce->bytes,
					 &bounce->dma,
					 GFP_KERNEL | __GFP_NOWARN |
						 __GFP_NORETRY);
	if (bounce->cpu)
		return 0;
	bounce->bytes = min_t(size_t, bounce->bytes, PAGE_SIZE);
	bounce->cpu = dma_alloc_coherent(dev->parent, bounce->bytes,
					 &bounce->dma, GFP_KERNEL);
	return bounce->cpu ? 0 : -ENOMEM;
}

/* What a request without answer was given, the device may still write to. */
static void mana_ib_free_bounce(struct mana_ib_dev *dev,
				struct mana_ib_bounce *bounce)
{
	if (!mana_ib_keeps_memory(dev))
		dma_free_coherent(dev->parent, bounce->bytes, bounce->cpu,
				  bounce->dma);
}

/* The pieces before one that fails have been copied. */
static int mana_ib_copy_dm(struct mana_ib_ucontext *context,
			   struct mana_ib_dm *dm, u64 offset, u64 at,
			   u64 length, u32 direction)
{
	struct mana_ib_dev *dev = to_mana_dev(dm->ibdm.device);
	bool to_dm = direction == MANA_UAPI_COPY_TO_DM;
	struct mana_ib_bounce bounce;
	u32 piece;
	int err;

	/*
	 * However many threads ask: none of these buffers counts as theirs. Memory of
	 * the process may fault for as long as it likes, so no other waits for it.
	 */
	if (down_killable(&context->copies))
		return -EINTR;
	err = mana_ib_alloc_bounce(dev, length, &bounce);
	if (err)
		goto out;
	for (; length; length -= piece, offset += piece, at += piece) {
		piece = min_t(u64, length, bounce.bytes);
		if (to_dm) {
			err = mana_ib_memory_in(bounce.cpu, at, piece);
			if (err)
				break;
		}
		err = mana_ib_cmd_copy_dm(dev, dm->handle, offset, bounce.dma,
					  piece, to_dm);
		if (err)
			break;
		if (!to_dm) {
			err = mana_ib_memory_out(at, bounce.cpu, piece);
			if (err)
				break;
		}
	}
	mana_ib_free_bounce(dev, &bounce);
out:
	up(&context->copies);
	return err;
}

static int
UVERBS_HANDLER(MANA_UAPI_METHOD_COPY_DM)(struct uverbs_attr_bundle *attrs)
{
	struct ib_dm *ibdm =
		uverbs_attr_get_obj(attrs, MANA_UAPI_ATTR_COPY_DM_HANDLE);
	u64 offset, address, length;
	struct mana_ib_dev *dev;
	u32 direction;
	int err;

	if (IS_ERR(ibdm))
		return PTR_ERR(ibdm);
	err = mana_ib_attr_in(attrs, MANA_UAPI_ATTR_COPY_DM_OFFSET, &offset,
			      sizeof(offset));
	if (!err)
		err = mana_ib_attr_in(attrs, MANA_UAPI_ATTR_COPY_DM_ADDRESS,
				      &address, sizeof(address));
	if (!err)
		err = mana_ib_attr_in(attrs, MANA_UAPI_ATTR_COPY_DM_LENGTH,
				      &length, sizeof(length));
	if (!err)
		err = mana_ib_attr_in(attrs, MANA_UAPI_ATTR_COPY_DM_DIRECTION,
				      &direction, sizeof(direction));
	if (err)
		return err;

	dev = to_mana_dev(ibdm->device);
	if (!mana_ib_has(dev, MANA_HW_EXT_DM_COPIES))
		return -EOPNOTSUPP;
	if (direction != MANA_UAPI_COPY_TO_DM &&
	    direction != MANA_UAPI_COPY_FROM_DM)
		return -EINVAL;
	if (length > ibdm->length || offset > ibdm->length - length)
		return -EINVAL;
	if (!length)
		return 0;
	return mana_ib_copy_dm(to_user_context(&attrs->driver_udata),
			       to_mana_dm(ibdm), offset, address, length,
			       direction);
}

/* Read access: copies go on beside each other, and not while the memory ends. */
DECLARE_UVERBS_NAMED_METHOD(MANA_UAPI_METHOD_COPY_DM,
			    UVERBS_ATTR_IDR(MANA_UAPI_ATTR_COPY_DM_HANDLE,
					    UVERBS_OBJECT_DM,
					    UVERBS_ACCESS_READ, UA_MANDATORY),
			    UVERBS_ATTR_PTR_IN(MANA_UAPI_ATTR_COPY_DM_OFFSET,
					       UVERBS_ATTR_TYPE(u64),
					       UA_MANDATORY),
			    UVERBS_ATTR_PTR_IN(MANA_UAPI_ATTR_COPY_DM_ADDRESS,
					       UVERBS_ATTR_TYPE(u64),
					       UA_MANDATORY),
			    UVERBS_ATTR_PTR_IN(MANA_UAPI_ATTR_COPY_DM_LENGTH,
					       UVERBS_ATTR_TYPE(u64),
					       UA_MANDATORY),
			    UVERBS_ATTR_PTR_IN(MANA_UAPI_ATTR_COPY_DM_DIRECTION,
					       UVERBS_ATTR_TYPE(u32),
					       UA_MANDATORY));

ADD_UVERBS_METHODS(mana_ib_dm_copies, UVERBS_OBJECT_DM,
		   &UVERBS_METHOD(MANA_UAPI_METHOD_COPY_DM));

const struct uapi_definition mana_ib_dm_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DM, &mana_ib_dm_copies),
	{}
};

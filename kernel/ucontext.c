// SPDX-License-Identifier: GPL-2.0
/* User contexts: a doorbell page each. */
#include "cmd.h"
#include "parent.h"
#include "pd.h"
#include "udata.h"
#include "user.h"

#include <linux/mm.h>

#define MANA_IB_COPIES 2 /* of device memory, at once */

/**
 * mana_ib_describe_context - what a provider has to know
 * @dev: device
 * @response: answer, to who makes the context and who imports it
 */
void mana_ib_describe_context(const struct mana_ib_dev *dev,
			      struct mana_uapi_context_resp *response)
{
	const struct mana_ib_ext_limits *ext = &dev->ext;

	*response = (struct mana_uapi_context_resp){
		.bytes = sizeof(*response),
		/* Fast registration names bus addresses: the kernel's alone. */
		.features = ext->features & ~MANA_HW_EXT_FAST_REGISTRATION,
		.max_send_wr = ext->max_send_wr,
		.max_recv_wr = ext->max_recv_wr,
		.max_send_sge = ext->max_send_sge,
		.max_recv_sge = ext->max_recv_sge,
		.max_inline_bytes = ext->max_inline_bytes,
		.max_srq_wr = ext->max_srq_wr,
		.max_srq_sge = ext->max_srq_sge,
		.max_cqe = ext->max_cqe,
		.clock_khz = ext->clock_khz,
	};
	if (dev->rdma)
		response->flags = MANA_UAPI_CONTEXT_USER_UD |
				  MANA_UAPI_CONTEXT_DMAC;
	if (mana_ib_has(dev, MANA_HW_EXT_DM_COPIES))
		response->flags |= MANA_UAPI_CONTEXT_DM_COPIES;
}

int mana_ib_alloc_ucontext(struct ib_ucontext *ibcontext,
			   struct ib_udata *udata)
{
	struct mana_ib_ucontext *context = to_mana_ucontext(ibcontext);
	struct mana_ib_dev *dev = to_mana_dev(ibcontext->device);
	const struct mana_uapi_alloc_context_resp response = {
		.comp_mask = dev->rdma ? MANA_UAPI_MASK_RC_QUEUES : 0,
	};
	int err;

	err = mana_ib_udata_empty(udata);
	if (err)
		return err;
	sema_init(&context->copies, MANA_IB_COPIES);
	context->user = mana_ib_get_user(dev);
	if (IS_ERR(context->user))
		return PTR_ERR(context->user);
	err = mana_ib_cmd_alloc_doorbell_page(dev, &context->doorbell_page);
	if (err) {
		ibdev_dbg(&dev->ibdev, "no doorbell page: %pe\n", ERR_PTR(err));
		goto err_put;
	}
	err = mana_ib_udata_out(udata, &response, sizeof(response));
	if (err)
		goto err_free;
	return 0;

err_free:
	mana_ib_cmd_free_doorbell_page(dev, context->doorbell_page);
err_put:
	mana_ib_put_user(dev, context->user);
	return err;
}

void mana_ib_dealloc_ucontext(struct ib_ucontext *ibcontext)
{
	struct mana_ib_ucontext *context = to_mana_ucontext(ibcontext);
	struct mana_ib_dev *dev = to_mana_dev(ibcontext->device);

	mana_ib_cmd_free_doorbell_page(dev, context->doorbell_page);
	mana_ib_put_user(dev, context->user);
}

/* The core takes the doorbell page away from the process; nothing else is left. */
void mana_ib_disassociate_ucontext(struct ib_ucontext *ibcontext)
{
}

int mana_ib_mmap(struct ib_ucontext *ibcontext, struct vm_area_struct *vma)
{
	struct mana_ib_ucontext *context = to_mana_ucontext(ibcontext);
	struct mana_ib_dev *dev = to_mana_dev(ibcontext->device);
	unsigned long pfn;

	if (vma->vm_pgoff || vma->vm_end - vma->vm_start != PAGE_SIZE)
		return -EINVAL;
	pfn = mana_ib_parent_doorbell_pfn(dev, context->doorbell_page);
	return rdma_user_mmap_io(ibcontext, vma, pfn, PAGE_SIZE,
				 pgprot_writecombine(vma->vm_page_prot), NULL);
}

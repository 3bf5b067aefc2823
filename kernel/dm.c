// SPDX-License-Identifier: GPL-2.0
/*
 * Device memory. With the extension it lies in a BAR, of which a process maps
 * the pages of its own allocations.
 */
#define UVERBS_MODULE_NAME mana_ib
#include "cmd.h"

#include <linux/mm.h>
#include <linux/pci.h>
#include <rdma/uverbs_named_ioctl.h>
#include <rdma/uverbs_types.h>

/* Offset 0 is the doorbell page. */
#define MANA_IB_FIRST_MMAP_PAGE 1

/* Whether processes can map device memory. */
bool mana_ib_maps_dm(const struct mana_ib_dev *dev)
{
	return mana_ib_has(dev, MANA_HW_EXT_DEVICE_MEMORY) &&
	       pci_resource_flags(to_pci_dev(dev->gc->dev),
				  MANA_HW_EXT_DEVICE_MEMORY_BAR) &
		       IORESOURCE_MEM;
}

static void mana_ib_release_dm(struct mana_ib_dev *dev, struct mana_ib_dm *dm)
{
	mana_ib_cmd_free_dm(dev, dm->handle);
	kfree(dm);
}

/* Neither the object nor a mapping is left: the next owner may have it. */
void mana_ib_mmap_free(struct rdma_user_mmap_entry *entry)
{
	mana_ib_release_dm(to_mana_dev(entry->ucontext->device),
			   container_of(entry, struct mana_ib_dm, mmap));
}

/* A mapping is all of one allocation; the core has looked whose it is. */
int mana_ib_mmap_dm(struct ib_ucontext *ibcontext, struct vm_area_struct *vma)
{
	struct rdma_user_mmap_entry *entry;
	struct mana_ib_dm *dm;
	int err;

	entry = rdma_user_mmap_entry_get(ibcontext, vma);
	if (!entry)
		return -EINVAL;
	dm = container_of(entry, struct mana_ib_dm, mmap);
	err = rdma_user_mmap_io(ibcontext, vma, PHYS_PFN(dm->address),
				entry->npages * PAGE_SIZE,
				pgprot_writecombine(vma->vm_page_prot), entry);
	rdma_user_mmap_entry_put(entry);
	return err;
}

/* Finds the memory in the BAR, and an offset for mmap() to name it by. */
static int mana_ib_show_dm(struct mana_ib_dev *dev, struct mana_ib_dm *dm,
			   struct ib_ucontext *ibcontext, u64 bytes,
			   u64 bar_offset)
{
	struct pci_dev *pdev = to_pci_dev(dev->gc->dev);
	u64 size = pci_resource_len(pdev, MANA_HW_EXT_DEVICE_MEMORY_BAR);

	if (bytes > size || bar_offset > size - bytes ||
	    !PAGE_ALIGNED(bar_offset)) {
		ibdev_err_ratelimited(&dev->ibdev,
				      "device memory at %#llx of %#llx\n",
				      bar_offset, size);
		return -EPROTO;
	}
	dm->address = pci_resource_start(pdev, MANA_HW_EXT_DEVICE_MEMORY_BAR) +
		      bar_offset;
	return rdma_user_mmap_entry_insert_range(ibcontext, &dm->mmap, bytes,
						 MANA_IB_FIRST_MMAP_PAGE,
						 U32_MAX);
}

struct ib_dm *mana_ib_alloc_dm(struct ib_device *ibdev,
			       struct ib_ucontext *ibcontext,
			       struct ib_dm_alloc_attr *attr,
			       struct uverbs_attr_bundle *attrs)
{
	struct mana_ib_dev *dev = to_mana_dev(ibdev);
	u32 alignment = attr->alignment;
	u64 bytes = attr->length;
	u64 bar_offset, offset;
	struct mana_ib_dm *dm;
	int err;

	if (attr->flags)
		return ERR_PTR(-EOPNOTSUPP);
	if (!attr->length || attr->length > MANA_IB_MAX_DM)
		return ERR_PTR(-EINVAL);
	if (mana_ib_maps_dm(dev)) {
		/* Pages of the guest may be larger than those of the device. */
		bytes = PAGE_ALIGN(bytes);
		alignment = max_t(u32, alignment, PAGE_SHIFT);
	}
	dm = kzalloc(sizeof(*dm), GFP_KERNEL);
	if (!dm)
		return ERR_PTR(-ENOMEM);
	err = mana_ib_cmd_alloc_dm(dev, bytes, alignment, &dm->handle,
				   &bar_offset);
	if (err)
		goto err_free;
	if (!mana_ib_maps_dm(dev))
		return &dm->ibdm;

	err = mana_ib_show_dm(dev, dm, ibcontext, bytes, bar_offset);
	if (err)
		goto err_destroy;
	if (!uverbs_attr_is_valid(attrs, MANA_UAPI_ATTR_ALLOC_DM_OFFSET))
		return &dm->ibdm;
	offset = rdma_user_mmap_get_offset(&dm->mmap);
	err = uverbs_copy_to(attrs, MANA_UAPI_ATTR_ALLOC_DM_OFFSET, &offset,
			     sizeof(offset));
	if (err) {
		/* Frees all of it. */
		rdma_user_mmap_entry_remove(&dm->mmap);
		return ERR_PTR(err);
	}
	return &dm->ibdm;

err_destroy:
	mana_ib_cmd_free_dm(dev, dm->handle);
err_free:
	kfree(dm);
	return ERR_PTR(err);
}

/* What a process still has mapped stays its own until it is not. */
int mana_ib_dealloc_dm(struct ib_dm *ibdm, struct uverbs_attr_bundle *attrs)
{
	struct mana_ib_dm *dm = to_mana_dm(ibdm);

	if (dm->mmap.ucontext)
		rdma_user_mmap_entry_remove(&dm->mmap);
	else
		mana_ib_release_dm(to_mana_dev(ibdm->device), dm);
	return 0;
}

ADD_UVERBS_ATTRIBUTES_SIMPLE(mana_ib_dm, UVERBS_OBJECT_DM,
			     UVERBS_METHOD_DM_ALLOC,
			     UVERBS_ATTR_PTR_OUT(MANA_UAPI_ATTR_ALLOC_DM_OFFSET,
						 UVERBS_ATTR_TYPE(u64),
						 UA_OPTIONAL));

const struct uapi_definition mana_ib_dm_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DM, &mana_ib_dm),
	{}
};

// SPDX-License-Identifier: GPL-2.0
/* Memory regions, device memory. */
#include "mr.h"
#include "cmd.h"
#include "pd.h"
#include "region.h"
#include "turn.h"
#include "udata.h"

#include <linux/dma-mapping.h>

/*
 * What a region of a user may allow; flags beyond IB_ACCESS_OPTIONAL are hints. Rights
 * to atomics and windows are the public ABI's as well: a peer may send atomics whether
 * or not we can, and programs ask for all rights.
 */
#define MANA_IB_MR_ACCESS                                                      \
	(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE |                      \
	 IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC | IB_ACCESS_MW_BIND | \
	 IB_ZERO_BASED | IB_ACCESS_HUGETLB | IB_ACCESS_OPTIONAL)

static bool mana_ib_access_valid(int access)
{
	return !(access & ~MANA_IB_MR_ACCESS);
}

/**
 * mana_ib_hw_access - access of the verbs in the device's bits
 * @access: IB_ACCESS_*
 */
u32 mana_ib_hw_access(int access)
{
	u32 hw = MANA_HW_ACCESS_LOCAL_READ;

	if (access & IB_ACCESS_LOCAL_WRITE)
		hw |= MANA_HW_ACCESS_LOCAL_WRITE;
	if (access & IB_ACCESS_REMOTE_READ)
		hw |= MANA_HW_ACCESS_REMOTE_READ;
	if (access & IB_ACCESS_REMOTE_WRITE)
		hw |= MANA_HW_ACCESS_REMOTE_WRITE;
	if (access & IB_ACCESS_REMOTE_ATOMIC)
		hw |= MANA_HW_ACCESS_REMOTE_ATOMIC;
	if (access & IB_ACCESS_MW_BIND)
		hw |= MANA_HW_ACCESS_BIND_WINDOW;
	return hw;
}

static int mana_ib_create_key(struct mana_ib_dev *dev, struct mana_ib_mr *mr,
			      const struct mana_ib_mr_params *params)
{
	struct mana_ib_mr_result result;
	int err;

	err = mana_ib_cmd_create_mr(dev, params, &result);
	if (err)
		return err;
	mr->handle = result.handle;
	mr->ibmr.lkey = result.lkey;
	mr->ibmr.rkey = result.rkey;
	return 0;
}

/*
 * A DMA region of pinned memory. That of a zero-based key starts anywhere in
 * its first page; that of another key where its virtual address does.
 */
static int mana_ib_mr_region(struct mana_ib_dev *dev, struct ib_umem *umem,
			     u64 iova, int access, u64 *region)
{
	unsigned long page_size;
	u32 offset;

	if (access & IB_ZERO_BASED) {
		page_size = ib_umem_find_best_pgoff(umem, dev->page_sizes,
						    U64_MAX);
		offset = page_size ? ib_umem_dma_offset(umem, page_size) : 0;
	} else {
		page_size = ib_umem_find_best_pgsz(umem, dev->page_sizes, iova);
		offset = page_size ? iova & (page_size - 1) : 0;
	}
	if (!page_size)
		return -EINVAL;
	return mana_ib_create_region(dev, umem, page_size, offset, umem->length,
				     region);
}

/* A key for pinned memory. */
static int mana_ib_map_mr(struct mana_ib_dev *dev, struct mana_ib_pd *pd,
			  struct mana_ib_mr *mr, u64 iova, int access)
{
	struct mana_ib_mr_params params = {
		.pd = pd->handle,
		.type = access & IB_ZERO_BASED ? MANA_HW_MR_ZERO_BASED :
						 MANA_HW_MR_GVA,
		.access = mana_ib_hw_access(access),
		.address = iova,
	};
	int err;

	err = mana_ib_mr_region(dev, mr->umem, iova, access, &params.region);
	if (err)
		return err;

	err = mana_ib_create_key(dev, mr, &params);
	if (err) {
		mana_ib_cmd_destroy_region(dev, params.region);
		return err;
	}
	mr->access = access;
	mr->ibmr.iova = iova;
	mr->ibmr.length = mr->umem->length;
	return 0;
}

/* The umem belongs to the key from here on, whatever the result. */
static struct ib_mr *mana_ib_new_mr(struct ib_pd *ibpd, struct ib_umem *umem,
				    u64 iova, int access)
{
	struct mana_ib_dev *dev = to_mana_dev(ibpd->device);
	struct mana_ib_mr *mr;
	int err = -ENOMEM;

	mr = kzalloc(sizeof(*mr), GFP_KERNEL_ACCOUNT);
	if (!mr)
		goto err_release;
	mr->umem = umem;
	err = mana_ib_map_mr(dev, to_mana_pd(ibpd), mr, iova, access);
	if (err) {
		ibdev_dbg(&dev->ibdev, "no MR: %pe\n", ERR_PTR(err));
		goto err_free;
	}
	return &mr->ibmr;

err_free:
	kfree(mr);
err_release:
	mana_ib_release_umem(dev, umem);
	return ERR_PTR(err);
}

struct ib_mr *mana_ib_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length,
				  u64 iova, int access, struct ib_udata *udata)
{
	struct ib_umem *umem;
	int err;

	err = mana_ib_udata_empty(udata);
	if (err)
		return ERR_PTR(err);
	if (!mana_ib_access_valid(access))
		return ERR_PTR(-EOPNOTSUPP);
	umem = compat_umem_get(ibpd->device, start, length, access);
	if (IS_ERR(umem))
		return ERR_CAST(umem);
	return mana_ib_new_mr(ibpd, umem, iova, access);
}

struct ib_mr *mana_ib_reg_dmabuf_mr(struct ib_pd *ibpd, u64 offset, u64 length,
				    u64 iova, int fd, int access)
{
	struct ib_umem_dmabuf *umem;

	if (!mana_ib_access_valid(access))
		return ERR_PTR(-EOPNOTSUPP);
	umem = ib_umem_dmabuf_get_pinned(ibpd->device, offset, length, fd,
					 access);
	if (IS_ERR(umem))
		return ERR_CAST(umem);
	return mana_ib_new_mr(ibpd, &umem->umem, iova, access);
}

/*
 * A new key for the memory that the old one has pinned. The old key ends first:
 * nothing may use the memory when the new key gives it back.
 */
static struct ib_mr *mana_ib_replace_key(struct mana_ib_mr *mr,
					 struct ib_pd *ibpd, int access)
{
	struct mana_ib_dev *dev = to_mana_dev(ibpd->device);
	struct mana_ib_mr *new;
	int err;

	if (!mana_ib_access_valid(access))
		return ERR_PTR(-EOPNOTSUPP);
	new = kzalloc(sizeof(*new), GFP_KERNEL_ACCOUNT);
	if (!new)
		return ERR_PTR(-ENOMEM);
	err = mana_ib_cmd_destroy_mr(dev, mr->handle);
	if (err)
		goto err_free;
	mr->handle = MANA_IB_NO_HANDLE;
	new->umem = mr->umem;
	err = mana_ib_map_mr(dev, to_mana_pd(ibpd), new, mr->ibmr.iova, access);
	if (err)
		goto err_free;
	mr->umem = NULL;
	return &new->ibmr;

err_free:
	kfree(new);
	return ERR_PTR(err);
}

/* The device changes the region and leaves its keys as they are. */
static int mana_ib_modify_mr(struct mana_ib_mr *mr, int flags, u64 start,
			     u64 length, u64 iova, int access,
			     struct ib_pd *ibpd)
{
	struct mana_ib_dev *dev = to_mana_dev(ibpd->device);
	struct mana_ib_mr_change change = { .mr = mr->handle };
	struct ib_umem *umem = NULL;
	int err;

	if (!mana_ib_access_valid(access))
		return -EOPNOTSUPP;
	if (flags & IB_MR_REREG_PD) {
		change.flags |= MANA_HW_EXT_MODIFY_PD;
		change.pd = to_mana_pd(ibpd)->handle;
	}
	if (flags & IB_MR_REREG_ACCESS) {
		change.flags |= MANA_HW_EXT_MODIFY_ACCESS;
		change.access = mana_ib_hw_access(access);
	}
	if (flags & IB_MR_REREG_TRANS) {
		umem = compat_umem_get(ibpd->device, start, length, access);
		if (IS_ERR(umem))
			return PTR_ERR(umem);
		err = mana_ib_mr_region(dev, umem, iova, access, &change.region);
		if (err)
			goto err_release;
		change.flags |= MANA_HW_EXT_MODIFY_MEMORY;
		change.address = access & IB_ZERO_BASED ? 0 : iova;
	}
	err = mana_ib_cmd_modify_mr(dev, &change);
	if (err)
		goto err_destroy_region;
	/* Who lists regions reads them at any time. */
	WRITE_ONCE(mr->access, access);
	if (umem) {
		mana_ib_release_umem(dev, mr->umem);
		mr->umem = umem;
		mr->ibmr.iova = iova;
		WRITE_ONCE(mr->ibmr.length, umem->length);
	}
	return 0;

err_destroy_region:
	mana_ib_cmd_destroy_region(dev, change.region);
err_release:
	mana_ib_release_umem(dev, umem);
	return err;
}

/*
 * Changes the region in place, for which the answer is NULL, or makes a new key
 * where the device cannot; the core destroys the old one when we return.
 */
struct ib_mr *mana_ib_rereg_user_mr(struct ib_mr *ibmr, int flags, u64 start,
				    u64 length, u64 iova, int access,
				    struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct mana_ib_dev *dev = to_mana_dev(ibmr->device);
	struct mana_ib_mr *mr = to_mana_mr(ibmr);
	bool in_place = mana_ib_has(dev, MANA_HW_EXT_REREGISTRATION);
	int err;

	err = mana_ib_udata_empty(udata);
	if (err)
		return ERR_PTR(err);
	if (flags & ~(IB_MR_REREG_TRANS | IB_MR_REREG_PD | IB_MR_REREG_ACCESS))
		return ERR_PTR(-EOPNOTSUPP);
	if (!mr->umem || mr->handle == MANA_IB_NO_HANDLE)
		return ERR_PTR(-EOPNOTSUPP);
	if (!(flags & IB_MR_REREG_ACCESS))
		access = mr->access;
	else if (!(flags & IB_MR_REREG_TRANS))
		access |= mr->access & IB_ZERO_BASED;
	if (!(flags & IB_MR_REREG_TRANS) && !mr->umem->writable &&
	    ib_access_writable(access)) {
		/* Pinned for reading only: pinned again, where it was. */
		if (mr->umem->is_dmabuf ||
		    mr->umem->owning_mm != current->mm)
			return ERR_PTR(-EOPNOTSUPP);
		start = mr->umem->address;
		length = mr->umem->length;
		iova = ibmr->iova;
		flags |= IB_MR_REREG_TRANS;
	}
	if (in_place)
		return ERR_PTR(mana_ib_modify_mr(mr, flags, start, length, iova,
						 access, ibpd));
	if (!(flags & IB_MR_REREG_TRANS))
		return mana_ib_replace_key(mr, ibpd, access);
	return mana_ib_reg_user_mr(ibpd, start, length, iova, access, udata);
}

/* All of the bus address space: the kernel's, and for local use only. */
struct ib_mr *mana_ib_get_dma_mr(struct ib_pd *ibpd, int access)
{
	struct mana_ib_dev *dev = to_mana_dev(ibpd->device);
	struct mana_ib_mr_params params = {
		.pd = to_mana_pd(ibpd)->handle,
		.type = MANA_HW_MR_GPA,
	};
	struct mana_ib_turn turn __cleanup(mana_ib_end_turn) = {};
	struct mana_ib_mr *mr;
	int err;

	if (access & ~(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_OPTIONAL))
		return ERR_PTR(-EOPNOTSUPP);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL_ACCOUNT);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mana_ib_skip_turns(dev, true, &turn);
	err = mana_ib_create_key(dev, mr, &params);
	if (err) {
		kfree(mr);
		return ERR_PTR(err);
	}
	return &mr->ibmr;
}

/* A key without memory; work requests register pages with it. */
struct ib_mr *mana_ib_alloc_mr(struct ib_pd *ibpd, enum ib_mr_type type,
			       u32 max_pages)
{
	struct mana_ib_dev *dev = to_mana_dev(ibpd->device);
	struct mana_ib_mr_params params = {
		.pd = to_mana_pd(ibpd)->handle,
		.type = MANA_HW_EXT_MR_FAST_REGISTER,
		.max_pages = max_pages,
	};
	struct mana_ib_turn turn __cleanup(mana_ib_end_turn) = {};
	struct mana_ib_mr *mr;
	int err = -ENOMEM;

	if (type != IB_MR_TYPE_MEM_REG)
		return ERR_PTR(-EOPNOTSUPP);
	if (!max_pages || max_pages > dev->ext.max_fast_reg_pages)
		return ERR_PTR(-EINVAL);

	mr = kzalloc(sizeof(*mr), GFP_KERNEL_ACCOUNT);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->max_pages = max_pages;
	mr->pages = dma_alloc_coherent(dev->parent, max_pages * sizeof(u64),
				       &mr->pages_dma, GFP_KERNEL);
	if (!mr->pages)
		goto err_free;

	mana_ib_skip_turns(dev, true, &turn);
	err = mana_ib_create_key(dev, mr, &params);
	if (err)
		goto err_free_pages;
	return &mr->ibmr;

err_free_pages:
	dma_free_coherent(dev->parent, max_pages * sizeof(u64), mr->pages,
			  mr->pages_dma);
err_free:
	kfree(mr);
	return ERR_PTR(err);
}

static int mana_ib_set_page(struct ib_mr *ibmr, u64 address)
{
	struct mana_ib_mr *mr = to_mana_mr(ibmr);

	if (mr->page_count == mr->max_pages)
		return -ENOMEM;
	mr->pages[mr->page_count++] = address;
	return 0;
}

int mana_ib_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg, int count,
		      unsigned int *offset)
{
	to_mana_mr(ibmr)->page_count = 0;
	return ib_sg_to_pages(ibmr, sg, count, offset, mana_ib_set_page);
}

int mana_ib_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct mana_ib_dev *dev = to_mana_dev(ibmr->device);
	struct mana_ib_turn turn __cleanup(mana_ib_end_turn) = {};
	struct mana_ib_mr *mr = to_mana_mr(ibmr);
	int err = 0;

	mana_ib_skip_turns(dev, !udata, &turn);
	if (mr->handle != MANA_IB_NO_HANDLE)
		err = mana_ib_cmd_destroy_mr(dev, mr->handle);
	/*
	 * The key still works, so the memory stays pinned: mostly windows show
	 * it, and the core comes back when they are gone.
	 */
	if (err && !mana_ib_is_gone(dev))
		return err;
	/* The kernel's memory is somebody else's soon; a process's is pinned. */
	if (err && !ibmr->pd->uobject)
		mana_ib_cmd_stop_mr(dev, mr->handle);
	if (mr->pages && !mana_ib_keeps_memory(dev))
		dma_free_coherent(dev->parent, mr->max_pages * sizeof(u64),
				  mr->pages, mr->pages_dma);
	mana_ib_release_umem(dev, mr->umem);
	mana_ib_give_share(dev, mr->user, MANA_IB_SHARE_KEYS, 1);
	kfree(mr);
	return 0;
}

struct ib_dm *mana_ib_alloc_dm(struct ib_device *ibdev,
			       struct ib_ucontext *ibcontext,
			       struct ib_dm_alloc_attr *attr,
			       struct uverbs_attr_bundle *attrs)
{
	struct mana_ib_dev *dev = to_mana_dev(ibdev);
	struct mana_ib_dm *dm;
	int err;

	if (attr->flags)
		return ERR_PTR(-EOPNOTSUPP);
	if (!attr->length || attr->length > MANA_IB_MAX_DM)
		return ERR_PTR(-EINVAL);
	dm = kzalloc(sizeof(*dm), GFP_KERNEL_ACCOUNT);
	if (!dm)
		return ERR_PTR(-ENOMEM);
	dm->user = to_mana_ucontext(ibcontext)->user;
	/* Many small pieces cost the device more than their bytes. */
	dm->taken = ALIGN(attr->length, MANA_HW_PAGE_BYTES);
	err = mana_ib_take_share(dev, dm->user, MANA_IB_SHARE_DM, dm->taken);
	if (err)
		goto err_free;
	err = mana_ib_cmd_alloc_dm(dev, attr->length, attr->alignment,
				   &dm->handle);
	if (err)
		goto err_give;
	return &dm->ibdm;

err_give:
	mana_ib_give_share(dev, dm->user, MANA_IB_SHARE_DM, dm->taken);
err_free:
	kfree(dm);
	return ERR_PTR(err);
}

int mana_ib_dealloc_dm(struct ib_dm *ibdm, struct uverbs_attr_bundle *attrs)
{
	struct mana_ib_dev *dev = to_mana_dev(ibdm->device);
	struct mana_ib_dm *dm = to_mana_dm(ibdm);

	mana_ib_cmd_free_dm(dev, dm->handle);
	mana_ib_give_share(dev, dm->user, MANA_IB_SHARE_DM, dm->taken);
	kfree(dm);
	return 0;
}

struct ib_mr *mana_ib_reg_dm_mr(struct ib_pd *ibpd, struct ib_dm *ibdm,
				struct ib_dm_mr_attr *attr,
				struct uverbs_attr_bundle *attrs)
{
	struct mana_ib_dev *dev = to_mana_dev(ibpd->device);
	struct mana_ib_mr_params params = {
		.pd = to_mana_pd(ibpd)->handle,
		.type = MANA_HW_MR_DM,
		.access = mana_ib_hw_access(attr->access_flags),
		.dm = to_mana_dm(ibdm)->handle,
		.dm_offset = attr->offset,
		.dm_length = attr->length,
	};
	struct mana_ib_mr *mr;
	int err;

	if (!mana_ib_access_valid(attr->access_flags))
		return ERR_PTR(-EOPNOTSUPP);
	mr = kzalloc(sizeof(*mr), GFP_KERNEL_ACCOUNT);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->user = to_mana_pd(ibpd)->user;
	err = mana_ib_take_share(dev, mr->user, MANA_IB_SHARE_KEYS, 1);
	if (err)
		goto err_free;
	err = mana_ib_create_key(dev, mr, &params);
	if (err)
		goto err_give;
	mr->access = attr->access_flags;
	mr->ibmr.length = attr->length;
	return &mr->ibmr;

err_give:
	mana_ib_give_share(dev, mr->user, MANA_IB_SHARE_KEYS, 1);
err_free:
	kfree(mr);
	return ERR_PTR(err);
}

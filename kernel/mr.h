/* SPDX-License-Identifier: GPL-2.0 */
/* Memory regions, windows, device memory. */
#ifndef MANA_IB_MR_H
#define MANA_IB_MR_H

#include "user.h"

struct mana_ib_mr {
	struct ib_mr ibmr;
	struct ib_umem *umem;
	u64 handle;
	int access;
	struct mana_ib_user *user; /* of device memory: whose share it is of */
	/* fast registration: the page list the device reads */
	u64 *pages;
	dma_addr_t pages_dma;
	u32 page_count;
	u32 max_pages;
};

struct mana_ib_mw {
	struct ib_mw ibmw;
	u64 handle;
	struct mana_ib_user *user; /* whose share it is of */
};

struct mana_ib_dm {
	struct ib_dm ibdm;
	u64 handle;
	struct mana_ib_user *user; /* whose share it is of */
	u64 taken; /* bytes of that */
};

static inline struct mana_ib_mr *to_mana_mr(struct ib_mr *ibmr)
{
	return container_of(ibmr, struct mana_ib_mr, ibmr);
}

static inline struct mana_ib_mw *to_mana_mw(struct ib_mw *ibmw)
{
	return container_of(ibmw, struct mana_ib_mw, ibmw);
}

static inline struct mana_ib_dm *to_mana_dm(struct ib_dm *ibdm)
{
	return container_of(ibdm, struct mana_ib_dm, ibdm);
}

/* mr.c, mw.c */
struct ib_mr *mana_ib_get_dma_mr(struct ib_pd *ibpd, int access);
struct ib_mr *mana_ib_rereg_user_mr(struct ib_mr *ibmr, int flags, u64 start,
				    u64 length, u64 iova, int access,
				    struct ib_pd *ibpd, struct ib_udata *udata);
struct ib_mr *mana_ib_alloc_mr(struct ib_pd *ibpd, enum ib_mr_type type,
			       u32 max_pages);
int mana_ib_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg, int count,
		      unsigned int *offset);
int mana_ib_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata);
struct ib_dm *mana_ib_alloc_dm(struct ib_device *ibdev,
			       struct ib_ucontext *ibcontext,
			       struct ib_dm_alloc_attr *attr,
			       struct uverbs_attr_bundle *attrs);
int mana_ib_dealloc_dm(struct ib_dm *ibdm, struct uverbs_attr_bundle *attrs);
struct ib_mr *mana_ib_reg_dm_mr(struct ib_pd *ibpd, struct ib_dm *ibdm,
				struct ib_dm_mr_attr *attr,
				struct uverbs_attr_bundle *attrs);
int mana_ib_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata);
int mana_ib_dealloc_mw(struct ib_mw *ibmw);
u32 mana_ib_hw_access(int access);

/* dm.c */
extern const struct uapi_definition mana_ib_dm_defs[];

#endif

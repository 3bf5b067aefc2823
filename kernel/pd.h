/* SPDX-License-Identifier: GPL-2.0 */
/* What a process has: its context and protection domains. */
#ifndef MANA_IB_PD_H
#define MANA_IB_PD_H

#include "mana_ib.h"

#include <linux/semaphore.h>

struct mana_ib_user;

struct mana_ib_ucontext {
	struct ib_ucontext ibcontext;
	struct mana_ib_user *user; /* who opened it */
	struct semaphore copies; /* of device memory: a buffer of the kernel each */
	u32 doorbell_page;
	bool ours; /* MANA_UAPI_ATTR_QUERY_CONTEXT_RESP was asked for */
};

/**
 * struct mana_ib_pd - protection domain
 * @ibpd: that of the core
 * @handle: for memory and RDMA QPs
 * @id: for Ethernet queues
 * @user: whose it is, NULL: the kernel's
 * @sources: of a user, by GID index: the device's count when it was granted
 * @vport_lock: protects what follows
 * @vport: Ethernet port this PD's raw packet QPs send on
 * @vport_users: raw packet QPs there
 */
struct mana_ib_pd {
	struct ib_pd ibpd;
	u64 handle;
	u32 id;
	struct mana_ib_user *user;
	u32 sources[MANA_IB_GID_ENTRIES];
	struct mutex vport_lock; /* vport, vport_users */
	struct mana_port_context *vport;
	u32 vport_users;
};

static inline struct mana_ib_ucontext *
to_mana_ucontext(struct ib_ucontext *ibcontext)
{
	return container_of(ibcontext, struct mana_ib_ucontext, ibcontext);
}

/* The context of the process that makes a call. */
static inline struct mana_ib_ucontext *to_user_context(struct ib_udata *udata)
{
	return rdma_udata_to_drv_context(udata, struct mana_ib_ucontext,
					 ibcontext);
}

/* Whether what stands behind the stock part of commands is ours, <uapi/mana-abi.h>. */
static inline bool mana_ib_speaks_ours(struct ib_udata *udata)
{
	return READ_ONCE(to_user_context(udata)->ours);
}

/* The user whose context that is, NULL: the kernel. */
static inline struct mana_ib_user *mana_ib_caller(struct ib_udata *udata)
{
	return udata ? to_user_context(udata)->user : NULL;
}

static inline struct mana_ib_pd *to_mana_pd(struct ib_pd *ibpd)
{
	return container_of(ibpd, struct mana_ib_pd, ibpd);
}

/* The page that queues of this caller are rung from. */
static inline u32 mana_ib_doorbell_page(struct mana_ib_dev *dev,
					struct mana_ib_ucontext *context)
{
	return context ? context->doorbell_page : dev->doorbell_page;
}

/* ucontext.c, import.c, pd.c */
void mana_ib_describe_context(const struct mana_ib_dev *dev,
			      struct mana_uapi_context_resp *response);
int mana_ib_query_ucontext(struct ib_ucontext *ibcontext,
			   struct uverbs_attr_bundle *attrs);
extern const struct uapi_definition mana_ib_import_defs[];
int mana_ib_alloc_ucontext(struct ib_ucontext *ibcontext,
			   struct ib_udata *udata);
void mana_ib_dealloc_ucontext(struct ib_ucontext *ibcontext);
void mana_ib_disassociate_ucontext(struct ib_ucontext *ibcontext);
int mana_ib_mmap(struct ib_ucontext *ibcontext, struct vm_area_struct *vma);
int mana_ib_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);
int mana_ib_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);

#endif

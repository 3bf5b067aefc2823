/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What is copied from and to user space: a provider's part of a command, attributes
 * of methods, and memory of a process.
 */
#ifndef MANA_IB_UDATA_H
#define MANA_IB_UDATA_H

#include "compat.h"

int mana_ib_udata_in(struct ib_udata *udata, void *request, size_t bytes,
		     size_t minimum);
int mana_ib_udata_in_parts(struct ib_udata *udata, void *request, size_t bytes,
			   size_t stock);
int mana_ib_udata_out(struct ib_udata *udata, const void *response,
		      size_t bytes);
int mana_ib_command_prepare(struct ib_udata *udata);
int mana_ib_udata_empty(struct ib_udata *udata);

int mana_ib_attr_in(const struct uverbs_attr_bundle *attrs, u16 id, void *value,
		    size_t bytes);
int mana_ib_attr_out(const struct uverbs_attr_bundle *attrs, u16 id,
		     const void *value, size_t bytes);
int mana_ib_attr_out_struct(const struct uverbs_attr_bundle *attrs, u16 id,
			    const void *value, size_t bytes);

int mana_ib_memory_in(void *to, u64 address, size_t bytes);
int mana_ib_memory_out(u64 address, const void *from, size_t bytes);

#endif

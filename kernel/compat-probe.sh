#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Prints -DHAVE_... for what the kernel to build for has:
#     compat-probe.sh MODULE.SYMVERS COMPILER FLAG...
# One probe for each thing that compat.h bridges, and no version numbers. A probe is a
# snippet that compiles where the kernel has the thing; all of them are compiled at once, and
# the lines of errors tell which do not. What is exported is known to Module.symvers alone.

symbols=$1
shift

# probe NAME SNIPPET
probe() {
	printf '#line 1 "probe-%s"\n%s\n' "$1" "$2"
	printf '%s\n' "$1" >&3
}

# operation NAME FIELD TYPE ARGUMENTS: the field takes a function of that type
operation() {
	probe "$1" "$3 probe_$1($4); const struct ib_device_ops ops_$1 = { .$2 = probe_$1 };"
}

# exported NAME SYMBOL
exported() {
	grep -q -e "	$2	" "$symbols" && printf ' -DHAVE_%s' "$1"
}

probes() {
	cat <<-'END'
	#include <linux/module.h>
	#include <linux/slab.h>
	#include <net/mana/mana.h>
	#include <rdma/ib_umem.h>
	#include <rdma/ib_verbs.h>
	#include <rdma/rdma_counter.h>
	#include <rdma/uverbs_ioctl.h>
	END
	# The parent of the oldest kernel has it, and what else is needed without a choice.
	probe OLDEST 'struct gdma_dev *oldest(struct gdma_context *c) { return &c->mana_ib; }'
	# A doorbell is one store of 64 bits.
	probe WORD 'static int word[sizeof(long) == 8 ? 1 : -1] __attribute__((unused));'
	probe KVCALLOC_NODE 'void *a1(void) { return kvcalloc_node(1, 1, 0, 0); }'
	probe VPORT_CHANNEL_CHECK \
		'int a2(struct mana_port_context *p) { return mana_cfg_vport(p, 0, 0, true); }'
	probe TX_QP_POINTERS \
		'struct mana_tx_qp **a3(struct mana_port_context *p) { return p->tx_qp; }'
	probe HWC_TIMEOUT 'u32 a4(struct hw_channel_context *c) { return c->hwc_timeout; }'
	probe GDMA_PF_CAPS 'u64 a5(struct gdma_context *c) { return c->pf_cap_flags1; }'
	probe QUEUE_PAGES 'u32 aa(struct gdma_mem_info *m) { return m->nr_pages; }'
	bundle='struct uverbs_attr_bundle *'
	cq='struct ib_cq *, const struct ib_cq_init_attr *'
	operation CREATE_CQ_BUNDLE create_cq int "$cq, $bundle"
	operation CREATE_USER_CQ create_user_cq int "$cq, $bundle"
	operation RESIZE_USER_CQ resize_user_cq int \
		'struct ib_cq *, unsigned int, struct ib_udata *'
	operation DMAH reg_user_mr 'struct ib_mr *' \
		'struct ib_pd *, u64, u64, u64, int, struct ib_dmah *, struct ib_udata *'
	operation DMABUF_BUNDLE reg_user_mr_dmabuf 'struct ib_mr *' \
		"struct ib_pd *, u64, u64, u64, int, int, $bundle"
	operation COUNTER_PORT counter_bind_qp int 'struct rdma_counter *, struct ib_qp *, u32'
	probe COUNTER_OBJECT 'const struct ib_device_ops a6 = { .size_rdma_counter = 1 };'
	operation COUNTER_INIT counter_init void 'struct rdma_counter *'
	operation QUERY_PORT_SPEED query_port_speed int 'struct ib_device *, u32, u64 *'
	probe ROBUST_UDATA 'const struct ib_device_ops a7 = { .uverbs_robust_udata = 1 };'
	probe CORE_PORT_EVENTS \
		'void a8(struct ib_device *d) { ib_dispatch_port_state_event(d, NULL); }'
	probe UDATA_HELPERS \
		'int ae(struct ib_udata *u)
		{ return ib_is_udata_in_empty(u) ? : ib_respond_empty_udata(u) ? :
		  _ib_respond_udata(u, 0, 0) ? : _ib_copy_validate_udata_in(u, 0, 0, 0); }'
	probe RDMA_ITER '
#if !__has_include(<rdma/iter.h>)
#error none
#endif'
	probe UMEM_GET_VA \
		'struct ib_umem *a9(struct ib_device *d) { return ib_umem_get_va(d, 0, 0, 0); }'
	probe CQ_BUFFER \
		'struct ib_umem *ab(struct ib_device *d, const struct uverbs_attr_bundle *b)
		{ return ib_umem_get_cq_buf_or_va(d, b, 0, 0, 0); }'
	probe CQ_UMEM 'struct ib_umem *ac(struct ib_cq *c) { return c->umem; }'
	probe QP_BUFFERS 'int ad(void) { return UVERBS_ATTR_CREATE_QP_SQ_BUF_UMEM; }'
	# Older kernels make a string of what is between the parentheses, quotes and all.
	probe IMPORT_NS_STRING '
#undef MODULE_INFO
#define MODULE_INFO(tag, info) const char a10[] = info
MODULE_IMPORT_NS("NET_MANA");
_Static_assert(sizeof(a10) == sizeof("NET_MANA"), "");'
}

# The names of the probes, then what the compiler says, errors alone.
names=$(probes 3>&1 >/dev/null)
case $("$1" --version 2>/dev/null) in
*clang*) limit=-ferror-limit=0 ;;
*) limit=-fmax-errors=0 ;;
esac
errors=$(probes 3>/dev/null | LC_ALL=C "$@" -DMODULE -DKBUILD_MODNAME='"mana_ib"' \
	-DKBUILD_BASENAME='"probe"' -Wno-error \
	-Werror=implicit-function-declaration \
	-Werror=incompatible-pointer-types "$limit" -fsyntax-only -x c - 2>&1 | grep 'error:')

# has NAME: its probe compiles
has() {
	case $errors in
	*"probe-$1:"*) return 1 ;;
	esac
}

strange=$(printf '%s\n' "$errors" | grep -v -e '^probe-' -e '^$' | head -n 1)
if [ -n "$strange" ]; then
	echo "mana_ib: the kernel's headers do not compile: $strange" >&2
	exit 1
fi
if ! has OLDEST; then
	echo "mana_ib: this kernel is older than the oldest kernel that the driver is for" >&2
	exit 1
fi
if ! has WORD; then
	echo "mana_ib: the kernel has to be one of 64 bits" >&2
	exit 1
fi
for name in $names; do
	case $name in
	OLDEST | WORD) ;;
	*) ! has "$name" || printf ' -DHAVE_%s' "$name" ;;
	esac
done
exported GDMA_REGISTER_DEVICE mana_gd_register_device
exported GDMA_GIC mana_gd_get_gic
exported PRIMARY_NETDEV mana_get_primary_netdev
exported DEVICE_GET_NETDEV ib_device_get_netdev
true

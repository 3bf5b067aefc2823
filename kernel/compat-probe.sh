#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Prints -DHAVE_... for what the kernel to build for has: compat-probe.sh SRCTREE OBJTREE
# One line per probe: what compat.h bridges, and no version numbers.

include=$1/include
symbols=$2/Module.symvers

# yes NAME: prints the flag
yes() {
	printf ' -DHAVE_%s' "$1"
}

# in_header NAME FILE PATTERN
in_header() {
	grep -q -e "$3" "$include/$2" && yes "$1"
}

# in_struct NAME FILE STRUCT PATTERN: the pattern is within the structure's definition
in_struct() {
	sed -n "/^struct $3 {/,/^};/p" "$include/$2" | tr '\n\t' '  ' | grep -q -e "$4" && yes "$1"
}

# exported NAME SYMBOL
exported() {
	grep -q -e "	$2	" "$symbols" && yes "$1"
}

verbs=rdma/ib_verbs.h
if ! [ -r "$include/$verbs" ] || ! [ -r "$include/net/mana/gdma.h" ]; then
	echo "mana_ib: $1 has no RDMA or MANA headers" >&2
	exit 1
fi
# The parent of the oldest kernel has it, and what else is needed without a choice.
if ! in_struct '' net/mana/gdma.h gdma_context 'struct gdma_dev *mana_ib;' >/dev/null; then
	echo "mana_ib: $1 is older than the oldest kernel that this driver is for" >&2
	exit 1
fi

in_header KVCALLOC_NODE linux/slab.h 'kvcalloc_node('
in_header IMPORT_NS_STRING linux/module.h 'MODULE_INFO(import_ns, ns)'
exported GDMA_REGISTER_DEVICE mana_gd_register_device
exported GDMA_GIC mana_gd_get_gic
exported PRIMARY_NETDEV mana_get_primary_netdev
exported DISABLE_VPORT_RX mana_disable_vport_rx
in_header VPORT_CHANNEL_CHECK net/mana/mana.h 'bool check_channel_changing'
exported DEVICE_GET_NETDEV ib_device_get_netdev
in_struct TX_QP_POINTERS net/mana/mana.h mana_port_context 'struct mana_tx_qp \*\*tx_qp;'
in_struct HWC_TIMEOUT net/mana/hw_channel.h hw_channel_context 'u32 hwc_timeout;'
in_struct GDMA_PF_CAPS net/mana/gdma.h gdma_context 'u64 pf_cap_flags1;'
in_struct CREATE_CQ_BUNDLE $verbs ib_device_ops '(\*create_cq)([^;]*uverbs_attr_bundle'
in_struct CREATE_USER_CQ $verbs ib_device_ops '(\*create_user_cq)('
in_struct RESIZE_USER_CQ $verbs ib_device_ops '(\*resize_user_cq)('
in_struct DMAH $verbs ib_device_ops '(\*reg_user_mr)([^;]*ib_dmah'
in_struct DMABUF_BUNDLE $verbs ib_device_ops '(\*reg_user_mr_dmabuf)([^;]*uverbs_attr_bundle'
in_struct COUNTER_PORT $verbs ib_device_ops '(\*counter_bind_qp)([^;]*u32 port)'
in_struct COUNTER_OBJECT $verbs ib_device_ops 'DECLARE_RDMA_OBJ_SIZE(rdma_counter)'
in_struct COUNTER_INIT $verbs ib_device_ops '(\*counter_init)('
in_struct QUERY_PORT_SPEED $verbs ib_device_ops '(\*query_port_speed)('
in_struct ROBUST_UDATA $verbs ib_device_ops 'uverbs_robust_udata:1;'
in_header CORE_PORT_EVENTS $verbs 'ib_dispatch_port_state_event('
[ -e "$include/rdma/iter.h" ] && yes RDMA_ITER
in_header UMEM_GET_VA rdma/ib_umem.h 'ib_umem_get_va('
true

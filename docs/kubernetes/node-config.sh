#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes a node with MANA NICs ready for RDMA in pods. As root on the node; the DaemonSet of
# node-config.yaml does that. What is as it should be stays as it is: nothing is restarted twice.
set -eu

fail() {
    echo "mana-node-config: $*" >&2
    exit 1
}

# ib_umad and rdma_ucm make device files that the device plugin asks for; nobody loads them by need.
for module in mana_ib ib_uverbs ib_umad rdma_ucm; do
    modprobe "$module" || fail "there is no module $module in kernel $(uname -r)"
done
mkdir -p /etc/modules-load.d
printf '%s\n' ib_umad rdma_ucm >/etc/modules-load.d/mana-rdma.conf
ls /sys/class/infiniband/* >/dev/null 2>&1 || fail "no RDMA device: is there a MANA NIC?"
[ -c /dev/infiniband/rdma_cm ] || fail "no /dev/infiniband/rdma_cm"

# A memory region is locked memory. Logins have their limit by PAM, pods have that of containerd or
# CRI-O, whose default is 8 MiB.
mkdir -p /etc/security/limits.d
printf '%s - memlock unlimited\n' '*' root >/etc/security/limits.d/mana-rdma.conf
changed=
for unit in containerd crio kubelet; do
    systemctl cat "$unit.service" >/dev/null 2>&1 || continue
    file=/etc/systemd/system/$unit.service.d/mana-rdma.conf
    wanted='[Service]
LimitMEMLOCK=infinity'
    [ "$(cat "$file" 2>/dev/null)" = "$wanted" ] && continue
    mkdir -p "${file%/*}"
    echo "$wanted" >"$file"
    changed="$changed $unit"
done
[ -z "$changed" ] || systemctl daemon-reload
for unit in $changed; do
    systemctl restart "$unit.service"
    systemctl is-active --quiet "$unit.service" || fail "$unit does not start: journalctl -u $unit"
done
echo "mana-node-config: ready:$(for one in /sys/class/infiniband/*; do printf ' %s' "${one##*/}"; done)"

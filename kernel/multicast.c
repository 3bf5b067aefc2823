// SPDX-License-Identifier: GPL-2.0
/* Multicast groups of UD QPs. */
#include "cmd.h"
#include "qp.h"
#include "user.h"

static int mana_ib_multicast(struct ib_qp *ibqp, const union ib_gid *gid,
			     bool attach)
{
	struct mana_ib_qp *qp = to_mana_qp(ibqp);

	if (qp->format != MANA_IB_QP_EXTENDED)
		return -EOPNOTSUPP;
	if (ibqp->qp_type != IB_QPT_UD)
		return -EINVAL;
	return mana_ib_cmd_multicast(to_mana_dev(ibqp->device), qp->handle, gid,
				     attach);
}

int mana_ib_attach_multicast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	struct mana_ib_dev *dev = to_mana_dev(ibqp->device);
	struct mana_ib_user *user = to_mana_qp(ibqp)->user;
	int err;

	err = mana_ib_take_share(dev, user, MANA_IB_SHARE_GROUPS, 1);
	if (err)
		return err;
	err = mana_ib_multicast(ibqp, gid, true);
	if (err)
		mana_ib_give_share(dev, user, MANA_IB_SHARE_GROUPS, 1);
	return err;
}

/*
 * Leaving must not fail, or the core never lets the QP go. It counts a group
 * once for each LID, the device once: it may know nothing of the second one. A
 * device that does not answer has no members.
 */
int mana_ib_detach_multicast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	int err;

	err = mana_ib_multicast(ibqp, gid, false);
	if (err)
		ibdev_dbg(ibqp->device, "qp[%u]: not in the group: %pe\n",
			  ibqp->qp_num, ERR_PTR(err));
	mana_ib_give_share(to_mana_dev(ibqp->device), to_mana_qp(ibqp)->user,
			   MANA_IB_SHARE_GROUPS, 1);
	return 0;
}

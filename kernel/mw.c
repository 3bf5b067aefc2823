// SPDX-License-Identifier: GPL-2.0
/*
 * Memory windows: keys that work requests bind. The public ABI makes them, but has no
 * known request that binds one.
 */
#include "cmd.h"
#include "mr.h"
#include "pd.h"
#include "udata.h"

int mana_ib_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata)
{
	struct mana_ib_dev *dev = to_mana_dev(ibmw->device);
	struct mana_ib_mw *mw = to_mana_mw(ibmw);
	struct mana_ib_mr_params params = {
		.pd = to_mana_pd(ibmw->pd)->handle,
	};
	struct mana_ib_mr_result result;
	int err;

	err = mana_ib_udata_empty(udata);
	if (err)
		return err;
	switch (ibmw->type) {
	case IB_MW_TYPE_1:
		params.type = MANA_HW_MR_WINDOW_TYPE1;
		break;
	case IB_MW_TYPE_2:
		params.type = MANA_HW_MR_WINDOW_TYPE2;
		break;
	default:
		return -EINVAL;
	}
	mw->user = mana_ib_caller(udata);
	err = mana_ib_take_share(dev, mw->user, MANA_IB_SHARE_KEYS, 1);
	if (err)
		return err;
	err = mana_ib_cmd_create_mr(dev, &params, &result);
	if (err) {
		mana_ib_give_share(dev, mw->user, MANA_IB_SHARE_KEYS, 1);
		return err;
	}
	mw->handle = result.handle;
	ibmw->rkey = result.rkey;
	return 0;
}

int mana_ib_dealloc_mw(struct ib_mw *ibmw)
{
	struct mana_ib_dev *dev = to_mana_dev(ibmw->device);
	struct mana_ib_mw *mw = to_mana_mw(ibmw);
	int err;

	err = mana_ib_cmd_destroy_mr(dev, mw->handle);
	if (err && !mana_ib_is_gone(dev))
		ibdev_warn_ratelimited(&dev->ibdev, "mw: not destroyed: %pe\n",
				       ERR_PTR(err));
	mana_ib_give_share(dev, mw->user, MANA_IB_SHARE_KEYS, 1);
	return 0;
}

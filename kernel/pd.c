// SPDX-License-Identifier: GPL-2.0
/* Protection domains. */
#include "pd.h"
#include "cmd.h"
#include "turn.h"
#include "udata.h"
#include "user.h"

int mana_ib_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct mana_ib_dev *dev = to_mana_dev(ibpd->device);
	struct mana_ib_pd *pd = to_mana_pd(ibpd);
	struct mana_ib_turn turn __cleanup(mana_ib_end_turn) = {};
	int err;

	mana_ib_skip_turns(dev, !udata, &turn);
	err = mana_ib_udata_empty(udata);
	if (err)
		return err;
	pd->user = mana_ib_caller(udata);
	err = mana_ib_take_share(dev, pd->user, MANA_IB_SHARE_PDS, 1);
	if (err)
		return err;
	err = mana_ib_cmd_create_pd(dev, !udata, &pd->handle, &pd->id);
	if (err) {
		ibdev_dbg(&dev->ibdev, "no PD: %pe\n", ERR_PTR(err));
		mana_ib_give_share(dev, pd->user, MANA_IB_SHARE_PDS, 1);
		return err;
	}
	mutex_init(&pd->vport_lock);
	return 0;
}

int mana_ib_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct mana_ib_dev *dev = to_mana_dev(ibpd->device);
	struct mana_ib_turn turn __cleanup(mana_ib_end_turn) = {};
	struct mana_ib_pd *pd = to_mana_pd(ibpd);

	mana_ib_skip_turns(dev, !udata, &turn);
	mana_ib_cmd_destroy_pd(dev, pd->handle);
	mana_ib_give_share(dev, pd->user, MANA_IB_SHARE_PDS, 1);
	mutex_destroy(&pd->vport_lock);
	return 0;
}

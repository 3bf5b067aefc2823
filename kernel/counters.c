// SPDX-License-Identifier: GPL-2.0
/*
 * Counters: of ports, of the device, and of sets of QPs. Whoever reads or binds them
 * holds a lock of the core and mostly ours, which others wait for who make QPs: these
 * requests wait for no turn.
 */
#include "cmd.h"
#include "qp.h"
#include "stats.h"
#include "turn.h"

/* Marks what the device counts for a port alone, not for a QP. */
static const char mana_ib_port_only[] = "port";

/* In the order of the device's answer (RNIC 2.11). */
static const struct rdma_stat_desc mana_ib_port_counters[] = {
	{ .name = "requester_timeouts" },
	{ .name = "requester_sequence_naks" },
	{ .name = "requester_rnr_naks" },
	{ .name = "responder_rnr_naks" },
	{ .name = "responder_out_of_sequence" },
	{ .name = "responder_duplicates" },
	{ .name = "requester_implicit_naks" },
	{ .name = "read_response_psn_mismatches" },
	{ .name = "nak_invalid_requests" },
	{ .name = "nak_access_errors" },
	{ .name = "nak_operation_errors" },
	{ .name = "nak_invalid_reads", .priv = mana_ib_port_only },
	{ .name = "responder_local_length_errors" },
	{ .name = "requester_local_protection_errors" },
	{ .name = "responder_remote_access_errors" },
	{ .name = "responder_local_qp_errors" },
	{ .name = "responder_malformed_wqes" },
	{ .name = "general_hardware_errors", .priv = mana_ib_port_only },
	{ .name = "requester_rnr_retries_exceeded" },
	{ .name = "requester_retries_exceeded" },
	{ .name = "fatal_errors" },
	{ .name = "received_cnps" },
	{ .name = "congested_qps" },
	{ .name = "rate_increases" },
	{ .name = "recovered_qps" },
	{ .name = "current_rate", .priv = mana_ib_port_only },
	{ .name = "duplicate_rx_requests" },
	{ .name = "tx_bytes" },
	{ .name = "rx_bytes" },
	{ .name = "rx_send_requests" },
	{ .name = "rx_write_requests" },
	{ .name = "rx_read_requests" },
	{ .name = "tx_packets" },
	{ .name = "rx_packets" },
};

static const struct rdma_stat_desc mana_ib_device_counters[] = {
	{ .name = "sent_cnps" },
	{ .name = "received_ecns" },
	{ .name = "received_cnps" },
	{ .name = "qp_congested_events" },
	{ .name = "qp_recovered_events" },
	{ .name = "rate_increase_events" },
};

/* Where they are in the device's answer, which has unused words. */
static const u8 mana_ib_device_words[] = { 0, 1, 3, 4, 5, 6 };

struct rdma_hw_stats *mana_ib_alloc_port_stats(struct ib_device *ibdev,
					       u32 port)
{
	BUILD_BUG_ON(ARRAY_SIZE(mana_ib_port_counters) != MANA_IB_VF_COUNTERS);
	return rdma_alloc_hw_stats_struct(mana_ib_port_counters,
					  ARRAY_SIZE(mana_ib_port_counters),
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

struct rdma_hw_stats *mana_ib_alloc_device_stats(struct ib_device *ibdev)
{
	return rdma_alloc_hw_stats_struct(mana_ib_device_counters,
					  ARRAY_SIZE(mana_ib_device_counters),
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

static int mana_ib_get_device_stats(struct mana_ib_dev *dev,
				    struct rdma_hw_stats *stats)
{
	u64 values[MANA_IB_DEVICE_COUNTERS];
	unsigned int i;
	int err;

	err = mana_ib_cmd_device_counters(dev, values);
	if (err)
		return err;
	for (i = 0; i < ARRAY_SIZE(mana_ib_device_words); i++)
		stats->value[i] = values[mana_ib_device_words[i]];
	return stats->num_counters;
}

/* Adds what a QP has counted since it was bound. */
static int mana_ib_add_counters(struct mana_ib_dev *dev, struct mana_ib_qp *qp,
				u64 *sum)
{
	u64 now[MANA_IB_VF_COUNTERS];
	unsigned int i;
	int err;

	err = mana_ib_cmd_qp_counters(dev, qp->handle, now);
	if (err)
		return err;
	for (i = 0; i < MANA_IB_VF_COUNTERS; i++)
		sum[i] += now[i] - qp->ext.counter_base[i];
	return 0;
}

/* The same of all QPs that are bound to a counter. */
static int mana_ib_add_bound(struct mana_ib_dev *dev,
			     struct mana_ib_counter *own, u64 *sum)
{
	struct mana_ib_qp *qp;
	int err;

	list_for_each_entry(qp, &own->qps, ext.counter_entry) {
		err = mana_ib_add_counters(dev, qp, sum);
		if (err)
			return err;
	}
	return 0;
}

/*
 * To a port's value the core adds those of the counters that QPs are bound to,
 * and of counters that are gone: it expects a QP to be counted there or by the
 * port. This device's port counts all of them. So what the core adds is taken
 * off here; a difference below zero is made good by the core's sum. The port
 * was asked first, or the sum of both would once go back.
 */
static int mana_ib_take_off_bound(struct mana_ib_dev *dev, u64 *values)
{
	u64 sum[MANA_IB_VF_COUNTERS];
	struct mana_ib_counter *own;
	unsigned long id;
	unsigned int i;
	int err = 0;

	mutex_lock(&dev->counter_lock);
	memcpy(sum, dev->counted, sizeof(sum));
	xa_for_each(&dev->counters, id, own) {
		err = mana_ib_add_bound(dev, own, sum);
		if (err)
			break;
	}
	mutex_unlock(&dev->counter_lock);
	if (err)
		return err;
	for (i = 0; i < MANA_IB_VF_COUNTERS; i++)
		values[i] -= sum[i];
	return 0;
}

int mana_ib_get_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats,
		      u32 port, int index)
{
	struct mana_ib_dev *dev = to_mana_dev(ibdev);
	struct mana_ib_turn turn __cleanup(mana_ib_end_turn) = {};
	u64 values[MANA_IB_VF_COUNTERS];
	int err;

	mana_ib_skip_turns(dev, true, &turn);
	if (!port)
		return mana_ib_get_device_stats(dev, stats);
	err = mana_ib_cmd_vf_counters(dev, values);
	if (!err && mana_ib_port_is_rdma(dev, port))
		err = mana_ib_take_off_bound(dev, values);
	if (err)
		return err;
	memcpy(stats->value, values, sizeof(values));
	return stats->num_counters;
}

struct rdma_hw_stats *mana_ib_counter_stats(struct rdma_counter *counter)
{
	struct rdma_hw_stats *stats;
	unsigned int i;

	stats = mana_ib_alloc_port_stats(counter->device, counter->port);
	if (!stats)
		return NULL;
	for (i = 0; i < ARRAY_SIZE(mana_ib_port_counters); i++)
		if (mana_ib_port_counters[i].priv == mana_ib_port_only)
			__set_bit(i, stats->is_disabled);
	return stats;
}

/* The core's counter and ours; made when the first QP is bound. */
static struct mana_ib_counter *mana_ib_get_counter(struct mana_ib_dev *dev,
						   struct rdma_counter *counter)
{
	struct mana_ib_counter *own;
	int err;

	if (counter->id)
		return xa_load(&dev->counters, counter->id);
	own = kzalloc(sizeof(*own), GFP_KERNEL);
	if (!own)
		return NULL;
	INIT_LIST_HEAD(&own->qps);
	err = xa_alloc_irq(&dev->counters, &counter->id, own, xa_limit_31b,
			   GFP_KERNEL);
	if (err) {
		kfree(own);
		return NULL;
	}
	return own;
}

int mana_ib_counter_bind_qp(struct rdma_counter *counter, struct ib_qp *ibqp)
{
	struct mana_ib_dev *dev = to_mana_dev(ibqp->device);
	struct mana_ib_qp *qp = to_mana_qp(ibqp);
	struct mana_ib_turn turn __cleanup(mana_ib_end_turn) = {};
	struct mana_ib_counter *own;
	int err;

	if (qp->format != MANA_IB_QP_EXTENDED)
		return -EOPNOTSUPP;

	mana_ib_skip_turns(dev, true, &turn);
	mutex_lock(&dev->counter_lock);
	err = mana_ib_cmd_qp_counters(dev, qp->handle, qp->ext.counter_base);
	if (err)
		goto out;
	own = mana_ib_get_counter(dev, counter);
	if (!own) {
		err = -ENOMEM;
		goto out;
	}
	list_move_tail(&qp->ext.counter_entry, &own->qps);
	/* By this the core finds the counter's QPs, and unbinds those that end. */
	ibqp->counter = counter;
out:
	mutex_unlock(&dev->counter_lock);
	return err;
}

int mana_ib_counter_unbind_qp(struct ib_qp *ibqp)
{
	struct mana_ib_dev *dev = to_mana_dev(ibqp->device);
	struct mana_ib_qp *qp = to_mana_qp(ibqp);
	struct mana_ib_turn turn __cleanup(mana_ib_end_turn) = {};
	u64 counted[MANA_IB_VF_COUNTERS] = {};
	struct mana_ib_counter *own;
	unsigned int i;

	mana_ib_skip_turns(dev, true, &turn);
	mutex_lock(&dev->counter_lock);
	if (qp->format == MANA_IB_QP_EXTENDED &&
	    !list_empty(&qp->ext.counter_entry)) {
		own = xa_load(&dev->counters, ibqp->counter->id);
		/* What a device that fails has not told is lost. */
		mana_ib_add_counters(dev, qp, counted);
		for (i = 0; i < MANA_IB_VF_COUNTERS; i++) {
			own->passed[i] += counted[i];
			dev->counted[i] += counted[i];
		}
		list_del_init(&qp->ext.counter_entry);
		ibqp->counter = NULL;
	}
	mutex_unlock(&dev->counter_lock);
	return 0;
}

int mana_ib_counter_update(struct rdma_counter *counter)
{
	struct mana_ib_dev *dev = to_mana_dev(counter->device);
	struct mana_ib_turn turn __cleanup(mana_ib_end_turn) = {};
	struct mana_ib_counter *own;
	int err;

	mana_ib_skip_turns(dev, true, &turn);
	mutex_lock(&dev->counter_lock);
	own = xa_load(&dev->counters, counter->id);
	if (!own) {
		err = -EINVAL;
		goto out;
	}
	memcpy(counter->stats->value, own->passed, sizeof(own->passed));
	err = mana_ib_add_bound(dev, own, counter->stats->value);
out:
	mutex_unlock(&dev->counter_lock);
	return err;
}

int mana_ib_counter_dealloc(struct rdma_counter *counter)
{
	struct mana_ib_dev *dev = to_mana_dev(counter->device);

	mutex_lock(&dev->counter_lock);
	kfree(xa_erase_irq(&dev->counters, counter->id));
	mutex_unlock(&dev->counter_lock);
	return 0;
}

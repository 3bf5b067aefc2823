/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints (/sys/kernel/tracing/events/mana_ib), in the words that the device and
 * the provider use too, so that traces of one run can be joined: doorbell, wqe_post,
 * cqe, hwc_req; qpn, cqn, offset.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM mana_ib

#if !defined(MANA_IB_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define MANA_IB_TRACE_H

#include "mana_ib.h"

#include <linux/tracepoint.h>

#ifndef MANA_IB_TRACE_ONCE
#define MANA_IB_TRACE_ONCE
#define MANA_IB_TRACE_NAME 16

/* Whose ring a WQE is in. */
enum mana_ib_trace_queue {
	MANA_IB_TRACE_RQ,
	MANA_IB_TRACE_SQ,
	MANA_IB_TRACE_SRQ
};
#endif

/* A request to the device was answered, or was not (err -110). */
TRACE_EVENT(hwc_req,
	    TP_PROTO(const struct mana_ib_dev *dev, u32 opcode, u32 status,
		     int err),
	    TP_ARGS(dev, opcode, status, err),
	    TP_STRUCT__entry(__array(char, dev, MANA_IB_TRACE_NAME)
			     __field(u32, opcode)
			     __field(u32, status)
			     __field(int, err)),
	    TP_fast_assign(strscpy(__entry->dev, dev->ibdev.name,
				   MANA_IB_TRACE_NAME);
			   __entry->opcode = opcode;
			   __entry->status = status;
			   __entry->err = err;),
	    TP_printk("dev=%s opcode=%#x status=%#x err=%d", __entry->dev,
		      __entry->opcode, __entry->status, __entry->err));

/* The device was given up: it did not answer this request. */
TRACE_EVENT(device_lost,
	    TP_PROTO(const struct mana_ib_dev *dev, u32 opcode),
	    TP_ARGS(dev, opcode),
	    TP_STRUCT__entry(__array(char, dev, MANA_IB_TRACE_NAME)
			     __field(u32, opcode)),
	    TP_fast_assign(strscpy(__entry->dev, dev->ibdev.name,
				   MANA_IB_TRACE_NAME);
			   __entry->opcode = opcode;),
	    TP_printk("dev=%s opcode=%#x", __entry->dev, __entry->opcode));

/* The device tells an event; type is enum ib_event_type, id a qpn, cqn or srqn. */
TRACE_EVENT(async_event,
	    TP_PROTO(const struct mana_ib_dev *dev, u32 type, u32 id),
	    TP_ARGS(dev, type, id),
	    TP_STRUCT__entry(__array(char, dev, MANA_IB_TRACE_NAME)
			     __field(u32, type)
			     __field(u32, id)),
	    TP_fast_assign(strscpy(__entry->dev, dev->ibdev.name,
				   MANA_IB_TRACE_NAME);
			   __entry->type = type;
			   __entry->id = id;),
	    TP_printk("dev=%s type=%u id=%#x", __entry->dev, __entry->type,
		      __entry->id));

/* A QP goes from a state to another, or is asked for that and does not (err). */
TRACE_EVENT(qp_state,
	    TP_PROTO(const struct mana_ib_dev *dev, u32 qpn, u32 from, u32 to,
		     int err),
	    TP_ARGS(dev, qpn, from, to, err),
	    TP_STRUCT__entry(__array(char, dev, MANA_IB_TRACE_NAME)
			     __field(u32, qpn)
			     __field(u32, from)
			     __field(u32, to)
			     __field(int, err)),
	    TP_fast_assign(strscpy(__entry->dev, dev->ibdev.name,
				   MANA_IB_TRACE_NAME);
			   __entry->qpn = qpn;
			   __entry->from = from;
			   __entry->to = to;
			   __entry->err = err;),
	    TP_printk("dev=%s qpn=%#x from=%u to=%u err=%d", __entry->dev,
		      __entry->qpn, __entry->from, __entry->to, __entry->err));

/* The kernel has written a WQE; offset is its position in units of the ring. */
TRACE_EVENT(wqe_post,
	    TP_PROTO(const struct mana_ib_dev *dev, u32 qpn,
		     enum mana_ib_trace_queue queue, u32 offset, u32 opcode),
	    TP_ARGS(dev, qpn, queue, offset, opcode),
	    TP_STRUCT__entry(__array(char, dev, MANA_IB_TRACE_NAME)
			     __field(u32, qpn)
			     __field(u32, queue)
			     __field(u32, offset)
			     __field(u32, opcode)),
	    TP_fast_assign(strscpy(__entry->dev, dev->ibdev.name,
				   MANA_IB_TRACE_NAME);
			   __entry->qpn = qpn;
			   __entry->queue = queue;
			   __entry->offset = offset;
			   __entry->opcode = opcode;),
	    TP_printk("dev=%s qpn=%#x queue=%s offset=%#x opcode=%u",
		      __entry->dev, __entry->qpn,
		      __print_symbolic(__entry->queue, { 0, "rq" },
				       { 1, "sq" }, { 2, "srq" }),
		      __entry->offset, __entry->opcode));

/* A doorbell of the kernel's page; offset tells its kind. */
TRACE_EVENT(doorbell,
	    TP_PROTO(const struct mana_ib_dev *dev, u32 offset, u64 value),
	    TP_ARGS(dev, offset, value),
	    TP_STRUCT__entry(__array(char, dev, MANA_IB_TRACE_NAME)
			     __field(u32, offset)
			     __field(u64, value)),
	    TP_fast_assign(strscpy(__entry->dev, dev->ibdev.name,
				   MANA_IB_TRACE_NAME);
			   __entry->offset = offset;
			   __entry->value = value;),
	    TP_printk("dev=%s offset=%#x value=%#llx", __entry->dev,
		      __entry->offset, __entry->value));

/* The kernel has taken an entry of a CQ; id is the queue that it names. */
TRACE_EVENT(cqe,
	    TP_PROTO(const struct mana_ib_dev *dev, u32 cqn, u32 offset, u32 id,
		     bool send),
	    TP_ARGS(dev, cqn, offset, id, send),
	    TP_STRUCT__entry(__array(char, dev, MANA_IB_TRACE_NAME)
			     __field(u32, cqn)
			     __field(u32, offset)
			     __field(u32, id)
			     __field(bool, send)),
	    TP_fast_assign(strscpy(__entry->dev, dev->ibdev.name,
				   MANA_IB_TRACE_NAME);
			   __entry->cqn = cqn;
			   __entry->offset = offset;
			   __entry->id = id;
			   __entry->send = send;),
	    TP_printk("dev=%s cqn=%#x offset=%#x queue=%s id=%#x", __entry->dev,
		      __entry->cqn, __entry->offset,
		      __entry->send ? "sq" : "rq", __entry->id));

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>

/* SPDX-License-Identifier: GPL-2.0 */
/* Work requests and completions of the kernel. */
#ifndef MANA_IB_POST_H
#define MANA_IB_POST_H

#include "qp.h"

/* poll.c */
int mana_ib_poll_cq(struct ib_cq *ibcq, int count, struct ib_wc *wc);
bool mana_ib_cq_has_completion(struct mana_ib_cq *cq);
void mana_ib_forget_entries(struct mana_ib_cq *cq, struct mana_ib_qp *qp);
void mana_ib_start_flush(struct mana_ib_qp *qp);
void mana_ib_stop_flush(struct mana_ib_qp *qp);
void mana_ib_wake_flush(struct mana_ib_cq *cq);
void mana_ib_ring_cq(struct mana_ib_dev *dev, struct mana_ib_cq *cq, bool arm);

/* post.c */
int mana_ib_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		      const struct ib_send_wr **bad);
int mana_ib_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		      const struct ib_recv_wr **bad);

/* post_ud.c, post_ext.c: one work request; the ring's lock is held */
int mana_ib_post_send_ud(struct mana_ib_qp *qp, const struct ib_send_wr *wr);
int mana_ib_post_recv_ud(struct mana_ib_qp *qp, const struct ib_recv_wr *wr);
int mana_ib_post_send_ext(struct mana_ib_qp *qp, const struct ib_send_wr *wr);
int mana_ib_post_recv_ext(struct mana_ib_qp *qp, const struct ib_recv_wr *wr);
u32 mana_ib_ext_send_bytes(u32 max_sge, bool datagram);
u32 mana_ib_ext_receive_stride(u32 max_sge);
u32 mana_ib_ud_send_bytes(u32 max_sge);
u32 mana_ib_ud_receive_bytes(u32 max_sge);

/* notify.c */
void mana_ib_notify_send(struct mana_ib_qp *qp);
void mana_ib_notify_recv(struct mana_ib_qp *qp);

#endif

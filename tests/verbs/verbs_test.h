/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the provider's verbs share. */
#ifndef VERBS_TEST_H
#define VERBS_TEST_H

#include <stdio.h>

#include "mana.h"

extern unsigned int failures;

#define CHECK_OF(condition, what)                                                     \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, what, #condition); \
            ++failures;                                                               \
        }                                                                             \
    } while (0)
#define CHECK(condition) CHECK_OF(condition, __func__)

/* A device with everything, or one with the public ABI alone. */
struct mana_context* make_context(bool extended);
void free_context(struct mana_context* ctx);

/* Writes a CQE as the device does, the `number`th since the CQ was made. */
void write_cqe(struct mana_dp_cq* cq, uint32_t number, const void* data, size_t bytes,
               uint32_t queue_id, bool is_sq);

/* The kernel's next id, and what it does when the state of a QP is to change; NULL: nothing. */
extern uint32_t next_id;
extern void (*on_modify)(struct ibv_qp* qp, enum ibv_qp_state state);

/* What the driver says when it is asked for the state of a QP: an errno, or the state. */
extern int refuse_query;
extern enum ibv_qp_state state_of_qps;

/* failures_test.c: QPs that fail are moved to ERR. */
void check_failures(void);

/* posts_test.c: what is refused leaves the queue as it was. */
void check_posts(void);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The provider's verbs, with this program as libibverbs' commands and the kernel: what they refuse,
 * what they ask the kernel for, what is as before after an error. The data path has tests of its
 * own.
 */
#include <errno.h>
#include <infiniband/cmd_ioctl.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "verbs_test.h"

unsigned int failures;

/* The kernel: everything works, but what a test wants refused. */
static int refuse_modify;
uint32_t next_id = 0x100;
void (*on_modify)(struct ibv_qp* qp, enum ibv_qp_state state);
int refuse_query;
enum ibv_qp_state state_of_qps;

int ibv_cmd_alloc_pd(struct ibv_context* context, struct ibv_pd* pd, struct ibv_alloc_pd* cmd,
                     size_t cmd_size, struct ib_uverbs_alloc_pd_resp* resp, size_t resp_size) {
    (void)cmd, (void)cmd_size, (void)resp, (void)resp_size;
    pd->context = context;
    pd->handle = next_id++;
    return 0;
}
int mana_query_port(struct ibv_context* context, uint8_t port, struct ibv_port_attr* attr) {
    (void)context, (void)port;
    attr->active_mtu = IBV_MTU_1024;
    return 0;
}
int ibv_cmd_dealloc_pd(struct ibv_pd* pd) {
    return (void)pd, 0;
}
struct ibv_pd* ibv_alloc_pd(struct ibv_context* context) {
    return mana_alloc_pd(context);
}
int ibv_cmd_create_cq(struct ibv_context* context, int cqe, struct ibv_comp_channel* channel,
                      int comp_vector, struct ibv_cq* cq, struct ibv_create_cq* cmd,
                      size_t cmd_size, struct ib_uverbs_create_cq_resp* resp, size_t resp_size) {
    (void)channel, (void)comp_vector, (void)cmd, (void)cmd_size, (void)resp, (void)resp_size;
    cq->context = context;
    cq->cqe = cqe;
    return 0;
}
int ibv_cmd_destroy_cq(struct ibv_cq* cq) {
    return (void)cq, 0;
}
int ibv_cmd_create_qp_ex(struct ibv_context* context, struct verbs_qp* qp,
                         struct ibv_qp_init_attr_ex* attr, struct ibv_create_qp* cmd,
                         size_t cmd_size, struct ib_uverbs_create_qp_resp* resp, size_t resp_size) {
    (void)cmd, (void)cmd_size;
    uint32_t* ids = (uint32_t*)(resp + 1);
    for (size_t i = 0; i < (resp_size - sizeof(*resp)) / sizeof(*ids); ++i) ids[i] = next_id++;
    qp->qp.context = context;
    qp->qp.pd = attr->pd;
    qp->qp.qp_type = attr->qp_type;
    qp->qp.state = IBV_QPS_RESET;
    return 0;
}
int ibv_cmd_destroy_qp(struct ibv_qp* qp) {
    return (void)qp, 0;
}
int ibv_cmd_modify_qp(struct ibv_qp* qp, struct ibv_qp_attr* attr, int mask,
                      struct ibv_modify_qp* cmd, size_t cmd_size) {
    (void)cmd, (void)cmd_size;
    if (refuse_modify) return refuse_modify;
    if (on_modify && (mask & IBV_QP_STATE)) on_modify(qp, attr->qp_state);
    if (mask & IBV_QP_STATE) qp->state = attr->qp_state;
    return 0;
}
int ibv_cmd_query_qp(struct ibv_qp* qp, struct ibv_qp_attr* attr, int mask,
                     struct ibv_qp_init_attr* init_attr, struct ibv_query_qp* cmd,
                     size_t cmd_size) {
    (void)qp, (void)mask, (void)init_attr, (void)cmd, (void)cmd_size;
    attr->qp_state = state_of_qps;
    return refuse_query;
}
int ibv_cmd_create_srq(struct ibv_pd* pd, struct ibv_srq* srq, struct ibv_srq_init_attr* attr,
                       struct ibv_create_srq* cmd, size_t cmd_size,
                       struct ib_uverbs_create_srq_resp* resp, size_t resp_size) {
    (void)attr, (void)cmd, (void)cmd_size, (void)resp, (void)resp_size;
    srq->context = pd->context;
    return 0;
}
int ibv_cmd_destroy_srq(struct ibv_srq* srq) {
    return (void)srq, 0;
}
/* Each key is given once. */
static int give_key(struct verbs_mr* mr, struct ibv_context* context) {
    static uint32_t next_key = 0x100;
    mr->ibv_mr.context = context;
    mr->ibv_mr.lkey = next_key++;
    return 0;
}
int ibv_cmd_reg_mr(struct ibv_pd* pd, void* address, size_t length, uint64_t hca_va, int access,
                   struct verbs_mr* mr, struct ibv_reg_mr* cmd, size_t cmd_size,
                   struct ib_uverbs_reg_mr_resp* resp, size_t resp_size) {
    (void)address, (void)length, (void)hca_va, (void)access;
    (void)cmd, (void)cmd_size, (void)resp, (void)resp_size;
    return give_key(mr, pd->context);
}
static int refuse_dmabuf;

int ibv_cmd_reg_dmabuf_mr(struct ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                          int access, struct verbs_mr* mr, struct ibv_command_buffer* driver) {
    (void)offset, (void)length, (void)iova, (void)fd, (void)access, (void)driver;
    return refuse_dmabuf ? refuse_dmabuf : give_key(mr, pd->context);
}
int ibv_cmd_query_mr(struct ibv_pd* pd, struct verbs_mr* mr, uint32_t handle) {
    return (void)handle, give_key(mr, pd->context);
}
int ibv_cmd_dereg_mr(struct verbs_mr* mr) {
    return (void)mr, 0;
}
/* Of the ranges that fork shall leave out: bytes, and calls to come. */
static size_t kept_from_forks;
static unsigned int dontforks;
static int refuse_dontfork;

int ibv_dontfork_range(void* base, size_t size) {
    (void)base;
    if (refuse_dontfork) return errno = refuse_dontfork, -1;
    ++dontforks;
    kept_from_forks += size;
    return 0;
}
int ibv_dofork_range(void* base, size_t size) {
    (void)base;
    kept_from_forks -= size;
    return 0;
}
static int refuse_rereg;

int ibv_cmd_rereg_mr(struct verbs_mr* mr, uint32_t flags, void* address, size_t length,
                     uint64_t hca_va, int access, struct ibv_pd* pd, struct ibv_rereg_mr* cmd,
                     size_t cmd_size, struct ib_uverbs_rereg_mr_resp* resp, size_t resp_size) {
    (void)flags, (void)address, (void)length, (void)hca_va, (void)access, (void)pd;
    (void)cmd, (void)cmd_size, (void)resp, (void)resp_size;
    return refuse_rereg ? refuse_rereg : give_key(mr, mr->ibv_mr.context);
}
int ibv_cmd_alloc_mw(struct ibv_pd* pd, enum ibv_mw_type type, struct ibv_mw* mw,
                     struct ibv_alloc_mw* cmd, size_t cmd_size,
                     struct ib_uverbs_alloc_mw_resp* resp, size_t resp_size) {
    (void)cmd, (void)cmd_size, (void)resp, (void)resp_size;
    mw->context = pd->context;
    mw->pd = pd;
    mw->type = type;
    mw->rkey = 0x900;
    return 0;
}
int ibv_cmd_dealloc_mw(struct ibv_mw* mw) {
    return (void)mw, 0;
}
int ibv_cmd_create_ah(struct ibv_pd* pd, struct ibv_ah* ah, struct ibv_ah_attr* attr,
                      struct ib_uverbs_create_ah_resp* resp, size_t resp_size) {
    (void)attr, (void)resp, (void)resp_size;
    ah->context = pd->context;
    return 0;
}
int ibv_cmd_destroy_ah(struct ibv_ah* ah) {
    return (void)ah, 0;
}
int ibv_query_gid(struct ibv_context* context, uint8_t port, int index, union ibv_gid* gid) {
    (void)context, (void)port, (void)index;
    memset(gid, 0, sizeof(*gid));
    return 0;
}
int ibv_cmd_modify_qp_ex(struct ibv_qp* qp, struct ibv_qp_attr* attr, int mask,
                         struct ibv_modify_qp_ex* cmd, size_t cmd_size,
                         struct ib_uverbs_ex_modify_qp_resp* resp, size_t resp_size) {
    (void)cmd, (void)cmd_size;
    uint32_t* ids = (uint32_t*)(resp + 1);
    for (size_t i = 0; i < (resp_size - sizeof(*resp)) / sizeof(*ids); ++i) ids[i] = next_id++;
    return ibv_cmd_modify_qp(qp, attr, mask, NULL, 0);
}
int ibv_cmd_create_wq(struct ibv_context* context, struct ibv_wq_init_attr* attr, struct ibv_wq* wq,
                      struct ibv_create_wq* cmd, size_t cmd_size,
                      struct ib_uverbs_ex_create_wq_resp* resp, size_t resp_size) {
    (void)cmd, (void)cmd_size;
    uint32_t* ids = (uint32_t*)(resp + 1);
    for (size_t i = 0; i < (resp_size - sizeof(*resp)) / sizeof(*ids); ++i) ids[i] = next_id++;
    wq->context = context;
    wq->pd = attr->pd;
    wq->cq = attr->cq;
    wq->wq_num = next_id++;
    wq->state = IBV_WQS_RESET;
    return 0;
}
int ibv_cmd_modify_wq(struct ibv_wq* wq, struct ibv_wq_attr* attr, struct ibv_modify_wq* cmd,
                      size_t cmd_size) {
    (void)cmd, (void)cmd_size;
    if (attr->attr_mask & IBV_WQ_ATTR_STATE) wq->state = attr->wq_state;
    return 0;
}
int ibv_cmd_destroy_wq(struct ibv_wq* wq) {
    return (void)wq, 0;
}

/* The last ioctl: what it was given, by attribute. */
static struct {
    unsigned int calls;
    uint16_t object, method;
    uint64_t value[8];
    int answer;
} asked;

int execute_ioctl(struct ibv_context* context, struct ibv_command_buffer* cmd) {
    (void)context;
    ++asked.calls;
    asked.object = cmd->hdr.object_id;
    asked.method = cmd->hdr.method_id;
    for (const struct ib_uverbs_attr* attr = cmd->hdr.attrs; attr != cmd->next_attr; ++attr)
        if (attr->attr_id - 0x1000u < 8) asked.value[attr->attr_id - 0x1000u] = attr->data;
    return asked.answer;
}

struct mana_context* make_context(bool extended) {
    struct mana_context* ctx = calloc(1, sizeof(*ctx));
    if (!ctx) abort();
    pthread_mutex_init(&ctx->table_lock, NULL);
    pthread_cond_init(&ctx->failed, NULL);
    ctx->doorbell = calloc(1, MANA_DOORBELL_PAGE_BYTES);
    if (extended) {
        ctx->caps.features = ~0ULL;
        ctx->caps.max_send_wr = ctx->caps.max_recv_wr = ctx->caps.max_srq_wr = 64;
        ctx->caps.max_send_sge = ctx->caps.max_recv_sge = ctx->caps.max_srq_sge = 4;
        ctx->caps.max_inline_bytes = 128;
        ctx->caps.max_cqe = 1024;
    }
    return ctx;
}

void free_context(struct mana_context* ctx) {
    mana_dp_table_free(&ctx->sq_table);
    mana_dp_table_free(&ctx->rq_table);
    free(ctx->doorbell);
    free(ctx);
}

void write_cqe(struct mana_dp_cq* cq, uint32_t number, const void* data, size_t bytes,
               uint32_t queue_id, bool is_sq) {
    struct mana_hw_cqe* cqe = &cq->ring[number & (cq->entries - 1)];
    memcpy(cqe->data, data, bytes);
    cqe->word = queue_id | (is_sq ? MANA_HW_CQE_IS_SQ : 0) |
                ((number + cq->entries) >> cq->shift & MANA_HW_OWNER_MASK) << MANA_HW_OWNER_SHIFT;
}

static struct ibv_qp* make_qp(struct ibv_pd* pd, struct ibv_cq* cq, enum ibv_qp_type type,
                              uint32_t inline_bytes) {
    struct ibv_qp_init_attr attr = {.send_cq = cq,
                                    .recv_cq = cq,
                                    .cap = {8, 8, 1, 1, inline_bytes},
                                    .qp_type = type,
                                    .sq_sig_all = 1};
    return mana_create_qp(pd, &attr);
}

/* What a parent domain's allocator gave and has not got back, by the kind of object. */
static unsigned int held, held_of[4];
/* What it does instead: NULL, or leaves it to the provider. */
static bool refuses, leaves_it;

static void* take(struct ibv_pd* pd, void* context, size_t size, size_t alignment, uint64_t type) {
    (void)pd, (void)context;
    CHECK(type >> 32 == RDMA_DRIVER_MANA && (uint32_t)type < 4);
    if (refuses) return NULL;
    if (leaves_it) return IBV_ALLOCATOR_USE_DEFAULT;
    ++held;
    ++held_of[type & 3];
    return aligned_alloc(alignment, size);
}

static void give_back(struct ibv_pd* pd, void* context, void* memory, uint64_t type) {
    (void)pd, (void)context;
    --held;
    --held_of[type & 3];
    free(memory);
}

static struct ibv_pd* make_parent(struct ibv_pd* pd) {
    struct ibv_parent_domain_init_attr attr = {.pd = pd,
                                               .comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS,
                                               .alloc = take,
                                               .free = give_back};
    return mana_alloc_parent_domain(pd->context, &attr);
}

static void parent_domain_outlives_its_queues(void) {
    struct mana_context* ctx = make_context(true);
    struct ibv_context* context = &ctx->ibv_ctx.context;
    struct ibv_pd* pd = mana_alloc_pd(context);
    struct ibv_pd* parent = make_parent(pd);
    struct ibv_cq_init_attr_ex cq_attr = {
        .cqe = 16, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = parent};
    struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 8, .max_sge = 1}};
    struct ibv_cq_ex* cq = mana_create_cq_ex(context, &cq_attr);
    CHECK(mana_dealloc_pd(parent) == EBUSY);
    struct ibv_srq* srq = mana_create_srq(parent, &srq_attr);
    struct ibv_qp* qp = make_qp(parent, ibv_cq_ex_to_cq(cq), IBV_QPT_RC, 0);
    CHECK(held == 3 && held_of[1] == 1 && held_of[2] == 1 && held_of[3] == 1);
    CHECK(dontforks == 0);
    CHECK(!mana_destroy_qp(qp));
    CHECK(!mana_destroy_cq(ibv_cq_ex_to_cq(cq)));
    CHECK(mana_dealloc_pd(parent) == EBUSY);
    CHECK(!mana_destroy_srq(srq));
    CHECK(held == 0 && kept_from_forks == 0);
    CHECK(mana_dealloc_pd(pd) == EBUSY);
    CHECK(!mana_dealloc_pd(parent));
    CHECK(!mana_dealloc_pd(pd));
    free_context(ctx);
}

struct thread_domain {
    struct ibv_td* td;
    struct ibv_pd* parent; /* what is made in it is in the thread domain */
};

static struct thread_domain make_thread_domain(struct ibv_pd* pd) {
    struct ibv_td_init_attr none = {};
    struct thread_domain domain = {.td = mana_alloc_td(pd->context, &none)};
    struct ibv_parent_domain_init_attr attr = {.pd = pd, .td = domain.td};
    domain.parent = mana_alloc_parent_domain(pd->context, &attr);
    return domain;
}

static void end_thread_domain(struct thread_domain domain) {
    CHECK(!mana_dealloc_pd(domain.parent) && !mana_dealloc_td(domain.td));
}

/* A thread domain speaks for who posts to its queues. The receives of an SRQ come back from the
 * pollers of all CQs of its QPs, which may be of other threads. */
static void srq_in_a_thread_domain_has_a_lock(void) {
    struct mana_context* ctx = make_context(true);
    struct ibv_context* context = &ctx->ibv_ctx.context;
    struct ibv_pd* pd = mana_alloc_pd(context);
    const struct thread_domain domain = make_thread_domain(pd);
    struct ibv_pd* parent = domain.parent;
    struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 8, .max_sge = 1}};
    struct ibv_srq* srq = mana_create_srq(parent, &srq_attr);
    struct ibv_cq* cq = mana_create_cq(context, 16, NULL, 0);
    struct ibv_qp* qp = make_qp(parent, cq, IBV_QPT_RC, 0);
    CHECK(to_mqp(qp)->sq_lock.elided && to_mqp(qp)->rq_lock.elided);
    CHECK(!to_msrq(srq)->lock.elided);
    CHECK(!mana_destroy_qp(qp) && !mana_destroy_cq(cq) && !mana_destroy_srq(srq));
    end_thread_domain(domain);
    CHECK(!mana_dealloc_pd(pd));
    free_context(ctx);
}

/* Who polls the failure of a queue in the public format stops its posts, and may be of another
 * thread. */
static void stock_qp_in_a_thread_domain_may_have_locks(void) {
    struct mana_context* ctx = make_context(false);
    struct ibv_context* context = &ctx->ibv_ctx.context;
    struct ibv_pd* pd = mana_alloc_pd(context);
    const struct thread_domain domain = make_thread_domain(pd);
    struct ibv_pd* parent = domain.parent;
    struct ibv_cq_init_attr_ex cq_attr = {
        .cqe = 16, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = parent};
    struct ibv_cq* inside = ibv_cq_ex_to_cq(mana_create_cq_ex(context, &cq_attr));
    struct ibv_cq* outside = mana_create_cq(context, 16, NULL, 0);
    struct ibv_qp_init_attr qp_attr = {
        .send_cq = inside, .recv_cq = outside, .cap = {8, 8, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    struct ibv_qp* qp = mana_create_qp(parent, &qp_attr);
    CHECK(to_mqp(qp)->sq_lock.elided && !to_mqp(qp)->rq_lock.elided);
    CHECK(to_mqp(qp)->stock.send_side.posts == &to_mqp(qp)->sq_lock);
    CHECK(to_mqp(qp)->stock.recv_side.posts == &to_mqp(qp)->rq_lock);
    CHECK(!mana_destroy_qp(qp) && !mana_destroy_cq(inside) && !mana_destroy_cq(outside));
    end_thread_domain(domain);
    CHECK(!mana_dealloc_pd(pd));
    free_context(ctx);
}

/* Its objects point to it, and a bind for one looks there. */
static void parent_domain_outlives_its_objects(void) {
    struct mana_context* ctx = make_context(true);
    struct ibv_context* context = &ctx->ibv_ctx.context;
    struct ibv_pd* pd = mana_alloc_pd(context);
    struct ibv_pd* parent = make_parent(pd);
    struct ibv_pd* second = make_parent(parent);
    ctx->caps.flags = MANA_UAPI_CONTEXT_DMAC;

    struct ibv_mr* mr = mana_reg_mr(parent, NULL, 64, 0, 0);
    CHECK(mana_dealloc_pd(parent) == EBUSY);
    CHECK(!mana_rereg_mr(verbs_get_mr(mr), IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0));
    CHECK(mana_dealloc_pd(parent) == EBUSY);
    CHECK(!mana_rereg_mr(verbs_get_mr(mr), IBV_REREG_MR_CHANGE_PD, second, NULL, 0, 0));
    CHECK(mana_dealloc_pd(second) == EBUSY && mana_dealloc_pd(pd) == EBUSY);
    CHECK(!mana_rereg_mr(verbs_get_mr(mr), IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0));
    CHECK(!mana_dealloc_pd(second));
    CHECK(!mana_dereg_mr(verbs_get_mr(mr)));

    struct ibv_mw* mw = mana_alloc_mw(parent, IBV_MW_TYPE_2);
    CHECK(mana_dealloc_pd(parent) == EBUSY);
    CHECK(!mana_dealloc_mw(mw));

    struct ibv_ah_attr ah_attr = {.is_global = 1, .port_num = 1};
    struct ibv_ah* ah = mana_create_ah(parent, &ah_attr);
    CHECK(ah && mana_dealloc_pd(parent) == EBUSY);
    CHECK(!mana_destroy_ah(ah));

    struct ibv_cq* cq = mana_create_cq(context, 16, NULL, 0);
    struct ibv_wq_init_attr wq_attr = {
        .wq_type = IBV_WQT_RQ, .max_wr = 8, .max_sge = 1, .pd = parent, .cq = cq};
    struct ibv_wq* wq = mana_create_wq(context, &wq_attr);
    CHECK(wq && mana_dealloc_pd(parent) == EBUSY);
    CHECK(!mana_destroy_wq(wq));
    struct ibv_qp* qp = make_qp(parent, cq, IBV_QPT_RAW_PACKET, 0);
    CHECK(qp && mana_dealloc_pd(parent) == EBUSY);
    CHECK(!mana_destroy_qp(qp));

    CHECK(!mana_destroy_cq(cq));
    CHECK(mana_dealloc_pd(pd) == EBUSY);
    CHECK(!mana_dealloc_pd(parent));
    CHECK(!mana_dealloc_pd(pd));
    CHECK(held == 0);
    free_context(ctx);
}

static void* take_pages(size_t size, void* data) {
    (void)data;
    ++held;
    return aligned_alloc(4096, size);
}

static void give_pages_back(void* memory, void* data) {
    (void)data;
    --held;
    free(memory);
}

static void parent_domain_outlives_direct_queues(void) {
    struct mana_context* ctx = make_context(false);
    struct ibv_context* context = &ctx->ibv_ctx.context;
    struct manadv_ctx_allocators allocators = {take_pages, give_pages_back, NULL};
    dontforks = 0;
    CHECK(!manadv_set_context_attr(context, MANADV_CTX_ATTR_BUF_ALLOCATORS, &allocators));
    struct ibv_pd* pd = mana_alloc_pd(context);
    struct ibv_pd* parent = make_parent(pd);
    struct ibv_cq* cq = mana_create_cq(context, 16, NULL, 0);
    struct ibv_wq_init_attr wq_attr = {
        .wq_type = IBV_WQT_RQ, .max_wr = 8, .max_sge = 1, .pd = parent, .cq = cq};
    struct ibv_wq* wq = mana_create_wq(context, &wq_attr);
    CHECK(wq && mana_dealloc_pd(parent) == EBUSY);
    CHECK(!mana_destroy_wq(wq));
    struct ibv_qp* qp = make_qp(parent, cq, IBV_QPT_RAW_PACKET, 0);
    CHECK(qp && mana_dealloc_pd(parent) == EBUSY);
    CHECK(held == 2 && dontforks == 0);
    CHECK(!mana_destroy_qp(qp) && !mana_destroy_cq(cq));
    CHECK(held == 0 && kept_from_forks == 0);
    CHECK(!mana_dealloc_pd(parent) && !mana_dealloc_pd(pd));
    free_context(ctx);
}

static void own_memory_is_kept_from_forks(void) {
    struct mana_context* ctx = make_context(false);
    struct ibv_pd* pd = mana_alloc_pd(&ctx->ibv_ctx.context);
    dontforks = 0;
    struct ibv_cq* cq = mana_create_cq(&ctx->ibv_ctx.context, 16, NULL, 0);
    struct ibv_qp* qp = make_qp(pd, cq, IBV_QPT_RC, 64);
    CHECK(dontforks == 6); /* the CQ, four queues, and inline data */
    CHECK(kept_from_forks >= 6 * 4096);
    const size_t before = kept_from_forks;
    refuse_dontfork = ENOMEM;
    errno = 0;
    CHECK(!make_qp(pd, cq, IBV_QPT_RC, 64) && errno == ENOMEM);
    CHECK(!mana_create_cq(&ctx->ibv_ctx.context, 16, NULL, 0) && errno == ENOMEM);
    refuse_dontfork = 0;
    CHECK(kept_from_forks == before);
    CHECK(!mana_destroy_qp(qp) && !mana_destroy_cq(cq) && !mana_dealloc_pd(pd));
    CHECK(kept_from_forks == 0);
    free_context(ctx);
}

static void allocators_may_refuse(void) {
    struct mana_context* ctx = make_context(true);
    struct ibv_context* context = &ctx->ibv_ctx.context;
    struct ibv_pd* pd = mana_alloc_pd(context);
    struct ibv_pd* parent = make_parent(pd);
    struct ibv_cq_init_attr_ex cq_attr = {
        .cqe = 16, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = parent};
    struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 8, .max_sge = 1}};
    struct ibv_cq* cq = mana_create_cq(context, 16, NULL, 0);
    refuses = true;
    errno = 0;
    CHECK(!mana_create_cq_ex(context, &cq_attr) && errno == ENOMEM);
    errno = 0;
    CHECK(!mana_create_srq(parent, &srq_attr) && errno == ENOMEM);
    errno = 0;
    CHECK(!make_qp(parent, cq, IBV_QPT_RC, 0) && errno == ENOMEM);
    errno = 0;
    CHECK(!make_qp(parent, cq, IBV_QPT_RAW_PACKET, 64) && errno == ENOMEM);
    refuses = false;
    leaves_it = true;
    dontforks = 0;
    struct ibv_qp* qp = make_qp(parent, cq, IBV_QPT_RC, 0);
    CHECK(qp && held == 0 && dontforks == 1);
    CHECK(!mana_destroy_qp(qp) && !mana_destroy_cq(cq));
    leaves_it = false;
    CHECK(kept_from_forks == 0);
    CHECK(!mana_dealloc_pd(parent) && !mana_dealloc_pd(pd));
    free_context(ctx);
}

/* What drivers offer of the public format there is, and what it cannot have is EINVAL. */
static void qps_have_room_or_are_refused(enum ibv_qp_type type, bool extended) {
    struct mana_context* ctx = make_context(extended);
    ctx->caps.flags = MANA_UAPI_CONTEXT_USER_UD;
    struct ibv_pd* pd = mana_alloc_pd(&ctx->ibv_ctx.context);
    struct ibv_cq* cq = mana_create_cq(&ctx->ibv_ctx.context, 16, NULL, 0);
    const struct ibv_qp_cap most = extended ? (struct ibv_qp_cap){64, 64, 4, 4, 128}
                                            : (struct ibv_qp_cap){8192, 8192, 29, 15, 4096};
    const struct ibv_qp_cap good[] = {most, {0, 0, 0, 0, 0}, {1, 1, 0, 0, 1}, {7, 9, 3, 2, 33}};
    struct ibv_qp_cap bad[] = {most, most, most, most, most, most};
    bad[0].max_send_wr = UINT32_MAX;
    bad[1].max_recv_wr = UINT32_MAX;
    bad[2].max_send_sge++;
    bad[3].max_recv_sge++;
    bad[4].max_send_sge = UINT32_MAX;
    bad[5].max_recv_sge = UINT32_MAX;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); ++i) {
        struct ibv_qp_init_attr attr = {
            .send_cq = cq, .recv_cq = cq, .cap = good[i], .qp_type = type};
        struct ibv_qp* qp = mana_create_qp(pd, &attr);
        CHECK(qp && attr.cap.max_send_wr >= good[i].max_send_wr &&
              attr.cap.max_recv_wr >= good[i].max_recv_wr &&
              attr.cap.max_send_sge >= good[i].max_send_sge &&
              attr.cap.max_recv_sge >= good[i].max_recv_sge &&
              attr.cap.max_inline_data >= good[i].max_inline_data);
        if (qp) CHECK(!mana_destroy_qp(qp));
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        struct ibv_qp_init_attr attr = {
            .send_cq = cq, .recv_cq = cq, .cap = bad[i], .qp_type = type};
        errno = 0;
        CHECK(!mana_create_qp(pd, &attr) && errno == EINVAL);
    }
    CHECK(!mana_destroy_cq(cq) && !mana_dealloc_pd(pd));
    CHECK(kept_from_forks == 0);
    free_context(ctx);
}

/* At least what was asked for, or EINVAL. */
static void cqs_have_room_or_are_refused(bool extended) {
    struct mana_context* ctx = make_context(extended);
    struct ibv_context* context = &ctx->ibv_ctx.context;
    const int most = extended ? (int)ctx->caps.max_cqe / 2 : 1 << 22;
    const int sizes[] = {1, 2, 63, 64, 65, 100, 500, most / 2 + 1, most - 1, most};
    const int refused[] = {0, -1, most + 1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        struct ibv_cq* cq = mana_create_cq(context, sizes[i], NULL, 0);
        CHECK(cq && cq->cqe >= sizes[i] && cq->cqe <= most);
        /* and as much again, for what completes before the device knows what a poll took */
        CHECK(!cq || !extended || (int)to_mcq(cq)->dp.entries == 2 * cq->cqe);
        if (cq) CHECK(!mana_destroy_cq(cq));
    }
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); ++i) {
        errno = 0;
        CHECK(!mana_create_cq(context, refused[i], NULL, 0) && errno == EINVAL);
    }
    struct ibv_cq_init_attr_ex attr = {.cqe = UINT32_MAX};
    errno = 0;
    CHECK(!mana_create_cq_ex(context, &attr) && errno == EINVAL);
    attr.cqe = 16;
    attr.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    struct ibv_cq_ex* cq = mana_create_cq_ex(context, &attr);
    CHECK(extended ? cq != NULL : !cq && errno == EOPNOTSUPP);
    if (cq) CHECK(!mana_destroy_cq(ibv_cq_ex_to_cq(cq)));
    struct ibv_cq* plain = mana_create_cq(context, 16, NULL, 0);
    CHECK(mana_resize_cq(plain, most + 1) == (extended ? EINVAL : EOPNOTSUPP));
    CHECK(!mana_destroy_cq(plain));
    CHECK(kept_from_forks == 0);
    free_context(ctx);
}

/* The reader of completions need not end its poll to arm the CQ. */
static void cq_is_armed_within_a_poll(bool extended) {
    struct mana_context* ctx = make_context(extended);
    struct ibv_context* context = &ctx->ibv_ctx.context;
    struct ibv_pd* pd = mana_alloc_pd(context);
    struct ibv_cq_init_attr_ex cq_attr = {.cqe = 16};
    struct ibv_poll_cq_attr none = {};
    struct ibv_cq_ex* cq = mana_create_cq_ex(context, &cq_attr);
    struct ibv_qp* qp = make_qp(pd, ibv_cq_ex_to_cq(cq), IBV_QPT_RC, 0);
    struct mana_dp_cq* dp = &ex_to_mcq(cq)->dp;
    const struct mana_hw_ext_cqe sent = {.type = MANA_HW_EXT_CQE};
    const struct mana_hw_rnic_recv_cqe received = {.type = MANA_HW_RNIC_CQE_SEND};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
    struct ibv_recv_wr wr = {.wr_id = 7}, *bad;
    CHECK(!mana_modify_qp(qp, &attr, IBV_QP_STATE));
    CHECK(!mana_post_recv(qp, &wr, &bad));
    if (extended)
        write_cqe(dp, 0, &sent, sizeof(sent), qp->qp_num, true);
    else
        write_cqe(dp, 0, &received, sizeof(received), qp->qp_num, false);
    alarm(20);
    CHECK(!cq->start_poll(cq, &none));
    CHECK(!mana_arm_cq(ibv_cq_ex_to_cq(cq), 0));
    if (extended) {
        CHECK(dp->record->arm == 1u << MANA_HW_EXT_ARM_SEQUENCE_SHIFT);
        CHECK(dp->record->consumer == dp->entries); /* the batch is not over */
    } else {
        const uint64_t* rung = (uint64_t*)((uint8_t*)ctx->doorbell + MANA_HW_DB_CQ);
        CHECK(*rung == mana_hw_entry_doorbell(dp->id, dp->entries + 1, 1));
    }
    CHECK(cq->next_poll(cq) == ENOENT);
    cq->end_poll(cq);
    if (extended) CHECK(dp->record->consumer == dp->entries + 1);
    CHECK(!mana_arm_cq(ibv_cq_ex_to_cq(cq), 0));
    CHECK(cq->start_poll(cq, &none) == ENOENT);
    alarm(0);
    CHECK(!mana_destroy_qp(qp) && !mana_destroy_cq(ibv_cq_ex_to_cq(cq)) && !mana_dealloc_pd(pd));
    free_context(ctx);
}

/*
 * Whoever gets a datagram is told by `sl` which IP it came by (IBTA A17.4.5.1), and whoever answers
 * by ibv_init_ah_from_wc gives that `sl` back: the answer's priority is the traffic class's.
 */
static void datagrams_say_which_ip_they_came_by(bool extended) {
    struct mana_context* ctx = make_context(extended);
    struct ibv_context* context = &ctx->ibv_ctx.context;
    if (!extended) ctx->caps.flags = MANA_UAPI_CONTEXT_USER_UD;
    ctx->caps.flags |= MANA_UAPI_CONTEXT_DMAC;
    struct ibv_pd* pd = mana_alloc_pd(context);
    struct ibv_cq_init_attr_ex cq_attr = {.cqe = 16, .wc_flags = IBV_WC_EX_WITH_SL};
    struct ibv_cq_ex* cq = mana_create_cq_ex(context, &cq_attr);
    struct ibv_qp* qp = make_qp(pd, ibv_cq_ex_to_cq(cq), IBV_QPT_UD, 0);
    struct mana_dp_cq* dp = &ex_to_mcq(cq)->dp;
    const struct mana_hw_ext_cqe ext = {.type = MANA_HW_EXT_CQE,
                                        .opcode = MANA_HW_EXT_WC_RECV,
                                        .flags = MANA_HW_EXT_CQE_GRH | MANA_HW_EXT_CQE_IPV4};
    const struct mana_hw_rnic_ud_recv_cqe stock = {.type = MANA_HW_RNIC_CQE_UD};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
    uint8_t packet[64] = {0}; /* IPv4: twenty bytes of zero come first */
    struct ibv_mr* mr = mana_reg_mr(pd, packet, sizeof(packet), (uintptr_t)packet, 0);
    struct ibv_sge sge = {.addr = (uintptr_t)packet, .length = sizeof(packet), .lkey = mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    struct ibv_poll_cq_attr none = {};
    struct ibv_wc wc;
    CHECK(!mana_modify_qp(qp, &attr, IBV_QP_STATE));
    for (uint32_t i = 0; i < 2; ++i) {
        CHECK(!mana_post_recv(qp, &wr, &bad));
        write_cqe(dp, i, extended ? (const void*)&ext : &stock, sizeof(ext), qp->qp_num, false);
    }
    CHECK(mana_poll_cq(ibv_cq_ex_to_cq(cq), 1, &wc) == 1 && wc.sl == 10);
    CHECK(!cq->start_poll(cq, &none));
    CHECK(ibv_wc_read_sl(cq) == 10);
    cq->end_poll(cq);
    CHECK(!mana_dereg_mr(verbs_get_mr(mr)));

    struct ibv_ah_attr ah_attr = {.is_global = 1, .port_num = 1, .grh.traffic_class = 0x68};
    struct ibv_ah* plain = mana_create_ah(pd, &ah_attr);
    ah_attr.sl = 10;
    struct ibv_ah* answer = mana_create_ah(pd, &ah_attr);
    CHECK(to_mah(answer)->av.ud.traffic_class == 0x68);
    CHECK(!memcmp(&to_mah(answer)->av.ud, &to_mah(plain)->av.ud, sizeof(to_mah(plain)->av.ud)));
    if (!extended)
        CHECK(!memcmp((void*)(uintptr_t)to_mah(answer)->av.stock_address,
                      (void*)(uintptr_t)to_mah(plain)->av.stock_address,
                      sizeof(struct mana_hw_rnic_av)));
    CHECK(!mana_destroy_ah(answer) && !mana_destroy_ah(plain));
    CHECK(!mana_destroy_qp(qp) && !mana_destroy_cq(ibv_cq_ex_to_cq(cq)) && !mana_dealloc_pd(pd));
    free_context(ctx);
}

/* A UD QP in the public format, whose completions have no room for what IP a datagram came by: it
 * is in the GRH, if that may be looked at. */
struct receiver {
    struct mana_context* ctx;
    struct ibv_pd* pd;
    struct ibv_cq* cq;
    struct ibv_qp* qp;
    uint32_t received;
};

static struct receiver make_receiver(void) {
    struct receiver r = {.ctx = make_context(false)};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
    r.ctx->caps.flags = MANA_UAPI_CONTEXT_USER_UD;
    r.pd = mana_alloc_pd(&r.ctx->ibv_ctx.context);
    r.cq = mana_create_cq(&r.ctx->ibv_ctx.context, 16, NULL, 0);
    r.qp = make_qp(r.pd, r.cq, IBV_QPT_UD, 0);
    CHECK(!mana_modify_qp(r.qp, &attr, IBV_QP_STATE));
    return r;
}

static void end_receiver(struct receiver* r) {
    CHECK(!mana_destroy_qp(r->qp) && !mana_destroy_cq(r->cq) && !mana_dealloc_pd(r->pd));
    free_context(r->ctx);
}

/* What is said of the next datagram, which comes to this place. */
static int sl_at(struct receiver* r, const void* place, uint32_t lkey) {
    const struct mana_hw_rnic_ud_recv_cqe cqe = {.type = MANA_HW_RNIC_CQE_UD};
    struct ibv_sge sge = {.addr = (uintptr_t)place, .length = 64, .lkey = lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    struct ibv_wc wc;
    CHECK(!mana_post_recv(r->qp, &wr, &bad));
    write_cqe(&to_mcq(r->cq)->dp, r->received++, &cqe, sizeof(cqe), r->qp->qp_num, false);
    return mana_poll_cq(r->cq, 1, &wc) == 1 ? wc.sl : -1;
}

/* Others' lkeys say nothing of one's own, nor does what is refused: UCX asks with a bad descriptor
 * whether dma-bufs are there. */
static void datagrams_are_looked_at_in_own_memory(void) {
    struct receiver r = make_receiver();
    const uint8_t memory[64] = {0};
    const uintptr_t at = (uintptr_t)memory;
    struct ibv_mr* mr = mana_reg_mr(r.pd, (void*)at, 64, at, 0);
    CHECK(sl_at(&r, memory, mr->lkey) == 10);
    /* of another process that shares the PD: at this address there is nothing here */
    CHECK(sl_at(&r, (void*)64, mr->lkey - 1) == 0);
    struct ibv_mr* others[] = {mana_reg_mr(r.pd, (void*)at, 64, at + 4096, 0),
                               mana_reg_dmabuf_mr(r.pd, 0, 64, at, 3, 0), mana_import_mr(r.pd, 77)};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); ++i)
        CHECK(sl_at(&r, memory, others[i]->lkey) == 0);
    refuse_dmabuf = EBADF;
    CHECK(!mana_reg_dmabuf_mr(r.pd, 0, 64, at, -1, 0) && errno == EBADF);
    refuse_dmabuf = 0;
    CHECK(sl_at(&r, memory, mr->lkey) == 10);
    CHECK(!mana_dereg_mr(verbs_get_mr(others[0])) && !mana_dereg_mr(verbs_get_mr(others[1])));
    mana_unimport_mr(others[2]);
    CHECK(!mana_dereg_mr(verbs_get_mr(mr)));
    end_receiver(&r);
}

/* Where the memory of an MR lies, and by which lkey, may change; then it is the program's. */
static void datagrams_are_looked_at_in_what_is_registered(void) {
    struct receiver r = make_receiver();
    uint8_t memory[128] = {0};
    struct ibv_mr* mr = mana_reg_mr(r.pd, memory, 64, 0, 0);
    const uint32_t at_zero = mr->lkey;
    CHECK(!mana_rereg_mr(verbs_get_mr(mr), IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0));
    CHECK(mr->lkey != at_zero && sl_at(&r, memory, mr->lkey) == 0);
    CHECK(!mana_rereg_mr(verbs_get_mr(mr), IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory, 64, 0));
    const uint32_t first = mr->lkey;
    CHECK(sl_at(&r, memory, first) == 10 && sl_at(&r, memory + 64, first) == 0);
    refuse_rereg = ENOMEM;
    CHECK(mana_rereg_mr(verbs_get_mr(mr), IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory + 64, 64,
                        0) == ENOMEM);
    refuse_rereg = 0;
    CHECK(sl_at(&r, memory, first) == 10 && sl_at(&r, memory + 64, first) == 0);
    CHECK(!mana_rereg_mr(verbs_get_mr(mr), IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0));
    CHECK(sl_at(&r, memory, first) == 0 && sl_at(&r, memory, mr->lkey) == 10);
    CHECK(!mana_rereg_mr(verbs_get_mr(mr), IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory + 64, 64,
                         0));
    const uint32_t last = mr->lkey;
    CHECK(sl_at(&r, memory, last) == 0 && sl_at(&r, memory + 64, last) == 10);
    CHECK(!mana_dereg_mr(verbs_get_mr(mr)));
    CHECK(sl_at(&r, memory + 64, last) == 0);
    end_receiver(&r);
}

/* Also for who moves it to ERR within a poll of its CQ. */
static void stock_datagrams_are_flushed_in_err(void) {
    struct mana_context* ctx = make_context(false);
    struct ibv_context* context = &ctx->ibv_ctx.context;
    ctx->caps.flags = MANA_UAPI_CONTEXT_USER_UD;
    struct ibv_pd* pd = mana_alloc_pd(context);
    struct ibv_cq_init_attr_ex cq_attr = {.cqe = 16};
    struct ibv_cq_ex* cq = mana_create_cq_ex(context, &cq_attr);
    struct ibv_qp* qp = make_qp(pd, ibv_cq_ex_to_cq(cq), IBV_QPT_UD, 0);
    const struct mana_hw_rnic_ud_recv_cqe received = {.type = MANA_HW_RNIC_CQE_UD};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
    struct ibv_recv_wr wr = {.wr_id = 1}, *bad;
    struct ibv_poll_cq_attr none = {};
    CHECK(!mana_modify_qp(qp, &attr, IBV_QP_STATE));
    for (; wr.wr_id <= 2; ++wr.wr_id) CHECK(!mana_post_recv(qp, &wr, &bad));
    write_cqe(&ex_to_mcq(cq)->dp, 0, &received, sizeof(received), qp->qp_num, false);
    CHECK(!cq->start_poll(cq, &none) && cq->wr_id == 1 && cq->status == IBV_WC_SUCCESS);
    attr.qp_state = IBV_QPS_ERR;
    CHECK(!mana_modify_qp(qp, &attr, IBV_QP_STATE));
    CHECK(!cq->next_poll(cq) && cq->wr_id == 2 && cq->status == IBV_WC_WR_FLUSH_ERR);
    CHECK(cq->next_poll(cq) == ENOENT);
    cq->end_poll(cq);
    CHECK(!mana_destroy_qp(qp) && !mana_destroy_cq(ibv_cq_ex_to_cq(cq)) && !mana_dealloc_pd(pd));
    free_context(ctx);
}

static void refused_reset_changes_nothing(void) {
    struct mana_context* ctx = make_context(false);
    struct ibv_pd* pd = mana_alloc_pd(&ctx->ibv_ctx.context);
    struct ibv_cq* cq = mana_create_cq(&ctx->ibv_ctx.context, 16, NULL, 0);
    struct ibv_qp* qp = make_qp(pd, cq, IBV_QPT_RC, 0);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
    struct ibv_recv_wr wr = {.wr_id = 1}, *bad = NULL;
    CHECK(mana_post_recv(qp, &wr, &bad) == EINVAL && bad == &wr);
    CHECK(!mana_modify_qp(qp, &attr, IBV_QP_STATE));
    CHECK(!mana_post_recv(qp, &wr, &bad));
    attr.qp_state = IBV_QPS_RESET;
    refuse_modify = EINVAL;
    CHECK(mana_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT) == EINVAL);
    refuse_modify = 0;
    CHECK(!mana_post_recv(qp, &wr, &bad));
    CHECK(!mana_modify_qp(qp, &attr, IBV_QP_STATE));
    CHECK(mana_post_recv(qp, &wr, &bad) == EINVAL);
    CHECK(!mana_destroy_qp(qp) && !mana_destroy_cq(cq) && !mana_dealloc_pd(pd));
    free_context(ctx);
}

static void inline_data_is_bounded(void) {
    struct mana_context* ctx = make_context(false);
    struct ibv_pd* pd = mana_alloc_pd(&ctx->ibv_ctx.context);
    struct ibv_cq* cq = mana_create_cq(&ctx->ibv_ctx.context, 16, NULL, 0);
    errno = 0;
    CHECK(!make_qp(pd, cq, IBV_QPT_RC, UINT32_MAX) && errno == EINVAL);
    CHECK(!make_qp(pd, cq, IBV_QPT_RC, 4097) && errno == EINVAL);
    struct ibv_qp* qp = make_qp(pd, cq, IBV_QPT_RC, 4096);
    CHECK(qp && !mana_destroy_qp(qp));
    CHECK(!mana_destroy_cq(cq) && !mana_dealloc_pd(pd));
    free_context(ctx);
}

static int bind_by_post(struct ibv_qp* qp, struct ibv_mw* mw) {
    struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW, .bind_mw = {.mw = mw, .rkey = 0x901}};
    struct ibv_send_wr* bad = NULL;
    int ret = mana_post_send(qp, &wr, &bad);
    CHECK(!ret || bad == &wr);
    return ret;
}

static void binds_are_refused(bool extended) {
    struct mana_context* ctx = make_context(extended);
    struct ibv_pd* pd = mana_alloc_pd(&ctx->ibv_ctx.context);
    struct ibv_cq* cq = mana_create_cq(&ctx->ibv_ctx.context, 16, NULL, 0);
    struct ibv_qp* qp = make_qp(pd, cq, extended ? IBV_QPT_UD : IBV_QPT_RC, 0);
    struct ibv_pd other = {.context = &ctx->ibv_ctx.context, .handle = pd->handle + 1};
    struct mana_mw mw = {.ibv_mw = {.pd = &other}, .key = 0x900};
    CHECK(bind_by_post(qp, NULL) == EOPNOTSUPP);
    CHECK(bind_by_post(qp, &mw.ibv_mw) == EOPNOTSUPP);
    CHECK(!mana_destroy_qp(qp));
    if (extended) {
        qp = make_qp(pd, cq, IBV_QPT_RC, 0);
        to_mqp(qp)->ext.can_send = true;
        CHECK(bind_by_post(qp, NULL) == EINVAL);
        CHECK(bind_by_post(qp, &mw.ibv_mw) == EPERM);
        mw.ibv_mw.pd = pd;
        mw.binder = to_mqp(qp); /* as in a batch of another */
        CHECK(bind_by_post(qp, &mw.ibv_mw) == EINVAL);
        CHECK(mw.key == 0x900);
        mw.binder = NULL;
        CHECK(!bind_by_post(qp, &mw.ibv_mw));
        CHECK(mw.key == 0x901);
        CHECK(!mana_destroy_qp(qp));
    }
    CHECK(!mana_destroy_cq(cq) && !mana_dealloc_pd(pd));
    free_context(ctx);
}

static void device_memory_is_copied_by_the_driver(void) {
    struct mana_context* ctx = make_context(true);
    struct mana_dm dm = {.vdm = {.dm = {.context = &ctx->ibv_ctx.context}, .handle = 77}};
    uint8_t memory[64];
    mana_set_dm_copies(&dm);
    CHECK(dm.vdm.dm.memcpy_to_dm(&dm.vdm.dm, 0, memory, 4) == EOPNOTSUPP);
    CHECK(dm.vdm.dm.memcpy_from_dm(memory, &dm.vdm.dm, 0, 4) == EOPNOTSUPP);
    ctx->caps.flags = MANA_UAPI_CONTEXT_DM_COPIES;
    CHECK(dm.vdm.dm.memcpy_to_dm(&dm.vdm.dm, 2, memory, 4) == EINVAL);
    CHECK(dm.vdm.dm.memcpy_from_dm(memory, &dm.vdm.dm, 0, 6) == EINVAL);
    CHECK(asked.calls == 0);
    CHECK(dm.vdm.dm.memcpy_to_dm(&dm.vdm.dm, 8, memory, 12) == 0);
    CHECK(asked.calls == 1 && asked.object == UVERBS_OBJECT_DM);
    CHECK(asked.method == MANA_UAPI_METHOD_COPY_DM);
    const uint64_t to[] = {77, 8, (uintptr_t)memory, 12, MANA_UAPI_COPY_TO_DM};
    CHECK(!memcmp(asked.value, to, sizeof(to)));
    asked.answer = EFAULT;
    CHECK(dm.vdm.dm.memcpy_from_dm(memory, &dm.vdm.dm, 1ULL << 33, 4) == EFAULT);
    const uint64_t from[] = {77, 1ULL << 33, (uintptr_t)memory, 4, MANA_UAPI_COPY_FROM_DM};
    CHECK(!memcmp(asked.value, from, sizeof(from)));
    free_context(ctx);
}

static void direct_verbs_of_pds(void) {
    struct mana_context* ctx = make_context(true);
    struct ibv_context* context = &ctx->ibv_ctx.context;
    struct ibv_pd* pd = manadv_alloc_pd(context, 0);
    struct manadv_pd out = {};
    struct manadv_obj obj = {.pd = {pd, &out}};
    CHECK(pd);
    CHECK(!manadv_alloc_pd(context, MANADV_PD_FLAGS_SHORT_PDN) && errno == EOPNOTSUPP);
    CHECK(manadv_init_obj(&obj, MANADV_OBJ_PD) == EOPNOTSUPP);
    CHECK(manadv_init_obj(&obj, 1 << 4) == EINVAL);
    CHECK(!mana_dealloc_pd(pd));
    free_context(ctx);
}

int main(void) {
    parent_domain_outlives_its_queues();
    srq_in_a_thread_domain_has_a_lock();
    stock_qp_in_a_thread_domain_may_have_locks();
    parent_domain_outlives_its_objects();
    parent_domain_outlives_direct_queues();
    own_memory_is_kept_from_forks();
    allocators_may_refuse();
    qps_have_room_or_are_refused(IBV_QPT_RC, false);
    qps_have_room_or_are_refused(IBV_QPT_UD, false);
    qps_have_room_or_are_refused(IBV_QPT_RC, true);
    qps_have_room_or_are_refused(IBV_QPT_UC, true);
    qps_have_room_or_are_refused(IBV_QPT_UD, true);
    cqs_have_room_or_are_refused(false);
    cqs_have_room_or_are_refused(true);
    cq_is_armed_within_a_poll(false);
    cq_is_armed_within_a_poll(true);
    datagrams_say_which_ip_they_came_by(false);
    datagrams_say_which_ip_they_came_by(true);
    datagrams_are_looked_at_in_own_memory();
    datagrams_are_looked_at_in_what_is_registered();
    stock_datagrams_are_flushed_in_err();
    refused_reset_changes_nothing();
    inline_data_is_bounded();
    binds_are_refused(false);
    binds_are_refused(true);
    device_memory_is_copied_by_the_driver();
    direct_verbs_of_pds();
    check_posts();
    check_failures();
    if (failures) return 1;
    puts("the provider's verbs: ok");
    return 0;
}

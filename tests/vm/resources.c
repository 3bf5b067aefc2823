/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects that `rdma resource show` is to tell of, until stdin ends:
 *
 *   resources DEVICE
 *
 * Prints a line for each, as the verbs and the direct verbs know it, in the forms of `rdma` (keys
 * in hexadecimal):
 *
 *   cq cq_id 5 cqe 63 vector 0
 *   mr lkey 9e41f4 rkey 9e41f4 length 8192 access 3
 *   qp qpn 7 state INIT max_send_wr 9 max_recv_wr 17
 *   srq max_wr 33
 *   ready
 */
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/manadv.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_SETUP = 2, BYTES = 8192 };

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char* format, ...) {
    va_list words;
    va_start(words, format);
    vfprintf(stderr, format, words);
    va_end(words);
    fprintf(stderr, ": %s\n", strerror(errno));
    exit(EXIT_SETUP);
}

static struct ibv_context* open_device(const char* name) {
    struct ibv_device** list = ibv_get_device_list(NULL);
    struct ibv_context* context = NULL;
    for (int i = 0; list && list[i]; ++i)
        if (!strcmp(ibv_get_device_name(list[i]), name)) context = ibv_open_device(list[i]);
    if (!context) die("cannot open RDMA device %s", name);
    ibv_free_device_list(list);
    return context;
}

/* The number that the device has for a CQ, which direct verbs tell alone. */
static uint32_t cq_id(struct ibv_cq* cq) {
    int (*init_obj)(struct manadv_obj*, uint64_t);
    void* library = dlopen("libmana.so.1", RTLD_NOW);
    if (!library) die("%s", dlerror());
    *(void**)&init_obj = dlsym(library, "manadv_init_obj");
    struct manadv_cq out = {0};
    struct manadv_obj object = {.cq = {.in = cq, .out = &out}};
    if (!init_obj || init_obj(&object, MANADV_OBJ_CQ)) die("manadv_init_obj");
    return out.cq_id;
}

static struct ibv_cq* make_cq(struct ibv_context* context, int entries) {
    struct ibv_cq* cq = ibv_create_cq(context, entries, NULL, NULL, 0);
    if (!cq) die("a CQ");
    printf("cq cq_id %u cqe %d vector 0\n", cq_id(cq), cq->cqe);
    return cq;
}

static void make_mr(struct ibv_pd* pd, int access) {
    void* memory = aligned_alloc(4096, BYTES);
    struct ibv_mr* mr = memory ? ibv_reg_mr(pd, memory, BYTES, access) : NULL;
    if (!mr) die("a region");
    printf("mr lkey %x rkey %x length %d access %d\n", mr->lkey, mr->rkey, BYTES, access);
}

static void make_qp(struct ibv_pd* pd, struct ibv_cq* send, struct ibv_cq* recv) {
    struct ibv_qp_init_attr init = {
        .send_cq = send,
        .recv_cq = recv,
        .cap = {.max_send_wr = 9, .max_recv_wr = 17, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC};
    struct ibv_qp* qp = ibv_create_qp(pd, &init);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    if (!qp || ibv_modify_qp(qp, &attr,
                             IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        die("a QP");
    printf("qp qpn %u state INIT max_send_wr %u max_recv_wr %u\n", qp->qp_num, init.cap.max_send_wr,
           init.cap.max_recv_wr);
}

int main(int argc, char** argv) {
    char byte;
    if (argc != 2) die("usage: resources DEVICE");
    struct ibv_context* context = open_device(argv[1]);
    struct ibv_pd* pd = ibv_alloc_pd(context);
    if (!pd) die("a PD");
    struct ibv_cq* send = make_cq(context, 63);
    struct ibv_cq* recv = make_cq(context, 200);
    make_mr(pd, IBV_ACCESS_LOCAL_WRITE);
    make_mr(pd, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    make_qp(pd, send, recv);
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = 33, .max_sge = 1}};
    struct ibv_srq* srq = ibv_create_srq(pd, &attr);
    if (srq)
        printf("srq max_wr %u\n", attr.attr.max_wr);
    else if (errno != EOPNOTSUPP)
        die("an SRQ");
    puts("ready");
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0) continue;
    return 0;
}

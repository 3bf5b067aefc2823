/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may give a queue pair a Q_Key with the high bit, which privileged services answer to:
 *
 *   qkey DEVICE ud|rc root|user
 *
 * As the root that starts it, or as nobody, who has no CAP_NET_RAW. First asks for the privileged
 * Q_Key, then for a common one, each on the way from RESET to INIT, and prints the errors:
 *
 *   privileged 1 common 0
 */
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Exit statuses: 1 = something is wrong, 2 = the test could not be set up. */
enum { EXIT_WRONG = 1, EXIT_SETUP = 2 };
enum { NOBODY = 65534, COMMON = 0x11111111 };
#define PRIVILEGED 0x80010000u

__attribute__((noreturn, format(printf, 2, 3))) static void die(int status, const char* format,
                                                                ...) {
    va_list words;
    va_start(words, format);
    vfprintf(stderr, format, words);
    va_end(words);
    fputc('\n', stderr);
    exit(status);
}

static struct ibv_context* open_device(const char* name) {
    struct ibv_device** list = ibv_get_device_list(NULL);
    struct ibv_context* context = NULL;
    for (int i = 0; list && list[i]; ++i)
        if (!strcmp(ibv_get_device_name(list[i]), name)) context = ibv_open_device(list[i]);
    if (!context) die(EXIT_SETUP, "cannot open RDMA device %s: %s", name, strerror(errno));
    ibv_free_device_list(list);
    return context;
}

/* Gives up what root may. The device is opened afterwards: some kernels ask what the process may
 * that changes the queue pair, some what that one might that opened the device. */
static void become_nobody(void) {
    if (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY))
        die(EXIT_SETUP, "becoming nobody: %s", strerror(errno));
    if (socket(AF_INET, SOCK_RAW, IPPROTO_UDP) >= 0 || errno != EPERM)
        die(EXIT_SETUP, "nobody has CAP_NET_RAW");
}

static int to_init(struct ibv_qp* qp, uint32_t qkey) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .pkey_index = 0, .port_num = 1, .qkey = qkey};
    return ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY |
                             (qp->qp_type == IBV_QPT_RC ? IBV_QP_ACCESS_FLAGS : 0));
}

int main(int argc, char** argv) {
    if (argc != 4) die(EXIT_SETUP, "usage: qkey DEVICE ud|rc root|user");
    if (!strcmp(argv[3], "user")) become_nobody();
    struct ibv_context* context = open_device(argv[1]);
    struct ibv_pd* pd = ibv_alloc_pd(context);
    struct ibv_cq* cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    if (!pd || !cq) die(EXIT_SETUP, "objects: %s", strerror(errno));
    struct ibv_qp_init_attr attr = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = !strcmp(argv[2], "ud") ? IBV_QPT_UD : IBV_QPT_RC};
    struct ibv_qp* qp = ibv_create_qp(pd, &attr);
    if (!qp) die(EXIT_SETUP, "creating the QP: %s", strerror(errno));

    int error = to_init(qp, PRIVILEGED);
    printf("privileged %d", error);
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    if (!error && (error = ibv_modify_qp(qp, &reset, IBV_QP_STATE)))
        die(EXIT_WRONG, "to RESET: %s", strerror(error));
    printf(" common %d\n", to_init(qp, COMMON));

    if (ibv_destroy_qp(qp) || ibv_destroy_cq(cq) || ibv_dealloc_pd(pd) || ibv_close_device(context))
        die(EXIT_WRONG, "the end: %s", strerror(errno));
    return 0;
}

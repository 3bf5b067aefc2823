/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks the device as fast as it answers:
 *
 *   flood DEVICE nobody|root query|cq THREADS SECONDS [FILE]
 *
 * Each thread queries a queue pair of its own, or makes and destroys a CQ, again and again. Prints
 * how often all of them did in a second:
 *
 *   4711
 *
 * With FILE it makes that file when all threads run, and stops when the file is gone; if that is
 * not so after SECONDS, it fails.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Exit statuses: 1 = something is wrong, 2 = the test could not be set up. */
enum { EXIT_WRONG = 1, EXIT_SETUP = 2 };
enum { NOBODY = 65534, MOST_THREADS = 256 };

static struct ibv_context* context;
static struct ibv_pd* pd;
static struct ibv_cq* cq;
static int with_cqs;
static atomic_int stop;
static atomic_ulong done;

__attribute__((noreturn, format(printf, 2, 3))) static void die(int status, const char* format,
                                                                ...) {
    va_list words;
    va_start(words, format);
    vfprintf(stderr, format, words);
    va_end(words);
    fputc('\n', stderr);
    exit(status);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void open_device(const char* name) {
    struct ibv_device** list = ibv_get_device_list(NULL);
    for (int i = 0; list && list[i]; ++i)
        if (!strcmp(ibv_get_device_name(list[i]), name)) context = ibv_open_device(list[i]);
    if (!context) die(EXIT_SETUP, "cannot open RDMA device %s: %s", name, strerror(errno));
    ibv_free_device_list(list);
}

/* In INIT: of one in RESET the driver knows all. */
static struct ibv_qp* make_qp(void) {
    struct ibv_qp_init_attr attr = {
        .qp_type = IBV_QPT_UD,
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1};
    struct ibv_qp* qp = ibv_create_qp(pd, &attr);
    if (!qp) die(EXIT_WRONG, "QP: %s", strerror(errno));
    int error =
        ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    if (error) die(EXIT_WRONG, "QP to INIT: %s", strerror(error));
    return qp;
}

static void query(struct ibv_qp* qp) {
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;
    int error = ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
    if (error) die(EXIT_WRONG, "query: %s", strerror(error));
}

static void make_cq(void) {
    struct ibv_cq* made = ibv_create_cq(context, 1, NULL, NULL, 0);
    if (!made) die(EXIT_WRONG, "CQ: %s", strerror(errno));
    int error = ibv_destroy_cq(made);
    if (error) die(EXIT_WRONG, "the end of a CQ: %s", strerror(error));
}

static void* work(void* qp) {
    while (!stop) {
        if (with_cqs)
            make_cq();
        else
            query(qp);
        ++done;
    }
    return NULL;
}

static void run_until_gone(const char* file, double seconds) {
    double end = now() + seconds;
    int made = open(file, O_CREAT | O_EXCL | O_WRONLY, 0644);
    if (made < 0 || close(made)) die(EXIT_SETUP, "%s: %s", file, strerror(errno));
    while (!access(file, F_OK)) {
        if (now() > end) die(EXIT_WRONG, "%s is still there", file);
        usleep(20000);
    }
}

int main(int argc, char** argv) {
    if (argc != 6 && argc != 7)
        die(EXIT_SETUP, "usage: flood DEVICE nobody|root query|cq THREADS SECONDS [FILE]");
    int threads = atoi(argv[4]);
    double seconds = atof(argv[5]);
    pthread_t thread[MOST_THREADS];
    struct ibv_qp* qps[MOST_THREADS];
    if (threads < 1 || threads > MOST_THREADS) die(EXIT_SETUP, "%d threads", threads);
    if (!strcmp(argv[2], "nobody") &&
        (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY)))
        die(EXIT_SETUP, "becoming nobody: %s", strerror(errno));
    with_cqs = !strcmp(argv[3], "cq");
    open_device(argv[1]);
    pd = ibv_alloc_pd(context);
    cq = pd ? ibv_create_cq(context, 1, NULL, NULL, 0) : NULL;
    if (!cq) die(EXIT_WRONG, "objects: %s", strerror(errno));
    for (int i = 0; i < threads; ++i) qps[i] = make_qp();
    double begin = now();
    for (int i = 0; i < threads; ++i)
        if (pthread_create(&thread[i], NULL, work, qps[i])) die(EXIT_SETUP, "no thread");
    if (argc == 7)
        run_until_gone(argv[6], seconds);
    else
        usleep((useconds_t)(seconds * 1e6));
    stop = 1;
    for (int i = 0; i < threads; ++i) pthread_join(thread[i], NULL);
    printf("%.0f\n", (double)done / (now() - begin));
    return 0;
}

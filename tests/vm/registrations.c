/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a kernel driver registers, whatever its queue pairs can do with it:
 *
 *   registrations DEVICE
 *
 * A region with each right and with all of them, rights that a region gets later, and windows. A
 * line for each, and what came of it:
 *
 *   local write + remote atomic: 0
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { EXIT_SETUP = 2, BYTES = 8192 };

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char* format, ...) {
    va_list words;
    va_start(words, format);
    vfprintf(stderr, format, words);
    va_end(words);
    fputc('\n', stderr);
    exit(EXIT_SETUP);
}

static struct ibv_context* open_device(const char* name) {
    struct ibv_device** list = ibv_get_device_list(NULL);
    struct ibv_context* context = NULL;
    for (int i = 0; list && list[i]; ++i)
        if (!strcmp(ibv_get_device_name(list[i]), name)) context = ibv_open_device(list[i]);
    if (!context) die("cannot open RDMA device %s: %s", name, strerror(errno));
    ibv_free_device_list(list);
    return context;
}

static void regions(struct ibv_pd* pd, void* memory) {
    static const struct {
        const char* name;
        int access;
    } rights[] = {
        {"remote write and read", IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ},
        {"remote atomic", IBV_ACCESS_REMOTE_ATOMIC},
        {"window", IBV_ACCESS_MW_BIND},
        {"relaxed order", IBV_ACCESS_RELAXED_ORDERING},
        {"all of them", IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                            IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND |
                            IBV_ACCESS_RELAXED_ORDERING},
        {"paging on demand", IBV_ACCESS_ON_DEMAND},
    };
    for (size_t i = 0; i < sizeof(rights) / sizeof(*rights); ++i) {
        errno = 0;
        struct ibv_mr* mr =
            ibv_reg_mr(pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE | rights[i].access);
        printf("%s: %d\n", rights[i].name, mr ? 0 : errno);
        if (mr && ibv_dereg_mr(mr)) die("%s: not deregistered", rights[i].name);
    }
}

static void later(struct ibv_pd* pd, void* memory) {
    struct ibv_mr* mr = ibv_reg_mr(pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE);
    if (!mr) die("a region: %s", strerror(errno));
    errno = 0;
    const int failed =
        ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND);
    printf("later: %d\n", failed ? errno : 0);
    if (ibv_dereg_mr(mr)) die("later: not deregistered");
}

static void windows(struct ibv_pd* pd) {
    for (enum ibv_mw_type type = IBV_MW_TYPE_1; type <= IBV_MW_TYPE_2; ++type) {
        errno = 0;
        struct ibv_mw* mw = ibv_alloc_mw(pd, type);
        printf("window of type %d: %d\n", (int)type, mw ? 0 : errno);
        if (mw && !mw->rkey) die("a window without a key");
        if (mw && ibv_dealloc_mw(mw)) die("a window is not freed");
    }
}

int main(int argc, char** argv) {
    if (argc != 2) die("usage: registrations DEVICE");
    struct ibv_pd* pd = ibv_alloc_pd(open_device(argv[1]));
    void* memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!pd || memory == MAP_FAILED) die("objects: %s", strerror(errno));
    regions(pd, memory);
    later(pd, memory);
    windows(pd);
    return 0;
}

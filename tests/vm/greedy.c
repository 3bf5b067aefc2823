/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes as much as it gets of what all users of a device share:
 *
 *   greedy DEVICE nobody|subordinate|root MOST [FILE]
 *
 * subordinate: nobody, too, but with another user id, which a user namespace of nobody's gives it.
 * MOST is where it stops by itself, of each kind. It prints how much it got, and the error of the
 * next one (0: it stopped):
 *
 *   dm 4 122
 *   groups 256 122
 *   pds 8192 122
 *   handles 65000 122
 *   contexts 512 122
 *
 * Device memory is in MiB. With FILE it makes that file then, and keeps all until the file is gone.
 * Of a device for raw packets, manae_N, it takes protection domains alone.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Exit statuses: 1 = something is wrong, 2 = the test could not be set up. */
enum { EXIT_WRONG = 1, EXIT_SETUP = 2 };
enum { NOBODY = 65534, FILES = 16384, MIB = 1 << 20, WAIT_SECONDS = 300 };
/* Ids outside that are nobody's too, as /etc/subuid would say, and one of them inside. */
enum { SUBORDINATE = 100000, ANOTHER = 5 };

static struct ibv_device* device;
static struct ibv_context* context;
static struct ibv_pd* pd;
static struct ibv_qp* qp;
static struct ibv_ah_attr to_myself = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}};

__attribute__((noreturn, format(printf, 2, 3))) static void die(int status, const char* format,
                                                                ...) {
    va_list words;
    va_start(words, format);
    vfprintf(stderr, format, words);
    va_end(words);
    fputc('\n', stderr);
    exit(status);
}

static void become_nobody(void) {
    struct rlimit files = {FILES, FILES};
    if (setrlimit(RLIMIT_NOFILE, &files)) die(EXIT_SETUP, "descriptors: %s", strerror(errno));
    if (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY))
        die(EXIT_SETUP, "becoming nobody: %s", strerror(errno));
}

/* What newuidmap does, which has the right to. */
static void map_ids(pid_t process, const char* which) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)process, which);
    FILE* map = fopen(path, "w");
    if (!map) die(EXIT_SETUP, "%s: %s", path, strerror(errno));
    fprintf(map, "0 %d 1\n1 %d %d\n", NOBODY, SUBORDINATE, 2 * ANOTHER);
    if (fclose(map)) die(EXIT_SETUP, "%s: %s", path, strerror(errno));
}

static void wait_for(int pipe) {
    char byte;
    if (read(pipe, &byte, 1) != 1) die(EXIT_SETUP, "the other process has ended");
}

/* Only the child returns; the parent ends as that does. */
static void become_subordinate(void) {
    int apart[2], mapped[2], status;
    if (pipe(apart) || pipe(mapped)) die(EXIT_SETUP, "pipes: %s", strerror(errno));
    pid_t child = fork();
    if (child < 0) die(EXIT_SETUP, "fork: %s", strerror(errno));
    if (!child) {
        close(mapped[1]);
        become_nobody();
        if (unshare(CLONE_NEWUSER) || write(apart[1], "", 1) != 1)
            die(EXIT_SETUP, "user namespace: %s", strerror(errno));
        wait_for(mapped[0]);
        if (setresgid(ANOTHER, ANOTHER, ANOTHER) || setresuid(ANOTHER, ANOTHER, ANOTHER))
            die(EXIT_SETUP, "becoming another: %s", strerror(errno));
        return;
    }
    close(apart[1]);
    wait_for(apart[0]);
    map_ids(child, "uid_map");
    map_ids(child, "gid_map");
    if (write(mapped[1], "", 1) != 1) die(EXIT_SETUP, "the child: %s", strerror(errno));
    if (waitpid(child, &status, 0) != child) die(EXIT_SETUP, "wait: %s", strerror(errno));
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_WRONG);
}

static void find_device(const char* name) {
    struct ibv_device** list = ibv_get_device_list(NULL);
    for (int i = 0; list && list[i]; ++i)
        if (!strcmp(ibv_get_device_name(list[i]), name)) device = list[i];
    if (!device) die(EXIT_SETUP, "no RDMA device %s", name);
}

/* The first IPv4 address of the port. */
static void find_address(void) {
    static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};
    union ibv_gid gid;
    for (int i = 0; i < 16; ++i)
        if (!ibv_query_gid(context, 1, i, &gid) && !memcmp(gid.raw, prefix, sizeof prefix)) {
            to_myself.grh.sgid_index = (uint8_t)i;
            to_myself.grh.dgid = gid;
            return;
        }
    die(EXIT_SETUP, "no IPv4 address");
}

static void make_objects(void) {
    struct ibv_qp_init_attr attr = {
        .qp_type = IBV_QPT_UD,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    pd = ibv_alloc_pd(context);
    attr.send_cq = attr.recv_cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    qp = pd && attr.send_cq ? ibv_create_qp(pd, &attr) : NULL;
    if (!qp) die(EXIT_WRONG, "objects: %s", strerror(errno));
    find_address();
}

/* -- one more of each, and its error */

static int take_memory(unsigned number) {
    struct ibv_alloc_dm_attr attr = {.length = MIB};
    (void)number;
    return ibv_alloc_dm(context, &attr) ? 0 : errno;
}

static int take_group(unsigned number) {
    union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 239, [13] = 1}};
    gid.raw[14] = (uint8_t)(number >> 8);
    gid.raw[15] = (uint8_t)number;
    return ibv_attach_mcast(qp, &gid, 0);
}

static int take_pd(unsigned number) {
    (void)number;
    return ibv_alloc_pd(context) ? 0 : errno;
}

static int take_handle(unsigned number) {
    (void)number;
    return ibv_create_ah(pd, &to_myself) ? 0 : errno;
}

static int take_context(unsigned number) {
    (void)number;
    return ibv_open_device(device) ? 0 : errno;
}

static void take_all(const char* what, int (*take)(unsigned number), unsigned got, unsigned most) {
    int error = 0;
    while (got < most && !(error = take(got))) ++got;
    printf("%s %u %d\n", what, got, error);
}

int main(int argc, char** argv) {
    if (argc != 4 && argc != 5)
        die(EXIT_SETUP, "usage: greedy DEVICE nobody|subordinate|root MOST [FILE]");
    unsigned most = (unsigned)strtoul(argv[3], NULL, 10);
    if (!strcmp(argv[2], "nobody")) become_nobody();
    if (!strcmp(argv[2], "subordinate")) become_subordinate();
    find_device(argv[1]);
    context = ibv_open_device(device);
    if (!context) {
        printf("contexts 0 %d\n", errno);
        return 0;
    }
    if (!strncmp(argv[1], "manae", 5)) {
        take_all("pds", take_pd, 0, most < 32768 ? most : 32768);
        return 0;
    }
    make_objects();
    take_all("dm", take_memory, 0, most);
    take_all("groups", take_group, 0, most < 2048 ? most : 2048);
    take_all("pds", take_pd, 1, most < 32768 ? most : 32768);
    take_all("handles", take_handle, 0, most);
    take_all("contexts", take_context, 1, most < 4096 ? most : 4096);
    fflush(stdout);
    if (argc == 4) return 0;
    int file = open(argv[4], O_CREAT | O_EXCL | O_WRONLY, 0644);
    if (file < 0 || close(file)) die(EXIT_SETUP, "%s: %s", argv[4], strerror(errno));
    for (int i = 0; i < 10 * WAIT_SECONDS && !access(argv[4], F_OK); ++i) usleep(100000);
    return 0;
}

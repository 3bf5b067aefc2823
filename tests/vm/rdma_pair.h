/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the guest tests' RDMA programs share: two processes, a client and a server, which find each
 * other over TCP, tell each other about their queue pairs and connect them. Every wait has a
 * deadline.
 */
#ifndef OPENMANA_TESTS_RDMA_PAIR_H
#define OPENMANA_TESTS_RDMA_PAIR_H

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Exit statuses: 1 = the device did something wrong, 2 = the test could not be set up. */
enum { EXIT_WRONG = 1, EXIT_SETUP = 2 };

#define ANY_GID UINT32_MAX

struct pair {
    bool server;
    const char* host;
    uint32_t port;
    const char* dev;
    uint32_t family;    /* 4 or 6: which GID is used */
    uint32_t gid_index; /* ANY_GID: found by family */
    uint32_t mtu;       /* bytes, 0 = what the port has */
    uint32_t timeout;   /* seconds for each wait */

    int sock;
    struct ibv_context* context;
    union ibv_gid gid;
    enum ibv_mtu path_mtu;
};

/* One queue pair as its peer has to know it. */
struct endpoint {
    uint32_t qpn;
    uint32_t psn;
    union ibv_gid gid;
};

/* Attributes that the error tests vary. */
struct retry_rules {
    uint8_t timeout;
    uint8_t retry_cnt;
    uint8_t rnr_retry;
    uint8_t min_rnr_timer;
};

static const char* pair_role = "?";

__attribute__((noreturn, format(printf, 2, 3))) static void die(int status, const char* format,
                                                                ...) {
    va_list list;
    fflush(stdout);
    fprintf(stderr, "%s: ", pair_role);
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fputc('\n', stderr);
    exit(status);
}

static inline double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static inline uint64_t random_next(uint64_t* state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

/* A number in [0, limit). */
static inline uint32_t random_below(uint64_t* state, uint32_t limit) {
    return limit ? (uint32_t)((random_next(state) >> 32) * limit >> 32) : 0;
}

/* -- options */

enum option_kind { OPTION_FLAG, OPTION_NUMBER, OPTION_TEXT };

/* One option of the command line: `--name` sets a bool, `--name VALUE` a number or a text. */
struct option_rule {
    const char* name;
    enum option_kind kind;
    void* target; /* bool*, uint32_t* or const char** */
    uint32_t least, most;
};

static inline uint32_t parse_number(const char* name, const char* text, uint32_t least,
                                    uint32_t most) {
    char* end;
    unsigned long long value = strtoull(text, &end, 0);
    if (*end || end == text || value < least || value > most)
        die(EXIT_SETUP, "--%s %s: a number from %u to %u is needed", name, text, least, most);
    return (uint32_t)value;
}

static inline const struct option_rule* find_option(const struct option_rule* rules, size_t count,
                                                    const char* argument) {
    for (size_t i = 0; !strncmp(argument, "--", 2) && i < count; ++i)
        if (!strcmp(argument + 2, rules[i].name)) return &rules[i];
    return NULL;
}

/* Reads the options that every pair has, and a program's own. */
static inline void pair_options(struct pair* pair, const struct option_rule* own, size_t count,
                                int argc, char** argv) {
    const struct option_rule common[] = {
        {"dev", OPTION_TEXT, &pair->dev, 0, 0},
        {"host", OPTION_TEXT, &pair->host, 0, 0},
        {"server", OPTION_FLAG, &pair->server, 0, 0},
        {"port", OPTION_NUMBER, &pair->port, 1, 65535},
        {"timeout", OPTION_NUMBER, &pair->timeout, 1, 3600},
        {"family", OPTION_NUMBER, &pair->family, 4, 6},
        {"gid", OPTION_NUMBER, &pair->gid_index, 0, 255},
        {"mtu", OPTION_NUMBER, &pair->mtu, 256, 4096},
    };
    for (int i = 1; i < argc; ++i) {
        const struct option_rule* rule = find_option(own, count, argv[i]);
        if (!rule) rule = find_option(common, sizeof common / sizeof common[0], argv[i]);
        if (!rule) die(EXIT_SETUP, "unknown argument %s", argv[i]);
        if (rule->kind == OPTION_FLAG) {
            *(bool*)rule->target = true;
            continue;
        }
        if (++i == argc) die(EXIT_SETUP, "--%s needs a value", rule->name);
        if (rule->kind == OPTION_TEXT)
            *(const char**)rule->target = argv[i];
        else
            *(uint32_t*)rule->target = parse_number(rule->name, argv[i], rule->least, rule->most);
    }
    if (pair->server == (pair->host != NULL)) die(EXIT_SETUP, "one of --server and --host");
}

/* -- the TCP side */

static inline void pair_socket_limits(struct pair* pair) {
    struct timeval limit = {.tv_sec = pair->timeout};
    int one = 1;
    setsockopt(pair->sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(pair->sock, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(pair->sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static inline void pair_listen(struct pair* pair) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)pair->port)};
    int one = 1;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct pollfd wait = {.fd = listener, .events = POLLIN};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (listener < 0 || bind(listener, (struct sockaddr*)&address, sizeof address) ||
        listen(listener, 1))
        die(EXIT_SETUP, "listening on port %u: %s", pair->port, strerror(errno));
    if (poll(&wait, 1, (int)pair->timeout * 1000) <= 0)
        die(EXIT_SETUP, "no client came within %u s", pair->timeout);
    pair->sock = accept(listener, NULL, NULL);
    if (pair->sock < 0) die(EXIT_SETUP, "accept: %s", strerror(errno));
    close(listener);
}

static inline void pair_dial(struct pair* pair) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)pair->port)};
    double deadline = now() + pair->timeout;
    if (inet_pton(AF_INET, pair->host, &address.sin_addr) != 1)
        die(EXIT_SETUP, "%s is no IPv4 address", pair->host);
    for (;;) {
        pair->sock = socket(AF_INET, SOCK_STREAM, 0);
        if (pair->sock < 0) die(EXIT_SETUP, "socket: %s", strerror(errno));
        if (!connect(pair->sock, (struct sockaddr*)&address, sizeof address)) return;
        if (now() > deadline)
            die(EXIT_SETUP, "connecting to %s:%u: %s", pair->host, pair->port, strerror(errno));
        close(pair->sock);
        usleep(20000);
    }
}

static inline void pair_connect(struct pair* pair) {
    pair_role = pair->server ? "server" : "client";
    if (pair->server)
        pair_listen(pair);
    else
        pair_dial(pair);
    pair_socket_limits(pair);
}

static inline void pair_send(struct pair* pair, const void* data, size_t size) {
    const char* at = data;
    while (size) {
        ssize_t n = send(pair->sock, at, size, MSG_NOSIGNAL);
        if (n <= 0) die(EXIT_SETUP, "telling the peer: %s", strerror(errno));
        at += n;
        size -= (size_t)n;
    }
}

static inline void pair_receive(struct pair* pair, void* data, size_t size) {
    char* at = data;
    while (size) {
        ssize_t n = recv(pair->sock, at, size, 0);
        if (n == 0) die(EXIT_SETUP, "the peer program ended");
        if (n < 0) die(EXIT_SETUP, "no word from the peer program: %s", strerror(errno));
        at += n;
        size -= (size_t)n;
    }
}

/* Both sides send and receive `size` bytes, in the order that cannot block. */
static inline void pair_exchange(struct pair* pair, const void* mine, void* theirs, size_t size) {
    if (pair->server) {
        pair_receive(pair, theirs, size);
        pair_send(pair, mine, size);
    } else {
        pair_send(pair, mine, size);
        pair_receive(pair, theirs, size);
    }
}

/* A barrier. The tag shows when the two sides do not do the same. */
static inline void pair_sync(struct pair* pair, uint32_t tag) {
    uint32_t other = 0;
    pair_exchange(pair, &tag, &other, sizeof tag);
    if (other != tag) die(EXIT_SETUP, "out of step: at %#x, the peer at %#x", tag, other);
}

/* -- the verbs side */

static inline bool is_ipv4_gid(const union ibv_gid* gid) {
    static const uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return !memcmp(gid->raw, prefix, sizeof prefix);
}

static inline bool is_link_local_gid(const union ibv_gid* gid) {
    return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

static inline void pair_find_gid(struct pair* pair, uint32_t table_length) {
    for (uint32_t i = 0; i < table_length; ++i) {
        struct ibv_gid_entry entry;
        if (pair->gid_index != ANY_GID && i != pair->gid_index) continue;
        if (ibv_query_gid_ex(pair->context, 1, i, &entry, 0) ||
            entry.gid_type != IBV_GID_TYPE_ROCE_V2)
            continue;
        bool fits = pair->family == 4 ? is_ipv4_gid(&entry.gid)
                                      : !is_ipv4_gid(&entry.gid) && !is_link_local_gid(&entry.gid);
        if (pair->gid_index != ANY_GID || fits) {
            pair->gid_index = i;
            pair->gid = entry.gid;
            return;
        }
    }
    die(EXIT_SETUP, "%s has no RoCE v2 GID for IPv%u", pair->dev, pair->family);
}

/* The link may be down for a moment. */
static inline void pair_wait_active(struct pair* pair, struct ibv_port_attr* port) {
    for (double deadline = now() + 5;; usleep(10000)) {
        if (ibv_query_port(pair->context, 1, port)) die(EXIT_SETUP, "cannot query port 1");
        if (port->state == IBV_PORT_ACTIVE) return;
        if (now() > deadline) die(EXIT_SETUP, "port 1 is not active");
    }
}

static inline void pair_open(struct pair* pair) {
    struct ibv_port_attr port;
    struct ibv_device** list = ibv_get_device_list(NULL);
    for (int i = 0; list && list[i]; ++i)
        if (!strcmp(ibv_get_device_name(list[i]), pair->dev)) {
            pair->context = ibv_open_device(list[i]);
            break;
        }
    if (!pair->context) die(EXIT_SETUP, "cannot open RDMA device %s", pair->dev);
    ibv_free_device_list(list);
    pair_wait_active(pair, &port);
    pair->path_mtu = port.active_mtu;
    for (int code = IBV_MTU_256; pair->mtu && code <= IBV_MTU_4096; ++code)
        if (128u << code == pair->mtu) pair->path_mtu = (enum ibv_mtu)code;
    if (pair->mtu && 128u << pair->path_mtu != pair->mtu) die(EXIT_SETUP, "MTU %u", pair->mtu);
    if (pair->path_mtu > port.active_mtu)
        die(EXIT_SETUP, "MTU %u, but the port has %u", pair->mtu, 128u << port.active_mtu);
    pair_find_gid(pair, (uint32_t)port.gid_tbl_len);
}

static const struct retry_rules usual_rules
    __attribute__((unused)) = {.timeout = 17, .retry_cnt = 7, .rnr_retry = 7, .min_rnr_timer = 12};

static inline void qp_init(struct ibv_qp* qp, unsigned access) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .pkey_index = 0, .port_num = 1, .qp_access_flags = access};
    int error = ibv_modify_qp(qp, &attr,
                              IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (error) die(EXIT_WRONG, "QP to INIT: %s", strerror(error));
}

static inline void qp_connect(struct pair* pair, struct ibv_qp* qp, uint32_t psn,
                              const struct endpoint* peer, const struct retry_rules* rules) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = pair->path_mtu,
        .dest_qp_num = peer->qpn,
        .rq_psn = peer->psn,
        .max_dest_rd_atomic = 16,
        .min_rnr_timer = rules->min_rnr_timer,
        .ah_attr = {.is_global = 1,
                    .port_num = 1,
                    .grh = {.dgid = peer->gid,
                            .sgid_index = (uint8_t)pair->gid_index,
                            .hop_limit = 64}},
    };
    int error = ibv_modify_qp(qp, &attr,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (error) die(EXIT_WRONG, "QP to RTR: %s", strerror(error));
    memset(&attr, 0, sizeof attr);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = rules->timeout;
    attr.retry_cnt = rules->retry_cnt;
    attr.rnr_retry = rules->rnr_retry;
    attr.sq_psn = psn;
    attr.max_rd_atomic = 16;
    error = ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    if (error) die(EXIT_WRONG, "QP to RTS: %s", strerror(error));
}

static inline void qp_set_state(struct ibv_qp* qp, enum ibv_qp_state state) {
    struct ibv_qp_attr attr = {.qp_state = state};
    int error = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
    if (error) die(EXIT_WRONG, "QP to state %d: %s", state, strerror(error));
}

#endif

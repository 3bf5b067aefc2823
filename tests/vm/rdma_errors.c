/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Provokes one error between a client and a server, and prints every work completion in order:
 *
 *   client send 1 status 10 vendor 0x162
 *
 * The caller knows what they must be. With --recover both queue pairs are then reset, connected
 * again, and carry verified data.
 */
#include <signal.h>
#include <sys/mman.h>

#include "rdma_pair.h"

enum { SLOT = 16384, SLOTS = 8, SIZE = SLOT * SLOTS, RECEIVES = 3, SENDS = 4, DEPTH = 16 };
enum { ID_RECEIVE = 0x100 };
/* Messages, more than the CQ of a QP holds: asked for 64, our provider makes 128. */
enum { OVERRUN = 160 };

enum mode {
    M_WRONG_RKEY,
    M_WRONG_RKEY_READ,
    M_OUT_OF_BOUNDS,
    M_OUT_OF_BOUNDS_READ,
    M_BELOW_START,
    M_NO_REMOTE_WRITE,
    M_NO_REMOTE_READ,
    M_REMOTE_PD,
    M_LOCAL_KEY,
    M_LOCAL_BOUNDS,
    M_LOCAL_PD,
    M_SCATTER_KEY,
    M_SCATTER_NO_WRITE,
    M_SCATTER_BOUNDS,
    M_RNR,
    M_LONG_MESSAGE,
    M_RECEIVE_KEY,
    M_CLOSED_PEER,
    M_KILLED_PEER,
    M_TO_ERR,
    M_DEREG_IN_TRAFFIC,
    M_UNMAP_IN_TRAFFIC, /* of the program's mapping; the region holds its pages */
    M_LOST_PEER,        /* whoever runs the program ends the peer, its host or the link */
    M_CQ_OVERRUN,
    M_COUNT
};

static const char* const mode_names[M_COUNT] = {
    "wrong-rkey",         "wrong-rkey-read", "out-of-bounds",
    "out-of-bounds-read", "below-start",     "no-remote-write",
    "no-remote-read",     "remote-pd",       "local-key",
    "local-bounds",       "local-pd",        "scatter-key",
    "scatter-no-write",   "scatter-bounds",  "rnr",
    "long-message",       "receive-key",     "closed-peer",
    "killed-peer",        "to-err",          "dereg-in-traffic",
    "unmap-in-traffic",   "lost-peer",       "cq-overrun"};

/* What the client must know of the server. */
struct hello {
    uint64_t address;
    uint32_t rkey;
    uint32_t mode;
    uint32_t length;
    struct endpoint end;
};

struct state {
    struct pair pair;
    enum mode mode;
    uint32_t length; /* of each message */
    bool unsignaled, one_cq, recover, no_receives;
    bool server;
    uint8_t* memory;
    uint8_t* snapshot;
    struct ibv_pd* pd;
    struct ibv_pd* other_pd;
    struct ibv_mr* mr;       /* all rights */
    struct ibv_mr* weak;     /* no remote rights, no local write */
    struct ibv_mr* other_mr; /* all rights, other PD */
    struct ibv_mr* target;   /* what the peer is told of */
    struct ibv_cq* send_cq;
    struct ibv_cq* receive_cq;
    struct ibv_qp* qp;
    struct hello mine, theirs;
    int to_come;
};

/* -- requests */

static bool is_send(enum mode mode) {
    return mode == M_RNR || mode == M_LONG_MESSAGE || mode == M_RECEIVE_KEY || mode == M_TO_ERR ||
           mode == M_CQ_OVERRUN;
}

static bool is_read(enum mode mode) {
    return mode == M_WRONG_RKEY_READ || mode == M_OUT_OF_BOUNDS_READ || mode == M_NO_REMOTE_READ ||
           mode == M_SCATTER_KEY || mode == M_SCATTER_NO_WRITE || mode == M_SCATTER_BOUNDS;
}

/* Modes in which the first request is in order. */
static bool starts_well(enum mode mode) {
    return mode != M_RNR && mode != M_CLOSED_PEER && mode != M_TO_ERR && mode != M_RECEIVE_KEY &&
           mode != M_NO_REMOTE_WRITE && mode != M_NO_REMOTE_READ && mode != M_REMOTE_PD;
}

/* Makes one request wrong. */
static void corrupt(struct state* s, struct ibv_send_wr* wr, struct ibv_sge* sge) {
    switch (s->mode) {
        case M_WRONG_RKEY:
        case M_WRONG_RKEY_READ:
            wr->wr.rdma.rkey ^= 0x5a00;
            break;
        case M_OUT_OF_BOUNDS:
        case M_OUT_OF_BOUNDS_READ:
            wr->wr.rdma.remote_addr = s->theirs.address + SIZE - s->length + 1;
            break;
        case M_BELOW_START:
            wr->wr.rdma.remote_addr = s->theirs.address - 1;
            break;
        case M_LOCAL_KEY:
        case M_SCATTER_KEY:
            sge->lkey ^= 0x5a00;
            break;
        case M_LOCAL_BOUNDS:
        case M_SCATTER_BOUNDS:
            sge->addr = (uintptr_t)s->memory + SIZE - s->length + 1;
            break;
        case M_LOCAL_PD:
            sge->lkey = s->other_mr->lkey;
            break;
        case M_SCATTER_NO_WRITE:
            sge->lkey = s->weak->lkey;
            break;
        case M_LONG_MESSAGE:
            sge->length = s->length + 1;
            break;
        default:
            break;
    }
}

/* Posts a SEND or a WRITE, as the mode has it. Returns what ibv_post_send returned. */
static int try_send(struct state* s, uint64_t id, bool bad) {
    struct ibv_sge sge = {.addr = (uintptr_t)s->memory + SLOT * (1 + id % 4),
                          .length = s->length,
                          .lkey = s->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = id,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = is_send(s->mode)   ? IBV_WR_SEND
                                       : is_read(s->mode) ? IBV_WR_RDMA_READ
                                                          : IBV_WR_RDMA_WRITE,
                             .send_flags = bad && s->unsignaled ? 0 : IBV_SEND_SIGNALED};
    struct ibv_send_wr* refused;
    wr.wr.rdma.remote_addr = s->theirs.address + SLOT * (1 + id % 4);
    wr.wr.rdma.rkey = s->theirs.rkey;
    if (bad) corrupt(s, &wr, &sge);
    int error = ibv_post_send(s->qp, &wr, &refused);
    if (!error) ++s->to_come;
    return error;
}

static void post_send(struct state* s, uint64_t id, bool bad) {
    int error = try_send(s, id, bad);
    if (error) die(EXIT_WRONG, "post_send %u: %s", (unsigned)id, strerror(error));
}

static void post_receives(struct state* s, int count, uint32_t lkey) {
    for (int i = 0; i < count; ++i) {
        struct ibv_sge sge = {.addr = (uintptr_t)s->memory + SLOT * (4 + (uint32_t)i % 4),
                              .length = s->length,
                              .lkey = lkey};
        struct ibv_recv_wr wr = {
            .wr_id = (uint64_t)(ID_RECEIVE + i), .sg_list = &sge, .num_sge = 1};
        struct ibv_recv_wr* refused;
        int error = ibv_post_recv(s->qp, &wr, &refused);
        if (error) die(EXIT_WRONG, "post_recv %d: %s", i, strerror(error));
    }
}

/* -- completions */

static int poll_and_print(struct state* s, struct ibv_cq* cq) {
    struct ibv_wc wc;
    int count = ibv_poll_cq(cq, 1, &wc);
    if (count < 0) die(EXIT_WRONG, "poll_cq failed");
    if (!count) return 0;
    bool receive = wc.wr_id >= ID_RECEIVE;
    printf("%s %s %u status %d vendor %#x\n", pair_role, receive ? "receive" : "send",
           (unsigned)(wc.wr_id & (ID_RECEIVE - 1)), wc.status, wc.vendor_err);
    if (wc.qp_num != s->qp->qp_num) die(EXIT_WRONG, "a completion of QP %#x", wc.qp_num);
    return 1;
}

/* Prints what comes until `to_come` completions are there, then whether more follow. */
static void collect(struct state* s) {
    double deadline = now() + s->pair.timeout;
    while (s->to_come > 0 && now() < deadline) {
        s->to_come -= poll_and_print(s, s->send_cq);
        if (s->receive_cq != s->send_cq) s->to_come -= poll_and_print(s, s->receive_cq);
    }
    if (s->to_come > 0) printf("%s missing %d\n", pair_role, s->to_come);
    deadline = now() + 0.3;
    while (now() < deadline) {
        poll_and_print(s, s->send_cq);
        if (s->receive_cq != s->send_cq) poll_and_print(s, s->receive_cq);
    }
}

/* -- set-up */

static struct ibv_mr* register_memory(struct ibv_pd* pd, void* memory, int access) {
    struct ibv_mr* mr = ibv_reg_mr(pd, memory, SIZE, access);
    if (!mr) die(EXIT_WRONG, "reg_mr: %s", strerror(errno));
    return mr;
}

static void make_qp(struct state* s) {
    struct ibv_qp_init_attr attr = {
        .send_cq = s->send_cq,
        .recv_cq = s->receive_cq,
        .cap = {.max_send_wr = DEPTH,
                .max_recv_wr = s->mode == M_CQ_OVERRUN ? OVERRUN : DEPTH,
                .max_send_sge = 1,
                .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC};
    s->qp = ibv_create_qp(s->pd, &attr);
    if (!s->qp) die(EXIT_WRONG, "creating the QP: %s", strerror(errno));
    qp_init(s->qp, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
}

static void make_objects(struct state* s) {
    const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    struct ibv_context* context = s->pair.context;
    s->memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    s->snapshot = malloc(SIZE);
    if (s->memory == MAP_FAILED || !s->snapshot) die(EXIT_SETUP, "no memory");
    s->pd = ibv_alloc_pd(context);
    s->other_pd = ibv_alloc_pd(context);
    s->send_cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
    s->receive_cq = s->one_cq ? s->send_cq : ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
    if (!s->pd || !s->other_pd || !s->send_cq || !s->receive_cq)
        die(EXIT_WRONG, "creating PDs and CQs: %s", strerror(errno));
    s->mr = register_memory(s->pd, s->memory, all);
    s->weak = register_memory(s->pd, s->memory, 0);
    s->other_mr = register_memory(s->other_pd, s->memory, all);
    s->target = s->mr;
    if (s->server) {
        if (s->mode == M_REMOTE_PD) s->target = s->other_mr;
        if (s->mode == M_NO_REMOTE_WRITE || s->mode == M_NO_REMOTE_READ) s->target = s->weak;
        if (s->mode == M_DEREG_IN_TRAFFIC) s->target = register_memory(s->pd, s->memory, all);
    }
    make_qp(s);
}

static void connect_qp(struct state* s, const struct retry_rules* rules, uint32_t psn) {
    s->mine = (struct hello){.address = (uintptr_t)s->memory,
                             .rkey = s->target->rkey,
                             .mode = s->mode,
                             .length = s->length,
                             .end = {.qpn = s->qp->qp_num, .psn = psn, .gid = s->pair.gid}};
    pair_exchange(&s->pair, &s->mine, &s->theirs, sizeof s->mine);
    if (s->mine.mode != s->theirs.mode || s->mine.length != s->theirs.length)
        die(EXIT_SETUP, "the peer was started with other options");
    qp_connect(&s->pair, s->qp, psn, &s->theirs.end, rules);
}

/* -- both queue pairs work again after RESET */

static struct ibv_wc wait_completion(struct state* s, struct ibv_cq* cq, const char* what) {
    double deadline = now() + s->pair.timeout;
    struct ibv_wc wc;
    int count;
    while ((count = ibv_poll_cq(cq, 1, &wc)) == 0)
        if (now() > deadline) die(EXIT_WRONG, "the %s did not complete", what);
    if (count < 0) die(EXIT_WRONG, "polling for the %s: %d", what, count);
    return wc;
}

static void wait_success(struct state* s, struct ibv_cq* cq, const char* what) {
    struct ibv_wc wc = wait_completion(s, cq, what);
    if (wc.status)
        die(EXIT_WRONG, "the %s has status %d, vendor %#x", what, wc.status, wc.vendor_err);
}

static void recover(struct state* s) {
    s->target = s->mr;
    s->mode = M_RNR; /* plain SENDs */
    qp_set_state(s->qp, IBV_QPS_RESET);
    qp_init(s->qp, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    memset(s->memory, s->server ? 0x11 : 0xee, SIZE);
    connect_qp(s, &usual_rules, 0x777000);
    post_receives(s, 1, s->mr->lkey);
    pair_sync(&s->pair, 0xa1);
    if (!s->server) {
        post_send(s, 0, false);
        wait_success(s, s->send_cq, "send after RESET");
    } else {
        wait_success(s, s->receive_cq, "receive after RESET");
        for (uint32_t i = 0; i < s->length; ++i)
            if (s->memory[SLOT * 4 + i] != 0xee)
                die(EXIT_WRONG, "after RESET: byte %u of the message is wrong", i);
    }
    pair_sync(&s->pair, 0xa2);
    printf("%s recovered\n", pair_role);
}

/* -- the cases */

/* Whether the peer has said that nothing more will happen. */
static bool is_over(struct state* s) {
    char word;
    return s->mode == M_UNMAP_IN_TRAFFIC && recv(s->pair.sock, &word, 1, MSG_DONTWAIT) == 1;
}

/* Writes until something goes wrong: the peer's memory or the peer itself goes away. */
static void stream_until_error(struct state* s) {
    double deadline = now() + s->pair.timeout;
    uint64_t posted = 0, done = 0;
    bool told = false, over = false, refused = false;
    for (;;) {
        struct ibv_wc wc;
        over = over || is_over(s);
        if (over && posted == done && !refused) {
            printf("client undisturbed\n");
            return;
        }
        while (!over && !refused && posted - done < DEPTH / 2) {
            int error = try_send(s, posted % ID_RECEIVE, false);
            /* The provider has seen the error already and hands out what was done before it: the
             * next completions will tell. */
            refused = error == EINVAL;
            if (refused) break;
            if (error) die(EXIT_WRONG, "post_send %u: %s", (unsigned)posted, strerror(error));
            ++posted;
        }
        int count = ibv_poll_cq(s->send_cq, 1, &wc);
        if (count < 0) die(EXIT_WRONG, "poll_cq failed");
        if (now() > deadline) die(EXIT_WRONG, "no error came within %u s", s->pair.timeout);
        if (!count) continue;
        if (wc.wr_id != done % ID_RECEIVE) die(EXIT_WRONG, "completion out of order");
        ++done;
        if (!told && done == 100) { /* traffic flows */
            pair_send(&s->pair, "t", 1);
            told = true;
            printf("client told\n");
        }
        if (!wc.status) continue;
        printf("client send first status %d vendor %#x\n", wc.status, wc.vendor_err);
        break;
    }
    if (!told) die(EXIT_WRONG, "an error before the peer did anything");
    while (done < posted) {
        struct ibv_wc wc;
        int count = ibv_poll_cq(s->send_cq, 1, &wc);
        if (count < 0) die(EXIT_WRONG, "poll_cq failed");
        if (now() > deadline) die(EXIT_WRONG, "%u flushes missing", (unsigned)(posted - done));
        if (!count) continue;
        if (wc.wr_id != done % ID_RECEIVE) die(EXIT_WRONG, "flush out of order");
        ++done;
        printf("client send rest status %d vendor %#x\n", wc.status, wc.vendor_err);
    }
}

static void serve_stream(struct state* s) {
    char told;
    pair_receive(&s->pair, &told, 1);
    if (s->mode == M_KILLED_PEER) {
        printf("server dies\n");
        fflush(stdout);
        raise(SIGKILL);
    }
    if (s->mode == M_LOST_PEER) {
        printf("server waits\n");
        for (double end = now() + s->pair.timeout; now() < end;) usleep(100000);
        die(EXIT_SETUP, "nobody ended the server");
    }
    if (s->mode == M_UNMAP_IN_TRAFFIC) {
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        if (munmap(s->memory, SIZE) ||
            mmap(s->memory, SIZE, PROT_READ | PROT_WRITE, flags, -1, 0) != s->memory)
            die(EXIT_SETUP, "cannot map the memory anew");
        memset(s->memory, 0x3c, SIZE);
    } else if (ibv_dereg_mr(s->target)) {
        die(EXIT_WRONG, "dereg_mr in traffic failed");
    }
    memcpy(s->snapshot, s->memory, SIZE);
    usleep(300000);
    if (memcmp(s->snapshot, s->memory, SIZE))
        die(EXIT_WRONG, "memory was written that is in no region");
    printf("server untouched\n");
    if (s->mode == M_UNMAP_IN_TRAFFIC) pair_send(&s->pair, "u", 1);
}

/* Waits for the event that a CQ is lost; the QPs that it took with it have events of their own. */
static bool cq_error_event(struct state* s, const struct ibv_cq* cq) {
    struct pollfd wait = {.fd = s->pair.context->async_fd, .events = POLLIN};
    struct ibv_async_event event;
    bool found = false;
    while (poll(&wait, 1, found ? 0 : 5000) > 0 && !ibv_get_async_event(s->pair.context, &event)) {
        found |= event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == cq;
        ibv_ack_async_event(&event);
    }
    return found;
}

/* What is told of the QP until nothing comes for half a second. */
static void print_events(struct state* s) {
    struct pollfd wait = {.fd = s->pair.context->async_fd, .events = POLLIN};
    struct ibv_async_event event;
    int first = 5000;
    for (; poll(&wait, 1, first) > 0 && !ibv_get_async_event(s->pair.context, &event);
         first = 500) {
        if (event.element.qp == s->qp) printf("server event %d\n", event.event_type);
        ibv_ack_async_event(&event);
    }
}

/* The CQ was left alone while more came than it holds. A NIC that does not know how far a CQ was
 * read writes on, and the provider sees by the owner bits that it has lost some; one that does
 * gives an event and ends the QP. The CQ is of no use any more; nothing else is disturbed. */
static void serve_overrun(struct state* s) {
    struct ibv_wc wc;
    int count, seen = 0;
    post_receives(s, OVERRUN, s->mr->lkey);
    pair_sync(&s->pair, 1);
    pair_sync(&s->pair, 2);
    while ((count = ibv_poll_cq(s->receive_cq, 1, &wc)) > 0) ++seen;
    struct ibv_cq* lost = s->receive_cq;
    if (count < 0)
        printf("server overrun seen by the poll\n");
    else if (cq_error_event(s, lost))
        printf("server overrun told by an event\n");
    else
        die(EXIT_WRONG, "%d completions came, and no word of those that are lost", seen);
    if (ibv_destroy_qp(s->qp) || ibv_destroy_cq(lost)) die(EXIT_WRONG, "destroying QP and CQ");
    s->receive_cq = ibv_create_cq(s->pair.context, 4 * DEPTH, NULL, NULL, 0);
    if (!s->receive_cq) die(EXIT_WRONG, "a new CQ: %s", strerror(errno));
    make_qp(s);
}

static void overrun(struct state* s) {
    struct ibv_wc wc = {.status = IBV_WC_SUCCESS};
    int sent = 0;
    pair_sync(&s->pair, 1);
    while (sent < OVERRUN) {
        post_send(s, (uint64_t)sent, false);
        wc = wait_completion(s, s->send_cq, "send");
        if (wc.status) break;
        ++sent;
    }
    printf("client sent %d of %d, status %d\n", sent, OVERRUN, wc.status);
    pair_sync(&s->pair, 2);
}

static const struct retry_rules* rules_of(enum mode mode) {
    /* 4 ms and 1.3 ms at a time, few tries */
    static const struct retry_rules quick = {
        .timeout = 10, .retry_cnt = 3, .rnr_retry = 2, .min_rnr_timer = 14};
    /* 67 ms at a time: a peer on a busy host is not lost */
    static const struct retry_rules patient = {
        .timeout = 14, .retry_cnt = 6, .rnr_retry = 7, .min_rnr_timer = 12};
    if (mode == M_LOST_PEER) return &patient;
    return mode == M_RNR || mode == M_CLOSED_PEER || mode == M_KILLED_PEER ? &quick : &usual_rules;
}

static bool is_stream(enum mode mode) {
    return mode == M_DEREG_IN_TRAFFIC || mode == M_KILLED_PEER || mode == M_UNMAP_IN_TRAFFIC ||
           mode == M_LOST_PEER;
}

static bool server_fails(enum mode mode) {
    switch (mode) {
        case M_WRONG_RKEY:
        case M_WRONG_RKEY_READ:
        case M_OUT_OF_BOUNDS:
        case M_OUT_OF_BOUNDS_READ:
        case M_BELOW_START:
        case M_NO_REMOTE_WRITE:
        case M_NO_REMOTE_READ:
        case M_REMOTE_PD:
        case M_LONG_MESSAGE:
        case M_RECEIVE_KEY:
            return true;
        default:
            return false;
    }
}

static void run_client(struct state* s) {
    if (s->mode == M_CQ_OVERRUN) {
        overrun(s);
        return;
    }
    post_receives(s, RECEIVES, s->mr->lkey);
    pair_sync(&s->pair, 1);
    if (s->mode == M_CLOSED_PEER) pair_sync(&s->pair, 2);
    if (is_stream(s->mode)) {
        stream_until_error(s);
        s->to_come = s->mode == M_UNMAP_IN_TRAFFIC ? 0 : RECEIVES;
        collect(s);
        return;
    }
    s->to_come = RECEIVES;
    int wrong = starts_well(s->mode) ? 1 : 0;
    for (int i = 0; i < SENDS; ++i) post_send(s, (uint64_t)i, i == wrong);
    if (s->mode == M_TO_ERR) qp_set_state(s->qp, IBV_QPS_ERR);
    collect(s);
}

static void run_server(struct state* s) {
    if (s->mode == M_CQ_OVERRUN) {
        serve_overrun(s);
        return;
    }
    if (s->mode != M_RNR && s->mode != M_TO_ERR && !s->no_receives)
        post_receives(s, RECEIVES, s->mode == M_RECEIVE_KEY ? s->mr->lkey ^ 0x5a00 : s->mr->lkey);
    pair_sync(&s->pair, 1);
    if (s->mode == M_CLOSED_PEER) {
        if (ibv_destroy_qp(s->qp)) die(EXIT_WRONG, "destroy_qp failed");
        s->qp = NULL;
        pair_sync(&s->pair, 2);
        return;
    }
    if (is_stream(s->mode)) {
        serve_stream(s);
        s->to_come = s->mode == M_UNMAP_IN_TRAFFIC ? 0 : RECEIVES;
        collect(s);
        return;
    }
    s->to_come = server_fails(s->mode) && !s->no_receives ? RECEIVES : 0;
    collect(s);
    if (s->no_receives) print_events(s);
}

/* -- options */

static void parse_options(struct state* s, int argc, char** argv) {
    const char* mode = "none";
    const struct option_rule own[] = {
        {"mode", OPTION_TEXT, &mode, 0, 0},
        {"length", OPTION_NUMBER, &s->length, 1, SLOT - 1},
        {"unsignaled", OPTION_FLAG, &s->unsignaled, 0, 0},
        {"one-cq", OPTION_FLAG, &s->one_cq, 0, 0},
        {"recover", OPTION_FLAG, &s->recover, 0, 0},
        {"no-receives", OPTION_FLAG, &s->no_receives, 0, 0}, /* at the server */
    };
    s->pair = (struct pair){
        .dev = "mana_0", .port = 19500, .family = 4, .gid_index = ANY_GID, .timeout = 20};
    s->length = 64;
    s->mode = M_COUNT;
    pair_options(&s->pair, own, sizeof own / sizeof own[0], argc, argv);
    for (int i = 0; i < M_COUNT; ++i)
        if (!strcmp(mode, mode_names[i])) s->mode = (enum mode)i;
    if (s->mode == M_COUNT) die(EXIT_SETUP, "--mode is needed, one that exists");
}

int main(int argc, char** argv) {
    struct state* s = calloc(1, sizeof *s);
    if (!s) die(EXIT_SETUP, "no memory");
    setvbuf(stdout, NULL, _IOLBF, 0);
    parse_options(s, argc, argv);
    s->server = s->pair.server;
    pair_connect(&s->pair);
    pair_open(&s->pair);
    make_objects(s);
    connect_qp(s, rules_of(s->mode), 0x123456);
    if (s->server)
        run_server(s);
    else
        run_client(s);
    if (s->mode != M_KILLED_PEER && s->mode != M_LOST_PEER) {
        pair_sync(&s->pair, 3);
        if (s->recover && s->mode != M_CLOSED_PEER) recover(s);
    }
    printf("%s done\n", pair_role);
    return 0;
}

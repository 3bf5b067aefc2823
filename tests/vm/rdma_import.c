/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes with one context: an owner, and an importer that has its file by a message and
 * nothing else.
 *
 *   rdma_import --dev mana_0 [--leaving FILE]
 *
 * The importer takes the owner's PD, memory region and device memory, which both copy to and from
 * where the device can, and makes CQs and a queue pair of its own.
 * The two send to each other with completion events, and write into memory that both see. Events
 * come to the process whose queue pair it is. Then the owner is killed, with everything it has; the
 * importer goes on by itself, also with the owner's region. With --leaving nobody is killed: once
 * FILE is there the device is to go, both are told, get EIO for all they ask and end by the book.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "rdma_pair.h"

enum { PAGE = 4096, BYTES = 64 * PAGE, ROUNDS = 200, DEPTH = 16, PIECE = 2048 };
/* Device memory: larger than one request of the driver. */
enum { DM_BYTES = 70000 };
/* Halves of the memory that both processes see: the owner's region and the rest. */
enum { SHARED = 2 * BYTES };

static struct pair pair = {.family = 4, .gid_index = ANY_GID, .timeout = 30};
static const char* leaving;
static uint8_t* memory;

/* A queue pair and what belongs to it. */
struct side {
    struct ibv_context* context;
    struct ibv_pd* pd;
    struct ibv_comp_channel* channel;
    struct ibv_cq* cq;
    struct ibv_qp* qp;
};

struct card {
    struct endpoint end;
    uint32_t pd, mr, lkey, rkey, dm;
    bool has_dm; /* the stock driver of 6.12 has none, and is not imported from either */
};

static void make_side(struct side* side) {
    struct ibv_qp_init_attr attr = {
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1}};

    side->channel = ibv_create_comp_channel(side->context);
    if (!side->channel) die(EXIT_WRONG, "channel: %s", strerror(errno));
    side->cq = ibv_create_cq(side->context, 4 * DEPTH, NULL, side->channel, 0);
    if (!side->cq) die(EXIT_WRONG, "CQ: %s", strerror(errno));
    attr.send_cq = attr.recv_cq = side->cq;
    side->qp = ibv_create_qp(side->pd, &attr);
    if (!side->qp) die(EXIT_WRONG, "QP: %s", strerror(errno));
    qp_init(side->qp, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    if (ibv_req_notify_cq(side->cq, 0)) die(EXIT_WRONG, "arming: %s", strerror(errno));
}

static void destroy_side(struct side* side) {
    int err = ibv_destroy_qp(side->qp);

    if (!err) err = ibv_destroy_cq(side->cq);
    if (!err) err = ibv_destroy_comp_channel(side->channel);
    if (err) die(EXIT_WRONG, "the end of a queue pair: %s", strerror(err));
}

static struct endpoint endpoint_of(const struct side* side) {
    return (struct endpoint){.qpn = side->qp->qp_num, .psn = 77, .gid = pair.gid};
}

static void post_receive(struct side* side, const uint8_t* at, uint32_t lkey) {
    struct ibv_sge sge = {.addr = (uintptr_t)at, .length = PIECE, .lkey = lkey};
    struct ibv_recv_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1}, *bad;

    if (ibv_post_recv(side->qp, &wr, &bad)) die(EXIT_WRONG, "a receive is refused");
}

static void post_send(struct side* side, enum ibv_wr_opcode opcode, const uint8_t* at,
                      uint32_t lkey, const uint8_t* to, uint32_t rkey) {
    struct ibv_sge sge = {.addr = (uintptr_t)at, .length = PIECE, .lkey = lkey};
    struct ibv_send_wr wr = {.wr_id = 1,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;

    wr.wr.rdma.remote_addr = (uintptr_t)to;
    wr.wr.rdma.rkey = rkey;
    if (ibv_post_send(side->qp, &wr, &bad)) die(EXIT_WRONG, "a send is refused");
}

/* The next completion, waited for by an event. */
static struct ibv_wc completion(struct side* side) {
    struct pollfd wait = {.fd = side->channel->fd, .events = POLLIN};
    struct ibv_cq* cq;
    struct ibv_wc wc;
    void* context;

    for (;;) {
        int found = ibv_poll_cq(side->cq, 1, &wc);
        if (found < 0) die(EXIT_WRONG, "polling: %d", found);
        if (found) return wc;
        if (poll(&wait, 1, (int)pair.timeout * 1000) != 1) die(EXIT_WRONG, "no completion");
        if (ibv_get_cq_event(side->channel, &cq, &context) || cq != side->cq)
            die(EXIT_WRONG, "an event of another's CQ");
        ibv_ack_cq_events(cq, 1);
        if (ibv_req_notify_cq(cq, 0)) die(EXIT_WRONG, "arming: %s", strerror(errno));
    }
}

static void expect(struct side* side, uint64_t wr_id, enum ibv_wc_status status) {
    struct ibv_wc wc = completion(side);

    if (wc.wr_id != wr_id || wc.status != status || wc.qp_num != side->qp->qp_num)
        die(EXIT_WRONG, "work request %u ended with %s, expected %u with %s", (unsigned)wc.wr_id,
            ibv_wc_status_str(wc.status), (unsigned)wr_id, ibv_wc_status_str(status));
}

/* The public format knows no other event of a queue pair. */
static bool fits(int type, int came) {
    return came == type || (type == IBV_EVENT_QP_ACCESS_ERR && came == IBV_EVENT_QP_FATAL);
}

/* An event of a queue pair of ours, or of the device; none within a moment if `type` is -1. */
static void event(struct side* side, int type) {
    struct pollfd wait = {.fd = side->context->async_fd, .events = POLLIN};
    struct ibv_async_event event;
    int came = poll(&wait, 1, type < 0 ? 300 : (int)pair.timeout * 1000);

    if (type < 0 && came == 0) return;
    if (came != 1 || ibv_get_async_event(side->context, &event))
        die(EXIT_WRONG, "no event, expected %d", type);
    if (!fits(type, (int)event.event_type))
        die(EXIT_WRONG, "%s, expected %d", ibv_event_type_str(event.event_type), type);
    if (type != IBV_EVENT_DEVICE_FATAL && event.element.qp != side->qp)
        die(EXIT_WRONG, "an event of another's queue pair");
    ibv_ack_async_event(&event);
}

/* -- between the processes */

static void say(int sock, const void* what, size_t bytes, int fd) {
    struct iovec piece = {.iov_base = (void*)(uintptr_t)what, .iov_len = bytes};
    char room[CMSG_SPACE(sizeof fd)] = {0};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};

    if (fd >= 0) {
        message.msg_control = room;
        message.msg_controllen = sizeof room;
        struct cmsghdr* head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(head), &fd, sizeof fd);
    }
    if (sendmsg(sock, &message, MSG_NOSIGNAL) != (ssize_t)bytes)
        die(EXIT_SETUP, "telling the other");
}

static int hear(int sock, void* what, size_t bytes) {
    struct iovec piece = {.iov_base = what, .iov_len = bytes};
    char room[CMSG_SPACE(sizeof(int))];
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct pollfd wait = {.fd = sock, .events = POLLIN};
    int fd = -1;

    if (poll(&wait, 1, (int)pair.timeout * 1000) != 1 ||
        recvmsg(sock, &message, MSG_CMSG_CLOEXEC) != (ssize_t)bytes)
        die(EXIT_SETUP, "no word from the other");
    if (CMSG_FIRSTHDR(&message)) memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static uint8_t pattern(uint32_t round, uint32_t at) {
    return (uint8_t)(round * 37 + at * 11 + 5);
}

static void fill(uint8_t* at, uint32_t round) {
    for (uint32_t i = 0; i < PIECE; ++i) at[i] = pattern(round, i);
}

static void compare(const uint8_t* at, uint32_t round) {
    for (uint32_t i = 0; i < PIECE; ++i)
        if (at[i] != pattern(round, i)) die(EXIT_WRONG, "round %u: byte %u is wrong", round, i);
}

/* Sends by turns: what one sends from a place of the memory comes to another place of it. */
static void play(struct side* side, bool first, uint32_t lkey, uint8_t* mine, uint8_t* theirs) {
    for (uint32_t round = 0; round < ROUNDS; ++round) {
        post_receive(side, theirs, lkey);
        if (!first) {
            expect(side, 2, IBV_WC_SUCCESS);
            compare(theirs, round);
        }
        fill(mine, first ? round : round + 1);
        post_send(side, IBV_WR_SEND, mine, lkey, NULL, 0);
        if (first) {
            bool sent = false, received = false;
            while (!sent || !received) {
                struct ibv_wc wc = completion(side);
                if (wc.status) die(EXIT_WRONG, "round %u: %s", round, ibv_wc_status_str(wc.status));
                if (wc.wr_id == 1) sent = true;
                if (wc.wr_id == 2) received = true;
            }
            compare(theirs, round + 1);
        } else {
            expect(side, 1, IBV_WC_SUCCESS);
        }
    }
}

/* Bytes of device memory that one wrote and another reads; false if the device has no copies. */
static bool put_dm(struct ibv_dm* dm, uint32_t round) {
    uint8_t bytes[DM_BYTES];
    int err;

    for (uint32_t i = 0; i < DM_BYTES; ++i) bytes[i] = pattern(round + i / PAGE, i);
    err = ibv_memcpy_to_dm(dm, 0, bytes, DM_BYTES);
    if (err && err != EOPNOTSUPP) die(EXIT_WRONG, "a copy to device memory: %s", strerror(err));
    return !err;
}

static void compare_dm(struct ibv_dm* dm, uint32_t round) {
    uint8_t bytes[DM_BYTES];
    int err = ibv_memcpy_from_dm(bytes, dm, 0, DM_BYTES);

    if (err) die(EXIT_WRONG, "a copy from device memory: %s", strerror(err));
    for (uint32_t i = 0; i < DM_BYTES; ++i)
        if (bytes[i] != pattern(round + i / PAGE, i))
            die(EXIT_WRONG, "device memory: byte %u is wrong", (unsigned)i);
}

static void fails(const char* what, bool failed, int err) {
    if (!failed) die(EXIT_WRONG, "%s without a device", what);
    if (err != EIO) die(EXIT_WRONG, "%s without a device: %s", what, strerror(err));
}

/* What the manual says of a device that is gone: whatever asks it ends with EIO. */
static void expect_gone(struct side* side) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct ibv_qp_init_attr init;
    struct ibv_port_attr port;
    bool failed;
    int err;

    errno = 0;
    failed = !ibv_alloc_pd(side->context);
    fails("a PD", failed, errno);
    errno = 0;
    failed = !ibv_create_cq(side->context, DEPTH, NULL, NULL, 0);
    fails("a CQ", failed, errno);
    errno = 0;
    failed = !ibv_reg_mr(side->pd, memory, PAGE, IBV_ACCESS_LOCAL_WRITE);
    fails("an MR", failed, errno);
    err = ibv_modify_qp(side->qp, &attr, IBV_QP_STATE);
    fails("a queue pair's change", err, err);
    err = ibv_query_qp(side->qp, &attr, IBV_QP_STATE, &init);
    fails("a queue pair's state", err, err);
    err = ibv_query_port(side->context, 1, &port);
    fails("the port's state", err, err);
}

static void own(int sock) {
    struct side side = {.context = NULL};
    struct ibv_alloc_dm_attr dm_attr = {.length = DM_BYTES};
    struct card mine = {.mr = 0}, theirs;
    struct ibv_mr* mr;
    struct ibv_dm* dm;
    bool copies;

    pair_role = "owner";
    pair_open(&pair);
    side.context = pair.context;
    side.pd = ibv_alloc_pd(side.context);
    if (!side.pd) die(EXIT_WRONG, "PD: %s", strerror(errno));
    mr = ibv_reg_mr(side.pd, memory, BYTES,
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    if (!mr) die(EXIT_WRONG, "MR: %s", strerror(errno));
    make_side(&side);
    dm = ibv_alloc_dm(side.context, &dm_attr);
    copies = dm && put_dm(dm, 1);
    mine = (struct card){.end = endpoint_of(&side),
                         .pd = side.pd->handle,
                         .mr = mr->handle,
                         .lkey = mr->lkey,
                         .rkey = mr->rkey,
                         .dm = dm ? dm->handle : 0,
                         .has_dm = dm};
    say(sock, &pair, sizeof pair, side.context->cmd_fd);
    say(sock, &mine, sizeof mine, -1);
    hear(sock, &theirs, sizeof theirs);
    qp_connect(&pair, side.qp, 77, &theirs.end, &usual_rules);
    say(sock, "c", 1, -1);
    play(&side, true, mr->lkey, memory, memory + PIECE);
    if (copies) compare_dm(dm, 2);
    if (leaving) {
        char told;
        hear(sock, &told, 1);
        if (open(leaving, O_CREAT | O_WRONLY, 0600) < 0) die(EXIT_SETUP, "cannot make %s", leaving);
        event(&side, IBV_EVENT_DEVICE_FATAL);
        expect_gone(&side);
        destroy_side(&side);
        if (ibv_free_dm(dm) || ibv_dereg_mr(mr) || ibv_dealloc_pd(side.pd) ||
            ibv_close_device(side.context))
            die(EXIT_WRONG, "the end");
        return;
    }
    /* A key that is none: an error of the importer's queue pair, and an event for it alone. */
    post_send(&side, IBV_WR_RDMA_WRITE, memory, mr->lkey, memory, mr->rkey ^ 0x55);
    expect(&side, 1, IBV_WC_REM_ACCESS_ERR);
    event(&side, -1);
    say(sock, "e", 1, -1);
    for (;;) pause(); /* to be killed */
}

/* What cannot be imported. */
static void refused(struct ibv_context* context, const struct card* owner) {
    errno = 0;
    if (ibv_import_pd(context, 0x7fffff) || errno != ENOENT)
        die(EXIT_WRONG, "a PD that is none: %s", strerror(errno));
    errno = 0;
    if (ibv_import_pd(context, owner->mr) || errno != EINVAL)
        die(EXIT_WRONG, "a PD that is an MR: %s", strerror(errno));
}

/* What the importer has of the owner's. */
struct imports {
    struct side side; /* its queue pair and CQ are its own */
    struct ibv_mr* mr;
    struct ibv_dm* dm;
    bool copies; /* the device copies to and from device memory */
};

static void import_objects(struct imports* in, const struct card* owner) {
    refused(in->side.context, owner);
    in->side.pd = ibv_import_pd(in->side.context, owner->pd);
    if (!in->side.pd) die(EXIT_WRONG, "importing the PD: %s", strerror(errno));
    errno = 0;
    if (ibv_import_mr(in->side.pd, owner->pd) || errno != EINVAL)
        die(EXIT_WRONG, "an MR that is a PD: %s", strerror(errno));
    in->mr = ibv_import_mr(in->side.pd, owner->mr);
    if (!in->mr) die(EXIT_WRONG, "importing the MR: %s", strerror(errno));
    if (in->mr->lkey != owner->lkey || in->mr->rkey != owner->rkey || in->mr->length != BYTES)
        die(EXIT_WRONG, "the imported MR is another");
    if (!owner->has_dm) die(EXIT_WRONG, "the owner has no device memory");
    in->dm = ibv_import_dm(in->side.context, owner->dm);
    if (!in->dm) die(EXIT_WRONG, "importing device memory: %s", strerror(errno));
    in->copies = ibv_memcpy_from_dm(memory, in->dm, 0, 4) == 0;
    if (in->copies) compare_dm(in->dm, 1);
    if (put_dm(in->dm, 2) != in->copies) die(EXIT_WRONG, "copies in one direction alone");
}

static void end_imports(struct imports* in) {
    ibv_unimport_mr(in->mr);
    ibv_unimport_pd(in->side.pd);
    if (ibv_close_device(in->side.context)) die(EXIT_WRONG, "closing");
}

/* The device goes under both processes. */
static void leave(struct imports* in, int sock) {
    say(sock, "r", 1, -1);
    event(&in->side, IBV_EVENT_DEVICE_FATAL);
    expect_gone(&in->side);
    destroy_side(&in->side);
    if (!ibv_memcpy_to_dm(in->dm, 0, memory, 4)) die(EXIT_WRONG, "a copy without a device");
    ibv_unimport_dm(in->dm);
    end_imports(in);
}

/* The owner is gone: writes from memory of the importer's own into the owner's. */
static void write_alone(struct imports* in, const struct ibv_mr* own) {
    struct side one = in->side, two = in->side;
    struct endpoint ends[2];

    make_side(&one);
    make_side(&two);
    ends[0] = endpoint_of(&one);
    ends[1] = endpoint_of(&two);
    qp_connect(&pair, one.qp, 77, &ends[1], &usual_rules);
    qp_connect(&pair, two.qp, 77, &ends[0], &usual_rules);
    for (uint32_t round = 0; round < ROUNDS; ++round) {
        fill(memory + BYTES, round);
        post_send(&one, IBV_WR_RDMA_WRITE, memory + BYTES, own->lkey, memory + PAGE, in->mr->rkey);
        expect(&one, 1, IBV_WC_SUCCESS);
        compare(memory + PAGE, round);
    }
    if (in->copies) {
        compare_dm(in->dm, 2);
        put_dm(in->dm, 3);
        compare_dm(in->dm, 3);
    }
    ibv_unimport_dm(in->dm);
    destroy_side(&one);
    destroy_side(&two);
    destroy_side(&in->side);
}

static void import(int sock, pid_t owner_pid) {
    struct imports in = {.mr = NULL};
    struct card owner, mine = {.mr = 0};
    struct ibv_mr* own;
    char told;
    int fd;

    pair_role = "importer";
    fd = hear(sock, &pair, sizeof pair);
    hear(sock, &owner, sizeof owner);
    in.side.context = pair.context = ibv_import_device(fd);
    if (!in.side.context) die(EXIT_WRONG, "importing the device: %s", strerror(errno));
    import_objects(&in, &owner);
    make_side(&in.side);
    mine.end = endpoint_of(&in.side);
    qp_connect(&pair, in.side.qp, 77, &owner.end, &usual_rules);
    say(sock, &mine, sizeof mine, -1);
    hear(sock, &told, 1);
    play(&in.side, false, in.mr->lkey, memory + 2 * PIECE, memory + 3 * PIECE);
    if (leaving) {
        leave(&in, sock);
        return;
    }
    hear(sock, &told, 1);
    event(&in.side, IBV_EVENT_QP_ACCESS_ERR);

    kill(owner_pid, SIGKILL);
    waitpid(owner_pid, NULL, 0);
    own = ibv_reg_mr(in.side.pd, memory + BYTES, BYTES, IBV_ACCESS_LOCAL_WRITE);
    if (!own) die(EXIT_WRONG, "an MR in the imported PD: %s", strerror(errno));
    write_alone(&in, own);
    if (ibv_dereg_mr(own)) die(EXIT_WRONG, "deregistering: %s", strerror(errno));
    end_imports(&in);
}

int main(int argc, char** argv) {
    const struct option_rule rules[] = {{"leaving", OPTION_TEXT, &leaving, 0, 0}};
    int sockets[2], status;
    pid_t owner;

    pair.server = true; /* there is no other program */
    pair_options(&pair, rules, 1, argc, argv);
    memory = mmap(NULL, SHARED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets))
        die(EXIT_SETUP, "%s", strerror(errno));
    owner = fork();
    if (owner < 0) die(EXIT_SETUP, "fork: %s", strerror(errno));
    if (!owner) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(sockets[1]);
        own(sockets[0]);
        return 0;
    }
    close(sockets[0]);
    import(sockets[1], owner);
    if (leaving && (waitpid(owner, &status, 0) != owner || status))
        die(EXIT_WRONG, "the owner ended with %#x", status);
    puts("done");
    return 0;
}

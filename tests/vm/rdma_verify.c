/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verifies every byte and every completion of RDMA traffic between two processes.
 *
 *   rdma_verify --dev mana_0 --server ...          and, with the same options,
 *   rdma_verify --dev mana_0 --host 10.0.0.1 ...
 *
 * Both sides draw the same work requests from the same seed. Each has one memory region of three
 * parts: a source that never changes, an "in" part that the peer writes or sends to, and a "read"
 * part for its own READs. A model of the last two parts says what they must hold after a round of
 * work; the gaps around each message are part of the model, so a byte too many is seen as well.
 */
#include <sys/mman.h>

#include "rdma_pair.h"

enum kind { K_WRITE, K_WRITE_IMM, K_READ, K_SEND, K_SEND_IMM, K_FENCE, K_COUNT };
static const char* const kind_names[K_COUNT] = {"write", "write_imm", "read",
                                                "send",  "send_imm",  "fence"};

enum { MAX_SGES = 29, MAX_QPS = 128, MAX_OPS = 512, GAP = 130, SLACK = 65536, PAGE = 4096 };

/* Parts of the memory region. */
enum part { P_SOURCE, P_IN, P_READ, P_COUNT };

struct piece {
    uint32_t offset;
    uint32_t length;
};

struct op {
    int side; /* who posts it: 0 client, 1 server */
    enum kind kind;
    uint32_t qp;
    uint32_t length;
    bool signaled, fence, solicited;
    uint32_t imm;
    enum part from; /* local part of the gather list */
    int n_local;    /* gather list; of a READ: scatter list in the part "read" */
    struct piece local[MAX_SGES];
    struct piece remote; /* in the peer's "in"; of a READ: in the peer's source */
    int n_receive;       /* the peer's receive, in its "in" */
    struct piece receive[MAX_SGES];
    bool from_peer_source; /* a fenced WRITE sends back what the READ before it fetched */
    uint32_t origin;
};

/* One receive that a round must bring. */
struct expected_receive {
    uint64_t id;
    enum ibv_wc_opcode opcode;
    uint32_t length;
    bool with_imm;
    uint32_t imm;
};

#define RANDOM_PSN UINT32_MAX

struct options {
    uint32_t seed;
    uint32_t kinds; /* bits */
    uint32_t max, min;
    uint32_t rounds; /* of random sizes; 0: the table of sizes */
    uint32_t batch, qps, sges, list;
    uint32_t psn;
    bool both, events, one_cq, signal_all, spoil, spoil_gap;
    uint32_t align;
};

/* What both sides must have the same. */
struct hello {
    uint64_t seed;
    uint64_t address;
    uint32_t rkey;
    uint32_t kinds, max, min, rounds, batch, qps, list, flags;
    uint32_t sges;
    struct endpoint ends[MAX_QPS];
};

struct state {
    struct pair pair;
    struct options opt;
    int me;
    uint32_t sges[2];
    uint32_t part_size;
    uint8_t* base;
    uint8_t* model[P_COUNT]; /* of "in" and "read" */
    uint8_t* peer_source;
    struct ibv_pd* pd;
    struct ibv_mr* mr;
    struct ibv_comp_channel* channel;
    struct ibv_cq* send_cq;
    struct ibv_cq* receive_cq;
    struct ibv_qp* qps[MAX_QPS];
    uint64_t peer_address;
    uint32_t peer_rkey;

    uint64_t random;
    struct op ops[MAX_OPS];
    int n_ops;
    uint32_t used_in[2], used_read[2];
    struct expected_receive receives[MAX_QPS][MAX_OPS];
    int n_receives[MAX_QPS], got_receives[MAX_QPS];
    int sends[MAX_QPS][MAX_OPS]; /* ops with a completion, in order */
    int n_sends[MAX_QPS], got_sends[MAX_QPS];
    int to_come;

    uint64_t total_ops, total_bytes;
    uint32_t round;
    bool spoiled;
};

static uint8_t* part_at(struct state* s, enum part part, uint32_t offset) {
    return s->base + (size_t)part * s->part_size + offset;
}

/* -- patterns */

static void paint_source(uint8_t* at, uint32_t size, uint64_t seed, int side) {
    uint64_t state = seed * 2 + (uint64_t)side + 1;
    uint32_t i = 0;
    for (; i + 8 <= size; i += 8) {
        uint64_t word = random_next(&state);
        memcpy(at + i, &word, 8);
    }
    for (; i < size; ++i) at[i] = (uint8_t)random_next(&state);
}

/* -- drawing the work of a round, the same on both sides */

static uint32_t draw(struct state* s, uint32_t limit) {
    return random_below(&s->random, limit);
}

static uint32_t take(uint32_t* used, struct state* s, uint32_t length) {
    uint32_t at = *used + 1 + draw(s, GAP);
    *used = at + length;
    return at;
}

/* Cuts `length` into up to `limit` pieces. */
static int cut(struct state* s, uint32_t length, uint32_t limit, struct piece* pieces) {
    int count = 1;
    if (length == 0) count = (int)draw(s, 2);
    if (length > 1 && limit > 1) count = 1 + (int)draw(s, limit < length ? limit : length);
    uint32_t left = length;
    for (int i = 0; i < count; ++i) {
        uint32_t later = (uint32_t)(count - 1 - i);
        uint32_t share = later ? draw(s, 2 * (left / (later + 1)) + 1) : left;
        if (share > left) share = left;
        /* a zero-length piece among others is legal, and rare here: it needs its own luck */
        if (later && share == 0 && left > later) share = 1;
        pieces[i].length = share;
        left -= share;
    }
    return count;
}

static uint32_t receive_room(struct state* s, uint32_t length) {
    return draw(s, 2) ? length : length + draw(s, 200);
}

/* Whether an op of `length` still fits the parts that it needs. */
static bool fits(struct state* s, int side, uint32_t length) {
    uint32_t need = length + 256 + (MAX_SGES + 2) * (GAP + 1);
    return s->used_in[!side] + need <= s->part_size && s->used_read[side] + need <= s->part_size;
}

static struct op* new_op(struct state* s, int side, enum kind kind, uint32_t qp, uint32_t length) {
    struct op* op = &s->ops[s->n_ops++];
    memset(op, 0, sizeof *op);
    op->side = side;
    op->kind = kind;
    op->qp = qp;
    op->length = length;
    op->signaled = s->opt.signal_all || draw(s, 3) != 0;
    op->fence = draw(s, 4) == 0;
    op->solicited = draw(s, 4) == 0;
    op->imm = (uint32_t)random_next(&s->random);
    return op;
}

static void draw_source(struct state* s, struct op* op) {
    op->from = P_SOURCE;
    op->n_local = cut(s, op->length, s->sges[op->side], op->local);
    for (int i = 0; i < op->n_local; ++i)
        op->local[i].offset = draw(s, s->part_size - op->local[i].length + 1);
}

static void draw_read(struct state* s, struct op* op) {
    op->kind = K_READ;
    op->n_local = cut(s, op->length, s->sges[op->side], op->local);
    for (int i = 0; i < op->n_local; ++i)
        op->local[i].offset = take(&s->used_read[op->side], s, op->local[i].length);
    op->remote.length = op->length;
    op->remote.offset = draw(s, s->part_size - op->length + 1);
}

static void draw_receive(struct state* s, struct op* op) {
    int peer = !op->side;
    bool to_receive = op->kind == K_SEND || op->kind == K_SEND_IMM;
    uint32_t room = to_receive ? receive_room(s, op->length) : draw(s, 64);
    op->n_receive = cut(s, room, s->sges[peer] < 15 ? s->sges[peer] : 15, op->receive);
    for (int i = 0; i < op->n_receive; ++i)
        op->receive[i].offset = take(&s->used_in[peer], s, op->receive[i].length);
}

static void draw_remote(struct state* s, struct op* op) {
    op->remote.length = op->length;
    op->remote.offset = take(&s->used_in[!op->side], s, op->length);
}

/* Adds one op, or a READ and the fenced WRITE that depends on it. */
static void draw_op(struct state* s, int side, enum kind kind, uint32_t length) {
    uint32_t qp = draw(s, s->opt.qps);
    struct op* op = new_op(s, side, kind, qp, length);
    switch (kind) {
        case K_READ:
            draw_read(s, op);
            break;
        case K_FENCE: {
            draw_read(s, op);
            /* one place for the fetched data, so that the WRITE can send it as one piece */
            op->n_local = 1;
            op->local[0].length = length;
            op->local[0].offset = take(&s->used_read[side], s, length);
            uint32_t origin = op->remote.offset, fetched = op->local[0].offset;
            struct op* back = new_op(s, side, K_WRITE, qp, length);
            back->fence = true;
            back->from = P_READ;
            back->n_local = 1;
            back->local[0].offset = fetched;
            back->local[0].length = length;
            back->from_peer_source = true;
            back->origin = origin;
            draw_remote(s, back);
            break;
        }
        case K_WRITE_IMM:
            draw_source(s, op);
            draw_remote(s, op);
            draw_receive(s, op);
            break;
        case K_WRITE:
            draw_source(s, op);
            draw_remote(s, op);
            break;
        default:
            draw_source(s, op);
            draw_receive(s, op);
    }
}

static enum kind draw_kind(struct state* s, uint32_t kinds) {
    for (;;) {
        uint32_t kind = draw(s, K_COUNT);
        if (kinds >> kind & 1) return (enum kind)kind;
    }
}

static uint32_t draw_length(struct state* s) {
    uint32_t bits = 1;
    while (bits < 31 && 1u << bits <= s->opt.max) ++bits;
    uint32_t length = (uint32_t)random_next(&s->random) & ((1u << draw(s, bits + 1)) - 1);
    if (length < s->opt.min) length = s->opt.min;
    return length > s->opt.max ? s->opt.max : length;
}

/* `length` < 0: of any length. */
static void draw_round(struct state* s, uint32_t kinds, int64_t length) {
    s->n_ops = 0;
    memset(s->used_in, 0, sizeof s->used_in);
    memset(s->used_read, 0, sizeof s->used_read);
    for (uint32_t i = 0; i < s->opt.batch; ++i) {
        for (int side = 0; side < (s->opt.both ? 2 : 1); ++side) {
            uint32_t size = length < 0 ? draw_length(s) : (uint32_t)length;
            if (s->n_ops + 2 > MAX_OPS || !fits(s, side, 2 * size)) {
                if (s->n_ops) continue;
            }
            draw_op(s, side, draw_kind(s, kinds), size);
        }
    }
    /* the last op of each queue pair is signaled, so that its end is known */
    bool seen[2][MAX_QPS] = {{false}};
    for (int i = s->n_ops - 1; i >= 0; --i) {
        struct op* op = &s->ops[i];
        if (!seen[op->side][op->qp]) op->signaled = true;
        seen[op->side][op->qp] = true;
    }
}

/* -- what must come of it */

/* Applies an op to the model of what it changes at our side: `pieces` of `part`. */
static void apply(struct state* s, const struct op* op, enum part part, const struct piece* pieces,
                  int count) {
    const uint8_t* own = part_at(s, P_SOURCE, 0);
    const uint8_t* source = s->peer_source; /* of a READ, or of what the peer writes or sends */
    const struct piece* from = op->kind == K_READ ? &op->remote : op->local;
    struct piece fetched = {op->origin, op->length};
    int n_from = op->kind == K_READ ? 1 : op->n_local;
    if (op->from_peer_source) { /* the poster's peer is we */
        source = own;
        from = &fetched;
        n_from = 1;
    }
    int to = 0;
    uint32_t done = 0;
    for (int i = 0; i < n_from; ++i) {
        uint32_t at = 0;
        while (at < from[i].length) {
            while (to < count && done == pieces[to].length) {
                ++to;
                done = 0;
            }
            if (to == count) die(EXIT_SETUP, "the model has no room, a flaw of this program");
            uint32_t n = from[i].length - at;
            if (n > pieces[to].length - done) n = pieces[to].length - done;
            memcpy(s->model[part] + pieces[to].offset + done, source + from[i].offset + at, n);
            at += n;
            done += n;
        }
    }
}

static void repaint(struct state* s) {
    const uint32_t used[P_COUNT] = {0, s->used_in[s->me], s->used_read[s->me]};
    for (int part = P_IN; part <= P_READ; ++part) {
        uint32_t size = used[part] + 2 * GAP < s->part_size ? used[part] + 2 * GAP : s->part_size;
        uint8_t value = (uint8_t)(0x35 + 0x47 * s->round + (uint32_t)part);
        memset(s->model[part], value, size);
        memset(part_at(s, (enum part)part, 0), value, size);
    }
}

static bool takes_receive(enum kind kind) {
    return kind == K_SEND || kind == K_SEND_IMM || kind == K_WRITE_IMM;
}

static int to_sges(struct state* s, enum part part, const struct piece* pieces, int count,
                   struct ibv_sge* sges) {
    for (int i = 0; i < count; ++i)
        sges[i] = (struct ibv_sge){.addr = (uintptr_t)part_at(s, part, pieces[i].offset),
                                   .length = pieces[i].length,
                                   .lkey = s->mr->lkey};
    return count;
}

static void post_receive(struct state* s, const struct op* op) {
    struct ibv_sge sges[MAX_SGES];
    struct ibv_recv_wr* bad;
    int index = s->n_receives[op->qp]++;
    struct expected_receive* expected = &s->receives[op->qp][index];
    expected->id = (uint64_t)op->qp << 32 | (uint64_t)s->round << 16 | (uint64_t)index;
    expected->opcode = op->kind == K_WRITE_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
    expected->length = op->length;
    expected->with_imm = op->kind != K_SEND;
    expected->imm = op->imm;
    struct ibv_recv_wr wr = {.wr_id = expected->id,
                             .sg_list = sges,
                             .num_sge = to_sges(s, P_IN, op->receive, op->n_receive, sges)};
    int error = ibv_post_recv(s->qps[op->qp], &wr, &bad);
    if (error) die(EXIT_WRONG, "round %u: post_recv: %s", s->round, strerror(error));
    ++s->to_come;
}

static void expect_and_post_receives(struct state* s) {
    memset(s->n_receives, 0, sizeof s->n_receives);
    memset(s->got_receives, 0, sizeof s->got_receives);
    memset(s->n_sends, 0, sizeof s->n_sends);
    memset(s->got_sends, 0, sizeof s->got_sends);
    s->to_come = 0;
    for (int i = 0; i < s->n_ops; ++i) {
        const struct op* op = &s->ops[i];
        if (op->side == s->me) {
            if (op->kind == K_READ) apply(s, op, P_READ, op->local, op->n_local);
            continue;
        }
        if (op->kind == K_WRITE || op->kind == K_WRITE_IMM) apply(s, op, P_IN, &op->remote, 1);
        if (op->kind == K_SEND || op->kind == K_SEND_IMM)
            apply(s, op, P_IN, op->receive, op->n_receive);
        if (takes_receive(op->kind)) post_receive(s, op);
    }
}

/* -- posting */

static void fill_send(struct state* s, const struct op* op, int index, struct ibv_send_wr* wr,
                      struct ibv_sge* sges) {
    static const enum ibv_wr_opcode codes[K_COUNT] = {
        IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
        IBV_WR_SEND,       IBV_WR_SEND_WITH_IMM,       IBV_WR_RDMA_READ};
    memset(wr, 0, sizeof *wr);
    wr->wr_id = (uint64_t)s->round << 32 | (uint64_t)index;
    wr->opcode = codes[op->kind];
    wr->sg_list = sges;
    wr->num_sge = to_sges(s, op->kind == K_READ ? P_READ : op->from, op->local, op->n_local, sges);
    wr->imm_data = htonl(op->imm);
    /* a queue pair that signals all needs no flag */
    wr->send_flags = (op->signaled && !s->opt.signal_all ? IBV_SEND_SIGNALED : 0) |
                     (op->fence ? IBV_SEND_FENCE : 0) | (op->solicited ? IBV_SEND_SOLICITED : 0);
    enum part part = op->kind == K_READ ? P_SOURCE : P_IN;
    wr->wr.rdma.remote_addr = s->peer_address + (uint64_t)part * s->part_size + op->remote.offset;
    wr->wr.rdma.rkey = s->peer_rkey;
}

static void post_sends(struct state* s) {
    static struct ibv_send_wr wrs[MAX_OPS];
    static struct ibv_sge sges[MAX_OPS][MAX_SGES];
    for (uint32_t qp = 0; qp < s->opt.qps; ++qp) {
        uint32_t count = 0;
        int last = -1;
        for (int i = 0; i < s->n_ops; ++i)
            if (s->ops[i].side == s->me && s->ops[i].qp == qp) last = i;
        for (int i = 0; i <= last; ++i) {
            const struct op* op = &s->ops[i];
            if (op->side != s->me || op->qp != qp) continue;
            fill_send(s, op, i, &wrs[count], sges[count]);
            if (count) wrs[count - 1].next = &wrs[count];
            ++count;
            if (op->signaled) {
                s->sends[qp][s->n_sends[qp]++] = i;
                ++s->to_come;
            }
            if (count < s->opt.list && i != last) continue;
            struct ibv_send_wr* bad;
            int error = ibv_post_send(s->qps[qp], wrs, &bad);
            if (error) die(EXIT_WRONG, "round %u: post_send: %s", s->round, strerror(error));
            count = 0;
        }
    }
}

/* -- completions */

static uint32_t find_qp(struct state* s, uint32_t qpn) {
    for (uint32_t i = 0; i < s->opt.qps; ++i)
        if (s->qps[i]->qp_num == qpn) return i;
    die(EXIT_WRONG, "round %u: a completion of QP %#x, which is none of ours", s->round, qpn);
}

static void check_send(struct state* s, const struct ibv_wc* wc, uint32_t qp) {
    static const enum ibv_wc_opcode codes[K_COUNT] = {IBV_WC_RDMA_WRITE, IBV_WC_RDMA_WRITE,
                                                      IBV_WC_RDMA_READ,  IBV_WC_SEND,
                                                      IBV_WC_SEND,       IBV_WC_RDMA_READ};
    if (s->got_sends[qp] == s->n_sends[qp])
        die(EXIT_WRONG, "round %u: QP %u: a send completion too many: %#llx", s->round, qp,
            (unsigned long long)wc->wr_id);
    int index = s->sends[qp][s->got_sends[qp]++];
    const struct op* op = &s->ops[index];
    if (wc->wr_id != ((uint64_t)s->round << 32 | (uint64_t)index))
        die(EXIT_WRONG, "round %u: QP %u: completion %#llx out of order, expected op %d (%s)",
            s->round, qp, (unsigned long long)wc->wr_id, index, kind_names[op->kind]);
    if (wc->opcode != codes[op->kind])
        die(EXIT_WRONG, "round %u: opcode %d in the completion of a %s", s->round, wc->opcode,
            kind_names[op->kind]);
}

static void check_receive(struct state* s, const struct ibv_wc* wc, uint32_t qp) {
    if (s->got_receives[qp] == s->n_receives[qp])
        die(EXIT_WRONG, "round %u: QP %u: a receive completion too many", s->round, qp);
    const struct expected_receive* expected = &s->receives[qp][s->got_receives[qp]++];
    if (wc->wr_id != expected->id)
        die(EXIT_WRONG, "round %u: QP %u: receive %#llx out of order, expected %#llx", s->round, qp,
            (unsigned long long)wc->wr_id, (unsigned long long)expected->id);
    if (wc->opcode != expected->opcode || wc->byte_len != expected->length)
        die(EXIT_WRONG, "round %u: receive with opcode %d, %u bytes; expected %d, %u", s->round,
            wc->opcode, wc->byte_len, expected->opcode, expected->length);
    bool with_imm = wc->wc_flags & IBV_WC_WITH_IMM;
    if (with_imm != expected->with_imm)
        die(EXIT_WRONG, "round %u: receive %s immediate", s->round, with_imm ? "with" : "without");
    if (with_imm && ntohl(wc->imm_data) != expected->imm)
        die(EXIT_WRONG, "round %u: immediate %#x, expected %#x", s->round, ntohl(wc->imm_data),
            expected->imm);
}

static int poll_once(struct state* s, struct ibv_cq* cq) {
    struct ibv_wc wcs[16];
    int count = ibv_poll_cq(cq, 16, wcs);
    if (count < 0) die(EXIT_WRONG, "round %u: poll_cq failed (CQ overflow)", s->round);
    for (int i = 0; i < count; ++i) {
        const struct ibv_wc* wc = &wcs[i];
        uint32_t qp = find_qp(s, wc->qp_num);
        if (wc->status)
            die(EXIT_WRONG, "round %u: QP %u: status %d (%s), vendor %#x, wr_id %#llx", s->round,
                qp, wc->status, ibv_wc_status_str(wc->status), wc->vendor_err,
                (unsigned long long)wc->wr_id);
        if (wc->opcode & IBV_WC_RECV)
            check_receive(s, wc, qp);
        else
            check_send(s, wc, qp);
        --s->to_come;
    }
    return count;
}

static int poll_all(struct state* s) {
    int count = poll_once(s, s->send_cq);
    if (s->receive_cq != s->send_cq) count += poll_once(s, s->receive_cq);
    return count;
}

__attribute__((noreturn)) static void report_missing(struct state* s) {
    for (uint32_t qp = 0; qp < s->opt.qps; ++qp)
        if (s->got_sends[qp] < s->n_sends[qp] || s->got_receives[qp] < s->n_receives[qp]) {
            const char* next = s->got_sends[qp] < s->n_sends[qp]
                                   ? kind_names[s->ops[s->sends[qp][s->got_sends[qp]]].kind]
                                   : "none";
            fprintf(stderr, "QP %u: %d of %d sends, %d of %d receives; next send: %s\n", qp,
                    s->got_sends[qp], s->n_sends[qp], s->got_receives[qp], s->n_receives[qp], next);
        }
    die(EXIT_WRONG, "round %u: %d completions did not come within %u s", s->round, s->to_come,
        s->pair.timeout);
}

/* Sleeps until an event, a second at most. */
static void wait_event(struct state* s) {
    struct pollfd wait = {.fd = s->channel->fd, .events = POLLIN};
    struct ibv_cq* cq;
    void* context;
    if (poll(&wait, 1, 1000) <= 0) return;
    if (ibv_get_cq_event(s->channel, &cq, &context)) die(EXIT_WRONG, "get_cq_event failed");
    ibv_ack_cq_events(cq, 1);
}

static void wait_completions(struct state* s) {
    double deadline = now() + s->pair.timeout;
    while (s->to_come > 0) {
        if (poll_all(s)) continue;
        if (now() > deadline) report_missing(s);
        if (!s->opt.events) continue;
        if (ibv_req_notify_cq(s->send_cq, 0) ||
            (s->receive_cq != s->send_cq && ibv_req_notify_cq(s->receive_cq, 0)))
            die(EXIT_WRONG, "round %u: req_notify_cq failed", s->round);
        if (!poll_all(s)) wait_event(s);
    }
}

/* -- verification */

static void explain(struct state* s, int part, uint32_t offset) {
    for (int i = 0; i < s->n_ops; ++i) {
        const struct op* op = &s->ops[i];
        const struct piece* pieces = &op->remote;
        int count = 1;
        if (part == P_READ) {
            if (op->side != s->me || op->kind != K_READ) continue;
            pieces = op->local;
            count = op->n_local;
        } else if (op->side == s->me || op->kind == K_READ) {
            continue;
        } else if (op->kind == K_SEND || op->kind == K_SEND_IMM) {
            pieces = op->receive;
            count = op->n_receive;
        }
        for (int j = 0; j < count; ++j)
            if (offset >= pieces[j].offset && offset - pieces[j].offset < pieces[j].length)
                fprintf(stderr, "byte %u of piece %d of %d of op %d (%s, %u bytes, QP %u)\n",
                        offset - pieces[j].offset, j, count, i, kind_names[op->kind], op->length,
                        op->qp);
    }
}

static void verify(struct state* s, enum part part, uint32_t size) {
    const uint8_t* memory = part_at(s, part, 0);
    if (!memcmp(memory, s->model[part], size)) return;
    uint32_t first = 0, wrong = 0;
    for (uint32_t i = size; i-- > 0;)
        if (memory[i] != s->model[part][i]) {
            first = i;
            ++wrong;
        }
    explain(s, part, first);
    die(EXIT_WRONG, "mismatch: round %u: %u bytes of part %s differ, the first at %u: %#x, not %#x",
        s->round, wrong, part == P_IN ? "in" : "read", first, memory[first], s->model[part][first]);
}

/* Proves that a wrong byte is seen. */
static void spoil(struct state* s) {
    uint32_t used = s->used_in[s->me];
    enum part part = P_IN;
    if (!used) {
        used = s->used_read[s->me];
        part = P_READ;
    }
    if (!used || s->spoiled || !(s->opt.spoil || s->opt.spoil_gap)) return;
    uint64_t luck = s->opt.seed ^ s->round;
    uint32_t at = s->opt.spoil_gap ? used : random_below(&luck, used);
    part_at(s, part, at)[0] ^= 0x10;
    s->spoiled = true;
}

static uint32_t checked_size(const struct state* s, uint32_t used) {
    return used + 2 * GAP < s->part_size ? used + 2 * GAP : s->part_size;
}

static void run_round(struct state* s, uint32_t kinds, int64_t length) {
    draw_round(s, kinds, length);
    repaint(s);
    expect_and_post_receives(s);
    pair_sync(&s->pair, s->round << 2 | 1);
    post_sends(s);
    wait_completions(s);
    pair_sync(&s->pair, s->round << 2 | 2);
    if (poll_all(s)) die(EXIT_WRONG, "round %u: completions too many", s->round);
    spoil(s);
    verify(s, P_IN, checked_size(s, s->used_in[s->me]));
    verify(s, P_READ, checked_size(s, s->used_read[s->me]));
    for (int i = 0; i < s->n_ops; ++i)
        if (s->ops[i].side == s->me) s->total_bytes += s->ops[i].length;
    s->total_ops += (uint64_t)s->n_ops;
    ++s->round;
}

static void final_check(struct state* s) {
    uint8_t* source = malloc(s->part_size);
    if (!source) die(EXIT_SETUP, "no memory");
    paint_source(source, s->part_size, s->opt.seed, s->me);
    if (memcmp(source, part_at(s, P_SOURCE, 0), s->part_size))
        die(EXIT_WRONG, "mismatch: the source changed");
    free(source);
    verify(s, P_IN, s->part_size);
    verify(s, P_READ, s->part_size);
}

/* All kinds at all edges. */
static void run_table(struct state* s) {
    uint32_t mtu = 128u << s->pair.path_mtu;
    const uint32_t sizes[] = {0,
                              1,
                              2,
                              3,
                              4,
                              5,
                              7,
                              8,
                              9,
                              15,
                              16,
                              17,
                              31,
                              32,
                              33,
                              63,
                              64,
                              65,
                              255,
                              256,
                              257,
                              mtu - 1,
                              mtu,
                              mtu + 1,
                              2 * mtu - 1,
                              2 * mtu,
                              2 * mtu + 1,
                              4095,
                              4096,
                              4097,
                              65535,
                              65536,
                              65537,
                              (1u << 20) - 1,
                              1u << 20,
                              (1u << 20) + 1,
                              (8u << 20) - 1,
                              8u << 20};
    for (unsigned kind = 0; kind < K_COUNT; ++kind) {
        if (!(s->opt.kinds >> kind & 1)) continue;
        for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; ++i)
            if (sizes[i] <= s->opt.max && sizes[i] >= s->opt.min)
                run_round(s, 1u << kind, sizes[i]);
    }
}

/* -- set-up */

static void make_memory(struct state* s) {
    size_t size = (size_t)s->part_size * P_COUNT + 2 * PAGE;
    uint8_t* memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) die(EXIT_SETUP, "no memory");
    s->base = memory + s->opt.align;
    s->peer_source = malloc(s->part_size);
    s->model[P_IN] = calloc(1, s->part_size);
    s->model[P_READ] = calloc(1, s->part_size);
    if (!s->peer_source || !s->model[P_IN] || !s->model[P_READ]) die(EXIT_SETUP, "no memory");
    paint_source(part_at(s, P_SOURCE, 0), s->part_size, s->opt.seed, s->me);
    paint_source(s->peer_source, s->part_size, s->opt.seed, !s->me);
    s->mr = ibv_reg_mr(s->pd, s->base, (size_t)s->part_size * P_COUNT,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    if (!s->mr) die(EXIT_WRONG, "reg_mr of %u bytes: %s", s->part_size * P_COUNT, strerror(errno));
}

static void make_objects(struct state* s) {
    struct ibv_context* context = s->pair.context;
    uint32_t depth = 2 * s->opt.batch < 16 ? 16 : 2 * s->opt.batch;
    /* every request of a round may fall on one queue pair; completions on one queue */
    int cqe = (int)(s->opt.batch * 8 + s->opt.qps * 2 + 64);
    s->pd = ibv_alloc_pd(context);
    s->channel = s->opt.events ? ibv_create_comp_channel(context) : NULL;
    s->send_cq = ibv_create_cq(context, cqe, NULL, s->channel, 0);
    s->receive_cq = s->opt.one_cq ? s->send_cq : ibv_create_cq(context, cqe, NULL, s->channel, 0);
    if (!s->pd || !s->send_cq || !s->receive_cq || (s->opt.events && !s->channel))
        die(EXIT_WRONG, "creating PD and CQs: %s", strerror(errno));
    make_memory(s);
    for (uint32_t i = 0; i < s->opt.qps; ++i) {
        uint32_t sges = s->opt.sges;
        struct ibv_qp_init_attr attr = {.send_cq = s->send_cq,
                                        .recv_cq = s->receive_cq,
                                        .cap = {.max_send_wr = depth,
                                                .max_recv_wr = depth,
                                                .max_send_sge = sges,
                                                .max_recv_sge = sges < 15 ? sges : 15},
                                        .qp_type = IBV_QPT_RC,
                                        .sq_sig_all = s->opt.signal_all};
        s->qps[i] = ibv_create_qp(s->pd, &attr);
        if (!s->qps[i]) die(EXIT_WRONG, "creating QP %u: %s", i, strerror(errno));
        qp_init(s->qps[i], IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    }
}

static void meet(struct state* s) {
    static struct hello mine, theirs;
    const struct options* opt = &s->opt;
    uint64_t psns = opt->seed ^ 0x9d2c5680 ^ (uint64_t)s->me;
    mine = (struct hello){.seed = opt->seed,
                          .address = (uintptr_t)s->base,
                          .rkey = s->mr->rkey,
                          .kinds = opt->kinds,
                          .max = opt->max,
                          .min = opt->min,
                          .rounds = opt->rounds,
                          .batch = opt->batch,
                          .qps = opt->qps,
                          .list = opt->list,
                          .flags = opt->both | (uint32_t)opt->signal_all << 1,
                          .sges = opt->sges};
    for (uint32_t i = 0; i < opt->qps; ++i) {
        mine.ends[i].qpn = s->qps[i]->qp_num;
        mine.ends[i].psn =
            opt->psn != RANDOM_PSN ? opt->psn : (uint32_t)random_next(&psns) & 0xffffff;
        mine.ends[i].gid = s->pair.gid;
    }
    pair_exchange(&s->pair, &mine, &theirs, sizeof mine);
    if (mine.seed != theirs.seed || mine.kinds != theirs.kinds || mine.max != theirs.max ||
        mine.min != theirs.min || mine.rounds != theirs.rounds || mine.batch != theirs.batch ||
        mine.qps != theirs.qps || mine.flags != theirs.flags)
        die(EXIT_SETUP, "the peer was started with other options");
    s->peer_address = theirs.address;
    s->peer_rkey = theirs.rkey;
    s->sges[s->me] = mine.sges;
    s->sges[!s->me] = theirs.sges;
    for (uint32_t i = 0; i < opt->qps; ++i)
        qp_connect(&s->pair, s->qps[i], mine.ends[i].psn, &theirs.ends[i], &usual_rules);
    pair_sync(&s->pair, 0xc0);
}

static void clean_up(struct state* s) {
    int error = 0;
    for (uint32_t i = 0; i < s->opt.qps; ++i) error |= ibv_destroy_qp(s->qps[i]);
    error |= ibv_dereg_mr(s->mr);
    error |= ibv_destroy_cq(s->send_cq);
    if (s->receive_cq != s->send_cq) error |= ibv_destroy_cq(s->receive_cq);
    if (s->channel) error |= ibv_destroy_comp_channel(s->channel);
    error |= ibv_dealloc_pd(s->pd);
    error |= ibv_close_device(s->pair.context);
    if (error) die(EXIT_WRONG, "clean-up: %s", strerror(error));
}

/* -- options */

static uint32_t parse_kinds(const char* text) {
    uint32_t kinds = 0;
    while (*text) {
        size_t length = strcspn(text, ",");
        int kind = 0;
        while (kind < K_COUNT &&
               (strncmp(text, kind_names[kind], length) || kind_names[kind][length]))
            ++kind;
        if (kind == K_COUNT) die(EXIT_SETUP, "no such operation: %s", text);
        kinds |= 1u << kind;
        text += length + (text[length] == ',');
    }
    return kinds;
}

static void parse_options(struct state* s, int argc, char** argv) {
    struct options* opt = &s->opt;
    const char* kinds = NULL;
    const struct option_rule own[] = {
        {"seed", OPTION_NUMBER, &opt->seed, 0, UINT32_MAX},
        {"ops", OPTION_TEXT, &kinds, 0, 0},
        {"max", OPTION_NUMBER, &opt->max, 0, 64u << 20},
        {"min", OPTION_NUMBER, &opt->min, 0, 64u << 20},
        {"rounds", OPTION_NUMBER, &opt->rounds, 0, 1000000},
        {"batch", OPTION_NUMBER, &opt->batch, 1, MAX_OPS / 4},
        {"qps", OPTION_NUMBER, &opt->qps, 1, MAX_QPS},
        {"sges", OPTION_NUMBER, &opt->sges, 1, MAX_SGES},
        {"list", OPTION_NUMBER, &opt->list, 1, MAX_OPS},
        {"psn", OPTION_NUMBER, &opt->psn, 0, 0xffffff},
        {"align", OPTION_NUMBER, &opt->align, 0, PAGE},
        {"both", OPTION_FLAG, &opt->both, 0, 0},
        {"events", OPTION_FLAG, &opt->events, 0, 0},
        {"one-cq", OPTION_FLAG, &opt->one_cq, 0, 0},
        {"signal-all", OPTION_FLAG, &opt->signal_all, 0, 0},
        {"spoil", OPTION_FLAG, &opt->spoil, 0, 0},
        {"spoil-gap", OPTION_FLAG, &opt->spoil_gap, 0, 0},
    };
    s->pair = (struct pair){
        .dev = "mana_0", .port = 19000, .family = 4, .gid_index = ANY_GID, .timeout = 60};
    *opt = (struct options){.seed = 1,
                            .kinds = (1u << K_COUNT) - 1,
                            .max = 8u << 20,
                            .batch = 4,
                            .qps = 1,
                            .sges = 1,
                            .list = 1,
                            .psn = RANDOM_PSN};
    pair_options(&s->pair, own, sizeof own / sizeof own[0], argc, argv);
    if (kinds) opt->kinds = parse_kinds(kinds);
    if (opt->min > opt->max || !opt->kinds) die(EXIT_SETUP, "nothing to do");
}

int main(int argc, char** argv) {
    struct state* s = calloc(1, sizeof *s);
    if (!s) die(EXIT_SETUP, "no memory");
    parse_options(s, argc, argv);
    s->me = s->pair.server;
    s->random = s->opt.seed;
    s->part_size = 2 * s->opt.max + SLACK;
    pair_connect(&s->pair);
    pair_open(&s->pair);
    make_objects(s);
    meet(s);
    if (s->opt.rounds)
        for (uint32_t i = 0; i < s->opt.rounds; ++i) run_round(s, s->opt.kinds, -1);
    else
        run_table(s);
    final_check(s);
    pair_sync(&s->pair, 0xe0);
    clean_up(s);
    printf("verified: rounds=%u ops=%llu bytes=%llu mtu=%d qps=%u\n", s->round,
           (unsigned long long)s->total_ops, (unsigned long long)s->total_bytes,
           128 << s->pair.path_mtu, s->opt.qps);
    if (s->opt.spoil || s->opt.spoil_gap) die(EXIT_WRONG, "the spoilt byte was not seen");
    return 0;
}

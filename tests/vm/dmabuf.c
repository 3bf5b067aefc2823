/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory regions on dma-bufs: written, read and sent from by RDMA, every byte compared by another
 * mapping of the same pages.
 *
 *   dmabuf --dev mana_0 --kind KIND --server ...          and, with the same options,
 *   dmabuf --dev mana_0 --kind KIND --host 10.0.0.1 ...
 *
 * The server's buffer is a dma-buf of KIND: udmabuf (pages of a memfd), shuffled (the same, page by
 * page in another order) or heap (/dev/dma_heap/system). The client's is ordinary memory. The file
 * descriptor is closed as soon as the regions exist. In the end the server takes one region away,
 * and the client's next WRITE has to fail.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "rdma_pair.h"

enum { PAGE = 4096, PAGES = 512, BYTES = PAGES * PAGE, ROUNDS = 3 };
/* The second region: some pages and a piece, from the middle. */
enum { PART_OFFSET = 3 * PAGE + 512, PART_BYTES = 21 * PAGE + 77 };

#define WHOLE_IOVA 0x700000000000ULL
#define PART_IOVA (0x123000ULL + PART_OFFSET % PAGE)
#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* What one side tells the other. */
struct card {
    struct endpoint end;
    uint64_t address[2];
    uint32_t rkey[2];
};

/* A dma-buf and where its pages are seen by the CPU. */
struct buffer {
    int fd;
    uint8_t* view;
    uint32_t order[PAGES];
    bool synced; /* CPU accesses are announced to the exporter */
};

static struct pair pair = {.family = 4, .gid_index = ANY_GID, .timeout = 30, .port = 18600};
static const char* kind = "udmabuf";
static struct ibv_pd* pd;
static struct ibv_cq* cq;
static struct ibv_qp* qp;

static uint8_t pattern(uint32_t round, uint32_t offset) {
    return (uint8_t)(round * 91 + offset * 13 + offset / PAGE * 57 + 1);
}

static int make_memfd(void) {
    int fd = memfd_create("dmabuf", MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, BYTES) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK))
        die(EXIT_SETUP, "memfd: %s", strerror(errno));
    return fd;
}

static void make_udmabuf(struct buffer* buffer, int memfd, bool shuffled) {
    struct udmabuf_create_list* list = calloc(1, sizeof *list + PAGES * sizeof list->list[0]);
    struct udmabuf_create whole = {.memfd = (uint32_t)memfd, .size = BYTES};
    uint64_t random = 42;
    int device = open("/dev/udmabuf", O_RDWR);
    if (device < 0) die(EXIT_SETUP, "/dev/udmabuf: %s", strerror(errno));
    for (uint32_t i = 0; i < PAGES; ++i) buffer->order[i] = i;
    for (uint32_t i = PAGES - 1; shuffled && i; --i) {
        uint32_t other = random_below(&random, i + 1), kept = buffer->order[i];
        buffer->order[i] = buffer->order[other];
        buffer->order[other] = kept;
    }
    list->count = PAGES;
    for (uint32_t i = 0; i < PAGES; ++i) {
        list->list[i].memfd = (uint32_t)memfd;
        list->list[i].offset = (uint64_t)buffer->order[i] * PAGE;
        list->list[i].size = PAGE;
    }
    buffer->fd =
        shuffled ? ioctl(device, UDMABUF_CREATE_LIST, list) : ioctl(device, UDMABUF_CREATE, &whole);
    if (buffer->fd < 0) die(EXIT_SETUP, "udmabuf: %s", strerror(errno));
    buffer->view = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    close(device);
    free(list);
}

static void make_heap(struct buffer* buffer) {
    struct dma_heap_allocation_data data = {.len = BYTES, .fd_flags = O_RDWR | O_CLOEXEC};
    int device = open("/dev/dma_heap/system", O_RDWR);
    if (device < 0 || ioctl(device, DMA_HEAP_IOCTL_ALLOC, &data))
        die(EXIT_SETUP, "/dev/dma_heap/system: %s", strerror(errno));
    close(device);
    for (uint32_t i = 0; i < PAGES; ++i) buffer->order[i] = i;
    buffer->fd = (int)data.fd;
    buffer->view = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, buffer->fd, 0);
    buffer->synced = true;
}

static uint8_t* byte_at(const struct buffer* buffer, uint32_t offset) {
    return buffer->view + (size_t)buffer->order[offset / PAGE] * PAGE + offset % PAGE;
}

static void sync_cpu(const struct buffer* buffer, uint64_t flags) {
    struct dma_buf_sync sync = {.flags = flags | DMA_BUF_SYNC_RW};
    if (buffer->synced && ioctl(buffer->fd, DMA_BUF_IOCTL_SYNC, &sync))
        die(EXIT_SETUP, "sync: %s", strerror(errno));
}

static void fill(struct buffer* buffer, uint32_t round) {
    sync_cpu(buffer, DMA_BUF_SYNC_START);
    for (uint32_t i = 0; i < BYTES; ++i) *byte_at(buffer, i) = pattern(round, i);
    sync_cpu(buffer, DMA_BUF_SYNC_END);
}

/* The buffer holds the pattern of a round; in the range that of another one. */
static void compare(struct buffer* buffer, uint32_t round, uint32_t from, uint32_t length,
                    uint32_t other) {
    sync_cpu(buffer, DMA_BUF_SYNC_START);
    for (uint32_t i = 0; i < BYTES; ++i) {
        uint8_t want = i >= from && i - from < length ? pattern(other, i) : pattern(round, i);
        if (*byte_at(buffer, i) != want)
            die(EXIT_WRONG, "round %u: byte %u is %#x instead of %#x", round, i,
                *byte_at(buffer, i), want);
    }
    sync_cpu(buffer, DMA_BUF_SYNC_END);
}

static enum ibv_wc_status finish(void) {
    struct ibv_wc wc;
    for (double deadline = now() + pair.timeout;;) {
        int got = ibv_poll_cq(cq, 1, &wc);
        if (got < 0) die(EXIT_WRONG, "poll");
        if (got) return wc.status;
        if (now() > deadline) {
            struct ibv_qp_init_attr init;
            struct ibv_qp_attr attr = {0};
            ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN, &init);
            die(EXIT_WRONG, "no completion; the queue pair is in state %d at PSN %u", attr.qp_state,
                attr.sq_psn);
        }
    }
}

static enum ibv_wc_status transfer(enum ibv_wr_opcode opcode, uint64_t local, uint32_t lkey,
                                   uint64_t remote, uint32_t rkey, uint32_t length) {
    struct ibv_sge sge = {.addr = local, .length = length, .lkey = lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {.remote_addr = remote, .rkey = rkey}},
                       *bad;
    int error = ibv_post_send(qp, &wr, &bad);
    if (error) die(EXIT_WRONG, "post: %s", strerror(error));
    return finish();
}

/* In pieces of all sizes. */
static void move(enum ibv_wr_opcode opcode, uint64_t local, uint32_t lkey, uint64_t remote,
                 uint32_t rkey, uint32_t length) {
    uint64_t random = 7;
    for (uint32_t done = 0, piece; done < length; done += piece) {
        piece = 1 + random_below(&random, 100000);
        if (piece > length - done) piece = length - done;
        enum ibv_wc_status status =
            transfer(opcode, local + done, lkey, remote + done, rkey, piece);
        if (status) die(EXIT_WRONG, "opcode %d at %u: %s", opcode, done, ibv_wc_status_str(status));
    }
}

/* A registration that must fail, in a way that the verbs' user understands. */
static void refuse(const char* what, uint64_t offset, size_t length, int fd, int access,
                   int wanted) {
    errno = 0;
    struct ibv_mr* mr = ibv_reg_dmabuf_mr(pd, offset, length, offset % PAGE, fd, access);
    if (mr) die(EXIT_WRONG, "%s was registered", what);
    if (errno != wanted)
        die(EXIT_WRONG, "%s: %s instead of %s", what, strerror(errno), strerror(wanted));
}

static struct ibv_mr* reg(struct buffer* buffer, uint64_t offset, size_t length, uint64_t iova) {
    struct ibv_mr* mr = ibv_reg_dmabuf_mr(pd, offset, length, iova, buffer->fd, RIGHTS);
    if (!mr) die(EXIT_WRONG, "registration of %zu bytes: %s", length, strerror(errno));
    return mr;
}

static void set_up(struct card* mine, struct card* theirs) {
    struct ibv_qp_init_attr attr = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC};
    qp = ibv_create_qp(pd, &attr);
    if (!qp) die(EXIT_SETUP, "queue pair: %s", strerror(errno));
    qp_init(qp, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    mine->end = (struct endpoint){.qpn = qp->qp_num, .psn = 77, .gid = pair.gid};
    pair_exchange(&pair, mine, theirs, sizeof *mine);
    qp_connect(&pair, qp, 77, &theirs->end, &usual_rules);
    pair_sync(&pair, 1);
}

static void serve(void) {
    struct buffer buffer = {0};
    struct card mine = {0}, theirs;
    int memfd = make_memfd();
    if (!strcmp(kind, "heap"))
        make_heap(&buffer);
    else
        make_udmabuf(&buffer, memfd, !strcmp(kind, "shuffled"));
    if (buffer.view == MAP_FAILED) die(EXIT_SETUP, "mmap: %s", strerror(errno));

    refuse("a closed descriptor", 0, PAGE, 1000, RIGHTS, EBADF);
    refuse("a memfd", 0, PAGE, memfd, RIGHTS, EINVAL);
    refuse("more than there is", 0, BYTES + 1, buffer.fd, RIGHTS, EINVAL);
    refuse("what begins at the end", BYTES, 1, buffer.fd, RIGHTS, EINVAL);
    refuse("an offset that wraps", ~0ULL - PAGE + 1, 2 * PAGE, buffer.fd, RIGHTS, EINVAL);
    refuse("remote writes without local ones", 0, PAGE, buffer.fd, IBV_ACCESS_REMOTE_WRITE, EINVAL);

    struct ibv_mr* whole = reg(&buffer, 0, BYTES, WHOLE_IOVA);
    struct ibv_mr* part = reg(&buffer, PART_OFFSET, PART_BYTES, PART_IOVA);
    if (!buffer.synced) close(buffer.fd); /* the regions hold the pages */
    mine.address[0] = WHOLE_IOVA;
    mine.rkey[0] = whole->rkey;
    mine.address[1] = PART_IOVA;
    mine.rkey[1] = part->rkey;
    fill(&buffer, 0);
    set_up(&mine, &theirs);
    for (uint32_t round = 1; round <= ROUNDS; ++round) {
        pair_sync(&pair, 0x100 + round); /* written as a whole, then a part of it */
        compare(&buffer, round, PART_OFFSET, PART_BYTES, round + 100);
        fill(&buffer, round + 50);
        pair_sync(&pair, 0x200 + round); /* the client reads */
        pair_sync(&pair, 0x300 + round); /* and is written to */
        move(IBV_WR_RDMA_WRITE, WHOLE_IOVA, whole->lkey, theirs.address[0], theirs.rkey[0], BYTES);
        pair_sync(&pair, 0x400 + round);
    }
    if (ibv_dereg_mr(whole)) die(EXIT_WRONG, "deregistration: %s", strerror(errno));
    pair_sync(&pair, 2);
    pair_sync(&pair, 3);
    /* The other region lives on, and nothing was written. */
    compare(&buffer, ROUNDS + 50, 0, 0, 0);
    if (ibv_destroy_qp(qp) || ibv_dereg_mr(part)) die(EXIT_WRONG, "the end: %s", strerror(errno));
    printf("%s: %d rounds of %d bytes\n", kind, ROUNDS, BYTES);
}

static void drive(void) {
    uint8_t* memory = aligned_alloc(PAGE, BYTES);
    struct card mine = {0}, theirs;
    struct ibv_mr* mr = memory ? ibv_reg_mr(pd, memory, BYTES, RIGHTS) : NULL;
    if (!mr) die(EXIT_SETUP, "memory region: %s", strerror(errno));
    mine.address[0] = (uintptr_t)memory;
    mine.rkey[0] = mr->rkey;
    set_up(&mine, &theirs);
    for (uint32_t round = 1; round <= ROUNDS; ++round) {
        for (uint32_t i = 0; i < BYTES; ++i) memory[i] = pattern(round, i);
        move(IBV_WR_RDMA_WRITE, (uintptr_t)memory, mr->lkey, theirs.address[0], theirs.rkey[0],
             BYTES);
        for (uint32_t i = 0; i < PART_BYTES; ++i) memory[i] = pattern(round + 100, PART_OFFSET + i);
        move(IBV_WR_RDMA_WRITE, (uintptr_t)memory, mr->lkey, theirs.address[1], theirs.rkey[1],
             PART_BYTES);
        pair_sync(&pair, 0x100 + round);
        pair_sync(&pair, 0x200 + round);
        for (int way = 0; way < 2; ++way) {
            if (way == 0)
                move(IBV_WR_RDMA_READ, (uintptr_t)memory, mr->lkey, theirs.address[0],
                     theirs.rkey[0], BYTES);
            else
                pair_sync(&pair, 0x400 + round);
            for (uint32_t i = 0; i < BYTES; ++i)
                if (memory[i] != pattern(round + 50, i))
                    die(EXIT_WRONG, "%s: byte %u is %#x", way ? "written" : "read", i, memory[i]);
            memset(memory, 0, BYTES);
            if (way == 0) pair_sync(&pair, 0x300 + round);
        }
    }
    pair_sync(&pair, 2);
    enum ibv_wc_status status = transfer(IBV_WR_RDMA_WRITE, (uintptr_t)memory, mr->lkey,
                                         theirs.address[0], theirs.rkey[0], PAGE);
    if (status != IBV_WC_REM_ACCESS_ERR)
        die(EXIT_WRONG, "a write to a region that is gone: %s", ibv_wc_status_str(status));
    pair_sync(&pair, 3);
    if (ibv_destroy_qp(qp) || ibv_dereg_mr(mr)) die(EXIT_WRONG, "the end: %s", strerror(errno));
}

int main(int argc, char** argv) {
    const struct option_rule own[] = {{"kind", OPTION_TEXT, &kind, 0, 0}};
    pair_options(&pair, own, 1, argc, argv);
    pair_connect(&pair);
    pair_open(&pair);
    pd = ibv_alloc_pd(pair.context);
    cq = pd ? ibv_create_cq(pair.context, 16, NULL, NULL, 0) : NULL;
    if (!cq) die(EXIT_SETUP, "objects: %s", strerror(errno));
    if (pair.server)
        serve();
    else
        drive();
    if (ibv_destroy_cq(cq) || ibv_dealloc_pd(pd) || ibv_close_device(pair.context))
        die(EXIT_WRONG, "the end: %s", strerror(errno));
    return 0;
}

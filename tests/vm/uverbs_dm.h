/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPENMANA_UVERBS_DM_H
#define OPENMANA_UVERBS_DM_H

/* Known cases: device memory, and copies to and from it. */
#include "uverbs_shared.h"

enum { DM_BYTES = 1 << 20 }; /* as much as there is at once */

/* `with`: bytes, and the logarithm of the alignment. */
static int new_dm(struct worker* w, const struct trial* t) {
    uint64_t bytes = t->with[0];
    uint32_t alignment = (uint32_t)t->with[1];
    struct method m;

    begin(&m, UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC);
    add_handle(&m, UVERBS_ATTR_ALLOC_DM_HANDLE, 0);
    add_in(&m, UVERBS_ATTR_ALLOC_DM_LENGTH, &bytes, sizeof bytes);
    add_in(&m, UVERBS_ATTR_ALLOC_DM_ALIGNMENT, &alignment, sizeof alignment);
    return by_method(w, &m);
}

static int make_dm(struct worker* w, uint64_t bytes, uint32_t* handle) {
    uint32_t alignment = 0;
    struct ib_uverbs_attr* attr;
    struct method m;
    int err;

    w->spoilt = false;
    begin(&m, UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC);
    attr = add_handle(&m, UVERBS_ATTR_ALLOC_DM_HANDLE, 0);
    add_in(&m, UVERBS_ATTR_ALLOC_DM_LENGTH, &bytes, sizeof bytes);
    add_in(&m, UVERBS_ATTR_ALLOC_DM_ALIGNMENT, &alignment, sizeof alignment);
    err = by_method(w, &m);
    *handle = (uint32_t)attr->data;
    return err;
}

/* Memory of ours, filled or zero. */
static uint8_t* plain_memory(size_t bytes, uint32_t seed) {
    uint8_t* at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED) exit(2);
    for (size_t i = 0; seed && i < bytes; i++)
        at[i] = (uint8_t)(i * 31 + (i >> 8) * 7 + (i >> 16) * 101 + seed);
    return at;
}

static int put_dm(struct worker* w, uint32_t dm, uint64_t offset, const void* from, size_t bytes) {
    return copy_dm(w, dm, offset, (uintptr_t)from, bytes, MANA_UAPI_COPY_TO_DM);
}

static int get_dm(struct worker* w, uint32_t dm, uint64_t offset, void* to, size_t bytes) {
    return copy_dm(w, dm, offset, (uintptr_t)to, bytes, MANA_UAPI_COPY_FROM_DM);
}

/* All of it at once, and bytes of it alone. */
static int dm_copied(struct worker* w, const struct trial* t) {
    static const size_t lengths[] = {1, 2, 3, 4095, 4097, 65535, 65536, 65537, 131073, 500000};
    uint8_t* to = plain_memory(DM_BYTES + PAGE, 0);
    uint8_t* from = plain_memory(DM_BYTES, 1);
    uint32_t dm;
    int err = make_dm(w, DM_BYTES, &dm);

    (void)t;
    if (err) return err;
    err = get_dm(w, dm, 0, to, DM_BYTES);
    for (size_t i = 0; i < DM_BYTES && !err; i++)
        if (to[i]) err = EUCLEAN; /* of somebody before us */
    if (!err) err = put_dm(w, dm, 0, from, DM_BYTES);
    if (!err) err = get_dm(w, dm, 0, to + 5, DM_BYTES);
    if (!err && (memcmp(to + 5, from, DM_BYTES) || to[4] || to[5 + DM_BYTES])) err = EUCLEAN;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths && !err; i++) {
        size_t bytes = lengths[i], offset = i % 2 ? DM_BYTES - bytes : 7 * i + 1;

        for (size_t k = 0; k < bytes; k++) from[offset + k] ^= 0x5a;
        err = put_dm(w, dm, offset, from + offset, bytes);
        memset(to, 0, DM_BYTES + PAGE);
        if (!err) err = get_dm(w, dm, offset, to + 1, bytes);
        if (!err && (memcmp(to + 1, from + offset, bytes) || to[0] || to[1 + bytes])) err = EUCLEAN;
        if (!err) err = get_dm(w, dm, 0, to, DM_BYTES);
        if (!err && memcmp(to, from, DM_BYTES)) err = EUCLEAN;
    }
    munmap(to, DM_BYTES + PAGE);
    munmap(from, DM_BYTES);
    return destroy(w, K_DM, dm) ? EPROTO : err;
}

/* Large, and the memory ends in the middle. */
static int dm_copy_half(struct worker* w, const struct trial* t) {
    uint8_t* from = plain_memory(DM_BYTES, 3);
    uint32_t dm;
    int err = make_dm(w, DM_BYTES, &dm);

    (void)t;
    if (err) return EPROTO;
    munmap(from + DM_BYTES / 2, DM_BYTES / 2);
    err = put_dm(w, dm, 0, from, DM_BYTES);
    munmap(from, DM_BYTES / 2);
    return destroy(w, K_DM, dm) ? EPROTO : err;
}

static int dm_copy_freed(struct worker* w, const struct trial* t) {
    uint32_t dm;

    (void)t;
    if (make_dm(w, 100, &dm) || destroy(w, K_DM, dm)) return EPROTO;
    return get_dm(w, dm, 0, w->process->arena, 4);
}

/* Through another context of the device. */
static int dm_copy_other(struct worker* w, const struct trial* t) {
    static struct process another;
    struct worker there = *w;
    uint32_t dm;
    char path[32];
    int err;

    (void)t;
    if (make_dm(w, 64, &dm)) return EPROTO;
    snprintf(path, sizeof path, "/proc/self/fd/%d", w->process->fd);
    another.fd = open(path, O_RDWR | O_CLOEXEC);
    there.process = &another;
    err = another.fd < 0 || get_context(&there) ? EPROTO
                                                : get_dm(&there, dm, 0, w->process->arena, 4);
    close(another.fd);
    close(another.async_fd);
    return destroy(w, K_DM, dm) ? EPROTO : err;
}

/* Several processes, each with a part of one memory, of uneven size. */
static int dm_copy_processes(struct worker* w, const struct trial* t) {
    enum { PROCESSES = 4, PART = 150001, ROUNDS = 20 };
    pid_t children[PROCESSES];
    uint32_t dm;
    int status, err = make_dm(w, PROCESSES * PART, &dm);

    (void)t;
    if (err) return err;
    for (uint32_t number = 0; number < PROCESSES; number++) {
        children[number] = fork();
        if (children[number]) continue;
        uint8_t* to = plain_memory(PART, 0);
        for (uint32_t round = 0; round < ROUNDS && !err; round++) {
            uint8_t* from = plain_memory(PART, number * ROUNDS + round + 1);
            err = put_dm(w, dm, number * PART, from, PART);
            if (!err) err = get_dm(w, dm, number * PART, to, PART);
            if (!err && memcmp(from, to, PART)) err = EUCLEAN;
            munmap(from, PART);
        }
        _exit(err);
    }
    for (uint32_t number = 0; number < PROCESSES; number++) {
        if (children[number] < 0 || waitpid(children[number], &status, 0) < 0) err = EPROTO;
        if (!err && status) err = WIFEXITED(status) ? WEXITSTATUS(status) : EPROTO;
    }
    return destroy(w, K_DM, dm) ? EPROTO : err;
}

/* One copy of memory of 100 bytes. `with`: offset, address, bytes, direction. */
static int copy_of_new(struct worker* w, const struct trial* t) {
    uint32_t dm;
    int err = make_dm(w, 100, &dm);

    if (err) return EPROTO;
    err = copy_dm(w, dm, t->with[0], t->with[1], t->with[2], (uint32_t)t->with[3]);
    return destroy(w, K_DM, dm) ? EPROTO : err;
}

/* `with`: the handle. */
static int copy_to(struct worker* w, const struct trial* t) {
    w->spoilt = false;
    return put_dm(w, (uint32_t)t->with[0], 0, w->process->arena, 4);
}

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * What librspreload, which makes rsockets of sockets, does not know of a program's calls, on top of
 * what it knows: epoll by poll(), accept4(), fcntl64(), and socket() with flags. To be preloaded
 * before it. Level-triggered, as redis wants it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define SETS 64
#define MEMBERS 1024

struct set {
    int fd; /* /dev/null, so that the number is nobody else's */
    int count;
    struct pollfd polled[MEMBERS];
    epoll_data_t data[MEMBERS];
};

static struct set* sets[SETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct set* find(int fd) {
    for (int i = 0; i < SETS; i++)
        if (sets[i] && sets[i]->fd == fd) return sets[i];
    return NULL;
}

static int member(const struct set* set, int fd) {
    for (int i = 0; i < set->count; i++)
        if (set->polled[i].fd == fd) return i;
    return -1;
}

int epoll_create1(int flags) {
    struct set* set = calloc(1, sizeof(*set));
    int fd = -1;

    if (!set) return -1;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < SETS && fd < 0; i++) {
        if (sets[i]) continue;
        fd = open("/dev/null", O_RDWR | (flags & EPOLL_CLOEXEC ? O_CLOEXEC : 0));
        if (fd < 0) break;
        set->fd = fd;
        sets[i] = set;
    }
    pthread_mutex_unlock(&lock);
    if (fd < 0) free(set);
    return fd;
}

int epoll_create(int size) {
    (void)size;
    return epoll_create1(0);
}

int epoll_ctl(int epfd, int op, int fd, struct epoll_event* event) {
    int at, status = 0;
    struct set* set;

    pthread_mutex_lock(&lock);
    set = find(epfd);
    at = set ? member(set, fd) : -1;
    if (!set) {
        status = EBADF;
    } else if (op == EPOLL_CTL_ADD ? at >= 0 : at < 0) {
        status = op == EPOLL_CTL_ADD ? EEXIST : ENOENT;
    } else if (op == EPOLL_CTL_DEL) {
        set->count--;
        set->polled[at] = set->polled[set->count];
        set->data[at] = set->data[set->count];
    } else if (op == EPOLL_CTL_ADD && set->count == MEMBERS) {
        status = ENOSPC;
    } else {
        if (op == EPOLL_CTL_ADD) at = set->count++;
        set->polled[at].fd = fd;
        /* EPOLLIN and its like are POLLIN and its like */
        set->polled[at].events = (short)(event->events & (POLLIN | POLLPRI | POLLOUT));
        set->data[at] = event->data;
    }
    pthread_mutex_unlock(&lock);
    if (status) errno = status;
    return status ? -1 : 0;
}

int epoll_wait(int epfd, struct epoll_event* events, int room, int timeout) {
    struct pollfd polled[MEMBERS];
    struct set* set;
    int count, got, found = 0;

    pthread_mutex_lock(&lock);
    set = find(epfd);
    count = set ? set->count : 0;
    if (set) memcpy(polled, set->polled, (size_t)count * sizeof(polled[0]));
    pthread_mutex_unlock(&lock);
    if (!set) {
        errno = EBADF;
        return -1;
    }
    got = poll(polled, (nfds_t)count, timeout);
    if (got <= 0) return got;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count && found < room; i++) {
        int at = polled[i].revents ? member(set, polled[i].fd) : -1;

        if (at < 0) continue;
        events[found].events = (unsigned short)polled[i].revents;
        events[found].data = set->data[at];
        found++;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static int with_flags(int fd, int flags) {
    if (fd >= 0 && flags & SOCK_NONBLOCK) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    return fd;
}

int accept4(int fd, struct sockaddr* address, socklen_t* length, int flags) {
    return with_flags(accept(fd, address, length), flags);
}

int socket(int family, int type, int protocol) {
    int (*next)(int, int, int) = (int (*)(int, int, int))dlsym(RTLD_NEXT, "socket");

    return with_flags(next(family, type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC), protocol), type);
}

int fcntl64(int fd, int command, ...) {
    va_list list;
    long argument;

    va_start(list, command);
    argument = va_arg(list, long); /* what is not there is not looked at */
    va_end(list);
    return fcntl(fd, command, argument);
}

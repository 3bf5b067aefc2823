// SPDX-License-Identifier: Apache-2.0
/*
 * What librspreload, which makes rsockets of sockets, does not know of a program's calls, on top of
 * what it knows: epoll by poll(), accept4(), fcntl64(), and socket() with flags; and what it does
 * wrong: poll() and select() with a time limit or for connections, connect() that does not wait. To
 * be preloaded before it. Epoll is level-triggered, as redis wants it.
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
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define SETS 64
#define MEMBERS 1024
#define LOOK_AGAIN 200 /* ms */

struct set {
    int fd; /* /dev/null, so that the number is nobody else's */
    int count;
    struct pollfd polled[MEMBERS];
    epoll_data_t data[MEMBERS];
};

static struct set* sets[SETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char listening[FD_SETSIZE]; /* or did, under this number */

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

/*
 * rpoll() before rdma-core 63 (a1747742ed60) counts a caller whose time is up as one that waits,
 * for ever. The next that wakes up and sees somebody wait asks all to come back and look again, and
 * from then on each caller yields until that one has come. So no time limit reaches rpoll(): the
 * end of the time is an event of one descriptor more.
 */
static int poll_once(struct pollfd* fds, nfds_t count, int timeout) {
    static __thread struct pollfd more[MEMBERS + 1];
    static __thread int inside; /* rpoll() calls poll() */
    int (*next)(struct pollfd*, nfds_t, int) =
        (int (*)(struct pollfd*, nfds_t, int))dlsym(RTLD_NEXT, "poll");
    struct itimerspec end = {.it_value = {timeout / 1000, timeout % 1000 * 1000000L}};
    nfds_t timers = timeout > 0;
    int timer = -1;
    int got;

    if (inside || !timeout || count > MEMBERS) return next(fds, count, timeout);
    if (timers) {
        timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
        if (timer < 0) return -1;
        timerfd_settime(timer, 0, &end, NULL);
    }
    if (count) memcpy(more, fds, count * sizeof(more[0]));
    more[count] = (struct pollfd){.fd = timer, .events = POLLIN};
    inside = 1;
    got = next(more, count + timers, -1);
    inside = 0;
    if (timers) close(timer);
    for (nfds_t i = 0; i < count; i++) fds[i].revents = more[i].revents;
    return got > 0 && timers && more[count].revents ? got - 1 : got;
}

/*
 * A thread of librdmacm accepts connections and puts them into a queue of the listening rsocket;
 * rpoll() waits for the event that the thread takes, and not for the queue. So who waits for a
 * connection looks again after a while.
 */
int listen(int fd, int backlog) {
    int (*next)(int, int) = (int (*)(int, int))dlsym(RTLD_NEXT, "listen");
    int status = next(fd, backlog);

    if (!status && fd < FD_SETSIZE) listening[fd] = 1;
    return status;
}

static int wait_for(struct pollfd* fds, nfds_t count, int timeout) {
    int once = timeout;
    int got;

    for (nfds_t i = 0; i < count; i++)
        if (fds[i].fd >= 0 && fds[i].fd < FD_SETSIZE && listening[fds[i].fd])
            once = timeout < 0 || timeout > LOOK_AGAIN ? LOOK_AGAIN : timeout;
    do {
        if (timeout > 0 && once > timeout) once = timeout;
        got = poll_once(fds, count, once);
        if (timeout > 0) timeout -= once;
    } while (!got && timeout);
    return got;
}

int poll(struct pollfd* fds, nfds_t count, int timeout) {
    return wait_for(fds, count, timeout);
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

int select(int end, fd_set* in, fd_set* out, fd_set* other, struct timeval* timeout) {
    struct pollfd polled[FD_SETSIZE];
    fd_set* sets[] = {in, out, other};
    /* what of poll() is an event of which set */
    const short asked[] = {POLLIN, POLLOUT, POLLPRI};
    const short told[] = {POLLIN | POLLHUP | POLLERR, POLLOUT | POLLERR, POLLPRI};
    int count = 0, found = 0, milliseconds = -1;

    if (end < 0 || end > FD_SETSIZE) {
        errno = EINVAL;
        return -1;
    }
    if (timeout) milliseconds = (int)(timeout->tv_sec * 1000 + (timeout->tv_usec + 999) / 1000);
    for (int fd = 0; fd < end; fd++) {
        struct pollfd one = {.fd = fd};

        for (int i = 0; i < 3; i++)
            if (sets[i] && FD_ISSET(fd, sets[i])) one.events |= asked[i];
        if (one.events) polled[count++] = one;
    }
    if (poll(polled, (nfds_t)count, milliseconds) < 0) return -1;
    for (int at = 0; at < count; at++) {
        for (int i = 0; i < 3; i++) {
            if (!(polled[at].events & asked[i])) continue;
            if (polled[at].revents & told[i])
                found++;
            else
                FD_CLR(polled[at].fd, sets[i]);
        }
    }
    return found;
}

/*
 * A connection that is made while the program goes on is made by two threads, one of librdmacm and
 * that which polls, without a lock: one event of rdma_cm is overwritten by the next, and close()
 * waits for it for ever, mostly with rdma-core 65. So the program waits until it is made.
 */
int connect(int fd, const struct sockaddr* address, socklen_t length) {
    int (*next)(int, const struct sockaddr*, socklen_t) =
        (int (*)(int, const struct sockaddr*, socklen_t))dlsym(RTLD_NEXT, "connect");
    int internet = address->sa_family == AF_INET || address->sa_family == AF_INET6;
    int flags = internet ? fcntl(fd, F_GETFL) : -1;
    int status;

    if (flags < 0 || !(flags & O_NONBLOCK)) return next(fd, address, length);
    fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    status = next(fd, address, length);
    fcntl(fd, F_SETFL, flags);
    return status;
}

int fcntl64(int fd, int command, ...) {
    va_list list;
    long argument;

    va_start(list, command);
    argument = va_arg(list, long); /* what is not there is not looked at */
    va_end(list);
    return fcntl(fd, command, argument);
}

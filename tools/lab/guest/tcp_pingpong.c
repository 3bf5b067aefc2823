// SPDX-License-Identifier: Apache-2.0
/*
 * TCP ping-pong for the benchmark: half the round trip of a small message, as perftest counts it.
 *
 *   tcp_pingpong PORT                         server, one client
 *   tcp_pingpong PORT ADDRESS BYTES ROUNDS    client; prints the sorted percentiles in us
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void fail(const char* what) {
    perror(what);
    exit(1);
}

static double now_us(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Returns 0 at the end of the stream. */
static int receive_all(int fd, char* buffer, size_t size) {
    size_t done = 0;

    while (done < size) {
        ssize_t got = recv(fd, buffer + done, size - done, 0);

        if (got < 0) fail("recv");
        if (got == 0) return 0;
        done += (size_t)got;
    }
    return 1;
}

static void send_all(int fd, const char* buffer, size_t size) {
    size_t done = 0;

    while (done < size) {
        ssize_t sent = send(fd, buffer + done, size - done, 0);

        if (sent < 0) fail("send");
        done += (size_t)sent;
    }
}

static int compare(const void* a, const void* b) {
    double x = *(const double*)a, y = *(const double*)b;

    return x < y ? -1 : x > y;
}

static void serve(uint16_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0), peer;
    uint32_t size;
    char* buffer;

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (struct sockaddr*)&address, sizeof(address)) || listen(fd, 1)) fail("bind");
    peer = accept(fd, NULL, NULL);
    if (peer < 0) fail("accept");
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (!receive_all(peer, (char*)&size, sizeof(size)) || size == 0 || size > 1 << 24) fail("size");
    buffer = calloc(1, size);
    if (!buffer) fail("calloc");
    while (receive_all(peer, buffer, size)) send_all(peer, buffer, size);
    free(buffer);
}

static void call(uint16_t port, const char* host, uint32_t size, int rounds) {
    static const double percentiles[] = {50, 90, 99, 99.9};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0), i;
    double *times = calloc((size_t)rounds, sizeof(*times)), sum = 0;
    char* buffer = calloc(1, size);

    if (!times || !buffer) fail("calloc");
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1 ||
        connect(fd, (struct sockaddr*)&address, sizeof(address)))
        fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    send_all(fd, (char*)&size, sizeof(size));
    for (i = -rounds / 10; i < rounds; i++) {
        double begin = now_us();

        send_all(fd, buffer, size);
        if (!receive_all(fd, buffer, size)) fail("the server left");
        if (i >= 0) times[i] = (now_us() - begin) / 2;
    }
    qsort(times, (size_t)rounds, sizeof(*times), compare);
    for (i = 0; i < rounds; i++) sum += times[i];
    printf("min %.2f avg %.2f", times[0], sum / rounds);
    for (i = 0; i < 4; i++)
        printf(" p%g %.2f", percentiles[i], times[(int)((rounds - 1) * percentiles[i] / 100)]);
    printf(" max %.2f\n", times[rounds - 1]);
    free(times);
    free(buffer);
}

int main(int argc, char** argv) {
    if (argc == 2)
        serve((uint16_t)atoi(argv[1]));
    else if (argc == 5 && atoi(argv[3]) > 0 && atoi(argv[4]) > 9)
        call((uint16_t)atoi(argv[1]), argv[2], (uint32_t)atoi(argv[3]), atoi(argv[4]));
    else
        return 2;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks the RoCE port of another for its counters, by a datagram to queue pair 1 as managers of an
 * InfiniBand fabric send them (performance management, attribute PortCountersExtended):
 *
 *   pma_get UMAD GID_INDEX GID
 *
 * UMAD is a device of ib_umad, GID_INDEX that of the own address, GID the other's. Prints what came
 * back: the status of the answer in the order of the host, or the error of the datagram:
 *
 *   status 0xc      (there is no such thing)
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/ib_user_mad.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { EXIT_SETUP = 2 };
enum { BASE_VERSION = 1, CLASS_VERSION = 1, PERFORMANCE = 4, GET = 1, COUNTERS_EXT = 0x1d };
enum { QP1 = 1, PORT_SELECT = 64 + 1, MAD_BYTES = 256 };
#define QP1_QKEY 0x80010000u

/* The header of ib_umad, and the datagram. */
struct message {
    struct ib_user_mad_hdr to;
    uint8_t mad[MAD_BYTES];
};

static void die(const char* what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(EXIT_SETUP);
}

int main(int argc, char** argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: pma_get UMAD GID_INDEX GID\n");
        return EXIT_SETUP;
    }
    const int fd = open(argv[1], O_RDWR);
    if (fd < 0) die(argv[1]);
    if (ioctl(fd, IB_USER_MAD_ENABLE_PKEY)) die("enabling P_Key indices");
    struct ib_user_mad_reg_req2 agent = {
        .qpn = QP1, .mgmt_class = PERFORMANCE, .mgmt_class_version = CLASS_VERSION};
    if (ioctl(fd, IB_USER_MAD_REGISTER_AGENT2, &agent)) die("registering");

    struct message message = {.to = {.id = agent.id,
                                     .timeout_ms = 2000,
                                     .qpn = htobe32(QP1),
                                     .qkey = htobe32(QP1_QKEY),
                                     .grh_present = 1,
                                     .gid_index = (uint8_t)atoi(argv[2]),
                                     .hop_limit = 64}};
    if (inet_pton(AF_INET6, argv[3], message.to.gid) != 1) die("the GID");
    message.mad[0] = BASE_VERSION;
    message.mad[1] = PERFORMANCE;
    message.mad[2] = CLASS_VERSION;
    message.mad[3] = GET;
    message.mad[17] = COUNTERS_EXT;
    message.mad[PORT_SELECT] = 1;
    if (write(fd, &message, sizeof(message)) != sizeof(message)) die("sending");
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    if (poll(&ready, 1, 10000) != 1) die("waiting for an answer");
    if (read(fd, &message, sizeof(message)) < 0) die("reading the answer");
    if (message.to.status)
        printf("error %s\n", strerror((int)message.to.status));
    else
        printf("status %#x\n", message.mad[4] << 8 | message.mad[5]);
    return 0;
}

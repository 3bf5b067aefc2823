/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Throws commands at the uverbs interface of a device: right ones, wrong ones, and any bytes.
 *
 *   uverbs_fuzz --dev mana_0 --seed 1 --seconds 20
 *
 * First come the known cases: one wrong thing each, and the errno that it must have. Then episodes,
 * each a process of its own with a context of its own: it makes objects, uses and misuses them, by
 * one thread or by several that share everything, and ends: by the book, by closing the device
 * under its threads, by a signal, by exec, or with children that have all of it too. What an
 * episode does is drawn from the seed and its number, so `--seed S --first N --episodes 1` does the
 * same again (threads still race as they like).
 *
 * Wrong are: an errno that no verb has (what the device does not explain, among others), a process
 * that does not end, a verb that never succeeded (then nothing was tested), and a device that does
 * not work afterwards. Reports of the kernel are for the caller to find.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "uverbs_ops.h"

enum { THREADS = 4, STEPS = 400, BAD = 16, ERRNOS = 134 };

/* What all processes share. Its ends are marked: nobody but judge() has a reason to write here. */
struct tally {
    uint64_t head;
    atomic_uint done[O_COUNT];
    atomic_uint refused[O_COUNT];
    atomic_uint errnos[ERRNOS];
    atomic_uint bad_count;
    struct {
        enum op op;
        int err;
        uint32_t episode;
    } bad[BAD];
    uint64_t tail;
};

static const uint64_t tally_mark = 0x74616c6c7921ull;

static struct tally* tally;
static const char* device_path;
static bool raw;
static bool leaving; /* the driver may go at any time */
static uint32_t patience = 20;

/* Whether the core looks for the way to an address first. */
static bool resolves(enum op op) {
    return op == O_AH || op == O_MODIFY_QP;
}

/* What the interface may answer. Not among them: EPROTO, which says that the device gave a status
 * without a meaning, and what says that it does not answer. */
static bool known_errno(enum op op, int err) {
    static const int known[] = {0,      EPERM,  ENOENT,     EAGAIN,          ENOMEM,   EACCES,
                                EFAULT, EBUSY,  EINVAL,     EMFILE,          EBADF,    ENOSPC,
                                ERANGE, ENOTTY, EOPNOTSUPP, EPROTONOSUPPORT, EEXIST,   ENODATA,
                                E2BIG,  EDQUOT, ENOMSG,     EINTR,           EOVERFLOW};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (err == known[i]) return true;
    if (err == EIO) return leaving || op == O_EVENTS; /* of a context that has ended */
    if (resolves(op) && (err == ENETUNREACH || err == EHOSTUNREACH || err == ETIMEDOUT ||
                         err == ENODEV)) /* no way to the address, nobody who has it, no address */
        return true;
    return leaving && (err == ENODEV || err == ENXIO);
}

static void judge(enum op op, int err, uint32_t episode) {
    uint32_t at;

    atomic_fetch_add(err ? &tally->refused[op] : &tally->done[op], 1);
    if (err > 0 && err < ERRNOS) atomic_fetch_add(&tally->errnos[err], 1);
    if (known_errno(op, err)) return;
    at = atomic_fetch_add(&tally->bad_count, 1);
    if (at < BAD) {
        tally->bad[at].op = op;
        tally->bad[at].err = err;
        tally->bad[at].episode = episode;
    }
}

/* -- a process */

/* Memory at a place of its own, far from everything else, with a page that is not there behind. */
static uint8_t* reserve(size_t bytes) {
    static uintptr_t next = 0x200000000000;
    void* at = mmap((void*)next, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

    if (at == MAP_FAILED) {
        perror("uverbs_fuzz: mmap");
        exit(2);
    }
    next += bytes + (64 << 20);
    return at;
}

static void open_process(struct process* p) {
    p->fd = open(device_path, O_RDWR);
    p->async_fd = p->channel = -1;
    p->doorbell = NULL;
    p->raw = raw;
    for (int kind = 0; kind < K_COUNT; kind++)
        for (int i = 0; i < SLOTS; i++) atomic_init(&p->slots[kind][i], empty_slot);
}

static void reserve_memory(struct process* p) {
    p->arena = reserve(ARENA);
    p->readonly = reserve(PAGE);
    p->hole = reserve(PAGE);
    munmap(p->hole, PAGE);
    mprotect(p->readonly, PAGE, PROT_READ);
}

static void init_worker(struct worker* w, struct process* p, uint64_t seed) {
    w->process = p;
    w->dice.state = seed;
    w->in = reserve(OUT);
    w->out = reserve(OUT);
    w->place = reserve(2 * PAGE);
    munmap(w->place, 2 * PAGE);
    w->spoilt = false;
}

static enum op draw(struct worker* w) {
    uint32_t sum = 0;
    uint32_t at;
    int op = 0;

    for (int i = 0; i < O_COUNT; i++) sum += op_weights[i];
    at = below(&w->dice, sum);
    for (; at >= op_weights[op]; op++) at -= op_weights[op];
    return (enum op)op;
}

static void steps(struct worker* w, uint32_t count, uint32_t episode) {
    while (count--) {
        enum op op = draw(w);

        if ((op == O_RAW_QP || op == O_RSS_QP) && !w->process->raw) continue;
        w->spoilt = percent(&w->dice, w->process->wild);
        judge(op, op_functions[op](w), episode);
    }
}

/* -- an episode */

struct thread {
    pthread_t id;
    struct worker worker;
    uint32_t count, episode;
};

static void* run_thread(void* argument) {
    struct thread* t = argument;

    steps(&t->worker, t->count, t->episode);
    return NULL;
}

enum finish { END_JOIN, END_CLOSE, END_EXIT, END_SIGNAL, END_EXEC, END_FORK, END_COUNT };

/* The end of a process whose threads are still at it. */
static void finish(struct process* p, struct thread* threads, uint32_t count, struct worker* w) {
    enum finish how = (enum finish)below(&w->dice, END_COUNT);
    struct timespec pause = {.tv_nsec = (long)below(&w->dice, 30) * 1000000};
    pid_t child = 0;

    if (how != END_JOIN) nanosleep(&pause, NULL);
    switch (how) {
        case END_CLOSE:
            close(p->fd);
            break;
        case END_EXIT:
            _exit(0);
        case END_SIGNAL:
            kill(getpid(), SIGKILL);
            break;
        case END_EXEC: /* the device is open in what comes then */
            execl("/bin/true", "true", (char*)NULL);
            _exit(3);
        case END_FORK:
            child = fork();
            if (!child) {
                steps(w, 20, threads[0].episode);
                _exit(0);
            }
            break;
        default:
            break;
    }
    for (uint32_t i = 0; i < count; i++) pthread_join(threads[i].id, NULL);
    if (how == END_FORK) waitpid(child, NULL, 0);
}

/* Objects with which more can be done than with none. */
static void furnish(struct worker* w, uint32_t episode) {
    static const enum op first[] = {O_PD, O_CQ, O_CQ, O_CQ, O_CQ, O_SRQ, O_MR, O_QP, O_QP, O_AH};

    w->spoilt = false;
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        judge(first[i], op_functions[first[i]](w), episode);
}

static void run_episode(uint64_t seed, uint32_t episode) {
    static struct process process;
    static struct thread threads[THREADS];
    struct worker* w = &threads[0].worker;
    uint32_t count;

    open_process(&process);
    if (process.fd < 0) _exit(leaving ? 0 : 3);
    reserve_memory(&process);
    for (int i = 0; i < THREADS; i++) {
        init_worker(&threads[i].worker, &process, seed * 0x10001 + episode * 64ull + (uint64_t)i);
        threads[i].episode = episode;
        threads[i].count = STEPS;
    }
    count = percent(&w->dice, 50) ? 1 : THREADS;
    process.wild = (uint32_t[]){0, 20, 50, 90}[below(&w->dice, 4)];
    if (!percent(&w->dice, 5)) { /* else without a context */
        int err =
            percent(&w->dice, 90) ? get_context(w) : stock_context(w, 4 * below(&w->dice, 17));

        if (!err) err = channel(w);
        if (err && !leaving) {
            fprintf(stderr, "uverbs_fuzz: episode %u: no context: %s\n", episode, strerror(err));
            _exit(4);
        }
        if (err) _exit(0);
        furnish(w, episode);
    }
    if (count == 1 && percent(&w->dice, 70)) {
        steps(w, STEPS, episode);
        _exit(0);
    }
    for (uint32_t i = 1; i < count + (count == 1); i++)
        if (pthread_create(&threads[i].id, NULL, run_thread, &threads[i])) _exit(5);
    finish(&process, &threads[1], count - (count > 1), w);
    _exit(0);
}

/* -- the caller's side */

static double now(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* What the threads of a process that does not end are doing. */
static void show(pid_t pid) {
    char command[128];

    snprintf(
        command, sizeof command,
        "for t in /proc/%d/task/*; do cat $t/comm $t/wchan $t/syscall $t/stack; echo; done >&2",
        (int)pid);
    if (system(command)) fprintf(stderr, "uverbs_fuzz: no view of process %d\n", (int)pid);
}

/* The status of a child that must end. */
static int wait_for(pid_t pid, uint32_t episode) {
    double until = now() + patience;
    struct timespec pause = {.tv_nsec = 2000000};
    int status;

    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (now() > until) {
            fprintf(stderr, "uverbs_fuzz: episode %u does not end\n", episode);
            show(pid);
            kill(pid, SIGKILL);
            exit(1);
        }
        nanosleep(&pause, NULL);
    }
    return status;
}

#include "uverbs_known.h"

/* Everything by the book, in this process. */
static int works(bool rdma) {
    static struct process process;
    static struct worker w;
    int err;

    open_process(&process);
    if (process.fd < 0) return errno;
    reserve_memory(&process);
    init_worker(&w, &process, 1);
    err = get_context(&w);
    if (!err) err = op_pd(&w);
    if (!err)
        err = make(&w, &(struct base){.pd = handle_of(atomic_load(&process.slots[K_PD][0]))},
                   right_mr, (struct change)FIELD(CORE, ib_uverbs_reg_mr, access_flags, N(7)));
    for (int i = 0; rdma && !err && i < 8; i++) err = op_cq(&w);
    close(process.fd);
    return err;
}

/* Verbs of which one must have succeeded, or the rest says nothing. */
static uint32_t report(bool rdma) {
    uint32_t missing = 0;

    for (int i = 0; i < O_COUNT; i++) {
        bool may_fail = i == O_DMABUF_MR || i == O_ABSENT || i == O_RANDOM_METHOD ||
                        i == O_RANDOM_BYTES || i == O_EVENTS;
        bool of_raw = i == O_WQ || i == O_TABLE || i == O_RAW_QP || i == O_RSS_QP;
        bool needs_address = i == O_AH; /* there is none while the interface is down */
        bool of_both = i == O_PD || i == O_CQ || i == O_MR || i == O_DESTROY;
        bool wanted = !may_fail && !(needs_address && raw) && (of_both || (of_raw ? raw : rdma));
        uint32_t done = atomic_load(&tally->done[i]);

        printf("%-14s %8u %8u\n", op_names[i], done, atomic_load(&tally->refused[i]));
        if (wanted && !done) {
            fprintf(stderr, "uverbs_fuzz: %s never succeeded\n", op_names[i]);
            missing++;
        }
    }
    for (int i = 1; i < ERRNOS; i++)
        if (atomic_load(&tally->errnos[i]))
            printf("%s: %u\n", strerrorname_np(i), atomic_load(&tally->errnos[i]));
    return missing;
}

/* The node of a device in /dev. */
static char* find_device(const char* name) {
    static char path[64];
    char line[64];

    for (int i = 0; i < 64; i++) {
        FILE* file;
        bool same;

        snprintf(path, sizeof path, "/sys/class/infiniband_verbs/uverbs%d/ibdev", i);
        file = fopen(path, "r");
        if (!file) continue;
        same = fgets(line, sizeof line, file) && strncmp(line, name, strcspn(line, "\n")) == 0 &&
               strlen(name) == strcspn(line, "\n");
        fclose(file);
        if (same) {
            snprintf(path, sizeof path, "/dev/infiniband/uverbs%d", i);
            return path;
        }
    }
    fprintf(stderr, "uverbs_fuzz: no device %s\n", name);
    exit(2);
}

struct options {
    uint64_t seed;
    double seconds;
    uint32_t first, episodes;
    bool rdma;
};

static int usage(void) {
    fprintf(stderr,
            "usage: uverbs_fuzz --dev NAME [--seed N] [--seconds S] [--first N] [--episodes N]\n"
            "  --raw         raw packet queues too; the network interface has to be down\n"
            "  --leaving     the driver may leave the device meanwhile\n"
            "  --patience S  seconds after which a process counts as one that does not end\n");
    return 2;
}

static int options_of(int argc, char** argv, struct options* o) {
    static const struct option names[] = {
        {"dev", 1, NULL, 'd'},      {"seed", 1, NULL, 's'},    {"seconds", 1, NULL, 't'},
        {"first", 1, NULL, 'f'},    {"raw", 0, NULL, 'r'},     {"episodes", 1, NULL, 'e'},
        {"patience", 1, NULL, 'p'}, {"leaving", 0, NULL, 'l'}, {NULL, 0, NULL, 0}};
    int option;

    while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (option) {
            case 'd':
                device_path = find_device(optarg);
                o->rdma = strncmp(optarg, "manae", 5) != 0;
                break;
            case 's':
                o->seed = strtoull(optarg, NULL, 0);
                break;
            case 't':
                o->seconds = strtod(optarg, NULL);
                break;
            case 'f':
                o->first = (uint32_t)strtoul(optarg, NULL, 0);
                break;
            case 'e':
                o->episodes = (uint32_t)strtoul(optarg, NULL, 0);
                break;
            case 'p':
                patience = (uint32_t)strtoul(optarg, NULL, 0);
                break;
            case 'r':
                raw = true;
                break;
            case 'l':
                leaving = true;
                break;
            default:
                return usage();
        }
    }
    return device_path ? 0 : usage();
}

/* The known cases, in a process of their own. */
static bool known_well(const struct options* o) {
    pid_t pid = fork();

    if (!pid) {
        static struct process p;

        open_process(&p);
        if (p.fd < 0) {
            perror(device_path);
            _exit(1);
        }
        reserve_memory(&p);
        _exit(run_known(&p, o->rdma) || fflush(stdout) ? 1 : 0);
    }
    return wait_for(pid, 0) == 0;
}

/* Whether a child ended as episodes do. One may harm itself with what the device writes for it. */
static bool ended_well(int status, uint32_t* harmed) {
    if (WIFEXITED(status)) return WEXITSTATUS(status) == 0;
    if (WTERMSIG(status) == SIGKILL) return true;
    ++*harmed;
    return WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS;
}

int main(int argc, char** argv) {
    struct options o = {.seed = 1, .seconds = 10, .first = 1};
    uint32_t harmed = 0;
    uint32_t episode;
    double until;
    bool failed = false;

    if (options_of(argc, argv, &o)) return 2;
    tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tally == MAP_FAILED) return 2;
    tally->head = tally->tail = tally_mark;
    if (!leaving && !known_well(&o)) failed = true;
    until = now() + o.seconds;
    for (episode = o.first; o.episodes ? episode - o.first < o.episodes : now() < until;
         episode++) {
        pid_t pid = fork();
        int status;

        if (pid < 0) return 2;
        if (!pid) run_episode(o.seed, episode);
        status = wait_for(pid, episode);
        if (!ended_well(status, &harmed)) {
            fprintf(stderr, "uverbs_fuzz: episode %u ended with status %#x\n", episode, status);
            failed = true;
        }
    }
    episode -= o.first;
    for (uint32_t i = 0; i < BAD && i < atomic_load(&tally->bad_count); i++)
        fprintf(stderr, "uverbs_fuzz: episode %u: %s: %s\n", tally->bad[i].episode,
                op_names[tally->bad[i].op], strerrorname_np(tally->bad[i].err));
    if (atomic_load(&tally->bad_count)) failed = true;
    if (tally->head != tally_mark || tally->tail != tally_mark) {
        fprintf(stderr, "uverbs_fuzz: somebody wrote to shared memory: marks %#llx and %#llx\n",
                (unsigned long long)tally->head, (unsigned long long)tally->tail);
        failed = true;
    }
    if (episode && report(o.rdma) && !o.episodes && !leaving) failed = true;
    if (harmed > 3 + episode / 10) {
        fprintf(stderr, "uverbs_fuzz: %u of %u episodes harmed themselves\n", harmed, episode);
        failed = true;
    }
    if (!leaving) {
        int err = works(o.rdma);

        if (err) {
            fprintf(stderr, "uverbs_fuzz: the device does not work any more: %s\n", strerror(err));
            failed = true;
        }
    }
    printf("seed %llu, %u episodes, %u harmed themselves\n", (unsigned long long)o.seed, episode,
           harmed);
    return failed;
}

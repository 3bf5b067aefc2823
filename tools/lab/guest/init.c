// SPDX-License-Identifier: Apache-2.0
/*
 * Process 1 of a lab guest. It is the only program of the initramfs: it loads the modules that the
 * root needs, mounts the image read-only below a tmpfs, makes that the root, starts the agent,
 * and then reaps orphans. When the agent ends, the guest has no further use and powers off.
 *
 * With the word manalab.init=systemd on the kernel's command line it becomes the image's systemd
 * instead, which starts udev and then the agent.
 *
 * Linked statically; built on the host.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void die(const char* what) {
    printf("manalab-init: %s: %s\n", what, strerror(errno));
    fflush(stdout);
    sync();
    reboot(RB_POWER_OFF);
    _exit(1);
}

static void make_dir(const char* path) {
    if (mkdir(path, 0755) && errno != EEXIST) die(path);
}

static void mount_at(const char* source, const char* target, const char* type, unsigned long flags,
                     const char* data) {
    make_dir(target);
    if (mount(source, target, type, flags, data)) die(target);
}

/* Loads the modules that /modules lists, in that order. */
static void load_modules(void) {
    char path[256];
    FILE* list = fopen("/modules", "r");

    if (!list) die("/modules");
    while (fgets(path, sizeof(path), list)) {
        int fd;

        path[strcspn(path, "\n")] = '\0';
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) die(path);
        if (syscall(SYS_finit_module, fd, "", 0) && errno != EEXIST) die(path);
        close(fd);
    }
    fclose(list);
}

static void wait_for(const char* path) {
    int i;

    for (i = 0; i < 3000; i++) {
        if (!access(path, F_OK)) return;
        usleep(10000);
    }
    die(path);
}

static void copy_file(const char* from, const char* to, mode_t mode) {
    char buffer[65536];
    ssize_t got;
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);

    if (in < 0) die(from);
    if (out < 0) die(to);
    while ((got = read(in, buffer, sizeof(buffer))) > 0)
        if (write(out, buffer, (size_t)got) != got) die(to);
    close(in);
    close(out);
}

static void write_text(const char* path, const char* text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    if (fd < 0 || write(fd, text, strlen(text)) < 0) die(path);
    close(fd);
}

static void make_root(void) {
    load_modules();
    wait_for("/dev/vda");
    mount_at("/dev/vda", "/lower", "ext4", MS_RDONLY | MS_NOATIME, NULL);
    mount_at("tmpfs", "/rw", "tmpfs", 0, "mode=0755,size=75%");
    make_dir("/rw/upper");
    make_dir("/rw/work");
    /* What the lab adds to the image (drivers, programs) came as a second initramfs. */
    mount_at("overlay", "/new", "overlay", 0,
             access("/extras", F_OK)
                 ? "lowerdir=/lower,upperdir=/rw/upper,workdir=/rw/work"
                 : "lowerdir=/extras:/lower,upperdir=/rw/upper,workdir=/rw/work");
    copy_file("/agent.py", "/new/usr/sbin/manalab-agent", 0755);
    mount_at("proc", "/new/proc", "proc", 0, NULL);
    mount_at("sysfs", "/new/sys", "sysfs", 0, NULL);
    if (mount("/dev", "/new/dev", NULL, MS_MOVE, NULL)) die("move /dev");
    if (chdir("/new") || mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".") || chdir("/"))
        die("switch to the new root");
    mount_at("devpts", "/dev/pts", "devpts", 0, "gid=5,mode=620,ptmxmode=666");
    mount_at("tmpfs", "/dev/shm", "tmpfs", 0, "mode=1777");
    mount_at("tmpfs", "/run", "tmpfs", 0, "mode=0755");
    mount_at("tmpfs", "/tmp", "tmpfs", 0, "mode=1777");
    mount_at("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
    /* The kernel with KCSAN has no tracing, and so not the folder. */
    if (!access("/sys/kernel/tracing", F_OK))
        mount_at("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL);
    mount_at("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, NULL);
    symlink("/proc/self/fd", "/dev/fd");
    symlink("/proc/self/fd/0", "/dev/stdin");
    symlink("/proc/self/fd/1", "/dev/stdout");
    symlink("/proc/self/fd/2", "/dev/stderr");
}

static int wants_systemd(void) {
    char line[4096];
    int fd = open("/proc/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t got;

    if (fd < 0) die("/proc/cmdline");
    got = read(fd, line, sizeof(line) - 1);
    close(fd);
    if (got < 0) die("/proc/cmdline");
    line[got] = '\0';
    return strstr(line, "manalab.init=systemd") != NULL;
}

/* Never returns. The target has what every system has (mounts, udev, its look at all devices) and
 * the agent; nothing listens, and nobody can log in. */
static void become_systemd(void) {
    static const char target[] =
        "[Unit]\n"
        "Requires=basic.target manalab-agent.service\n"
        "After=basic.target\n";
    static const char agent[] =
        "[Unit]\n"
        "After=basic.target systemd-udev-settle.service\n"
        "Wants=systemd-udev-settle.service\n"
        "SuccessAction=poweroff-force\n"
        "FailureAction=poweroff-force\n"
        "[Service]\n"
        "Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
        "Environment=HOME=/root LANG=C.UTF-8 TERM=linux USER=root\n"
        "ExecStart=/usr/bin/python3 -S -E /usr/sbin/manalab-agent\n"
        "StandardInput=null\n"
        "StandardOutput=tty\n"
        "StandardError=tty\n"
        "TTYPath=/dev/console\n"
        "LimitNOFILE=65536:1048576\n"
        "LimitMEMLOCK=infinity\n"
        "OOMScoreAdjust=-1000\n"
        "Delegate=yes\n";
    static char* const environment[] = {"TERM=linux", "LANG=C.UTF-8", NULL};
    char* const arguments[] = {"/usr/lib/systemd/systemd", "--unit=manalab.target",
                               "--show-status=no", NULL};

    write_text("/etc/systemd/system/manalab.target", target);
    write_text("/etc/systemd/system/manalab-agent.service", agent);
    /* Without it each boot would be the first one, on which systemd enables all units. */
    write_text("/etc/machine-id", "6d616e616c61620000000000000000aa\n");
    execve(arguments[0], arguments, environment);
    die(arguments[0]);
}

int main(void) {
    static char* const environment[] = {
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME=/root",
        "LANG=C.UTF-8",
        "TERM=linux",
        "USER=root",
        NULL};
    char* const arguments[] = {"/usr/bin/python3", "-S", "-E", "/usr/sbin/manalab-agent", NULL};
    const struct rlimit files = {65536, 1048576};
    int status;
    pid_t agent, pid;
    int console;

    mount_at("devtmpfs", "/dev", "devtmpfs", 0, NULL);
    console = open("/dev/console", O_RDWR);
    if (console >= 0) {
        dup2(console, 0);
        dup2(console, 1);
        dup2(console, 2);
        if (console > 2) close(console);
    }
    make_root();
    /* Answers "which host am I" for programs that ask; the agent sets the guest's own name. */
    write_text("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n");
    write_text("/etc/resolv.conf", "");
    if (wants_systemd()) become_systemd();
    setrlimit(RLIMIT_NOFILE, &files);
    agent = fork();
    if (agent < 0) die("fork");
    if (agent == 0) {
        setsid();
        execve(arguments[0], arguments, environment);
        die(arguments[0]);
    }
    for (;;) {
        pid = wait(&status);
        if (pid < 0 && errno != EINTR) die("wait");
        if (pid == agent) {
            printf("manalab-init: the agent ended with wait status 0x%x\n", (unsigned int)status);
            fflush(stdout);
            sync();
            reboot(RB_POWER_OFF);
        }
    }
}

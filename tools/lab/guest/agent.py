#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The lab's agent in a guest: runs commands for the host over a virtio-serial port.

One thread, one selector. The frame format is that of `lab/channel.py` (which has the host's side):
magic, type, command id, length, payload. Several commands run side by side; their output is
streamed; a slow host stops the reading of output, not the agent.
"""

import errno
import fcntl
import json
import os
import selectors
import signal
import socket
import struct
import sys
import termios
import time

MAGIC = b"OML1"
HEADER = struct.Struct("<4sBIi")
HELLO, ACK, START, STDIN, STDIN_END, KILL, STDOUT, STDERR, EXIT, REBOOT, WINSIZE = range(1, 12)
CHUNK = 65536
HIGH_WATER = 1 << 20
PORT_NAME = "manalab"


def log(text):
    """Writes a line to the console, which the host keeps."""
    print(f"manalab-agent: {text}", flush=True)


def find_port():
    """Waits for the virtio-serial port of our name and returns its device path."""
    base = "/sys/class/virtio-ports"
    for _ in range(3000):
        try:
            names = os.listdir(base)
        except FileNotFoundError:
            names = []
        for name in names:
            try:
                with open(f"{base}/{name}/name", encoding="ascii") as file:
                    if file.read().strip() == PORT_NAME:
                        return f"/dev/{name}"
            except OSError:
                continue
        time.sleep(0.01)
    raise SystemExit("manalab-agent: there is no virtio-serial port")


class Command:
    """A process with its pipes. It is over when it has ended and its output is read."""

    def __init__(self, ident, pid, pidfd, stdin, outputs, pty):
        self.ident = ident
        self.pid = pid
        self.pidfd = pidfd
        self.stdin = stdin
        self.outputs = outputs  # fd -> frame type
        self.pty = pty
        self.pending = bytearray()
        self.stdin_end = False
        self.status = None


class Agent:
    """The port, the commands, and the selector over both."""

    def __init__(self, port):
        self.port = port
        self.selector = selectors.DefaultSelector()
        self.selector.register(port, selectors.EVENT_READ, ("port", None))
        self.inbox = bytearray()
        self.outbox = bytearray()
        self.commands = {}
        self.acked = False
        self.paused = False
        self.boot = open("/proc/sys/kernel/random/boot_id", encoding="ascii").read().strip()

    # -- the port

    def send(self, kind, ident, payload=b""):
        self.outbox += HEADER.pack(MAGIC, kind, ident, len(payload)) + payload
        self.flush()

    def flush(self):
        while self.outbox:
            try:
                done = os.write(self.port, self.outbox[:32768])
            except BlockingIOError:
                break
            except OSError as error:  # the host is not there
                if error.errno in (errno.EPIPE, errno.ENODEV, errno.EIO):
                    break
                raise
            if done <= 0:
                break
            del self.outbox[:done]
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.outbox else 0)
        self.selector.modify(self.port, wanted, ("port", None))
        full = len(self.outbox) > HIGH_WATER
        if full != self.paused:
            self.paused = full
            for command in self.commands.values():
                for fd in command.outputs:
                    if full:
                        self.selector.unregister(fd)
                    else:
                        self.selector.register(fd, selectors.EVENT_READ, ("out", command))

    def hello(self):
        release = os.uname().release
        self.send(HELLO, 0, json.dumps({"boot": self.boot, "kernel": release}).encode())

    def receive(self):
        try:
            data = os.read(self.port, CHUNK)
        except BlockingIOError:
            return
        if not data:  # the host's end is closed; it may come back
            self.acked = False
            self.inbox.clear()
            time.sleep(0.05)
            return
        self.inbox += data
        while True:
            start = self.inbox.find(MAGIC)
            if start < 0:
                del self.inbox[:-3]
                return
            del self.inbox[:start]
            if len(self.inbox) < HEADER.size:
                return
            _, kind, ident, length = HEADER.unpack_from(self.inbox)
            if not 0 <= length <= 2 * HIGH_WATER:
                del self.inbox[:1]
                continue
            if len(self.inbox) < HEADER.size + length:
                return
            payload = bytes(self.inbox[HEADER.size:HEADER.size + length])
            del self.inbox[:HEADER.size + length]
            self.handle(kind, ident, payload)

    def handle(self, kind, ident, payload):
        command = self.commands.get(ident)
        if kind == ACK:
            self.acked = True
        elif kind == START:
            try:
                self.start(ident, json.loads(payload))
            except (OSError, ValueError, KeyError, TypeError) as error:
                self.send(STDERR, ident, f"manalab-agent: {error}\n".encode())
                self.send(EXIT, ident, struct.pack("<i", 126))
        elif kind == REBOOT:
            os.sync()
            self.reboot()
        elif command is None:
            return
        elif kind == STDIN:
            command.pending += payload
            self.feed(command)
        elif kind == STDIN_END:
            command.stdin_end = True
            self.feed(command)
        elif kind == KILL:
            try:
                os.killpg(command.pid, struct.unpack("<i", payload)[0])
            except (ProcessLookupError, PermissionError):
                pass
        elif kind == WINSIZE and command.pty:
            rows, columns = struct.unpack("<HH", payload)
            set_size(command.stdin, rows, columns)

    @staticmethod
    def reboot():
        """reboot(2) itself: drivers get their shutdown call, no init system is needed."""
        import ctypes
        ctypes.CDLL(None).reboot(0x01234567)

    # -- commands

    def start(self, ident, request):
        argv = request["argv"]
        if request.get("pty"):
            parent, child = os.openpty()
            set_size(parent, *request["pty"])
            ends = (child, child, child)
            stdin, outputs = parent, {parent: STDOUT}
        else:
            in_read, stdin = os.pipe()
            out_read, out_write = os.pipe()
            err_read, err_write = os.pipe()
            ends = (in_read, out_write, err_write)
            outputs = {out_read: STDOUT, err_read: STDERR}
        failed_read, failed_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            self.child(argv, request, ends, failed_write)
        for fd in set(ends) | {failed_write}:
            os.close(fd)
        failure = os.read(failed_read, 4096)
        os.close(failed_read)
        if failure:
            os.waitpid(pid, 0)
            for fd in set(outputs) | {stdin}:
                os.close(fd)
            self.send(STDERR, ident, failure)
            self.send(EXIT, ident, struct.pack("<i", 127))
            return
        pidfd = os.pidfd_open(pid)
        command = Command(ident, pid, pidfd, stdin, outputs, bool(request.get("pty")))
        self.commands[ident] = command
        os.set_blocking(stdin, False)
        self.selector.register(pidfd, selectors.EVENT_READ, ("exit", command))
        for fd in outputs:
            os.set_blocking(fd, False)
            if not self.paused:
                self.selector.register(fd, selectors.EVENT_READ, ("out", command))

    @staticmethod
    def child(argv, request, ends, failed):
        """Between fork and exec. Says on `failed` what went wrong, if anything did."""
        try:
            os.setsid()
            for target, fd in enumerate(ends):
                os.dup2(fd, target, inheritable=True)
            if request.get("pty"):
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            for signum in (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM):
                signal.signal(signum, signal.SIG_DFL)
            os.chdir(request.get("cwd") or "/root")
            env = dict(os.environ)
            env.update(request.get("env") or {})
            os.execvpe(argv[0], argv, env)
        except BaseException as error:  # this process must never return to the agent's loop
            text = f"{argv[0] if argv else '?'}: {getattr(error, 'strerror', None) or error}\n"
            os.write(failed, text.encode(errors="replace"))
        finally:
            os._exit(127)

    def feed(self, command):
        """Moves pending input to the command; closes its stdin when the host has ended it."""
        if command.stdin is None:
            command.pending.clear()
            return
        blocked = False
        while command.pending:
            try:
                done = os.write(command.stdin, command.pending[:CHUNK])
                del command.pending[:done]
            except BlockingIOError:
                blocked = True
                break
            except OSError:
                command.pending.clear()
                command.stdin_end = not command.pty
        if command.pty:
            if command.stdin_end and not command.pending:
                command.stdin_end = False
                os.write(command.stdin, b"\x04")
            return
        key = self.selector.get_map().get(command.stdin)
        if blocked and key is None:
            self.selector.register(command.stdin, selectors.EVENT_WRITE, ("in", command))
        elif not blocked and key is not None:
            self.selector.unregister(command.stdin)
        if command.stdin_end and not command.pending:
            os.close(command.stdin)
            command.stdin = None

    def drain(self, command, fd):
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return
        except OSError:  # EIO: the last process closed the terminal
            data = b""
        if data:
            self.send(command.outputs[fd], command.ident, data)
            return
        self.close_output(command, fd)

    def close_output(self, command, fd):
        if fd in self.selector.get_map():
            self.selector.unregister(fd)
        del command.outputs[fd]
        if fd == command.stdin:
            command.stdin = None
        os.close(fd)
        self.finish(command)

    def reap(self, command):
        """The process has ended. What is in its pipes is read at once; a child that it left in the
        background and that holds them does not keep the command open."""
        self.selector.unregister(command.pidfd)
        os.close(command.pidfd)
        _, status = os.waitpid(command.pid, 0)
        command.status = os.waitstatus_to_exitcode(status)
        for fd in list(command.outputs):
            while True:
                try:
                    data = os.read(fd, CHUNK)
                except OSError:  # nothing more now, or EIO: the terminal is closed
                    data = b""
                if not data:
                    break
                self.send(command.outputs[fd], command.ident, data)
            self.close_output(command, fd)
        self.finish(command)

    def finish(self, command):
        if command.outputs or command.status is None or command.ident not in self.commands:
            return
        del self.commands[command.ident]
        if command.stdin is not None:
            if command.stdin in self.selector.get_map():
                self.selector.unregister(command.stdin)
            os.close(command.stdin)
            command.stdin = None
        self.send(EXIT, command.ident, struct.pack("<i", command.status))

    def loop(self):
        """Serves for ever. Says hello again until the host has answered."""
        while True:
            if not self.acked and not self.outbox:
                self.hello()
            for key, mask in self.selector.select(None if self.acked else 1.0):
                what, command = key.data
                if key.fd not in self.selector.get_map():
                    continue  # closed by an earlier event of this round
                if what == "port":
                    if mask & selectors.EVENT_WRITE:
                        self.flush()
                    if mask & selectors.EVENT_READ:
                        self.receive()
                elif what == "out":
                    self.drain(command, key.fd)
                elif what == "in":
                    self.feed(command)
                elif what == "exit":
                    self.reap(command)


def set_size(fd, rows, columns):
    """Sets the window size of a terminal."""
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("<HHHH", rows, columns, 0, 0))


def interface_up(name):
    """ip link set NAME up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = bytearray(struct.pack("<16sH22x", name.encode(), 0))
        flags = struct.unpack_from("<16sH", fcntl.ioctl(sock, 0x8913, bytes(request)))[1]
        struct.pack_into("<16sH", request, 0, name.encode(), flags | 1)
        fcntl.ioctl(sock, 0x8914, bytes(request))


def main():
    options = {}
    with open("/proc/cmdline", encoding="ascii", errors="replace") as file:
        for word in file.read().split():
            key, _, value = word.partition("=")
            options[key] = value
    socket.sethostname(options.get("manalab.name", "guest"))
    interface_up("lo")
    path = find_port()
    port = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    log("ready")
    Agent(port).loop()


if __name__ == "__main__":
    sys.exit(main())

"""Runs an untrusted program in a kernel sandbox: `python -I -S walls.py SETTINGS PROGRAM ARGUMENT...` restricts itself and then
executes the program, which cannot undo any of the restrictions:

    end         with the thread that starts it                                              (prctl)
    limits      no core file, no byte written to a file, bounded memory and processor time      (setrlimit)
    files       only the named ones can be opened                                               (Landlock, Linux 5.13)
    syscalls    no socket, no new process, no signal to and no access to another process        (seccomp, Linux 3.5)

Parts that the system lacks are skipped. This uses only the standard library: it starts for every answer, without site-packages.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import struct
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

LIBC = ctypes.CDLL(None, use_errno=True)
PARENT_DEATH, NO_NEW_PRIVS, SET_SECCOMP, FILTER_MODE = 1, 38, 22, 2
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
EXECUTE, READ_FILE, READ_DIR = 1 << 0, 1 << 2, 1 << 3
FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
"""The number of file access rights in each Landlock version, by the version that added them."""
DENIED: Mapping[str, tuple[int, int]] = {
    "socket": (41, 198), "io_uring_setup": (425, 425), "kill": (62, 129), "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "add_key": (248, 217),
    "keyctl": (250, 219), "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
    "fork": (57, -1), "vfork": (58, -1),
}  # fmt: skip
"""System calls that fail with "not permitted": numbers on x86_64 and aarch64, -1 for none."""
MACHINES: Mapping[str, tuple[int, int, int, int, int, int]] = {
    "x86_64": (0, 0xC000003E, 56, 435, 234, 53),
    "aarch64": (1, 0xC00000B7, 220, 435, 131, 199),
}
"""By machine: column of DENIED, the kernel's architecture value, numbers of clone, clone3, tgkill and socketpair."""
CLONE_THREAD, X32, NOT_A_STREAM = 0x10000, 0x40000000, 0xE
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
NUMBER_AT, MACHINE_AT, FIRST_ARGUMENT_AT, SECOND_ARGUMENT_AT = 0, 4, 16, 24

Step = tuple[int, int, int, int]
"""A filter instruction: code, instructions to skip if true and if false, operand."""


def set_limits(limits: Mapping[str, int]) -> bool:
    """Set resource limits; those that the system lacks, or has set lower, are skipped."""
    import resource  # not on Windows, which has no sandbox here

    for name, value in limits.items():
        with suppress(ValueError, OSError):
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    return True


def restrict_files(readable: Sequence[str]) -> bool:
    """Allow only paths below the readable ones to be opened, for reading and executing."""
    version = landlock_version()
    if version < 1:
        return False
    rights = (1 << max(count for since, count in FILE_RIGHTS.items() if since <= version)) - 1
    ruleset = LIBC.syscall(CREATE_RULESET, struct.pack("Q", rights), 8, 0)
    for path in readable:
        with suppress(OSError):
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
            allowed = EXECUTE | READ_FILE | (READ_DIR if os.path.isdir(path) else 0)  # noqa: PTH112  pathlib takes 10 ms
            LIBC.syscall(ADD_RULE, ruleset, 1, struct.pack("=Qi", allowed, opened), 0)
            os.close(opened)
    return _control(NO_NEW_PRIVS, 1, None) and LIBC.syscall(RESTRICT_SELF, ruleset, 0) == 0


def filter_syscalls() -> bool:
    """Let the kernel answer the system calls in DENIED with "not permitted"."""
    machine = MACHINES.get(os.uname().machine) if sys.platform == "linux" else None
    if machine is None or not _control(NO_NEW_PRIVS, 1, None):
        return False
    steps = b"".join(struct.pack("HBBI", *step) for step in program(machine, os.getpid()))
    kept = ctypes.create_string_buffer(steps)
    return _control(SET_SECCOMP, FILTER_MODE, struct.pack("HP", len(steps) // 8, ctypes.addressof(kept)))


def program(machine: tuple[int, int, int, int, int, int], process: int) -> list[Step]:
    """Return the filter program. It allows threads, signals to the process itself, and a connected pair of stream sockets,
    which deno uses to wake up (datagrams could be sent elsewhere).
    """
    column, architecture, clone, clone3, tgkill, socketpair = machine
    refused = ERRNO | errno.EPERM
    denied = [numbers[column] for numbers in DENIED.values() if numbers[column] >= 0]
    return [
        *((LOAD, 0, 0, MACHINE_AT), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER_AT)),
        *_where(AT_LEAST, X32, refused),  # x86_64's second table, under other numbers
        *(step for number in denied for step in _where(EQUAL, number, refused)),
        *_where(EQUAL, clone3, ERRNO | errno.ENOSYS),  # its flags are in memory; libc then uses clone
        *_by_argument(clone, FIRST_ARGUMENT_AT, _where(ANY_BIT, CLONE_THREAD, ALLOW), refused),
        *_by_argument(socketpair, SECOND_ARGUMENT_AT, _where(ANY_BIT, NOT_A_STREAM, refused), ALLOW),
        *_by_argument(tgkill, FIRST_ARGUMENT_AT, _where(EQUAL, process, ALLOW), refused),
        (RETURN, 0, 0, ALLOW),
    ]


def _where(test: int, operand: int, answer: int) -> tuple[Step, Step]:
    return (test, 0, 1, operand), (RETURN, 0, 0, answer)


def _by_argument(call: int, at: int, test: tuple[Step, Step], otherwise: int) -> list[Step]:
    return [(EQUAL, 0, 4, call), (LOAD, 0, 0, at), *test, (RETURN, 0, 0, otherwise)]


def landlock_version() -> int:
    """Return the version of Landlock, 0 for none."""
    return max(0, LIBC.syscall(CREATE_RULESET, None, 0, 1)) if sys.platform == "linux" else 0


def _control(option: int, value: int, more: bytes | None) -> bool:
    nothing = ctypes.c_ulong(0)
    return bool(LIBC.prctl(option, ctypes.c_ulong(value), more, nothing, nothing) == 0)


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    if sys.platform == "linux":
        _control(PARENT_DEATH, 9, None)  # SIGKILL
    built = {
        "limits": set_limits(settings["limits"]),
        "files": restrict_files(settings["read"]),
        "syscalls": filter_syscalls(),
    }
    if sys.argv[2:]:
        os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606  that is what it is for
    sys.stdout.write(" ".join(name for name, is_built in built.items() if is_built))

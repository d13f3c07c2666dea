"""Walls of the kernel around a program of a stranger: `python -I -S walls.py SETTINGS PROGRAM ARGUMENT...` builds them around
itself and becomes the program. They rest on nothing that the program could be talked out of:

    limits      no core file, no byte written to a file, bounded memory and processor time      (setrlimit)
    files       but those named, none can be opened; no TCP port, no abstract socket            (Landlock, Linux 5.13)
    syscalls    no socket, no process, no signal to another one, no look into another one       (seccomp, Linux 3.5)

A wall that the system does not have is left out; `build_walls` tells which there are. By ctypes, since what the package index
has for seccomp is under the LGPL and needs a library of the system's, and a third of what it offers for Landlock. Standard
library alone: it starts once an answer, without site-packages.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to load than all the rest
    from typing import Any

NO_NEW_PRIVS, SET_SECCOMP, FILTER_MODE = 38, 22, 2
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
EXECUTE, READ_FILE, READ_DIR = 1 << 0, 1 << 2, 1 << 3
FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
"""How many kinds of access to files a version of Landlock knows, from the version that brought them on."""
DENIED: Mapping[str, tuple[int, int]] = {
    "socket": (41, 198), "io_uring_setup": (425, 425), "kill": (62, 129), "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "add_key": (248, 217),
    "keyctl": (250, 219), "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
    "fork": (57, -1), "vfork": (58, -1),
}  # fmt: skip
"""System calls that are answered with "not permitted": numbers on x86_64 and aarch64, where -1 is none."""
MACHINES: Mapping[str, tuple[int, int, int, int, int, int]] = {
    "x86_64": (0, 0xC000003E, 56, 435, 234, 53),
    "aarch64": (1, 0xC00000B7, 220, 435, 131, 199),
}
"""Column of DENIED, the kernel's word for the machine, numbers of clone, clone3, tgkill and socketpair."""
CLONE_THREAD, X32, NOT_A_STREAM = 0x10000, 0x40000000, 0xE
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
NUMBER_AT, MACHINE_AT, FIRST_ARGUMENT_AT, SECOND_ARGUMENT_AT = 0, 4, 16, 24

Step = tuple[int, int, int, int]
"""An instruction of a filter: code, steps to jump over if true and if false, operand."""


def build_walls(settings: Mapping[str, Any]) -> list[str]:
    """Build the walls around this process and return the names of those that stand."""
    built: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
        "limits": set_limits,
        "files": restrict_files,
        "syscalls": filter_syscalls,
    }
    return [name for name, build in built.items() if build(settings)]


def set_limits(settings: Mapping[str, Any]) -> bool:
    """Set `memory_bytes` of data and `cpu_s` seconds; a limit that the system lacks, or has lower, is passed over."""
    try:
        import resource
    except ImportError:  # Windows
        return False
    wanted = {"CORE": 0, "FSIZE": 0, "DATA": settings["memory_bytes"], "CPU": settings["cpu_s"]}
    for name, value in wanted.items():
        with suppress(ValueError, OSError):
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    return True


def restrict_files(settings: Mapping[str, Any]) -> bool:
    """Let nothing be opened but what lies below the paths in `read`, for reading and for running."""
    call, version = _system_call(), _landlock_version()
    if version < 1:
        return False
    rights = (1 << max(count for since, count in FILE_RIGHTS.items() if since <= version)) - 1
    ports, scoped = (3 if version >= 4 else 0), (3 if version >= 6 else 0)
    attributes = struct.pack("QQQ", rights, ports, scoped)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    ruleset = call(CREATE_RULESET, attributes, len(attributes), 0)
    if ruleset < 0:
        return False
    for path in settings["read"]:
        with suppress(OSError):
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
            allowed = EXECUTE | READ_FILE | (READ_DIR if os.path.isdir(path) else 0)  # noqa: PTH112  pathlib takes 10 ms
            call(ADD_RULE, ruleset, 1, struct.pack("=Qi", allowed, opened), 0)
            os.close(opened)
    return _no_new_privileges() and call(RESTRICT_SELF, ruleset, 0) == 0


def filter_syscalls(settings: Mapping[str, Any]) -> bool:  # noqa: ARG001  as the others
    """Let the kernel answer the system calls in DENIED with "not permitted"."""
    machine = MACHINES.get(os.uname().machine) if sys.platform == "linux" else None
    if machine is None or not _no_new_privileges():
        return False
    steps = b"".join(struct.pack("HBBI", *step) for step in program(machine, os.getpid()))
    kept = ctypes.create_string_buffer(steps)
    filters = struct.pack("HP", len(steps) // 8, ctypes.addressof(kept))
    return _control(SET_SECCOMP, FILTER_MODE, filters) == 0


def program(machine: tuple[int, int, int, int, int, int], process: int) -> list[Step]:
    """Return the filter for a machine; a process may start threads, signal itself and have a pair of connected sockets, which
    Deno wakes up by: as a stream, since a datagram can be sent elsewhere. Nothing else of the kind.
    """
    column, architecture, clone, clone3, tgkill, socketpair = machine
    denied = [numbers[column] for numbers in DENIED.values() if numbers[column] >= 0]
    return [
        (LOAD, 0, 0, MACHINE_AT),
        (EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER_AT),
        *_where((AT_LEAST, X32), ERRNO | errno.EPERM),  # x86_64's second table, under other numbers
        *(step for number in denied for step in _where((EQUAL, number), ERRNO | errno.EPERM)),
        *_where((EQUAL, clone3), ERRNO | errno.ENOSYS),  # its flags lie in memory; the C library then takes clone
        (EQUAL, 0, 4, clone),
        (LOAD, 0, 0, FIRST_ARGUMENT_AT),
        (ANY_BIT, 0, 1, CLONE_THREAD),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, ERRNO | errno.EPERM),
        (EQUAL, 0, 4, socketpair),
        (LOAD, 0, 0, SECOND_ARGUMENT_AT),
        (ANY_BIT, 0, 1, NOT_A_STREAM),
        (RETURN, 0, 0, ERRNO | errno.EPERM),
        (RETURN, 0, 0, ALLOW),
        (EQUAL, 0, 3, tgkill),
        (LOAD, 0, 0, FIRST_ARGUMENT_AT),
        (EQUAL, 1, 0, process),
        (RETURN, 0, 0, ERRNO | errno.EPERM),
        (RETURN, 0, 0, ALLOW),
    ]


def _where(test: tuple[int, int], answer: int) -> Iterable[Step]:
    return (test[0], 0, 1, test[1]), (RETURN, 0, 0, answer)


def _system_call() -> Callable[..., int]:
    call: Callable[..., int] = ctypes.CDLL(None, use_errno=True).syscall
    return call


def _landlock_version() -> int:
    return _system_call()(CREATE_RULESET, None, 0, 1) if sys.platform == "linux" else 0


def _no_new_privileges() -> bool:
    return _control(NO_NEW_PRIVS, 1, None) == 0


def _control(option: int, value: int, more: bytes | None) -> int:
    control: Callable[..., int] = ctypes.CDLL(None, use_errno=True).prctl
    return control(option, ctypes.c_ulong(value), more, ctypes.c_ulong(0), ctypes.c_ulong(0))


def main(words: list[str]) -> None:
    """Build the walls and become the program; without one, write the names of those that stand."""
    walls = build_walls(json.loads(words[0]))
    if words[1:]:
        os.execv(words[1], words[1:])  # noqa: S606  that is what it is for
    sys.stdout.write(" ".join(walls))


if __name__ == "__main__":
    main(sys.argv[1:])

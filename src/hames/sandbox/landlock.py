"""Landlock: a process gives up what it may do with files, for itself and all that it starts (landlock(7)).

Rule 1: standard library only; `restrict` runs between fork and exec, and waits for nothing.
Rule 2: what is not allowed by a rule is refused, of every right that this kernel knows. What the kernel has no right
for (modes, owners, times, socket files) stays as it is.
Rule 3: either all of it took hold, or there is an error: the caller does not go on then.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any

SYS_CREATE_RULESET, SYS_ADD_RULE, SYS_RESTRICT_SELF = 444, 445, 446
"""The same on every machine but Alpha."""

CREATE_RULESET_VERSION = 1
RULE_PATH_BENEATH = 1

PR_SET_NO_NEW_PRIVS = 38
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
SECCOMP_MODE_FILTER = 2
CAPABILITY_VERSION_3 = 0x20080522
MOST_CAPABILITIES = 64

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_CHAR, MAKE_BLOCK = 1 << 6, 1 << 11
IOCTL_DEV = 1 << 15
BIND_TCP, CONNECT_TCP = 1 << 0, 1 << 1
SCOPE_ABSTRACT_SOCKET, SCOPE_SIGNAL = 1 << 0, 1 << 1

KNOWN = ((1, (1 << 13) - 1), (2, 1 << 13), (3, 1 << 14), (5, IOCTL_DEV))
"""Rights on files by the version that brought them: the first thirteen, REFER, TRUNCATE, IOCTL_DEV."""

READ = EXECUTE | READ_FILE | READ_DIR
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | 1 << 14 | IOCTL_DEV
"""What a rule on something that is no directory may allow."""

CALLS = {"x86_64": (0xC000003E, 41, 302), "aarch64": (0xC00000B7, 198, 261)}
"""The kernel's name of the machine (linux/audit.h), and the numbers of `socket` and `prlimit64` there."""

IO_URING_SETUP = 425
"""Makes a ring through which a socket can be asked for as well."""

X32 = 0x40000000
"""Set in the numbers of calls of another kind of program on x86_64."""


def abi() -> int:
    """The version that this kernel has; 0 where it has none, or does not use it."""
    with suppress(OSError):
        return _syscall(SYS_CREATE_RULESET, None, 0, CREATE_RULESET_VERSION)
    return 0


def can_filter() -> bool:
    """Whether `restrict` can refuse system calls on this machine: sockets, and limits of other processes."""
    return os.uname().machine in CALLS


class Ruleset:
    """Rules for `restrict`: pairs of what may be done (see `_rights`), and the path or the descriptor of a directory
    beneath which. A path that is not there, or is a link, is left out. Without `network` TCP is ruled out as well.

    It closes itself when nobody refers to it any more: a command may wait to be handed over while others get new rules,
    and a number that is used again would give it the rules of another session.

    Raises:
        OSError: this kernel cannot do it.
    """

    def __init__(self, rules: Iterable[tuple[str, str | int]], *, network: bool) -> None:
        self.fd = -1
        version = abi()
        if version < 1:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        files = sum(rights for since, rights in KNOWN if version >= since)
        net = BIND_TCP | CONNECT_TCP if version >= 4 and not network else 0
        scoped = SCOPE_ABSTRACT_SOCKET | SCOPE_SIGNAL if version >= 6 else 0
        size = 24 if version >= 6 else 16 if version >= 4 else 8
        attributes = struct.pack("=QQQ", files, net, scoped)[:size]
        self.fd = _syscall(SYS_CREATE_RULESET, attributes, size, 0)
        for word, place in rules:
            _allow(self.fd, place, _rights(word) & files)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


def restrict(rules: int, *, network: bool) -> None:
    """Restrict the calling process to `rules`. It has no capability afterwards, and without `network` gets no socket.
    Where calls can be refused, it sets no limits of other processes, which could end them.

    Raises:
        OSError: this kernel cannot do it.
    """
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    _syscall(SYS_RESTRICT_SELF, rules, 0)
    _drop_capabilities()
    machine = CALLS.get(os.uname().machine)
    if machine is not None:
        _refuse_calls(b"".join(_filter(*machine, network=network)))
    elif not network:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


def _rights(word: str) -> int:
    """What a rule allows: to `read`, to `write` as well, or to use a `device`."""
    if word == "read":
        return READ
    if word == "device":
        return READ_FILE | WRITE_FILE | READ_DIR | IOCTL_DEV
    everything = sum(rights for _, rights in KNOWN)
    return everything & ~(MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV)


def _allow(made: int, place: str | int, rights: int) -> None:
    if isinstance(place, int):
        _add(made, place, rights)
        return
    try:
        descriptor = os.open(place, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        _add(made, descriptor, rights)
    finally:
        os.close(descriptor)


def _add(made: int, descriptor: int, rights: int) -> None:
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISLNK(mode):
        rights = rights if stat.S_ISDIR(mode) else rights & OF_FILES
        _syscall(SYS_ADD_RULE, made, RULE_PATH_BENEATH, struct.pack("=Qi", rights, descriptor), 0)


def _drop_capabilities() -> None:
    """None now, and none by a program that root starts: with them, what other processes hold can be read."""
    for capability in range(MOST_CAPABILITIES):
        try:
            _prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            # There is no such one, or there is no right to drop any, and then none to be had.
            break
    with suppress(OSError):
        _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    if _libc().capset(struct.pack("=Ii", CAPABILITY_VERSION_3, 0), struct.pack("=6I", *[0] * 6)) != 0:
        raise _error()


def _refuse_calls(program: bytes) -> None:
    """Have the kernel look at every system call from here on: Landlock itself knows sockets of TCP alone."""
    import ctypes

    instructions = ctypes.create_string_buffer(program)
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions)))
    _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(header))


def _filter(machine: int, socket_call: int, limit_call: int, *, network: bool) -> Iterator[bytes]:
    """A filter of system calls (seccomp(2)): load, compare and jump, return, as the kernel reads them. It ends with
    `refuse`, then `allow`; a jump says how many instructions it leaves out."""
    load, equal, at_least, give = 0x20, 0x15, 0x35, 0x06
    refuse, allow = 0x00050000 | errno.EACCES, 0x7FFF0000
    refused = () if network else (socket_call, IO_URING_SETUP)
    yield _instruction(load, 0, 0, 4)
    yield _instruction(equal, 0, 5 + len(refused), machine)
    yield _instruction(load, 0, 0, 0)
    yield _instruction(at_least, 3 + len(refused), 0, X32)
    for left, call in zip(range(len(refused), 0, -1), refused, strict=True):
        yield _instruction(equal, 2 + left, 0, call)
    yield _instruction(equal, 0, 3, limit_call)
    yield _instruction(load, 0, 0, 16)
    yield _instruction(equal, 1, 0, 0)
    yield _instruction(give, 0, 0, refuse)
    yield _instruction(give, 0, 0, allow)


def _instruction(code: int, if_true: int, if_false: int, value: int) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


@cache
def _libc() -> Any:
    # Late: it is loaded in the reaper, and not needed where Hames only imports this.
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def _syscall(number: int, *arguments: int | bytes | None) -> int:
    import ctypes

    # Of no type, an argument would be taken for one of 32 bits.
    wide = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result = int(_libc().syscall(ctypes.c_long(number), *wide))
    if result < 0:
        raise _error()
    return result


def _prctl(option: int, *arguments: int) -> None:
    import ctypes

    wide = [ctypes.c_ulong(each) for each in (*arguments, 0, 0, 0)[:4]]
    if _libc().prctl(option, *wide) != 0:
        raise _error()


def _error() -> OSError:
    import ctypes

    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))

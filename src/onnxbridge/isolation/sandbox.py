"""Confines this process by what the operating system has: limits of resources, no network, no other programs, no other files.

Each measure that the system lacks is left out; `confine` returns those that hold. Nothing here is undone before the process ends.
Sources: Linux' man pages setrlimit(2), unshare(2), landlock(7), seccomp(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import sys
from collections.abc import Iterable
from typing import Any

_NEW_USER, _NEW_NET = 0x10000000, 0x40000000  # of unshare(2)
_THREAD = 0x00010000  # CLONE_THREAD
_SYSTEM = (
    "/usr", "/lib", "/lib64", "/bin", "/opt", "/nix/store", "/sys", "/etc/ld.so.cache", "/etc/localtime", "/dev/zero",
    "/dev/urandom", "/dev/random",
    *(f"/proc/{name}" for name in ("cpuinfo", "filesystems", "meminfo", "mounts", "stat", "sys", "version")),
)  # fmt: skip
"""What libraries read when they are loaded: other libraries, the number of cores, sources of random numbers."""
_DEVICES = ("/dev/null", "/dev/nvidia*", "/dev/dri", "/dev/kfd")
"""What is written too: accelerators are devices."""
_REFUSED_CALLS = (
    "execve", "execveat", "fork", "vfork", "socket", "socketpair", "connect", "bind", "listen", "accept", "accept4", "ptrace",
    "process_vm_readv", "process_vm_writev", "kill", "tkill", "pidfd_open", "pidfd_send_signal", "mount", "umount2", "pivot_root",
    "chroot", "setns", "unshare", "bpf", "perf_event_open", "keyctl", "add_key", "request_key", "io_uring_setup", "userfaultfd",
    "init_module", "finit_module", "delete_module", "kexec_load", "reboot", "swapon", "swapoff", "sethostname",
    "open_by_handle_at", "mknod", "mknodat", "quotactl", "acct", "iopl", "ioperm", "settimeofday", "clock_settime", "personality",
)  # fmt: skip
"""Calls for other programs and processes, the network and the system itself, which no computation needs."""


def confine(read: Iterable[str], write: Iterable[str], memory: int, file_size: int, cpu_seconds: float) -> list[str]:
    """Confine this process, before it starts threads and imports what needs them.

    Args:
        read: the files and folders that may be read, beside the system's own and those that Python imports from.
        write: the folders that may be written.
        memory: bytes of memory, without files that are mapped.
        file_size: bytes of the largest file that may be written.
        cpu_seconds: seconds of processor time.

    Returns:
        The measures that are in force: "limits", "network", "files", "calls".
    """
    held = []
    if _limit(memory, file_size, cpu_seconds):
        held.append("limits")
    if not sys.platform.startswith("linux"):
        return held
    if _leave_network():
        held.append("network")
    if _restrict_files([*read, *write], write):
        held.append("files")
    if _restrict_calls():
        held.append("calls")
    return held


def _limit(memory: int, file_size: int, cpu_seconds: float) -> bool:
    try:
        import resource
    except ImportError:  # Windows
        return False
    seconds = max(1, round(cpu_seconds))
    for kind, value in (
        (resource.RLIMIT_DATA, memory), (resource.RLIMIT_FSIZE, file_size), (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_CORE, 0),
    ):  # fmt: skip
        _, most = resource.getrlimit(kind)
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (value, value))
    return True


def _leave_network() -> bool:
    """Enter a network namespace without interfaces: as root, or in a new user namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.unshare(_NEW_NET) == 0 or libc.unshare(_NEW_USER | _NEW_NET) == 0)


def _restrict_files(read: Iterable[str], write: Iterable[str]) -> bool:
    """Allow only these files, by Landlock (Linux 5.13)."""
    try:
        from landlock import FSAccess, Ruleset

        rules = Ruleset()
    except Exception:  # not installed, or not in this kernel
        return False
    reading = FSAccess.READ_FILE | FSAccess.READ_DIR | FSAccess.EXECUTE
    libraries = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if path]
    own = [f"/proc/{os.getpid()}", sys.prefix, sys.base_prefix, *sys.path, os.path.dirname(os.path.dirname(__file__)), *libraries]
    for path in dict.fromkeys([*_SYSTEM, *own, *read]):
        _allow(rules, path, reading, FSAccess)
    for path in dict.fromkeys([*(path for pattern in _DEVICES for path in glob.glob(pattern)), *write]):
        _allow(rules, path, FSAccess.all(), FSAccess)
    for path in write:  # so that the process can remove its folder once its parent has ended: only empty folders
        _allow(rules, os.path.dirname(path), FSAccess.REMOVE_DIR, FSAccess)
    rules.apply()
    return True


def _allow(rules: Any, path: str, access: Any, kinds: Any) -> None:
    with contextlib.suppress(OSError):
        rules.allow(path, rules=access if os.path.isdir(path) else access & kinds.all_file())


def _restrict_calls() -> bool:
    """Refuse system calls that no computation needs, by seccomp: they fail as if there were no permission."""
    try:
        import pyseccomp as seccomp

        filter = seccomp.SyscallFilter(seccomp.ALLOW)
        refused = seccomp.ERRNO(1)  # EPERM
        for name in _REFUSED_CALLS:
            with contextlib.suppress(OSError, ValueError):  # this processor has no such call
                filter.add_rule(refused, name)
        filter.add_rule(refused, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, _THREAD, 0))  # processes, not threads
        filter.add_rule(seccomp.ERRNO(38), "clone3")  # ENOSYS: the C library uses clone instead
        filter.load()
    except Exception:  # not installed, or not in this kernel
        return False
    return True

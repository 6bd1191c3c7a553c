"""Calls of the kernel that no program of the policy needs, and a filter (seccomp) that refuses them.

They make namespaces and mounts, in which a user is root and files are bounded by nothing, look into other processes, or
are large parts of the kernel that a program of sums and texts has no use for.
"""

from __future__ import annotations

import platform
import struct

_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""What the kernel calls a machine, and the column of its numbers below."""
_REFUSED = {
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219),
}  # fmt: skip
_LOAD, _EQUAL, _ABOVE, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _EPERM = 0x7FFF0000, 0x00050001
_X32 = 0x40000000  # the second table of numbers that x86_64 has


def refusals() -> bytes:
    """The filter for this machine, as prctl takes it; nothing where its numbers are not known."""
    if platform.machine() not in _MACHINES:
        return b""
    machine, column = _MACHINES[platform.machine()]
    numbers = [numbers[column] for numbers in _REFUSED.values()]
    lines = [(_LOAD, 0, 0, 4), (_EQUAL, 0, len(numbers) + 3, machine), (_LOAD, 0, 0, 0)]
    lines += [(_ABOVE, len(numbers) + 1, 0, _X32)]
    lines += [(_EQUAL, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
    lines += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _EPERM)]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)

"""The layout of a table of kernel calls, which the compiled driver reads, and of the numbers that its threads share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

KERNEL, FORM, UNITS, ARGUMENTS, WIDTH = 0, 1, 2, 3, 20
"""A row: the kernel's address, the form of its arguments, how many pieces there are, and the arguments, float32 by their bits."""

FORMS = (
    "iii", "iiii", "iiiiii", "iiiiiiiii", "iiiu", "iiiiu", "iiiiiu", "iiiiiiu", "iiiiiiiiu", "iiiiiiiiiiiu",
    "iiiiiiiiiiiiiiu", "iiiiiifu", "iiiiiiifu", "iiiiiiiifu", "iiiiiiiffu", "iiiiiiiiffu", "iiiiiiiiiiffu", "iiiiiffffu",
    "iiiiiiiiffffu", "iiiiiiiiiffffu", "iiiifffffu",
)  # fmt: skip
"""What kernels take: integers (i, addresses too) and float32 (f); u where the work comes in pieces."""

TICKET, DONE, OPEN, ROW, STATE = 0, 64, 128, 192, 256
"""Offsets of the numbers that threads share, each in a cache line of its own, and the size of all."""


class Call(NamedTuple):
    """A call of a kernel: the kernel, its arguments as a row stores them, and the number of its pieces."""

    kernel: Any
    arguments: Sequence[int]
    units: int

"""Operators of two operands with broadcasting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.kernels.array_layout import Array, address, empty_like, merged
from onnxbridge.runtime.executor.kernels.compile.kernel import load_kernel
from onnxbridge.runtime.executor.kernels.run.call_recorder import int64_array
from onnxbridge.runtime.executor.kernels.run.work_partition import chunks

OPERATORS = ("Add", "Mul", "Sub", "Div")


def combined(op: str, x: Array, y: Array, pool: Pool) -> Array | None:
    """x op y in float32 in the memory order of the larger; None where more than four axes are left after merging."""
    shape = np.broadcast_shapes(x.shape, y.shape)
    if x.shape == shape:
        z = empty_like(x, pool)
    elif y.shape == shape:
        z = empty_like(y, pool)
    else:
        z = pool.empty(shape)
    axes = merged(np.broadcast_to(x, shape), np.broadcast_to(y, shape), z)
    if len(axes) > 4:
        return None
    if len(axes) == 1:  # cut for the threads
        size, dx, dy, dz = axes[0]
        chunk, units = chunks(size)
        if units > 1:
            even = size // chunk * chunk
            parts = [(0, even, chunk)] + ([(even, size - even, size - even)] if even < size else [])
            for begin, count, each in parts:
                pair = [(count // each, dx * each, dy * each, dz * each), (each, dx, dy, dz)]
                _run(op, x, y, z, pair, begin * dx, begin * dy, begin * dz)
            return z
    _run(op, x, y, z, axes, 0, 0, 0)
    return z


def _run(op: str, x: Array, y: Array, z: Array, axes: Any, dx: int, dy: int, dz: int) -> None:
    axes = [*axes[:-1][:1], *[(1, 0, 0, 0)] * (4 - len(axes)), *axes[:-1][1:], *(axes[-1:] or [(1, 0, 0, 0)])][-4:]
    columns = list(zip(*axes, strict=True))
    chunk, units = chunks(axes[0][0], math.prod(columns[0][1:]))
    spec, where = int64_array(*columns[0], *(d // 4 for column in columns[1:] for d in column), chunk)
    load_kernel("elementwise", "combined")(
        OPERATORS.index(op), address(x) + dx, address(y) + dy, address(z) + dz, where, units=units
    )

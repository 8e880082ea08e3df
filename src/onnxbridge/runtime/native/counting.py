"""Whole numbers and truth values, elementwise."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxbridge.runtime.memory import Pool
from onnxbridge.runtime.native.address import Array, address
from onnxbridge.runtime.native.build import loop
from onnxbridge.runtime.native.share import chunks

SUMS = {"Add": 0, "Sub": 1, "Mul": 2}
ORDERS = {
    "Less": (0, False), "Greater": (0, True), "LessOrEqual": (1, False), "GreaterOrEqual": (1, True), "Equal": (2, False),
}  # fmt: skip
"""The number of a comparison in the kernels, and whether its operands are exchanged."""
_NAMES = {
    np.dtype(np.int64): "long", np.dtype(np.int32): "int", np.dtype(np.float32): "float", np.dtype(bool): "octet",
}  # fmt: skip
_CASTS = {
    ("octet", "long"), ("octet", "int"), ("octet", "float"),
    ("int", "long"), ("int", "float"), ("long", "int"), ("long", "float"),
}  # fmt: skip


def counted(op: str, x: Array, y: Array, pool: Pool) -> Array | None:
    """x op y where both are of one shape, or one is a single number; None for what there is no loop for."""
    number, turned = ORDERS[op] if op in ORDERS else (SUMS[op], False)
    kind = _NAMES.get(x.dtype, "")
    if x.dtype != y.dtype or kind in ("", "octet") or (kind == "float" and op in SUMS) or not (x.size and y.size):
        return None
    if not (x.flags.c_contiguous and y.flags.c_contiguous):
        return None
    if x.shape == y.shape or (y.size == 1 and y.ndim <= x.ndim):
        shape = x.shape
    elif x.size == 1 and x.ndim <= y.ndim:
        shape = y.shape
    else:
        return None
    z = pool.empty(shape, bool if op in ORDERS else x.dtype)
    a, b = (y, x) if turned else (x, y)
    steps = [int(v.size > 1 or z.size == 1) for v in (a, b)]
    chunk, units = chunks(z.size)
    loop("counting", f"{'order' if op in ORDERS else 'sum'}_{kind}")(
        number, address(a), address(b), address(z), *steps, z.size, chunk, units=units
    )
    return z


def changed(x: Array, dtype: Any, pool: Pool) -> Array | None:
    """Whole numbers or truth values in another type; None for what there is no loop for."""
    pair = (_NAMES.get(x.dtype, ""), _NAMES.get(np.dtype(dtype), ""))
    if pair not in _CASTS or not x.size or not x.flags.c_contiguous:
        return None
    y = pool.empty(x.shape, dtype)
    chunk, units = chunks(x.size)
    loop("counting", "_".join(pair))(address(x), address(y), x.size, chunk, units=units)
    return y

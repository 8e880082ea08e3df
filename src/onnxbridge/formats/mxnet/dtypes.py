"""MXNet's element types by the numbers in its files (mshadow/base.h)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

FLAGS: dict[int, np.dtype[Any]] = {
    0: np.dtype("<f4"),
    1: np.dtype("<f8"),
    2: np.dtype("<f2"),
    3: np.dtype("u1"),
    4: np.dtype("<i4"),
    5: np.dtype("i1"),
    6: np.dtype("<i8"),
    7: np.dtype("bool"),
    8: np.dtype("<i2"),
    9: np.dtype("<u2"),
    10: np.dtype("<u4"),
    11: np.dtype("<u8"),
    12: np.dtype(ml_dtypes.bfloat16),
}


def dtype_named(name: str) -> np.dtype[Any]:
    """The dtype of a name: "float32", "bfloat16", "bool".

    Raises:
        TypeError: if there is no such dtype.
    """
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)

"""TensorFlow's data formats: values with channels last are transposed to ONNX's channels first and back.

The transposes are canceled by a hub pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxbridge.errors import Unsupported


def channels_last(data_format: str) -> bool:
    """Whether a data format ("NHWC", "NDHWC", "NCHW") has the channels last.

    Raises:
        Unsupported: for a vectorized format.
    """
    if "VECT" in data_format or data_format in ("HWNC", "HWCN"):
        raise Unsupported(f"data_format={data_format!r} is not supported")
    return data_format.endswith("C")


def first(op: Any, x: Any, data_format: str) -> Any:
    """`x` with the channels on axis 1."""
    n = len(data_format)
    return op.Transpose(x, perm=[0, n - 1, *range(1, n - 1)]) if channels_last(data_format) else x


def last(op: Any, y: Any, data_format: str) -> Any:
    """A result with the channels on axis 1, in the data format."""
    n = len(data_format)
    return op.Transpose(y, perm=[0, *range(2, n), 1]) if channels_last(data_format) else y


def spatial(values: Sequence[int], data_format: str) -> tuple[int, ...]:
    """The elements for the spatial axes of per-axis values.

    Raises:
        Unsupported: if the value for the batch or channel axis is not 1.
    """
    channel = len(data_format) - 1 if channels_last(data_format) else 1
    if values[0] != 1 or values[channel] != 1:
        raise Unsupported(f"{tuple(values)} spans the batch or channel axis")
    return tuple(v for i, v in enumerate(values) if i not in (0, channel))

"""Values that users pass as inputs, as arrays for the hub model's inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir import strings


def as_array(value: Any) -> Any:
    """A framework's tensor as an array, None for anything else (a spec, a nested structure)."""
    if not isinstance(value, np.ndarray):
        if hasattr(value, "detach") and hasattr(value, "cpu"):  # PyTorch; MXNet's arrays have `detach` only
            value = value.detach().cpu()
        read = getattr(value, "asnumpy", None) or getattr(value, "numpy", None)
        try:
            value = read() if callable(read) else None
        except (TypeError, RuntimeError):  # a dtype that NumPy lacks, or an unresolved view of PyTorch
            return None
    given_as_strings = isinstance(value, bytes) or (isinstance(value, np.ndarray) and strings.is_strings(value))
    return strings.decoded(value) if given_as_strings else value


def for_input(array: Any, value: ir.Value) -> Any:
    """An array for a hub input: complex numbers become a last axis of 2 where the input is real, and dtypes that .npz files
    store as raw bytes (bfloat16) are what they were."""
    wanted = None if value.dtype is None or value.dtype == ir.DataType.STRING else value.dtype.numpy()
    if array.dtype.kind == "V" and array.dtype.names is None and wanted is not None and wanted.itemsize == array.dtype.itemsize:
        return array.view(wanted)
    if array.dtype.kind != "c" or value.dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        return array
    return np.stack([array.real, array.imag], -1)

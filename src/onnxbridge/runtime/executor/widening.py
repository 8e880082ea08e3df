"""A plan in float64: its constants, and the attributes of its steps."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.lowering import Call
from onnxbridge.runtime.executor.plan import Step

ROUNDED = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
"""The dtypes that are computed in float64."""
_ROUNDED_CODES = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
_TYPE_ATTRIBUTES = frozenset({"to", "dtype", "output_dtype", "output_datatype", "stash_type", "softmax_precision", "precision"})


def widened(value: Any) -> Any:
    """float32 and narrower as float64, in sequences too."""
    if isinstance(value, list):
        return [widened(item) for item in value]
    return value.astype(np.float64) if getattr(value, "dtype", None) in ROUNDED else value


def widen_step(call: Call, step: Step) -> None:
    """Change attributes that name or hold one of the rounded types to float64; a bit pattern is that of the declared type."""
    if step.kind == "bits":
        declared = call.inputs[0].key.dtype
        if declared is None:
            raise Unsupported("in float64 mode the bits of a value whose type is not declared")
        own, run = declared.numpy(), step.run
        step.run = lambda input, *rest, **attrs: run(input.astype(own), *rest, **attrs)
        return
    for name, value in step.attrs.items():
        if isinstance(value, np.ndarray):
            step.attrs[name] = widened(value)
        elif name in _TYPE_ATTRIBUTES and value in _ROUNDED_CODES:
            step.attrs[name] = ir.DataType.DOUBLE.value

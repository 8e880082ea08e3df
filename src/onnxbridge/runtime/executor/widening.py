"""A plan in float64: its constants, and the attributes of its steps.

Constants are widened once. Those of a model with many are widened at each use and freed after it, so that a model of some
gigabytes needs no second copy of twice its size.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.ir.graphs import every_graph
from onnxbridge.lowering import Call
from onnxbridge.runtime.executor.plan import Step

ROUNDED = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
"""The dtypes that are computed in float64."""
_ROUNDED_CODES = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
_TYPE_ATTRIBUTES = frozenset({"to", "dtype", "output_dtype", "output_datatype", "stash_type", "softmax_precision", "precision"})


MOST_WIDENED = 1 << 30
"""The bytes that the constants of a model may take in float64; those of a model with more are widened at each use."""
_SMALL = 1 << 20
"""Constants of fewer bytes are always widened once."""


def widened_at_use(model: ir.Model) -> frozenset[ir.TensorProtocol]:
    """The constants that are widened at each use: the larger ones, where all of them would take more than `MOST_WIDENED`."""
    tensors = [v.const_value for g in every_graph(model) for v in g.initializers.values()]
    rounded = {t for t in tensors if t is not None and t.dtype in _ROUNDED_CODES}
    if sum(8 * t.size for t in rounded) <= MOST_WIDENED:
        return frozenset()
    return frozenset(t for t in rounded if 8 * t.size >= _SMALL)


def widen_arguments(step: Step) -> None:
    """Widen what a step is called with."""
    run = step.run
    step.run = lambda *args, **attrs: run(*map(widened, args), **attrs)


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

"""Rules that compute in float64."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from onnxbridge.frontends.pytorch.fx.promotion import cast, promote_to_float


def in_float64(function: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """A rule, with these parameter names, that computes `function` in float64 and casts the result to the operands' dtype."""

    def lower(op: Any, *operands: Any) -> Any:
        values = promote_to_float(op, *operands)
        if any(0 in v.shape for v in values):
            return values[0] if len(values) == 1 else op.Add(*values)  # empty tensors: only the shape matters
        return cast(op, function(op, *(cast(op, v, ir.DataType.DOUBLE) for v in values)), values[0].dtype)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(n, kind) for n in ("op", *(names or ("self",)))]
    lower.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return lower

"""Activations that an operator of TensorFlow Lite applies to its result (`fused_activation_function`)."""

from __future__ import annotations

from typing import Any

from onnxbridge.errors import Unsupported


def activated(op: Any, x: Any, name: str) -> Any:
    """The activation of a value.

    Raises:
        Unsupported: for an activation that ONNX does not have.
    """
    if name == "NONE":
        return x
    if name == "RELU":
        return op.Relu(x)
    bounds = {"RELU6": (0, 6), "RELU_N1_TO_1": (-1, 1)}.get(name)
    if bounds is None:
        raise Unsupported(f"the fused activation {name}, which TensorFlow Lite's own kernels ignore")
    low, high = (float(b) if x.dtype.is_floating_point() else b for b in bounds)
    return op.Clip(x, low, high)

"""What follows a product or a convolution and is done with it: per-channel factors, a sum, and an activation."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxbridge.runtime.executor.fusion.plan_rewriter import Draft
from onnxbridge.runtime.executor.kernels.convolution import Ending
from onnxbridge.runtime.executor.plan import NOTHING, Step

_SINGLE = np.dtype(np.float32)
_POWERS = {2.0: "Square", 3.0: "Cube", -1.0: "Reciprocal"}


def single(value: Any) -> bool:
    """Whether this is a float32 array."""
    return isinstance(value, np.ndarray) and value.dtype == _SINGLE


def scalar(value: Any) -> float | None:
    """The number in a float32 array of one element that broadcasts without adding axes beyond one."""
    return float(value.reshape(())) if single(value) and value.size == 1 and value.ndim <= 1 else None


def other(step: Step, slot: int) -> int:
    """The other operand of an operator with two, NOTHING if both are the same."""
    if len(step.sources) != 2 or step.sources[0] == step.sources[1]:
        return NOTHING
    return step.sources[1] if step.sources[0] == slot else step.sources[0]


def activation(draft: Draft, step: Step) -> Ending | None:
    """A step as an ending, if it is one."""
    attrs = step.attrs
    plain = {"Relu": Ending(low=0.0), "HardSwish": Ending(curve="HardSwish"), "Sigmoid": Ending(curve="Sigmoid"),
             "Tanh": Ending(curve="Tanh"), "Erf": Ending(curve="Erf"), "Exp": Ending(curve="Exp")}  # fmt: skip
    if step.op in plain:
        return plain[step.op]
    if step.op in ("Sqrt", "Reciprocal", "Abs", "Neg", "Floor", "Mish", "Softplus", "Log"):
        return Ending(curve=step.op)
    if step.op == "Pow":
        power = draft.constant(step.sources[1])
        known = isinstance(power, np.ndarray) and power.ndim == 0 and power.dtype.kind in "fiu" and float(power) in _POWERS
        return Ending(curve=_POWERS[float(power)]) if known else None
    if step.op == "HardSigmoid":
        return Ending(curve="HardSigmoid", a=attrs["alpha"], b=attrs["beta"])
    if step.op in ("Elu", "Selu"):
        return Ending(curve="Elu", a=attrs["alpha"], b=attrs.get("gamma", 1.0))
    if step.op == "LeakyRelu":
        return Ending(curve="LeakyRelu", a=attrs["alpha"])
    if step.op == "Swish":
        return Ending(curve="Swish", a=attrs["alpha"])
    if step.op == "Gelu":
        return Ending(curve="Gelu tanh" if attrs["approximate"] == "tanh" else "Gelu")
    if step.op == "Clip":
        bounds = [draft.constant(s) for s in step.sources[1:]]
        if any(b is None and s != NOTHING for b, s in zip(bounds, step.sources[1:], strict=True)):
            return None
        low, high = (*(scalar(b) if b is not None else None for b in bounds), None, None)[:2]
        known = all(b is None or (single(b) and not np.isnan(b).any()) for b in bounds)  # a NaN spreads, as in NumPy
        return Ending(-np.inf if low is None else low, np.inf if high is None else high) if known else None
    return None

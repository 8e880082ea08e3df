"""Epilogues: the per-channel factors, sum and activation that are fused with the convolution or product before them."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxbridge.runtime.executor.fusion.plan_rewriter import PlanRewriter
from onnxbridge.runtime.executor.kernels.convolution import Epilogue
from onnxbridge.runtime.executor.plan import NOTHING, Step

_SINGLE = np.dtype(np.float32)
_WITHOUT_PARAMETERS = frozenset(
    ("HardSwish", "Sigmoid", "Tanh", "Erf", "Exp", "Sqrt", "Reciprocal", "Abs", "Neg", "Floor", "Mish", "Softplus", "Log")
)
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


class Chain:
    """Steps to be fused into one, each the only user of the result of the one before."""

    def __init__(self, rewriter: PlanRewriter, i: int, step: Step) -> None:
        self._draft = rewriter
        self.steps, self.result, self.names = [i], step.targets[0], [step.op]

    def next(self, *ops: str) -> Step | None:
        """The step that follows, if it is one of these operators (any for none)."""
        found = self._draft.user(self.result)
        return found[1] if found is not None and (not ops or found[1].op in ops) else None

    def append(self) -> None:
        """Add the step that follows."""
        found = self._draft.user(self.result)
        assert found is not None
        self.steps.append(found[0])
        self.result = found[1].targets[0]

    def factors(self, scale: Any, shift: Any) -> tuple[Any, Any]:
        """A factor and a shift of each channel, with those of the steps that follow, which are added."""
        while (step := self.next()) is not None and (found := factors(self._draft, step, self.result, len(scale))) is not None:
            scale, shift = scale * found[0], shift * found[0] + found[1]
            self.append()
        return scale, shift

    def addend(self) -> list[int]:
        """The other operand of a sum that follows, which is added; empty for none."""
        step = self.next("Add", "Sum")
        if step is None or (found := other(step, self.result)) == NOTHING:
            return []
        self.append()
        return [found]

    def activation(self, clip: bool = False) -> Epilogue:
        """The activation that follows (with `clip` a clip only), which is added."""
        step = self.next()
        found = None if step is None else activation(self._draft, step)
        if step is None or found is None or (clip and found.activation):
            return Epilogue()
        self.append()
        self.names.append(step.op)
        return found


def factors(rewriter: PlanRewriter, step: Step, slot: int, channels: int) -> tuple[Any, Any] | None:
    """The factor and the shift that a step with constant operands applies to each channel of a value, None for other steps."""
    if step.op == "BatchNormalization":
        values = [rewriter.constant(s) for s in step.sources[1:]]
        if step.sources[0] != slot or not all(single(v) for v in values) or step.attrs["training_mode"]:
            return None
        gamma, beta, mean, variance = (v.astype(np.float64) for v in values)
        factor = gamma / np.sqrt(variance + np.float32(step.attrs["epsilon"]))
        return factor, beta - mean * factor
    if step.op in ("Mul", "Add"):
        value = rewriter.constant(other(step, slot))
        if scalar(value) is None and not (single(value) and value.shape in ((channels, 1, 1), (1, channels, 1, 1))):
            return None
        each = np.broadcast_to(value.astype(np.float64).reshape(-1), (channels,))
        return (each, 0.0) if step.op == "Mul" else (1.0, each)
    return None


def activation(rewriter: PlanRewriter, step: Step) -> Epilogue | None:
    """A step as the activation of an epilogue, None for other steps."""
    attrs = step.attrs
    if step.op == "Relu":
        return Epilogue(low=0.0)
    if step.op in _WITHOUT_PARAMETERS:
        return Epilogue(activation=step.op)
    if step.op == "Pow":
        power = rewriter.constant(step.sources[1])
        known = isinstance(power, np.ndarray) and power.ndim == 0 and power.dtype.kind in "fiu" and float(power) in _POWERS
        return Epilogue(activation=_POWERS[float(power)]) if known else None
    if step.op == "HardSigmoid":
        return Epilogue(activation="HardSigmoid", a=attrs["alpha"], b=attrs["beta"])
    if step.op in ("Elu", "Selu"):
        return Epilogue(activation="Elu", a=attrs["alpha"], b=attrs.get("gamma", 1.0))
    if step.op == "LeakyRelu":
        return Epilogue(activation="LeakyRelu", a=attrs["alpha"])
    if step.op == "Swish":
        return Epilogue(activation="Swish", a=attrs["alpha"])
    if step.op == "Gelu":
        return Epilogue(activation="Gelu tanh" if attrs["approximate"] == "tanh" else "Gelu")
    if step.op == "Clip":
        bounds = [rewriter.constant(s) for s in step.sources[1:]]
        if any(b is None and s != NOTHING for b, s in zip(bounds, step.sources[1:], strict=True)):
            return None
        low, high = (*(scalar(b) if b is not None else None for b in bounds), None, None)[:2]
        known = all(b is None or (single(b) and not np.isnan(b).any()) for b in bounds)  # a NaN spreads, as in NumPy
        return Epilogue(-np.inf if low is None else low, np.inf if high is None else high) if known else None
    return None

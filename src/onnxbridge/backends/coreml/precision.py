"""Half precision: which operators may compute in float16, and which stay in float32 because float16 cannot hold their numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxbridge.backends.coreml.types import is_float

LARGEST = float(np.finfo(np.float16).max)
# Whatever comes in, these give numbers that float16 holds, so what follows them is free again.
BOUNDED = frozenset(
    [
        "softmax",
        "sigmoid",
        "sigmoid_hard",
        "tanh",
        "scaled_tanh",
        "erf",
        "sin",
        "cos",
        "atan",
        "sign",
        "softsign",
        "layer_norm",
        "instance_norm",
        "greater",
        "greater_equal",
        "less",
        "less_equal",
        "equal",
        "not_equal",
        "reduce_argmax",
        "reduce_argmin",
        "argsort",
        "non_zero",
        "shape",
    ]
)


class HalfPrecision:
    """Answers coremltools, operator by operator, whether it may compute in float16.

    An operator stays in float32 where one of its constants is outside of float16 (a mask of -3.4e38 would be -inf, and NaN in the
    softmax of a row that is all masked), and so does everything fed by it as far as the next operator whose results are bounded.
    """

    def __init__(self) -> None:
        self._wide: dict[int, bool] = {}
        self._seen: list[Any] = []
        self.kept: list[str] = []
        """Names of the operators that stayed in float32."""

    def __call__(self, op: Any) -> bool:
        inputs = [v for value in op.inputs.values() for v in (value if isinstance(value, (list, tuple)) else [value])]
        wide = any(_outside(v) or self._carries(v.op) for v in inputs)
        self._wide[id(op)] = wide and op.op_type not in BOUNDED
        self._seen.append(op)  # keeps the object alive, so that no other one gets its id
        if wide and any(is_float(o) for o in op.outputs):
            self.kept.append(op.outputs[0].name)
        return not wide

    def _carries(self, op: Any) -> bool:
        if op is None:
            return False
        if op.op_type == "cast" and id(op) not in self._wide:  # put in between by the pass itself
            return self._carries(op.x.op)
        return self._wide.get(id(op), False)


def _outside(value: Any) -> bool:
    array = getattr(value, "val", None)
    if not isinstance(array, (np.ndarray, np.generic, float)) or np.asarray(array).dtype.kind != "f":
        return False
    array = np.asarray(array)
    return bool(array.size and np.abs(array[np.isfinite(array)]).max(initial=0.0) > LARGEST)

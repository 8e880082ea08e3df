"""What the declared shapes of an operator give away of an input that only the running model computes.

Exported models say how large every result is, so that the axes of a reduction or the shape of a reshape follow from what goes in
and what comes out, even where the graph takes them as an input.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub import calls
from onnxbridge.hub.builder import Builder
from onnxbridge.lowering import Body, Call, Ref

Shape = tuple[int, ...]
Found = Sequence[int] | None


def _fixed(value: Any) -> Shape | None:
    """The shape where it is numbers."""
    if not isinstance(value, ir.Value) or value.shape is None:
        return None
    dims = tuple(value.shape)
    return tuple(d for d in dims if isinstance(d, int)) if all(isinstance(d, int) for d in dims) else None


def _same(call: Call, given: list[Shape | None], made: list[Shape | None]) -> Found:
    """The result's own shape."""
    return made[0]


def _reduced(call: Call, given: list[Shape | None], made: list[Shape | None]) -> Found:
    """The axes that a reduction takes away, where only one choice gives this result."""
    before, after = given[0], made[0]
    if before is None or after is None:
        return None
    if call.attrs.get("keepdims", 1):
        if len(before) != len(after):
            return None
        axes = [i for i, (b, a) in enumerate(zip(before, after, strict=True)) if b != a]
        # an axis of size 1 looks the same either way: reducing it changes the value only where the reduction does more than add
        return axes if all(after[i] == 1 for i in axes) and (axes or 1 not in before) else None
    choices = _choices(before, after) if len(before) >= len(after) else []
    return choices[0] if len(choices) == 1 else None


def _squeezed(call: Call, given: list[Shape | None], made: list[Shape | None]) -> Found:
    """Any axes of size 1 whose removal gives the result: which of them makes no difference."""
    return _some(given[0], made[0])


def _unsqueezed(call: Call, given: list[Shape | None], made: list[Shape | None]) -> Found:
    return _some(made[0], given[0])


def _some(longer: Shape | None, shorter: Shape | None) -> Found:
    """Axes of size 1 in `longer` that `shorter` has not."""
    if longer is None or shorter is None or len(longer) < len(shorter):
        return None
    return next(iter(_choices(longer, shorter, only_ones=True)), None)


def _choices(before: Shape, after: Shape, only_ones: bool = False) -> list[tuple[int, ...]]:
    """Every set of axes whose removal from `before` leaves `after`."""
    return [
        axes
        for axes in combinations(range(len(before)), len(before) - len(after))
        if tuple(n for i, n in enumerate(before) if i not in axes) == after
        and not (only_ones and any(before[i] != 1 for i in axes))
    ]


def _repeated(call: Call, given: list[Shape | None], made: list[Shape | None]) -> Found:
    before, after = given[0], made[0]
    if before is None or after is None or len(before) != len(after) or 0 in before:
        return None
    return [a // b for a, b in zip(after, before, strict=True)]


def _along(default: int) -> Callable[..., Found]:
    """The result's size along the operator's axis."""

    def found(call: Call, given: list[Shape | None], made: list[Shape | None]) -> Found:
        return None if made[0] is None else [made[0][call.attrs.get("axis", default)]]

    return found


def _parts(call: Call, given: list[Shape | None], made: list[Shape | None]) -> Found:
    axis = call.attrs.get("axis", 0)
    return None if any(m is None for m in made) else [m[axis] for m in made if m is not None]


def _resized(call: Call, given: list[Shape | None], made: list[Shape | None]) -> Found:
    if made[0] is None:
        return None
    axes = call.attrs.get("axes")
    if call.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    return list(made[0]) if axes is None else [made[0][a] for a in axes]


def _image(call: Call, given: list[Shape | None], made: list[Shape | None]) -> Found:
    """The image that a grid is for; its channels make no difference."""
    return None if made[0] is None else [made[0][0], 1, *made[0][1:-1]]


_REDUCTIONS = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"]
RULES: dict[str, tuple[int, Callable[..., Found], bool]] = {
    "Reshape": (1, _same, False),
    "Expand": (1, _same, False),
    "ConstantOfShape": (0, _same, False),
    "CenterCropPad": (1, _resized, False),
    "AffineGrid": (1, _image, False),
    "Squeeze": (1, _squeezed, False),
    "Unsqueeze": (1, _unsqueezed, False),
    "Tile": (1, _repeated, False),
    "TopK": (1, _along(-1), False),
    "OneHot": (1, _along(-1), True),
    "Split": (1, _parts, False),
    "Resize": (3, _resized, False),
    "BlackmanWindow": (0, _same, True),
    "HannWindow": (0, _same, True),
    "HammingWindow": (0, _same, True),
} | {f"Reduce{kind}": (1, _reduced, False) for kind in _REDUCTIONS}
"""By operator: the input, how it is found, and whether it is a scalar."""


def choice(call: Call) -> Body | None:
    """A reduction over axes that the running model picks, where the declared result leaves a few: each of them, and a choice."""
    if not call.op.startswith("Reduce") or len(call.inputs) < 2 or call.attrs.get("keepdims", 1):
        return None
    x, axes = (i.key if isinstance(i, Ref) else None for i in call.inputs)
    before, after, count = _fixed(x), _fixed(call.outputs[0]), _fixed(axes)
    if not isinstance(x, ir.Value) or x.dtype is None or before is None or after is None or count is None:
        return None
    if len(before) - len(after) != count[0]:
        return None
    op = Builder()
    data = op.input("data", x.dtype, list(before))
    picked = op.input("axes", ir.DataType.INT64, list(count))
    places = op.Where(op.Less(picked, 0), op.Add(picked, len(before)), picked)
    result = None
    for axes_of_one in _choices(before, after):
        one = op.call(call.op, data, op.constant(np.array(axes_of_one, np.int64)), **call.attrs)
        if result is None:
            result = one
            continue
        there = [op.ReduceMax(op.Cast(op.Equal(places, a), to=ir.DataType.INT32), [0], keepdims=0) for a in axes_of_one]
        result = op.Where(op.Greater(functools.reduce(op.Mul, there), 0), one, result)
    if result is None:
        return None
    return Body((data, picked), list(calls.of(op.graph([data, picked], [result], call.op))), (Ref(result),))


def known(call: Call) -> Call:
    """The call with such an input as the constant that it must be, itself where there is none or it is known anyway."""
    if call.op not in RULES:
        return call
    position, find, scalar = RULES[call.op]
    item = call.inputs[position] if position < len(call.inputs) else None
    if not isinstance(item, Ref) or not isinstance(item.key, ir.Value) or item.key.const_value is not None:
        return call
    given = [_fixed(i.key) if isinstance(i, Ref) else None for i in call.inputs]
    made = [_fixed(o) for o in call.outputs]
    found = find(call, given, made)
    if found is None:
        return call
    array = np.array(found[0] if scalar else list(found), np.int64)
    constant = ir.Value(
        name=f"{item.key.name}_known",
        type=ir.TensorType(ir.DataType.INT64),
        shape=ir.Shape(array.shape),
        const_value=ir.tensor(array),
    )
    return replace(call, inputs=(*call.inputs[:position], Ref(constant), *call.inputs[position + 1 :]))

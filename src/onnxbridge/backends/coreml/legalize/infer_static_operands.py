"""What the declared shapes of an operator give away of an input that only the running model computes.

Exported models say how large every result is, so that the axes of a reduction or the shape of a reshape follow from what goes in
and what comes out, even where the graph takes them as an input.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir import graph_reader
from onnxbridge.hub.ir.builder import Builder
from onnxbridge.lowering import Body, Call, Ref

Shape = tuple[int, ...]
Found = Sequence[int] | None


def _fixed(value: Any) -> Shape | None:
    """The shape where it is numbers, which may be known from what an operator on single elements makes of the value."""
    if not isinstance(value, ir.Value):
        return None
    if value.shape is not None and all(isinstance(d, int) for d in value.shape):
        return tuple(d for d in value.shape if isinstance(d, int))
    made = (node.outputs[0] for node, _ in value.uses() if node.op_type in _ELEMENTWISE)
    return next((shape for shape in map(_fixed, made) if shape is not None), None)


_ELEMENTWISE = frozenset(["Sqrt", "Log", "Exp", "Abs", "Neg", "Cast", "CastLike", "Identity", "Square", "Reciprocal", "Relu"])


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


def _spatial(call: Call, given: list[Shape | None], made: list[Shape | None]) -> Found:
    return None if made[0] is None else made[0][2:]


def _block(call: Call, given: list[Shape | None], made: list[Shape | None]) -> Found:
    """The block whose size and number of places are those of the columns, where there is just one."""
    before, after = given[0], made[0]
    if before is None or after is None:
        return None
    space, taps = len(after) - 2, before[1] // after[1]
    strides, dilations = (call.attrs.get(k) or (1,) * space for k in ("strides", "dilations"))
    pads = call.attrs.get("pads") or (0,) * (2 * space)

    def places(block: tuple[int, ...]) -> int:
        sizes = (n + pads[i] + pads[space + i] for i, n in enumerate(after[2:]))
        spans = ((k - 1) * d + 1 for k, d in zip(block, dilations, strict=True))
        return math.prod(max(0, (n - span) // s + 1) for n, span, s in zip(sizes, spans, strides, strict=True))

    divisors = [k for k in range(1, taps + 1) if taps % k == 0]
    fits = [b for b in product(divisors, repeat=space) if math.prod(b) == taps and places(b) == before[2]]
    return fits[0] if len(fits) == 1 else None


def _frames(call: Call, given: list[Shape | None], made: list[Shape | None]) -> tuple[int, int] | None:
    """The step and the length of the frames of a spectrogram, where only one pair gives so many frames of so many bins."""
    signal, spectra = given[0], made[0]
    if signal is None or spectra is None:
        return None
    window = given[2] if len(given) > 2 else None
    bins, total = spectra[2], signal[1]
    lengths = (window[0],) if window else (2 * bins - 2, 2 * bins - 1) if call.attrs.get("onesided", 1) else (bins,)
    step = _element(call.inputs[1])
    steps = range(1, total + 1) if step is None else (step,)
    fits = [(s, n) for n in lengths for s in steps if 0 < n <= total and (total - n) // s + 1 == spectra[1]]
    return fits[0] if len(fits) == 1 else None


def _element(item: Any) -> int | None:
    """A constant input's only element."""
    array = item.key.const_value if isinstance(item, Ref) and isinstance(item.key, ir.Value) else None
    return None if array is None else int(array.numpy().reshape(-1)[0])


def _part(i: int) -> Callable[..., Found]:
    def found(call: Call, given: list[Shape | None], made: list[Shape | None]) -> Found:
        pair = _frames(call, given, made)
        return None if pair is None else [pair[i]]

    return found


_REDUCTIONS = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"]
RULES: dict[str, list[tuple[int, Callable[..., Found], bool]]] = {
    "Reshape": [(1, _same, False)],
    "Expand": [(1, _same, False)],
    "ConstantOfShape": [(0, _same, False)],
    "CenterCropPad": [(1, _resized, False)],
    "AffineGrid": [(1, _image, False)],
    "MaxUnpool": [(2, _same, False)],
    "Col2Im": [(1, _spatial, False), (2, _block, False)],
    "Squeeze": [(1, _squeezed, False)],
    "Unsqueeze": [(1, _unsqueezed, False)],
    "Tile": [(1, _repeated, False)],
    "TopK": [(1, _along(-1), False)],
    "OneHot": [(1, _along(-1), True)],
    "Split": [(1, _parts, False)],
    "Resize": [(3, _resized, False)],
    "STFT": [(3, _part(1), True), (1, _part(0), True)],
    "BlackmanWindow": [(0, _same, True)],
    "HannWindow": [(0, _same, True)],
    "HammingWindow": [(0, _same, True)],
} | {f"Reduce{kind}": [(1, _reduced, False)] for kind in _REDUCTIONS}
"""By operator: the inputs, how each is found, and whether it is a scalar."""


def choice(call: Call) -> Body | None:
    """An operator along axes that the running model picks, where the declared result leaves a few: each of them, and a choice."""
    if call.op == "DFT":
        return _transform(call)
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
    return Body((data, picked), list(graph_reader.of(op.graph([data, picked], [result], call.op))), (Ref(result),))


def _transform(call: Call) -> Body | None:
    """A Fourier transform along the axis that the running model picks: all axes that give the declared result, and a choice."""
    if (
        len(call.inputs) < 3
        or call.inputs[1] is not None
        or not all(isinstance(i, Ref) for i in (call.inputs[0], call.inputs[2]))
    ):
        return None
    x, axis = (call.inputs[i].key for i in (0, 2))
    before, after = _fixed(x), _fixed(call.outputs[0])
    if before is None or after is None or axis.const_value is not None or len(before) != len(after):
        return None
    op = Builder()
    data, picked = op.input("data", x.dtype, list(before)), op.input("axis", axis.dtype, axis.shape)
    place = op.Where(op.Less(picked, 0), op.Add(picked, len(before)), picked)
    result = None
    for a in range(len(before) - 1):
        if any(before[d] != after[d] for d in range(len(before) - 1) if d != a):
            continue
        one = op.call("DFT", data, None, np.int64(a), **call.attrs)
        if _fixed(one) == after:
            result = one if result is None else op.Where(op.Equal(place, a), one, result)
    if result is None:
        return None
    return Body((data, None, picked), list(graph_reader.of(op.graph([data, picked], [result], call.op))), (Ref(result),))


def known(call: Call) -> Call:
    """The call with such an input as the constant that it must be, itself where there is none or it is known anyway."""
    for position, find, scalar in RULES.get(call.op, ()):
        call = _with(call, position, find, scalar)
    return call


def _with(call: Call, position: int, find: Callable[..., Found], scalar: bool) -> Call:
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

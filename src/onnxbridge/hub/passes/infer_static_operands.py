"""Recovers static operands from input and output shapes.

Core ML and MXNet need constants for some operands that ONNX takes as inputs, such as the axes of a reduction. Exported models
declare the shape of every result, from which such an operand can often be inferred even if the graph computes it.
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

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.ir import graph_reader
from onnxbridge.lowering import Body, Call, Ref

Shape = tuple[int, ...]
Operand = Sequence[int] | None


def _static_shape(value: Any) -> Shape | None:
    """The static shape of a value, which may also be known from the result of an elementwise operator on it."""
    if not isinstance(value, ir.Value):
        return None
    if value.shape is not None and all(isinstance(d, int) for d in value.shape):
        return tuple(d for d in value.shape if isinstance(d, int))
    results = (node.outputs[0] for node, _ in value.uses() if node.op_type in _ELEMENTWISE)
    return next((shape for shape in map(_static_shape, results) if shape is not None), None)


_ELEMENTWISE = frozenset(["Sqrt", "Log", "Exp", "Abs", "Neg", "Cast", "CastLike", "Identity", "Square", "Reciprocal", "Relu"])


def _output_shape(call: Call, input_shapes: list[Shape | None], output_shapes: list[Shape | None]) -> Operand:
    """The result's shape."""
    return output_shapes[0]


def _reduced_axes(call: Call, input_shapes: list[Shape | None], output_shapes: list[Shape | None]) -> Operand:
    """The axes of a reduction, if only one choice gives this result."""
    before, after = input_shapes[0], output_shapes[0]
    if before is None or after is None:
        return None
    if call.attrs.get("keepdims", 1):
        if len(before) != len(after):
            return None
        axes = [i for i, (b, a) in enumerate(zip(before, after, strict=True)) if b != a]
        # whether an axis of size 1 is reduced cannot be seen in the shape
        return axes if all(after[i] == 1 for i in axes) and (axes or 1 not in before) else None
    choices = _axis_choices(before, after) if len(before) >= len(after) else []
    return choices[0] if len(choices) == 1 else None


def _squeezed_axes(call: Call, input_shapes: list[Shape | None], output_shapes: list[Shape | None]) -> Operand:
    """Axes of size 1 whose removal gives the result; all choices are equivalent."""
    return _removed_axes(input_shapes[0], output_shapes[0])


def _unsqueezed_axes(call: Call, input_shapes: list[Shape | None], output_shapes: list[Shape | None]) -> Operand:
    return _removed_axes(output_shapes[0], input_shapes[0])


def _removed_axes(longer: Shape | None, shorter: Shape | None) -> Operand:
    """Axes of size 1 whose removal from `longer` gives `shorter`."""
    if longer is None or shorter is None or len(longer) < len(shorter):
        return None
    return next(iter(_axis_choices(longer, shorter, only_ones=True)), None)


def _axis_choices(before: Shape, after: Shape, only_ones: bool = False) -> list[tuple[int, ...]]:
    """Every set of axes whose removal from `before` leaves `after`."""
    return [
        axes
        for axes in combinations(range(len(before)), len(before) - len(after))
        if tuple(n for i, n in enumerate(before) if i not in axes) == after
        and not (only_ones and any(before[i] != 1 for i in axes))
    ]


def _repeats(call: Call, input_shapes: list[Shape | None], output_shapes: list[Shape | None]) -> Operand:
    before, after = input_shapes[0], output_shapes[0]
    if before is None or after is None or len(before) != len(after) or 0 in before:
        return None
    return [a // b for a, b in zip(after, before, strict=True)]


def _size_along(default: int) -> Callable[..., Operand]:
    """The result's size along the operator's axis."""

    def found(call: Call, input_shapes: list[Shape | None], output_shapes: list[Shape | None]) -> Operand:
        return None if output_shapes[0] is None else [output_shapes[0][call.attrs.get("axis", default)]]

    return found


def _split_sizes(call: Call, input_shapes: list[Shape | None], output_shapes: list[Shape | None]) -> Operand:
    axis = call.attrs.get("axis", 0)
    return None if any(m is None for m in output_shapes) else [m[axis] for m in output_shapes if m is not None]


def _resized_sizes(call: Call, input_shapes: list[Shape | None], output_shapes: list[Shape | None]) -> Operand:
    if output_shapes[0] is None:
        return None
    axes = call.attrs.get("axes")
    if call.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    return list(output_shapes[0]) if axes is None else [output_shapes[0][a] for a in axes]


def _affine_grid_size(call: Call, input_shapes: list[Shape | None], output_shapes: list[Shape | None]) -> Operand:
    """The size input of AffineGrid; the number of channels has no effect."""
    return None if output_shapes[0] is None else [output_shapes[0][0], 1, *output_shapes[0][1:-1]]


def _spatial_shape(call: Call, input_shapes: list[Shape | None], output_shapes: list[Shape | None]) -> Operand:
    return None if output_shapes[0] is None else output_shapes[0][2:]


def _col2im_block(call: Call, input_shapes: list[Shape | None], output_shapes: list[Shape | None]) -> Operand:
    """The block shape of Col2Im, if only one matches the columns."""
    before, after = input_shapes[0], output_shapes[0]
    if before is None or after is None:
        return None
    space, kernel_size = len(after) - 2, before[1] // after[1]
    strides, dilations = (call.attrs.get(k) or (1,) * space for k in ("strides", "dilations"))
    pads = call.attrs.get("pads") or (0,) * (2 * space)

    def positions(block: tuple[int, ...]) -> int:
        sizes = (n + pads[i] + pads[space + i] for i, n in enumerate(after[2:]))
        spans = ((k - 1) * d + 1 for k, d in zip(block, dilations, strict=True))
        return math.prod(max(0, (n - span) // s + 1) for n, span, s in zip(sizes, spans, strides, strict=True))

    divisors = [k for k in range(1, kernel_size + 1) if kernel_size % k == 0]
    fits = [b for b in product(divisors, repeat=space) if math.prod(b) == kernel_size and positions(b) == before[2]]
    return fits[0] if len(fits) == 1 else None


def _frame_step_and_length(
    call: Call, input_shapes: list[Shape | None], output_shapes: list[Shape | None]
) -> tuple[int, int] | None:
    """The frame step and length of an STFT, if only one pair matches the number of frames and bins."""
    signal, spectra = input_shapes[0], output_shapes[0]
    if signal is None or spectra is None:
        return None
    window = input_shapes[2] if len(input_shapes) > 2 else None
    bins, total = spectra[2], signal[1]
    lengths = (window[0],) if window else (2 * bins - 2, 2 * bins - 1) if call.attrs.get("onesided", 1) else (bins,)
    step = _constant_scalar(call.inputs[1])
    steps = range(1, total + 1) if step is None else (step,)
    fits = [(s, n) for n in lengths for s in steps if 0 < n <= total and (total - n) // s + 1 == spectra[1]]
    return fits[0] if len(fits) == 1 else None


def _constant_scalar(item: Any) -> int | None:
    """The element of a constant scalar input."""
    array = item.key.const_value if isinstance(item, Ref) and isinstance(item.key, ir.Value) else None
    return None if array is None else int(array.numpy().reshape(-1)[0])


def _frame_part(i: int) -> Callable[..., Operand]:
    def found(call: Call, input_shapes: list[Shape | None], output_shapes: list[Shape | None]) -> Operand:
        pair = _frame_step_and_length(call, input_shapes, output_shapes)
        return None if pair is None else [pair[i]]

    return found


_REDUCTIONS = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"]
RULES: dict[str, list[tuple[int, Callable[..., Operand], bool]]] = {
    "Reshape": [(1, _output_shape, False)],
    "Expand": [(1, _output_shape, False)],
    "ConstantOfShape": [(0, _output_shape, False)],
    "CenterCropPad": [(1, _resized_sizes, False)],
    "AffineGrid": [(1, _affine_grid_size, False)],
    "MaxUnpool": [(2, _output_shape, False)],
    "Col2Im": [(1, _spatial_shape, False), (2, _col2im_block, False)],
    "Squeeze": [(1, _squeezed_axes, False)],
    "Unsqueeze": [(1, _unsqueezed_axes, False)],
    "Tile": [(1, _repeats, False)],
    "TopK": [(1, _size_along(-1), False)],
    "OneHot": [(1, _size_along(-1), True)],
    "Split": [(1, _split_sizes, False)],
    "Resize": [(3, _resized_sizes, False)],
    "STFT": [(3, _frame_part(1), True), (1, _frame_part(0), True)],
    "BlackmanWindow": [(0, _output_shape, True)],
    "HannWindow": [(0, _output_shape, True)],
    "HammingWindow": [(0, _output_shape, True)],
} | {f"Reduce{kind}": [(1, _reduced_axes, False)] for kind in _REDUCTIONS}
"""By operator: the input's index, how to infer it, and whether it is a scalar."""


def select_among_axes(call: Call) -> Body | None:
    """Decompose a reduction along dynamic axes: compute it for all axes that match the result's shape, and select one."""
    if call.op == "DFT":
        return _select_dft_axis(call)
    if not call.op.startswith("Reduce") or len(call.inputs) < 2 or call.attrs.get("keepdims", 1):
        return None
    x, axes = (i.key if isinstance(i, Ref) else None for i in call.inputs)
    before, after, count = _static_shape(x), _static_shape(call.outputs[0]), _static_shape(axes)
    if not isinstance(x, ir.Value) or x.dtype is None or before is None or after is None or count is None:
        return None
    if len(before) - len(after) != count[0]:
        return None
    op = Builder()
    data = op.input("data", x.dtype, list(before))
    axes_input = op.input("axes", ir.DataType.INT64, list(count))
    normalized = op.Where(op.Less(axes_input, 0), op.Add(axes_input, len(before)), axes_input)
    result = None
    for candidate in _axis_choices(before, after):
        reduced = op.call(call.op, data, op.constant(np.array(candidate, np.int64)), **call.attrs)
        if result is None:
            result = reduced
            continue
        contained = [op.ReduceMax(op.Cast(op.Equal(normalized, a), to=ir.DataType.INT32), [0], keepdims=0) for a in candidate]
        result = op.Where(op.Greater(functools.reduce(op.Mul, contained), 0), reduced, result)
    if result is None:
        return None
    return Body((data, axes_input), list(graph_reader.calls_of(op.graph([data, axes_input], [result], call.op))), (Ref(result),))


def _select_dft_axis(call: Call) -> Body | None:
    """Decompose a DFT along a dynamic axis: compute it for all axes that match the result's shape, and select one."""
    if (
        len(call.inputs) < 3
        or call.inputs[1] is not None
        or not all(isinstance(i, Ref) for i in (call.inputs[0], call.inputs[2]))
    ):
        return None
    x, axis = (call.inputs[i].key for i in (0, 2))
    before, after = _static_shape(x), _static_shape(call.outputs[0])
    if before is None or after is None or axis.const_value is not None or len(before) != len(after):
        return None
    op = Builder()
    data, axes_input = op.input("data", x.dtype, list(before)), op.input("axis", axis.dtype, axis.shape)
    normalized = op.Where(op.Less(axes_input, 0), op.Add(axes_input, len(before)), axes_input)
    result = None
    for a in range(len(before) - 1):
        if any(before[d] != after[d] for d in range(len(before) - 1) if d != a):
            continue
        transformed = op.call("DFT", data, None, np.int64(a), **call.attrs)
        if _static_shape(transformed) == after:
            result = transformed if result is None else op.Where(op.Equal(normalized, a), transformed, result)
    if result is None:
        return None
    calls = list(graph_reader.calls_of(op.graph([data, axes_input], [result], call.op)))
    return Body((data, None, axes_input), calls, (Ref(result),))


def infer(call: Call) -> Call:
    """The call with its dynamic operands replaced by inferred constants, where possible."""
    for position, find, scalar in RULES.get(call.op, ()):
        call = _infer_input(call, position, find, scalar)
    return call


def _infer_input(call: Call, position: int, find: Callable[..., Operand], scalar: bool) -> Call:
    item = call.inputs[position] if position < len(call.inputs) else None
    if not isinstance(item, Ref) or not isinstance(item.key, ir.Value) or item.key.const_value is not None:
        return call
    input_shapes = [_static_shape(i.key) if isinstance(i, Ref) else None for i in call.inputs]
    output_shapes = [_static_shape(o) for o in call.outputs]
    found = find(call, input_shapes, output_shapes)
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

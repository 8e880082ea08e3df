"""Reshaping, transposing, joining and padding as Keras layers and calls of `keras.ops`."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnxbridge.backends.tensorflow.functional.expressions import Expression, Item, Result
from onnxbridge.backends.tensorflow.functional.values import FLOATS, dims, dtype_config, ints, is_float, known, rank, same_size
from onnxbridge.backends.tensorflow.layers import layer
from onnxbridge.backends.tensorflow.layers.conv import zeros_around


@layer("Identity")
def identity(node: ir.Node, input: ir.Value) -> Result | None:
    return input if input.const_value is None and rank(input) >= 0 else None


def reshaped(x: ir.Value, y: ir.Value) -> Expression | None:
    """A reshape to the inferred shape of the result, if at most one of its sizes is dynamic beside the batch."""
    if rank(x) < 1 or rank(y) < 1 or x.dtype not in FLOATS or x.const_value is not None:
        return None
    target = [d if isinstance(d, int) else -1 for d in dims(y)]
    if 0 in target or 0 in dims(x):
        return None
    if same_size(x, y) and target[1:].count(-1) <= 1 and len(target) > 1:
        return Expression("Reshape", (x,), {"target_shape": tuple(target[1:]), **dtype_config(x)})
    if target.count(-1) <= 1:
        return Expression("ops.reshape", (x,), {"newshape": tuple(target)})
    return None


@layer("Reshape")
def reshape(node: ir.Node, data: ir.Value, shape: ir.Value, *, allowzero: int = 0) -> Expression | None:
    return reshaped(data, node.outputs[0])


@layer("Flatten")
def flatten(node: ir.Node, input: ir.Value, *, axis: int = 1) -> Expression | None:
    if axis == 1 and rank(input) >= 2 and is_float(input) and all(dims(input)[1:]):
        return Expression("Flatten", (input,), dtype_config(input))
    return reshaped(input, node.outputs[0])


@layer("Squeeze")
def squeeze(node: ir.Node, data: ir.Value, axes: ir.Value | None = None) -> Expression | None:
    chosen = ints(axes)
    if (plain := reshaped(data, node.outputs[0])) is not None and plain.is_layer:
        return plain
    if chosen is None or rank(data) < 0 or data.dtype not in FLOATS or any(dims(data)[a] != 1 for a in chosen):
        return None
    return Expression("ops.squeeze", (data,), {"axis": tuple(chosen)})


@layer("Unsqueeze")
def unsqueeze(node: ir.Node, data: ir.Value, axes: ir.Value) -> Expression | None:
    chosen = ints(axes)
    if (plain := reshaped(data, node.outputs[0])) is not None and plain.is_layer:
        return plain
    kinds = (*FLOATS, ir.DataType.BOOL)
    if not chosen or rank(data) < 0 or data.dtype not in kinds or data.const_value is not None:
        return None
    return Expression("ops.expand_dims", (data,), {"axis": tuple(chosen) if len(chosen) > 1 else chosen[0]})


@layer("Transpose")
def transpose(node: ir.Node, data: ir.Value, *, perm: Any = None) -> Expression | None:
    if rank(data) < 2 or data.dtype not in FLOATS or data.const_value is not None:
        return None
    perm = list(reversed(range(rank(data)))) if perm is None else list(perm)
    if perm[0] == 0:
        return Expression("Permute", (data,), {"dims": tuple(perm[1:]), **dtype_config(data)})
    return Expression("ops.transpose", (data,), {"axes": tuple(perm)})


@layer("Concat")
def concat(node: ir.Node, *inputs: ir.Value, axis: int) -> Result | None:
    if not is_float(*inputs) or any(v.const_value is not None or rank(v) < 1 for v in inputs) or len(inputs) < 2:
        return None
    axis = axis % rank(inputs[0])
    others = [[d for i, d in enumerate(dims(v)) if i not in (0, axis)] for v in inputs]
    if axis and all(o == others[0] and None not in o for o in others) and all(same_size(inputs[0], v) for v in inputs):
        shown = -1 if axis == rank(inputs[0]) - 1 else axis
        config = {**({} if shown == -1 else {"axis": shown}), **dtype_config(inputs[0])}
        return Expression("Concatenate", tuple(inputs), config, as_list=True)
    return Expression("ops.concatenate", tuple(inputs), {"axis": axis}, as_list=True)


@layer("Split")
def split(
    node: ir.Node, input: ir.Value, split: ir.Value | None = None, *, axis: int = 0, num_outputs: int | None = None
) -> tuple[Result, ...] | None:
    if rank(input) < 1 or not is_float(input) or input.const_value is not None or len(node.outputs) < 2:
        return None
    total, parts = dims(input)[axis], ints(split)
    if split is None and num_outputs and total:
        chunk = -(-total // num_outputs)
        parts = [min(chunk, total - i * chunk) for i in range(num_outputs)]
    if parts is None or total is None or sum(parts) != total or min(parts) < 1:
        return None
    ends = [sum(parts[: i + 1]) for i in range(len(parts) - 1)]
    made = Expression("ops.split", (input,), {"indices_or_sections": ends, "axis": axis % rank(input)})
    return tuple(Item(made, i) for i in range(len(parts)))


@layer("Slice")
def slice_(
    node: ir.Node, data: ir.Value, starts: ir.Value, ends: ir.Value, axes: ir.Value | None = None, steps: ir.Value | None = None
) -> Expression | None:
    begin, end, where, step = (ints(v) for v in (starts, ends, axes, steps))
    if rank(data) < 1 or data.dtype not in FLOATS or data.const_value is not None or begin is None or end is None:
        return None
    if (axes is not None and where is None) or (steps is not None and step is None):
        return None
    where, step = list(range(len(begin))) if where is None else where, [1] * len(begin) if step is None else step
    if any(s < 1 for s in step):
        return None
    cuts: list[Any] = [slice(None)] * rank(data)
    for axis, b, e, s in zip(where, begin, end, step, strict=True):
        size = dims(data)[axis]
        whole = e >= (size if size is not None else (1 << 31) - 1)
        if abs(b) >= 1 << 31 or (not whole and abs(e) >= 1 << 31):
            return None
        cuts[axis % rank(data)] = slice(b or None, None if whole else e, None if s == 1 else s)
    return Expression("getitem", (data, tuple(cuts)))


@layer("Pad")
def pad(
    node: ir.Node, data: ir.Value, pads: ir.Value, constant_value: ir.Value | None = None, axes: ir.Value | None = None, *,
    mode: str = "constant",
) -> Any:  # fmt: skip
    amounts, where = ints(pads), ints(axes)
    if rank(data) < 1 or not is_float(data) or data.const_value is not None or amounts is None or mode != "constant":
        return None
    value = 0.0 if constant_value is None else known(constant_value)
    if value is None or (axes is not None and where is None) or min(amounts, default=0) < 0:
        return None
    where = list(range(rank(data))) if where is None else [a % rank(data) for a in where]
    pairs = [[0, 0] for _ in range(rank(data))]
    for i, axis in enumerate(where):
        pairs[axis] = [amounts[i], amounts[len(where) + i]]
    value = float(value) if isinstance(value, float) else float(value.reshape(()))
    spatial = pairs[1:-1]
    if value == 0 and 3 <= rank(data) <= 5 and not any((*pairs[0], *pairs[-1])):
        return zeros_around(data, [(a, b) for a, b in spatial], data)
    return Expression("ops.pad", (data,), {"pad_width": pairs, "constant_values": value})


@layer("Resize")
def resize(
    node: ir.Node, X: ir.Value, roi: ir.Value | None = None, scales: ir.Value | None = None, sizes: ir.Value | None = None, *,
    antialias: int = 0, axes: Any = None, coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0, extrapolation_value: float = 0.0, keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Expression | None:  # fmt: skip
    """Upsampling of images with the channels last by whole factors."""
    y = node.outputs[0]
    if rank(X) != 4 or rank(y) != 4 or not is_float(X) or antialias or dims(X)[3] is None or dims(X)[3] != dims(y)[3]:
        return None
    factors = _factors(X, y, scales, axes)
    if factors is None or not same_size(X, y):
        return None
    if mode == "nearest":
        plain = coordinate_transformation_mode == "asymmetric" and nearest_mode == "floor"
        centred = coordinate_transformation_mode == "half_pixel" and nearest_mode in ("round_prefer_floor", "round_prefer_ceil")
        if not plain and not centred:
            return None
    elif mode != "linear" or coordinate_transformation_mode != "half_pixel":
        return None
    interpolation = {} if mode == "nearest" else {"interpolation": "bilinear"}
    return Expression("UpSampling2D", (X,), {"size": factors, **interpolation, **dtype_config(X)})


def _factors(x: ir.Value, y: ir.Value, scales: ir.Value | None, axes: Any) -> tuple[int, int] | None:
    """The whole factors by which height and width grow."""
    given = None if scales is None else known(scales)
    if given is not None and given.size:
        full = [1.0] * 4
        for axis, factor in zip(range(4) if axes is None else axes, given.reshape(-1).tolist(), strict=True):
            full[axis] = factor
    else:
        sizes = [(a, b) for a, b in zip(dims(x), dims(y), strict=True)]
        if any(a is None or b is None for a, b in sizes[1:3]):
            return None
        full = [1.0, *(b / a for a, b in sizes[1:3] if a and b is not None), 1.0]
    whole = len(full) == 4 and full[0] == full[3] == 1 and all(f >= 1 and f == int(f) for f in full)
    return (int(full[1]), int(full[2])) if whole else None

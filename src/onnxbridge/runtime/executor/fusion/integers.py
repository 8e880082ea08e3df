"""Quantized models: a convolution, product, sum or maximum between DequantizeLinear and QuantizeLinear is done on bytes.

Sums of products are exact in int32. What follows them is one factor for each channel, so a result differs from that in
float32 at most by the rounding of the float32 sums, which is to say by one step where they fall between two.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.convolutions import moves_of
from onnxbridge.runtime.executor.fusion.epilogues import activation, other, single
from onnxbridge.runtime.executor.fusion.plan_rewriter import Draft
from onnxbridge.runtime.executor.kernels import integers as native
from onnxbridge.runtime.executor.kernels.integers import BYTES, Result
from onnxbridge.runtime.executor.kernels.run.call_recorder import beside, keep
from onnxbridge.runtime.executor.numpy.kernels.windows import out_sizes
from onnxbridge.runtime.executor.numpy.padding import window
from onnxbridge.runtime.executor.plan import NOTHING, Step


def join(draft: Draft, pool: Pool) -> None:
    """Put kernels on bytes in the place of quantized operators; before constants are worked out, which undoes the weights."""
    if not native.available():
        return
    for i, step in draft.steps("Conv", "MatMul", "Gemm"):
        _products(draft, i, step, pool)
    for i, step in draft.steps("QLinearConv", "QLinearMatMul"):
        _stated(draft, i, step, pool)
    for i, step in draft.steps("Add"):
        _sums(draft, i, step, pool)
    for i, step in draft.steps("MaxPool"):
        _maxima(draft, i, step, pool)


def _scales(draft: Draft, step: Step) -> tuple[Any, Any] | None:
    """Scale and zero point of a step that quantizes to bytes or back by constants, one for all or one for each channel."""
    a = step.attrs
    if step.op not in ("QuantizeLinear", "DequantizeLinear") or a["block_size"] or a["output_dtype"] or a.get("precision"):
        return None
    scale, zero = (draft.constant(s) for s in (*step.sources[1:], NOTHING)[:2])
    if not single(scale) or not isinstance(zero, np.ndarray) or zero.shape != scale.shape or scale.ndim > 1:
        return None
    return (scale, zero) if np.isfinite(scale).all() and (scale > 0).all() else None


def _one(found: tuple[Any, Any] | None) -> tuple[float, Any] | None:
    """The same for bytes with one scale."""
    if found is None or found[0].size != 1 or found[1].dtype not in BYTES:
        return None
    return float(found[0].reshape(())), found[1].reshape(())


def _input(draft: Draft, slot: int) -> tuple[int, float, Any] | None:
    """Where the bytes are that a value is made of, with their scale and zero point."""
    made = draft.maker(slot)
    if made is None or made[1].op != "DequantizeLinear":
        return None
    found = _one(_scales(draft, made[1]))
    return None if found is None else (made[1].sources[0], *found)


def _weights(draft: Draft, slot: int, axis: int) -> tuple[Any, Any] | None:
    """Weights less their zero points as int8, and the scale for each index of this axis."""
    made = draft.maker(slot)
    if made is None or made[1].op != "DequantizeLinear":
        return None
    w, found = draft.constant(made[1].sources[0]), _scales(draft, made[1])
    if found is None or not isinstance(w, np.ndarray):
        return None
    if found[0].size > 1 and made[1].attrs["axis"] % w.ndim != axis:
        return None
    return _less(w, *found, axis)


def _less(w: Any, scale: Any, zero: Any, axis: int) -> tuple[Any, Any] | None:
    if w.dtype not in BYTES or zero.dtype != w.dtype or (scale.size > 1 and scale.shape != (w.shape[axis],)):
        return None
    each = [1] * w.ndim
    each[axis] = -1
    less = w.astype(np.int16) - zero.astype(np.int16).reshape(each if zero.size > 1 else ())
    if less.size == 0 or less.min() < -128 or less.max() > 127:
        return None
    return less.astype(np.int8), np.broadcast_to(scale, (w.shape[axis],)).astype(np.float64)


def _bias(draft: Draft, slot: int, scale: Any) -> tuple[Any, Any] | None:
    """A bias as whole numbers of these scales, or else as what is left to add in float."""
    count = len(scale)
    nothing = np.zeros(count, np.int64)
    if slot == NOTHING:
        return nothing, np.zeros(count)
    value, made = draft.constant(slot), draft.maker(slot)
    if single(value) and value.size == count:
        return nothing, value.reshape(-1).astype(np.float64)
    if made is None or made[1].op != "DequantizeLinear":
        return None
    q, by = (draft.constant(s) for s in made[1].sources[:2])
    zero = draft.constant(made[1].sources[2]) if len(made[1].sources) > 2 else None
    usual = single(by) and isinstance(q, np.ndarray) and q.dtype == np.int32 and q.size == count and by.size in (1, count)
    if not usual or (zero is not None and zero.any()) or made[1].attrs["block_size"]:
        return None
    if np.allclose(by.reshape(-1).astype(np.float64), scale, rtol=1e-6, atol=0):
        return q.reshape(-1).astype(np.int64), np.zeros(count)
    return nothing, q.reshape(-1) * by.reshape(-1).astype(np.float64)


def _makers(draft: Draft, i: int, step: Step) -> list[int]:
    """The steps that make this one's inputs for it alone."""
    made = [draft.maker(slot) for slot in step.sources if draft.user(slot) == (i, step)]
    return [found[0] for found in made if found is not None]


def _end(draft: Draft, slot: int) -> tuple[list[int], int, Any] | None:
    """What follows up to QuantizeLinear: the steps, the value, and (scale, zero point, lowest, highest byte)."""
    places, low, high = [], -math.inf, math.inf
    follow = draft.user(slot)
    if follow is not None and (ending := activation(draft, follow[1])) is not None and not ending.curve:
        places, low, high, slot = [follow[0]], ending.low, ending.high, follow[1].targets[0]
        follow = draft.user(slot)
    if follow is None or follow[1].op != "QuantizeLinear" or follow[1].sources[0] != slot:
        return None
    found = _one(_scales(draft, follow[1]))
    if found is None or math.isnan(low) or math.isnan(high):
        return None
    scale, zero = found
    reach = np.iinfo(zero.dtype)
    bound = [
        float(np.clip(np.rint(np.float32(v) / np.float32(scale)) + int(zero), reach.min, reach.max)) for v in (low, high)
    ]
    return [*places, follow[0]], follow[1].targets[0], (scale, zero, *bound)


def _products(draft: Draft, i: int, step: Step, pool: Pool) -> None:
    conv = step.op == "Conv"
    turned = step.op == "Gemm" and bool(step.attrs["transB"])
    if step.op == "Gemm" and (step.attrs["transA"] or step.attrs["alpha"] != 1 or step.attrs["beta"] != 1):
        return
    x, weights = _input(draft, step.sources[0]), _weights(draft, step.sources[1], 0 if conv or turned else 1)
    if x is None or weights is None:
        return
    w, by = weights
    if w.ndim != (4 if conv else 2):
        return
    chain, slot = [i], step.targets[0]
    given = step.sources[2] if len(step.sources) > 2 else NOTHING
    scale = by * x[1]
    if step.op == "MatMul":
        follow = draft.user(slot)
        if follow is not None and follow[1].op == "Add":
            more = other(follow[1], slot)
            value = draft.constant(more)
            if single(value) and value.shape == (len(scale),):
                given, slot = more, follow[1].targets[0]
                chain.append(follow[0])
    bias, end = _bias(draft, given, scale), _end(draft, slot)
    if bias is None or end is None:
        return
    places, slot, (out, zero, low, high) = end
    chain = [*_makers(draft, i, step), *chain]
    result = Result(zero.dtype, scale / out, bias[1] / out, int(zero), low, high)
    names = "+".join(["Bytes", step.op])
    if not conv:
        w = w if turned else w.T
        run = native.convolution(np.ascontiguousarray(w)[:, :, None, None], x[2], bias[0], still, 1, result, pool)
        product = functools.partial(as_rows, run)
        draft.join([*chain, *places], names, product, [x[0]], [slot], how=run.how)  # type: ignore[attr-defined]
        return
    groups = step.attrs["group"]
    if groups < 1 or w.shape[0] % groups or tuple(step.attrs["kernel_shape"] or w.shape[2:]) != w.shape[2:]:
        return
    dense = set(step.attrs["dilations"] or (1,)) == {1}
    run = native.convolution(w, x[2], bias[0], moves_of(step, w.shape[2:]), groups, result, pool, dense)
    draft.join([*chain, *places], names, run, [x[0]], [slot], how=run.how)  # type: ignore[attr-defined]


def _stated(draft: Draft, i: int, step: Step, pool: Pool) -> None:
    """The operators that say themselves by which scales their inputs and their result are quantized."""
    conv = step.op == "QLinearConv"
    x_scale, x_zero, w, scale, zero, y_scale, y_zero = (draft.constant(s) for s in step.sources[1:8])
    bias = draft.constant(step.sources[8]) if len(step.sources) > 8 and step.sources[8] != NOTHING else None
    known = all(isinstance(v, np.ndarray) for v in (x_scale, x_zero, w, scale, zero, y_scale, y_zero))
    if not known or (bias is None and len(step.sources) > 8 and step.sources[8] != NOTHING) or w.ndim != (4 if conv else 2):
        return
    if not all(single(v) and (v > 0).all() and np.isfinite(v).all() for v in (x_scale, scale, y_scale)):
        return
    if x_scale.size != 1 or y_scale.size != 1 or scale.ndim > 1 or zero.size not in (1, scale.size):
        return
    if x_zero.size != 1 or y_zero.size != 1 or not {x_zero.dtype, y_zero.dtype} <= set(BYTES):
        return
    weights = _less(w, scale, zero, 0 if conv else 1)
    if weights is None:
        return
    less, by = weights
    offset = np.zeros(len(by), np.int64) if bias is None else bias.reshape(-1).astype(np.int64)
    out, reach = float(y_scale.reshape(())), np.iinfo(y_zero.dtype)
    factors = by * float(x_scale.reshape(())) / out
    result = Result(y_zero.dtype, factors, np.zeros(len(by)), int(y_zero.reshape(())), float(reach.min), float(reach.max))
    begin = x_zero.reshape(())
    if conv:
        groups = step.attrs["group"]
        if groups < 1 or less.shape[0] % groups or tuple(step.attrs["kernel_shape"] or less.shape[2:]) != less.shape[2:]:
            return
        dense = set(step.attrs["dilations"] or (1,)) == {1}
        run = native.convolution(less, begin, offset, moves_of(step, less.shape[2:]), groups, result, pool, dense)
        draft.join([i], step.op, run, step.sources[:1], step.targets, how=run.how)  # type: ignore[attr-defined]
    else:
        run = native.convolution(np.ascontiguousarray(less.T)[:, :, None, None], begin, offset, still, 1, result, pool)
        draft.join([i], step.op, functools.partial(as_rows, run), step.sources[:1], step.targets, how=run.how)  # type: ignore[attr-defined]


def still(x: Any) -> Any:
    """The window of one position."""
    return window(x, (1, 1), None, None, None, "NOTSET")


def as_rows(run: Callable[[Any], Any], x: Any) -> Any:
    """A convolution of one position as a product with the last axis."""
    if not x.flags.c_contiguous:
        beside()
    y = run(np.ascontiguousarray(x).reshape(1, -1, 1, x.shape[-1]).transpose(0, 3, 1, 2))
    return y.transpose(0, 2, 3, 1).reshape(*x.shape[:-1], y.shape[1])


def _sums(draft: Draft, i: int, step: Step, pool: Pool) -> None:
    left, right, end = _input(draft, step.sources[0]), _input(draft, step.sources[1]), _end(draft, step.targets[0])
    if left is None or right is None or end is None:
        return
    (p, a, u), (q, b, v) = left, right
    places, slot, (out, zero, low, high) = end
    shift = -(int(u) * a + int(v) * b) / out
    constant = [draft.constant(slot) is not None for slot in (p, q)]
    spread: dict[Any, Any] = {}  # constants in the shape of what they are added to

    def run(x: Any, y: Any) -> Any:
        if x.shape != y.shape and any(constant):
            x, y = (_spread(v, w, spread) if c else v for v, w, c in ((x, y, constant[0]), (y, x, constant[1])))
        dense = x.flags.c_contiguous or (x.ndim == 4 and x.transpose(0, 2, 3, 1).flags.c_contiguous)
        if x.shape == y.shape and x.strides == y.strides and dense and x.size and (x.dtype, y.dtype) == (u.dtype, v.dtype):
            return native.combined(x, y, a / out, b / out, shift, zero, low, high, pool)
        beside()
        total = x.astype(np.float32) * np.float32(a / out) + y.astype(np.float32) * np.float32(b / out) + np.float32(shift)
        return np.clip(np.rint(total) + int(zero), low, high).astype(zero.dtype)

    draft.join([*_makers(draft, i, step), i, *places], "Bytes+Add", run, [p, q], [slot], how=("bytes", 2))


def _spread(value: Any, like: Any, known: dict[Any, Any]) -> Any:
    """A constant in the shape and the memory order of another array, where it broadcasts to that."""
    key = (like.shape, like.strides)
    if key not in known:
        try:
            known[key] = np.empty_like(like, value.dtype)
            known[key][...] = value
        except ValueError:
            known[key] = value
    return keep(known[key])


def _maxima(draft: Draft, i: int, step: Step, pool: Pool) -> None:
    """The largest of dequantized bytes is the dequantized largest byte, if both have the same scale."""
    x, end = _input(draft, step.sources[0]), _end(draft, step.targets[0])
    if x is None or end is None or not draft.single(step) or len(end[0]) != 1:
        return
    places, slot, (out, zero, _, _) = end
    if x[1] != out or x[2] != zero or x[2].dtype != zero.dtype:
        return
    attrs, dtype = step.attrs, zero.dtype

    def run(x: Any) -> Any:
        if x.ndim != 4 or x.dtype != dtype or not x.size:
            raise ValueError(f"a maximum over windows of {dtype} in two dimensions does not fit {x.dtype} of {x.shape}")
        w = window(x, attrs["kernel_shape"], attrs["strides"], attrs["pads"], attrs.get("dilations"), attrs["auto_pad"])
        ceil = bool(attrs["ceil_mode"])
        return native.largest(x, w, out_sizes(x.shape[2:], w.kernel, w.strides, w.pads, w.dilations, ceil_mode=ceil), pool)

    draft.join([*_makers(draft, i, step), i, *places], "Bytes+MaxPool", run, [x[0]], [slot], how=("bytes", 0))

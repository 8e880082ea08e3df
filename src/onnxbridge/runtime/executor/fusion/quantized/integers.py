"""Quantized models: a convolution, product, sum or maximum between DequantizeLinear and QuantizeLinear is done on bytes.

Sums of products are exact in int32. What follows them is one factor for each channel, so a result differs from that in
float32 at most by the rounding of the float32 sums, which is to say by one step where they fall between two.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.epilogues import Chain, other, single
from onnxbridge.runtime.executor.fusion.layers.convolutions import moves_of
from onnxbridge.runtime.executor.fusion.plan_rewriter import PlanRewriter
from onnxbridge.runtime.executor.kernels import integers as native
from onnxbridge.runtime.executor.kernels.integers import BYTES, Result, as_rows, still
from onnxbridge.runtime.executor.kernels.run.call_recorder import mark_incomplete, retain
from onnxbridge.runtime.executor.numpy.kernels.windows import out_sizes
from onnxbridge.runtime.executor.numpy.padding import window
from onnxbridge.runtime.executor.plan import NOTHING, Step


def rewrite(rewriter: PlanRewriter, pool: Pool) -> None:
    """Replace quantized operators by kernels on bytes; before constant folding, which would dequantize the weights."""
    if not native.available():
        return
    for i, step in rewriter.steps("Conv", "MatMul", "Gemm"):
        _product(rewriter, i, step, pool)
    for i, step in rewriter.steps("QLinearConv", "QLinearMatMul"):
        _qlinear(rewriter, i, step, pool)
    for i, step in rewriter.steps("Add"):
        _sum(rewriter, i, step, pool)
    for i, step in rewriter.steps("MaxPool"):
        _max_pool(rewriter, i, step, pool)


def _scales(rewriter: PlanRewriter, step: Step) -> tuple[Any, Any] | None:
    """Scale and zero point of a step that quantizes to bytes or back by constants, one for all or one for each channel."""
    a = step.attrs
    if step.op not in ("QuantizeLinear", "DequantizeLinear") or a["block_size"] or a["output_dtype"] or a.get("precision"):
        return None
    scale, zero = (rewriter.constant(s) for s in (*step.sources[1:], NOTHING)[:2])
    if not single(scale) or not isinstance(zero, np.ndarray) or zero.shape != scale.shape or scale.ndim > 1:
        return None
    return (scale, zero) if np.isfinite(scale).all() and (scale > 0).all() else None


def _per_tensor(found: tuple[Any, Any] | None) -> tuple[float, Any] | None:
    """The same for per-tensor quantization to bytes."""
    if found is None or found[0].size != 1 or found[1].dtype not in BYTES:
        return None
    return float(found[0].reshape(())), found[1].reshape(())


def _input(rewriter: PlanRewriter, slot: int) -> tuple[int, float, Any] | None:
    """The bytes that a value is dequantized from, with their scale and zero point."""
    made = rewriter.maker(slot)
    if made is None or made[1].op != "DequantizeLinear":
        return None
    found = _per_tensor(_scales(rewriter, made[1]))
    return None if found is None else (made[1].sources[0], *found)


def _weights(rewriter: PlanRewriter, slot: int, axis: int) -> tuple[Any, Any] | None:
    """Weights minus their zero points as int8, and the scale of each index of this axis."""
    made = rewriter.maker(slot)
    if made is None or made[1].op != "DequantizeLinear":
        return None
    w, found = rewriter.constant(made[1].sources[0]), _scales(rewriter, made[1])
    if found is None or not isinstance(w, np.ndarray):
        return None
    if found[0].size > 1 and made[1].attrs["axis"] % w.ndim != axis:
        return None
    return _without_zero_point(w, *found, axis)


def _without_zero_point(w: Any, scale: Any, zero: Any, axis: int) -> tuple[Any, Any] | None:
    if w.dtype not in BYTES or zero.dtype != w.dtype or (scale.size > 1 and scale.shape != (w.shape[axis],)):
        return None
    each = [1] * w.ndim
    each[axis] = -1
    centered = w.astype(np.int16) - zero.astype(np.int16).reshape(each if zero.size > 1 else ())
    if centered.size == 0 or centered.min() < -128 or centered.max() > 127:
        return None
    return centered.astype(np.int8), np.broadcast_to(scale, (w.shape[axis],)).astype(np.float64)


def _bias(rewriter: PlanRewriter, slot: int, scale: Any) -> tuple[Any, Any] | None:
    """A bias as integers of these scales, or else as a shift in float."""
    count = len(scale)
    nothing = np.zeros(count, np.int64)
    if slot == NOTHING:
        return nothing, np.zeros(count)
    value, made = rewriter.constant(slot), rewriter.maker(slot)
    if single(value) and value.size == count:
        return nothing, value.reshape(-1).astype(np.float64)
    if made is None or made[1].op != "DequantizeLinear":
        return None
    q, by = (rewriter.constant(s) for s in made[1].sources[:2])
    zero = rewriter.constant(made[1].sources[2]) if len(made[1].sources) > 2 else None
    usual = single(by) and isinstance(q, np.ndarray) and q.dtype == np.int32 and q.size == count and by.size in (1, count)
    if not usual or (zero is not None and zero.any()) or made[1].attrs["block_size"]:
        return None
    if np.allclose(by.reshape(-1).astype(np.float64), scale, rtol=1e-6, atol=0):
        return q.reshape(-1).astype(np.int64), np.zeros(count)
    return nothing, q.reshape(-1) * by.reshape(-1).astype(np.float64)


def _own_inputs(rewriter: PlanRewriter, i: int, step: Step) -> list[int]:
    """The steps whose results only this step uses."""
    made = [rewriter.maker(slot) for slot in step.sources if rewriter.user(slot) == (i, step)]
    return [found[0] for found in made if found is not None]


def _quantize(rewriter: PlanRewriter, chain: Chain) -> tuple[float, Any, float, float] | None:
    """A QuantizeLinear that ends a chain, after a clip if there is one: its scale and zero point, and the bounds in bytes."""
    clip = chain.activation(clip=True)
    step = chain.next("QuantizeLinear")
    found = _per_tensor(_scales(rewriter, step)) if step is not None and step.sources[0] == chain.result else None
    if found is None or math.isnan(clip.low) or math.isnan(clip.high):
        return None
    chain.append()
    scale, zero = found
    limits = np.iinfo(zero.dtype)
    bounds = (np.rint(np.float32(v) / np.float32(scale)) + int(zero) for v in (clip.low, clip.high))
    low, high = (float(np.clip(v, limits.min, limits.max)) for v in bounds)
    return scale, zero, low, high


def _product(rewriter: PlanRewriter, i: int, step: Step, pool: Pool) -> None:
    conv = step.op == "Conv"
    transposed = step.op == "Gemm" and bool(step.attrs["transB"])
    if step.op == "Gemm" and (step.attrs["transA"] or step.attrs["alpha"] != 1 or step.attrs["beta"] != 1):
        return
    x, weights = _input(rewriter, step.sources[0]), _weights(rewriter, step.sources[1], 0 if conv or transposed else 1)
    if x is None or weights is None:
        return
    w, by = weights
    if w.ndim != (4 if conv else 2):
        return
    chain, scale = Chain(rewriter, i, step), by * x[1]
    given = step.sources[2] if len(step.sources) > 2 else NOTHING
    if step.op == "MatMul" and (add := chain.next("Add")) is not None:
        more = other(add, chain.result)
        value = rewriter.constant(more)
        if single(value) and value.shape == (len(scale),):
            given = more
            chain.append()
    bias, quantize = _bias(rewriter, given, scale), _quantize(rewriter, chain)
    if bias is None or quantize is None:
        return
    out, zero, low, high = quantize
    steps = [*_own_inputs(rewriter, i, step), *chain.steps]
    result = Result(zero.dtype, scale / out, bias[1] / out, int(zero), low, high)
    names = "+".join(["Bytes", step.op])
    found = _kernel(step, w.T if transposed else w, x[2], bias[0], result, pool)
    if found is not None:
        rewriter.fuse(steps, names, found[0], [x[0]], [chain.result], how=found[1])


def _kernel(step: Step, w: Any, zero: Any, bias: Any, result: Result, pool: Pool) -> tuple[Any, tuple[str, int]] | None:
    """The kernel of a convolution, or of a product with weights (inputs, outputs), and its algorithm; None for others."""
    if w.ndim == 2:
        run = native.convolution(np.ascontiguousarray(w.T)[:, :, None, None], zero, bias, still, 1, result, pool)
        return functools.partial(as_rows, run), run.how  # type: ignore[attr-defined]
    groups, dense = step.attrs["group"], set(step.attrs["dilations"] or (1,)) == {1}
    if groups < 1 or w.shape[0] % groups or tuple(step.attrs["kernel_shape"] or w.shape[2:]) != w.shape[2:]:
        return None
    run = native.convolution(w, zero, bias, moves_of(step, w.shape[2:]), groups, result, pool, dense)
    return run, run.how  # type: ignore[attr-defined]


def _qlinear(rewriter: PlanRewriter, i: int, step: Step, pool: Pool) -> None:
    """QLinearConv and QLinearMatMul, which have the scales and zero points as inputs."""
    conv = step.op == "QLinearConv"
    x_scale, x_zero, w, scale, zero, y_scale, y_zero = (rewriter.constant(s) for s in step.sources[1:8])
    bias = rewriter.constant(step.sources[8]) if len(step.sources) > 8 and step.sources[8] != NOTHING else None
    known = all(isinstance(v, np.ndarray) for v in (x_scale, x_zero, w, scale, zero, y_scale, y_zero))
    if not known or (bias is None and len(step.sources) > 8 and step.sources[8] != NOTHING) or w.ndim != (4 if conv else 2):
        return
    if not all(single(v) and (v > 0).all() and np.isfinite(v).all() for v in (x_scale, scale, y_scale)):
        return
    if x_scale.size != 1 or y_scale.size != 1 or scale.ndim > 1 or zero.size not in (1, scale.size):
        return
    if x_zero.size != 1 or y_zero.size != 1 or not {x_zero.dtype, y_zero.dtype} <= set(BYTES):
        return
    weights = _without_zero_point(w, scale, zero, 0 if conv else 1)
    if weights is None:
        return
    centered, by = weights
    offset = np.zeros(len(by), np.int64) if bias is None else bias.reshape(-1).astype(np.int64)
    out, limits = float(y_scale.reshape(())), np.iinfo(y_zero.dtype)
    factors = by * float(x_scale.reshape(())) / out
    result = Result(y_zero.dtype, factors, np.zeros(len(by)), int(y_zero.reshape(())), float(limits.min), float(limits.max))
    found = _kernel(step, centered, x_zero.reshape(()), offset, result, pool)
    if found is not None:
        rewriter.fuse([i], step.op, found[0], step.sources[:1], step.targets, how=found[1])


def _sum(rewriter: PlanRewriter, i: int, step: Step, pool: Pool) -> None:
    chain = Chain(rewriter, i, step)
    left, right, quantize = _input(rewriter, step.sources[0]), _input(rewriter, step.sources[1]), _quantize(rewriter, chain)
    if left is None or right is None or quantize is None:
        return
    (p, a, u), (q, b, v) = left, right
    out, zero, low, high = quantize
    shift = -(int(u) * a + int(v) * b) / out
    constant = [rewriter.constant(slot) is not None for slot in (p, q)]
    broadcasts: dict[Any, Any] = {}  # constants in the shape of what they are added to

    def run(x: Any, y: Any) -> Any:
        if x.shape != y.shape and any(constant):
            x, y = (_broadcast(v, w, broadcasts) if c else v for v, w, c in ((x, y, constant[0]), (y, x, constant[1])))
        dense = x.flags.c_contiguous or (x.ndim == 4 and x.transpose(0, 2, 3, 1).flags.c_contiguous)
        if x.shape == y.shape and x.strides == y.strides and dense and x.size and (x.dtype, y.dtype) == (u.dtype, v.dtype):
            return native.combined(x, y, a / out, b / out, shift, zero, low, high, pool)
        mark_incomplete()
        total = x.astype(np.float32) * np.float32(a / out) + y.astype(np.float32) * np.float32(b / out) + np.float32(shift)
        return np.clip(np.rint(total) + int(zero), low, high).astype(zero.dtype)

    rewriter.fuse([*_own_inputs(rewriter, i, step), *chain.steps], "Bytes+Add", run, [p, q], [chain.result], how=("bytes", 2))


def _broadcast(value: Any, like: Any, known: dict[Any, Any]) -> Any:
    """A constant broadcast to the shape and the memory order of another array, where that is possible."""
    key = (like.shape, like.strides)
    if key not in known:
        try:
            known[key] = np.empty_like(like, value.dtype)
            known[key][...] = value
        except ValueError:
            known[key] = value
    return retain(known[key])


def _max_pool(rewriter: PlanRewriter, i: int, step: Step, pool: Pool) -> None:
    """The largest of dequantized bytes is the dequantized largest byte, if both have the same scale."""
    chain = Chain(rewriter, i, step)
    x, quantize = _input(rewriter, step.sources[0]), _quantize(rewriter, chain)
    if x is None or quantize is None or not rewriter.single(step) or len(chain.steps) != 2:
        return
    out, zero, _, _ = quantize
    if x[1] != out or x[2] != zero or x[2].dtype != zero.dtype:
        return
    attrs, dtype = step.attrs, zero.dtype

    def run(x: Any) -> Any:
        if x.ndim != 4 or x.dtype != dtype or not x.size:
            raise ValueError(f"a maximum over windows of {dtype} in two dimensions does not fit {x.dtype} of {x.shape}")
        w = window(x, attrs["kernel_shape"], attrs["strides"], attrs["pads"], attrs.get("dilations"), attrs["auto_pad"])
        ceil = bool(attrs["ceil_mode"])
        return native.largest(x, w, out_sizes(x.shape[2:], w.kernel, w.strides, w.pads, w.dilations, ceil_mode=ceil), pool)

    steps = [*_own_inputs(rewriter, i, step), *chain.steps]
    rewriter.fuse(steps, "Bytes+MaxPool", run, [x[0]], [chain.result], how=("bytes", 0))

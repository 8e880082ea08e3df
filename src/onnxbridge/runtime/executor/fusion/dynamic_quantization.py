"""Dynamic quantization: DynamicQuantizeLinear, and the integer products with constant weights that follow it.

What quantizers write behind a product (a cast to float32, the scales, a bias) is done with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.convolutions import moves_of
from onnxbridge.runtime.executor.fusion.epilogues import other, single
from onnxbridge.runtime.executor.fusion.integers import as_rows, still
from onnxbridge.runtime.executor.fusion.plan_rewriter import Draft
from onnxbridge.runtime.executor.kernels import dynamic_quantization as native
from onnxbridge.runtime.executor.kernels import integers
from onnxbridge.runtime.executor.kernels.run.call_recorder import beside, unrecorded
from onnxbridge.runtime.executor.plan import NOTHING, Step


def join(draft: Draft, pool: Pool) -> None:
    """Put native kernels in the place of dynamic quantization, where the processor sums products of bytes."""
    for i, step in draft.steps("DynamicQuantizeLinear"):
        draft.swap(i, _quantize(step, pool))
    if integers.available():
        for i, step in draft.steps("MatMulInteger", "ConvInteger"):
            _product(draft, i, step, pool)


def _quantize(step: Step, pool: Pool) -> Callable[..., Any]:
    plain = unrecorded(step.run)

    def run(x: Any) -> Any:
        found = native.quantized(x, pool) if x.dtype == np.float32 and x.size else None
        return plain(x) if found is None else found

    return run


def _product(draft: Draft, i: int, step: Step, pool: Pool) -> None:
    conv = step.op == "ConvInteger"
    a, b, a_zero, b_zero = (*step.sources, NOTHING, NOTHING)[:4]
    w = native.Weights.of(draft.constant(b), draft.constant(b_zero), 0 if conv else 1)
    known = w is not None and draft.constant(b).ndim == (4 if conv else 2)
    if w is None or not known or (b_zero != NOTHING and draft.constant(b_zero) is None):
        return
    groups, (maps, depth, *kernel) = step.attrs["group"] if conv else 1, w.int8.shape
    if conv and (groups < 1 or maps % groups or tuple(step.attrs["kernel_shape"] or kernel) != tuple(kernel)):
        return
    if w.rest is not None and groups > 1:
        return
    places, slot, sources, bias = _ending(draft, step.targets[0], maps, conv)
    shift = None if bias is None else bias.reshape(-1)
    run = native.convolution(w, moves_of(step, tuple(kernel)) if conv else still, groups, shift, pool)
    plain, weights = step.run, (draft.constant(b), draft.constant(b_zero))
    attrs, channels = dict(step.attrs), depth * groups

    def multiply(x: Any, zero: Any, *scale: Any) -> Any:
        known = x.dtype == np.uint8 and x.size and (zero is None or zero.size == 1) and (x.ndim == 4 or not conv)
        sizes = (1,) if conv else (1, maps)
        simple = all(s.dtype == np.float32 and s.size in sizes and s.ndim < 2 for s in scale)
        if known and simple and x.shape[1 if conv else -1] == channels:
            return run(x, zero, *scale) if conv else as_rows(lambda rows: run(rows, zero, *scale), x)
        beside()
        y = plain(x, weights[0], zero, weights[1], **attrs)
        for s in scale:
            y = y.astype(np.float32) * s
        return y if bias is None else y + bias

    names = "+".join([step.op, *(["scales"] if sources else [])])
    draft.join([i, *places], names, multiply, [a, a_zero, *sources], [slot], how=run.how)  # type: ignore[attr-defined]


def _ending(draft: Draft, slot: int, maps: int, conv: bool) -> tuple[list[int], int, list[int], Any]:
    """A cast to float32, a factor and a constant bias that follow: the steps, the value, where the factor is, the bias."""
    cast = draft.user(slot)
    if cast is None or cast[1].op != "Cast" or cast[1].attrs["to"] != ir.DataType.FLOAT:
        return [], slot, [], None
    factor = draft.user(cast[1].targets[0])
    if factor is None or factor[1].op != "Mul" or (scale := other(factor[1], cast[1].targets[0])) == NOTHING:
        return [], slot, [], None
    places, slot = [cast[0], factor[0]], factor[1].targets[0]
    add = draft.user(slot)
    if add is not None and add[1].op == "Add":
        bias = draft.constant(other(add[1], slot))
        shapes = ((maps, 1, 1), (1, maps, 1, 1)) if conv else ((maps,),)
        if single(bias) and bias.shape in shapes:
            return [*places, add[0]], add[1].targets[0], [scale], bias
    return places, slot, [scale], None

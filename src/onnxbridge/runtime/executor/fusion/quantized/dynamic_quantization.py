"""Dynamic quantization: DynamicQuantizeLinear, and the integer products with constant weights that follow it.

What quantizers append to a product (a cast to float32, the scales, a bias) is fused with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.epilogues import Chain, other, single
from onnxbridge.runtime.executor.fusion.layers.convolutions import moves_of
from onnxbridge.runtime.executor.fusion.plan_rewriter import PlanRewriter
from onnxbridge.runtime.executor.kernels import dynamic_quantization as native
from onnxbridge.runtime.executor.kernels import integers
from onnxbridge.runtime.executor.kernels.integers import as_rows, still
from onnxbridge.runtime.executor.kernels.run.call_recorder import mark_incomplete
from onnxbridge.runtime.executor.plan import NOTHING, Step


def rewrite(rewriter: PlanRewriter, pool: Pool) -> None:
    """Replace dynamic quantization by kernels; its products where the processor has instructions for them."""
    for i, _ in rewriter.steps("DynamicQuantizeLinear"):
        rewriter.swap(i, _quantize(pool))
    if integers.available():
        for i, step in rewriter.steps("MatMulInteger", "ConvInteger"):
            _product(rewriter, i, step, pool)


def _quantize(pool: Pool) -> Callable[..., Any]:
    return lambda x: native.quantized(x, pool) if x.dtype == np.float32 and x.size else None


def _product(rewriter: PlanRewriter, i: int, step: Step, pool: Pool) -> None:
    conv = step.op == "ConvInteger"
    a, b, a_zero, b_zero = (*step.sources, NOTHING, NOTHING)[:4]
    w = native.Weights.of(rewriter.constant(b), rewriter.constant(b_zero), 0 if conv else 1)
    known = w is not None and rewriter.constant(b).ndim == (4 if conv else 2)
    if w is None or not known or (b_zero != NOTHING and rewriter.constant(b_zero) is None):
        return
    groups, (maps, depth, *kernel) = step.attrs["group"] if conv else 1, w.int8.shape
    if conv and (groups < 1 or maps % groups or tuple(step.attrs["kernel_shape"] or kernel) != tuple(kernel)):
        return
    if w.rest is not None and groups > 1:
        return
    chain = Chain(rewriter, i, step)
    sources, bias = _epilogue(rewriter, chain, maps, conv)
    shift = None if bias is None else bias.reshape(-1)
    run = native.convolution(w, moves_of(step, tuple(kernel)) if conv else still, groups, shift, pool)
    plain, weights = step.run, (rewriter.constant(b), rewriter.constant(b_zero))
    attrs, channels = dict(step.attrs), depth * groups

    def multiply(x: Any, zero: Any, *scale: Any) -> Any:
        known = x.dtype == np.uint8 and x.size and (zero is None or zero.size == 1) and (x.ndim == 4 or not conv)
        sizes = (1,) if conv else (1, maps)
        simple = all(s.dtype == np.float32 and s.size in sizes and s.ndim < 2 for s in scale)
        if known and simple and x.shape[1 if conv else -1] == channels:
            return run(x, zero, *scale) if conv else as_rows(lambda rows: run(rows, zero, *scale), x)
        mark_incomplete()
        y = plain(x, weights[0], zero, weights[1], **attrs)
        for s in scale:
            y = y.astype(np.float32) * s
        return y if bias is None else y + bias

    names = "+".join([step.op, *(["scales"] if sources else [])])
    rewriter.fuse(chain.steps, names, multiply, [a, a_zero, *sources], [chain.result], how=run.how)  # type: ignore[attr-defined]


def _epilogue(rewriter: PlanRewriter, chain: Chain, maps: int, conv: bool) -> tuple[list[int], Any]:
    """A cast to float32, a factor and a constant bias that follow, which are added to the chain: the factor, and the bias."""
    cast = chain.next("Cast")
    factor = rewriter.user(cast.targets[0]) if cast is not None and cast.attrs["to"] == ir.DataType.FLOAT else None
    if cast is None or factor is None or factor[1].op != "Mul" or (scale := other(factor[1], cast.targets[0])) == NOTHING:
        return [], None
    chain.append()
    chain.append()
    add = chain.next("Add")
    bias = None if add is None else rewriter.constant(other(add, chain.result))
    if bias is None or not single(bias) or bias.shape not in (((maps, 1, 1), (1, maps, 1, 1)) if conv else ((maps,),)):
        return [scale], None
    chain.append()
    return [scale], bias

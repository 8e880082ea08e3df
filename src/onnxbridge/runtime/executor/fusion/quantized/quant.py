"""QuantizeLinear to bytes and DequantizeLinear from them, with one constant scale for all elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.epilogues import scalar
from onnxbridge.runtime.executor.fusion.plan_rewriter import PlanRewriter
from onnxbridge.runtime.executor.kernels.array_layout import address, empty_like
from onnxbridge.runtime.executor.kernels.compile.kernel import load_kernel
from onnxbridge.runtime.executor.kernels.run.work_partition import chunks
from onnxbridge.runtime.executor.plan import Step

_BYTES = (np.dtype(np.uint8), np.dtype(np.int8))


def rewrite(rewriter: PlanRewriter, pool: Pool) -> None:
    """Replace quantization with float32 scales and zero points of one byte by kernels."""
    for i, step in rewriter.steps("QuantizeLinear", "DequantizeLinear"):
        scale, zero = (rewriter.constant(s) for s in (*step.sources[1:], 0)[:2])
        plain = not step.attrs["block_size"] and not step.attrs["output_dtype"] and not step.attrs.get("precision")
        one = isinstance(zero, np.ndarray) and zero.size == 1 and zero.ndim <= 1 and zero.dtype in _BYTES
        factor = scalar(scale)
        if plain and one and factor is not None:
            rewriter.swap(i, _run(step, factor, zero, pool))


def _run(step: Step, scale: float, zero: Any, pool: Pool) -> Callable[..., Any]:
    back = step.op == "DequantizeLinear"
    base, negative = int(zero.reshape(())), int(zero.dtype == np.int8)
    before, after = (zero.dtype, np.dtype(np.float32)) if back else (np.dtype(np.float32), zero.dtype)

    def run(x: Any, *more: Any, **attrs: Any) -> Any:
        y = empty_like(x, pool, after)
        if x.dtype != before or x.strides != tuple(s // after.itemsize * before.itemsize for s in y.strides):
            return None
        kernel = load_kernel("quant", "dequantize" if back else "quantize")
        chunk, units = chunks(x.size)
        kernel(address(x), address(y), x.size, chunk, negative, base, scale, units=units)
        return y

    return run

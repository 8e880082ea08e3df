"""Random numbers, drawn by MXNet's own generator. A seed is `mx.random.seed`'s to choose, not an operator's."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.backends.mxnet.ops.types import cast, typed


def _like(sym, draw, input, dtype, **parameters):
    drawn = typed(draw(cast(sym, input, np.float32), **parameters), np.float32, input.shape)
    return cast(sym, drawn, input.dtype if dtype is None else ir.DataType(dtype).numpy())


@rule("RandomUniformLike")
def random_uniform_like(sym, input, *, dtype=None, high=1.0, low=0.0, seed=None):
    return _like(sym, sym._random_uniform_like, input, dtype, low=low, high=high)


@rule("RandomNormalLike")
def random_normal_like(sym, input, *, dtype=None, mean=0.0, scale=1.0, seed=None):
    return _like(sym, sym._random_normal_like, input, dtype, loc=mean, scale=scale)

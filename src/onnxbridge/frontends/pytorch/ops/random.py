"""Random numbers: of the same distributions as PyTorch's, drawn anew at every run, and never the same ones."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.shape import sizes
from onnxbridge.frontends.pytorch.promotion import DEFAULT

D = ir.DataType


def _drawn(op, name, size, dtype, **attrs):
    if dtype not in (D.FLOAT, D.DOUBLE, D.FLOAT16):
        raise Unsupported(f"random numbers of {dtype.name}")
    if all(isinstance(n, int) for n in size):
        return op.call(name, shape=list(size), dtype=dtype, **attrs)
    zeros = op.ConstantOfShape(op.dims(size), value=ir.tensor(np.zeros(1, dtype.numpy())))
    return op.call(f"{name}Like", zeros, **attrs)


@rule("aten::rand")
def rand(op, size, *, dtype=None):
    return _drawn(op, "RandomUniform", size, dtype or DEFAULT)


@rule("aten::rand_like")
def rand_like(op, self, *, dtype=None):
    return rand(op, sizes(op, self), dtype=dtype or self.dtype)


@rule("aten::randn")
def randn(op, size, *, dtype=None):
    return _drawn(op, "RandomNormal", size, dtype or DEFAULT)


@rule("aten::randn_like")
def randn_like(op, self, *, dtype=None):
    return randn(op, sizes(op, self), dtype=dtype or self.dtype)

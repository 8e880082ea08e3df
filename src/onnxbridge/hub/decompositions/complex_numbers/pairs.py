"""A complex tensor as a pair of real tensors, and as one real tensor with a last axis of size 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

D = ir.DataType
PART_DTYPE = {D.COMPLEX64: D.FLOAT, D.COMPLEX128: D.DOUBLE}
"""The dtype of the real and imaginary parts, by complex dtype."""
_COMPLEX_DTYPE = {part: whole for whole, part in PART_DTYPE.items()}


@dataclass(frozen=True)
class Complex:
    """The real and imaginary part of a complex tensor, of the same shape and dtype."""

    real: ir.Value
    imag: ir.Value

    @property
    def dtype(self) -> ir.DataType:
        assert self.real.dtype is not None
        return _COMPLEX_DTYPE[self.real.dtype]

    @property
    def shape(self) -> ir.Shape:
        assert self.real.shape is not None
        return self.real.shape


def split(op: Any, pair: Any) -> Complex:
    """Split a tensor whose last axis holds real and imaginary part."""
    return Complex(op.Gather(pair, np.int64(0), axis=-1), op.Gather(pair, np.int64(1), axis=-1))


def join(op: Any, x: Complex) -> Any:
    """Stack real and imaginary part in a new last axis."""
    return op.Concat(op.Unsqueeze(x.real, [-1]), op.Unsqueeze(x.imag, [-1]), axis=-1)


def zeros(op: Any, x: ir.Value, dtype: ir.DataType) -> Any:
    """Zeros with the shape of x."""
    shape = op.dims([op.size(x, i) for i in range(len(x.shape or ()))])
    return op.ConstantOfShape(shape, value=ir.tensor(np.zeros(1, dtype.numpy())))

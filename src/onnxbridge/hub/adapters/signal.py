"""Signals: the axis of a DFT was an attribute before opset 20, and the second one by default."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.adapters import down, up
from onnxbridge.hub.adapters.shapes import rank_of
from onnxbridge.rules import Int


@up("DFT", to=20)
def dft(op, input, dft_length=None, *, axis=1, inverse=0, onesided=0):
    return op.DFT(input, dft_length, np.array(axis, np.int64), inverse=inverse, onesided=onesided)


@down("DFT", to=19)
def dft_axis(op, input, dft_length=None, axis: Int = -2, *, inverse=0, onesided=0):
    if inverse and onesided:
        raise Unsupported("opset 20 added the inverse of a onesided transform")
    return op.DFT(input, dft_length, axis=axis + rank_of(input) if axis < 0 else axis, inverse=inverse, onesided=onesided)

"""Opsets 1 to 6, which lack broadcasting and require attributes that are implicit later."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.opset.adapters import down
from onnxbridge.hub.opset.known_values import fixed_shape
from onnxbridge.rules import Ints, Outputs

_BINARY = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Sub", "Xor")


def _tiled(op, value, shape):
    """A value tiled to a shape, since operands did not broadcast."""
    have = fixed_shape(value)
    padded = [1] * (len(shape) - len(have)) + have
    if padded != have:
        value = op.Reshape(value, np.array(padded, np.int64))
    repeats = [w if h == 1 else 1 for h, w in zip(padded, shape, strict=True)]
    return value if all(r == 1 for r in repeats) else op.Tile(value, np.array(repeats, np.int64))


def _without_broadcast(name):
    def binary(op, A, B):
        if A.shape is not None and B.shape is not None and list(A.shape) == list(B.shape):
            return op.call(name, A, B)
        whole = np.broadcast_shapes(tuple(fixed_shape(A)), tuple(fixed_shape(B)))
        return op.call(name, _tiled(op, A, whole), _tiled(op, B, whole))

    return binary


for _name in _BINARY:
    down(_name, to=6)(_without_broadcast(_name))


@down("Pow", to=6)
def pow_(op, X, Y):
    return _without_broadcast("Pow")(op, X, Y)


@down("Gemm", to=6)
def gemm(op, A, B, C, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    rows, columns = fixed_shape(A)[1 if transA else 0], fixed_shape(B)[0 if transB else 1]
    return op.Gemm(A, B, _tiled(op, C, [rows, columns]), alpha=alpha, beta=beta, transA=transA, transB=transB)


@down("PRelu", to=6)
def prelu(op, X, slope):
    """One slope, or one per channel."""
    shape, slopes = fixed_shape(X), fixed_shape(slope)
    if slopes == shape or int(np.prod(slopes)) == 1:
        return op.PRelu(X, slope if slopes == shape else op.Reshape(slope, np.array([1], np.int64)))
    if [1] * (len(shape) - len(slopes)) + slopes != [1, shape[1], *[1] * (len(shape) - 2)]:
        raise Unsupported("opset 7 added slopes other than one per channel")
    return op.PRelu(X, op.Reshape(slope, np.array([-1], np.int64)))


@down("BatchNormalization", to=6)
def batch_normalization(op, X, scale, B, mean, var, *, epsilon=1e-5, momentum=0.9, spatial=1, outputs: Outputs):
    if any(outputs[1:]):
        raise Unsupported("it is in training mode", "export the model for inference")
    return op.BatchNormalization(X, scale, B, mean, var, epsilon=epsilon, momentum=momentum, spatial=spatial, is_test=1)


@down("Dropout", to=6)
def dropout(op, data, *, ratio=0.5, outputs: Outputs):
    return op.Dropout(data, ratio=ratio, is_test=1, outputs=max((i + 1 for i, used in enumerate(outputs) if used), default=1))


def _with_output_sequence(name):
    def recurrent(op, *inputs, outputs: Outputs, **attrs):
        count = max((i + 1 for i, used in enumerate(outputs) if used), default=1)
        return op.call(name, *inputs, outputs=count, output_sequence=1, **attrs)

    return recurrent


for _name in ("GRU", "LSTM", "RNN"):
    down(_name, to=6)(_with_output_sequence(_name))


@down("Upsample", to=6)
def upsample(op, X, *, mode="nearest", scales):
    if len(scales) != 4 or scales[0] != 1 or scales[1] != 1:
        raise Unsupported("opset 7 added scales of other axes than height and width")
    return op.Upsample(X, height_scale=scales[2], width_scale=scales[3], mode="bilinear" if mode == "linear" else mode)


@down("Cast", to=5)
def cast(op, input, *, to):
    return op.Cast(input, to=ir.DataType(to).name)


@down("Tile", to=5)
def tile(op, input, repeats: Ints):
    """One axis at a time; axis and count are floats."""
    for axis, count in enumerate(repeats):
        if count != 1:
            input = op.Tile(input, np.array(count, np.float32), np.array(axis, np.float32))
    return op.Identity(input)


@down("Reshape", to=4)
def reshape(op, data, shape: Ints):
    return op.Reshape(data, shape=shape)


@down("Pad", to=1)
def pad(op, data, *, mode="constant", pads, value=0.0):
    return op.Pad(data, paddings=pads, mode=mode, value=value)


@down("LpPool", to=1)
def lp_pool(op, X, *, auto_pad="NOTSET", kernel_shape, p=2, pads=None, strides=None):
    return op.LpPool(X, auto_pad=auto_pad, kernel_shape=kernel_shape, p=float(p), pads=pads, strides=strides)


@down("GlobalLpPool", to=1)
def global_lp_pool(op, X, *, p=2):
    return op.GlobalLpPool(X, p=float(p))


@down("Selu", to=5)
def selu(op, X, *, alpha=1.6732632423543772, gamma=1.0507009873554805):
    return op.Selu(X, alpha=alpha, gamma=gamma)

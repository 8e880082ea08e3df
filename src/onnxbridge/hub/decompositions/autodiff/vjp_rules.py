"""Vector-Jacobian products (VJPs) of operators, written in ONNX operators.

The parameters of a rule are the builder, the gradient `g` of the operator's output, and the operator's inputs and attributes. It
returns the gradient of each input, None for inputs without one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.rules import Rules

derivative = Rules("hub.derivatives", writer=True)


def _sum_to_shape(op: Any, g: Any, x: Any) -> Any:
    """Sums a gradient over the axes along which x was broadcast, to x's shape."""
    if g.shape is None or x.shape is None:
        raise Unsupported("cannot differentiate with respect to a value of unknown rank")
    missing = len(g.shape) - len(x.shape)
    axes = list(range(missing))
    for i, (g_size, x_size) in enumerate(zip(g.shape[missing:], x.shape, strict=True), missing):
        if x_size == 1 and g_size != 1:
            axes.append(i)
        elif g_size != x_size:
            raise Unsupported(f"cannot tell whether the dynamic sizes {x_size} and {g_size} are equal")
    if not axes:
        return g
    return op.Reshape(op.ReduceSum(g, np.array(axes, np.int64), keepdims=1), op.Shape(x), allowzero=1)


def _transpose(op: Any, x: Any) -> Any:
    """Transposes the last two axes."""
    rank = len(x.shape)
    return op.Transpose(x, perm=[*range(rank - 2), rank - 1, rank - 2])


@derivative("Identity")
def identity(op: Any, g: Any, input: Any) -> Any:
    return (g,)


@derivative("CastLike")
def cast_like(op: Any, g: Any, input: Any, target_type: Any, *, saturate: Any = 1, round_mode: Any = "up") -> Any:
    return op.CastLike(g, input), None


@derivative("Cast")
def cast(op: Any, g: Any, input: Any, *, to: Any, saturate: Any = 1, round_mode: Any = "up") -> Any:
    return (op.CastLike(g, input),)


@derivative("Neg")
def neg(op: Any, g: Any, X: Any) -> Any:
    return (op.Neg(g),)


@derivative("Add")
def add(op: Any, g: Any, A: Any, B: Any) -> Any:
    return _sum_to_shape(op, g, A), _sum_to_shape(op, g, B)


@derivative("Sub")
def sub(op: Any, g: Any, A: Any, B: Any) -> Any:
    return _sum_to_shape(op, g, A), _sum_to_shape(op, op.Neg(g), B)


@derivative("Mul")
def mul(op: Any, g: Any, A: Any, B: Any) -> Any:
    return _sum_to_shape(op, op.Mul(g, B), A), _sum_to_shape(op, op.Mul(g, A), B)


@derivative("Div")
def div(op: Any, g: Any, A: Any, B: Any) -> Any:
    return _sum_to_shape(op, op.Div(g, B), A), _sum_to_shape(op, op.Neg(op.Mul(g, op.Div(A, op.Mul(B, B)))), B)


@derivative("Pow")
def pow(op: Any, g: Any, X: Any, Y: Any) -> Any:
    slope = op.Mul(op.CastLike(Y, X), op.Pow(X, op.Sub(Y, op.CastLike(1, Y))))
    exponent = _sum_to_shape(op, op.Mul(g, op.Mul(op.Pow(X, Y), op.Log(X))), Y) if Y.dtype.is_floating_point() else None
    return _sum_to_shape(op, op.Mul(g, slope), X), exponent


@derivative("Sum")
def sum(op: Any, g: Any, *data_0: Any) -> Any:
    return tuple(_sum_to_shape(op, g, x) for x in data_0)


@derivative("Exp")
def exp(op: Any, g: Any, input: Any) -> Any:
    return (op.Mul(g, op.Exp(input)),)


@derivative("Log")
def log(op: Any, g: Any, input: Any) -> Any:
    return (op.Div(g, input),)


@derivative("Sqrt")
def sqrt(op: Any, g: Any, X: Any) -> Any:
    return (op.Div(g, op.Mul(op.Sqrt(X), 2.0)),)


@derivative("Reciprocal")
def reciprocal(op: Any, g: Any, X: Any) -> Any:
    return (op.Neg(op.Div(g, op.Mul(X, X))),)


@derivative("Abs")
def abs(op: Any, g: Any, X: Any) -> Any:
    return (op.Mul(g, op.Sign(X)),)


@derivative("Sin")
def sin(op: Any, g: Any, input: Any) -> Any:
    return (op.Mul(g, op.Cos(input)),)


@derivative("Cos")
def cos(op: Any, g: Any, input: Any) -> Any:
    return (op.Neg(op.Mul(g, op.Sin(input))),)


@derivative("Tanh")
def tanh(op: Any, g: Any, input: Any) -> Any:
    y = op.Tanh(input)
    return (op.Mul(g, op.Sub(1.0, op.Mul(y, y))),)


@derivative("Sigmoid")
def sigmoid(op: Any, g: Any, X: Any) -> Any:
    y = op.Sigmoid(X)
    return (op.Mul(g, op.Mul(y, op.Sub(1.0, y))),)


@derivative("Softplus")
def softplus(op: Any, g: Any, X: Any) -> Any:
    return (op.Mul(g, op.Sigmoid(X)),)


@derivative("Erf")
def erf(op: Any, g: Any, input: Any) -> Any:
    return (op.Mul(g, op.Mul(op.Exp(op.Neg(op.Mul(input, input))), 2 / math.sqrt(math.pi))),)


@derivative("Relu")
def relu(op: Any, g: Any, X: Any) -> Any:
    return (op.Where(op.Greater(X, 0.0), g, op.CastLike(0.0, g)),)


@derivative("LeakyRelu")
def leaky_relu(op: Any, g: Any, X: Any, *, alpha: Any = 0.01) -> Any:
    return (op.Where(op.Greater(X, 0.0), g, op.Mul(g, alpha)),)


@derivative("Where")
def where(op: Any, g: Any, condition: Any, X: Any, Y: Any) -> Any:
    zero = op.CastLike(0.0, g)
    return None, _sum_to_shape(op, op.Where(condition, g, zero), X), _sum_to_shape(op, op.Where(condition, zero, g), Y)


@derivative("Softmax")
def softmax(op: Any, g: Any, input: Any, *, axis: Any = -1) -> Any:
    y = op.Softmax(input, axis=axis)
    return (op.Mul(y, op.Sub(g, op.ReduceSum(op.Mul(g, y), [axis], keepdims=1))),)


@derivative("LogSoftmax")
def log_softmax(op: Any, g: Any, input: Any, *, axis: Any = -1) -> Any:
    return (op.Sub(g, op.Mul(op.Softmax(input, axis=axis), op.ReduceSum(g, [axis], keepdims=1))),)


@derivative("MatMul")
def matmul(op: Any, g: Any, A: Any, B: Any) -> Any:
    if A.shape is None or B.shape is None or min(len(A.shape), len(B.shape)) < 2:
        raise Unsupported("the gradient of MatMul with a vector or with an operand of unknown rank is not supported")
    return _sum_to_shape(op, op.MatMul(g, _transpose(op, B)), A), _sum_to_shape(op, op.MatMul(_transpose(op, A), g), B)


@derivative("Gemm")
def gemm(
    op: Any, g: Any, A: Any, B: Any, C: Any = None, *, alpha: Any = 1.0, beta: Any = 1.0, transA: Any = 0, transB: Any = 0
) -> Any:  # fmt: skip
    dA = op.Gemm(B, g, alpha=alpha, transA=transB, transB=1) if transA else op.Gemm(g, B, alpha=alpha, transB=1 - transB)
    dB = op.Gemm(g, A, alpha=alpha, transA=1, transB=transA) if transB else op.Gemm(A, g, alpha=alpha, transA=1 - transA)
    return dA, dB, None if C is None else _sum_to_shape(op, op.Mul(g, beta), C)


@derivative("Conv")
def conv(
    op: Any, g: Any, X: Any, W: Any, B: Any = None, *, auto_pad: Any = "NOTSET", dilations: Any = None, group: Any = 1,
    kernel_shape: Any = None, pads: Any = None, strides: Any = None,
) -> Any:  # fmt: skip
    """The gradient of the weights convolves data and gradient with batch and channels, and strides and dilations, exchanged."""
    static = all(v.shape is not None and all(isinstance(d, int) for d in v.shape) for v in (X, W, g))
    if group != 1 or auto_pad != "NOTSET" or not static:
        raise Unsupported("the gradient of Conv is not supported with groups, auto_pad or dynamic sizes")
    space = len(X.shape) - 2
    strides, dilations, pads = strides or (1,) * space, dilations or (1,) * space, pads or (0,) * 2 * space
    kernel_sizes, sizes, outputs = W.shape[2:], X.shape[2:], g.shape[2:]
    extents = [(k - 1) * d + 1 for k, d in zip(kernel_sizes, dilations, strict=True)]
    remainders = [
        n + pads[i] + pads[space + i] - ((m - 1) * strides[i] + extents[i])
        for i, (n, m) in enumerate(zip(sizes, outputs, strict=True))
    ]
    dX = op.ConvTranspose(g, W, strides=strides, dilations=dilations, pads=pads, output_padding=remainders)
    perm = [1, 0, *range(2, space + 2)]
    end_pads = [p - r for p, r in zip(pads[space:], remainders, strict=True)]  # elements after the last window do not contribute
    padded = op.Pad(X, np.array([0, 0, *pads[:space], 0, 0, *end_pads], np.int64))
    dW = op.Conv(
        op.Transpose(padded, perm=perm),
        op.Transpose(g, perm=perm),
        strides=dilations,
        dilations=strides,
    )
    return (
        dX,
        op.Transpose(dW, perm=perm),
        None if B is None else op.ReduceSum(g, [0, *range(2, space + 2)], keepdims=0),
    )


@derivative("Expand")
def expand(op: Any, g: Any, input: Any, shape: Any) -> Any:
    return _sum_to_shape(op, g, input), None


@derivative("Reshape")
def reshape(op: Any, g: Any, data: Any, shape: Any, *, allowzero: Any = 0) -> Any:
    return op.Reshape(g, op.Shape(data), allowzero=1), None


@derivative("Flatten")
def flatten(op: Any, g: Any, input: Any, *, axis: Any = 1) -> Any:
    return (op.Reshape(g, op.Shape(input), allowzero=1),)


@derivative("Squeeze", "Unsqueeze")
def squeeze(op: Any, g: Any, data: Any, axes: Any = None) -> Any:
    return op.Reshape(g, op.Shape(data), allowzero=1), None


@derivative("Transpose")
def transpose(op: Any, g: Any, data: Any, *, perm: Any = None) -> Any:
    return (op.Transpose(g, perm=None if perm is None else [perm.index(i) for i in range(len(perm))]),)


@derivative("Concat")
def concat(op: Any, g: Any, *inputs: Any, axis: Any) -> Any:
    sizes = op.Concat(*(op.Reshape(op.size(x, axis), [1]) for x in inputs), axis=0)
    parts = op.Split(g, sizes, axis=axis, outputs=len(inputs))
    return parts if isinstance(parts, tuple) else (parts,)


@derivative("ReduceSum")
def reduce_sum(op: Any, g: Any, data: Any, axes: Any = None, *, keepdims: Any = 1, noop_with_empty_axes: Any = 0) -> Any:
    if not keepdims and axes is not None:
        g = op.Unsqueeze(g, axes)
    if noop_with_empty_axes and axes is None:
        return g, None
    return op.Expand(g, op.Shape(data)), None


@derivative("ReduceMean")
def reduce_mean(op: Any, g: Any, data: Any, axes: Any = None, *, keepdims: Any = 1, noop_with_empty_axes: Any = 0) -> Any:
    expanded, _ = reduce_sum(op, g, data, axes, keepdims=keepdims, noop_with_empty_axes=noop_with_empty_axes)
    return op.Div(expanded, op.Div(op.CastLike(op.Size(data), g), op.CastLike(op.Size(g), g))), None

"""ONNX Runtime's fused operators, each as the sequence of ONNX operators that it fuses."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.microsoft import MICROSOFT, contrib, rank_of
from onnxbridge.hub.decompositions.microsoft.channels_last import to_first, to_last
from onnxbridge.rules import Bool, Ints, Outputs


def _transpose(op, x, rows, move_batch):
    """Transposes the last two axes if `rows`; if `batch`, first moves axis 0 to the end of the batch axes."""
    rank = rank_of(x)
    perm = list(range(rank))
    if move_batch and rank > 2:
        perm = [*perm[1:-1], 0, rank - 1]
    if rows and rank > 1:
        perm = [*perm[:-2], perm[-1], perm[-2]]
    return op.Transpose(x, perm=perm) if perm != sorted(perm) else x


def _activation(op, y, name, params):
    """Applies an activation by its name in the fused operators; `params` are its parameters in order."""
    simple = {"": lambda: y, "Relu": lambda: op.Relu(y), "Tanh": lambda: op.Tanh(y), "Sigmoid": lambda: op.Sigmoid(y)}
    with_parameters = {
        "LeakyRelu": lambda alpha=0.01: op.LeakyRelu(y, alpha=alpha),
        "HardSigmoid": lambda alpha=0.2, beta=0.5: op.HardSigmoid(y, alpha=alpha, beta=beta),
        "Clip": lambda low, high: op.Clip(y, low, high),
    }
    if name in simple:
        return simple[name]()
    if name not in with_parameters:
        raise Unsupported(f"activation {name!r}")
    return with_parameters[name](*params)


@contrib(MICROSOFT + "FusedMatMul", MICROSOFT + "TransposeMatMul")
def fused_mat_mul(op, A, B, *, alpha=1.0, transA=0, transB=0, transBatchA=0, transBatchB=0):
    y = op.MatMul(_transpose(op, A, transA, transBatchA), _transpose(op, B, transB, transBatchB))
    return y if alpha == 1.0 else op.Mul(y, alpha)


@contrib(MICROSOFT + "FusedMatMulActivation")
def fused_mat_mul_activation(
    op, A, B, *, activation, activation_alpha=None, activation_axis=None, activation_beta=None, activation_gamma=None, alpha=1.0,
    transA=0, transB=0, transBatchA=0, transBatchB=0,
):  # fmt: skip
    y = fused_mat_mul(op, A, B, alpha=alpha, transA=transA, transB=transB, transBatchA=transBatchA, transBatchB=transBatchB)
    if activation == "Softmax":
        return op.Softmax(y, axis=-1 if activation_axis is None else activation_axis)
    return _activation(op, y, activation, [p for p in (activation_alpha, activation_beta, activation_gamma) if p is not None])


@contrib(MICROSOFT + "FusedGemm")
def fused_gemm(
    op, A, B, C=None, *, activation="", activation_alpha=None, activation_beta=None, activation_gamma=None, alpha=1.0, beta=1.0,
    transA=0, transB=0,
):  # fmt: skip
    y = op.Gemm(A, B, C, alpha=alpha, beta=beta, transA=transA, transB=transB)
    return _activation(op, y, activation, [p for p in (activation_alpha, activation_beta, activation_gamma) if p is not None])


@contrib(MICROSOFT + "FusedConv")
def fused_conv(
    op, X, W, B=None, Z=None, *, activation="", activation_params=(), auto_pad="NOTSET", dilations=None, group=1,
    kernel_shape=None, pads=None, strides=None,
):  # fmt: skip
    attributes = {"auto_pad": auto_pad, "dilations": dilations, "group": group, "kernel_shape": kernel_shape, "pads": pads}
    y = op.Conv(X, W, B, strides=strides, **attributes)
    return _activation(op, y if Z is None else op.Add(y, Z), activation, activation_params)


@contrib(MICROSOFT + "NhwcConv")
def nhwc_conv(op, X, W, B=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None, strides=None):
    return _nhwc(op, X, W, B, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads,
                 strides=strides)  # fmt: skip


@contrib(MICROSOFT + "NhwcFusedConv")
def nhwc_fused_conv(
    op, X, W, B=None, Z=None, *, activation="", activation_params=(), auto_pad="NOTSET", dilations=None, group=1,
    kernel_shape=None, pads=None, strides=None,
):  # fmt: skip
    attributes = {"auto_pad": auto_pad, "dilations": dilations, "group": group, "kernel_shape": kernel_shape, "pads": pads}
    y = _nhwc(op, X, W, B, strides=strides, **attributes)
    return _activation(op, y if Z is None else op.Add(y, Z), activation, activation_params)


def _nhwc(op, x, w, b, **attributes):
    """Conv of a channels-last input; the weights have the layout of Conv."""
    return to_last(op, op.Conv(to_first(op, x), w, b, **attributes))


@contrib(MICROSOFT + "ConvTransposeWithDynamicPads")
def conv_transpose_with_dynamic_pads(
    op, X, W, Pads: Ints | None = None, B=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None,
    output_padding=None, strides=None,
):  # fmt: skip
    return op.ConvTranspose(
        X, W, B, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, output_padding=output_padding,
        pads=Pads, strides=strides,
    )  # fmt: skip


@contrib(MICROSOFT + "Gelu")
def gelu(op, X):
    return op.Gelu(X)


@contrib(MICROSOFT + "BiasGelu")
def bias_gelu(op, A, B):
    return op.Gelu(op.Add(A, B))


@contrib(MICROSOFT + "FastGelu")
def fast_gelu(op, X, bias=None):
    return op.Gelu(X if bias is None else op.Add(X, bias), approximate="tanh")


@contrib(MICROSOFT + "QuickGelu")
def quick_gelu(op, X, *, alpha=1.702):
    return op.Mul(X, op.Sigmoid(op.Mul(X, alpha)))


@contrib(MICROSOFT + "GemmFastGelu")
def gemm_fast_gelu(op, X, W, bias=None):
    return fast_gelu(op, op.MatMul(X, W), bias)


@contrib(MICROSOFT + "BiasAdd")
def bias_add(op, X, bias, skip):
    return op.Add(op.Add(X, bias), skip)


@contrib(MICROSOFT + "BiasSplitGelu")
def bias_split_gelu(op, X, bias):
    left, right = op.Split(op.Add(X, bias), axis=-1, num_outputs=2, outputs=2)
    return op.Mul(left, op.Gelu(right))


@contrib(MICROSOFT + "BiasSoftmax")
def bias_softmax(op, data, bias, *, axis=1, is_inner_broadcast):
    """Softmax over all axes from `axis` on, flattened; the bias is broadcast."""
    rank = rank_of(data)
    total = op.Add(data, bias)
    if axis % rank == rank - 1:
        return op.Softmax(total, axis=-1)
    return op.Reshape(op.Softmax(op.Flatten(total, axis=axis % rank), axis=-1), op.Shape(data), allowzero=1)


@contrib(MICROSOFT + "BiasDropout")
def bias_dropout(
    op, data, bias, residual=None, ratio=None, training_mode: Bool = False, *, seed=None, outputs: Outputs = (True,)
):  # fmt: skip
    total = op.Add(data, bias)
    y, mask = _identity_dropout(op, total, training_mode)
    return y if residual is None else op.Add(y, residual), mask


@contrib(MICROSOFT + "BitmaskDropout")
def bitmask_dropout(op, data, ratio=None, training_mode: Bool = False, *, seed=None, outputs: Outputs = (True,)):
    if any(outputs[1:]):
        raise Unsupported("the bit mask output (training)")
    return _identity_dropout(op, data, training_mode)[0]


def _identity_dropout(op, x, training_mode):
    if training_mode:
        raise Unsupported("dropout in training mode")
    return op.Identity(x), op.ConstantOfShape(op.Shape(x), value=np.array([True]))


@contrib(MICROSOFT + "GatedAdd")
def gated_add(op, X, Y, gate):
    return op.Add(X, op.Mul(Y, gate))


@contrib(MICROSOFT + "ScaledSiLU")
def scaled_silu(op, X, scale=None, *, alpha=1.0):
    z = op.Mul(X, alpha) if scale is None else op.CastLike(op.Mul(op.Cast(X, to=1), op.Cast(scale, to=1)), X)
    return op.Mul(z, op.Sigmoid(z))


@contrib(MICROSOFT + "LinearAttentionGate")
def linear_attention_gate(op, a, dt_bias, decay_scale, b=None, *, outputs: Outputs = (True,)):
    """Computes the decay in float32."""
    decay = op.CastLike(op.Mul(op.Softplus(op.Add(op.Cast(a, to=1), dt_bias)), decay_scale), a)
    return decay, None if b is None else op.Sigmoid(b)

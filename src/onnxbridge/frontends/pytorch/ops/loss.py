"""Losses that PyTorch does not decompose."""

import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.fx.promotion import promote
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.shape import swap_axes

D = ir.DataType


def reduce_loss(op, x, reduction):
    """The losses reduced: not at all (0), to their mean (1) or their sum (2)."""
    return x if reduction == 0 else op.call("ReduceMean" if reduction == 1 else "ReduceSum", x, keepdims=0)


@rule("aten::hinge_embedding_loss")
def hinge_embedding_loss(op, self, target, margin=1.0, reduction=1):
    far = op.Where(op.Equal(target, 1), 0.0, op.Max(op.Sub(float(margin), self), 0.0))
    near = op.Where(op.Equal(target, -1), 0.0, self)
    return reduce_loss(op, op.Add(far, near), reduction)


@rule("aten::margin_ranking_loss")
def margin_ranking_loss(op, input1, input2, target, margin=0.0, reduction=1):
    a, b, sign = promote(op, input1, input2, target)
    y = op.Add(op.Neg(op.Mul(sign, op.Sub(a, b))), margin if not isinstance(margin, float) or margin % 1 else int(margin))
    return reduce_loss(op, op.Max(y, 0), reduction)


def _cross_entropy(op, input, linear_weight, target, linear_bias, weight, reduction, ignore_index, label_smoothing):
    """The cross entropy of a linear layer's outputs, with label smoothing."""
    if target.dtype not in (D.INT64, D.INT32):
        raise Unsupported("class probabilities as targets")
    logits = op.MatMul(input, swap_axes(op, linear_weight, 0, 1))
    logits = logits if linear_bias is None else op.Add(logits, linear_bias)
    log_probabilities = op.LogSoftmax(logits, axis=-1)
    is_counted = op.Not(op.Equal(target, ignore_index))
    index = op.Unsqueeze(op.Where(is_counted, target, 0), [-1])
    class_weight = op.Cast(is_counted, to=logits.dtype)
    class_weight = class_weight if weight is None else op.Mul(class_weight, op.Gather(weight, op.Squeeze(index, [-1])))
    losses = op.Neg(op.Mul(op.Squeeze(op.GatherElements(log_probabilities, index, axis=-1), [-1]), class_weight))
    if label_smoothing:
        others = op.ReduceSum(log_probabilities if weight is None else op.Mul(log_probabilities, weight), [-1], keepdims=0)
        others = op.Neg(op.Mul(others, op.Cast(is_counted, to=logits.dtype)))
        smoothing = label_smoothing / linear_weight.shape[0]
        losses = op.Add(op.Mul(losses, 1 - label_smoothing), op.Mul(others, smoothing))
    if reduction == "none":
        return losses
    total = op.ReduceSum(losses, keepdims=0)
    return op.Div(total, op.ReduceSum(class_weight, keepdims=0)) if reduction == "mean" else total


@rule("torch_nn::_linear_cross_entropy_batch_chunked")
def linear_cross_entropy(op, input, linear_weight, target, linear_bias, weight, reduction, ignore_index, label_smoothing, **_):
    loss = _cross_entropy(op, input, linear_weight, target, linear_bias, weight, reduction, ignore_index, label_smoothing)
    return loss, None, None, None  # the other results are gradients


@rule("torch_nn::_linear_cross_entropy_batch_chunked_no_reduction")
def linear_cross_entropies(op, input, linear_weight, target, linear_bias, weight, ignore_index, **_):
    return _cross_entropy(op, input, linear_weight, target, linear_bias, weight, "none", ignore_index, 0.0)

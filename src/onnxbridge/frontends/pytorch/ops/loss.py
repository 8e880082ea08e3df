"""Losses that PyTorch has as operators of their own and does not decompose."""

import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.fx.promotion import together
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.shape import swapped

D = ir.DataType


def taken(op, x, reduction):
    """Each loss, their mean (1) or their sum (2)."""
    return x if reduction == 0 else op.call("ReduceMean" if reduction == 1 else "ReduceSum", x, keepdims=0)


@rule("aten::hinge_embedding_loss")
def hinge_embedding_loss(op, self, target, margin=1.0, reduction=1):
    far = op.Where(op.Equal(target, 1), 0.0, op.Max(op.Sub(float(margin), self), 0.0))
    near = op.Where(op.Equal(target, -1), 0.0, self)
    return taken(op, op.Add(far, near), reduction)


@rule("aten::margin_ranking_loss")
def margin_ranking_loss(op, input1, input2, target, margin=0.0, reduction=1):
    a, b, side = together(op, input1, input2, target)
    y = op.Add(op.Neg(op.Mul(side, op.Sub(a, b))), margin if not isinstance(margin, float) or margin % 1 else int(margin))
    return taken(op, op.Max(y, 0), reduction)


def _cross_entropy(op, input, linear_weight, target, linear_bias, weight, reduction, ignore_index, label_smoothing):
    """The cross entropy of a linear layer's outputs, spread over the other classes as far as `label_smoothing` says."""
    if target.dtype not in (D.INT64, D.INT32):
        raise Unsupported("classes given as probabilities")
    logits = op.MatMul(input, swapped(op, linear_weight, 0, 1))
    logits = logits if linear_bias is None else op.Add(logits, linear_bias)
    likely = op.LogSoftmax(logits, axis=-1)
    kept = op.Not(op.Equal(target, ignore_index))
    index = op.Unsqueeze(op.Where(kept, target, 0), [-1])
    share = op.Cast(kept, to=logits.dtype)
    share = share if weight is None else op.Mul(share, op.Gather(weight, op.Squeeze(index, [-1])))
    losses = op.Neg(op.Mul(op.Squeeze(op.GatherElements(likely, index, axis=-1), [-1]), share))
    if label_smoothing:
        others = op.ReduceSum(likely if weight is None else op.Mul(likely, weight), [-1], keepdims=0)
        others = op.Neg(op.Mul(others, op.Cast(kept, to=logits.dtype)))
        spread = label_smoothing / linear_weight.shape[0]
        losses = op.Add(op.Mul(losses, 1 - label_smoothing), op.Mul(others, spread))
    if reduction == "none":
        return losses
    total = op.ReduceSum(losses, keepdims=0)
    return op.Div(total, op.ReduceSum(share, keepdims=0)) if reduction == "mean" else total


@rule("torch_nn::_linear_cross_entropy_batch_chunked")
def linear_cross_entropy(op, input, linear_weight, target, linear_bias, weight, reduction, ignore_index, label_smoothing, **_):
    loss = _cross_entropy(op, input, linear_weight, target, linear_bias, weight, reduction, ignore_index, label_smoothing)
    return loss, None, None, None  # the others are gradients


@rule("torch_nn::_linear_cross_entropy_batch_chunked_no_reduction")
def linear_cross_entropies(op, input, linear_weight, target, linear_bias, weight, ignore_index, **_):
    return _cross_entropy(op, input, linear_weight, target, linear_bias, weight, "none", ignore_index, 0.0)

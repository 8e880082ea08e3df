"""Grouped matrix products of mixture-of-experts layers."""

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.fx.promotion import cast
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.shape import rank


@rule("transformers::grouped_mm_fallback")
def grouped_mm(op, input, weight, offs):
    """Multiply every row with every expert's weight and select each row's expert; `offs[i]` is the end of expert i's rows."""
    products = op.MatMul(op.Unsqueeze(input, [0]), weight)
    return op.ReduceSum(op.Where(op.Unsqueeze(_members(op, input, 0, offs), [2]), products, 0.0), [0], keepdims=0)


@rule("aten::_grouped_mm")
def _grouped_mm(op, self, mat2, offs=None, bias=None, out_dtype=None):
    """The operands are batches of matrices, or matrices whose rows, columns or products are grouped where `offs` say."""
    if bias is not None:
        raise Unsupported("with a bias")
    ranks = (rank(self), rank(mat2))
    if ranks == (3, 3):
        product = op.MatMul(self, mat2)
    elif ranks == (2, 3):
        product = grouped_mm(op, self, mat2, offs)
    elif ranks == (3, 2):
        rows = grouped_mm(op, op.Transpose(mat2, perm=[1, 0]), op.Transpose(self, perm=[0, 2, 1]), offs)
        product = op.Transpose(rows, perm=[1, 0])
    else:
        of_group = op.Where(op.Unsqueeze(_members(op, self, 1, offs), [1]), op.Unsqueeze(self, [0]), 0.0)
        product = op.MatMul(of_group, mat2)
    return cast(op, product, self.dtype if out_dtype is None else out_dtype)


def _members(op, x, axis, offs):
    """For each group, which positions along an axis are in it: `offs[i]` is the end of group i."""
    ends = op.Unsqueeze(op.Cast(offs, to=7), [1])
    positions = op.Unsqueeze(op.Range(0, op.size(x, axis), 1), [0])
    before_end = op.Less(positions, ends)
    before_start = op.Concat(
        op.Less(positions, op.Mul(op.Slice(ends, [0], [1], [0]), 0)), op.Slice(before_end, [0], [-1], [0]), axis=0
    )
    return op.And(before_end, op.Not(before_start))

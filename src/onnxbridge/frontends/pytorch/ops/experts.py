"""Grouped matrix products of transformers' mixture-of-experts layers."""

from onnxbridge.frontends.pytorch.ops import rule


@rule("transformers::grouped_mm_fallback")
def grouped_mm(op, input, weight, offs):
    """Multiply every row with every expert's weight and select each row's expert; `offs[i]` is the end of expert i's rows."""
    ends = op.Unsqueeze(op.Cast(offs, to=7), [1])
    positions = op.Unsqueeze(op.Range(0, op.size(input, 0), 1), [0])
    before_end = op.Less(positions, ends)
    before_start = op.Concat(
        op.Less(positions, op.Mul(op.Slice(ends, [0], [1], [0]), 0)), op.Slice(before_end, [0], [-1], [0]), axis=0
    )
    selected = op.And(before_end, op.Not(before_start))
    products = op.MatMul(op.Unsqueeze(input, [0]), weight)
    return op.ReduceSum(op.Where(op.Unsqueeze(selected, [2]), products, 0.0), [0], keepdims=0)

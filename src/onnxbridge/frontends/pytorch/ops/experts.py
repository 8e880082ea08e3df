"""Products of rows with the weights of the expert that each belongs to, as transformers' mixtures have them."""

from onnxbridge.frontends.pytorch.ops import rule


@rule("transformers::grouped_mm_fallback")
def grouped_mm(op, input, weight, offs):
    """Every expert on every row, of which each row keeps its own: `offs` says behind which row each expert's end."""
    ends = op.Unsqueeze(op.Cast(offs, to=7), [1])
    places = op.Unsqueeze(op.Range(0, op.size(input, 0), 1), [0])
    before = op.Less(places, ends)
    earlier = op.Concat(op.Less(places, op.Mul(op.Slice(ends, [0], [1], [0]), 0)), op.Slice(before, [0], [-1], [0]), axis=0)
    own = op.And(before, op.Not(earlier))
    every = op.MatMul(op.Unsqueeze(input, [0]), weight)
    return op.ReduceSum(op.Where(op.Unsqueeze(own, [2]), every, 0.0), [0], keepdims=0)

"""Operators of ONNX Runtime on arrays: some were the first form of what ONNX took over, others stand for a library's call."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.linalg import factorizations
from onnxbridge.hub.decompositions.microsoft import MICROSOFT, contrib, rank_of
from onnxbridge.hub.decompositions.microsoft.attention_heads import count, places
from onnxbridge.rules import Bool, Int, Ints


@contrib(MICROSOFT + "Inverse")
def inverse(op, X):
    """By triangular factors; of a number, by division."""
    rank_of(X)
    if X.shape[-1] == 1:
        return op.Reciprocal(X)
    x = X if X.dtype in (1, 11) else op.Cast(X, to=1)
    packed, swaps, _, _ = factorizations.lu(op, x)
    rows = count(op, x, -1)
    order = factorizations.row_order(op, swaps, rows)
    return op.CastLike(factorizations.solve_factored(op, packed, order, factorizations.identity(op, op.size(x, -1), x)), X)


@contrib(MICROSOFT + "Trilu")
def trilu(op, X, k=None, *, upper=1):
    return op.Trilu(X, k, upper=upper)


@contrib(MICROSOFT + "ExpandDims")
def expand_dims(op, X, axis: Int):
    """A negative axis counts from behind the last of the result."""
    return op.Unsqueeze(X, [axis])


@contrib(MICROSOFT + "Range")
def range_(op, start, limit, delta=None):
    return op.Range(start, limit, op.CastLike(1, start) if delta is None else delta)


@contrib(MICROSOFT + "GatherND")
def gather_nd(op, data, indices):
    return op.GatherND(data, op.Cast(indices, to=7))


@contrib(MICROSOFT + "Pad")
def pad(op, data, pads, value=None, *, mode="constant"):
    return op.Pad(data, op.Reshape(pads, [-1]), None if value is None else op.Reshape(value, op.dims([])), mode=mode)


@contrib(MICROSOFT + "Unique")
def unique(op, x):
    y, _, inverse, counts = op.Unique(x, sorted=0, outputs=4)
    return y, inverse, counts


@contrib(MICROSOFT + "UnfoldTensor")
def unfold_tensor(op, input, *, dim=-1, size, step=1):
    """Windows along one axis, which come behind all others."""
    rank = rank_of(input)
    at = dim % rank
    starts = op.Range(np.array(0, np.int64), op.Add(op.Sub(count(op, input, at), size), 1), np.array(step, np.int64))
    windows = op.Gather(input, op.Add(op.Unsqueeze(starts, [1]), np.arange(size)), axis=at)
    return op.Transpose(windows, perm=[i for i in range(rank + 1) if i != at + 1] + [at + 1])


@contrib(MICROSOFT + "TorchEmbedding")
def torch_embedding(op, weight, indices, padding_idx=None, scale_grad_by_freq: Bool = False):
    return op.Gather(weight, indices)


@contrib(MICROSOFT + "SampleOp")
def sample_op(op, X):
    return op.Identity(X)


@contrib(MICROSOFT + "CDist")
def cdist(op, A, B, *, metric="sqeuclidean"):
    if metric not in ("euclidean", "sqeuclidean"):
        raise Unsupported(f"the distance {metric!r}")
    apart = op.Sub(op.Unsqueeze(A, [1]), op.Unsqueeze(B, [0]))
    squares = op.ReduceSumSquare(apart, [2], keepdims=0)
    return op.Sqrt(squares) if metric == "euclidean" else squares


@contrib(MICROSOFT + "GridSample")
def grid_sample(op, X, Grid, *, align_corners=0, mode="bilinear", padding_mode="zeros"):
    names = {"bilinear": "linear", "bicubic": "cubic"}
    return op.GridSample(X, Grid, align_corners=align_corners, mode=names.get(mode, mode), padding_mode=padding_mode)


@contrib(MICROSOFT + "ComplexMul")
def complex_mul(op, A, B):
    return _product(op, A, B, 1)


@contrib(MICROSOFT + "ComplexMulConj")
def complex_mul_conj(op, A, B):
    return _product(op, A, B, -1)


def _product(op, a, b, sign):
    """Of numbers whose real and imaginary parts are the last axis."""
    (ar, ai), (br, bi) = (op.Split(v, axis=-1, num_outputs=2, outputs=2) for v in (a, b))
    if sign < 0:
        bi = op.Neg(bi)
    return op.Concat(op.Sub(op.Mul(ar, br), op.Mul(ai, bi)), op.Add(op.Mul(ar, bi), op.Mul(ai, br)), axis=-1)


@contrib(MICROSOFT + "IsAllFinite")
def is_all_finite(op, *input, isinf_only=0, isnan_only=0):
    """Whether no input holds infinity or NaN; or only one of these, where that is all that is asked."""
    found = []
    for x in input:
        kinds = ([] if isinf_only else [op.IsNaN(x)]) + ([] if isnan_only else [op.IsInf(x)])
        found += [op.ReduceMax(op.Cast(k, to=6), keepdims=0) for k in kinds]
    return op.Equal(op.Max(*found), 0)


@contrib(MICROSOFT + "NGramRepeatBlock")
def n_gram_repeat_block(op, input_ids, scores, *, ngram_size):
    """Tokens that would repeat a run of `ngram_size` tokens that was there already get the lowest score."""
    if ngram_size < 2:
        raise Unsupported("runs of one token")
    zero = np.array(0, np.int64)
    length = count(op, input_ids, 1)
    starts = op.Unsqueeze(places(op, zero, op.Max(op.Add(op.Sub(length, ngram_size), 1), zero)), [1])
    runs = op.Gather(op.Cast(input_ids, to=7), op.Add(starts, np.arange(ngram_size)), axis=1)  # (batch, runs, ngram_size)
    ends = op.Max(op.Add(op.Sub(length, ngram_size - 1), np.arange(ngram_size - 1)), zero)
    last = op.Unsqueeze(op.Gather(op.Cast(input_ids, to=7), ends, axis=1), [1])
    before = op.Slice(runs, [0], [ngram_size - 1], [2])
    same = op.ReduceMin(op.Cast(op.Equal(before, last), to=6), [2], keepdims=0)  # (batch, runs)
    next_ = op.Squeeze(op.Slice(runs, [ngram_size - 1], [ngram_size], [2]), [2])
    words = places(op, zero, count(op, scores, 1))
    met = op.And(op.Equal(op.Unsqueeze(next_, [2]), words), op.Unsqueeze(op.Cast(same, to=9), [2]))
    blocked = op.Cast(op.ReduceMax(op.Pad(op.Cast(met, to=6), np.array([0, 0, 0, 0, 1, 0])), [1], keepdims=0), to=9)
    return op.Where(blocked, op.CastLike(float("-inf"), scores), scores)


@contrib(MICROSOFT + "CropAndResize")
def crop_and_resize(op, X, rois, batch_indices, crop_size: Ints, *, extrapolation_value=0.0, mode="bilinear"):
    """Places of each region, from its first corner to its last, of the whole image's length less one; outside is one value."""
    if mode != "bilinear":
        raise Unsupported(f"the mode {mode!r}")
    y1, x1, y2, x2 = (op.Squeeze(v, [1]) for v in op.Split(rois, axis=1, num_outputs=4, outputs=4))
    rows = _steps(op, y1, y2, crop_size[0], count(op, X, 2))
    columns = _steps(op, x1, x2, crop_size[1], count(op, X, 3))
    shape = op.Concat(op.Shape(rows, start=0, end=1), np.array(crop_size, np.int64), [1], axis=0)
    across = op.Expand(op.Unsqueeze(columns, [1, 3]), shape)
    grid = op.Concat(across, op.Expand(op.Unsqueeze(rows, [2, 3]), shape), axis=3)
    regions = op.Gather(X, batch_indices, axis=0)
    y = op.GridSample(regions, grid, align_corners=1, padding_mode="border")
    outside = op.ReduceMax(op.Cast(op.Greater(op.Abs(grid), 1.0), to=6), [3], keepdims=0)
    return op.Where(op.Cast(op.Unsqueeze(outside, [1]), to=9), op.CastLike(extrapolation_value, X), y)


def _steps(op, first, last, number, length):
    """(regions, number): evenly from one end to the other, or the middle; -1 is the image's first place and 1 its last."""
    shares = np.linspace(0, 1, number, dtype=np.float32) if number > 1 else np.array([0.5], np.float32)
    first, last = op.Unsqueeze(first, [1]), op.Unsqueeze(last, [1])
    at = op.Add(first, op.Mul(op.Sub(last, first), shares))
    return op.Sub(op.Mul(at, 2.0), 1.0)

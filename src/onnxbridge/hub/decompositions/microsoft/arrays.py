"""ONNX Runtime's array operators: early versions of ONNX operators, and operators of single library functions."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.linalg import factorizations
from onnxbridge.hub.decompositions.microsoft import MICROSOFT, contrib, rank_of
from onnxbridge.hub.decompositions.microsoft.attention_heads import arange, dim_size
from onnxbridge.rules import Bool, Int, Ints


@contrib(MICROSOFT + "Inverse")
def inverse(op, X):
    """Solves with the identity by LU factorization; a 1x1 matrix is a reciprocal."""
    rank_of(X)
    if X.shape[-1] == 1:
        return op.Reciprocal(X)
    x = X if X.dtype in (1, 11) else op.Cast(X, to=1)
    packed, swaps, _, _ = factorizations.lu(op, x)
    rows = dim_size(op, x, -1)
    order = factorizations.row_order(op, swaps, rows)
    return op.CastLike(factorizations.solve_factored(op, packed, order, factorizations.identity(op, op.size(x, -1), x)), X)


@contrib(MICROSOFT + "Trilu")
def trilu(op, X, k=None, *, upper=1):
    return op.Trilu(X, k, upper=upper)


@contrib(MICROSOFT + "ExpandDims")
def expand_dims(op, X, axis: Int):
    """A negative axis counts from the end of the result."""
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
    """Sliding windows along one axis, as a new last axis."""
    rank = rank_of(input)
    axis = dim % rank
    starts = op.Range(np.array(0, np.int64), op.Add(op.Sub(dim_size(op, input, axis), size), 1), np.array(step, np.int64))
    windows = op.Gather(input, op.Add(op.Unsqueeze(starts, [1]), np.arange(size)), axis=axis)
    return op.Transpose(windows, perm=[i for i in range(rank + 1) if i != axis + 1] + [axis + 1])


@contrib(MICROSOFT + "TorchEmbedding")
def torch_embedding(op, weight, indices, padding_idx=None, scale_grad_by_freq: Bool = False):
    return op.Gather(weight, indices)


@contrib(MICROSOFT + "SampleOp")
def sample_op(op, X):
    return op.Identity(X)


@contrib(MICROSOFT + "CDist")
def cdist(op, A, B, *, metric="sqeuclidean"):
    if metric not in ("euclidean", "sqeuclidean"):
        raise Unsupported(f"metric={metric!r}")
    difference = op.Sub(op.Unsqueeze(A, [1]), op.Unsqueeze(B, [0]))
    squares = op.ReduceSumSquare(difference, [2], keepdims=0)
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
    """The product of complex numbers a and b, or a and conj(b) for sign -1; the last axis is (real, imaginary)."""
    (ar, ai), (br, bi) = (op.Split(v, axis=-1, num_outputs=2, outputs=2) for v in (a, b))
    if sign < 0:
        bi = op.Neg(bi)
    return op.Concat(op.Sub(op.Mul(ar, br), op.Mul(ai, bi)), op.Add(op.Mul(ar, bi), op.Mul(ai, br)), axis=-1)


@contrib(MICROSOFT + "IsAllFinite")
def is_all_finite(op, *input, isinf_only=0, isnan_only=0):
    """Whether no input contains infinity or NaN; isinf_only and isnan_only restrict the test to one of these."""
    nonfinite = []
    for x in input:
        kinds = ([] if isinf_only else [op.IsNaN(x)]) + ([] if isnan_only else [op.IsInf(x)])
        nonfinite += [op.ReduceMax(op.Cast(k, to=6), keepdims=0) for k in kinds]
    return op.Equal(op.Max(*nonfinite), 0)


@contrib(MICROSOFT + "NGramRepeatBlock")
def n_gram_repeat_block(op, input_ids, scores, *, ngram_size):
    """Sets the score of tokens that would repeat an existing n-gram to -inf."""
    if ngram_size < 2:
        raise Unsupported("ngram_size below 2")
    zero = np.array(0, np.int64)
    length = dim_size(op, input_ids, 1)
    starts = op.Unsqueeze(arange(op, zero, op.Max(op.Add(op.Sub(length, ngram_size), 1), zero)), [1])
    ngrams = op.Gather(op.Cast(input_ids, to=7), op.Add(starts, np.arange(ngram_size)), axis=1)  # (batch, ngrams, ngram_size)
    ends = op.Max(op.Add(op.Sub(length, ngram_size - 1), np.arange(ngram_size - 1)), zero)
    last = op.Unsqueeze(op.Gather(op.Cast(input_ids, to=7), ends, axis=1), [1])
    before = op.Slice(ngrams, [0], [ngram_size - 1], [2])
    repeats = op.ReduceMin(op.Cast(op.Equal(before, last), to=6), [2], keepdims=0)  # (batch, ngrams)
    next_ = op.Squeeze(op.Slice(ngrams, [ngram_size - 1], [ngram_size], [2]), [2])
    tokens = arange(op, zero, dim_size(op, scores, 1))
    matches = op.And(op.Equal(op.Unsqueeze(next_, [2]), tokens), op.Unsqueeze(op.Cast(repeats, to=9), [2]))
    blocked = op.Cast(op.ReduceMax(op.Pad(op.Cast(matches, to=6), np.array([0, 0, 0, 0, 1, 0])), [1], keepdims=0), to=9)
    return op.Where(blocked, op.CastLike(float("-inf"), scores), scores)


@contrib(MICROSOFT + "CropAndResize")
def crop_and_resize(op, X, rois, batch_indices, crop_size: Ints, *, extrapolation_value=0.0, mode="bilinear"):
    """Samples each region with GridSample; coordinates outside of the image get `extrapolation_value`."""
    if mode != "bilinear":
        raise Unsupported(f"mode={mode!r}")
    y1, x1, y2, x2 = (op.Squeeze(v, [1]) for v in op.Split(rois, axis=1, num_outputs=4, outputs=4))
    rows = _grid_coordinates(op, y1, y2, crop_size[0], dim_size(op, X, 2))
    columns = _grid_coordinates(op, x1, x2, crop_size[1], dim_size(op, X, 3))
    shape = op.Concat(op.Shape(rows, start=0, end=1), np.array(crop_size, np.int64), [1], axis=0)
    x_grid = op.Expand(op.Unsqueeze(columns, [1, 3]), shape)
    grid = op.Concat(x_grid, op.Expand(op.Unsqueeze(rows, [2, 3]), shape), axis=3)
    regions = op.Gather(X, batch_indices, axis=0)
    y = op.GridSample(regions, grid, align_corners=1, padding_mode="border")
    outside = op.ReduceMax(op.Cast(op.Greater(op.Abs(grid), 1.0), to=6), [3], keepdims=0)
    return op.Where(op.Cast(op.Unsqueeze(outside, [1]), to=9), op.CastLike(extrapolation_value, X), y)


def _grid_coordinates(op, first, last, number, length):
    """`number` evenly spaced coordinates of each region (its center if 1), with -1 and 1 for the first and last pixel."""
    fractions = np.linspace(0, 1, number, dtype=np.float32) if number > 1 else np.array([0.5], np.float32)
    first, last = op.Unsqueeze(first, [1]), op.Unsqueeze(last, [1])
    coordinates = op.Add(first, op.Mul(op.Sub(last, first), fractions))
    return op.Sub(op.Mul(coordinates, 2.0), 1.0)

"""Matrices from diagonals, diagonals of matrices, and bands of matrices.

Diagonals are counted from the main one: k = 1 is the first above it. A band of several diagonals is [..., diagonals, length]; a
shorter diagonal is aligned to the left or right of its row, apart above and below the main one ("RIGHT_LEFT").
"""

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.tensorflow import sizes
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.sizes import known_ints
from onnxbridge.frontends.tensorflow.wider_dtypes import where
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange
from onnxbridge.hub.ir.values import rank


def _bounds(op, k):
    """The lowest and the highest diagonal."""
    count = sizes.length(k, "the diagonals")
    found = sizes.elements(op, k, count)
    return found[0], found[-1]


def _is_band(k):
    """Whether k is several diagonals; None if that is known only when the model runs."""
    known, one = known_ints(k), sizes.length(k, "the diagonals") == 1
    return False if one else None if known is None else known[0] != known[1]


def _lengths(op, d, rows, columns):
    """The length of each diagonal d."""
    return op.Min(op.Add(op.Min(d, 0), rows), op.Sub(columns, op.Max(d, 0)))


def _offsets(op, d, lengths, longest, align):
    """Where each diagonal d starts in its row."""
    above, below = (side == "RIGHT" for side in align.split("_"))
    right = op.Sub(longest, lengths)
    if above == below:
        return right if above else op.Mul(right, 0)
    return op.Where(op.GreaterOrEqual(d, 0) if above else op.Less(d, 0), right, 0)


def _positions(op, rows, columns):
    """For each element of a matrix its row, its column and its diagonal."""
    i, j = op.Unsqueeze(arange(op, rows), [1]), arange(op, columns)
    return i, j, op.Sub(j, i)


def _spread(op, diagonal, band, k, rows, columns, align):
    """The elements of the diagonals at their positions in [..., rows, columns], and which positions are on a diagonal."""
    low, high = _bounds(op, k)
    i, j, d = _positions(op, rows, columns)
    inside = op.And(op.GreaterOrEqual(d, low), op.LessOrEqual(d, high))
    longest, count = op.size(diagonal, -1), sizes.add(op, sizes.subtract(op, high, low), 1)
    column = op.Add(op.Min(i, j), _offsets(op, d, _lengths(op, d, rows, columns), longest, align))
    index = op.Add(op.Mul(op.Sub(high, d), longest), column)
    index = op.Where(inside, index, 0)
    batch = _batch_shape(op, diagonal, band, low, high)
    flat = op.Reshape(diagonal, op.Concat(batch, op.dims([sizes.multiply(op, count, longest)]), axis=0), allowzero=1)
    if band is None:  # how many axes the batch has is known only when the model runs
        flat = op.Reshape(diagonal, op.Concat([-1], op.dims([sizes.multiply(op, count, longest)]), axis=0))
    return op.Gather(flat, index, axis=-1), inside, batch


def _batch_shape(op, diagonal, band, low, high):
    if band is not None:
        return op.Shape(diagonal, end=-2 if band else -1)
    end = op.Sub(-1, op.Cast(op.Not(op.Equal(low, high)), to=ir.DataType.INT64))
    return op.Slice(op.Shape(diagonal), [0], op.Reshape(end, [1]), [0])


def _matrix(op, diagonal, k, num_rows, num_cols, padding_value, align):
    low, high = _bounds(op, k)
    longest, [rows], [columns] = op.size(diagonal, -1), *(sizes.elements(op, n, 1) for n in (num_rows, num_cols))
    least = sizes.subtract(op, longest, sizes.minimum(op, high, 0)), sizes.add(op, longest, sizes.maximum(op, low, 0))
    rows, columns = _matrix_size(op, rows, columns, *least)
    spread, inside, batch = _spread(op, diagonal, _is_band(k), k, rows, columns, align)
    y = where(op, inside, spread, padding_value)
    return op.Reshape(y, op.Concat(batch, op.dims([rows, columns]), axis=0), allowzero=1) if _is_band(k) is None else y


def _matrix_size(op, rows, columns, least_rows, least_columns):
    """-1 is the least size that holds the diagonals, and a square one if both are."""
    if isinstance(rows, int) and isinstance(columns, int):
        if rows == columns == -1:
            side = sizes.maximum(op, least_rows, least_columns)
            return side, side
        return least_rows if rows == -1 else rows, least_columns if columns == -1 else columns
    no_rows, no_columns = (op.Less(sizes.scalar(op, s), 0) for s in (rows, columns))
    side = sizes.scalar(op, sizes.maximum(op, least_rows, least_columns))
    both = op.And(no_rows, no_columns)
    rows = op.Where(both, side, op.Where(no_rows, least_rows, rows))
    return rows, op.Where(both, side, op.Where(no_columns, least_columns, columns))


@rule("MatrixDiagV3")
def matrix_diag_v3(op, diagonal, k, num_rows, num_cols, padding_value, *, align="RIGHT_LEFT"):
    return _matrix(op, diagonal, k, num_rows, num_cols, op.Reshape(padding_value, []), align)


@rule("MatrixDiagV2")
def matrix_diag_v2(op, diagonal, k, num_rows, num_cols, padding_value):
    return matrix_diag_v3(op, diagonal, k, num_rows, num_cols, padding_value, align="LEFT_LEFT")


@rule("MatrixDiag")
def matrix_diag(op, diagonal):
    zero, size = (op.constant(np.array(v, t)) for v, t in ((0, diagonal.dtype.numpy()), (-1, np.int64)))
    return matrix_diag_v3(op, diagonal, op.constant(np.int64(0)), size, size, zero)


def _diagonals(op, x, k, padding_value, align):
    (low, high), band = _bounds(op, k), _is_band(k)
    rows, columns = op.size(x, -2), op.size(x, -1)
    count = sizes.add(op, sizes.subtract(op, high, low), 1)
    reach = sizes.add(op, rows, sizes.minimum(op, high, 0)), sizes.subtract(op, columns, sizes.maximum(op, low, 0))
    longest = sizes.minimum(op, *reach)
    d = op.Unsqueeze(op.Sub(high, arange(op, count)), [1])
    lengths = _lengths(op, d, rows, columns)
    i = op.Sub(arange(op, longest), _offsets(op, d, lengths, longest, align))
    inside = op.And(op.GreaterOrEqual(i, 0), op.Less(i, lengths))
    index = op.Add(op.Mul(op.Sub(i, op.Min(d, 0)), columns), op.Add(i, op.Max(d, 0)))
    flat = op.Reshape(x, op.Concat(op.Shape(x, end=-2), op.dims([sizes.multiply(op, rows, columns)]), axis=0), allowzero=1)
    y = op.Gather(flat, op.Where(inside, index, 0), axis=-1)
    known = sizes.known_array(inside)
    if known is None or not known.all():
        y = where(op, inside, y, padding_value)
    if band:
        return y
    if band is not None:
        return op.Squeeze(y, [-2])
    tail = op.Slice(op.dims([count, longest]), op.Reshape(op.Cast(op.Equal(low, high), to=ir.DataType.INT64), [1]), [2], [0])
    return op.Reshape(y, op.Concat(op.Shape(x, end=-2), tail, axis=0), allowzero=1)


@rule("MatrixDiagPartV3")
def matrix_diag_part_v3(op, input, k, padding_value, *, align="RIGHT_LEFT"):
    return _diagonals(op, input, k, op.Reshape(padding_value, []), align)


@rule("MatrixDiagPartV2")
def matrix_diag_part_v2(op, input, k, padding_value):
    return matrix_diag_part_v3(op, input, k, padding_value, align="LEFT_LEFT")


@rule("MatrixDiagPart")
def matrix_diag_part(op, input):
    zero = op.constant(np.array(0, input.dtype.numpy()))
    return matrix_diag_part_v3(op, input, op.constant(np.int64(0)), zero)


@rule("MatrixSetDiagV3")
def matrix_set_diag_v3(op, input, diagonal, k, *, align="RIGHT_LEFT"):
    band = rank(diagonal) == rank(input)
    spread, inside, _ = _spread(op, diagonal, band, k, op.size(input, -2), op.size(input, -1), align)
    return where(op, inside, spread, input)


@rule("MatrixSetDiagV2")
def matrix_set_diag_v2(op, input, diagonal, k):
    return matrix_set_diag_v3(op, input, diagonal, k, align="LEFT_LEFT")


@rule("MatrixSetDiag")
def matrix_set_diag(op, input, diagonal):
    return matrix_set_diag_v3(op, input, diagonal, op.constant(np.int64(0)))


_TRILU = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT32, ir.DataType.INT64, ir.DataType.BOOL)


@rule("MatrixBandPart")
def matrix_band_part(op, input, num_lower, num_upper):
    """A negative number keeps the whole triangle."""
    [low], [high] = (sizes.elements(op, n, 1) for n in (num_lower, num_upper))
    x = input
    if input.dtype in _TRILU and isinstance(low, int) and isinstance(high, int):
        x = op.Trilu(x, np.int64(high), upper=0) if high >= 0 else x
        return op.Trilu(x, np.int64(-low), upper=1) if low >= 0 else x
    _, _, d = _positions(op, op.size(input, -2), op.size(input, -1))
    for bound, distance in ((low, op.Neg(d)), (high, d)):
        if not isinstance(bound, int) or bound >= 0:
            inside = op.LessOrEqual(distance, bound)
            inside = inside if isinstance(bound, int) else op.Or(inside, op.Less(bound, 0))
            x = where(op, inside, x, np.array(0, input.dtype.numpy()))
    return x


@rule("Diag")
def diag(op, diagonal):
    """The diagonal of twice its rank."""
    n = rank(diagonal)
    flat = op.Reshape(diagonal, [-1])
    return op.Reshape(matrix_diag(op, flat), op.Concat(*[op.Shape(diagonal)] * 2, axis=0), allowzero=1) if n > 1 else (
        matrix_diag(op, flat)
    )


@rule("DiagPart")
def diag_part(op, input):
    shape = op.Shape(input, end=rank(input) // 2)
    size = op.ReduceProd(shape, keepdims=1)
    return op.Reshape(matrix_diag_part(op, op.Reshape(input, op.Concat(size, size, axis=0), allowzero=1)), shape, allowzero=1)

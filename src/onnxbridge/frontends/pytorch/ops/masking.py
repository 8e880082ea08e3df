"""Masked indexing, diagonals, and results of a requested size."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.fx.promotion import cast
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.creation import fill
from onnxbridge.frontends.pytorch.ops.indexing import index, index_put, nonzero
from onnxbridge.frontends.pytorch.ops.shape import INT64_MAX, axis_of, rank, sizes
from onnxbridge.hub.decompositions.linalg import factorizations

D = ir.DataType


def _clamp(op, x, indices):
    """Clamp indices to the valid range."""
    found = []
    for axis, i in enumerate(indices):
        if i is None:
            found.append(None)
            continue
        size = op.size(x, axis)
        last = op.Sub(size, 1) if isinstance(size, ir.Value) else size - 1
        found.append(op.Min(op.Max(cast(op, i, D.INT64), 0), last))
    return found


@rule("aten::_unsafe_masked_index")
def unsafe_masked_index(op, self, mask, indices, fill):
    if 0 in self.shape:
        return op.Expand(cast(op, fill, self.dtype), op.Shape(mask))
    return op.Where(cast(op, mask, D.BOOL), index(op, self, _clamp(op, self, indices)), cast(op, fill, self.dtype))


@rule("aten::_unsafe_masked_index_put_accumulate")
def unsafe_masked_index_put(op, self, mask, indices, values):
    if 0 in self.shape:
        return self
    values = op.Where(cast(op, mask, D.BOOL), cast(op, values, self.dtype), cast(op, 0, self.dtype))
    return index_put(op, self, _clamp(op, self, indices), values, accumulate=True)


@rule("aten::diagonal", "aten::diagonal_copy")
def diagonal(op, self, offset=0, dim1=0, dim2=1):
    a, b = axis_of(self, dim1), axis_of(self, dim2)
    rows, columns = self.shape[a], self.shape[b]
    rest = [i for i in range(rank(self)) if i not in (a, b)]
    if not (isinstance(rows, int) and isinstance(columns, int)):
        return _dynamic_diagonal(op, op.Transpose(self, perm=[*rest, a, b]), offset)
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    x = op.reshape(op.Transpose(self, perm=[*rest, a, b]), [*(op.size(self, i) for i in rest), rows * columns])
    positions = (np.arange(count) + max(-offset, 0)) * columns + np.arange(count) + max(offset, 0)
    return op.Gather(x, positions.astype(np.int64), axis=-1)


def _dynamic_diagonal(op, x, offset):
    """The diagonal of the last two axes, with a dynamic size."""
    start, far = op.dims([max(-offset, 0), max(offset, 0)]), [INT64_MAX, INT64_MAX]
    x = op.Slice(x, start, far, [-2, -1])
    count = op.Min(op.size(x, -2), op.size(x, -1))
    x = op.Slice(x, [0, 0], op.dims([count, count]), [-2, -1])
    positions = op.Range(np.int64(0), count, np.int64(1))
    index = op.Expand(op.Unsqueeze(positions, [1]), op.Concat(op.Shape(x, end=-1), [1], axis=0))
    return op.Squeeze(op.GatherElements(x, index, axis=-1), [-1])


@rule("aten::diagonal_scatter")
def diagonal_scatter(op, self, src, offset=0, dim1=0, dim2=1):
    a, b = axis_of(self, dim1), axis_of(self, dim2)
    rows, columns = self.shape[a], self.shape[b]
    order = [*(i for i in range(rank(self)) if i not in (a, b)), a, b]
    x = op.Transpose(self, perm=order)
    if not (isinstance(rows, int) and isinstance(columns, int)):
        y = _scatter_dynamic_diagonal(op, x, cast(op, src, self.dtype), offset)
        return op.Transpose(y, perm=[order.index(i) for i in range(rank(self))])
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    positions = (np.arange(count) + max(-offset, 0)) * columns + np.arange(count) + max(offset, 0)
    lead = sizes(op, x)[:-2]
    flat = op.reshape(x, [*lead, rows * columns])
    index_ = op.Expand(positions.astype(np.int64), op.Shape(src))
    y = op.reshape(op.ScatterElements(flat, index_, cast(op, src, self.dtype), axis=-1), [*lead, rows, columns])
    return op.Transpose(y, perm=[order.index(i) for i in range(rank(self))])


def _scatter_dynamic_diagonal(op, x, src, offset):
    """Replace the diagonal of the last two axes, with a dynamic size."""
    rows, columns = (factorizations.arange(op, op.size(x, axis)) for axis in (-2, -1))
    on_diagonal = op.Equal(op.Add(op.Unsqueeze(rows, [1]), offset), columns)
    positions = op.Max(op.Sub(rows, max(-offset, 0)), 0)
    # rows without an element on the diagonal gather the padding at the end
    padded = op.Concat(src, op.Expand(op.CastLike(0, src), op.Concat(op.Shape(src, end=-1), [1], axis=0)), axis=-1)
    gathered = op.Gather(padded, op.Min(positions, op.size(src, -1)), axis=-1)
    return op.Where(on_diagonal, op.Unsqueeze(gathered, [-1]), x)


@rule("aten::nonzero_static")
def nonzero_static(op, self, *, size, fill_value=-1):
    found = nonzero(op, self)
    rest = fill(op, [size, rank(self)], fill_value, D.INT64)
    return op.Slice(op.Concat(found, rest, axis=0), [0], op.dims([size]), [0])


@rule("aten::resize")
def resize(op, self, size):
    """The first elements in another shape; additional elements would be uninitialized."""
    static = all(isinstance(n, int) for n in (*size, *self.shape))
    requested, available = (int(np.prod(size)), int(np.prod(list(self.shape)))) if static else (0, 0)
    if not static or self.meta.get("strided") or requested > available:
        raise Unsupported("resizing to more elements than the tensor has")
    flat = op.reshape(self, [-1])
    return op.reshape(flat if requested == available else op.Slice(flat, [0], [requested]), size)


@rule("aten::resize_as")
def resize_as(op, self, the_template):
    return resize(op, self, list(the_template.shape))

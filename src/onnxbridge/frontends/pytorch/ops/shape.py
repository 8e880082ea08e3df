"""Operators that rearrange elements: views, concatenation, splitting, transposition."""

import functools
import math
import re

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.fx.promotion import cast, promote, result_type
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.rules import Outputs

D = ir.DataType
INT64_MAX = 2**63 - 1


def rank(x):
    return len(x.shape)


def axis_of(x, dim):
    """The axis as a non-negative number."""
    return dim % max(rank(x), 1)


def sizes(op, x):
    """The sizes of all axes: numbers where static, else values."""
    return [op.size(x, i) for i in range(rank(x))]


def may_be_empty(dim):
    """Whether a size depends on data (an unbacked symbol), so that it may be 0."""
    return not isinstance(dim, int) and re.search(r"\bu\d+\b", str(dim)) is not None


@rule("aten::view", "aten::_unsafe_view", "aten::view_copy")
def view(op, self, size):
    return reshape(op, self, size)


@rule("aten::view.dtype", "aten::view_copy.dtype")
def view_dtype(op, self, dtype):
    if dtype == self.dtype:
        return self
    if dtype.bitwidth != self.dtype.bitwidth or D.BOOL in (dtype, self.dtype):
        raise Unsupported(f"a view of {self.dtype.name} as {dtype.name}, which has another bit width")
    return op.BitCast(self, to=dtype)


@rule("aten::reshape")
def reshape(op, self, shape):
    shape = list(shape)
    known = [d for d in self.shape if isinstance(d, int)]
    if -1 in shape and len(known) == rank(self) and all(isinstance(s, int) for s in shape):
        rest = math.prod(s for s in shape if s != -1)
        shape[shape.index(-1)] = math.prod(known) // rest if rest else 0
    return op.reshape(self, shape)


@rule("aten::_reshape_copy")
def reshape_copy(op, self, size):
    return reshape(op, self, size)


@rule("aten::view_as", "aten::reshape_as")
def reshape_as(op, self, other):
    return op.reshape(self, sizes(op, other))


@rule("aten::flatten.using_ints")
def flatten(op, self, start_dim=0, end_dim=-1):
    if rank(self) == 0:
        return op.reshape(self, [1])
    start, end = axis_of(self, start_dim), axis_of(self, end_dim)
    if start == end:
        return self
    shape = sizes(op, self)
    middle = shape[start : end + 1]
    total = math.prod(middle) if all(isinstance(m, int) for m in middle) else -1
    if total == -1 and any(may_be_empty(d) for i, d in enumerate(self.shape) if not start <= i <= end):
        total = functools.reduce(op.Mul, middle)  # ONNX cannot infer -1 if the tensor is empty
    elif total == -1 and any(isinstance(s, int) and s == 0 for s in shape):
        raise Unsupported("flattening an empty tensor of dynamic shape")
    return op.reshape(self, [*shape[:start], total, *shape[end + 1 :]])


@rule("aten::unflatten.int")
def unflatten(op, self, dim, sizes):
    axis = axis_of(self, dim)
    total = self.shape[axis]
    sizes_ = list(sizes)
    if -1 in sizes_ and isinstance(total, int) and all(isinstance(s, int) for s in sizes_):
        sizes_[sizes_.index(-1)] = total // max(1, math.prod(s for s in sizes_ if s != -1))
    shape = [op.size(self, i) for i in range(rank(self))]
    return op.reshape(self, [*shape[:axis], *sizes_, *shape[axis + 1 :]])


@rule("aten::permute", "aten::permute_copy")
def permute(op, self, dims):
    return op.Transpose(self, perm=[axis_of(self, d) for d in dims]) if dims else self


def swap_axes(op, x, a, b):
    order = list(range(rank(x)))
    if not order:
        return x
    order[a], order[b] = order[b], order[a]
    return x if a % rank(x) == b % rank(x) else op.Transpose(x, perm=order)


@rule("aten::transpose.int", "aten::transpose_copy.int")
def transpose(op, self, dim0, dim1):
    return swap_axes(op, self, dim0, dim1)


@rule("aten::swapaxes")
def swapaxes(op, self, axis0, axis1):
    return swap_axes(op, self, axis0, axis1)


@rule("aten::swapdims")
def swapdims(op, self, dim0, dim1):
    return swap_axes(op, self, dim0, dim1)


@rule("aten::t", "aten::t_copy")
def t(op, self):
    return swap_axes(op, self, 0, 1) if rank(self) == 2 else self


@rule("aten::numpy_T")
def numpy_T(op, self):
    return op.Transpose(self) if rank(self) > 1 else self


@rule("aten::mT", "aten::adjoint", "aten::matrix_H", "aten::mH")
def mT(op, self):
    return swap_axes(op, self, -2, -1) if rank(self) > 1 else self


@rule("aten::movedim.intlist", "aten::moveaxis.intlist")
def movedim(op, self, source, destination):
    source = [axis_of(self, s) for s in source]
    target = dict(zip([axis_of(self, d) for d in destination], source, strict=True))
    rest = iter([i for i in range(rank(self)) if i not in source])
    return op.Transpose(self, perm=[target[i] if i in target else next(rest) for i in range(rank(self))]) if rank(self) else self


@rule("aten::movedim.int", "aten::moveaxis.int")
def movedim_int(op, self, source, destination):
    return movedim(op, self, [source], [destination])


@rule("aten::expand", "aten::expand_copy")
def expand(op, self, size, *, implicit=False):
    if [1 if isinstance(s, int) and s == -1 else s for s in size] == [1] * len(size) and len(size) == rank(self):
        return self
    lead = len(size) - rank(self)
    target = [1 if isinstance(s, int) and s == -1 else s for s in size]
    if all(isinstance(s, int) for s in target) and list(self.shape) == target and lead == 0:
        return self
    return op.Expand(self, op.dims(target))


@rule("aten::expand_as")
def expand_as(op, self, other):
    return op.Expand(self, op.dims(sizes(op, other)))


@rule("aten::broadcast_to")
def broadcast_to(op, self, size):
    return expand(op, self, size)


@rule("aten::broadcast_tensors")
def broadcast_tensors(op, tensors):
    shape = op.dims(sizes(op, tensors[0]))
    zero = op.Expand(False, shape)
    for x in tensors[1:]:
        zero = op.And(zero, op.Expand(False, op.dims(sizes(op, x))))
    shape = op.Shape(zero)
    return tuple(op.Expand(x, shape) for x in tensors)


@rule("aten::repeat")
def repeat(op, self, repeats):
    lead = len(repeats) - rank(self)
    x = op.Unsqueeze(self, list(range(lead))) if lead else self
    return op.Tile(x, op.dims(repeats)) if repeats else x


@rule("aten::tile")
def tile(op, self, dims):
    return repeat(op, self, [1] * (rank(self) - len(dims)) + list(dims))


@rule("aten::unsqueeze", "aten::unsqueeze_copy")
def unsqueeze(op, self, dim):
    return op.Unsqueeze(self, [dim])


@rule("aten::squeeze", "aten::squeeze_copy")
def squeeze(op, self):
    return squeeze_dims(op, self, range(rank(self)))


@rule("aten::squeeze.dim", "aten::squeeze_copy.dim")
def squeeze_dim(op, self, dim):
    return squeeze_dims(op, self, [dim])


@rule("aten::squeeze.dims", "aten::squeeze_copy.dims")
def squeeze_dims(op, self, dim):
    if rank(self) == 0:
        return self
    axes = [axis_of(self, d) for d in dim]
    ones = [a for a in axes if self.shape[a] == 1]
    return op.Squeeze(self, ones) if ones else self


@rule("aten::cat", "aten::concat", "aten::concatenate")
def cat(op, tensors, dim=0):
    parts = [t for t in tensors if list(t.shape) != [0]] or tensors[:1]
    dtype = result_type(*tensors)
    parts = [cast(op, t, dtype) for t in parts]
    return op.Concat(*parts, axis=dim) if len(parts) > 1 else parts[0]


@rule("aten::stack")
def stack(op, tensors, dim=0):
    return op.Concat(*[op.Unsqueeze(t, [dim]) for t in promote(op, *tensors)], axis=dim)


def split_into(op, x, lengths, dim):
    """Split x along one axis into parts of the given lengths."""
    if len(lengths) == 1:
        return (x,)
    return tuple(op.Split(x, op.dims(lengths), axis=dim, outputs=len(lengths)))


@rule("aten::split.Tensor", "aten::split_copy.Tensor")
def split(op, self, split_size, dim=0):
    total = static_size(self, dim)
    if not isinstance(split_size, int):
        raise Unsupported("splitting by a dynamic size")
    if total == 0 or split_size == 0:
        return (self,)
    lengths = [min(split_size, total - i) for i in range(0, total, split_size)]
    return split_into(op, self, lengths, dim)


def static_size(x, dim):
    size = x.shape[dim]
    if not isinstance(size, int):
        raise Unsupported("splitting an axis of dynamic size into equal parts", "fix that size")
    return size


@rule("aten::split_with_sizes", "aten::split_with_sizes_copy")
def split_with_sizes(op, self, split_sizes, dim=0):
    return split_into(op, self, split_sizes, dim)


@rule("aten::split.sizes")
def split_sizes(op, self, split_size, dim=0):
    return split_into(op, self, split_size, dim)


@rule("aten::chunk")
def chunk(op, self, chunks, dim=0):
    total = static_size(self, dim)
    return split(op, self, -(-total // chunks) or 1, dim)


@rule("aten::tensor_split.sections")
def tensor_split(op, self, sections, dim=0):
    """The first parts are longer by one where the size is not a multiple of their number."""
    total = op.size(self, dim)
    if isinstance(total, int):
        small, longer = divmod(total, sections)
        return split_into(op, self, [small + (i < longer) for i in range(sections)], dim)
    small, longer = op.Div(total, sections), op.Mod(total, sections)
    starts = [op.Reshape(op.Add(op.Mul(small, i), op.Min(longer, i)), [1]) for i in range(sections)]
    return tuple(op.Slice(self, a, b, [dim]) for a, b in zip(starts, [*starts[1:], [INT64_MAX]], strict=True))


@rule("aten::tensor_split.indices")
def tensor_split_indices(op, self, indices, dim=0):
    total = static_size(self, dim)
    bounds = [min(max(i + total if i < 0 else i, 0), total) for i in indices]
    ends = [*bounds, total]
    return tuple(op.Slice(self, [a], [max(a, b)], [dim]) for a, b in zip([0, *bounds], ends, strict=True))


@rule("aten::tensor_split.tensor_indices_or_sections")
def tensor_split_tensor(op, self, tensor_indices_or_sections, dim=0, *, outputs: Outputs):
    given = tensor_indices_or_sections
    if rank(given) == 0:  # their number was fixed while tracing
        return tensor_split(op, self, len(outputs), dim)
    total = op.size(self, dim)
    bounds = [op.Gather(given, [i]) for i in range(len(outputs) - 1)]
    bounds = [op.Where(op.Less(b, 0), op.Max(op.Add(b, total), 0), b) for b in bounds]
    ends = [*bounds, op.constant(np.array([INT64_MAX]))]
    return tuple(op.Slice(self, a, b, [dim]) for a, b in zip([op.constant(np.array([0])), *bounds], ends, strict=True))


@rule("aten::unbind.int", "aten::unbind_copy.int")
def unbind(op, self, dim=0):
    count = static_size(self, dim)
    return tuple(op.Squeeze(p, [dim]) for p in split_into(op, self, [1] * count, dim))


@rule("aten::roll")
def roll(op, self, shifts, dims=()):
    if not dims:
        flat = op.reshape(self, [-1])
        return op.reshape(roll(op, flat, shifts, [0]), sizes(op, self))
    x = self
    for shift, dim in zip(shifts, dims, strict=True):
        size = op.size(self, dim) if rank(self) else 1
        if isinstance(size, int) and isinstance(shift, int):
            start = -shift % size if size else 0
            if start == 0:
                continue
        else:
            start = op.Mod(-shift if isinstance(shift, int) else op.Neg(shift), size)
        ends = op.dims([start])
        x = op.Concat(op.Slice(x, ends, [INT64_MAX], [dim]), op.Slice(x, [0], ends, [dim]), axis=dim)
    return x


@rule("aten::flip")
def flip(op, self, dims):
    if not dims or rank(self) == 0:
        return self
    n = len(dims)
    return op.Slice(self, [-1] * n, [-(2**63)] * n, list(dims), [-1] * n)


@rule("aten::fliplr")
def fliplr(op, self):
    return flip(op, self, [1])


@rule("aten::flipud")
def flipud(op, self):
    return flip(op, self, [0])


@rule("aten::atleast_1d")
def atleast_1d(op, self):
    return self if rank(self) else op.reshape(self, [1])


@rule("aten::atleast_2d")
def atleast_2d(op, self):
    return self if rank(self) > 1 else op.Unsqueeze(atleast_1d(op, self), [0])


@rule("aten::atleast_3d")
def atleast_3d(op, self):
    return self if rank(self) > 2 else op.Unsqueeze(atleast_2d(op, self), [-1])


@rule("aten::sym_size.int")
def sym_size(op, self, dim):
    return op.size(self, dim)


@rule("aten::sym_numel", "aten::numel")
def sym_numel(op, self):
    return op.Size(self)


@rule("aten::meshgrid")
def meshgrid(op, tensors):
    return meshgrid_indexing(op, tensors, indexing="ij")


@rule("aten::meshgrid.indexing")
def meshgrid_indexing(op, tensors, *, indexing):
    n = len(tensors)
    swap = indexing == "xy" and n > 1
    axes = [1, 0, *range(2, n)] if swap else list(range(n))
    lengths = [op.size(t, 0) if rank(t) else 1 for t in tensors]
    grid = [0] * n
    for axis, length in zip(axes, lengths, strict=True):
        grid[axis] = length
    shape = op.dims(grid)
    reshaped = [op.reshape(t, [-1 if i == p else 1 for i in range(n)]) for t, p in zip(tensors, axes, strict=True)]
    return tuple(op.Expand(t, shape) for t in reshaped)

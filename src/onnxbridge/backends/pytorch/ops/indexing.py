"""Gather, scatter and search."""

from __future__ import annotations

import onnx_ir as ir
import torch

from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.backends.pytorch.ops.arithmetic import from_ordered, ordered
from onnxbridge.backends.pytorch.trace import size_arithmetic
from onnxbridge.backends.pytorch.trace.size_arithmetic import known_ints
from onnxbridge.backends.pytorch.trace.tracer import data_dependent_call, opaque_call
from onnxbridge.errors import Unsupported


@opaque_call
def wrap_negative(indices, size):
    """Indices with `size` added to negative ones."""
    return torch.where(indices < 0, indices + size, indices)


def wrapped(indices, size):
    """Indices as int64, with negative ones wrapped."""
    known = known_ints(indices)
    indices = indices.to(torch.int64)
    return indices if isinstance(known, tuple) and all(i >= 0 for i in known) else wrap_negative(indices, size)


@data_dependent_call
def gather_strings(data, indices, axis):
    return data.take(indices.numpy(), axis=axis)


@rule("Gather")
def gather(data, indices, *, axis=0):
    if data.hub_dtype == ir.DataType.STRING:
        return gather_strings(data, indices, axis)
    axis %= data.ndim
    known = known_ints(indices)
    if indices.ndim == 0 and isinstance(known, tuple):
        return data.select(axis, known[0])
    if axis == 0 and data.ndim == 2 and data.dtype.is_floating_point and not isinstance(known, tuple):
        return torch.nn.functional.embedding(wrapped(indices, data.shape[0]), data)
    found = data.index_select(axis, wrapped(indices, data.shape[axis]).reshape(-1))
    if indices.ndim == 1:
        return found
    return found.reshape([*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]])


@opaque_call
def features(X, Y):
    """The columns with indices `Y`; a 1-D input is one row."""
    found = X.index_select(-1, Y.to(torch.int64).reshape(-1))
    return found.unsqueeze(0) if X.ndim == 1 else found


@rule("ai.onnx.ml::ArrayFeatureExtractor")
def array_feature_extractor(X, Y):
    if X.hub_dtype == ir.DataType.STRING:
        raise Unsupported("string features")
    return features(X, Y)


@rule("GatherElements")
def gather_elements(data, indices, *, axis=0):
    return torch.gather(data, axis, wrapped(indices, data.shape[axis]))


def _depth(indices):
    """How many axes each index names."""
    depth = indices.shape[-1]
    if not isinstance(depth, int):
        raise Unsupported("index tuples of dynamic length")
    return depth


@rule("GatherND")
def gather_nd(data, indices, *, batch_dims=0):
    depth = _depth(indices)
    batches = []
    for d in range(batch_dims):
        counted = torch.arange(data.shape[d], device=data.device) if isinstance(data.shape[d], int) else axis_indices(data, d)
        batches.append(counted.reshape([-1 if i == d else 1 for i in range(indices.ndim - 1)]))
    positions = [wrapped(indices[..., i], data.shape[batch_dims + i]) for i in range(depth)]
    shape = list(indices.shape[:-1])
    if not batches and not depth:
        return data.expand([*shape, *data.shape])
    return data[(*(b.expand(shape) for b in batches), *positions)]


@opaque_call
def axis_indices(data, axis):
    """The indices of an axis."""
    return torch.arange(data.shape[axis], device=data.device)


_REDUCE = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@rule("ScatterElements")
def scatter_elements(data, indices, updates, *, axis=0, reduction="none"):
    index = wrapped(indices, data.shape[axis])
    if reduction == "none":
        return data.scatter(axis, index, updates)
    return data.scatter_reduce(axis, index, updates, _REDUCE[reduction], include_self=True)


@rule("ScatterND")
def scatter_nd(data, indices, updates, *, reduction="none"):
    depth = _depth(indices)
    positions = tuple(wrapped(indices[..., i], data.shape[i]) for i in range(depth))
    if reduction in ("none", "add"):
        return data.index_put(positions, updates, accumulate=reduction == "add")
    # flatten the indexed dimensions, and the others
    position, rows = 0, 1
    for index, size in zip(positions, data.shape[:depth], strict=True):
        position, rows = position * size + index, rows * size
    flat = data.reshape([rows, -1])
    changes = updates.reshape([-1, flat.shape[1]])
    index = position.reshape([-1, 1]).expand(changes.shape)
    return flat.scatter_reduce(0, index, changes, _REDUCE[reduction], include_self=True).reshape(data.shape)


@rule("TensorScatter")
def tensor_scatter(past_cache, update, write_indices=None, *, axis=-2, mode="linear"):
    axis %= past_cache.ndim
    position = axis_indices(update, axis)
    position = position if write_indices is None else write_indices.to(torch.int64).unsqueeze(-1) + position
    if mode == "circular":
        position = torch.remainder(position, past_cache.shape[axis])
    elif mode != "linear":
        raise Unsupported(f"mode={mode!r}")
    lead = [-1 if write_indices is not None else 1] + [1] * (axis - 1)
    position = position.reshape([*lead, update.shape[axis]] + [1] * (past_cache.ndim - axis - 1))
    return past_cache.scatter(axis, position.expand(update.shape), update)


@rule("NonZero")
def non_zero(X):
    if X.ndim == 0:
        raise Unsupported("NonZero of a scalar")
    return X.nonzero().transpose(0, 1)


@data_dependent_call
def compressed(input, condition, axis):
    data = input.reshape(-1) if axis is None else input
    return data.index_select(axis or 0, condition.nonzero().reshape(-1))


@rule("Compress")
def compress(input, condition, *, axis=None):
    return compressed(input, condition, axis)


@data_dependent_call
def uniques(X, axis, sorted):
    """The values, the index of each one's first occurrence, the value index of each element, and the counts."""
    data = X.reshape(-1) if axis is None else X
    axis = axis or 0
    values, inverse, counts = torch.unique(data, sorted=True, return_inverse=True, return_counts=True, dim=axis)
    positions = torch.arange(inverse.shape[0], device=X.device)
    first = torch.full_like(counts, inverse.shape[0]).scatter_reduce(0, inverse, positions, "amin", include_self=True)
    if not sorted:
        order = torch.argsort(first)
        values, first, counts = values.index_select(axis, order), first[order], counts[order]
        inverse = torch.argsort(order)[inverse]
    return values, first, inverse, counts


@rule("Unique")
def unique(X, *, axis=None, sorted=1):
    if X.hub_dtype == ir.DataType.UINT64:
        raise Unsupported("Unique of uint64")
    found = uniques(X, axis, sorted)
    return tuple(found[i] for i in range(4))


@opaque_call
def largest(X, count, axis, largest):
    """Uses a stable sort, because ONNX orders equal elements by index and torch.topk does not."""
    count = int(count) if isinstance(count, torch.Tensor) else count
    values, indices = torch.sort(X, dim=axis, descending=bool(largest), stable=True)
    return values.narrow(axis, 0, count), indices.narrow(axis, 0, count)


@rule("TopK")
def top_k(X, K, *, axis=-1, largest=1, sorted=1):
    known = size_arithmetic.elements(K)
    found = _top(ordered(X), K if known is None else known.reshape(-1)[0], axis, largest)
    return from_ordered(found[0], X), found[1]


_top = largest


@opaque_call
def one_hot_of(indices, depth, values, axis):
    depth = int(depth.reshape([]).item()) if isinstance(depth, torch.Tensor) else depth
    positions = torch.remainder(indices.to(torch.int64), depth)
    inside = (indices >= -depth) & (indices < depth)
    axis = axis % (indices.ndim + 1)
    axis_indices = torch.arange(depth, device=indices.device).reshape([-1] + [1] * (indices.ndim - axis))
    is_hot = (positions.unsqueeze(axis) == axis_indices) & inside.unsqueeze(axis)
    return torch.where(is_hot, values[1], values[0])


@rule("OneHot")
def one_hot(indices, depth, values, *, axis=-1):
    known = known_ints(depth)
    return one_hot_of(indices, known[0] if isinstance(known, tuple) else depth, values, axis)

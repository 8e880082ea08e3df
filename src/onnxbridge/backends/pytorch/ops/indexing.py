"""Gathering, scattering and looking for elements."""

from __future__ import annotations

import onnx_ir as ir
import torch

from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.backends.pytorch.ops.arithmetic import ordered, ordered_back
from onnxbridge.backends.pytorch.trace import size_arithmetic
from onnxbridge.backends.pytorch.trace.size_arithmetic import known_ints
from onnxbridge.backends.pytorch.trace.tracer import at_run_time, leaf
from onnxbridge.errors import Unsupported


@leaf
def from_the_end(indices, size):
    """Indices of so many elements, the negative ones counted from the end."""
    return torch.where(indices < 0, indices + size, indices)


def wrapped(indices, size):
    """Indices as int64, negative ones counted from the end."""
    known = known_ints(indices)
    indices = indices.to(torch.int64)
    return indices if isinstance(known, tuple) and all(i >= 0 for i in known) else from_the_end(indices, size)


@at_run_time
def gather_text(data, indices, axis):
    return data.take(indices.numpy(), axis=axis)


@rule("Gather")
def gather(data, indices, *, axis=0):
    if data.hub == ir.DataType.STRING:
        return gather_text(data, indices, axis)
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


@leaf
def features(X, Y):
    """The columns that `Y` names, of one row without a dimension for rows too."""
    found = X.index_select(-1, Y.to(torch.int64).reshape(-1))
    return found.unsqueeze(0) if X.ndim == 1 else found


@rule("ai.onnx.ml::ArrayFeatureExtractor")
def array_feature_extractor(X, Y):
    if X.hub == ir.DataType.STRING:
        raise Unsupported("features that are texts")
    return features(X, Y)


@rule("GatherElements")
def gather_elements(data, indices, *, axis=0):
    return torch.gather(data, axis, wrapped(indices, data.shape[axis]))


@rule("GatherND")
def gather_nd(data, indices, *, batch_dims=0):
    depth = indices.shape[-1]
    batches = []
    for d in range(batch_dims):
        counted = torch.arange(data.shape[d], device=data.device) if isinstance(data.shape[d], int) else steps(data, d)
        batches.append(counted.reshape([-1 if i == d else 1 for i in range(indices.ndim - 1)]))
    places = [wrapped(indices[..., i], data.shape[batch_dims + i]) for i in range(depth)]
    shape = list(indices.shape[:-1])
    if not batches and not depth:
        return data.expand([*shape, *data.shape])
    return data[(*(b.expand(shape) for b in batches), *places)]


@leaf
def steps(data, axis):
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
    depth = indices.shape[-1]
    places = tuple(wrapped(indices[..., i], data.shape[i]) for i in range(depth))
    if reduction in ("none", "add"):
        return data.index_put(places, updates, accumulate=reduction == "add")
    # the indexed dimensions and the others each made one
    place, rows = 0, 1
    for index, size in zip(places, data.shape[:depth], strict=True):
        place, rows = place * size + index, rows * size
    flat = data.reshape([rows, -1])
    changes = updates.reshape([-1, flat.shape[1]])
    index = place.reshape([-1, 1]).expand(changes.shape)
    return flat.scatter_reduce(0, index, changes, _REDUCE[reduction], include_self=True).reshape(data.shape)


@rule("TensorScatter")
def tensor_scatter(past_cache, update, write_indices=None, *, axis=-2, mode="linear"):
    axis %= past_cache.ndim
    place = steps(update, axis)
    place = place if write_indices is None else write_indices.to(torch.int64).unsqueeze(-1) + place
    if mode == "circular":
        place = torch.remainder(place, past_cache.shape[axis])
    elif mode != "linear":
        raise Unsupported(f"mode={mode!r}")
    lead = [-1 if write_indices is not None else 1] + [1] * (axis - 1)
    place = place.reshape([*lead, update.shape[axis]] + [1] * (past_cache.ndim - axis - 1))
    return past_cache.scatter(axis, place.expand(update.shape), update)


@rule("NonZero")
def non_zero(X):
    if X.ndim == 0:
        raise Unsupported("NonZero of a scalar")
    return X.nonzero().transpose(0, 1)


@at_run_time
def compressed(input, condition, axis):
    data = input.reshape(-1) if axis is None else input
    return data.index_select(axis or 0, condition.nonzero().reshape(-1))


@rule("Compress")
def compress(input, condition, *, axis=None):
    return compressed(input, condition, axis)


@at_run_time
def uniques(X, axis, sorted):
    """The values, where each was first, where each element went, and how many of each there were."""
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
    if X.hub == ir.DataType.UINT64:
        raise Unsupported("Unique of uint64")
    found = uniques(X, axis, sorted)
    return tuple(found[i] for i in range(4))


@leaf
def largest(X, count, axis, largest):
    """Sorted stably, since the standard gives equal elements in their order, and torch.topk in any."""
    count = int(count) if isinstance(count, torch.Tensor) else count
    values, indices = torch.sort(X, dim=axis, descending=bool(largest), stable=True)
    return values.narrow(axis, 0, count), indices.narrow(axis, 0, count)


@rule("TopK")
def top_k(X, K, *, axis=-1, largest=1, sorted=1):
    known = size_arithmetic.elements(K)
    found = _top(ordered(X), K if known is None else known.reshape(-1)[0], axis, largest)
    return ordered_back(found[0], X), found[1]


_top = largest


@leaf
def one_hot_of(indices, depth, values, axis):
    depth = int(depth.reshape([]).item()) if isinstance(depth, torch.Tensor) else depth
    places = torch.remainder(indices.to(torch.int64), depth)
    inside = (indices >= -depth) & (indices < depth)
    axis = axis % (indices.ndim + 1)
    steps = torch.arange(depth, device=indices.device).reshape([-1] + [1] * (indices.ndim - axis))
    hot = (places.unsqueeze(axis) == steps) & inside.unsqueeze(axis)
    return torch.where(hot, values[1], values[0])


@rule("OneHot")
def one_hot(indices, depth, values, *, axis=-1):
    known = known_ints(depth)
    return one_hot_of(indices, known[0] if isinstance(known, tuple) else depth, values, axis)

"""Shape queries, reshaping, concatenation, slicing, tiling and padding."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
import torch
import torch.nn.functional as F
from torch.fx.experimental.symbolic_shapes import statically_known_true

from onnxbridge.backends.pytorch import dtypes
from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.backends.pytorch.padding import pad_by_torch, padded
from onnxbridge.backends.pytorch.trace import size_arithmetic
from onnxbridge.backends.pytorch.trace.size_arithmetic import known_ints
from onnxbridge.backends.pytorch.trace.tracer import data_dependent_call, opaque_call, read_ints
from onnxbridge.errors import Unsupported


@rule("Identity")
def identity(input):
    return input


@rule("Constant")
def constant(
    *, value=None, value_float=None, value_floats=None, value_int=None, value_ints=None, value_string=None, value_strings=None
):
    for given, dtype in ((value_float, np.float32), (value_floats, np.float32), (value_int, np.int64), (value_ints, np.int64)):
        if given is not None:
            return np.array(given, dtype)
    for given in (value_string, value_strings):
        if given is not None:
            return np.array(given, dtype=object)
    return value


@opaque_call
def shape_tensor(data):
    """The shape of a value whose rank is known only at run time."""
    return torch.tensor(list(data.shape), dtype=torch.int64, device=data.device)


def size_tensor(*dims, scalar=False):
    """Sizes as an int64 tensor that records them as its elements."""
    if not any(isinstance(d, size_arithmetic.Value) for d in dims):
        return np.array(dims[0] if scalar else dims, np.int64)
    made = size_arithmetic.tensor_of(list(dims), scalar)
    made.elements = size_arithmetic.object_array(dims, scalar)
    return made


@rule("Shape")
def shape(data, *, start=0, end=None):
    if not data.is_known:
        made = shape_tensor(data)
        if start or end is not None:
            return made[slice(start, end)]
        made.shape_of = data
        return made
    return size_tensor(*data.shape[slice(start, end)])


@rule("Size")
def size(data):
    if not data.is_known:
        of = data.shape_of
        return size_tensor(data.numel() if of is None else of.dim(), scalar=True)
    return size_tensor(math.prod(data.shape), scalar=True)


@data_dependent_call
def reshape_by(data, shape, allowzero):
    target = shape.tolist() if isinstance(shape, torch.Tensor) else shape
    return data.reshape([data.shape[i] if n == 0 and not allowzero else n for i, n in enumerate(target)])


@rule("Reshape")
def reshape(data, shape, *, allowzero=0):
    target = size_arithmetic.elements(shape)
    if target is None:
        return reshape_by(data, shape, allowzero)
    is_static = [isinstance(n, int) for n in target]
    if (joined := size_arithmetic.merged_dims(data, target.tolist())) is not None:
        return torch.flatten(data, *joined)
    return data.reshape([
        data.shape[i] if known and n == 0 and not allowzero else n
        for i, (n, known) in enumerate(zip(target, is_static, strict=True))
    ])  # fmt: skip


@rule("Transpose")
def transpose(data, *, perm=None):
    return data.permute(tuple(perm) if perm is not None else tuple(range(data.ndim))[::-1])


@rule("Flatten")
def flatten(input, *, axis=1):
    axis = axis + input.ndim if axis < 0 else axis
    columns = input.unsqueeze(-1) if axis == input.ndim else torch.flatten(input, axis)
    return columns.unsqueeze(0) if axis == 0 else torch.flatten(columns, 0, axis - 1)


@opaque_call
def squeezed(data, axes):
    axes = {a % data.ndim for a in (axes if isinstance(axes, tuple) else read_ints(axes))}
    return data.reshape([n for i, n in enumerate(data.shape) if i not in axes])


@rule("Squeeze")
def squeeze(data, axes=None):
    if axes is None:
        fixed = data.is_known and all(isinstance(n, int) for n in data.shape)
        return data.squeeze() if fixed else squeezed_all(data)
    known = known_ints(axes)
    if isinstance(known, tuple) and data.is_known and all(isinstance(n := data.shape[a], int) and n == 1 for a in known):
        return data.squeeze(known[0] if len(known) == 1 else known)
    return squeezed(data, known)


@data_dependent_call
def squeezed_all(data):
    return data.squeeze()


@opaque_call
def unsqueezed(data, axes):
    axes = axes if isinstance(axes, tuple) else tuple(read_ints(axes))
    shape = list(data.shape)
    for axis in sorted(a % (data.ndim + len(axes)) for a in axes):
        shape.insert(axis, 1)
    return data.reshape(shape)


@rule("Unsqueeze")
def unsqueeze(data, axes):
    known = known_ints(axes)
    tensor = data.is_known or data.hub_dtype not in (None, ir.DataType.STRING)
    if tensor and isinstance(known, tuple) and len(known) == 1:
        return data.unsqueeze(known[0])
    if not isinstance(known, tuple) or not data.is_known:
        return unsqueezed(data, known)
    for axis in sorted(a % (data.ndim + len(known)) for a in known):
        data = data.unsqueeze(axis)
    return data


@opaque_call
def broadcast_to(data, shape):
    """Expand to a shape; either of the two sizes may be the larger one."""
    shape = shape if isinstance(shape, (list, tuple)) else read_ints(shape)
    return data.expand(torch.broadcast_shapes(data.shape, shape))


def _expand_sizes(data, target):
    """The sizes for `Tensor.expand` (-1 for unchanged ones), if it is known which of two sizes is the larger."""
    known = [w.fake if isinstance(w, size_arithmetic.Value) else w for w in target]
    if not data.is_known or not all(isinstance(w, (int, torch.SymInt)) for w in known) or data.ndim > len(target):
        return None
    first = len(target) - data.ndim
    expanded = target[:first]
    for size, to, size_to in zip(data.fake.shape, target[first:], known[first:], strict=True):
        stays = statically_known_true(size_to == 1) or data.tracer.provably_equal(size, size_to)
        if not stays and not statically_known_true(size == 1):
            return None
        expanded.append(-1 if stays else to)
    return expanded


@rule("Expand")
def expand(input, shape):
    target = size_arithmetic.elements(shape)
    if target is not None and (expanded := _expand_sizes(input, target.tolist())) is not None:
        return input.expand(expanded)
    return broadcast_to(input, shape if target is None else target.tolist())


@rule("Concat")
def concat(*inputs, axis):
    return torch.cat(inputs, axis)


@data_dependent_call
def split_by(input, split, axis):
    return torch.split(input, split.tolist(), axis)


@rule("Split")
def split(input, split=None, *, axis=0, num_outputs=None):
    if split is not None and size_arithmetic.elements(split) is None:
        parts = split_by(input, split, axis)
        return tuple(parts[i] for i in range(int(split.shape[0])))
    if split is not None:
        return tuple(torch.split(input, size_arithmetic.sizes(split), axis))
    if num_outputs is None:
        raise Unsupported("neither split nor num_outputs is given")
    chunk = -(-input.shape[axis] // num_outputs)
    if isinstance(chunk, int):
        lengths = [max(min(chunk, input.shape[axis] - i * chunk), 0) for i in range(num_outputs)]
        return tuple(torch.split(input, lengths, axis))
    starts = [chunk * i for i in range(num_outputs)]
    return tuple(_slice_axis(input, axis, a, chunk + a if i + 1 < num_outputs else None, 1) for i, a in enumerate(starts))


def _slice_axis(data, axis, start, end, step):
    return data[(*[slice(None)] * (axis % data.ndim), slice(start, end, step))]


_BEYOND_ANY_AXIS = 1 << 30
"""No axis is this long: files write open slice ends as such numbers."""


def sliced(data, axis, start, end, step):
    """A slice with any step; PyTorch's slicing supports positive steps only."""
    if step > 0:
        return _slice_axis(data, axis, start, end, step)
    size = data.shape[axis]
    if not isinstance(start, int) or not isinstance(end, int):
        return None
    if (start == -1 or start > _BEYOND_ANY_AXIS) and end < -_BEYOND_ANY_AXIS:
        flipped = torch.flip(data, [axis])
        return flipped if step == -1 else _slice_axis(flipped, axis, None, None, -step)
    if isinstance(size, int):
        return data.index_select(axis, torch.tensor(size_arithmetic.positions(size, start, end, step), dtype=torch.int64))
    return None


@data_dependent_call
def slice_by(data, starts, ends, axes, steps):
    """Any slice; bounds that are not tuples are read at run time."""
    starts, ends, axes, steps = (v.tolist() if isinstance(v, torch.Tensor) else v for v in (starts, ends, axes, steps))
    axes = list(range(len(starts))) if axes is None else [a % data.ndim for a in axes]
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(starts), strict=True):
        if step == 1:
            data = _slice_axis(data, axis, start, end, step)
            continue
        positions = size_arithmetic.positions(data.shape[axis], start, end, step)
        data = data.index_select(axis, torch.tensor(positions, dtype=torch.int64, device=data.device))
    return data


@rule("Slice")
def slice_(data, starts, ends, axes=None, steps=None):
    given = [known_ints(axes), known_ints(steps), size_arithmetic.elements(starts), size_arithmetic.elements(ends)]
    if not data.is_known or any(g is None or isinstance(g, size_arithmetic.Value) for g in given[2:]) or any(
        isinstance(g, size_arithmetic.Value) for g in given[:2]
    ):  # fmt: skip
        return slice_by(data, *(known_ints(v) for v in (starts, ends, axes, steps)))
    begins, stops = given[2].reshape(-1).tolist(), given[3].reshape(-1).tolist()
    result = data
    for axis, start, end, step in zip(given[0] or range(len(begins)), begins, stops, given[1] or [1] * len(begins), strict=True):
        result = sliced(result, axis % data.ndim, start, end, step)
        if result is None:
            return slice_by(data, *(known_ints(v) for v in (starts, ends, axes, steps)))
    return result


@opaque_call
def tiled(input, repeats):
    return input.repeat(repeats if isinstance(repeats, list) else read_ints(repeats))


@rule("Tile")
def tile(input, repeats):
    known = size_arithmetic.elements(repeats)
    return tiled(input, repeats if known is None else known.tolist())


@opaque_call
def filled(shape, value, dtype, device=None):
    return torch.full(shape if isinstance(shape, list) else read_ints(shape), value, dtype=dtype, device=device)


@rule("ConstantOfShape")
def constant_of_shape(input, *, value=None):
    value = np.zeros(1, np.float32) if value is None else value
    known = size_arithmetic.elements(input)
    if value.dtype.kind in "OUST":
        raise Unsupported("ConstantOfShape of strings")
    dtype = dtypes.inside(ir.DataType.from_numpy(value.dtype))
    is_static = known is not None and not any(isinstance(e, size_arithmetic.Value) for e in known)
    number = value.reshape(()).item()
    made = filled(input if known is None else known.tolist(), number, dtype)
    if is_static and value.dtype.kind in "iu" and math.prod(known.tolist()) <= size_arithmetic.MAX_ELEMENTS:
        return np.full(known.tolist(), number, value.dtype)
    return made


@opaque_call
def counted(start, limit, delta, dtype, device=None):
    """Evenly spaced numbers; the arguments may be tensors, which are read at run time."""
    if dtype.is_floating_point:
        start, limit, delta = (torch.as_tensor(v, dtype=torch.float64, device=device) for v in (start, limit, delta))
        count = torch.sym_max(torch.ceil((limit - start) / delta).to(torch.int64).item(), 0)
        return (start + torch.arange(count, dtype=torch.float64, device=device) * delta).to(dtype)
    if not torch.jit.is_tracing():  # while tracing, sizes are tensors and item() would specialize
        start, limit, delta = (v.item() if isinstance(v, torch.Tensor) else v for v in (start, limit, delta))
        limit = torch.sym_max(limit, start) if delta > 0 else torch.sym_min(limit, start)
    return torch.arange(start, limit, delta, dtype=dtype, device=device)


@rule("Range")
def range_(start, limit, delta):
    known = [size_arithmetic.elements(v) for v in (start, limit, delta)]
    if start.dtype.is_floating_point or any(k is None for k in known):
        given = [v if k is None else k.reshape(-1)[0] for k, v in zip(known, (start, limit, delta), strict=True)]
        return counted(*((start, limit, delta) if start.dtype.is_floating_point else given), start.dtype)
    begin, end, step = (k.reshape(-1)[0] for k in known)
    return counted(*((begin, end, step) if isinstance(step, int) else (start, limit, delta)), start.dtype)


@opaque_call
def eye(rows, columns, k, dtype, device=None):
    return torch.ones(rows, columns, dtype=torch.int8, device=device).triu(k).tril(k).to(dtype)


@rule("EyeLike")
def eye_like(input, *, dtype=None, k=0):
    return eye(*input.shape, k, input.dtype if dtype is None else dtypes.attribute(dtype))


@opaque_call
def triangle(input, k, upper):
    k = int(k)
    return torch.triu(input, k) if upper else torch.tril(input, k)


@rule("Trilu")
def trilu(input, k=None, *, upper=1):
    known = known_ints(k)
    return triangle(input, 0 if k is None else known[0] if isinstance(known, tuple) else k, upper)


@rule("DepthToSpace")
def depth_to_space(input, *, blocksize, mode="DCR"):
    n, c, h, w = input.shape
    if mode == "CRD":
        return F.pixel_shuffle(input, blocksize)
    blocks = input.reshape([n, blocksize, blocksize, c // blocksize**2, h, w])
    return blocks.permute(0, 3, 4, 1, 5, 2).reshape([n, c // blocksize**2, h * blocksize, w * blocksize])


@rule("SpaceToDepth")
def space_to_depth(input, *, blocksize):
    n, c, h, w = input.shape
    blocks = input.reshape([n, c, h // blocksize, blocksize, w // blocksize, blocksize])
    return blocks.permute(0, 3, 5, 1, 2, 4).reshape([n, c * blocksize**2, h // blocksize, w // blocksize])


@rule("Pad")
def pad(data, pads, constant_value=None, axes=None, *, mode="constant"):
    known = size_arithmetic.elements(pads)
    half = None if known is None else len(known) // 2
    before, after = (pads, None) if known is None else (known[:half].tolist(), known[half:].tolist())
    if constant_value is None:
        constant_value = 0
    elif constant_value.constant is not None:
        constant_value = constant_value.constant.item()
    given = data, before, after, known_ints(axes), mode, constant_value
    made = pad_by_torch(*given)
    return padded(*given) if made is None else made


@opaque_call
def centred(data, shape, axes):
    shape = shape if isinstance(shape, tuple) else read_ints(shape)
    for axis, target in zip(range(len(shape)) if axes is None else axes, shape, strict=True):
        axis %= data.ndim
        size = data.shape[axis]
        before = (target - size) // 2 if target > size else -((size - target) // 2)
        data = F.pad(data, [0] * (2 * (data.ndim - axis - 1)) + [before, target - size - before])
    return data


@rule("CenterCropPad")
def center_crop_pad(input_data, shape, *, axes=None):
    return centred(input_data, known_ints(shape), axes)


@rule("ReverseSequence")
def reverse_sequence(input, sequence_lens, *, batch_axis=1, time_axis=0):
    steps = torch.arange(input.shape[time_axis], device=input.device)
    lens = sequence_lens.unsqueeze(-1)
    index = torch.where(steps < lens, lens - 1 - steps, steps)
    index = index if batch_axis == 0 else index.t()
    index = index.reshape(list(index.shape) + [1] * (input.ndim - 2))
    return torch.gather(input, time_axis, index.expand(input.shape))

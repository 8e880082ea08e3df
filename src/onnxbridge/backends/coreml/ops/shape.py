"""Operators that make shapes, read them, or arrange elements anew."""

import numpy as np
import onnx_ir as ir
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import types

from onnxbridge.backends.coreml.element_types import cast, held, like, narrow
from onnxbridge.backends.coreml.interface.kv_cache_state import Grown
from onnxbridge.backends.coreml.ops import rule
from onnxbridge.backends.coreml.sizes import (
    broadcast,
    fixed,
    known,
    numbers,
    product,
    reshaped,
    select,
    size,
    sizes,
    squeezed,
    unsqueezed,
    vector,
)  # fmt: skip
from onnxbridge.errors import Unsupported
from onnxbridge.rules import Bool, Ints, Outputs


@rule("Identity")
def identity(input):
    return input


@rule("Dropout", limits="inference only")
def dropout(data, ratio=None, training_mode: Bool | None = None, *, seed=None, outputs: Outputs):
    if training_mode and (ratio is None or ratio.val is None or float(np.asarray(ratio.val)) != 0):
        raise Unsupported("training mode", "export the model for inference")
    if len(outputs) < 2 or not outputs[1]:
        return data
    return data, mb.cast(x=broadcast(mb.const(val=np.ones([1] * data.rank, np.int32)), sizes(data)), dtype="bool")


@rule("Reshape")
def reshape(data, shape, *, allowzero=0):
    wanted = known(shape)
    if wanted is None:
        if allowzero:
            raise Unsupported("allowzero with a shape that is computed")
        # 0 means the input's own size in MIL too, where the ranks are the same
        if shape.shape[0] != data.rank:
            own = mb.shape(x=data)
            zeros = mb.equal(x=shape, y=np.int32(0))
            count = int(shape.shape[0])
            if count > data.rank:
                own = mb.concat(values=[own, np.zeros(count - data.rank, np.int32)], axis=0)
            else:
                own = mb.slice_by_index(x=own, begin=[0], end=[count])
            shape = select(cond=zeros, a=own, b=shape)
        return mb.reshape(x=data, shape=shape)
    if not allowzero:
        wanted = [size(data, i) if n == 0 else n for i, n in enumerate(wanted)]
    if fixed(data) and -1 in wanted:
        rest = int(np.prod([n for n in wanted if n != -1], dtype=np.int64))
        wanted = [int(np.prod(data.shape, dtype=np.int64)) // rest if n == -1 else n for n in wanted]
    return reshaped(data, list(wanted))


@rule("Flatten")
def flatten(input, *, axis=1):
    axis = axis % input.rank if axis < 0 else axis
    dims = sizes(input)
    front, back = product(dims[:axis]), product(dims[axis:])
    return reshaped(input, [front, -1] if isinstance(front, int) else [-1, back] if isinstance(back, int) else [front, -1])


@rule("Squeeze")
def squeeze(data, axes: Ints | None = None):
    if axes is None:
        if not fixed(data):
            raise Unsupported("no axes with a dynamic shape", "name the axes")
        axes = [i for i, n in enumerate(data.shape) if n == 1]
    if not len(axes):
        return data
    if fixed(data, axes):
        return squeezed(data) if len(data.shape) == 1 else mb.squeeze(x=data, axes=list(axes))
    gone = [a in {b % data.rank for b in axes} for a in range(data.rank)]  # MIL's own keeps an axis that may be longer than 1
    return mb.slice_by_index(
        x=data, begin=[0] * data.rank, end=[1] * data.rank, begin_mask=[not g for g in gone], end_mask=[not g for g in gone],
        squeeze_mask=gone,
    )  # fmt: skip


@rule("Unsqueeze")
def unsqueeze(data, axes: Ints):
    if not axes:
        return data
    return mb.expand_dims(x=data, axes=list(axes)) if len(data.shape) or len(axes) > 1 else unsqueezed(data)


@rule("Transpose")
def transpose(data, *, perm=None):
    if data.rank < 2:
        return data
    return mb.transpose(x=data, perm=list(perm if perm is not None else range(data.rank - 1, -1, -1)))


@rule("Concat")
def concat(*inputs, axis):
    if isinstance(inputs[0], Grown):
        return inputs[0].followed_by(concat(*inputs[1:], axis=axis))
    if len(inputs) == 1:
        return inputs[0]
    if inputs[0].dtype == types.bool:
        return cast(mb.concat(values=[cast(v, types.int32) for v in inputs], axis=axis), types.bool)
    return mb.concat(values=list(inputs), axis=axis)


@rule("Split")
def split(input, split: Ints | None = None, *, axis=0, num_outputs=None, outputs: Outputs):
    if split is None:
        parts = num_outputs or len(outputs)
        if not fixed(input, [axis]):
            raise Unsupported("a dynamic axis", "give the input a fixed shape")
        n = int(input.shape[axis])
        each = -(-n // parts)
        split = [min(each, n - i * each) for i in range(parts)]
    if len(split) == 1:
        return (input,)
    made = mb.split(x=input, split_sizes=list(split), axis=axis)
    return tuple(made)


@rule("Shape")
def shape(data, *, start=0, end=None):
    if isinstance(data, Grown):
        return vector(data.sizes[start:end])
    axes = range(data.rank)[start:end]
    if fixed(data, axes):
        return mb.const(val=np.array([data.shape[a] for a in axes], np.int32))
    return mb.slice_by_index(x=mb.shape(x=data), begin=[axes.start], end=[axes.stop])


@rule("Size")
def size_(data):
    total = product(sizes(data))
    return mb.const(val=np.int32(total)) if isinstance(total, int) else total


@rule("Expand")
def expand(input, shape):
    """Both ways: a size of the input stays where the shape asks for 1."""
    wanted = known(shape)
    if wanted is None:
        return broadcast(input, shape)
    if fixed(input):
        wanted = np.broadcast_shapes(tuple(int(d) for d in input.shape), wanted)
    return broadcast(input, tuple(wanted))


@rule("Tile")
def tile(input, repeats):
    reps = known(repeats)
    if reps is not None and all(r == 1 for r in reps):
        return input
    return mb.tile(x=input, reps=repeats if reps is None else list(reps))


@rule("ConstantOfShape")
def constant_of_shape(input, *, value=None):
    fill = np.zeros((), np.float32) if value is None else narrow(np.asarray(value)).reshape(())
    dims = known(input)
    if dims is not None and 0 in dims:
        raise Unsupported("an empty tensor, which Core ML has not")
    if dims == ():
        return mb.const(val=fill[()])
    return mb.fill(shape=input if dims is None else list(dims), value=fill[()])


@rule("Constant", limits="no strings, no sparse tensors")
def constant(*, value=None, value_float=None, value_floats=None, value_int=None, value_ints=None):
    typed = ((value, None), (value_float, np.float32), (value_floats, np.float32), (value_int, np.int64), (value_ints, np.int64))
    array = next((np.asarray(v, dtype) for v, dtype in typed if v is not None), None)
    if array is None:
        raise Unsupported("no value")
    array = narrow(array)
    return mb.const(val=array if array.ndim else array[()])


@rule("Range")
def range_(start, limit, delta):
    start, limit, delta = (mb.squeeze(x=v) if v.rank else v for v in (start, limit, delta))
    return mb.range_1d(start=start, end=limit, step=delta)


@rule("DepthToSpace")
def depth_to_space(input, *, blocksize, mode="DCR"):
    """CRD is MIL's pixel shuffle, DCR its depth_to_space."""
    if mode == "CRD":
        return mb.pixel_shuffle(x=input, upscale_factor=blocksize)
    return mb.depth_to_space(x=input, block_size=blocksize)


@rule("SpaceToDepth")
def space_to_depth(input, *, blocksize):
    return mb.space_to_depth(x=input, block_size=blocksize)


@rule("Trilu")
def trilu(input, k=None, *, upper=1):
    """The band from the k-th diagonal on; a computed or distant k by comparing the places."""
    distance = 0 if k is None else known(k)
    rows, columns = size(input, -2), size(input, -1)
    kind = input.dtype
    x = cast(input, types.int32) if kind == types.bool else input
    if isinstance(distance, tuple):
        distance = distance[0]
    if distance == 0:
        return cast(mb.band_part(x=x, lower=0 if upper else -1, upper=-1 if upper else 0), kind)
    down = mb.expand_dims(x=mb.range_1d(start=np.int32(0), end=_count(rows), step=np.int32(1)), axes=[1])
    across = mb.expand_dims(x=mb.range_1d(start=np.int32(0), end=_count(columns), step=np.int32(1)), axes=[0])
    place = mb.sub(x=across, y=down)
    edge = k if distance is None else np.int32(distance)
    keep = mb.greater_equal(x=place, y=edge) if upper else mb.less_equal(x=place, y=edge)
    return cast(select(cond=keep, a=x, b=like(x, 0)), kind)


def _count(n):
    return np.int32(n) if isinstance(n, int) else n


@rule("EyeLike")
def eye_like(input, *, dtype=None, k=0):
    rows, columns = numbers(input)
    kind = input.dtype if dtype is None else held(ir.DataType(dtype))
    eye = np.eye(rows, columns, k, types.nptype_from_builtin(kind))
    return mb.const(val=eye)

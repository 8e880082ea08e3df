"""Shape, reshape, transpose, concat, split and fill operators."""

import numpy as np
import onnx_ir as ir
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import types

from onnxbridge.backends.coreml.element_types import cast, like, mil_type, narrow
from onnxbridge.backends.coreml.interface.kv_cache_state import GrowingStateValue
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
    target = known(shape)
    if target is None:
        # 0 means the input's size in MIL too, if the ranks are equal; with allowzero only empty tensors, which MIL does
        # not have, could have one
        if not allowzero and shape.shape[0] != data.rank:
            input_shape = mb.shape(x=data)
            zeros = mb.equal(x=shape, y=np.int32(0))
            count = int(shape.shape[0])
            if count > data.rank:
                input_shape = mb.concat(values=[input_shape, np.zeros(count - data.rank, np.int32)], axis=0)
            else:
                input_shape = mb.slice_by_index(x=input_shape, begin=[0], end=[count])
            shape = select(cond=zeros, a=input_shape, b=shape)
        return mb.reshape(x=data, shape=shape)
    if not allowzero:
        target = [size(data, i) if n == 0 else n for i, n in enumerate(target)]
    if fixed(data) and -1 in target:
        rest = int(np.prod([n for n in target if n != -1], dtype=np.int64))
        target = [int(np.prod(data.shape, dtype=np.int64)) // rest if n == -1 else n for n in target]
    return reshaped(data, list(target))


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
            raise Unsupported("no axes with a dynamic shape", "give the axes")
        axes = [i for i, n in enumerate(data.shape) if n == 1]
    if not len(axes):
        return data
    if fixed(data, axes):
        return squeezed(data) if len(data.shape) == 1 else mb.squeeze(x=data, axes=list(axes))
    squeezed_axes = [a in {b % data.rank for b in axes} for a in range(data.rank)]  # MIL's squeeze does not remove dynamic axes
    others = [not s for s in squeezed_axes]
    return mb.slice_by_index(
        x=data, begin=[0] * data.rank, end=[1] * data.rank, begin_mask=others, end_mask=others, squeeze_mask=squeezed_axes
    )


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
    if isinstance(inputs[0], GrowingStateValue):
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
    if isinstance(data, GrowingStateValue):
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
    """Broadcasts in both directions: a size of 1 in the shape keeps the input's size."""
    target = known(shape)
    if target is None:
        return broadcast(input, shape)
    if fixed(input):
        target = np.broadcast_shapes(tuple(int(d) for d in input.shape), target)
    return broadcast(input, tuple(target))


@rule("Tile")
def tile(input, repeats):
    reps = known(repeats)
    if reps is not None and all(r == 1 for r in reps):
        return input
    if reps is not None and 0 in reps:
        raise Unsupported("an empty result, which Core ML does not support")
    return mb.tile(x=input, reps=repeats if reps is None else list(reps))


@rule("ConstantOfShape")
def constant_of_shape(input, *, value=None):
    fill = np.zeros((), np.float32) if value is None else narrow(np.asarray(value)).reshape(())
    dims = known(input)
    if dims is not None and 0 in dims:
        raise Unsupported("an empty tensor, which Core ML does not support")
    if dims == ():
        return mb.const(val=fill[()])
    return mb.fill(shape=input if dims is None else list(dims), value=fill[()])


@rule("Constant", limits="no strings, no sparse tensors")
def constant(*, value=None, value_float=None, value_floats=None, value_int=None, value_ints=None):
    typed = ((value, None), (value_float, np.float32), (value_floats, np.float32), (value_int, np.int64), (value_ints, np.int64))
    array = next((np.asarray(v, dtype) for v, dtype in typed if v is not None), None)
    if array is None:
        raise Unsupported("no supported value attribute")
    array = narrow(array)
    return mb.const(val=array if array.ndim else array[()])


@rule("Range")
def range_(start, limit, delta):
    start, limit, delta = (mb.squeeze(x=v) if v.rank else v for v in (start, limit, delta))
    return mb.range_1d(start=start, end=limit, step=delta)


@rule("DepthToSpace")
def depth_to_space(input, *, blocksize, mode="DCR"):
    """CRD is MIL's pixel_shuffle, DCR its depth_to_space."""
    if mode == "CRD":
        return mb.pixel_shuffle(x=input, upscale_factor=blocksize)
    return mb.depth_to_space(x=input, block_size=blocksize)


@rule("SpaceToDepth")
def space_to_depth(input, *, blocksize):
    return mb.space_to_depth(x=input, block_size=blocksize)


@rule("Trilu")
def trilu(input, k=None, *, upper=1):
    """MIL's band_part for k = 0; else by comparing row and column indices."""
    distance = 0 if k is None else known(k)
    rows, columns = size(input, -2), size(input, -1)
    result_dtype = input.dtype
    x = cast(input, types.int32) if result_dtype == types.bool else input
    if isinstance(distance, tuple):
        distance = distance[0]
    if distance == 0:
        return cast(mb.band_part(x=x, lower=0 if upper else -1, upper=-1 if upper else 0), result_dtype)
    row_index = mb.expand_dims(x=mb.range_1d(start=np.int32(0), end=_as_int32(rows), step=np.int32(1)), axes=[1])
    column_index = mb.expand_dims(x=mb.range_1d(start=np.int32(0), end=_as_int32(columns), step=np.int32(1)), axes=[0])
    diagonal = mb.sub(x=column_index, y=row_index)
    edge = k if distance is None else np.int32(distance)
    keep = mb.greater_equal(x=diagonal, y=edge) if upper else mb.less_equal(x=diagonal, y=edge)
    return cast(select(cond=keep, a=x, b=like(x, 0)), result_dtype)


def _as_int32(n):
    return np.int32(n) if isinstance(n, int) else n


@rule("EyeLike")
def eye_like(input, *, dtype=None, k=0):
    rows, columns = numbers(input)
    result_dtype = input.dtype if dtype is None else mil_type(ir.DataType(dtype))
    eye = np.eye(rows, columns, k, types.nptype_from_builtin(result_dtype))
    return mb.const(val=eye)

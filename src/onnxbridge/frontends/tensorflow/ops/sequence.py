"""Lists of tensors (TensorArray, and stacks of loops) as one tensor with the elements along its first axis.

Element sizes that are unknown when a list is created are 0, and are set by the first element written. A list of the rows of a
ragged tensor, which have different lengths, is a sequence.
"""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.ops.indexing import gather
from onnxbridge.frontends.tensorflow.sizes import int64
from onnxbridge.hub.ir import fold
from onnxbridge.hub.ir.values import rank, zero
from onnxbridge.rules import Ints

INT64 = ir.DataType.INT64


def _element(op, element_shape):
    """An element's shape, with 0 for unknown sizes."""
    known = isinstance(element_shape, tuple) or (element_shape.shape is not None and len(element_shape.shape) == 1)
    sizes = element_shape if isinstance(element_shape, tuple) else fold.known_sizes(element_shape)
    if sizes is None or not known:
        raise Unsupported("a list with elements of unknown rank", "give the TensorArray an element_shape")
    return [0 if s is None or s < 0 else s for s in sizes]


def _scalar(op, x):
    return op.Reshape(int64(op, x), [1])


def _zeros(op, count, element, dtype):
    return op.Expand(zero(dtype), op.Concat(_scalar(op, count), np.array(element, np.int64), axis=0))


def _fitted(op, items, item):
    """The list with the element sizes of `item`; a list without data is recreated."""
    if all(isinstance(s, int) and s for s in list(items.shape)[1:]):
        return items
    element = op.Shape(item)
    empty = op.Equal(op.Size(items), np.array(0, np.int64))
    shape = op.Concat(op.Shape(items, start=0, end=1), element, axis=0)
    return op.If(
        empty, then_branch=lambda: op.Expand(zero(items.dtype), shape), else_branch=lambda: op.Identity(items)
    )


def is_rows(items):
    """Whether a list has the rows of a ragged tensor."""
    return isinstance(items.type, ir.SequenceType)


@rule("TensorListReserve")
def tensor_list_reserve(op, element_shape=None, num_elements=None, *, element_dtype, shape_type=None):
    """Without an element shape, the list gets rows of a ragged tensor."""
    if element_shape is None:
        empty = op.Expand(zero(element_dtype), _scalar(op, num_elements))
        return op.SplitToSequence(empty, np.array(1, np.int64))
    return _zeros(op, num_elements, _element(op, element_shape), element_dtype)


@rule("EmptyTensorList")
def empty_tensor_list(op, element_shape, max_num_elements, *, element_dtype, shape_type=None):
    return _zeros(op, np.array(0), _element(op, element_shape), element_dtype)


@rule("TensorListFromTensor")
def tensor_list_from_tensor(op, tensor, element_shape):
    return tensor if is_rows(tensor) else op.Identity(tensor)


@rule("TensorListStack")
def tensor_list_stack(op, input_handle, element_shape, *, element_dtype=None, num_elements=-1):
    return input_handle


@rule("TensorListGetItem")
def tensor_list_get_item(op, input_handle, index, element_shape, *, element_dtype=None):
    if is_rows(input_handle):
        return op.SequenceAt(input_handle, index)
    return gather(op, input_handle, index)


@rule("TensorListGather")
def tensor_list_gather(op, input_handle, indices, element_shape, *, element_dtype):
    return gather(op, input_handle, indices)


@rule("TensorListSetItem")
def tensor_list_set_item(op, input_handle, index, item, *, resize_if_index_out_of_bounds=False):
    if is_rows(input_handle):
        return op.SequenceInsert(op.SequenceErase(input_handle, index), item, index)
    items = _fitted(op, input_handle, item)
    at = _scalar(op, index)
    if resize_if_index_out_of_bounds:
        added = op.Max(op.Sub(op.Add(at, 1), op.Shape(items, start=0, end=1)), np.array([0], np.int64))
        items = op.Concat(items, op.Expand(zero(item.dtype), op.Concat(added, op.Shape(item), axis=0)), axis=0)
    return op.ScatterND(items, op.Reshape(at, [1, 1]), op.Unsqueeze(item, [0]))


@rule("TensorListPushBack")
def tensor_list_push_back(op, input_handle, tensor):
    return op.Concat(_fitted(op, input_handle, tensor), op.Unsqueeze(tensor, [0]), axis=0)


@rule("TensorListPopBack")
def tensor_list_pop_back(op, input_handle, element_shape, *, element_dtype):
    last = gather(op, input_handle, op.constant(np.array(-1)))
    return op.Slice(input_handle, [0], [-1], [0]), last


@rule("TensorListLength")
def tensor_list_length(op, input_handle):
    if is_rows(input_handle):
        return op.Cast(op.SequenceLength(input_handle), to=ir.DataType.INT32)
    return op.Cast(op.Squeeze(op.Shape(input_handle, start=0, end=1), [0]), to=ir.DataType.INT32)


@rule("TensorListScatterV2")
def tensor_list_scatter_v2(op, tensor, indices, element_shape, num_elements):
    """Without num_elements, the list ends after the largest index."""
    known = fold.known_sizes(num_elements)
    count = op.Add(op.ReduceMax(int64(op, indices), keepdims=0), 1) if known is None or known[0] < 0 else num_elements
    shape = op.Concat(_scalar(op, count), op.Shape(tensor, start=1), axis=0)
    zeros = op.Expand(zero(tensor.dtype), shape)
    return op.ScatterND(zeros, op.Unsqueeze(int64(op, indices), [1]), tensor)


@rule("TensorListScatterIntoExistingList")
def tensor_list_scatter_into_existing_list(op, input_handle, tensor, indices):
    items = input_handle
    if not all(isinstance(s, int) and s for s in list(items.shape)[1:]):
        raise Unsupported("a scatter into a list with elements of unknown shape", "give the TensorArray an element_shape")
    return op.ScatterND(items, op.Unsqueeze(int64(op, indices), [1]), tensor)


@rule("TensorListConcatV2")
def tensor_list_concat_v2(op, input_handle, element_shape, leading_dims, *, element_dtype, shape_type=None):
    """All elements have the same shape, so concatenating them is a reshape."""
    if rank(input_handle) < 2:
        raise Unsupported("concatenation of scalars")
    inner = op.Shape(input_handle, start=2)
    joined = op.Reshape(input_handle, op.Concat(np.array([-1], np.int64), inner, axis=0))
    lengths = op.Expand(op.Shape(input_handle, start=1, end=2), op.Shape(input_handle, start=0, end=1))
    return joined, lengths


@rule("TensorListResize")
def tensor_list_resize(op, input_handle, size):
    new_count = _scalar(op, size)
    added = op.Max(op.Sub(new_count, op.Shape(input_handle, start=0, end=1)), np.array([0], np.int64))
    shape = op.Concat(added, op.Shape(input_handle, start=1), axis=0)
    grown = op.Concat(input_handle, op.Expand(zero(input_handle.dtype), shape), axis=0)
    return op.Slice(grown, [0], new_count, [0])


# TensorArrays of TensorFlow 1: `flow_in` is the list, and `handle` only names it


@rule("TensorArrayV3")
def tensor_array_v3(
    op, size, *, dtype, element_shape=None, dynamic_size=False, clear_after_read=True, identical_element_shapes=False,
    tensor_array_name="",
):  # fmt: skip
    if element_shape is None:
        raise Unsupported("a list with elements of unknown rank", "give the TensorArray an element_shape")
    made = _zeros(op, size, _element(op, element_shape), dtype)
    return made, made


@rule("TensorArrayReadV3")
def tensor_array_read_v3(op, handle, index, flow_in, *, dtype):
    return gather(op, flow_in, index)


@rule("TensorArrayWriteV3")
def tensor_array_write_v3(op, handle, index, value, flow_in, *, dynamic_size):
    return tensor_list_set_item(op, flow_in, index, value, resize_if_index_out_of_bounds=dynamic_size)


@rule("TensorArrayGatherV3")
def tensor_array_gather_v3(op, handle, indices, flow_in, *, dtype, element_shape=None):
    return gather(op, flow_in, indices)


@rule("TensorArrayScatterV3")
def tensor_array_scatter_v3(op, handle, indices, value, flow_in, *, dynamic_size):
    indices = op.Unsqueeze(int64(op, indices), [1])
    items = _fitted(op, flow_in, gather(op, value, op.constant(np.array(0))))
    if dynamic_size:
        added = op.Sub(op.Add(op.ReduceMax(indices, [0], keepdims=0), 1), op.Shape(items, start=0, end=1))
        shape = op.Concat(op.Max(added, np.array([0], np.int64)), op.Shape(value, start=1), axis=0)
        items = op.Concat(items, op.Expand(zero(value.dtype), shape), axis=0)
    return op.ScatterND(items, indices, value)


@rule("TensorArraySizeV3")
def tensor_array_size_v3(op, handle, flow_in):
    return tensor_list_length(op, flow_in)


@rule("TensorArrayConcatV3")
def tensor_array_concat_v3(op, handle, flow_in, *, dtype, element_shape_except0=None):
    return tensor_list_concat_v2(op, flow_in, None, None, element_dtype=dtype)


@rule("TensorArraySplitV3")
def tensor_array_split_v3(op, handle, value, lengths: Ints, flow_in):
    """All elements have the same length, so that splitting is a reshape."""
    if len(set(lengths)) != 1:
        raise Unsupported("a TensorArray with elements of different lengths")
    return op.Reshape(value, op.Concat(np.array([len(lengths), lengths[0]], np.int64), op.Shape(value, start=1), axis=0))

"""Shapes in the loops of TensorFlow 1, which importing leaves unknown, by the inference of TensorFlow's graph optimizer."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from onnxbridge.frontends.tensorflow.graph.tensors import tensor_array_of, written_sizes

_MOST_ELEMENTS = 64
"""Constants up to this size are kept, since they may be shapes; of others only their shape is needed."""
_READS = frozenset({"TensorArrayReadV3", "TensorArrayGatherV3"})
_STORED = frozenset({"Placeholder", "PlaceholderWithDefault", "ReadVariableOp", "VariableV2"})


def infer_loop_shapes(graph: Any) -> None:
    """Set the shapes that TensorFlow infers over the iterations of a graph's loops. Nothing changes where it infers none."""
    arrays = [op for op in graph.get_operations() if op.type == "TensorArrayV3"]
    unknown = _unknown(graph)
    while unknown:
        _infer(graph)
        for array in arrays:
            _set_read_shapes(graph, array)
        if unknown == (unknown := _unknown(graph)):
            return


def _unknown(graph: Any) -> int:
    return sum(t.shape.rank is None for op in graph.get_operations() for t in op.outputs)


def _set_read_shapes(graph: Any, array: Any) -> None:
    """Set the shapes of what is read from a TensorArray, as it is written: TensorFlow does not infer them."""
    sizes = written_sizes(array)
    if sizes is None:
        return
    for op in graph.get_operations():
        if op.type in _READS and op.outputs[0].shape.rank is None and tensor_array_of(op.inputs[0]) is array:
            op.outputs[0].set_shape(sizes if op.type == "TensorArrayReadV3" else (None, *sizes))


def _infer(graph: Any) -> None:
    import tensorflow as tf
    from tensorflow.core.protobuf import meta_graph_pb2
    from tensorflow.python.grappler import item

    meta = meta_graph_pb2.MetaGraphDef()
    for op in graph.get_operations():
        if not _is_stored(op):
            meta.graph_def.node.append(op.node_def)
            continue
        node = meta.graph_def.node.add(name=op.name, op="VariableV2")
        node.attr["dtype"].type = op.outputs[0].dtype.base_dtype.as_datatype_enum
        node.attr["shape"].shape.CopyFrom(op.outputs[0].shape.as_proto())
    meta.graph_def.versions.producer = graph.graph_def_versions.producer
    ends = [op.name for op in graph.get_operations() if not any(t.consumers() for t in op.outputs)]
    meta.collection_def["train_op"].node_list.value.extend(ends)
    with suppress(tf.errors.OpError, ValueError, RuntimeError):
        for name, outputs in item.Item(meta).GetOpProperties().items():
            for tensor, found in zip(graph.get_operation_by_name(name).outputs, outputs, strict=True):
                if not found.shape.unknown_rank and tensor.shape.rank is None:
                    tensor.set_shape([d.size if d.size >= 0 else None for d in found.shape.dim])


def _is_stored(op: Any) -> bool:
    """Whether only the dtype and the shape of an operator's output matter here: an input, a variable, a large constant."""
    if op.type == "Const":
        return op.outputs[0].shape.num_elements() is None or op.outputs[0].shape.num_elements() > _MOST_ELEMENTS
    if op.type in _READS:
        return op.outputs[0].shape.rank is not None
    return op.type in _STORED and op.outputs[0].dtype.name not in ("resource", "variant")

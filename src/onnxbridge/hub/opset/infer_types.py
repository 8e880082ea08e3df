"""Type inference for adapters: dtypes and shapes that a file leaves out, of node outputs and of loop bodies."""

from __future__ import annotations

from contextlib import suppress

import onnx_ir as ir

from onnxbridge.hub.ir.graphs import bodies_of
from onnxbridge.hub.ir.inference import by_type_variable, infer
from onnxbridge.hub.opset import schema_versions
from onnxbridge.hub.opset.known_values import known

_DOMAINS = ("", "ai.onnx")


def complete(node: ir.Node, version: int) -> None:
    """Infer the dtypes and sizes of a node's outputs that are missing; declared ones are kept."""
    if all(v.dtype is not None and v.shape is not None and not _has_unknown(v.shape) for v in node.outputs if v.name):
        return
    name = schema_versions.name_of(node)
    since = schema_versions.since(name, version)
    if since is None or any(a.is_ref() for a in node.attributes.values()):
        return
    declared = [(v.type, v.shape) for v in node.outputs]
    with suppress(TypeError, ValueError, RuntimeError, IndexError, AssertionError):
        infer(schema_versions.history(name)[since], node, known)
    axes = node.attributes.get("axes") if since < 11 and name in ("Squeeze", "Unsqueeze") else None
    if axes is not None and min(axes.as_ints(), default=0) < 0:  # runtimes accept them, and onnx's inference is wrong
        node.outputs[0].shape = None
    if any(v.type is None for v in node.outputs):
        with suppress(TypeError):
            by_type_variable(schema_versions.history(name)[since], node)
    for value, (kind, shape) in zip(node.outputs, declared, strict=True):
        value.type = kind if kind is not None else value.type
        value.shape = _merged(shape, value.shape)


def _has_unknown(shape: ir.Shape) -> bool:
    """Whether a dimension has neither a value nor a name."""
    return any(not isinstance(d, int) and d.value is None for d in shape)


def _merged(declared: ir.Shape | None, found: ir.Shape | None) -> ir.Shape | None:
    if declared is None or found is None or len(declared) != len(found) or not _has_unknown(declared):
        return declared if declared is not None else found
    return ir.Shape([f if not isinstance(d, int) and d.value is None else d for d, f in zip(declared, found, strict=True)])


def type_body(node: ir.Node, version: int) -> None:
    """Set missing dtypes of the inputs of a Loop or Scan body, and of a Scan also missing shapes."""
    bodies = bodies_of(node)
    if node.op_type not in ("Loop", "Scan") or node.domain not in _DOMAINS or not bodies:
        return
    inputs = list(node.inputs)
    kinds: list[ir.TypeProtocol | None] = [None if v is None else v.type for v in inputs]
    if node.op_type == "Loop":
        kinds = [ir.TensorType(ir.DataType.INT64), ir.TensorType(ir.DataType.BOOL), *kinds[2:]]
    elif version < 9:
        kinds = kinds[1:]
    for value, kind in zip(bodies[0].inputs, kinds, strict=False):
        if value.type is None:
            value.type = kind
    if node.op_type == "Scan" and version >= 9:
        scanned = node.attributes["num_scan_inputs"].as_int()
        axes = node.attributes.get("scan_input_axes")
        for i, (value, outer) in enumerate(zip(bodies[0].inputs, inputs, strict=False)):
            if value.shape is not None or outer is None or outer.shape is None:
                continue
            dims = list(outer.shape)
            if (index := i - (len(inputs) - scanned)) >= 0:
                del dims[axes.as_ints()[index] if axes is not None else 0]
            value.shape = ir.Shape(dims)

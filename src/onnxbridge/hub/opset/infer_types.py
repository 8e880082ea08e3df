"""What a file leaves out and adapters need: the dtypes and shapes of a node's outputs, and those of a loop's body."""

from __future__ import annotations

from contextlib import suppress

import onnx_ir as ir

from onnxbridge.hub.ir.graphs import bodies_of
from onnxbridge.hub.ir.inference import by_type_variable, infer
from onnxbridge.hub.opset import schema_versions
from onnxbridge.hub.opset.known_values import known

_DOMAINS = ("", "ai.onnx")


def complete(node: ir.Node, version: int) -> None:
    """Infer the dtypes and sizes that a file leaves out; what it says stays."""
    if all(v.dtype is not None and v.shape is not None and not _open(v.shape) for v in node.outputs if v.name):
        return
    name = schema_versions.name_of(node)
    since = schema_versions.since(name, version)
    if since is None or any(a.is_ref() for a in node.attributes.values()):
        return
    said = [(v.type, v.shape) for v in node.outputs]
    with suppress(TypeError, ValueError, RuntimeError, IndexError, AssertionError):
        infer(schema_versions.history(name)[since], node, known)
    axes = node.attributes.get("axes") if since < 11 and name in ("Squeeze", "Unsqueeze") else None
    if axes is not None and min(axes.as_ints(), default=0) < 0:  # runtimes take them, and onnx's inference miscounts
        node.outputs[0].shape = None
    if any(v.type is None for v in node.outputs):
        with suppress(TypeError):
            by_type_variable(schema_versions.history(name)[since], node)
    for value, (kind, shape) in zip(node.outputs, said, strict=True):
        value.type = kind if kind is not None else value.type
        value.shape = _both(shape, value.shape)


def _open(shape: ir.Shape) -> bool:
    """Whether a size is neither a number nor a name."""
    return any(not isinstance(d, int) and d.value is None for d in shape)


def _both(said: ir.Shape | None, found: ir.Shape | None) -> ir.Shape | None:
    if said is None or found is None or len(said) != len(found) or not _open(said):
        return said if said is not None else found
    return ir.Shape([f if not isinstance(s, int) and s.value is None else s for s, f in zip(said, found, strict=True)])


def type_body(node: ir.Node, version: int) -> None:
    """Give a loop's body the dtypes that the loop feeds it, a Scan's the sizes too, where the file leaves them out."""
    bodies = bodies_of(node)
    if node.op_type not in ("Loop", "Scan") or node.domain not in _DOMAINS or not bodies:
        return
    fed = list(node.inputs)
    kinds: list[ir.TypeProtocol | None] = [None if v is None else v.type for v in fed]
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
        for i, (value, outer) in enumerate(zip(bodies[0].inputs, fed, strict=False)):
            if value.shape is not None or outer is None or outer.shape is None:
                continue
            dims = list(outer.shape)
            if (nth := i - (len(fed) - scanned)) >= 0:
                del dims[axes.as_ints()[nth] if axes is not None else 0]
            value.shape = ir.Shape(dims)

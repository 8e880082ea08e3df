"""Checks which opsets support a node unchanged, for writing the lowest one."""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.errors import ConversionError, Unsupported
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.builder.scratch_target import ScratchTarget
from onnxbridge.hub.ir.schemas import plain
from onnxbridge.hub.opset import schema_versions
from onnxbridge.hub.opset.adapters import down
from onnxbridge.hub.opset.known_values import known
from onnxbridge.hub.opset.next_adapter import call_of
from onnxbridge.lowering import same_value
from onnxbridge.rules import Rule


def is_supported(node: ir.Node, opset: int, version: int) -> bool:
    """Whether a node of opset `version` is valid with the same meaning at the older `opset`."""
    new = schema_versions.since(node.op_type, version)
    if new is None:
        return False
    first = schema_versions.first(node.op_type)
    for old in sorted((v for v in schema_versions.history(node.op_type) if first <= v < new), reverse=True):
        if new <= opset:
            break
        adapter = down.get(node.op_type, new - 1)
        if adapter is not None and not _is_unchanged(node, adapter, new):
            return False
        if adapter is None and schema_versions.downward(node, new, old)[0]:
            return False
        new = old
    return new <= opset and not schema_versions.wrong_dtype(node, new)


def _is_unchanged(node: ir.Node, adapter: Rule, version: int) -> bool:
    """Whether an adapter returns the node unchanged."""
    writer = Builder(version - 1)
    try:
        call = call_of(node, version)
        ScratchTarget("", writer, known, named=False).write(call, {call.op: adapter})
    except (ConversionError, Unsupported):
        return False
    finally:
        written = writer.take()
        inputs = [list(n.inputs) for n in written]
        for new in written:
            for i in range(len(new.inputs)):
                new.replace_input_with(i, None)
    if len(written) != 1 or written[0].op_type != node.op_type:
        return False
    present = [v for v in inputs[0] if v is not None]
    same_inputs = len(present) == sum(v is not None for v in node.inputs) and all(v in node.inputs for v in present)
    defaults = schema_versions.defaults(node.op_type, version)
    before, after = ({a.name: plain(a) for a in n.attributes.values()} for n in (node, written[0]))
    return same_inputs and all(same_value(before.get(k, defaults.get(k)), after.get(k, defaults.get(k))) for k in before | after)

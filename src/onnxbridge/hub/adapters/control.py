"""Control flow: Scan had a batch in front before opset 9."""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.adapters import up
from onnxbridge.rules import Outputs


@up("Scan", to=9)
def scan(op, sequence_lens=None, *initial_state_and_scan_inputs, body, directions=None, num_scan_inputs, outputs: Outputs):
    """One scan over the batch around one over the sequence: what it gives for each element is stacked again."""
    if sequence_lens is not None:
        raise Unsupported("opset 9 dropped sequence_lens", "scan each sequence on its own")
    names = [op.unique(f"{v.name}_element") for v in initial_state_and_scan_inputs]
    elements = [
        ir.Value(name=n, type=v.type, shape=None if v.shape is None else ir.Shape(list(v.shape)[1:]))
        for n, v in zip(names, initial_state_and_scan_inputs, strict=True)
    ]
    attributes = [ir.AttrGraph("body", body), ir.AttrInt64("num_scan_inputs", num_scan_inputs)]
    if directions is not None:
        attributes.append(ir.AttrInt64s("scan_input_directions", list(directions)))
    inner = ir.Node("", "Scan", elements, attributes, num_outputs=len(outputs), name=op.unique("scan"))
    states = len(elements) - num_scan_inputs
    for i, (value, end) in enumerate(zip(inner.outputs, body.outputs, strict=True)):
        value.name, value.type = op.unique(f"{end.name}_element"), end.type
        value.shape = end.shape if i < states or end.shape is None else ir.Shape([None, *end.shape])
    whole = ir.Graph(elements, inner.outputs, nodes=[inner], name=op.unique("each_of_the_batch"))
    return op.Scan(*initial_state_and_scan_inputs, body=whole, num_scan_inputs=len(elements), outputs=len(outputs))

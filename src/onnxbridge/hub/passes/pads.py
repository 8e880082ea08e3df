"""Zero padding that stands before a convolution, taken into the convolution's own pads."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir


def merge_pads(model: ir.Model) -> None:
    """Merge every Pad by zeros into the Conv that reads it, in place. A Pad that something else reads stays for that."""
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        if node.op_type == "Conv" and node.domain == "":
            _merge(node)
    for graph in (model.graph, *model.graph.subgraphs()):
        for node in [n for n in reversed(graph) if n.op_type == "Pad"]:
            if not node.outputs[0].uses() and not node.outputs[0].is_graph_output():
                graph.remove(node, safe=True)


def _merge(conv: ir.Node) -> None:
    padded = conv.inputs[0]
    pad = padded.producer() if padded is not None else None
    if pad is None or padded is None or pad.op_type != "Pad" or pad.domain != "" or pad.graph is not conv.graph:
        return
    auto = conv.attributes.get("auto_pad")
    if auto is not None and auto.as_string() not in ("NOTSET", "VALID"):
        return
    found = _zeros(pad)
    x = pad.inputs[0]
    if found is None or x is None:
        return
    begins, ends = found
    if any(begins[:2]) or any(ends[:2]) or min(*begins, *ends) < 0:
        return
    rank = len(begins) - 2
    own = conv.attributes.get("pads")
    pads = list(own.as_ints()) if own is not None else [0] * (2 * rank)
    conv.attributes["pads"] = ir.AttrInt64s("pads", [p + e for p, e in zip(pads, begins[2:] + ends[2:], strict=True)])
    conv.attributes.pop("auto_pad", None)
    conv.replace_input_with(0, x)


def _zeros(pad: ir.Node) -> tuple[list[int], list[int]] | None:
    """How many zeros a Pad adds before and behind each axis; None where it adds something else, or that is not known."""
    mode = pad.attributes.get("mode")
    shape = pad.outputs[0].shape
    if shape is None or (mode is not None and mode.as_string() != "constant"):
        return None
    inputs = [*pad.inputs, None, None, None][:4]
    pads, value, axes = (None if v is None or v.const_value is None else v.const_value.numpy() for v in inputs[1:])
    known = all(v is None or a is not None for v, a in zip(inputs[1:], (pads, value, axes), strict=True))
    if pads is None or not known or (value is not None and np.any(value != 0)):
        return None
    rank = len(shape)
    at = range(rank) if axes is None else [int(a) % rank for a in axes]
    begins, ends = [0] * rank, [0] * rank
    for i, axis in enumerate(at):
        begins[axis], ends[axis] = int(pads[i]), int(pads[len(pads) // 2 + i])
    return begins, ends

"""Fuses a zero Pad into the `pads` of the following convolution or pool."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

# These results are never negative, so padding with zeros does not change a maximum.
_NOT_NEGATIVE = frozenset({"Relu", "Sigmoid", "HardSigmoid", "Softplus", "Softmax", "Abs", "Exp", "Sqrt", "ThresholdedRelu"})


def fuse_pads(model: ir.Model) -> None:
    """Fuse every Pad with zeros into the Conv or MaxPool that uses it, in place. The Pad stays for its other uses."""
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        if node.op_type in ("Conv", "MaxPool") and node.domain == "":
            _fuse(node)
    for graph in (model.graph, *model.graph.subgraphs()):
        for node in [n for n in reversed(graph) if n.op_type == "Pad"]:
            if not node.outputs[0].uses() and not node.outputs[0].is_graph_output():
                graph.remove(node, safe=True)


def _fuse(node: ir.Node) -> None:
    padded = node.inputs[0]
    producer = padded.producer() if padded is not None else None
    transpose = producer if producer is not None and producer.op_type == "Transpose" and _is_only_user(producer, node) else None
    pad = transpose.inputs[0].producer() if transpose is not None and transpose.inputs[0] is not None else producer
    if pad is None or padded is None or pad.op_type != "Pad" or pad.domain != "" or pad.graph is not node.graph:
        return
    auto = node.attributes.get("auto_pad")
    found = _zero_padding(pad)
    x = pad.inputs[0]
    if found is None or x is None or (auto is not None and auto.as_string() not in ("NOTSET", "VALID")):
        return
    begins, ends = found
    if transpose is not None:
        perm = transpose.attributes["perm"].as_ints()
        begins, ends = [begins[p] for p in perm], [ends[p] for p in perm]
    if any(begins[:2]) or any(ends[:2]) or min(*begins, *ends) < 0:
        return
    own = node.attributes.get("pads")
    pads = list(own.as_ints()) if own is not None else [0] * (2 * (len(begins) - 2))
    pads = [p + e for p, e in zip(pads, begins[2:] + ends[2:], strict=True)]
    if node.op_type == "MaxPool" and not (_is_not_negative(x) and _windows_cover_input(node, pads)):
        return
    node.attributes["pads"] = ir.AttrInt64s("pads", pads)
    node.attributes.pop("auto_pad", None)
    if transpose is None:
        node.replace_input_with(0, x)
    else:
        transpose.replace_input_with(0, x)
        padded.shape = None if x.shape is None else ir.Shape([x.shape[p] for p in perm])


def _is_only_user(node: ir.Node, reader: ir.Node) -> bool:
    output = node.outputs[0]
    return "perm" in node.attributes and not output.is_graph_output() and all(n is reader for n, _ in output.uses())


def _is_not_negative(value: ir.Value) -> bool:
    node = value.producer()
    if node is None or node.domain != "":
        return False
    if node.op_type == "Clip":
        low = node.inputs[1].const_value if len(node.inputs) > 1 and node.inputs[1] is not None else None
        return low is not None and bool(np.all(low.numpy() >= 0))
    return node.op_type in _NOT_NEGATIVE or (node.op_type == "Transpose" and _is_not_negative(node.inputs[0]))  # type: ignore[arg-type]


def _windows_cover_input(pool: ir.Node, pads: list[int]) -> bool:
    """Whether no window covers only padding (ONNX requires pads below the kernel size), and none is added by rounding up."""
    kernel = pool.attributes["kernel_shape"].as_ints()
    ceil, dilations = pool.attributes.get("ceil_mode"), pool.attributes.get("dilations")
    plain = (ceil is None or not ceil.as_int()) and (dilations is None or all(d == 1 for d in dilations.as_ints()))
    return plain and all(p < k for p, k in zip(pads, [*kernel, *kernel], strict=True)) and len(pool.outputs) == 1


def _zero_padding(pad: ir.Node) -> tuple[list[int], list[int]] | None:
    """The number of zeros a Pad adds before and after each axis; None if it pads with other values or is not constant."""
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
    padded_axes = range(rank) if axes is None else [int(a) % rank for a in axes]
    begins, ends = [0] * rank, [0] * rank
    for i, axis in enumerate(padded_axes):
        begins[axis], ends[axis] = int(pads[i]), int(pads[len(pads) // 2 + i])
    return begins, ends

"""Control flow: Scan had a leading batch axis before opset 9, and only Loop existed before opset 8."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.opset.adapters import down, flattened, up
from onnxbridge.hub.opset.known_values import rank_of
from onnxbridge.rules import Outputs


@up("Scan", to=9)
def scan(op, sequence_lens=None, *initial_state_and_scan_inputs, body, directions=None, num_scan_inputs, outputs: Outputs):
    """A scan over the batch around a scan over the sequence."""
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


@down("Scan", to=8)
def scan_as_loop(
    op, *initial_state_and_scan_inputs, body, num_scan_inputs, scan_input_axes=None, scan_input_directions=None,
    scan_output_axes=None, scan_output_directions=None, outputs: Outputs,
):  # fmt: skip
    """Each iteration takes a slice of every sequence, from either end; stacked outputs are reversed and transposed as needed."""
    count = len(initial_state_and_scan_inputs) - num_scan_inputs
    states, sequences = initial_state_and_scan_inputs[:count], initial_state_and_scan_inputs[count:]
    axes = [a % rank_of(v) for a, v in zip(scan_input_axes or (0,) * num_scan_inputs, sequences, strict=True)]
    back = scan_input_directions or (0,) * num_scan_inputs
    size = flattened.sizes(op, sequences[0])[axes[0]]
    trip_count = size if isinstance(size, ir.Value) else op.constant(np.array(size, np.int64))
    last = op.Sub(trip_count, np.array(1, np.int64))

    def step(iteration, condition, *loop_states):
        reverse = op.Sub(last, iteration)
        for state, declared in zip(loop_states, body.inputs, strict=False):
            state.shape = declared.shape
        slices = [op.Gather(v, reverse if b else iteration, axis=a) for v, a, b in zip(sequences, axes, back, strict=True)]
        return [condition, *op.inline(body, [*loop_states, *slices])]

    results = op.Loop(trip_count, True, *states, body=step, outputs=len(outputs))
    results = list(results if isinstance(results, tuple) else (results,))
    order = None
    for i in range(len(outputs) - count):
        y = results[count + i]
        if scan_output_directions and scan_output_directions[i]:
            order = op.Sub(last, flattened.arange(op, size)) if order is None else order
            y = op.Gather(y, order, axis=0)
        axis = scan_output_axes[i] % rank_of(y) if scan_output_axes else 0
        if axis:
            y = op.Transpose(y, perm=[*range(1, axis + 1), 0, *range(axis + 1, rank_of(y))])
        elif rank_of(y) == 1:
            y = op.Reshape(y, [-1])  # the standard's evaluator stacks scalars as a column
        results[count + i] = y
    return tuple(results)


@down("If", to=10)
def if_of_one_shape(op, cond, *, then_branch, else_branch, outputs: Outputs):
    """Before opset 11 both branches gave the same shape; sizes that are not known may be the same."""
    for a, b in zip(then_branch.outputs, else_branch.outputs, strict=True):
        if a.shape is None or b.shape is None:
            continue
        sizes = zip(a.shape, b.shape, strict=False)
        if len(a.shape) != len(b.shape) or any(isinstance(m, int) and isinstance(n, int) and m != n for m, n in sizes):
            raise Unsupported(f"its branches give the shapes {list(a.shape)} and {list(b.shape)}, which opset 11 allowed")
    return op.If(cond, then_branch=then_branch, else_branch=else_branch, outputs=len(outputs))

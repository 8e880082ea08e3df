"""Control flow: Python decides at run time which body is called and how often.

In torch.export this is not possible; there control flow becomes PyTorch's operators (see exported_control_flow.py).
"""

from __future__ import annotations

import torch

from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.backends.pytorch.trace import size_arithmetic
from onnxbridge.backends.pytorch.trace.exported_control_flow import MAX_UNROLLED, export_cond, export_loop
from onnxbridge.backends.pytorch.trace.tracer import Unknown, Value, data_dependent_call


@data_dependent_call
def branch(cond, then_body, then_outer, else_body, else_outer):
    if torch.compiler.is_exporting() and isinstance(cond, torch.Tensor):
        return export_cond(cond, then_body, then_outer, else_body, else_outer)
    return then_body(*then_outer) if cond else else_body(*else_outer)


@rule("If")
def if_(cond, *, then_branch, else_branch):
    known = size_arithmetic.elements(cond)
    if known is not None:
        choice = known.reshape(-1)[0]
        if not isinstance(choice, Value):
            return (then_branch if choice else else_branch)()
    record = cond.tracer.body
    (then_body, then_outer), (else_body, else_outer) = record(then_branch), record(else_branch)
    outputs = branch(cond if known is None else choice, then_body, then_outer, else_body, else_outer)
    return tuple(outputs[i] for i in range(then_body.count))


@data_dependent_call
def run_loop(count, cond, states, body, outer, scans, has_condition, device=None):
    """Run the body as `count` and `cond` allow; both may be None. Returns the final states, then the scan outputs.

    `has_condition` says whether the body computes the condition of the next iteration.
    """
    if torch.compiler.is_exporting() and (has_condition or not isinstance(count, int) or count > MAX_UNROLLED):
        return export_loop(count, cond, states, body, outer, scans, has_condition, device)
    states, collected, iteration = list(states), [[] for _ in range(scans)], 0
    condition = True if cond is None else bool(cond)
    limit = None if count is None else int(count)
    while condition and (limit is None or iteration < limit):
        results = body(torch.tensor(iteration, device=device), torch.tensor(True, device=device), *states, *outer)
        condition, states = not has_condition or bool(results[0]), list(results[1 : 1 + len(states)])
        for outputs, result in zip(collected, results[1 + len(states) :], strict=True):
            outputs.append(result)
        iteration += 1
    return (*states, *collected)


@data_dependent_call
def stack_outputs(outputs, shape, dtype, device=None):
    """A scan output stacked along a new first axis; an empty tensor if there were no iterations.

    Exported loops stack it themselves.
    """
    if isinstance(outputs, torch.Tensor):
        return outputs
    return torch.stack(list(outputs)) if len(outputs) else torch.zeros([0, *shape], dtype=dtype, device=device)


def _collected(outputs, output):
    meta = output.node.meta["val"]
    known = not isinstance(meta, Unknown)
    shape = [int(n) if isinstance(n, int) else 0 for n in meta.shape] if known else []
    return stack_outputs(outputs, shape, meta.dtype if known else torch.float32)


@rule("Loop")
def loop(M=None, cond=None, *v_initial, body):
    tracer = next(v for v in (M, cond, *v_initial) if v is not None).tracer
    iteration, condition = torch.zeros((), dtype=torch.int64), torch.ones((), dtype=torch.bool)
    with tracer.mode:
        metas = [tracer.mode.from_tensor(iteration), tracer.mode.from_tensor(condition)]
    states = [state_meta(tracer, *pair) for pair in zip(v_initial, body.inputs[2:], strict=True)]
    inner, outer = tracer.body(body, [*metas, *states], [v.hub_dtype for v in v_initial])
    scans = inner.count - 1 - len(v_initial)
    has_condition = not _is_always_true(inner.results[0], 1, inner)
    known = size_arithmetic.elements(M)
    count = M if known is None else known.reshape(-1)[0]
    first = None if _is_true(cond) else cond
    outputs = run_loop(count, first, list(v_initial), inner, outer, scans, has_condition)
    states = [outputs[i] for i in range(len(v_initial))]
    return (*states, *(_collected(outputs[len(states) + i], inner.results[1 + len(states) + i]) for i in range(scans)))


def _is_true(value):
    known = size_arithmetic.elements(value)
    return known is not None and not isinstance(known.reshape(-1)[0], Value) and bool(known.reshape(-1)[0])


def _is_always_true(condition, index, body):
    """Whether a loop body's condition output is always true: it is constant, or its own condition input."""
    return _is_true(condition) or getattr(condition, "node", None) is body.inputs[index].node


def state_meta(tracer, value, declared):
    """A loop state has a fixed dtype, but sizes may change between iterations, unless the body declares the initial ones."""
    if value is None or not value.is_known or not isinstance(value.fake, torch.Tensor):
        return Unknown()
    has_shape = declared.shape is not None and len(declared.shape) == value.ndim
    shape = declared.shape if has_shape else [None] * value.ndim
    sizes = [n if isinstance(n, int) and n == initial else None for n, initial in zip(shape, value.shape, strict=True)]
    return tracer.unbacked(value.dtype, sizes)


@data_dependent_call
def scan_loop(states, sequences, axes, reverse, body, outer, out_axes, out_reverse, device=None):
    """Call the body with one element of each sequence at a time."""
    length = sequences[0].shape[axes[0]]
    if torch.compiler.is_exporting() and (not isinstance(length, int) or length > MAX_UNROLLED):

        def step(iteration, condition, *states):
            positions = [length - 1 - iteration if is_reverse else iteration for is_reverse in reverse]
            parts = zip(sequences, axes, positions, strict=True)
            elements = [s.index_select(axis, index.reshape(1)).squeeze(axis) for s, axis, index in parts]
            return condition, *body(*states, *elements, *outer)

        made = export_loop(length, None, states, step, (), len(out_axes), False, device)
        oriented = [
            (torch.flip(outputs, [0]) if is_reverse else outputs).movedim(0, axis)
            for outputs, axis, is_reverse in zip(made[len(states) :], out_axes, out_reverse, strict=True)
        ]
        return (*made[: len(states)], *oriented)
    states, collected = list(states), [[] for _ in out_axes]
    for iteration in range(length):
        positions = [length - 1 - iteration if is_reverse else iteration for is_reverse in reverse]
        elements = [s.select(axis, i) for s, axis, i in zip(sequences, axes, positions, strict=True)]
        results = body(*states, *elements, *outer)
        states = list(results[: len(states)])
        for outputs, result in zip(collected, results[len(states) :], strict=True):
            outputs.append(result)
    joined = [
        torch.stack(outputs[::-1] if is_reverse else outputs, axis)
        for outputs, axis, is_reverse in zip(collected, out_axes, out_reverse, strict=True)
    ]
    return (*states, *joined)


@rule("Scan")
def scan(
    *initial_state_and_scan_inputs, body, num_scan_inputs, scan_input_axes=None, scan_input_directions=None,
    scan_output_axes=None, scan_output_directions=None,
):  # fmt: skip
    inputs = initial_state_and_scan_inputs
    count = len(inputs) - num_scan_inputs
    states, sequences = list(inputs[:count]), list(inputs[count:])
    axes = [a % s.ndim for a, s in zip(scan_input_axes or (0,) * num_scan_inputs, sequences, strict=True)]
    tracer = inputs[0].tracer
    metas = [state_meta(tracer, *pair) for pair in zip(states, body.inputs, strict=False)]
    for s, axis in zip(sequences, axes, strict=True):
        metas.append(tracer.unbacked(s.dtype, [n if isinstance(n, int) else None for i, n in enumerate(s.shape) if i != axis]))
    inner, outer = tracer.body(body, metas, [v.hub_dtype for v in inputs])
    scans = inner.count - count
    outputs = scan_loop(
        states, sequences, axes, list(scan_input_directions or (0,) * num_scan_inputs), inner, outer,
        list(scan_output_axes or (0,) * scans), list(scan_output_directions or (0,) * scans),
    )  # fmt: skip
    return tuple(outputs[i] for i in range(count + scans))

"""Control flow: Python decides, each time the module runs, which body it calls and how often.

While a program is exported nobody can decide: there it becomes PyTorch's own operators for control flow, in programs.py.
"""

from __future__ import annotations

import torch

from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.backends.pytorch.trace import size_arithmetic
from onnxbridge.backends.pytorch.trace.exported_control_flow import UNROLLED, both, looped
from onnxbridge.backends.pytorch.trace.tracer import Unknown, Value, at_run_time


@at_run_time
def branch(cond, then_body, then_outer, else_body, else_outer):
    if torch.compiler.is_exporting() and isinstance(cond, torch.Tensor):
        return both(cond, then_body, then_outer, else_body, else_outer)
    return then_body(*then_outer) if cond else else_body(*else_outer)


@rule("If")
def if_(cond, *, then_branch, else_branch):
    known = size_arithmetic.elements(cond)
    if known is not None:
        decided = known.reshape(-1)[0]
        if not isinstance(decided, Value):
            return (then_branch if decided else else_branch)()
    record = cond.tracer.body
    (then_body, then_outer), (else_body, else_outer) = record(then_branch), record(else_branch)
    found = branch(cond if known is None else decided, then_body, then_outer, else_body, else_outer)
    return tuple(found[i] for i in range(then_body.count))


@at_run_time
def repeat(count, cond, states, body, outer, scans, asks, device=None):
    """Runs the body as often as `count` and `cond` allow; both may be None. Gives the last states, then what was collected.

    `asks` says whether the body decides if there is another turn.
    """
    if torch.compiler.is_exporting() and (asks or not isinstance(count, int) or count > UNROLLED):
        return looped(count, cond, states, body, outer, scans, asks, device)
    states, collected, turn = list(states), [[] for _ in range(scans)], 0
    going = True if cond is None else bool(cond)
    limit = None if count is None else int(count)
    while going and (limit is None or turn < limit):
        results = body(torch.tensor(turn, device=device), torch.tensor(True, device=device), *states, *outer)
        going, states = not asks or bool(results[0]), list(results[1 : 1 + len(states)])
        for found, result in zip(collected, results[1 + len(states) :], strict=True):
            found.append(result)
        turn += 1
    return (*states, *collected)


@at_run_time
def stacked(found, shape, dtype, device=None):
    """What a loop has collected, along a new first axis; of no turn, an empty tensor. A program's loop gives it so."""
    if isinstance(found, torch.Tensor):
        return found
    return torch.stack(list(found)) if len(found) else torch.zeros([0, *shape], dtype=dtype, device=device)


def _collected(found, output):
    meta = output.node.meta["val"]
    known = not isinstance(meta, Unknown)
    shape = [int(n) if isinstance(n, int) else 0 for n in meta.shape] if known else []
    return stacked(found, shape, meta.dtype if known else torch.float32)


@rule("Loop")
def loop(M=None, cond=None, *v_initial, body):
    tracer = next(v for v in (M, cond, *v_initial) if v is not None).tracer
    turn, going = torch.zeros((), dtype=torch.int64), torch.ones((), dtype=torch.bool)
    with tracer.mode:
        metas = [tracer.mode.from_tensor(turn), tracer.mode.from_tensor(going)]
    inner, outer = tracer.body(body, [*metas, *(state_meta(tracer, v) for v in v_initial)], [v.hub for v in v_initial])
    scans = inner.count - 1 - len(v_initial)
    asks = not _always(inner.results[0], 1, inner)
    known = size_arithmetic.elements(M)
    count = M if known is None else known.reshape(-1)[0]
    first = None if _is_true(cond) else cond
    found = repeat(count, first, list(v_initial), inner, outer, scans, asks)
    states = [found[i] for i in range(len(v_initial))]
    return (*states, *(_collected(found[len(states) + i], inner.results[1 + len(states) + i]) for i in range(scans)))


def _is_true(value):
    known = size_arithmetic.elements(value)
    return known is not None and not isinstance(known.reshape(-1)[0], Value) and bool(known.reshape(-1)[0])


def _always(going, place, body):
    """Whether a loop's body gives on what it got, which is true, or true itself, as the condition."""
    return _is_true(going) or getattr(going, "node", None) is body.inputs[place].node


def state_meta(tracer, value):
    """A loop's state has its type from the start, but its sizes may change from turn to turn."""
    if value is None or not value.is_known or not isinstance(value.known, torch.Tensor):
        return Unknown()
    return tracer.unbacked(value.dtype, [None] * value.ndim)


@at_run_time
def scanned(states, sequences, axes, backwards, body, outer, out_axes, out_backwards, device=None):
    """Feeds the body one element of each sequence at a time."""
    length = sequences[0].shape[axes[0]]
    if torch.compiler.is_exporting() and (not isinstance(length, int) or length > UNROLLED):

        def step(turn, going, *states):
            places = [length - 1 - turn if back else turn for back in backwards]
            parts = zip(sequences, axes, places, strict=True)
            elements = [s.index_select(axis, place.reshape(1)).squeeze(axis) for s, axis, place in parts]
            return going, *body(*states, *elements, *outer)

        made = looped(length, None, states, step, (), len(out_axes), False, device)
        turned = [
            (torch.flip(found, [0]) if back else found).movedim(0, axis)
            for found, axis, back in zip(made[len(states) :], out_axes, out_backwards, strict=True)
        ]
        return (*made[: len(states)], *turned)
    states, collected = list(states), [[] for _ in out_axes]
    for turn in range(length):
        places = [length - 1 - turn if back else turn for back in backwards]
        elements = [s.select(axis, i) for s, axis, i in zip(sequences, axes, places, strict=True)]
        results = body(*states, *elements, *outer)
        states = list(results[: len(states)])
        for found, result in zip(collected, results[len(states) :], strict=True):
            found.append(result)
    joined = [
        torch.stack(found[::-1] if back else found, axis)
        for found, axis, back in zip(collected, out_axes, out_backwards, strict=True)
    ]
    return (*states, *joined)


@rule("Scan")
def scan(
    *initial_state_and_scan_inputs, body, num_scan_inputs, scan_input_axes=None, scan_input_directions=None,
    scan_output_axes=None, scan_output_directions=None,
):  # fmt: skip
    given = initial_state_and_scan_inputs
    count = len(given) - num_scan_inputs
    states, sequences = list(given[:count]), list(given[count:])
    axes = [a % s.ndim for a, s in zip(scan_input_axes or (0,) * num_scan_inputs, sequences, strict=True)]
    tracer = given[0].tracer
    metas = [state_meta(tracer, v) for v in states]
    for s, axis in zip(sequences, axes, strict=True):
        metas.append(tracer.unbacked(s.dtype, [n if isinstance(n, int) else None for i, n in enumerate(s.shape) if i != axis]))
    inner, outer = tracer.body(body, metas, [v.hub for v in given])
    scans = inner.count - count
    found = scanned(
        states, sequences, axes, list(scan_input_directions or (0,) * num_scan_inputs), inner, outer,
        list(scan_output_axes or (0,) * scans), list(scan_output_directions or (0,) * scans),
    )  # fmt: skip
    return tuple(found[i] for i in range(count + scans))

"""Control flow; subgraphs are callables that see the values around them."""

import numpy as np
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import types
from coremltools.converters.mil.mil.types.symbolic import is_symbolic

from onnxbridge.backends.coreml.ops import rule
from onnxbridge.backends.coreml.sizes import size
from onnxbridge.errors import Unsupported

UNROLLED = 32
"""Up to so many trips a loop is written out; beyond, it stays one."""
WITH_SEQUENCES = 256
"""So many where it carries sequences, which a loop of Core ML's cannot."""


def _scalar(x):
    return mb.squeeze(x=x) if x.rank else x


def _lengths(values):
    """Which of them are sequences, and of how many elements; None for a tensor."""
    return [len(v) if isinstance(v, list) else None for v in values]


def _kept(values):
    """Results of a block of its own: what passes through must be written in it. A sequence is its elements."""
    return [mb.identity(x=v) for value in values for v in (value if isinstance(value, list) else [value])]


def _gathered(made, lengths):
    """The results as they were before `_kept`."""
    rest = iter(made)
    return tuple(next(rest) if n is None else [next(rest) for _ in range(n)] for n in lengths)


@rule("If", limits="both branches give tensors of one rank and size, and sequences of one length")
def if_(cond, *, then_branch, else_branch):
    """Core ML gives the results the first branch's type: where only that branch fixes a size, the other one is written first."""
    if cond.val is not None:
        return then_branch() if bool(np.asarray(cond.val).reshape(())) else else_branch()
    pred = _scalar(cond)
    made, wider = _cond(pred, then_branch, else_branch)
    if not wider:
        return made
    made, wider = _cond(mb.logical_not(x=pred), else_branch, then_branch)
    if wider:
        raise Unsupported("each branch fixes a size that the other leaves to the running model",
                          "give both branches results of the same sizes, or make the condition a constant")  # fmt: skip
    return made


def _cond(pred, first, second):
    """The results, and whether one of them has a size that is fixed in the first branch and unknown in the second."""
    seen = []

    def written(branch):
        values = branch()
        kept = _kept(values)
        seen.append((_lengths(values), [tuple(v.shape) for v in kept]))
        if len(seen) == 2:
            _agree(*seen)
        return kept

    made = mb.cond(pred=pred, _true_fn=lambda: written(first), _false_fn=lambda: written(second))
    (lengths, sizes), (_, others) = seen
    wider = any(is_symbolic(b) and not is_symbolic(a) for shape, other in zip(sizes, others, strict=True)
                for a, b in zip(shape, other, strict=True))  # fmt: skip
    return _gathered(made if isinstance(made, (tuple, list)) else [made], lengths), wider


def _agree(first, second):
    """Refuses branches whose results no single type holds."""
    if first[0] != second[0]:
        one, other = (", ".join(str(n) for n in lengths if n is not None) or "no" for lengths, _ in (first, second))
        raise Unsupported(f"a sequence of {one} elements out of one branch, of {other} out of the other", "give as many")
    for one, other in zip(first[1], second[1], strict=True):
        clash = any(a != b and not is_symbolic(a) and not is_symbolic(b) for a, b in zip(one, other, strict=False))
        if clash or len(one) != len(other):
            shapes = " and ".join(f"[{', '.join('?' if is_symbolic(n) else str(n) for n in shape)}]" for shape in (one, other))
            raise Unsupported(f"its branches give results of shapes {shapes}, and Core ML's cond has one rank and size for both",
                              "reshape both to one shape, or make an initializer of the input that decides it")  # fmt: skip


def _stacked(values, axis=0):
    return mb.stack(values=list(values), axis=axis)


@rule("Loop", limits="a loop that is not written out carries tensors of fixed sizes, and stacks results of one size in each trip")
def loop(M=None, cond=None, *v_initial, body):
    count = None if M is None or M.val is None else int(np.asarray(M.val).reshape(()))
    starts = True if cond is None else None if cond.val is None else bool(np.asarray(cond.val).reshape(()))
    listed = any(isinstance(v, list) for v in v_initial)
    if count is not None and starts and count <= (WITH_SEQUENCES if listed else UNROLLED):
        written = _written_out(count, v_initial, body)
        if written is not None:
            return written
    if listed:
        few = f"are more than {WITH_SEQUENCES}" if count is not None and starts else "only the running model knows"
        raise Unsupported(f"a sequence carried through a loop whose trips {few}",
                          "give the loop a constant number of trips, or stack what it collects as a scan output")  # fmt: skip
    return _while(M, cond, v_initial, body)


def _written_out(count, state, body):
    """The body once for each trip; None where it decides by itself when to stop, or where nothing is left to stack."""
    rows = []
    for trip in range(count):
        going, *results = body(mb.const(val=np.int32(trip)), mb.const(val=np.bool_(True)), *state)
        state, scanned = results[: len(state)], results[len(state) :]
        rows.append(scanned)
        if going.val is None:
            return None
        if not bool(np.asarray(going.val).reshape(())):
            break
    if not rows:
        return None
    return (*state, *(_stacked(values) for values in zip(*rows, strict=True)))


def _while(M, cond, v_initial, body):
    """A while_loop over the trip's number, whether to go on, the carried values and a list for each stacked result."""
    probe = []

    def scans():
        """How many results are stacked, and their types: the body is written once where nothing uses it."""
        _, *results = body(mb.const(val=np.int32(0)), mb.const(val=np.bool_(True)), *v_initial)
        probe.extend(results[len(v_initial) :])
        return []

    scans()
    lists = []
    for value in probe:
        if isinstance(value, list):
            raise Unsupported("stacks sequences", "stack tensors")
        lists.append(
            mb.make_list(
                init_length=1,
                dynamic_length=True,
                elem_shape=tuple(str(n) if is_symbolic(n) else int(n) for n in value.shape) or (1,),
                dtype=_name(value.dtype),
            )
        )
    limit = None if M is None else _scalar(M)
    going = mb.const(val=np.bool_(True)) if cond is None else _scalar(cond)
    states = [_changing(v) for v in v_initial]

    def more(trip, going, *rest):
        return going if limit is None else mb.logical_and(x=going, y=mb.less(x=trip, y=limit))

    def step(trip, going, *rest):
        carried, held = rest[: len(states)], rest[len(states) :]
        flag, *results = body(trip, going, *carried)
        new, made = results[: len(states)], results[len(states) :]
        # a size that only the running model knows is the same in each trip, or ONNX's Loop is not defined
        if any(_clash(v.shape, p.shape) for v, p in zip(made, probe, strict=True)):
            raise Unsupported("stacks results whose size depends on what the loop carries, which may change from trip to trip",
                              f"carry values of fixed sizes, or give a constant number of trips, {UNROLLED} at most")  # fmt: skip
        held = [
            mb.list_write(ls=ls, index=trip, value=v if v.rank else mb.expand_dims(x=v, axes=[0]))
            for ls, v in zip(held, made, strict=True)
        ]
        return [mb.add(x=trip, y=np.int32(1)), mb.identity(x=_scalar(flag)), *_kept(new), *held]

    trip, _, *rest = mb.while_loop(
        _cond=more, _body=step, loop_vars=(_changing(np.int32(0)), _changing(going), *states, *lists)
    )
    places = None
    outputs = list(rest[: len(states)])
    for ls, value in zip(rest[len(states) :], probe, strict=True):
        if places is None:
            places = mb.range_1d(start=np.int32(0), end=trip, step=np.int32(1))
        stack = mb.list_gather(ls=ls, indices=places)
        outputs.append(stack if value.rank else mb.squeeze(x=stack, axes=[1]))
    return tuple(outputs)


def _clash(shape, other):
    """Whether two shapes cannot be one."""
    known = zip(shape, other, strict=False)
    return len(shape) != len(other) or any(is_symbolic(a) != is_symbolic(b) or not is_symbolic(a) and a != b for a, b in known)


def _changing(value):
    """A value that a loop carries: what it is at first says nothing of later trips, which coremltools looks at twice at most."""
    made = mb.identity(x=value)
    made._sym_val = None
    return made


def _name(dtype):
    return types.builtin_to_string(dtype)


@rule("Scan")
def scan(
    *initial_state_and_scan_inputs, body, num_scan_inputs, scan_input_axes=None, scan_input_directions=None,
    scan_output_axes=None, scan_output_directions=None,
):  # fmt: skip
    """Written out for each step where there are few; else as a loop that gathers its rows."""
    states = len(initial_state_and_scan_inputs) - num_scan_inputs
    state, sources = list(initial_state_and_scan_inputs[:states]), initial_state_and_scan_inputs[states:]
    axes = [a % s.rank for a, s in zip(scan_input_axes or (0,) * num_scan_inputs, sources, strict=True)]
    back = scan_input_directions or (0,) * num_scan_inputs
    sources = [mb.reverse(x=s, axes=[a]) if b else s for s, a, b in zip(sources, axes, back, strict=True)]
    steps = size(sources[0], axes[0])
    if isinstance(steps, int) and steps <= UNROLLED:
        rows = []
        for step in range(steps):
            results = body(*state, *(_row(s, step, a) for s, a in zip(sources, axes, strict=True)))
            state, scanned = list(results[:states]), results[states:]
            rows.append(scanned)
        stacks = [_stacked(values) for values in zip(*rows, strict=True)]
    else:

        def trip(i, going, *carried):
            picked = [_picked(s, i, a) for s, a in zip(sources, axes, strict=True)]
            return (going, *body(*carried, *picked))

        limit = mb.const(val=np.int32(steps)) if isinstance(steps, int) else steps
        results = _while(limit, None, tuple(state), trip)
        state, stacks = results[:states], results[states:]
    out_axes, reverse = scan_output_axes or (0,) * len(stacks), scan_output_directions or (0,) * len(stacks)
    laid = []
    for stack, axis, flip in zip(stacks, out_axes, reverse, strict=True):
        stack = mb.reverse(x=stack, axes=[0]) if flip else stack
        perm = list(range(1, stack.rank))
        perm.insert(axis % stack.rank, 0)
        laid.append(mb.transpose(x=stack, perm=perm) if axis % stack.rank else stack)
    return (*state, *laid)


def _row(x, i, axis):
    return mb.slice_by_index(
        x=x, begin=[i if a == axis else 0 for a in range(x.rank)], end=[i + 1 if a == axis else 0 for a in range(x.rank)],
        begin_mask=[a != axis for a in range(x.rank)], end_mask=[a != axis for a in range(x.rank)],
        squeeze_mask=[a == axis for a in range(x.rank)],
    )  # fmt: skip


def _picked(x, i, axis):
    return mb.gather(x=x, indices=i, axis=axis)

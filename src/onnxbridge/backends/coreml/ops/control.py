"""Control flow. Subgraphs are callables that capture values of the enclosing graph."""

import numpy as np
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import types
from coremltools.converters.mil.mil.types.symbolic import is_symbolic

from onnxbridge.backends.coreml.ops import rule
from onnxbridge.backends.coreml.sizes import size
from onnxbridge.errors import Unsupported

MAX_UNROLLED = 32
"""Loops of up to this many iterations are unrolled."""
MAX_UNROLLED_WITH_SEQUENCES = 256
"""The limit for loops that carry sequences, which Core ML's while_loop cannot."""


def _scalar(x):
    return mb.squeeze(x=x) if x.rank else x


def _lengths(values):
    """The length of each sequence, None for a tensor."""
    return [len(v) if isinstance(v, list) else None for v in values]


def _block_results(values):
    """The results of a block, flattened: sequences become their elements. A value from outside must be written in the block."""
    return [mb.identity(x=v) for value in values for v in (value if isinstance(value, list) else [value])]


def _regroup(made, lengths):
    """The inverse of `_block_results`: groups the elements of sequences again."""
    rest = iter(made)
    return tuple(next(rest) if n is None else [next(rest) for _ in range(n)] for n in lengths)


@rule("If", limits="both branches return tensors of the same rank and sizes, and sequences of the same length")
def if_(cond, *, then_branch, else_branch):
    """Core ML gives the results the first branch's type; if only that branch has a static size, the branches are swapped."""
    if cond.val is not None:
        return then_branch() if bool(np.asarray(cond.val).reshape(())) else else_branch()
    pred = _scalar(cond)
    made, differs = _lower_cond(pred, then_branch, else_branch)
    if not differs:
        return made
    made, differs = _lower_cond(mb.logical_not(x=pred), else_branch, then_branch)
    if differs:
        raise Unsupported("each branch has a static size that is dynamic in the other",
                          "return results of the same sizes from both branches, or make the condition a constant")  # fmt: skip
    return made


def _lower_cond(pred, first, second):
    """The results, and whether one of them has a size that is static in the first branch and dynamic in the second."""
    seen = []

    def lowered(branch):
        values = branch()
        flat = _block_results(values)
        seen.append((_lengths(values), [tuple(v.shape) for v in flat]))
        if len(seen) == 2:
            _check_branches(*seen)
        return flat

    made = mb.cond(pred=pred, _true_fn=lambda: lowered(first), _false_fn=lambda: lowered(second))
    (lengths, sizes), (_, others) = seen
    differs = any(is_symbolic(b) and not is_symbolic(a) for shape, other in zip(sizes, others, strict=True)
                for a, b in zip(shape, other, strict=True))  # fmt: skip
    return _regroup(made if isinstance(made, (tuple, list)) else [made], lengths), differs


def _check_branches(first, second):
    """Raise Unsupported if the branches return results of different types."""
    if first[0] != second[0]:
        one, other = (", ".join(str(n) for n in lengths if n is not None) or "no" for lengths, _ in (first, second))
        raise Unsupported(f"one branch returns a sequence of {one} elements, the other one of {other}", "return equal lengths")
    for one, other in zip(first[1], second[1], strict=True):
        clash = any(a != b and not is_symbolic(a) and not is_symbolic(b) for a, b in zip(one, other, strict=False))
        if clash or len(one) != len(other):
            shapes = " and ".join(f"[{', '.join('?' if is_symbolic(n) else str(n) for n in shape)}]" for shape in (one, other))
            raise Unsupported(f"its branches return results of shapes {shapes}; Core ML's cond needs equal ranks and sizes",
                              "reshape both to one shape, or make the input that determines it an initializer")  # fmt: skip


def _stacked(values, axis=0):
    return mb.stack(values=list(values), axis=axis)


@rule("Loop", limits="a loop that is not unrolled carries tensors of static sizes, and scan outputs of one size per iteration")
def loop(M=None, cond=None, *v_initial, body):
    count = None if M is None or M.val is None else int(np.asarray(M.val).reshape(()))
    starts = True if cond is None else None if cond.val is None else bool(np.asarray(cond.val).reshape(()))
    has_sequences = any(isinstance(v, list) for v in v_initial)
    if count is not None and starts and count <= (MAX_UNROLLED_WITH_SEQUENCES if has_sequences else MAX_UNROLLED):
        lowered = _unrolled(count, v_initial, body)
        if lowered is not None:
            return lowered
    if has_sequences:
        trip_count = f"exceeds {MAX_UNROLLED_WITH_SEQUENCES}" if count is not None and starts else "is dynamic"
        raise Unsupported(f"a loop carries a sequence, and its trip count {trip_count}",
                          "give the loop a constant trip count, or collect the elements as a scan output")  # fmt: skip
    return _while(M, cond, v_initial, body)


def _unrolled(count, state, body):
    """The loop unrolled; None if its condition is dynamic, or if there are no iterations to stack results of."""
    rows = []
    for i in range(count):
        continue_, *results = body(mb.const(val=np.int32(i)), mb.const(val=np.bool_(True)), *state)
        state, scanned = results[: len(state)], results[len(state) :]
        rows.append(scanned)
        if continue_.val is None:
            return None
        if not bool(np.asarray(continue_.val).reshape(())):
            break
    if not rows:
        return None
    return (*state, *(_stacked(values) for values in zip(*rows, strict=True)))


def _while(M, cond, v_initial, body):
    """A while_loop over the iteration number, the condition, the carried values and a list for each scan output."""
    probe = []

    def scans():
        """Collect the scan outputs to learn their types: the body is lowered once, and its operators are unused."""
        _, *results = body(mb.const(val=np.int32(0)), mb.const(val=np.bool_(True)), *v_initial)
        probe.extend(results[len(v_initial) :])
        return []

    scans()
    lists = []
    for value in probe:
        if isinstance(value, list):
            raise Unsupported("a scan output is a sequence", "use tensors")
        lists.append(
            mb.make_list(
                init_length=1,
                dynamic_length=True,
                elem_shape=tuple(str(n) if is_symbolic(n) else int(n) for n in value.shape) or (1,),
                dtype=_name(value.dtype),
            )
        )
    limit = None if M is None else _scalar(M)
    continue_ = mb.const(val=np.bool_(True)) if cond is None else _scalar(cond)
    states = [_loop_variable(v) for v in v_initial]

    def condition(i, continue_, *rest):
        return continue_ if limit is None else mb.logical_and(x=continue_, y=mb.less(x=i, y=limit))

    def step(i, continue_, *rest):
        carried, lists_so_far = rest[: len(states)], rest[len(states) :]
        flag, *results = body(i, continue_, *carried)
        new, scanned = results[: len(states)], results[len(states) :]
        # ONNX requires a dynamic size to be the same in each iteration
        if any(_incompatible(v.shape, p.shape) for v, p in zip(scanned, probe, strict=True)):
            raise Unsupported("the size of a scan output depends on carried values, which may change between iterations",
                              f"carry values of static sizes, or set a constant trip count up to {MAX_UNROLLED}")  # fmt: skip
        lists_so_far = [
            mb.list_write(ls=ls, index=i, value=v if v.rank else mb.expand_dims(x=v, axes=[0]))
            for ls, v in zip(lists_so_far, scanned, strict=True)
        ]
        return [mb.add(x=i, y=np.int32(1)), mb.identity(x=_scalar(flag)), *_block_results(new), *lists_so_far]

    loop_vars = (_loop_variable(np.int32(0)), _loop_variable(continue_), *states, *lists)
    iterations, _, *rest = mb.while_loop(_cond=condition, _body=step, loop_vars=loop_vars)
    indices = None
    outputs = list(rest[: len(states)])
    for ls, value in zip(rest[len(states) :], probe, strict=True):
        if indices is None:
            indices = mb.range_1d(start=np.int32(0), end=iterations, step=np.int32(1))
        stack = mb.list_gather(ls=ls, indices=indices)
        outputs.append(stack if value.rank else mb.squeeze(x=stack, axes=[1]))
    return tuple(outputs)


def _incompatible(shape, other):
    """Whether two shapes have different ranks or sizes, or a size is static in only one."""
    known = zip(shape, other, strict=False)
    return len(shape) != len(other) or any(is_symbolic(a) != is_symbolic(b) or not is_symbolic(a) and a != b for a, b in known)


def _loop_variable(value):
    """A loop variable without its symbolic initial value: coremltools might take it for that of all iterations."""
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
    """Unrolled if there are few iterations, else a loop that gathers its rows."""
    states = len(initial_state_and_scan_inputs) - num_scan_inputs
    state, sources = list(initial_state_and_scan_inputs[:states]), initial_state_and_scan_inputs[states:]
    axes = [a % s.rank for a, s in zip(scan_input_axes or (0,) * num_scan_inputs, sources, strict=True)]
    reversed_inputs = scan_input_directions or (0,) * num_scan_inputs
    sources = [mb.reverse(x=s, axes=[a]) if b else s for s, a, b in zip(sources, axes, reversed_inputs, strict=True)]
    steps = size(sources[0], axes[0])
    if isinstance(steps, int) and steps <= MAX_UNROLLED:
        rows = []
        for step in range(steps):
            results = body(*state, *(_slice_row(s, step, a) for s, a in zip(sources, axes, strict=True)))
            state, scanned = list(results[:states]), results[states:]
            rows.append(scanned)
        stacks = [_stacked(values) for values in zip(*rows, strict=True)]
    else:

        def iteration(i, continue_, *carried):
            picked = [_gather_row(s, i, a) for s, a in zip(sources, axes, strict=True)]
            return (continue_, *body(*carried, *picked))

        limit = mb.const(val=np.int32(steps)) if isinstance(steps, int) else steps
        results = _while(limit, None, tuple(state), iteration)
        state, stacks = results[:states], results[states:]
    out_axes, reverse = scan_output_axes or (0,) * len(stacks), scan_output_directions or (0,) * len(stacks)
    transposed = []
    for stack, axis, flip in zip(stacks, out_axes, reverse, strict=True):
        stack = mb.reverse(x=stack, axes=[0]) if flip else stack
        perm = list(range(1, stack.rank))
        perm.insert(axis % stack.rank, 0)
        transposed.append(mb.transpose(x=stack, perm=perm) if axis % stack.rank else stack)
    return (*state, *transposed)


def _slice_row(x, i, axis):
    return mb.slice_by_index(
        x=x, begin=[i if a == axis else 0 for a in range(x.rank)], end=[i + 1 if a == axis else 0 for a in range(x.rank)],
        begin_mask=[a != axis for a in range(x.rank)], end_mask=[a != axis for a in range(x.rank)],
        squeeze_mask=[a == axis for a in range(x.rank)],
    )  # fmt: skip


def _gather_row(x, i, axis):
    return mb.gather(x=x, indices=i, axis=axis)

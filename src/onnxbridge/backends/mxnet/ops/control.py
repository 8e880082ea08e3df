"""Control flow: subgraphs in the symbol. Scan and Loop run as `_foreach`, loops without a bound as `_while_loop`, If as `_cond`.

Under np-shape semantics MXNet has no arrays without dimensions at the boundary of a subgraph, so they have one dimension there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnxbridge.backends.mxnet.ops import computed_sizes as computed
from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.backends.mxnet.ops.dynamic_sizes import positions
from onnxbridge.backends.mxnet.ops.types import BOOL, cast, fixed, permuted, rank, reshaped
from onnxbridge.backends.mxnet.writer import Value, visited
from onnxbridge.errors import Unsupported
from onnxbridge.rules import Outputs

UNBOUNDED = 2**31 - 1
MOST_ITERATIONS = 1 << 16
"""Loops with a larger bound are expected to end before it."""


def _outside(sym, x):
    """A value as it crosses the boundary of a subgraph: with a dimension, and not bool."""
    if x.dtype == BOOL:
        x = cast(sym, x, np.float32)
    if sym.np_shape and x.shape == ():
        y = sym._np_reshape(x, newshape=(1,))
        y.dtype, y.shape = x.dtype, (1,)
        return y
    return x


def _inside(sym, x, like):
    """The value itself on the other side of the boundary."""
    y = x
    if sym.np_shape and like.shape == ():
        y = sym._np_reshape(x, newshape=())
        y.dtype, y.shape = x.dtype, ()
    if like.dtype == BOOL:
        y = cast(sym, y, BOOL)
    return Value(y.node, y.index, like.dtype, like.shape, y.graph)


def _unused(sym, values, heads):
    """Those variables of the subgraph being written that its results do not need."""
    needed = set(visited(sym.nodes, [sym.entry(h)[0] for h in heads]))
    return [v for v in values if v.node not in needed]


def _after(sym, result, values):
    """A result, with values as operands that do not count: MXNet needs states, and one item, to be used."""
    for value in values:
        first = sym.slice_axis(sym.Reshape(sym.zeros_like(value), shape=(-1,)), axis=0, begin=0, end=1)
        first.dtype = value.dtype
        y = sym._npi_add(result, cast(sym, first, result.dtype))
        y.dtype, y.shape = result.dtype, result.shape
        result = y
    return result


def foreach(sym, step, items, states, shapes=()):
    """Run `step(*items, *states) -> (*states, *results)` over the first axis of the items.

    `shapes` are those of the results of one iteration, where they are declared. Returns the stacked results of all iterations,
    and the last states.
    """
    count, start = len(items), [_outside(sym, s) for s in states]
    rows = [_row(sym, item) for item in items]
    found = []

    def body(*inner):
        given = [_inside(sym, v, r) for v, r in zip(inner, [*rows, *states], strict=True)]
        results = [r if isinstance(r, Value) else sym.literal(np.asarray(r)) for r in step(*given)]
        for i, shape in enumerate(shapes, len(states)):
            results[i] = replace(results[i], shape=shape) if results[i].shape is None else results[i]
        found.extend(results)
        ends = [_outside(sym, cast(sym, _like(r, s), s.dtype)) for r, s in zip(results, states, strict=False)]
        heads = [*(_outside(sym, r) for r in results[len(states) :]), *ends]
        unused = _unused(sym, inner[count:], heads)
        if len(_unused(sym, inner[:count], heads)) == count:
            unused = [inner[0], *unused]
        return [_after(sym, heads[0], unused), *heads[1:]]

    templates = [Value(None, 0, np.dtype(np.float32) if r.dtype == BOOL else r.dtype, r.shape) for r in (*rows, *start)]
    inner = sym.subgraph("_foreach", body, templates)
    variables = inner.variables
    taken = [i for i in range(count) if i in variables]
    results = len(found) - len(states)
    made = sym._foreach(
        *[_outside(sym, items[i]) for i in taken], *start, *inner.captured, num_outputs=len(found), num_out_data=results,
        in_data_locs=[variables.index(i) for i in taken],
        in_state_locs=[variables.index(count + i) for i in range(len(states))],
        remain_locs=[variables.index(-1 - i) for i in range(len(inner.captured))],
        subgraphs=[inner.content], outputs=len(found),
    )  # fmt: skip
    made = made if isinstance(made, tuple) else (made,)
    stacked = [_stacked(sym, m, r) for m, r in zip(made[:results], found[len(states) :], strict=True)]
    ends = []
    for value, state, like in zip(made[results:], found, states, strict=False):
        value.dtype = np.dtype(np.float32) if state.dtype == BOOL else state.dtype
        ends.append(_inside(sym, value, Value(None, 0, like.dtype, like.shape)))
    if items[0].shape is not None and items[0].shape[0] is None:  # MXNet does not initialize the states if there is no item
        some = _inside(sym, computed.less(sym, 0, computed.size_of(sym, items[0], 0)), Value(None, 0, BOOL, ()))
        ends = [_selected(sym, some, end, old) for end, old in zip(ends, states, strict=True)]
    return stacked, ends


def _like(result, state):
    """The next value of a state, which MXNet requires to have its shape."""
    return replace(result, shape=state.shape) if result.shape is None else result


def _row(sym, item):
    return Value(None, 0, item.dtype, None if item.shape is None else item.shape[1:])


def _stacked(sym, value, row):
    """The results of all iterations."""
    value.dtype = np.dtype(np.float32) if row.dtype == BOOL else row.dtype
    if row.shape == ():
        value = reshaped(sym, replace(value, shape=(None, 1)), (-1,))
        value.dtype = np.dtype(np.float32) if row.dtype == BOOL else row.dtype
    return cast(sym, value, row.dtype)


@rule("Scan")
def scan(
    sym, *initial_state_and_scan_inputs, body, num_scan_inputs, scan_input_axes=None, scan_input_directions=None,
    scan_output_axes=None, scan_output_directions=None,
):  # fmt: skip
    states = initial_state_and_scan_inputs[:-num_scan_inputs]
    items = []
    for i, x in enumerate(initial_state_and_scan_inputs[-num_scan_inputs:]):
        x = _moved(sym, x, scan_input_axes[i], 0) if scan_input_axes else x
        items.append(_reversed(sym, x) if scan_input_directions and scan_input_directions[i] else x)
    stacked, ends = foreach(sym, lambda *v: body(*v[len(items) :], *v[: len(items)]), items, states)
    for i, y in enumerate(stacked):
        y = _reversed(sym, y) if scan_output_directions and scan_output_directions[i] else y
        stacked[i] = _moved(sym, y, 0, scan_output_axes[i]) if scan_output_axes else y
    return *ends, *stacked


def _reversed(sym, x):
    y = sym.reverse(x, axis=(0,))
    y.dtype, y.shape = x.dtype, x.shape
    return y


def _moved(sym, x, source, target):
    """The axis `source` moved to `target`."""
    if source == target:
        return x
    order = [a for a in range(rank(x)) if a != source % rank(x)]
    order.insert(target % rank(x), source % rank(x))
    y = permuted(sym, x, order)
    y.dtype, y.shape = x.dtype, tuple(x.shape[a] for a in order)
    return y


@rule("Loop")
def loop(sym, M=None, cond=None, *v_initial, body, used: Outputs):
    """A loop with a known number of iterations is a `_foreach`, others are a `_while_loop`.

    Under np-shape semantics, `_foreach` runs up to a known bound and keeps the states once the condition is false.
    """
    count = len(v_initial)
    collected = [shape for shape, needed in zip(sym.expected[count:], used[count:], strict=True) if needed]
    bound = None if M is None or M.array is None else max(int(M.array.reshape(-1)[0]), 0)
    shapes = [None if shape is None else shape[1:] for shape in sym.expected[count:]]
    lengths = {shape[0] for shape in collected if shape and isinstance(shape[0], int)}
    if len(lengths) == 1:  # the declared shape says how often it runs
        (bound,) = lengths
        M, cond = sym.literal(np.array(bound, np.int64)), None

    def unbounded():
        return (_collecting if collected else _while)(sym, M, cond, v_initial, body, shapes)

    if bound == 0 and not collected:
        return v_initial
    if not bound or bound > MOST_ITERATIONS:
        return unbounded()
    steps = sym.literal(np.arange(bound, dtype=np.int64))
    active = sym.literal(np.array(True)) if cond is None else cond
    conditional = []

    def step(i, running, *states):
        onward, *results = body(i, running, *states)
        onward = onward if isinstance(onward, Value) else sym.literal(np.asarray(onward, bool))
        same = onward.node is not None and onward.node == running.node and onward.graph is running.graph
        conditional.append(not (same or _is_true(onward) or lengths))
        if not conditional[-1]:
            return (running, *results)
        kept = [_selected(sym, running, new, old) for new, old in zip(results, states, strict=False)]
        return (_both(sym, running, onward), *kept, *results[count:])

    stacked, ends = foreach(sym, step, [steps], [active, *v_initial], shapes)
    if conditional[0] and (collected or not (sym.np_shape or _is_repeated(sym))):
        return unbounded()
    if not conditional[0] and not _is_true(active):
        if collected:
            return unbounded()
        ends = [_selected(sym, active, end, old) for end, old in zip(ends, [active, *v_initial], strict=True)]
    return *ends[1:], *stacked


def _is_true(value):
    return value is not None and value.array is not None and bool(np.all(value.array))


def _selected(sym, condition, new, old):
    y = sym._npi_where(condition, new, old)
    y.dtype, y.shape = old.dtype, old.shape
    return y


def _both(sym, a, b):
    y = sym._npi_multiply(cast(sym, a, np.float32), cast(sym, b, np.float32))
    y.dtype, y.shape = np.dtype(np.float32), a.shape
    return cast(sym, y, BOOL)


def _collecting(sym, M, cond, states, body, shapes):
    """A loop without a known bound that collects results: `_while_loop` counts the iterations, `_foreach` repeats them.

    The results of MXNet's `_while_loop` have as many rows as it may run at the most, all of which it allocates, and those of
    iterations that did not run are not initialized.
    """
    count, *ends = _counted(sym, M, cond, states, body, repeated=True)

    def step(i, *now):
        return body(i, sym.literal(np.array(True)), *now)[1:]

    stacked, _ = foreach(sym, step, [positions(sym, count)], states, shapes)
    return *ends, *stacked


def _while(sym, M, cond, states, body, shapes):
    """A loop without a known bound, of states only."""
    return _counted(sym, M, cond, states, body)[1:]


def _is_repeated(sym):
    """Whether the body of a `_foreach` is being written, in which MXNet cannot infer the shapes of a `_while_loop`."""
    return any(graph.operator == "_foreach" for graph in sym.graphs)


def _is_random(content):
    """Whether a subgraph draws random numbers."""
    nodes = content["nodes"]
    return any("random" in n["op"] or n["op"] == "Dropout" or any(map(_is_random, n.get("subgraphs", ()))) for n in nodes)


def _counted(sym, M, cond, states, body, repeated=False):
    """The number of iterations of a loop, and its last states. Its iterations may be `repeated` if they compute the same then."""
    if _is_repeated(sym):
        reason = "a loop without a known bound inside one that has a bound, or collects results"
        raise Unsupported(reason, "make the inner trip count a constant")
    first = [sym.literal(np.zeros((), np.int64)), sym.literal(np.array(True)) if cond is None else cond, *states]
    count = None if M is None else cast(sym, M, np.int64)
    start = [_outside(sym, s) for s in first]

    def goes_on(i, condition, *rest):
        if count is None:
            return [_after(sym, condition, [i, *rest])]
        less = sym._npi_less(i, count)
        less.dtype = BOOL
        y = sym._npi_multiply(cast(sym, less, np.float32), condition)
        y.dtype = np.dtype(np.float32)
        return [_after(sym, y, rest)]

    def step(*inner):
        i, running, *now = [_inside(sym, v, f) for v, f in zip(inner, first, strict=True)]
        onward, *results = body(i, running, *now)
        following = sym._plus_scalar(i, scalar=1)
        following.dtype = np.dtype(np.int64)
        kept = (following, onward, *results[: len(states)])  # what a loop collects, nobody reads here
        ends = [r if isinstance(r, Value) else sym.literal(np.asarray(r)) for r in kept]
        heads = [_outside(sym, cast(sym, r, f.dtype)) for r, f in zip(ends, first, strict=True)]
        return [_after(sym, heads[0], _unused(sym, inner, heads)), *heads[1:]]

    def variables(graph):
        return [graph.variables.index(p) for p in range(len(first)) if p in graph.variables]

    templates = [Value(None, 0, s.dtype, s.shape) for s in start]
    test, work = (sym.subgraph("_while_loop", f, templates) for f in (goes_on, step))
    if repeated and _is_random(work.content):
        reason = "a loop that draws random numbers, collects results and has no known bound"
        raise Unsupported(reason, "make the trip count a constant")
    captured = [*test.captured, *work.captured]
    shift = len(first), len(first) + len(test.captured)
    made = sym._while_loop(
        *start, *captured, num_outputs=len(first), num_out_data=0, max_iterations=UNBOUNDED,
        cond_input_locs=[v if v >= 0 else shift[0] - 1 - v for v in test.variables],
        func_input_locs=[v if v >= 0 else shift[1] - 1 - v for v in work.variables], func_var_locs=variables(work),
        subgraphs=[test.content, work.content], outputs=len(first),
    )  # fmt: skip
    for value, state in zip(made, start, strict=True):
        value.dtype = state.dtype
    _, _, *ends = (_inside(sym, v, f) for v, f in zip(made, first, strict=True))
    return Value(made[0].node, made[0].index, np.dtype(np.int64), (1,), made[0].graph), *ends


@rule("If")
def if_(sym, cond, *, then_branch, else_branch):
    """A condition that is known selects a branch. Under np-shape semantics both branches are computed."""
    if cond.array is not None:
        return (then_branch if bool(cond.array.reshape(-1)[0]) else else_branch)()
    if sym.np_shape:
        pairs = list(zip(then_branch(), else_branch(), strict=True))
        results = [[r if isinstance(r, Value) else sym.literal(np.asarray(r)) for r in pair] for pair in pairs]
        for a, b in results:
            if fixed(a) != fixed(b):
                raise Unsupported("branches whose results differ in shape")
        return tuple(_selected(sym, cond, a, b) for a, b in results)
    condition = _outside(sym, cond)
    dtypes = []

    def test(c):
        return [c]

    def branch(function):
        def run():
            results = [r if isinstance(r, Value) else sym.literal(np.asarray(r)) for r in function()]
            dtypes.append([(r.dtype, r.shape) for r in results])
            return [_outside(sym, r) for r in results]

        return sym.subgraph("_cond", run, [])

    asked, then, other = sym.subgraph("_cond", test, [condition]), branch(then_branch), branch(else_branch)
    if any(a[1] != b[1] and None not in (a[1], b[1]) for a, b in zip(*dtypes, strict=True)):
        raise Unsupported("branches whose results differ in shape")
    first = 1 + len(then.captured)
    made = sym._cond(
        condition, *then.captured, *other.captured, num_outputs=len(then.results), cond_input_locs=[0],
        then_input_locs=[-v for v in then.variables], else_input_locs=[first - 1 - v for v in other.variables],
        subgraphs=[asked.content, then.content, other.content], outputs=len(then.results),
    )  # fmt: skip
    made = made if isinstance(made, tuple) else (made,)
    for value, (dtype, _) in zip(made, dtypes[0], strict=True):
        value.dtype = np.dtype(np.float32) if dtype == BOOL else dtype
    return tuple(_inside(sym, v, Value(None, 0, *d)) for v, d in zip(made, dtypes[0], strict=True))

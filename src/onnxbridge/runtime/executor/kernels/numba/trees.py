"""Evaluation of tree ensembles: the sums of the leaves' weights, and scores and labels from them.

A node is 16 bytes: where it splits (float32), on which feature, and the nodes for at most and for above that. A leaf leads to
itself. Eight rows are evaluated at once, to hide the latency of memory.
"""

from __future__ import annotations

import numpy as np

from onnxbridge.runtime.executor.kernels.compile.jit import entry, helper
from onnxbridge.runtime.executor.kernels.numba.memory import doubles, floats, ints, longs

_NO_WAY = np.int64(1)


@helper
def below(x, node, nodes):
    """The node after this one for a row that has no NaN."""
    n = nodes + 16 * node
    return np.int64(ints(n)[2 + np.int64(floats(x + 4 * np.int64(ints(n)[1]))[0] > floats(n)[0])])


@helper
def weigh(total, leaf, first, targets, weights):
    """Add a leaf's weights to a row's sums."""
    f, t, w, s = longs(first), longs(targets), doubles(weights), doubles(total)
    for k in range(f[leaf], f[leaf + 1]):
        s[t[k]] += w[k]


@helper
def finish(s, count, kind):
    """The scores of a row after NONE, LOGISTIC, SOFTMAX or SOFTMAX_ZERO."""
    if kind == 1:
        for k in range(count):
            s[k] = 1.0 / (1.0 + np.exp(-s[k]))
    elif kind != 0:
        top = s[0]
        for k in range(count):
            top = s[k] if s[k] > top else top
        total = 0.0
        for k in range(count):
            s[k] = np.exp(s[k] - top) if kind == 2 or abs(s[k]) > 1e-7 else s[k] * np.exp(-top)
            total += s[k]
        for k in range(count):
            s[k] = 0.5 if total == 0.0 else s[k] / total


@entry("ppppppppppppppu")
def ensemble(
    x, y, labels, names, nodes, absent, roots, first, targets, weights, base, threshold, scratch_base, spec, unit, thread,
):  # fmt: skip
    """A piece of rows; `absent` has each node's successor for NaN, `threshold` the label's where one class has scores."""
    p = longs(spec)
    rows, features, trees, count, chunk = p[0], p[1], p[2], p[3], p[4]
    average, kind, other, width = p[5], p[6], p[7], p[8]
    scratch = scratch_base + 8 * thread * (chunk + 1) * width
    begin = unit * chunk
    size = min(chunk, rows - begin)
    totals, b, r = doubles(scratch), doubles(base), longs(roots)
    for i in range(size * count):
        totals[i] = 0.0
    some = floats(x + 4 * begin * features)
    strange = 0
    for i in range(size * features):
        strange += np.int64(some[i] != some[i])
    eight = size // 8 * 8 if strange == 0 else 0
    row = 4 * features
    for tree in range(trees):
        root = r[tree]
        for i in range(0, eight, 8):
            at = x + row * (begin + i)
            a0, a1, a2, a3, a4, a5, a6, a7 = root, root, root, root, root, root, root, root
            moved = _NO_WAY
            while moved != 0:
                b0, b1 = below(at, a0, nodes), below(at + row, a1, nodes)
                b2, b3 = below(at + 2 * row, a2, nodes), below(at + 3 * row, a3, nodes)
                b4, b5 = below(at + 4 * row, a4, nodes), below(at + 5 * row, a5, nodes)
                b6, b7 = below(at + 6 * row, a6, nodes), below(at + 7 * row, a7, nodes)
                moved = (a0 ^ b0) | (a1 ^ b1) | (a2 ^ b2) | (a3 ^ b3) | (a4 ^ b4) | (a5 ^ b5) | (a6 ^ b6) | (a7 ^ b7)
                a0, a1, a2, a3, a4, a5, a6, a7 = b0, b1, b2, b3, b4, b5, b6, b7
            to, step = scratch + 8 * i * count, 8 * count
            weigh(to, a0, first, targets, weights)
            weigh(to + step, a1, first, targets, weights)
            weigh(to + 2 * step, a2, first, targets, weights)
            weigh(to + 3 * step, a3, first, targets, weights)
            weigh(to + 4 * step, a4, first, targets, weights)
            weigh(to + 5 * step, a5, first, targets, weights)
            weigh(to + 6 * step, a6, first, targets, weights)
            weigh(to + 7 * step, a7, first, targets, weights)
        for i in range(eight, size):
            at = x + row * (begin + i)
            node = root
            moved = _NO_WAY
            while moved != 0:
                value = floats(at + 4 * np.int64(ints(nodes + 16 * node)[1]))[0]
                after = below(at, node, nodes) if value == value else np.int64(ints(absent)[node])
                moved = node ^ after
                node = after
            weigh(scratch + 8 * i * count, node, first, targets, weights)
    scores = doubles(scratch + 8 * chunk * width)
    out = floats(y + 4 * begin * width)
    for i in range(size):
        for k in range(count):
            t = totals[i * count + k]
            scores[k] = (t / np.float64(trees) if average != 0 else t) + b[k]
        if labels != 0:
            best = 0
            if count < width:  # two classes, the second's score
                one = scores[0]
                best = np.int64(one > doubles(threshold)[0])
                scores[0] = 0.0 if other == 0 else (-one if other == 1 else 1.0 - one)
                scores[1] = one
            else:
                for k in range(1, count):
                    known = scores[best] == scores[best]
                    best = k if known and (scores[k] > scores[best] or scores[k] != scores[k]) else best
            longs(labels)[begin + i] = longs(names)[best]
        finish(scores, width, kind)
        for k in range(width):
            out[i * width + k] = np.float32(scores[k])

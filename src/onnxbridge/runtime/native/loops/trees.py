"""Walking tree ensembles."""

from __future__ import annotations

from onnxbridge.runtime.native.loops.data import doubles, longs


def leaves(x, rows, features, roots, trees, mode, feature, split, yes, no, missing, most, reached, status, chunk, unit, part):
    """The leaf of each row in each tree, (rows, trees); the status is set to 1 if a walk takes more than `most` steps."""
    data, s = doubles(x), doubles(split)
    r, m, f, y, n, g, out = longs(roots), longs(mode), longs(feature), longs(yes), longs(no), longs(missing), longs(reached)
    for tree in range(trees):
        for row in range(unit * chunk, min(rows, (unit + 1) * chunk)):
            at = r[tree]
            steps = 0
            while m[at] != 7:
                v, t, kind = data[row * features + f[at]], s[at], m[at]
                if kind == 0:
                    holds = v <= t
                elif kind == 1:
                    holds = v < t
                elif kind == 2:
                    holds = v >= t
                elif kind == 3:
                    holds = v > t
                elif kind == 4:
                    holds = v == t
                else:
                    holds = v != t
                if v != v and g[at] != 0:
                    holds = True
                at = y[at] if holds else n[at]
                steps += 1
                if steps > most:
                    longs(status)[0] = 1
                    return
            out[row * trees + tree] = at

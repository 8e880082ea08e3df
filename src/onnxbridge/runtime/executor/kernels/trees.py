"""Tree ensembles on float32, packed for the kernel that evaluates them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.kernels.array_layout import Array, address, plain
from onnxbridge.runtime.executor.kernels.compile.kernel import load_kernel
from onnxbridge.runtime.executor.kernels.run.call_recorder import int64_array
from onnxbridge.runtime.executor.kernels.run.thread_pool import threads
from onnxbridge.runtime.executor.kernels.run.work_partition import chunks
from onnxbridge.runtime.executor.numpy.kernels.forest import LEAF, MODES, Ensemble, Forest

TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
_ROWS = 128  # that are evaluated in one tree after the other
_MOST = 1 << 30  # nodes that can be numbered


@dataclass(frozen=True)
class Scores:
    """How sums become scores: averaged or not, plus `base`, then a transform of `width` scores.

    A classifier has `labels`, and where only one of two classes has a score, a threshold and what the other gets: "0", "-", "1-".
    """

    width: int
    base: Array
    transform: str
    average: bool = False
    labels: Array | None = None
    threshold: float | None = None
    other: str = ""


def fits(trees: Ensemble) -> bool:
    """Whether an ensemble can be packed: comparisons with float32 only."""
    split = trees.forest.split
    with np.errstate(over="ignore"):
        exact = split.astype(np.float32).astype(np.float64)
    return not trees.forest.members and bool(((exact == split) | np.isnan(split)).all()) and len(split) < _MOST


def ensemble(trees: Ensemble, scores: Scores, pool: Pool) -> Callable[[Array], Any]:
    """The function of x (rows, features): the scores, or the labels and the scores."""
    nodes, absent = _packed(trees.forest)
    trees.forest.depth()  # refuses trees that go in circles
    first = np.concatenate((trees.first, np.full(len(nodes) + 1 - len(trees.first), trees.first[-1])))
    count = scores.width if scores.threshold is None else 1
    base = np.zeros(count)
    base[:] = scores.base if scores.base.size else 0
    limit = np.array([scores.threshold or 0.0])
    names = np.zeros(1, np.int64) if scores.labels is None else np.ascontiguousarray(scores.labels, np.int64)
    parts = (nodes, absent, trees.forest.roots, first, trees.targets, trees.weights, base, limit, names)
    retained = [np.ascontiguousarray(p) for p in parts]
    *where, at_names = map(address, retained)
    features, roots = int(nodes[:, 1].max(initial=0)) + 1, len(trees.forest.roots)
    other = ("0", "-", "1-", "").index(scores.other)
    run = load_kernel("trees", "ensemble")

    def walk(x: Array) -> Any:
        if x.ndim != 2 or x.dtype != np.float32 or x.shape[1] < features:
            raise ValueError(f"trees that look at {features} features do not fit {x.dtype} of {x.shape}")
        rows, width = x.shape[0], scores.width
        claim((rows, width), np.float64)
        x = plain(x, pool)
        y = pool.empty((rows, width))
        labels = None if scores.labels is None else pool.empty((rows,), np.int64)
        chunk = min(chunks(rows, 16 * roots)[0], _ROWS)
        kind = TRANSFORMS.index(scores.transform)
        spec, at = int64_array(rows, x.shape[1], roots, count, chunk, int(scores.average), kind, other, width)
        buffer, scratch = pool.scratch(8 * (chunk + 1) * width * threads())
        to = 0 if labels is None else address(labels)
        run(address(x), address(y), to, at_names, *where, scratch, at, units=-(-rows // chunk))
        del buffer, spec  # keep the memory alive until here
        return y if labels is None else (labels, y)

    walk.retained = retained  # type: ignore[attr-defined]
    walk.how = ("eight rows at once", roots)  # type: ignore[attr-defined]
    return walk


def _packed(forest: Forest) -> tuple[Array, Array]:
    """Nodes as the kernel reads them, and each node's successor for NaN. Other comparisons become <= or >, or two nodes."""
    split, mode = forest.split.astype(np.float32), forest.mode
    here = np.arange(len(mode))
    yes, no = (np.where(mode == LEAF, here, side) for side in (forest.yes, forest.no))
    absent = np.where(forest.missing | (mode == MODES.index("BRANCH_NEQ")), yes, no)
    down = np.nextafter(split, np.float32(-np.inf))
    lower, upper, at = no.copy(), no.copy(), split.copy()  # a split at NaN holds for nothing but "not equal"
    for name, low, high, place in (
        ("LEQ", yes, no, split), ("GT", no, yes, split), ("LT", yes, no, down), ("GTE", no, yes, down),
    ):  # fmt: skip
        chosen = (mode == MODES.index("BRANCH_" + name)) & ~np.isnan(split)
        lower[chosen], upper[chosen], at[chosen] = low[chosen], high[chosen], place[chosen]
        if place is down:  # nothing is less than -inf
            lowest = chosen & np.isneginf(split)
            lower[lowest] = high[lowest]
    extra: list[tuple[Any, ...]] = []
    for name, same, differs in (("BRANCH_EQ", yes, no), ("BRANCH_NEQ", no, yes)):
        for k in np.flatnonzero(mode == MODES.index(name)).tolist():
            upper[k] = differs[k]
            if np.isnan(split[k]):
                lower[k] = differs[k]
                continue
            lower[k] = len(mode) + len(extra)  # at most the split; a second node compares with less
            less = same[k] if np.isneginf(split[k]) else differs[k]
            extra.append((down[k], forest.feature[k], less, same[k], absent[k]))
    nodes = np.empty((len(mode) + len(extra), 4), np.int32)
    nodes[: len(mode), 0] = np.where(np.isnan(at), np.float32(0), at).astype(np.float32).view(np.int32)
    feature = np.where(mode == LEAF, 0, forest.feature)
    nodes[: len(mode), 1], nodes[: len(mode), 2], nodes[: len(mode), 3] = feature, lower, upper
    for k, (place, looked, low, high, _) in enumerate(extra, len(mode)):
        nodes[k] = np.float32(place).view(np.int32), looked, low, high
    return nodes, np.concatenate((absent, [e[4] for e in extra])).astype(np.int32)

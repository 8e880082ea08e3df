"""Samples that the reference runs on: some models accept only sorted integers, or no random ones at all."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import VerificationError
from onnxbridge.runtime.verify.rounding.tolerance import Rounding
from onnxbridge.runtime.verify.runner import Arrays, Runner, run
from onnxbridge.runtime.verify.samples.random_inputs import Bounds, row_splits
from onnxbridge.runtime.verify.samples.sizes import draw_samples, dynamic

ResultCache = deque[tuple[Arrays, Mapping[str, Any]]]
CACHED_RUNS = 6  # results of the reference on inputs that were tried, so that these are not run again


def accepted_samples(
    model: ir.Model, samples: int, seed: int, bounds: Bounds, estimator: Rounding, reference: Runner, cache: ResultCache,
    guess: bool,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Samples that the reference accepts: with the model's own constants among them, else without. With `guess`, where the user
    gave no example, simpler values are tried last."""
    fit = _sample_fit(model, estimator, reference, cache)

    def fits(feed: Arrays) -> bool:
        if not estimator.reason and not any(tried is feed for tried, _ in cache):
            estimator.fit(feed)  # first, since the executor has a budget and the frameworks have none
        return any(tried is feed for tried, _ in cache) or accepts(reference, feed, cache)

    made, notes = draw_samples(model.graph, samples, seed, bounds, fit)
    if all(map(fits, made)):
        return made, notes
    plain, others = draw_samples(model.graph, samples, seed, bounds, fit, special=False)
    if all(map(fits, plain)):
        return plain, [*others, f"the model's own constants are not among the inputs, since {reference.title} fails on them"]
    for what, change in _SIMPLER_VALUES if guess else ():
        changed = [change(feed) for feed in plain]
        if all(map(fits, changed)):
            return changed, [*others, f"{what}, since {reference.title} fails on others"]
    return made, notes


def _each(change: Callable[[Any], Any], kinds: str) -> Callable[[Arrays], dict[str, Any]]:
    """A change of each array of these kinds of dtypes."""

    def of_feed(feed: Arrays) -> dict[str, Any]:
        changes = {k: np.asarray(change(v)) for k, v in feed.items() if isinstance(v, np.ndarray) and v.dtype.kind in kinds}
        return {**feed, **changes}

    return of_feed


def _small(value: Any) -> Any:
    """Integers become 0, floating-point numbers lie between 0 and 1."""
    return np.zeros_like(value) if value.dtype.kind in "iu" else np.clip(np.abs(value), 0.01, 0.99).astype(value.dtype)


def _rows(feed: Arrays) -> dict[str, Any]:
    """Vectors of integers become the row splits of the elements along the first axis of another input."""
    rng = np.random.default_rng(0)
    end = next((len(v) for v in feed.values() if isinstance(v, np.ndarray) and v.ndim and not _is_vector(v)), None)
    end = next((len(v) for v in feed.values() if np.ndim(v)), 0) if end is None else end
    return {k: row_splits(rng, len(v), end).astype(v.dtype) if _is_vector(v) else v for k, v in feed.items()}


def _is_vector(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iu"


def _lengths(feed: Arrays) -> dict[str, Any]:
    """The same as the lengths of the rows."""
    longer = {k: np.append(v, v[:1]) if _is_vector(v) else v for k, v in feed.items()}
    return {k: np.diff(v).astype(v.dtype) if _is_vector(v) else v for k, v in _rows(longer).items()}


_SIMPLER_VALUES: tuple[tuple[str, Callable[[Arrays], dict[str, Any]]], ...] = (
    ("integers ascend", _each(lambda v: np.sort(v) if v.ndim else v, "iu")),
    ("integers are the splits of rows", _rows),
    ("integers are the lengths of rows", _lengths),
    ("integers are 1 and more", _each(lambda v: np.maximum(v, v.dtype.type(1)), "iu")),
    ("integers are 0 and other numbers between 0 and 1", _each(_small, "iuf")),
)
"""Conditions that inputs may have to meet without a trace in the graph."""


def _sample_fit(model: ir.Model, rounding: Rounding, reference: Runner, cache: ResultCache) -> Callable[[Arrays], int]:
    """A function that returns how a sample suits the model: 2 if it produces output, 1 if empty output or NaN, 0 if it fails."""

    def fit(feed: Arrays) -> int:
        if rounding.reason or not dynamic(model.graph):
            return 2
        found = rounding.fit(feed)
        return found if found and accepts(reference, feed, cache) else 0

    return fit


def with_example_integers(
    reference: Runner, samples: Sequence[Arrays], first: Arrays, cache: ResultCache
) -> tuple[list[Arrays], list[str]]:
    """The samples, with the integers of the user's example where the reference does not accept random ones."""
    found = []
    notes = []
    for feed in samples:
        integers = [k for k, v in feed.items() if np.asarray(v).dtype.kind in "iub" and np.size(first.get(k, ()))]
        if integers and not any(tried is feed for tried, _ in cache) and not accepts(reference, feed, cache):
            own = {name: np.resize(first[name], np.shape(feed[name])) for name in integers}
            if accepts(reference, {**feed, **own}, cache):
                feed = cache[-1][0]
                notes = [f"integers are the example's ({', '.join(integers)}), since {reference.title} fails on others"]
        found.append(feed)
    return found, notes


def accepts(runner: Runner, feed: Arrays, cache: ResultCache) -> bool:
    """Whether a model runs on these inputs; its results are added to `cache`."""
    try:
        cache.append((feed, run(runner, feed)))
    except VerificationError:
        return False
    return True

"""Chooses sample sizes at which the model produces output.

Nothing in a model says which sizes it accepts: a network that halves images needs large ones, a text recognizer accepts a single
height, and a dimension without a name may have to be as large as another. So sizes are tried.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import LimitError
from onnxbridge.runtime.verify.samples.random_inputs import LEAST, Bounds, elements, samples_for

Feeds = dict[str, Any]
BOTH, ONE, NOTHING, FAILS = 3, 2, 1, 0
"""At how many of the two sizes the model produces output, or that it fails."""
BATCHES = (2, 1)
"""Batch sizes to try; 1 is for models that accept no other."""
_MANY = 3
_MOST_ELEMENTS = 1 << 24
"""Inputs with more elements are not tried where smaller ones fail."""
_TIMES_LARGER, _WORK = 8, 1 << 32
"""The largest sizes are verified if inputs grow at most `_TIMES_LARGER` times, or inputs times weights are at most `_WORK`."""


def draw_samples(
    graph: ir.Graph, samples: int, seed: int, bounds: Bounds | None, fit: Callable[[Feeds], int], special: bool = True
) -> tuple[list[Feeds], list[str]]:
    """Seeded samples at the smallest sizes at which the model produces output, and notes for the report.

    `fit` returns how a sample suits the model: 2 if it produces output, 1 if empty output or NaN, 0 if it fails.
    """
    best, found = -1, samples_for(graph, samples, seed, bounds, special=special)
    shapes = {v.name or "": [d if isinstance(d, int) else d.value for d in v.shape or ()] for v in graph.inputs}
    for short in small_dimensions(shapes):
        for batch, least in itertools.product(BATCHES, LEAST):
            if least > LEAST[0] and elements(graph, bounds, least, batch, short) > _MOST_ELEMENTS:
                continue
            feeds = samples_for(graph, samples, seed, bounds, least, batch, short, special=special)
            try:
                fits = [fit(feed) for feed in feeds[:2]]
            except LimitError:
                if least == LEAST[0]:
                    raise
                break  # smaller sizes fail, and these exceed the budget
            fit_of_both = BOTH if min(fits) == 2 else ONE if max(fits) == 2 else max(fits)
            if fit_of_both > best:
                parity = fits.index(2) if fit_of_both == ONE else None
                best, found = fit_of_both, feeds
                if parity is not None:
                    found = samples_for(graph, samples, seed, bounds, least, batch, short, parity, special)
            elif best == ONE:
                break  # larger sizes are no better
            if best == BOTH:
                return found, []
        if best == ONE:
            found = _with_varied_sizes(graph, found, seed, bounds, fit, special)
            fixed = [f"{name} was {size} in every sample" for name, size in never_varied(graph, found).items()]
            return found, [f"{', '.join(fixed)}, since the model fails at the other sizes that were tried"] if fixed else []
    return found, []


_NAME = re.compile(r"[A-Za-z_][\w.:]*")  # of a size, not a sum or product of others


def sizes_of(graph: ir.Graph, feed: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of the dynamic dimensions in a sample; one without a name is called by input and axis, as "state.1"."""
    found: dict[str, int] = {}
    for value in graph.inputs:
        shape = np.shape(feed[value.name or ""]) if value.shape is not None and value.name in feed else ()
        for axis, (dim, size) in enumerate(zip(value.shape or (), shape, strict=False)):
            if not isinstance(dim, int) and (dim.value is None or _NAME.fullmatch(dim.value)):
                found.setdefault(dim.value or f"{value.name}.{axis}", size)
    return found


def never_varied(graph: ir.Graph, feeds: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The dynamic dimensions of equal size in all samples, with that size."""
    first, *others = [sizes_of(graph, feed) for feed in feeds] or [{}]
    return {name: size for name, size in first.items() if all(other.get(name) == size for other in others)}


def varied(graph: ir.Graph, feeds: Sequence[Mapping[str, Any]]) -> dict[str, tuple[int, ...]]:
    """The dynamic dimensions of several sizes in the samples, with these sizes in ascending order."""
    found: dict[str, set[int]] = {}
    for feed in feeds:
        for name, size in sizes_of(graph, feed).items():
            found.setdefault(name, set()).add(size)
    return {name: tuple(sorted(sizes)) for name, sizes in found.items() if len(sizes) > 1}


_COMMON_SIZES = (48, 32, 224, 128, 96, 16)
"""Common sizes, to try on models that fail at all but one."""


def _with_varied_sizes(
    graph: ir.Graph, feeds: list[Feeds], seed: int, bounds: Bounds | None, fit: Callable[[Feeds], int], special: bool
) -> list[Feeds]:
    """Samples of a model that runs at one combination of sizes, where every second one varies the dimensions that can be
    varied."""
    base = sizes_of(graph, feeds[0])

    def samples_at(sizes: Mapping[str, int]) -> list[Feeds]:
        exactly = {name: (size, size) for name, size in sizes.items()}
        return samples_for(graph, len(feeds), seed, exactly, special=special)

    changes: dict[str, int] = {}
    for name, size in list(base.items())[:_MOST_VARIED]:
        low, high = (bounds or {}).get(name, (1, None))
        for other in dict.fromkeys((size + 1, 2 * size, size + 32, *_COMMON_SIZES)):
            if other == size or other < low or (high is not None and other > high):
                continue
            if fit(samples_at({**base, name: other})[0]) == 2:
                changes[name] = other
                break
    if not changes:
        return feeds
    together = samples_at({**base, **changes})
    one_at_a_time = fit(together[0]) != 2
    others = [samples_at({**base, name: size}) for name, size in changes.items()] if one_at_a_time else [together]
    return [feed if i % 2 == 0 else others[i // 2 % len(others)][i] for i, feed in enumerate(samples_at(base))]


_MOST_VARIED = 6
"""The number of dimensions whose sizes are varied one by one."""


def extreme_samples(
    graph: ir.Graph, typical: Sequence[Feeds], seed: int, bounds: Bounds, extremes: Sequence[Bounds],
    runs: Callable[[Feeds], bool],
) -> tuple[list[Feeds], list[str]]:
    """A sample of the smallest and of the largest sizes, unless it is too large to run, and notes for the report.

    `runs` returns whether the source runs on a sample: the bounds may be wider than what it accepts.
    """
    weights = sum(v.const_value.size for v in graph.initializers.values() if v.const_value is not None)
    most = max(map(_elements, typical), default=0)
    found: list[Feeds] = []
    notes = []
    for sizes in extremes:
        named = ", ".join(f"{name}={low}" for name, (low, _) in sizes.items())
        (feed,) = samples_for(graph, 1, seed, {**bounds, **sizes})
        if any(_shapes(feed) == _shapes(other) for other in (*typical, *found)):
            continue
        if _elements(feed) > _TIMES_LARGER * most and _elements(feed) * weights > _WORK:
            notes.append(f"not verified at {named}, where the inputs are {_elements(feed) / max(most, 1):.0f} times as large")
        elif not runs(feed):
            notes.append(f"not verified at {named}, where the source itself does not run")
        else:
            found.append(feed)
    return found, notes


def _elements(feed: Feeds) -> int:
    return sum(np.size(v) for v in feed.values())


def _shapes(feed: Feeds) -> list[tuple[int, ...]]:
    return [np.shape(v) for v in feed.values()]


def dynamic(graph: ir.Graph) -> bool:
    """Whether an input has a dynamic dimension."""
    return any(not isinstance(d, int) for v in graph.inputs for d in v.shape or ())


def small_dimensions(inputs: Mapping[str, Sequence[int | str | None]]) -> Iterator[frozenset[str]]:
    """Sets of dynamic dimensions after the first that may be as small as a batch: the empty set, then larger ones.

    A dimension without a name is called by input and axis, as "state.1".
    """
    firsts = {d for dims in inputs.values() for d in dims[:1] if isinstance(d, str)}
    keys: Sequence[str] = list(dict.fromkeys(
        d or f"{name}.{axis}"
        for name, dims in inputs.items() for axis, d in enumerate(dims)
        if axis and not isinstance(d, int) and (d is None or d not in firsts)
    ))  # fmt: skip
    yield frozenset()
    for count in range(1, len(keys) + 1) if len(keys) <= _MANY else (1, len(keys)):
        yield from map(frozenset, itertools.combinations(keys, count))

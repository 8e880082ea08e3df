"""Which samples a verification draws: those of sizes that the model computes something of.

Nothing in a model says which sizes it takes: a network that halves images needs large ones, one that reads lines of text takes a
single height, and a dimension without a name may have to be as large as another one. So sizes are tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import LimitError
from onnxbridge.runtime.verify.sample_inputs import LEAST, Bounds, elements, samples_for

Feeds = dict[str, Any]
BOTH, ONE, NOTHING, FAILS = 3, 2, 1, 0
"""How well samples do: of both sizes the model computes something, of one, of none, or it fails."""
BATCHES = (2, 1)
"""What to try as the size of a batch; that of 1 is for models that take no other."""
_MANY = 3
_MOST_ELEMENTS = 1 << 24
"""Larger inputs than these are not tried where smaller ones fail."""
_LARGER, _WORK = 8, 1 << 32
"""Inputs of the largest sizes are run where they are at most so much larger, or where a product with every weight is so few."""


def drawn(
    graph: ir.Graph, samples: int, seed: int, bounds: Bounds | None, fit: Callable[[Feeds], int], special: bool = True
) -> tuple[list[Feeds], list[str]]:
    """Seeded samples at the least sizes of which the model computes something, and what is to be noted of them.

    `fit` tells how the model takes a sample: 2 if it computes something, 1 if nothing, 0 if it fails.
    """
    best, found = -1, samples_for(graph, samples, seed, bounds, special=special)
    for short in shorts({v.name or "": [d if isinstance(d, int) else d.value for d in v.shape or ()] for v in graph.inputs}):
        for batch, least in itertools.product(BATCHES, LEAST):
            if least > LEAST[0] and elements(graph, bounds, least, batch, short) > _MOST_ELEMENTS:
                continue
            feeds = samples_for(graph, samples, seed, bounds, least, batch, short, special=special)
            try:
                fits = [fit(feed) for feed in feeds[:2]]
            except LimitError:
                if least == LEAST[0]:
                    raise
                break  # smaller ones fail, and these ask for too much
            how = BOTH if min(fits) == 2 else ONE if max(fits) == 2 else max(fits)
            if how > best:
                turn = fits.index(2) if how == ONE else None
                best, found = how, feeds
                if turn is not None:
                    found = samples_for(graph, samples, seed, bounds, least, batch, short, turn, special)
            elif best == ONE:
                break  # larger ones do no better
            if best == BOTH:
                return found, []
        if best == ONE:
            found = _varied(graph, found, seed, bounds, fit, special)
            fixed = [f"{name} was {size} in every sample" for name, size in never_varied(graph, found).items()]
            return found, [f"{', '.join(fixed)}, since the model fails at the other sizes that were tried"] if fixed else []
    return found, []


def sizes_of(graph: ir.Graph, feed: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of the dynamic dimensions in a sample; those without a name are called as in "state.1"."""
    found: dict[str, int] = {}
    for value in graph.inputs:
        shape = np.shape(feed[value.name or ""]) if value.shape is not None and value.name in feed else ()
        for axis, (dim, size) in enumerate(zip(value.shape or (), shape, strict=False)):
            if not isinstance(dim, int) and (dim.value is None or dim.value.isidentifier()):
                found.setdefault(dim.value or f"{value.name}.{axis}", size)
    return found


def never_varied(graph: ir.Graph, feeds: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The dynamic dimensions that have the same size in all samples, with that size."""
    first, *others = [sizes_of(graph, feed) for feed in feeds] or [{}]
    return {name: size for name, size in first.items() if all(other.get(name) == size for other in others)}


_OTHERS = (48, 32, 224, 128, 96, 16)
"""Sizes that models of one size are often made for."""


def _varied(
    graph: ir.Graph, feeds: list[Feeds], seed: int, bounds: Bounds | None, fit: Callable[[Feeds], int], special: bool
) -> list[Feeds]:
    """Samples of a model that runs at one combination of sizes, with every second one at other sizes of the dimensions that do
    not depend on each other."""
    base = sizes_of(graph, feeds[0])

    def drawn_at(sizes: Mapping[str, int]) -> list[Feeds]:
        exactly = {name: (size, size) for name, size in sizes.items()}
        return samples_for(graph, len(feeds), seed, exactly, special=special)

    changes: dict[str, int] = {}
    for name, size in list(base.items())[:_MOST_VARIED]:
        low, high = (bounds or {}).get(name, (1, None))
        for other in dict.fromkeys((size + 1, 2 * size, size + 32, *_OTHERS)):
            if other == size or other < low or (high is not None and other > high):
                continue
            if fit(drawn_at({**base, name: other})[0]) == 2:
                changes[name] = other
                break
    if not changes:
        return feeds
    together = drawn_at({**base, **changes})
    alone = fit(together[0]) != 2
    others = [drawn_at({**base, name: size}) for name, size in changes.items()] if alone else [together]
    return [feed if i % 2 == 0 else others[i // 2 % len(others)][i] for i, feed in enumerate(drawn_at(base))]


_MOST_VARIED = 6
"""Dimensions of which other sizes are tried one by one."""


def at_ends(
    graph: ir.Graph, usual: Sequence[Feeds], seed: int, bounds: Bounds, ends: Sequence[Bounds], runs: Callable[[Feeds], bool]
) -> tuple[list[Feeds], list[str]]:
    """A sample of the least and of the largest sizes, where they are not much larger than the usual, and what is to be noted.

    A size may be one that the model itself does not take, which `runs` tells: its bounds are wider than the model then.
    """
    weights = sum(v.const_value.size for v in graph.initializers.values() if v.const_value is not None)
    most = max(map(_elements, usual), default=0)
    found: list[Feeds] = []
    notes = []
    for end in ends:
        told = ", ".join(f"{name}={low}" for name, (low, _) in end.items())
        (feed,) = samples_for(graph, 1, seed, {**bounds, **end})
        if any(_shapes(feed) == _shapes(other) for other in (*usual, *found)):
            continue
        if _elements(feed) > _LARGER * most and _elements(feed) * weights > _WORK:
            notes.append(f"not verified at {told}, where the inputs are {_elements(feed) / max(most, 1):.0f} times as large")
        elif not runs(feed):
            notes.append(f"not verified at {told}, where the source itself does not run")
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


def shorts(inputs: Mapping[str, Sequence[int | str | None]]) -> Iterator[frozenset[str]]:
    """Dynamic dimensions past the first that may be as short as a batch is: at first none, then some, then all.

    Those without a name are called by their input and axis, as in "state.1".
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

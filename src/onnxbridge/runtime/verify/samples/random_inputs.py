"""Input specifications that users write, and seeded samples for verification.

A specification is "x:float32[N,3,224,224]"; several are separated by spaces or commas outside brackets. A name in place of a size
is a dynamic dimension, which "N=1..64" bounds. "rate=16000" fixes an input, or a Python number in a model's code.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import UsageError
from onnxbridge.hub.ir.values import dtype_name
from onnxbridge.runtime.verify.samples import not_finite
from onnxbridge.runtime.verify.samples.input_uses import (
    index_or_length_range,
    integer_range,
    must_be_sorted,
    positive,
    row_partition,
    uses,
)
from onnxbridge.runtime.verify.samples.random_strings import delimiter_of, random_strings
from onnxbridge.runtime.verify.samples.values_of_interest import (
    thresholds_by_column,
    values_of_interest,
    vocabulary,
)

Shape = tuple[int | str | None, ...]
Bounds = Mapping[str, tuple[int, int | None]]
_SPEC = re.compile(r"^(?P<name>.+?):(?P<dtype>[a-z]\w*)(?:\[(?P<shape>[^\]]*)\])?$")
_NUMBER = re.compile(r"^(?P<name>[A-Za-z_][\w.:/]*)=(?P<number>-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|True|False)$")
_BOUNDS = re.compile(r"^(?P<name>[A-Za-z_]\w*)=(?P<low>\d+)\.\.(?P<high>\d+)?$")
_DTYPES = {d.name.lower(): d for d in ir.DataType} | {dtype_name(d): d for d in ir.DataType}


def dtype_named(name: str) -> ir.DataType | None:
    """The dtype of a name such as "float32", None for an unknown name."""
    return _DTYPES.get(name)


def parse_specs(specs: str | Sequence[str]) -> dict[str, Any]:
    """ "x:float32[N,3,8,8]" as {"x": (("N", 3, 8, 8), "float32")}, "rate=16000" as {"rate": 16000}.

    Raises:
        UsageError: for a malformed specification.
    """
    joined = specs if isinstance(specs, str) else " ".join(specs)
    found: dict[str, Any] = {}
    for text in re.split(r"[\s,;]+(?![^\[]*\])", joined.strip()):
        number = _NUMBER.match(text)
        if number is not None and number["name"] not in found:
            found[number["name"]] = ast.literal_eval(number["number"])
            continue
        m = _SPEC.match(text)
        if not m or m["dtype"] not in _DTYPES:
            raise UsageError(f"{text!r} is not an input specification; write it like x:float32[N,3,224,224]")
        if m["name"] in found:
            raise UsageError(f"the input {m['name']!r} is specified twice")
        found[m["name"]] = (tuple(_size(s, text) for s in re.split(r"\s*,\s*", (m["shape"] or "").strip()) if s), m["dtype"])
    return found


def _size(text: str, spec: str) -> int | str | None:
    if text.isdigit():
        return int(text)
    if text in ("?", "-1", "None"):
        return None
    if text.isidentifier():
        return text
    raise UsageError(f"{text!r} in {spec!r} is neither a size nor a name")


def parse_dynamic(bounds: str | Sequence[str]) -> dict[str, tuple[int, int | None]]:
    """ "N=1..64" as {"N": (1, 64)}; a missing upper bound is None.

    Raises:
        UsageError: for malformed bounds.
    """
    found: dict[str, tuple[int, int | None]] = {}
    for text in re.split(r"[\s,;]+", bounds.strip()) if isinstance(bounds, str) else bounds:
        m = _BOUNDS.match(text)
        if not m or (m["high"] and int(m["high"]) < int(m["low"])):
            raise UsageError(f"{text!r} does not give bounds of a dimension; write it like N=1..64")
        found[m["name"]] = (int(m["low"]), int(m["high"]) if m["high"] else None)
    return found


LEAST = (2, 32, 48, 64, 224, 512, 1024, 7)
"""Minimum sizes to try for dynamic dimensions after the first: networks that halve an image five times, or read windows of
audio, compute nothing on smaller inputs; 7 is for those that accept odd sizes only."""


def samples_for(
    graph: ir.Graph, count: int = 3, seed: int = 0, bounds: Bounds | None = None, least: int = LEAST[0], batch: int = 2,
    short: frozenset[str] = frozenset(), parity: int | None = None, special: bool = True,
) -> list[dict[str, np.ndarray[Any, Any]]]:  # fmt: skip
    """`count` seeded samples of a hub graph's inputs, by name.

    Floating-point numbers are normally distributed; the last sample has edge values (zeros of both signs, ones, small and large
    magnitudes) among them. Integers stay within what the graph indexes with them, or are valid lengths.

    Args:
        bounds: of dynamic sizes by name.
        least: the minimum size of dynamic dimensions after an input's first.
        batch: the minimum size of first dimensions, and of those named in `short`; 1 stays 1, for models that accept no other.
        parity: dynamic dimensions alternate between two sizes; with 0 or 1, all samples have the first or the second one.
        special: include constants that the graph compares the input with and, for thresholds, numbers on both sides.
    """
    rng = np.random.default_rng(seed)
    feeds = []
    for i in range(count):
        sizes, shapes = _sizes(graph, i if parity is None else parity, bounds, least, batch, short)
        edges = count > 1 and i == count - 1
        given = zip(graph.inputs, shapes, strict=True)
        feeds.append({v.name or "": _input(rng, v, s, i, edges, sizes, special) for v, s in given})
    return feeds


def elements(graph: ir.Graph, bounds: Bounds | None, least: int, batch: int, short: frozenset[str]) -> int:
    """The number of elements of all inputs in the larger of the samples that `samples_for` would draw."""
    counts = [sum(math.prod(s) for s in _sizes(graph, i, bounds, least, batch, short)[1]) for i in range(2)]
    return max(counts)


def _sizes(
    graph: ir.Graph, sample: int, bounds: Bounds | None, least: int, batch: int, short: frozenset[str]
) -> tuple[dict[str, int], list[list[int]]]:
    """The dynamic sizes of a sample, and the shapes of its inputs."""
    sizes: dict[str, int] = {}
    shapes = [
        [
            _pick(d, sample, bounds or {}, sizes, f"{value.name}.{axis}", batch, least if axis else batch, short)
            for axis, d in enumerate(value.shape or ())
        ]
        for value in graph.inputs
    ]
    return sizes, shapes


_SUM = re.compile(r"([A-Za-z_]\w*) \+ ([0-9]{1,9})")  # a size relative to another: "past + 1"


def _pick(
    dim: Any, sample: int, bounds: Bounds, sizes: dict[str, int], anonymous: str, batch: int, least: int, short: frozenset[str]
) -> int:
    if isinstance(dim, int):
        return dim
    name = dim.value if dim.value is not None else anonymous
    more = _SUM.fullmatch(name)
    if more is not None:
        return _pick(ir.SymbolicDim(more[1]), sample, bounds, sizes, anonymous, batch, least, short) + int(more[2])
    least = batch if name in short else least
    low, high = bounds.get(name, (1, None))
    # 2 and 3 rather than 1, which hides a missing broadcast; an odd size shows how halves are rounded. Larger sizes are multiples
    # of 32, since networks that add upsampled features to earlier ones accept no others.
    first = max(low, least) if high is None else min(max(low, least), high)
    step = least - 1 if least <= LEAST[0] else 32
    second = first + step if high is None or first + step <= high else max(low, first - step)
    return sizes.setdefault(name, first if sample % 2 == 0 else second)


_EDGES = (0.0, -0.0, 1.0, -1.0, 1e-3, -1e-3, 6.0, -6.0)
_EDGES_OFF_TIES = (0.0, -0.0, 1.03, -0.97, 1e-3, -1e-3, 6.13, -5.87)
"""For models that quantize: in a range from -6 to 6, zero and other numbers lie halfway between two quantized values."""
_ROUNDING = frozenset({"DynamicQuantizeLinear", "QuantizeLinear", "Round"})


def _rounds(value: ir.Value) -> bool:
    graph = value.graph
    return graph is not None and any(node.op_type in _ROUNDING for node in graph.all_nodes())


_SEQUENCE_LENGTH = 3
"""The number of tensors in a sequence."""


def _input(rng: np.random.Generator, value: ir.Value, shape: Sequence[int], *how: Any) -> Any:
    """One input of a sample: a tensor, or a list of tensors for a sequence."""
    if isinstance(value.type, ir.SequenceType):
        return [_random_tensor(rng, value, shape, *how) for _ in range(_SEQUENCE_LENGTH)]
    return _random_tensor(rng, value, shape, *how)


def _random_tensor(
    rng: np.random.Generator, value: ir.Value, shape: Sequence[int], sample: int, edges: bool, sizes: Mapping[str, int],
    special: bool,
) -> np.ndarray[Any, Any]:
    """One tensor; a scalar is an array of rank 0."""
    dtype = value.dtype or ir.DataType.FLOAT
    special_values = list(values_of_interest(value)) if special else []
    if dtype == ir.DataType.BOOL:
        return np.asarray(rng.random(shape) < 0.5)
    if dtype == ir.DataType.STRING:
        strings = random_strings(rng, value, int(np.prod(shape)), sample, vocabulary(value) if special else [], edges)
        if delimiter_of(value) is not None:  # of no words, there is no mean
            special_values = [text for text in special_values if text]
        _insert(rng, strings, special_values, sample, 2)
        return strings.reshape(shape)
    if dtype.is_integer() and len(shape) == 1 and (rows := row_partition(value, sizes)) is not None:
        splits = rows[0] == "splits"
        found = row_splits(rng, shape[0] + (not splits), rows[1])
        return (found if splits else np.diff(found)).astype(dtype.numpy())
    if dtype.is_integer():
        return _integers(rng, value, shape, sample, integer_range(value, sizes), special_values)
    if dtype.is_floating_point() and (whole := index_or_length_range(value, sizes)) is not None:
        return _integers(rng, value, shape, sample, whole, [v for v in special_values if v == np.floor(v)])
    values_drawn = np.asarray(rng.standard_normal(shape))
    flat = values_drawn.reshape(-1)
    if edges and values_drawn.size:
        numbers = np.array(_EDGES_OFF_TIES if _rounds(value) else _EDGES)
        positions = rng.permutation(flat.size)[: max(1, flat.size // 4)]
        flat[positions] = numbers[np.arange(positions.size) % numbers.size]
    made = np.asarray(values_drawn.astype(dtype.numpy()))
    _insert(rng, made.reshape(-1), special_values, sample, 4)
    if edges and special:
        _insert(rng, made.reshape(-1), not_finite.looked_for(value), sample, 4)
    for column, values in (thresholds_by_column(value) if special and made.ndim else {}).items():
        if column < made.shape[-1]:
            made[..., column] = _with_values(rng, made[..., column], values, sample)
    if positive(value):
        made = np.asarray(np.clip(np.abs(made), 1e-2, 1 - 1e-2).astype(made.dtype))
    if must_be_sorted(value) and made.ndim:
        made.sort(axis=-1)
    return made


def _integers(
    rng: np.random.Generator, value: ir.Value, shape: Sequence[int], sample: int, drawn_from: tuple[int, int, bool],
    special_values: Sequence[Any],
) -> np.ndarray[Any, Any]:
    """Integers of a range, upper end excluded, in the input's dtype; of indices, it includes only what is in the range."""
    low, high, index = drawn_from
    integers: np.ndarray[Any, Any] = np.asarray(rng.integers(low, high, shape))
    if integers.size == 1:  # random ones would often be equal in all samples
        integers = np.full(shape, low + sample % (high - low))
    if (low, high) == (0, 2) and not index and integers.ndim > 1 and integers.size:
        integers[..., 0] |= ~integers.any(axis=-1)  # attention to masked positions only is decided by rounding
    if low > 0 and integers.ndim and not any(node.op_type == "TopK" for node, _ in uses(value)):
        integers[::-1].sort(axis=0)  # models that do not sort sequences by length may need this order
    _insert(rng, integers.reshape(-1), [v for v in special_values if not index or low <= v < high], sample, 2)
    if must_be_sorted(value) and integers.ndim:
        integers.sort(axis=-1)
    return np.asarray(integers.astype((value.dtype or ir.DataType.INT64).numpy()))


def row_splits(rng: np.random.Generator, count: int, end: int) -> np.ndarray[Any, Any]:
    """`count` ascending integers from 0 to `end`; rows may be empty."""
    found = np.sort(rng.integers(0, end + 1, count))
    found[:1], found[-1:] = 0, end
    return found


def _insert(rng: np.random.Generator, flat: np.ndarray[Any, Any], values: Sequence[Any], sample: int, every: int) -> None:
    """Put values at one of `every` positions, so that random numbers remain between them."""
    positions = np.arange(sample % every, flat.size, every)
    if not values or not positions.size:
        return
    chosen = [values[(sample // every + k) % len(values)] for k in range(positions.size)]  # all of them, before one is repeated
    for position, value in zip(rng.permutation(positions), chosen, strict=True):
        flat[position] = value


def _with_values(
    rng: np.random.Generator, column: np.ndarray[Any, Any], values: Sequence[Any], sample: int
) -> np.ndarray[Any, Any]:
    flat = column.reshape(-1).copy()
    _insert(rng, flat, values, sample, 2)
    return flat.reshape(column.shape)

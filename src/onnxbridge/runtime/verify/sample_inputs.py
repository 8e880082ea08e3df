"""Inputs: the texts in which users describe them, and seeded samples for verification.

A text is "x:float32[N,3,224,224]"; several are separated by spaces or commas outside brackets. A name in place of a size is a
dynamic dimension, "N=1..64" bounds it. "rate=16000" fixes an input, or a choice in a model's code, to a number.
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
from onnxbridge.runtime.verify.input_uses import integer_range, must_ascend, positive, uses
from onnxbridge.runtime.verify.values_of_interest import thresholds_by_column, values_of_interest

Shape = tuple[int | str | None, ...]
Bounds = Mapping[str, tuple[int, int | None]]
_SPEC = re.compile(r"^(?P<name>.+?):(?P<dtype>[a-z]\w*)(?:\[(?P<shape>[^\]]*)\])?$")
_NUMBER = re.compile(r"^(?P<name>[A-Za-z_][\w.:/]*)=(?P<number>-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|True|False)$")
_BOUNDS = re.compile(r"^(?P<name>[A-Za-z_]\w*)=(?P<low>\d+)\.\.(?P<high>\d+)?$")
_DTYPES = {d.name.lower(): d for d in ir.DataType} | {"float32": ir.DataType.FLOAT, "float64": ir.DataType.DOUBLE}


def dtype_named(text: str) -> ir.DataType | None:
    """The dtype that users write as "float32", None for another text."""
    return _DTYPES.get(text)


def parse_specs(texts: str | Sequence[str]) -> dict[str, Any]:
    """ "x:float32[N,3,8,8]" as {"x": (("N", 3, 8, 8), "float32")}, "rate=16000" as {"rate": 16000}.

    Raises:
        UsageError: for a text that is not of this form.
    """
    whole = texts if isinstance(texts, str) else " ".join(texts)
    found: dict[str, Any] = {}
    for text in re.split(r"[\s,;]+(?![^\[]*\])", whole.strip()):
        number = _NUMBER.match(text)
        if number is not None and number["name"] not in found:
            found[number["name"]] = ast.literal_eval(number["number"])
            continue
        m = _SPEC.match(text)
        if not m or m["dtype"] not in _DTYPES:
            raise UsageError(f"{text!r} does not describe an input; write it like x:float32[N,3,224,224]")
        if m["name"] in found:
            raise UsageError(f"the input {m['name']!r} is described twice")
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


def parse_dynamic(texts: str | Sequence[str]) -> dict[str, tuple[int, int | None]]:
    """ "N=1..64" as {"N": (1, 64)}; an open end is None.

    Raises:
        UsageError: for a text that is not of this form.
    """
    found: dict[str, tuple[int, int | None]] = {}
    for text in re.split(r"[\s,;]+", texts.strip()) if isinstance(texts, str) else texts:
        m = _BOUNDS.match(text)
        if not m or (m["high"] and int(m["high"]) < int(m["low"])):
            raise UsageError(f"{text!r} does not bound a dimension; write it like N=1..64")
        found[m["name"]] = (int(m["low"]), int(m["high"]) if m["high"] else None)
    return found


LEAST = (2, 32, 48, 64, 224, 512, 1024)
"""What to try as the least size of a dynamic dimension past the first: networks that halve an image five times, or look at
windows of a sound, compute nothing of smaller inputs."""


def samples_for(
    graph: ir.Graph, count: int = 3, seed: int = 0, bounds: Bounds | None = None, least: int = LEAST[0], batch: int = 2,
    short: frozenset[str] = frozenset(), turn: int | None = None, special: bool = True,
) -> list[dict[str, np.ndarray[Any, Any]]]:  # fmt: skip
    """`count` seeded feeds for a hub graph.

    Each dynamic dimension takes two sizes in turns, or only that of the given `turn`: those past an input's first at least
    `least`, the first, and those named in `short`, at least `batch` (one of 1 stays 1, for models that take no other). Floats
    are normally distributed; the last sample holds edge values (zeros of both signs, ones, small and large magnitudes) among
    them. Integers stay inside what the graph indexes with them and are lengths where it takes them so. With `special`, what the
    graph compares an input with is among its elements, and for thresholds numbers on both sides of them.
    """
    rng = np.random.default_rng(seed)
    feeds = []
    for i in range(count):
        sizes, shapes = _sizes(graph, i if turn is None else turn, bounds, least, batch, short)
        edges = count > 1 and i == count - 1
        given = zip(graph.inputs, shapes, strict=True)
        feeds.append({v.name or "": _input(rng, v, s, i, edges, sizes, special) for v, s in given})
    return feeds


def elements(graph: ir.Graph, bounds: Bounds | None, least: int, batch: int, short: frozenset[str]) -> int:
    """How many elements the inputs have together in the larger of the samples that `samples_for` would draw."""
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


_SUM = re.compile(r"([A-Za-z_]\w*) \+ ([0-9]{1,9})")  # a size by another: "past + 1"


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
    # 2 and 3 rather than 1: a size of one hides a lost broadcast; an odd one hides nothing that halves. Larger ones are
    # multiples of 32, since networks that add what they halved to what they did not take no others.
    first = max(low, least) if high is None else min(max(low, least), high)
    step = least - 1 if least <= LEAST[0] else 32
    second = first + step if high is None or first + step <= high else max(low, first - step)
    return sizes.setdefault(name, first if sample % 2 == 0 else second)


_EDGES = (0.0, -0.0, 1.0, -1.0, 1e-3, -1e-3, 6.0, -6.0)
_UNEVEN_EDGES = (0.0, -0.0, 1.03, -0.97, 1e-3, -1e-3, 6.13, -5.87)
"""For models that round: a range from -6 to 6 has its zero, and numbers in it, half way between two codes."""
_ROUNDING = frozenset({"DynamicQuantizeLinear", "QuantizeLinear", "Round"})


def _quantizes(value: ir.Value) -> bool:
    graph = value.graph
    return graph is not None and any(node.op_type in _ROUNDING for node in graph.all_nodes())


_LENGTH = 3
"""How many tensors a sequence has."""


def _input(rng: np.random.Generator, value: ir.Value, shape: Sequence[int], *how: Any) -> Any:
    """One input of a sample: a tensor, or a list of such for a sequence."""
    if isinstance(value.type, ir.SequenceType):
        return [_draw(rng, value, shape, *how) for _ in range(_LENGTH)]
    return _draw(rng, value, shape, *how)


def _draw(
    rng: np.random.Generator, value: ir.Value, shape: Sequence[int], turn: int, edges: bool, sizes: Mapping[str, int],
    special: bool,
) -> np.ndarray[Any, Any]:
    """One tensor; a scalar is an array too."""
    dtype = value.dtype or ir.DataType.FLOAT
    found = list(values_of_interest(value)) if special else []
    if dtype == ir.DataType.BOOL:
        return np.asarray(rng.random(shape) < 0.5)
    if dtype == ir.DataType.STRING:
        texts = np.array([f"text {turn + i}" for i in range(int(np.prod(shape)))], dtype=object)
        _put(rng, texts, found, turn, 2)
        return texts.reshape(shape)
    if dtype.is_integer():
        low, high, index = integer_range(value, sizes)
        whole: np.ndarray[Any, Any] = np.asarray(rng.integers(low, high, shape))
        if whole.size == 1:  # drawn ones would often be the same in all samples
            whole = np.full(shape, low + turn % (high - low))
        if low and whole.ndim and not any(node.op_type == "TopK" for node, _ in uses(value)):
            whole[::-1].sort(axis=0)  # programs that do not order sequences by their lengths themselves may want them so
        _put(rng, whole.reshape(-1), [v for v in found if not index or low <= v < high], turn, 2)
        if must_ascend(value) and whole.ndim:
            whole.sort(axis=-1)
        return np.asarray(whole.astype(dtype.numpy()))
    drawn = np.asarray(rng.standard_normal(shape))
    flat = drawn.reshape(-1)
    if edges and drawn.size:
        numbers = np.array(_UNEVEN_EDGES if _quantizes(value) else _EDGES)
        positions = rng.permutation(flat.size)[: max(1, flat.size // 4)]
        flat[positions] = numbers[np.arange(positions.size) % numbers.size]
    made = np.asarray(drawn.astype(dtype.numpy()))
    _put(rng, made.reshape(-1), found, turn, 4)
    for column, values in (thresholds_by_column(value) if special and made.ndim else {}).items():
        if column < made.shape[-1]:
            made[..., column] = _mixed(rng, made[..., column], values, turn)
    if positive(value):
        made = np.asarray(np.clip(np.abs(made), 1e-2, 1 - 1e-2).astype(made.dtype))
    if must_ascend(value) and made.ndim:
        made.sort(axis=-1)
    return made


def _put(rng: np.random.Generator, flat: np.ndarray[Any, Any], values: Sequence[Any], turn: int, every: int) -> None:
    """Put some of the values at every so many positions, so that other numbers occur too."""
    positions = np.arange(turn % every, flat.size, every)
    if not values or not positions.size:
        return
    chosen = [values[(turn // every + k) % len(values)] for k in range(positions.size)]  # each, before any comes twice
    for position, value in zip(rng.permutation(positions), chosen, strict=True):
        flat[position] = value


def _mixed(rng: np.random.Generator, column: np.ndarray[Any, Any], values: Sequence[Any], turn: int) -> np.ndarray[Any, Any]:
    flat = column.reshape(-1).copy()
    _put(rng, flat, values, turn, 2)
    return flat.reshape(column.shape)

"""Inputs: the texts in which users describe them, and seeded samples for verification.

A text is "x:float32[N,3,224,224]"; several are separated by spaces or commas outside brackets. A name in place of a size is a
dynamic dimension, "N=1..64" bounds it. "rate=16000" fixes an input, or a choice in a model's code, to a number.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import UsageError

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


LEAST = (2, 32, 64, 224, 512, 1024)
"""What to try as the least size of a dynamic dimension past the first: networks that halve an image five times, or look at
windows of a sound, compute nothing of smaller inputs."""


def samples_for(
    graph: ir.Graph, count: int = 3, seed: int = 0, bounds: Bounds | None = None, least: int = LEAST[0], batch: int = 2,
    short: frozenset[str] = frozenset(), turn: int | None = None,
) -> list[dict[str, np.ndarray[Any, Any]]]:  # fmt: skip
    """`count` seeded feeds for a hub graph.

    Each dynamic dimension takes two sizes in turns, or only that of the given `turn`: those past an input's first at least
    `least`, the first, and those named in `short`, at least `batch` (one of 1 stays 1, for models that take no other). Floats
    are normally distributed; the last sample holds edge values (zeros of both signs, ones, small and large magnitudes) among
    them. Integers stay inside what the graph indexes with them, are lengths where it takes them so, and are what it compares them
    with now and then.
    """
    rng = np.random.default_rng(seed)
    feeds = []
    for i in range(count):
        sizes: dict[str, int] = {}
        time = i if turn is None else turn
        shapes = [
            [
                _pick(d, time, bounds or {}, sizes, f"{value.name}.{axis}", batch, least if axis else batch, short)
                for axis, d in enumerate(value.shape or ())
            ]
            for value in graph.inputs
        ]
        edges = count > 1 and i == count - 1
        feeds.append({v.name or "": _draw(rng, v, s, i, edges, sizes) for v, s in zip(graph.inputs, shapes, strict=True)})
    return feeds


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


def _draw(
    rng: np.random.Generator, value: ir.Value, shape: Sequence[int], turn: int, edges: bool, sizes: Mapping[str, int]
) -> np.ndarray[Any, Any]:
    dtype = value.dtype or ir.DataType.FLOAT
    if dtype == ir.DataType.BOOL:
        return rng.random(shape) < 0.5
    if dtype == ir.DataType.STRING:
        return np.array([f"text {i}" for i in range(int(np.prod(shape)))], dtype=object).reshape(shape)
    if dtype.is_integer():
        low, high = _index_range(value, sizes)
        whole: np.ndarray[Any, Any] = np.asarray(rng.integers(low, high, shape))
        if low and whole.ndim and not any(node.op_type == "TopK" for node, _ in _uses(value)):
            whole[::-1].sort(axis=0)  # programs that do not order sequences by their lengths themselves may want them so
        asked = _asked_for(value)
        if asked:  # in every other place, so that both answers occur
            flat = whole.reshape(-1)
            flat[turn % 2 :: 2] = rng.choice(asked, flat[turn % 2 :: 2].shape)
        return whole.astype(dtype.numpy())
    drawn = rng.standard_normal(shape)
    if edges and drawn.size:
        flat = drawn.reshape(-1)
        special = np.array([0.0, -0.0, 1.0, -1.0, 1e-3, -1e-3, 6.0, -6.0])
        places = rng.permutation(flat.size)[: max(1, flat.size // 4)]
        flat[places] = special[np.arange(places.size) % special.size]
    return drawn.astype(dtype.numpy())


# Operators through which an index passes unchanged on its way to where it is used.
_CARRIERS = frozenset(
    {"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Flatten", "Expand", "Slice", "Split", "TopK", "Gather"}
)


def _uses(value: ir.Value) -> Iterator[tuple[ir.Node, int]]:
    """Where an input is used, also behind what only carries it."""
    todo, seen = [value], set()
    while todo:
        v = todo.pop()
        if id(v) in seen:
            continue
        seen.add(id(v))
        for use in v.uses():
            if use.node.op_type in _CARRIERS and use.idx == 0:
                todo += use.node.outputs[: 1 if use.node.op_type == "TopK" else None]
            yield use.node, use.idx


def _index_range(value: ir.Value, sizes: Mapping[str, int]) -> tuple[int, int]:
    """The integers that an input may hold: what the graph indexes with it, lengths from 1 on of what it measures, else 0 and 1,
    which suit masks and counts."""
    uses = list(_uses(value))
    ends = [size for node, i in uses if (size := _indexed_size(node, i)) is not None]
    steps = [axis for node, i in uses if (axis := _measured(node, i)) is not None]
    if steps and not ends:
        known = [n for d in steps if (n := d if isinstance(d, int) else sizes.get(d.value or "")) is not None]
        return 1, min(known, default=1) + 1
    return (0, max(1, min(ends))) if ends else (0, 2)


def _measured(node: ir.Node, i: int) -> int | ir.SymbolicDim | None:
    """The size of the axis along which the node's input `i` tells how long each sequence is; None where it tells no length."""
    if node.inputs[0] is None or node.inputs[0].shape is None:
        return None
    if node.op_type in ("LSTM", "GRU", "RNN") and i == 4:
        layout = node.attributes.get("layout")
        return node.inputs[0].shape[layout.as_int() if layout is not None else 0]
    if node.op_type == "ReverseSequence" and i == 1:
        axis = node.attributes.get("time_axis")
        return node.inputs[0].shape[axis.as_int() if axis is not None else 0]
    return None


def _asked_for(value: ir.Value) -> list[int]:
    """The numbers that the graph compares the input with, such as the rates that a network knows of a sound."""
    low, high = np.iinfo(value.dtype.numpy()).min, np.iinfo(value.dtype.numpy()).max  # type: ignore[union-attr]
    found: set[int] = set()
    for node, i in _uses(value):
        other = node.inputs[1 - i] if node.op_type == "Equal" else None
        if other is not None and other.const_value is not None and other.const_value.size == 1:
            found.add(int(other.const_value.numpy().reshape(-1)[0]))
    return sorted(n for n in found if low <= n <= high)


def _indexed_size(node: ir.Node, i: int) -> int | None:
    """How far the node's input `i` may index; None where it is not an index."""
    if node.op_type in ("Gather", "GatherElements") and i == 1 and node.inputs[0] is not None:
        axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
        shape = node.inputs[0].shape
        size = shape[axis] if shape is not None else None
        return size if isinstance(size, int) else None
    if node.op_type == "OneHot" and i == 0 and node.inputs[1] is not None and node.inputs[1].const_value is not None:
        return int(node.inputs[1].const_value.numpy().reshape(-1)[0])
    return None

"""Strings to verify with: words of the graph's own constants, also in sentences that it splits, and numbers that it parses."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.runtime.verify.samples.input_uses import uses

# of different lengths, cases and spaces, with punctuation and characters of several bytes
_OTHERS = ("two  words ", "MiXed Case", "Größe ♥", "a.b, c!", "42", "a_longer-text/with (more) signs", "")


def random_strings(
    rng: np.random.Generator, value: ir.Value, count: int, sample: int, words: list[str], edges: bool
) -> np.ndarray[Any, Any]:
    """`count` strings for an input, a third of them of the kinds that models treat differently; the empty one only at `edges`."""
    casts = [node.attributes["to"].as_int() for node, _ in uses(value) if node.op_type == "Cast"]
    if any(to != ir.DataType.STRING for to in casts):
        whole = any(ir.DataType(to).is_integer() for to in casts)
        numbers = rng.integers(-99, 100, count) if whole else np.round(rng.normal(size=count) * 10, 3)
        return np.array([str(n) for n in numbers.tolist()], dtype=object)
    found = np.array([f"text {sample + i}" for i in range(count)], dtype=object)
    delimiter = delimiter_of(value)
    others = _OTHERS if edges and delimiter is None else _OTHERS[:-1]  # a mean of no words is not a number
    for k, position in enumerate(range((sample + 2) % 3, count, 3)):
        found[position] = others[(sample + k) % len(others)]
    if words and delimiter is not None:
        for position in range((sample + 1) % 2, count, 2):
            found[position] = delimiter.join(rng.choice(np.array(words, dtype=object), rng.integers(1, 6)))
    return found


def delimiter_of(value: ir.Value) -> str | None:
    """Between the words of a sentence: a space, if the graph splits at spaces, or else what it splits at; None if it does not."""
    found = []
    for node in value.graph.all_nodes() if isinstance(value.graph, ir.Graph) else ():
        if node.op_type == "StringSplit":
            attribute = node.attributes.get("delimiter")
            found.append(str(attribute.value) if attribute is not None and attribute.value else " ")
    return " " if " " in found else found[0] if found else None

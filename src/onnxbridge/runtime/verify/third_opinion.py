"""Which of two models that differ computes what the bundled executor does."""

from __future__ import annotations

from collections.abc import Sequence

from onnxbridge.runtime.verify.compare import Comparison, compare, result_array
from onnxbridge.runtime.verify.runner import Arrays, Runner

_RUNTIMES = {"ONNX": "ONNX Runtime"}
"""What runs the models of a format whose title is not that of a framework."""
_EXECUTOR = "onnxbridge's executor"
"""In the title of a model that runs on it already."""


def third_opinion(
    own: Arrays, expected: Arrays, actual: Arrays, comparisons: Sequence[Comparison], reference: Runner, candidate: Runner
) -> list[str]:  # fmt: skip
    """Notes on the outputs of one sample that differ: whose result the executor has for the hub model, if it is one of the two.

    Args:
        own: the executor's outputs.
    """
    if any(_EXECUTOR in title for title in (reference.title, candidate.title)):
        return []
    agrees: dict[str, list[str]] = {reference.title: [], candidate.title: []}
    for one in comparisons:
        if one.passed or one.name not in own or one.name not in actual:
            continue
        sides = {reference.title: expected[one.name], candidate.title: actual[one.name]}
        near = [title for title, value in sides.items() if _agree(one, own[one.name], value)]
        if len(near) == 1:
            agrees[near[0]].append(one.name)
    return [_note(names, title, other) for (title, names), other in zip(agrees.items(), reversed(agrees), strict=True) if names]


def _agree(one: Comparison, own: object, value: object) -> bool:
    return compare(one.name, value, result_array(own).astype(result_array(value).dtype), one.tolerance).passed


def _note(names: Sequence[str], title: str, other: str) -> str:
    alone = _RUNTIMES.get(other, other)
    said = f"the bundled executor, on the same ONNX graph, computes {', '.join(names)} as {_RUNTIMES.get(title, title)} does"
    return f"{said}, not as {alone}" + ("; docs/disagreements.md lists where ONNX Runtime is alone" if other in _RUNTIMES else "")

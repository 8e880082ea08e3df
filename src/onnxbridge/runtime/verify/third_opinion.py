"""Which of two models that differ computes what a third one does: the bundled executor, or the traced source."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from onnxbridge.runtime.verify.compare import Comparison, compare, result_array
from onnxbridge.runtime.verify.runner import Arrays, Runner

_RUNTIMES = {"ONNX": "ONNX Runtime"}
"""What runs the models of a format whose title is not that of a framework."""
_EXECUTOR = "onnxbridge's executor"
"""In the title of a model that runs on it already."""


def third_opinion(
    feed: Arrays, own: Arrays, expected: Arrays, actual: Arrays, comparisons: Sequence[Comparison], reference: Runner,
    candidate: Runner,
) -> list[str]:  # fmt: skip
    """Notes on the outputs of one sample that differ: whose result the executor has for the hub model, if it is one of the two,
    and whether the framework itself computes the candidate's result once it has traced the source.

    Args:
        own: the executor's outputs.
    """
    if any(_EXECUTOR in title for title in (reference.title, candidate.title)):
        return []
    executor = _agreements(own, expected, actual, comparisons, reference, candidate)
    sides = zip(executor.items(), reversed(executor), strict=True)
    notes = [_note(names, title, other) for (title, names), other in sides if names]
    traced = _traced(reference, feed)
    if same := _agreements(traced, expected, actual, comparisons, reference, candidate)[candidate.title]:
        notes.append(
            f"{reference.title}'s own trace of the model computes {', '.join(same)} as the converted model does: the Python code "
            "does something else while it is traced (torch.compiler.is_exporting(), torch.jit.is_tracing(), branches on values)"
        )
    return notes


def _traced(reference: Runner, feed: Arrays) -> Arrays:
    """What the traced source computes; nothing where it cannot be traced or run so."""
    with contextlib.suppress(Exception):  # frameworks raise many types, and this is only advice
        return (reference.run_traced and reference.run_traced(feed)) or {}
    return {}


def _agreements(
    own: Arrays, expected: Arrays, actual: Arrays, comparisons: Sequence[Comparison], reference: Runner, candidate: Runner
) -> dict[str, list[str]]:
    """For each of the two models, the names of outputs that are the third's, and not the other model's."""
    agrees: dict[str, list[str]] = {reference.title: [], candidate.title: []}
    for one in comparisons:
        if one.passed or one.name not in own or one.name not in actual:
            continue
        sides = {reference.title: expected[one.name], candidate.title: actual[one.name]}
        near = [title for title, value in sides.items() if _agree(one, own[one.name], value)]
        if len(near) == 1:
            agrees[near[0]].append(one.name)
    return agrees


def _agree(one: Comparison, own: object, value: object) -> bool:
    return compare(one.name, value, result_array(own).astype(result_array(value).dtype), one.tolerance).passed


def _note(names: Sequence[str], title: str, other: str) -> str:
    alone = _RUNTIMES.get(other, other)
    said = f"the bundled executor, on the same ONNX graph, computes {', '.join(names)} as {_RUNTIMES.get(title, title)} does"
    return f"{said}, not as {alone}" + ("; docs/disagreements.md lists where ONNX Runtime is alone" if other in _RUNTIMES else "")

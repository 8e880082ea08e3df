"""The core: the operators that no expansion writes in others, so what a new backend must have before it has everything else.

Read off the rules: an operator is in it exactly if neither `hub/expand` nor the standard has an expansion of it.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any

import onnx

from onnxbridge.hub.decompositions.standard import covers, expand
from onnxbridge.hub.ir.builder import Builder
from onnxbridge.hub.ir.opset_version import OPSET
from onnxbridge.hub.ir.schemas import name_of, schema_of, version_of

GROUPS: dict[str, tuple[str, ...]] = {
    "numbers": ("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Floor", "Sqrt", "Cast", "BitCast"),
    "functions that no finite sum of others gives": ("Exp", "Log", "Sin", "Cos", "Atan", "Tanh", "Erf"),
    "comparison and choice": ("Equal", "Less", "Greater", "And", "Or", "Not", "Where"),
    "reduction and order": ("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "TopK"),
    "products and windows": ("MatMul", "Conv", "ConvTranspose", "AveragePool", "MaxPool"),
    "shape and place": (
        "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Expand", "Concat", "Slice", "Shape", "Gather", "ScatterND", "NonZero",
        "Constant", "ConstantOfShape", "Identity",
    ),
    "control": ("If", "Loop", "Scan"),
    "chance": ("RandomUniformLike",),
    "values that are no tensors of numbers": (
        "SequenceEmpty", "SequenceConstruct", "SequenceInsert", "SequenceErase", "SequenceAt", "SequenceLength",
        "SplitToSequence", "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "StringConcat",
        "StringSplit", "StringNormalizer", "RegexFullMatch", "ImageDecoder", "ai.onnx.ml::CastMap", "ai.onnx.ml::DictVectorizer",
        "ai.onnx.ml::ZipMap",
    ),
}  # fmt: skip
"""What the core's operators are about; a test compares them with the rules."""


@functools.cache
def operators() -> tuple[str, ...]:
    """Every operator of ai.onnx and ai.onnx.ml at the hub's versions, without those that were given up."""
    newest: dict[tuple[str, str], onnx.defs.OpSchema] = {}
    for schema in sorted(onnx.defs.get_all_schemas_with_history(), key=lambda s: s.since_version):
        limit = {"": OPSET, "ai.onnx.ml": version_of("ai.onnx.ml")}.get(schema.domain, 0)
        if schema.since_version <= limit:
            newest[schema.domain, schema.name] = schema
    experimental = onnx.defs.OpSchema.SupportType.EXPERIMENTAL
    kept = (s for s in newest.values() if not s.deprecated and s.support_level != experimental)
    return tuple(sorted(name_of(s.name, s.domain) for s in kept))


def core() -> tuple[str, ...]:
    """The operators that have no expansion."""
    return tuple(op for op in operators() if not covers(op.rpartition("::")[2], op.rpartition("::")[0]))


@functools.cache
def written_in(op: str) -> frozenset[str]:
    """The operators that an expansion may write, read off its code; none where the standard defines each node on its own."""
    if op in expand:
        return frozenset(_named(expand[op].lower, set()))
    schema: Any = schema_of(op)
    return frozenset(node.op_type for node in schema.function_body.node) if schema.has_function else frozenset()


def _named(function: Any, seen: set[Any]) -> Iterator[str]:
    """The operators that a function's code names, and those of the functions that it names: helpers, and the builder's own."""
    if function in seen:
        return
    seen.add(function)
    for name in _names(function.__code__):
        if name in operators():
            yield name
        yield from _held(getattr(Builder, name, None), seen)
        yield from _held(function.__globals__.get(name), seen)
    for cell in function.__closure__ or ():
        yield from _held(cell.cell_contents, seen)


def _names(code: types.CodeType) -> Iterator[str]:
    """The names and short texts in a function's code and in that of the functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
        elif isinstance(constant, str):
            yield constant


def _held(found: Any, seen: set[Any]) -> Iterator[str]:
    """The operators that a value names: a helper or a method of the builder, a table of functions or of operators."""
    if isinstance(found, types.FunctionType) and found.__module__.startswith(
        ("onnxbridge.hub.decompositions.standard", "onnxbridge.hub.ir.builder")
    ):
        yield from _named(found, seen)
    elif isinstance(found, str) and found in operators():
        yield found
    elif isinstance(found, (tuple, dict)):
        for inner in found.values() if isinstance(found, dict) else found:
            yield from _held(inner, seen)


def page() -> str:
    """docs/core.md."""
    rest = [op for op in operators() if op not in core()]
    lines = [
        "# The core operators",
        "",
        "Generated from the rules by `python docs/generate.py`; a test keeps it in step.",
        "",
        f"Of the {len(operators())} operators of ai.onnx {OPSET} and ai.onnx.ml {version_of('ai.onnx.ml')}, {len(rest)} are",
        f"written in simpler ones by `hub/expand` or by the standard's own definitions. {len(core())} are left. A backend with",
        "rules for the core has every operator; its own rules for others are there because its library does them better. The",
        "tests write every case of the standard's suite out down to the core: it is enough, and no two expansions lead to each",
        "other.",
        "",
        "## The core",
    ]
    lines += [line for title, ops in GROUPS.items() for line in ("", f"**{title}**: {', '.join(ops)}")]
    lines += ["", "## What the others are written in", "", "| operator | may be written in |", "|---|---|"]
    lines += [f"| {op} | {_text(written_in(op))} |" for op in rest]
    return "\n".join(lines) + "\n"


def _text(ops: Iterable[str]) -> str:
    return ", ".join(sorted(ops)) or "the standard's definition for the node at hand"

"""The primitive operators, which have no decomposition: a backend that implements these supports every ONNX operator.

Computed from the rules: an operator is primitive if neither `hub/decompositions` nor the ONNX standard decomposes it.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any

import onnx

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.decompositions.standard import decompose, has_decomposition
from onnxbridge.hub.ir.opset_version import OPSET
from onnxbridge.hub.ir.schemas import name_of, schema_of, version_of

GROUPS: dict[str, tuple[str, ...]] = {
    "arithmetic": ("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Floor", "Sqrt", "Cast", "BitCast"),
    "elementary functions": ("Exp", "Log", "Sin", "Cos", "Atan", "Tanh", "Erf"),
    "comparison, logic and selection": ("Equal", "Less", "Greater", "And", "Or", "Not", "Where"),
    "reduction and sorting": ("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "TopK"),
    "matrix products, convolution and pooling": ("MatMul", "Conv", "ConvTranspose", "AveragePool", "MaxPool"),
    "shape, indexing and constants": (
        "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Expand", "Concat", "Slice", "Shape", "Gather", "ScatterND", "NonZero",
        "Constant", "ConstantOfShape", "Identity",
    ),
    "control flow": ("If", "Loop", "Scan"),
    "random": ("RandomUniformLike",),
    "sequences, optionals, strings, maps and images": (
        "SequenceEmpty", "SequenceConstruct", "SequenceInsert", "SequenceErase", "SequenceAt", "SequenceLength",
        "SplitToSequence", "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "StringConcat",
        "StringSplit", "StringNormalizer", "RegexFullMatch", "ImageDecoder", "ai.onnx.ml::CastMap", "ai.onnx.ml::DictVectorizer",
        "ai.onnx.ml::ZipMap",
    ),
}  # fmt: skip
"""The primitive operators by topic; a test compares them with `primitive()`."""


@functools.cache
def operators() -> tuple[str, ...]:
    """Every operator of ai.onnx and ai.onnx.ml at the hub's versions that is neither deprecated nor experimental."""
    newest: dict[tuple[str, str], onnx.defs.OpSchema] = {}
    for schema in sorted(onnx.defs.get_all_schemas_with_history(), key=lambda s: s.since_version):
        limit = {"": OPSET, "ai.onnx.ml": version_of("ai.onnx.ml")}.get(schema.domain, 0)
        if schema.since_version <= limit:
            newest[schema.domain, schema.name] = schema
    experimental = onnx.defs.OpSchema.SupportType.EXPERIMENTAL
    supported = (s for s in newest.values() if not s.deprecated and s.support_level != experimental)
    return tuple(sorted(name_of(s.name, s.domain) for s in supported))


def primitive() -> tuple[str, ...]:
    """The operators that have no decomposition."""
    return tuple(op for op in operators() if not has_decomposition(op.rpartition("::")[2], op.rpartition("::")[0]))


@functools.cache
def decomposed_into(op: str) -> frozenset[str]:
    """The operators that the decomposition of `op` may use, found by inspecting its code.

    Empty if the standard's function body depends on the node.
    """
    if op in decompose:
        return frozenset(_operators_in_function(decompose[op].lower, set()))
    schema: Any = schema_of(op)
    return frozenset(node.op_type for node in schema.function_body.node) if schema.has_function else frozenset()


def _operators_in_function(function: Any, seen: set[Any]) -> Iterator[str]:
    """The operators named in a function's code and, recursively, in the helpers and builder methods that it refers to."""
    if function in seen:
        return
    seen.add(function)
    for name in _names_in_code(function.__code__):
        if name in operators():
            yield name
        yield from _operators_in_object(getattr(Builder, name, None), seen)
        yield from _operators_in_object(function.__globals__.get(name), seen)
    for cell in function.__closure__ or ():
        yield from _operators_in_object(cell.cell_contents, seen)


def _names_in_code(code: types.CodeType) -> Iterator[str]:
    """The names and string constants in a code object and in those nested in it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in_code(constant)
        elif isinstance(constant, str):
            yield constant


def _operators_in_object(obj: Any, seen: set[Any]) -> Iterator[str]:
    """The operators named by an object that code refers to: a helper, a builder method, an operator name or a table of these."""
    if isinstance(obj, types.FunctionType) and obj.__module__.startswith(
        ("onnxbridge.hub.decompositions.standard", "onnxbridge.hub.builder.builder")
    ):
        yield from _operators_in_function(obj, seen)
    elif isinstance(obj, str) and obj in operators():
        yield obj
    elif isinstance(obj, (tuple, dict)):
        for element in obj.values() if isinstance(obj, dict) else obj:
            yield from _operators_in_object(element, seen)


def page() -> str:
    """docs/core.md."""
    decomposed = [op for op in operators() if op not in primitive()]
    lines = [
        "# Primitive operators",
        "",
        "Generated from the rules by `python docs/generate.py`; a test checks that it is up to date.",
        "",
        f"ai.onnx {OPSET} and ai.onnx.ml {version_of('ai.onnx.ml')} have {len(operators())} operators.",
        f"{len(decomposed)} are decomposed into simpler ones by `hub/decompositions` or by the function bodies of the ONNX",
        f"standard; the other {len(primitive())} are primitive. A backend that has rules for the primitive operators supports",
        "every operator; it has rules for others where its library computes them better. The tests decompose every case of the",
        "standard's test suite down to primitive operators, which shows that these suffice and that there is no cycle.",
        "",
        "## The primitive operators",
    ]
    lines += [line for title, ops in GROUPS.items() for line in ("", f"**{title}**: {', '.join(ops)}")]
    lines += ["", "## The decomposed operators", "", "| operator | decomposed into |", "|---|---|"]
    lines += [f"| {op} | {_table_cell(decomposed_into(op))} |" for op in decomposed]
    return "\n".join(lines) + "\n"


def _table_cell(ops: Iterable[str]) -> str:
    return ", ".join(sorted(ops)) or "depends on the node (function body of the standard)"

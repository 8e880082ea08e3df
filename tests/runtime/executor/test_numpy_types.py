"""Every rule runs with every element type of its schema, and results have the type of their type variable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxbridge.runtime import Executor
from onnxbridge.runtime.executor.numpy.ops import rule
from tests.runtime.executor import node_cases


def cases() -> Iterator[Any]:
    """The first test case of each operator, for each of its type variables."""
    seen = set()
    for name, case in node_cases.cases().items():
        model = node_cases.model_of(case)
        node = model.graph.node[0]
        if len(model.graph.node) > 1 or model.functions or node.domain or node.op_type in {*seen, "BitCast"}:
            continue  # BitCast: the shape depends on the size of elements
        seen.add(node.op_type)
        schema = onnx.defs.get_schema(node.op_type, node_cases.opset(model), "")
        formals = [schema.inputs[min(i, len(schema.inputs) - 1)].type_str for i in range(len(node.input))]
        for constraint in schema.type_constraints:
            of = [n for n, formal in zip(node.input, formals, strict=True) if n and formal == constraint.type_param_str]
            if of:
                yield pytest.param(case, schema, constraint, of, id=f"{name}-{constraint.type_param_str}")


def types(constraint: Any) -> Iterator[tuple[int, Any]]:
    for text in constraint.allowed_type_strs:
        code = getattr(onnx.TensorProto, text[7:-1].upper(), None) if text.startswith("tensor(") else None
        if code is not None and "complex" not in text:
            yield code, np.dtype(object) if code == onnx.TensorProto.STRING else helper.tensor_dtype_to_np_dtype(code)


@pytest.mark.parametrize(("case", "schema", "constraint", "names"), list(cases()))
def test_every_allowed_type(case, schema, constraint, names):
    model = node_cases.model_of(case)
    inputs = dict(zip([i.name for i in model.graph.input], node_cases.data_sets(case)[0][0], strict=False))
    typed = [inputs[n] for n in names if n in inputs]
    for code, dtype in types(constraint):
        if any(not isinstance(x, np.ndarray) or (x.dtype.kind == "O") != (dtype.kind == "O") for x in typed):
            continue  # strings cannot be converted to numbers, and sequences have their own cases
        made = onnx.ModelProto()
        made.CopyFrom(model)
        feeds = dict(inputs)
        for declared in made.graph.input:
            if declared.name in names:
                declared.type.tensor_type.elem_type = code
                x = inputs[declared.name]
                with np.errstate(all="ignore"):
                    feeds[declared.name] = x if x.dtype == dtype else x.astype(np.float32).astype(dtype)
        for output in made.graph.output:
            output.type.Clear()
        results = Executor(made).run(None, feeds)
        for formal, got in zip(schema.outputs, results, strict=False):
            if formal.type_str == constraint.type_param_str and isinstance(got, np.ndarray):
                assert got.dtype == dtype


@pytest.mark.parametrize("op", sorted(op for op in rule if op.startswith("Reduce")))
def test_reduction_without_axes_preserves_the_type(op):
    data = np.array([1, 4, 9], np.int32)
    assert rule[op].lower(data, None, keepdims=0, noop_with_empty_axes=1).dtype == np.int32


def test_integer_gemm_factors_wrap():
    text = """<ir_version: 10, opset_import: ["" : 26]> agraph (uint64[1,1] a, uint64[1] c) => (uint64[1,1] y)
        { y = Gemm<alpha = -1.0, beta = 2.0>(a, a, c) }"""
    feeds = {"a": np.array([[3]], np.uint64), "c": np.array([2**64 - 1], np.uint64)}
    (y,) = Executor(onnx.parser.parse_model(text)).run(None, feeds)
    assert y.dtype == np.uint64 and int(y[0, 0]) == (-9 + 2 * (2**64 - 1)) % 2**64


@pytest.mark.parametrize(("sorted", "first"), [(1, [1, 0]), (0, [0, 1])])
def test_unique_rows_of_strings(sorted, first):
    x = np.array([["b", "b", "b"], ["a", "10", "9"], ["b", "b", "b"]], object)
    values, where, inverse, counts = rule["Unique"].lower(x, axis=0, sorted=sorted)
    np.testing.assert_array_equal(where, first)
    np.testing.assert_array_equal(values, x[first])
    np.testing.assert_array_equal(values[inverse], x)
    assert values.dtype == object and counts.sum() == 3


@pytest.mark.parametrize("op", ["CumSum", "CumProd"])
@pytest.mark.parametrize("axis", [2, -3, np.iinfo(np.int32).min])
def test_an_out_of_range_axis_is_refused(op, axis):
    with pytest.raises(ValueError, match="of 2 dimensions"):
        rule[op].lower(np.ones((2, 3), np.float32), axis)

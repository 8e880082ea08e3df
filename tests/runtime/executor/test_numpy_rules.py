"""Every rule of the executor has the signature of its schema, and passes the test cases of onnx."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest

from onnxbridge.hub.decompositions.microsoft import MICROSOFT
from onnxbridge.hub.ir.schemas import attribute, schema_of
from onnxbridge.lowering import same_value
from onnxbridge.rules import REQUIRED
from onnxbridge.runtime import Executor
from onnxbridge.runtime.executor.numpy.ops import linalg, rule
from tests.runtime.executor import node_cases

BFLOAT16 = onnx.TensorProto.BFLOAT16

# Cases that the suite in test_backend compares with a large tolerance (bfloat16) or cannot compare (scalars in a sequence).
CASES = [
    pytest.param(case, id=name)
    for name, case in node_cases.cases().items()
    if name == "test_loop16_seq_none"
    or any(o.type.tensor_type.elem_type == BFLOAT16 for o in node_cases.model_of(case).graph.output)
]


def test_random_operators_are_registered_as_random():
    seeded = {op for op in rule if "::" not in op and "seed" in schema_of(op).attributes}
    assert {op for op in rule if rule[op].kind == "random"} == seeded


@pytest.mark.parametrize("case", CASES)
def test_case(case):
    model = node_cases.model_of(case)
    executor = Executor(model)
    for inputs, expected in node_cases.data_sets(case):
        got = executor.run(None, dict(zip([i.name for i in model.graph.input], inputs, strict=False)))
        node_cases.assert_same(list(got), list(expected), case.rtol, max(case.atol, 1e-7))


@pytest.mark.parametrize("op", [op for op in rule if not rule[op].plain and not op.startswith(MICROSOFT)])
def test_signature_is_the_schema(op):
    domain, _, name = op.rpartition("::")
    schema = schema_of(name, domain)
    params = [p for p in rule[op].params if p.form != "outputs"]
    assert [p.name for p in params if not p.keyword] == [i.name for i in schema.inputs]
    for p, formal in zip(params, schema.inputs, strict=False):
        if formal.option == onnx.defs.OpSchema.FormalParameterOption.Optional:
            assert p.default is not REQUIRED, p.name
        else:
            assert p.default is REQUIRED, p.name
    attributes = {p.name: p.default for p in params if p.keyword}
    assert set(attributes) <= set(schema.attributes)
    assert rule[op].accepts_any_attribute or set(attributes) == set(schema.attributes)
    for attr, default in attributes.items():
        declared = schema.attributes[attr]
        if declared.required:
            assert default is REQUIRED, attr
        elif declared.default_value.type:
            expected = attribute(declared.default_value)
            close = isinstance(expected, float) and np.float32(default) == np.float32(expected)
            assert close or same_value(default, expected), attr
        else:
            assert default is None or attr == "activations", attr


@pytest.mark.parametrize("op", [op for op in rule if rule[op].plain])
def test_plain_rules_have_no_attributes(op):
    schema = schema_of(op)
    assert not schema.attributes
    assert schema.min_input == schema.max_input


ELEMENTWISE = [
    "Abs", "Acos", "Ceil", "Celu", "Clip", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish",
    "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin",
    "Softplus", "Softsign", "Sqrt", "Swish", "Tanh", "ThresholdedRelu", "Identity", "Sum", "Mean", "Max", "Min",
    "ReduceSum", "ReduceMean", "ReduceL2", "ReduceLogSumExp", "ReduceMax",
]  # fmt: skip


@pytest.mark.parametrize("op", ELEMENTWISE)
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_a_scalar_result_has_the_input_type(op, kind):
    result = np.asarray(rule[op].lower(np.array(0.5).astype(kind)))
    assert (result.dtype, result.shape) == (kind, ())


@pytest.mark.parametrize("batch", [(5, 1), (2, 3, 4), (0, 1), (3, 0), (2, 64), (7,)])
def test_a_batch_of_few_rows_times_a_matrix_is_one_matmul(batch, monkeypatch):
    a, b = np.arange(np.prod((*batch, 6)), dtype=np.float32).reshape(*batch, 6), np.arange(24, dtype=np.float32).reshape(6, 4)
    expected, plain, ranks = np.einsum("...i,ij->...j", a, b), np.matmul, []
    monkeypatch.setattr(np, "matmul", lambda a, b: ranks.append(a.ndim) or plain(a, b))
    for left in (a, np.asfortranarray(a)):
        result = linalg.matmul_claimed(left, b)
        assert result.shape == expected.shape
        np.testing.assert_array_equal(result, expected)
    assert ranks == [len(batch) + 1 if batch[-1] >= 64 else 2] * 2

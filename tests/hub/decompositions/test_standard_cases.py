"""Every decomposition, including function bodies of the standard, on the node tests of ONNX, down to primitive operators.

Only primitive operators are computed, by the executor's rules. That shows that they suffice and that no decompositions form a
cycle.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxbridge.errors import ConversionError
from onnxbridge.hub import passes
from onnxbridge.hub.decompositions.lookup import decomposition_of
from onnxbridge.hub.decompositions.standard import decompose, has_decomposition
from onnxbridge.hub.io import onnx_files
from onnxbridge.hub.ir import graph_reader
from onnxbridge.hub.ir.schemas import array_of, name_of, schema_of
from onnxbridge.hub.opset import opset_conversion
from onnxbridge.lowering import BodyFunction, Target
from onnxbridge.runtime.executor.numpy.ops import rule as numpy_rules
from tests.hub.decompositions import cases as all_cases
from tests.hub.decompositions import test_random as test_random
from tests.runtime.executor import node_cases

DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview.training")
FAILURES = node_cases.expected_failures("decompositions")
PRIMITIVE_RULES = {
    op: rule for op, rule in numpy_rules.items() if not has_decomposition(op.rpartition("::")[2], op.rpartition("::")[0])
}


class Arrays(Target):
    """Computes operators immediately, on arrays."""

    direction = "decomposition to arrays"

    def static(self, key, value):
        return value

    def decompose(self, call):
        return decomposition_of(call)


def node_of(model):
    """The hub model of a test case with inferred types, and its node; None if it has several."""
    hub = opset_conversion.to_hub(passes.inline(onnx_files.from_proto(model)))
    passes.infer(hub)
    nodes = list(hub.graph)
    return hub, nodes[0] if len(nodes) == 1 else None


def _params():
    for name, case in node_cases.cases(lowest=1, highest=onnx.defs.onnx_opset_version()).items():
        model = node_cases.model_of(case)
        # random operators: test_random.py checks their distribution
        is_random = name.startswith(("test_training_dropout", "test_bernoulli")) and "zero_ratio" not in name
        if len(model.graph.node) == 1 and _is_decomposed(model.graph.node[0]) and not is_random and _fits_hub_opset(model):
            marks = [pytest.mark.xfail(strict=True, raises=ConversionError, reason=FAILURES[name])] if name in FAILURES else []
            yield pytest.param(case, id=name, marks=marks)


def _is_decomposed(node):
    """Whether the operator of a node is decomposed; the decomposition of SequenceMap needs the subgraph of the model."""
    return node.domain in DOMAINS and node.op_type != "SequenceMap" and has_decomposition(node.op_type, node.domain)


def _fits_hub_opset(model):
    """Whether the case is a single node at the hub's opset: dtypes of newer opsets are unsupported or need Casts."""
    try:
        return node_of(model)[1] is not None
    except ConversionError:
        return False


CASES = list(_params())
STANDARD = [op for op in decompose if op.rpartition("::")[0] in DOMAINS]


@pytest.mark.parametrize("case", CASES)
def test_decomposition_passes_node_test(case):
    hub, node = node_of(node_cases.model_of(case))
    body = decomposition_of(graph_reader.call_of(node))
    for inputs, expected in node_cases.data_sets(case):
        feeds = dict(zip(hub.graph.inputs, inputs, strict=False))
        arguments = [None if v is None else feeds[v] if v in feeds else v.const_value.numpy() for v in node.inputs]
        with np.errstate(all="ignore"):
            results = BodyFunction(body, PRIMITIVE_RULES, graph_reader.HubValues(lambda v: array_of(v.const_value)), Arrays())(
                *arguments
            )
        graph_outputs = [r for o, r in zip(node.outputs, results, strict=True) if o.is_graph_output()]
        # bfloat16 has eight bits of precision, and each of several steps rounds to them
        rtol = 2**-6 if any(np.asarray(e).dtype.name == "bfloat16" for e in expected) else max(case.rtol, 1e-5)
        node_cases.assert_same([np.asarray(w) for w in graph_outputs], list(expected), rtol, max(case.atol, 1e-6))


def test_every_decomposition_has_a_case():
    nodes = [node_cases.model_of(p.values[0]).graph.node[0] for p in CASES]
    covered = {name_of(n.op_type, n.domain) for n in nodes} | {c.op for c in all_cases.CASES} | test_random.OPERATORS
    assert covered >= set(STANDARD)


@pytest.mark.parametrize("op", STANDARD)
def test_signature_matches_the_schema(op):
    domain, _, name = op.rpartition("::")
    schema = schema_of(name, domain)
    params = [p for p in decompose[op].params if p.form != "outputs"]
    assert [p.name for p in params if not p.keyword] == [i.name for i in schema.inputs]
    assert {p.name for p in params if p.keyword} == set(schema.attributes)


def test_primitive_operator_has_no_decomposition():
    (node,) = opset_conversion.to_hub(onnx_files.from_proto(node_cases.model_of(node_cases.cases(lowest=1)["test_add"]))).graph
    assert decomposition_of(graph_reader.call_of(node)) is None

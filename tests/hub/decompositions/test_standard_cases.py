"""Every expansion, ours and the standard's, against the standard's own cases of its operator, written out down to the core set.

Only operators without an expansion are computed, by the executor's rules; so the core is enough, and no two expansions lead to
each other.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxbridge.errors import ConversionError
from onnxbridge.hub import passes
from onnxbridge.hub.decompositions.lookup import body_of
from onnxbridge.hub.decompositions.standard import covers, expand
from onnxbridge.hub.io import onnx_files
from onnxbridge.hub.ir import graph_reader
from onnxbridge.hub.ir.schemas import array_of, name_of, schema_of
from onnxbridge.hub.opset import opset_conversion
from onnxbridge.lowering import Target, as_function
from onnxbridge.runtime.executor.numpy.ops import rule as numpy_rules
from tests.hub.decompositions import cases as expand_table
from tests.hub.decompositions import test_random as test_expand_random
from tests.runtime.executor import node_cases

DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview.training")
FAILURES = node_cases.expected_failures("expand")
CORE = {op: rule for op, rule in numpy_rules.items() if not covers(op.rpartition("::")[2], op.rpartition("::")[0])}


class Arrays(Target):
    """Computes at once, on arrays."""

    direction = "expansion to arrays"

    def static(self, key, value):
        return value

    def expand(self, call):
        return body_of(call)


def node_of(model):
    """The one node of a case, in a typed hub model."""
    hub = opset_conversion.to_hub(passes.inline(onnx_files.from_proto(model)))
    passes.infer(hub)
    nodes = list(hub.graph)
    return hub, nodes[0] if len(nodes) == 1 else None


def _params():
    for name, case in node_cases.cases(lowest=1, highest=onnx.defs.onnx_opset_version()).items():
        model = node_cases.model_of(case)
        # whose numbers are drawn: test_expand_random.py looks at their distribution
        drawn = name.startswith(("test_training_dropout", "test_bernoulli")) and "zero_ratio" not in name
        if len(model.graph.node) == 1 and _is_written_out(model.graph.node[0]) and not drawn and _is_in_the_hub(model):
            marks = [pytest.mark.xfail(strict=True, raises=ConversionError, reason=FAILURES[name])] if name in FAILURES else []
            yield pytest.param(case, id=name, marks=marks)


def _is_written_out(node):
    """Whether there is an expansion of an operator of the standard; that of SequenceMap needs the file's own graph."""
    return node.domain in DOMAINS and node.op_type != "SequenceMap" and covers(node.op_type, node.domain)


def _is_in_the_hub(model):
    """Whether the hub's opset can say this case in one node: dtypes of newer versions are refused, or get Casts around."""
    try:
        return node_of(model)[1] is not None
    except ConversionError:
        return False


CASES = list(_params())
STANDARD = [op for op in expand if op.rpartition("::")[0] in DOMAINS]


@pytest.mark.parametrize("case", CASES)
def test_case(case):
    hub, node = node_of(node_cases.model_of(case))
    body = body_of(graph_reader.call_of(node))
    for inputs, expected in node_cases.data_sets(case):
        feeds = dict(zip(hub.graph.inputs, inputs, strict=False))
        given = [None if v is None else feeds[v] if v in feeds else v.const_value.numpy() for v in node.inputs]
        with np.errstate(all="ignore"):
            results = as_function(body, CORE, graph_reader.HubValues(lambda v: array_of(v.const_value)), Arrays())(*given)
        wanted = [r for o, r in zip(node.outputs, results, strict=True) if o.is_graph_output()]
        # bfloat16 keeps eight bits, and each of several steps rounds to them
        rtol = 2**-6 if any(np.asarray(e).dtype.name == "bfloat16" for e in expected) else max(case.rtol, 1e-5)
        node_cases.assert_same([np.asarray(w) for w in wanted], list(expected), rtol, max(case.atol, 1e-6))


def test_every_expansion_has_a_case():
    nodes = [node_cases.model_of(p.values[0]).graph.node[0] for p in CASES]
    covered = {name_of(n.op_type, n.domain) for n in nodes} | {c.op for c in expand_table.CASES} | test_expand_random.OPERATORS
    assert covered >= set(STANDARD)


@pytest.mark.parametrize("op", STANDARD)
def test_signature_is_the_schema(op):
    domain, _, name = op.rpartition("::")
    schema = schema_of(name, domain)
    params = [p for p in expand[op].params if p.form != "outputs"]
    assert [p.name for p in params if not p.keyword] == [i.name for i in schema.inputs]
    assert {p.name for p in params if p.keyword} == set(schema.attributes)


def test_an_operator_of_the_core_has_none():
    (node,) = opset_conversion.to_hub(onnx_files.from_proto(node_cases.model_of(node_cases.cases(lowest=1)["test_add"]))).graph
    assert body_of(graph_reader.call_of(node)) is None

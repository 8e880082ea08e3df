"""The onnx wheel's cases for a backend: a few of every operator that it has a rule for, and its rules' signatures."""

from __future__ import annotations

import collections

import onnx
import pytest

from onnxbridge.errors import ConversionError
from onnxbridge.hub import passes
from onnxbridge.hub.io import onnx_files
from onnxbridge.hub.ir.schemas import attribute, schema_of
from onnxbridge.hub.opset import opset_conversion
from onnxbridge.lowering import same_value
from onnxbridge.rules import REQUIRED
from tests.runtime.executor import node_cases

# Drawn numbers are those of another generator, so there is nothing to compare.
RANDOM = ("test_bernoulli", "test_training_dropout_default", "test_training_dropout", "test_training_dropout_mask")


def is_random(name):
    return name.startswith(RANDOM[:2]) or name in RANDOM


def hub_of(model):
    """A case's model as backends get it."""
    hub = opset_conversion.to_hub(passes.inline(onnx_files.from_proto(model)))
    passes.infer(hub)
    return passes.clean(hub)


def chosen(rules, most, failures):
    """At most so many cases of each operator with a rule, evenly taken from the standard's; the known failures are marked."""
    by_op = collections.defaultdict(list)
    for name, case in sorted(node_cases.cases().items()):
        nodes = node_cases.model_of(case).graph.node if not is_random(name) else []
        if len(nodes) == 1 and nodes[0].op_type in rules and not nodes[0].domain:
            by_op[nodes[0].op_type].append((name, case))
    for found in by_op.values():
        step = max(len(found) // most, 1)
        for name, case in found[::step][:most]:
            marks = [pytest.mark.xfail(strict=True, reason=failures[name])] if name in failures else []
            yield pytest.param(case, id=name, marks=marks)


def check(case, backend):
    """Build the case's model once and compare every one of its data sets."""
    model = node_cases.model_of(case)
    run = backend.runner(backend.from_hub(hub_of(model)))
    names = [i.name for i in model.graph.input]
    for inputs, expected in node_cases.data_sets(case):
        got = run(dict(zip(names, inputs, strict=False)))
        node_cases.assert_same(list(got.values()), list(expected), case.rtol, max(case.atol, 1e-7))


def check_dynamic(case, backend):
    """Compare a case's model with all sizes of its inputs dynamic; False where the backend refuses that."""
    model = onnx.ModelProto()
    model.CopyFrom(node_cases.model_of(case))
    for v, value in enumerate(model.graph.input):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            dim.dim_param = f"size_{v}_{axis}"
    for value in model.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    try:
        run = backend.runner(backend.from_hub(hub_of(model)))
    except ConversionError:
        return False
    names = [i.name for i in model.graph.input]
    for inputs, expected in node_cases.data_sets(case):
        got = run(dict(zip(names, inputs, strict=False)))
        node_cases.assert_same(list(got.values()), list(expected), case.rtol, max(case.atol, 1e-7))
    return True


def check_signature(rule, op):
    """A rule's parameters are the operator's own, and so are their defaults."""
    domain, _, name = op.rpartition("::")
    schema = schema_of(name, domain)
    params = [p for p in rule.params if p.form != "outputs"]
    assert [p.name for p in params if not p.keyword] == [i.name for i in schema.inputs]
    for p, formal in zip(params, schema.inputs, strict=False):
        optional = formal.option == onnx.defs.OpSchema.FormalParameterOption.Optional
        assert (p.default is not REQUIRED) == optional, p.name
    given = {p.name.rstrip("_"): p.default for p in params if p.keyword}
    assert set(given) <= set(schema.attributes)
    for label, default in given.items():
        declared = schema.attributes[label]
        assert (default is REQUIRED) == declared.required, label
        if declared.default_value.type:
            assert same_value(default, attribute(declared.default_value)), label

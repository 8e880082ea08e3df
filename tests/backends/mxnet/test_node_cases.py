"""The ONNX node test cases as MXNet symbols, computed by MXNet."""

from __future__ import annotations

import warnings
from collections import defaultdict

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

import onnxbridge
from onnxbridge.backends.mxnet import backend
from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.errors import ConversionError
from onnxbridge.frontends.onnx import frontend
from onnxbridge.runtime.mxnet import service
from tests.sampling import at_most

TYPES = {"float16", "float32", "float64", "uint8", "int8", "int32", "int64", "bool"}
PER_OPERATOR = at_most(8)
# Inputs that configure an operator: MXNet requires them as constants.
CONSTANT_INPUTS = {
    "Reshape": [1], "Expand": [1], "Tile": [1], "Unsqueeze": [1], "Squeeze": [1], "Slice": [1, 2, 3, 4], "Pad": [1, 2, 3],
    "TopK": [1], "Split": [1], "ConstantOfShape": [0], "Range": [0, 1, 2], "Resize": [1, 2, 3], "OneHot": [1, 2], "CumSum": [1],
    "Trilu": [1], "Dropout": [1, 2], "BatchNormalization": [1, 2, 3, 4], "If": [0],
    **{f"Reduce{n}": [1] for n in ["Mean", "Sum", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"]},
}  # fmt: skip


# Random outputs of another generator cannot be compared.
RANDOM = {f"test_training_dropout{suffix}" for suffix in ("_default", "", "_mask", "_default_mask")}


def cases():
    """A few cases by name for each operator with a rule."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = {c.name: c for c in collect_testcases(None)}
    counts: dict[str, int] = defaultdict(int)
    chosen = {}
    for name, case in sorted(found.items()):
        ops = {n.op_type for n in case.model.graph.node}
        arrays = [x for arrays_ in case.data_sets[0] for x in arrays_]
        plain = all(isinstance(_array(x), (np.ndarray, np.generic)) and _array(x).dtype.name in TYPES for x in arrays)
        if name in RANDOM:
            continue
        if len(ops) == 1 and plain and ops <= set(rule) and counts[min(ops)] < PER_OPERATOR:
            counts[min(ops)] += 1
            chosen[name] = case
    return chosen


def _array(x):
    return numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x


def frozen(case):
    """The model with configuring inputs as constants, and the remaining feeds."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    feeds = {v.name: np.asarray(_array(x)) for v, x in zip(model.graph.input, case.data_sets[0][0], strict=False)}
    for node in model.graph.node:
        for position in CONSTANT_INPUTS.get(node.op_type, []):
            name = node.input[position] if position < len(node.input) else ""
            if name in feeds:
                model.graph.initializer.append(numpy_helper.from_array(feeds.pop(name), name))
    remaining = [v for v in model.graph.input if v.name in feeds]
    del model.graph.input[:]
    model.graph.input.extend(remaining)
    return model, feeds


# attributes of types that MXNet does not have: strings and sparse tensors
UNSUPPORTED_ATTRIBUTES = {"Constant": {"sparse_value", "value_string", "value_strings"}}
CASES = cases()
PASSED: set[str] = set()


@pytest.mark.parametrize("name", CASES)
def test_case(name, tmp_path):
    case = CASES[name]
    model, feeds = frozen(case)
    onnx.save(model, tmp_path / "model.onnx")
    try:
        artifact = backend.from_hub(frontend.to_hub(tmp_path / "model.onnx", None, None))
    except ConversionError as error:
        assert error.problems and all(p.reason and "its rule failed" not in p.reason for p in error.problems)
        return
    found = backend.runner(artifact)(feeds)
    expected = [np.asarray(_array(x)) for x in case.data_sets[0][1]]
    assert list(found) == [o.name for o in model.graph.output]
    for value, reference in zip(found.values(), expected, strict=True):
        assert (value.shape, value.dtype) == (reference.shape, reference.dtype)
        rtol, atol = case.rtol, max(case.atol, 1e-7)  # the case's own tolerances
        np.testing.assert_allclose(value.astype(np.float64), reference.astype(np.float64), rtol=rtol, atol=atol)
    PASSED.update(n.op_type for n in case.model.graph.node)


@pytest.mark.slow  # it needs the results of all cases
def test_every_rule_has_a_case_that_passes():
    """Runs after the cases; the other rules are tested in whole networks."""
    if not PASSED:
        pytest.skip("the cases were not run in this process")
    elsewhere = {"RNN", "GRU", "If", "GridSample", "Constant", "GlobalLpPool", "BitShift", "Loop", "Scan"}
    elsewhere |= {"RandomUniformLike", "RandomNormalLike"}
    # inputs of these cases are optionals, or their operator is of a preview domain
    elsewhere |= {"OptionalHasElement", "OptionalGetElement", "ai.onnx.preview::FlexAttention"}
    assert set(rule) - PASSED - elsewhere == set()


def test_signatures_match_onnx():
    import inspect

    for op in rule:
        domain, _, name = op.rpartition("::")
        schema = onnx.defs.get_schema(name, 1 if domain else 26, domain)
        parameters = list(inspect.signature(rule[op].lower).parameters.values())[1:]
        if any(p.kind is p.VAR_POSITIONAL for p in parameters):
            continue
        keywords = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} - {"used"}
        assert [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD] == [i.name for i in schema.inputs], op
        assert {k.rstrip("_") for k in keywords} | UNSUPPORTED_ATTRIBUTES.get(op, set()) == set(schema.attributes), op


def test_dropout_in_training_mode_is_random():
    data = np.ones((200, 40), np.float32)
    node = onnx.helper.make_node("Dropout", ["x", "ratio", "trains"], ["y"])
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, data.shape) for n in "xy")
    constants = {"ratio": np.array(0.25, np.float32), "trains": np.array(True)}
    graph = onnx.helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(a, n) for n, a in constants.items()])
    opsets = [onnx.helper.make_opsetid("", 18)]
    made = onnxbridge.convert(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), to="mxnet")
    (found,) = backend.runner(made.artifact)({"x": data}).values()
    assert made.report.agrees and 0.2 < (found == 0).mean() < 0.3 and np.allclose(found[found > 0], 4 / 3)


def test_the_service_has_mxnet_1_9():
    assert service().ask("ping")["version"].startswith("1.9")


def test_output_is_deterministic(tmp_path):
    model = ir.from_proto(next(iter(CASES.values())).model)
    contents = []
    for i in range(2):
        hub = frontend.to_hub(ir.to_proto(model), None, None)
        files = backend.save(backend.from_hub(hub), tmp_path / f"net{i}-symbol.json")
        assert [f.name for f in files] == [f"net{i}-symbol.json", f"net{i}-0000.params"]
        contents.append([f.read_bytes() for f in files])
    assert contents[0] == contents[1]

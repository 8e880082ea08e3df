"""The standard's own definitions, for operators that no expansion of ours is better for, against the standard's cases."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from onnxbridge.hub import calls, io, opset, passes
from onnxbridge.hub.expand import body_of, expand
from onnxbridge.lowering import as_function
from onnxbridge.runtime.numpy.ops import rule as numpy_rules

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
sys.path.insert(0, str(Path(__file__).parent))
import node_cases
from test_expand import Arrays

# One case of each kind: attributes, optional inputs, several outputs, a definition that depends on types or on sizes.
CASES = [
    "test_center_crop_pad_crop_and_pad", "test_hannwindow",
    "test_mvn", "test_nllloss_NCd1d2_with_weight", "test_rotary_embedding_with_interleaved_rotary_dim", "test_sce_mean_weight_ii",
    "test_group_normalization_epsilon", "test_attention_3d_causal", "test_clip_default_min", "test_elu_default",
]  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    case = node_cases.cases(lowest=1)[name]
    hub = opset.to_hub(passes.inline(io.from_proto(node_cases.model_of(case))))
    passes.infer(hub)
    (node,) = hub.graph
    assert node.op_type not in expand
    body = body_of(calls.call_of(node))
    for inputs, expected in node_cases.data_sets(case):
        feeds = dict(zip(hub.graph.inputs, inputs, strict=False))
        given = [None if v is None else feeds[v] if v in feeds else v.const_value.numpy() for v in node.inputs]
        with np.errstate(all="ignore"):
            values = calls.HubValues(lambda v: v.const_value.numpy())
            results = as_function(body, numpy_rules, values, Arrays())(*given)
        wanted = [r for o, r in zip(node.outputs, results, strict=True) if o.is_graph_output()]
        node_cases.assert_same([np.asarray(w) for w in wanted], list(expected), max(case.rtol, 1e-5), max(case.atol, 1e-6))


def test_an_operator_without_a_definition_has_none():
    case = node_cases.cases(lowest=1)["test_add"]
    hub = opset.to_hub(io.from_proto(node_cases.model_of(case)))
    (node,) = hub.graph
    assert body_of(calls.call_of(node)) is None

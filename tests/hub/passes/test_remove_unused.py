"""Outputs that ONNX allows only together stay together."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

import onnxbridge
from onnxbridge.hub.passes.remove_unused import RemoveUnused

TEXT = """<ir_version: 11, opset_import: ["" : 23]>
g (float[1,2,3,4] q, float[1,2,3,4] k, float[1,2,3,4] v, float[1,2,2,4] pk, float[1,2,2,4] pv) => (float[1,2,3,4] y{results})
{ y, key, value = Attention (q, k, v, , pk, pv) unread = Abs (y) }"""


def attention(results):
    return onnx.parser.parse_model(TEXT.replace("{results}", results))


@pytest.mark.parametrize(("results", "count"), [("", 1), (", float[1,2,5,4] key", 3), (", float[1,2,5,4] value", 3)])
def test_present_keys_and_values(results, count):
    model = ir.from_proto(attention(results))
    assert RemoveUnused()(model).modified
    (node,) = model.graph
    assert len([o for o in node.outputs if o.name]) == count and len({o.name for o in node.outputs}) == count
    onnx.checker.check_model(ir.to_proto(model), full_check=True)


@pytest.mark.parametrize("target", ["tensorflow", "pytorch", "onnx"])
def test_only_one_of_them_is_read(target):
    assert onnxbridge.convert(attention(", float[1,2,5,4] key"), to=target).report.agrees

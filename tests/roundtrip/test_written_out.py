"""Layers that a source framework decomposes into arithmetic become operators or layers of each target."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnxbridge

keras = pytest.importorskip("keras")
layers = keras.layers


@pytest.fixture(scope="module")
def block():
    """The feed-forward block of a transformer."""
    keras.utils.set_random_seed(5)
    x = keras.Input((6, 8))
    y = layers.Dense(16, activation="gelu")(layers.LayerNormalization(epsilon=1e-5)(x))
    conversion = keras.Model(x, layers.Add()([x, layers.Dense(8, activation="silu")(y)]))
    for weight in conversion.weights:
        weight.assign(np.random.default_rng(1).standard_normal(weight.shape) / 2 + 0.5)
    return conversion


def test_onnx_uses_the_operators_of_its_opset(block):
    for opset, gelus in ((None, 1), (18, 0), (20, 1)):
        conversion = onnxbridge.convert(block, "onnx", opset=opset)
        ops = [node.op_type for node in conversion.model.graph.node]
        assert conversion.report.agrees
        assert ops.count("LayerNormalization") == 1
        assert ops.count("Gelu") == gelus
        assert ("Erf" in ops) != bool(gelus)
        assert conversion.model.opset_import[0].version == (opset or 20)
        onnx.checker.check_model(conversion.model, full_check=True)


def test_pytorch_uses_layers(block):
    import torch
    from torch import fx, nn

    conversion = onnxbridge.convert(block, "pytorch")
    assert conversion.report.agrees
    graphs = [m.graph for m in conversion.model.modules() if isinstance(m, fx.GraphModule)]
    calls = [node.target for graph in graphs for node in graph.nodes]
    layer_types = [type(m) for m in conversion.model.modules()]
    assert [layer_types.count(nn.LayerNorm), calls.count(torch._C._nn.gelu), calls.count(nn.functional.silu)] == [1, 1, 1]
    assert not {torch.erf, torch.sigmoid, torch.mean} & set(calls)


def test_core_ml_uses_its_operators(block):
    conversion = onnxbridge.convert(block, "coreml")
    assert conversion.report.agrees
    main = conversion.model.get_spec().mlProgram.functions["main"]
    ops = [op.type for op in next(iter(main.block_specializations.values())).operations]
    assert ops.count("layer_norm") == ops.count("gelu") == 1
    assert not {"erf", "rsqrt", "reduce_mean"} & set(ops)


@pytest.mark.parametrize("target", ["iOS17", "iOS18"])
def test_core_ml_uses_attention_from_ios18_on(target):
    text = """<ir_version: 10, opset_import: ["" : 18]> agraph (float[1,2,5,8] q, float[1,2,7,8] k, float[1,2,7,8] v)
        => (float[1,2,5,8] y) <float scale = {0.3}> { t = Transpose<perm = [0, 1, 3, 2]>(k) m = MatMul(q, t)
        s = Mul(m, scale) p = Softmax<axis = -1>(s) y = MatMul(p, v) }"""
    conversion = onnxbridge.convert(onnx.parser.parse_model(text), "coreml", minimum_deployment_target=target)
    assert conversion.report.agrees
    ops = [
        op.type
        for op in next(iter(conversion.model.get_spec().mlProgram.functions["main"].block_specializations.values())).operations
    ]
    assert ("scaled_dot_product_attention" in ops) == (target == "iOS18")
    assert ("softmax" in ops) == (target == "iOS17")

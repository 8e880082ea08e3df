"""Layers that a source framework decomposes into arithmetic become operators or layers of each target."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnxbridge
from tests.frontends.mxnet.build import operator, save, variable

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
    ops = mil_operators(conversion.model)
    assert ops.count("layer_norm") == ops.count("gelu") == 1
    assert not {"erf", "rsqrt", "reduce_mean"} & set(ops)


def mil_operators(model):
    main = model.get_spec().mlProgram.functions["main"]
    return [op.type for op in next(iter(main.block_specializations.values())).operations]


def operators_of(conversion):
    """The operators of an artifact by lowercase names without underscores, functions and layers alike."""
    if conversion.target == "onnx":
        names = [node.op_type for node in conversion.model.graph.node]
    elif conversion.target == "coreml":
        names = mil_operators(conversion.model)
    else:
        from torch import fx

        modules = list(conversion.model.modules())
        calls = [n.target for m in modules if isinstance(m, fx.GraphModule) for n in m.graph.nodes if n.op == "call_function"]
        names = [type(m).__name__.rstrip("123d") for m in modules] + [getattr(c, "__name__", str(c)) for c in calls]
    return [name.lower().replace("_", "") for name in names]


@pytest.fixture(scope="module")
def mxnet_formulas(tmp_path_factory):
    """An MXNet symbol with layer normalization and Gelu written out, then batch normalization; and its parameters."""
    rng = np.random.default_rng(3)
    weights = {name: rng.standard_normal(shape).astype(np.float32) / 4 + 1 for name, shape in (
        ("gamma", (6,)), ("beta", (6,)), ("moving_mean", (1, 3, 1)), ("moving_var", (1, 3, 1)), ("scale", (1, 3, 1)),
        ("shift", (1, 3, 1)),
    )}  # fmt: skip
    weights["moving_var"] = np.abs(weights["moving_var"])
    nodes = [variable("data"), *map(variable, weights)]
    index = {n["name"]: i for i, n in enumerate(nodes)}

    def add(op, name, *inputs, **attrs):
        index[name] = len(nodes)
        nodes.append(operator(op, name, [(index[i], 0) for i in inputs], attrs))
        return name

    mean = add("mean", "mean", "data", axis=-1, keepdims=True)
    centered = add("broadcast_sub", "centered", "data", mean)
    variance = add("mean", "variance", add("square", "squares", centered), axis=-1, keepdims=True)
    deviation = add("sqrt", "deviation", add("_plus_scalar", "safe", variance, scalar=1e-5))
    normal = add("broadcast_div", "normal", centered, deviation)
    y = add("broadcast_add", "normed", add("broadcast_mul", "scaled", normal, "gamma"), "beta")
    erf = add("_plus_scalar", "one_more", add("erf", "erf", add("_mul_scalar", "inner", y, scalar=0.5**0.5)), scalar=1.0)
    y = add("_mul_scalar", "gelu", add("elemwise_mul", "product", y, erf), scalar=0.5)
    root = add("sqrt", "root", add("_plus_scalar", "var_safe", "moving_var", scalar=1e-3))
    y = add("broadcast_div", "standard", add("broadcast_sub", "moved", y, "moving_mean"), root)
    add("broadcast_add", "out", add("broadcast_mul", "stretched", y, "scale"), "shift")
    folder = tmp_path_factory.mktemp("mxnet")
    return save(folder, nodes, [(index["out"], 0)], {f"arg:{n}": a for n, a in weights.items()})


@pytest.mark.parametrize("target", ["onnx", "pytorch", "coreml"])
def test_formulas_of_mxnet_become_operators(mxnet_formulas, target):
    conversion = onnxbridge.convert(mxnet_formulas, target, inputs="data:float32[2,3,6]")
    assert conversion.report.agrees
    found = operators_of(conversion)
    assert [sum(name in op for op in found) for name in ("layernorm", "gelu", "batchnorm")] == [1, 1, 1], found
    assert not {"erf", "sqrt", "rsqrt", "reducemean", "mean"} & set(found)


@pytest.mark.parametrize("target", ["pytorch", "coreml"])
def test_batch_normalization_of_tensorflow_becomes_a_layer(target):
    import tensorflow as tf

    rng = np.random.default_rng(4)
    mean, variance, scale, shift = (tf.constant(np.abs(rng.standard_normal((1, 3, 1))) + 0.5, tf.float32) for _ in range(4))

    @tf.function(input_signature=[tf.TensorSpec((None, 3, 5), tf.float32)])
    def normalize(x):
        return tf.nn.batch_normalization(x, mean, variance, shift, scale, 1e-3)

    conversion = onnxbridge.convert(normalize, target)
    assert conversion.report.agrees
    assert sum("batchnorm" in op for op in operators_of(conversion)) == 1


@pytest.mark.parametrize("target", ["iOS17", "iOS18"])
def test_core_ml_uses_attention_from_ios18_on(target):
    text = """<ir_version: 10, opset_import: ["" : 18]> agraph (float[1,2,5,8] q, float[1,2,7,8] k, float[1,2,7,8] v)
        => (float[1,2,5,8] y) <float scale = {0.3}> { t = Transpose<perm = [0, 1, 3, 2]>(k) m = MatMul(q, t)
        s = Mul(m, scale) p = Softmax<axis = -1>(s) y = MatMul(p, v) }"""
    conversion = onnxbridge.convert(onnx.parser.parse_model(text), "coreml", minimum_deployment_target=target)
    assert conversion.report.agrees
    ops = mil_operators(conversion.model)
    assert ("scaled_dot_product_attention" in ops) == (target == "iOS18")
    assert ("softmax" in ops) == (target == "iOS17")

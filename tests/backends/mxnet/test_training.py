"""Files of the MXNet backend, loaded and trained by MXNet's APIs."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnxbridge
from onnxbridge.runtime.mxnet import python


def mxnet(script, *arguments):
    """Run a script in MXNet's interpreter; its last line of output is JSON."""
    result = subprocess.run([python(), "-c", script, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout.splitlines()[-1])


def model(nodes, inputs, outputs, weights):
    def info(named):
        return [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in named.items()]

    tensors = [numpy_helper.from_array(np.asarray(a), name) for name, a in weights.items()]
    graph = helper.make_graph([helper.make_node(*n[:3], **n[3]) for n in nodes], "g", info(inputs), info(outputs), tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


W = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
TWO = np.float32(2)
LOADED = {
    "scalar": model([("MatMul", ["x", "w"], ["m"], {}), ("Mul", ["m", "s"], ["y"], {})], {"x": [2, 3]}, {"y": [2, 4]},
                    {"w": W, "s": TWO}),
    "mean": model([("MatMul", ["x", "w"], ["m"], {}), ("ReduceMean", ["m"], ["y"], {"keepdims": 0})], {"x": [2, 3]}, {"y": []},
                  {"w": W}),
    "scalar and mean": model([("MatMul", ["x", "w"], ["m"], {}), ("Mul", ["m", "s"], ["n"], {}),
                              ("ReduceMean", ["n"], ["y"], {"keepdims": 0})], {"x": [2, 3]}, {"y": []}, {"w": W, "s": TWO}),
    "vectors": model([("MatMul", ["x", "w"], ["m"], {}), ("Add", ["m", "s"], ["y"], {})], {"x": [3]}, {"y": []},
                     {"w": W[:, 0].copy(), "s": TWO}),
    "mean inside": model([("ReduceMean", ["x"], ["m"], {"keepdims": 0}), ("Mul", ["x", "m"], ["n"], {}),
                          ("Mul", ["n", "s"], ["y"], {})], {"x": [2, 3]}, {"y": [2, 3]}, {"s": TWO}),
    "scalar given twice": model([("Mul", ["x", "s"], ["m"], {}), ("ReduceSum", ["m"], ["n"], {"keepdims": 0}),
                                 ("Add", ["n", "s"], ["y"], {})], {"x": [2, 3]}, {"y": []}, {"s": TWO}),
}  # fmt: skip
LOAD = """
import json, sys, mxnet as mx, numpy as np
prefix, shape = sys.argv[1], tuple(json.loads(sys.argv[2]))
x = mx.nd.array(np.arange(np.prod(shape), dtype="f").reshape(shape))
found = {"load": len(mx.nd.load(prefix + "-0000.params"))}
block = mx.gluon.SymbolBlock.imports(prefix + "-symbol.json", ["x"], prefix + "-0000.params")
found["imports"] = block(x).asnumpy().tolist()
symbol, args, states = mx.model.load_checkpoint(prefix, 0)
module = mx.mod.Module(symbol, data_names=["x"], label_names=None)
module.bind([("x", shape)], for_training=False)
module.set_params(args, states)
module.forward(mx.io.DataBatch([x]))
found["module"] = module.get_outputs()[0].asnumpy().tolist()
print(json.dumps(found))
"""


@pytest.mark.parametrize("name", LOADED)
def test_parameters_are_loaded_by_default(tmp_path, name):
    import onnxruntime

    source = LOADED[name]
    shape = [d.dim_value for d in source.graph.input[0].type.tensor_type.shape.dim]
    onnxbridge.convert(source, to="mxnet", verify=False).save(tmp_path / "net")
    found = mxnet(LOAD, tmp_path / "net", json.dumps(shape))
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    expected = onnxruntime.InferenceSession(source.SerializeToString()).run(None, {"x": x})[0]
    assert found["load"] == sum(len(t.dims) > 0 for t in source.graph.initializer)  # scalars are no parameters
    for api in ("imports", "module"):
        np.testing.assert_allclose(np.asarray(found[api], np.float32), expected, rtol=1e-5)


def network(shared=False):
    """An untrained network: zero biases, normalizations of ones and zeros."""
    random = np.random.default_rng(0)
    ones, zeros = np.ones(4, np.float32), np.zeros(4, np.float32)
    weights = {"c1.weight": random.normal(size=(4, 3, 3, 3)), "c2.weight": random.normal(size=(4, 4, 3, 3)),
               "f.weight": random.normal(size=(4, 4))}  # fmt: skip
    weights = {k: v.astype(np.float32) for k, v in weights.items()}
    for name in ("c1.bias", "b1.bias", "b1.mean", "c2.bias", "b2.bias", "b2.mean", "f.bias"):
        weights[name] = zeros.copy()
    for name in ("b1.weight", "b1.var", "b2.weight", "b2.var"):
        weights[name] = ones.copy()
    if shared:
        for name in ("b1.mean", "b1.var", "b2.mean", "b2.var"):
            del weights[name]
    zero, one = ("c1.bias", "b1.weight") if shared else ("{}.mean", "{}.var")
    nodes = [
        ("Conv", ["x", "c1.weight", "c1.bias"], ["c1"], {}),
        ("BatchNormalization", ["c1", "b1.weight", "b1.bias", zero.format("b1"), one.format("b1")], ["b1"], {}),
        ("Relu", ["b1"], ["r1"], {}),
        ("Conv", ["r1", "c2.weight", "c2.bias"], ["c2"], {}),
        ("BatchNormalization", ["c2", "b2.weight", "b2.bias", zero.format("b2"), one.format("b2")], ["b2"], {}),
        ("GlobalAveragePool", ["b2"], ["p"], {}),
        ("Flatten", ["p"], ["q"], {}),
        ("Gemm", ["q", "f.weight", "f.bias"], ["y"], {"transB": 1}),
    ]
    return model(nodes, {"x": [2, 3, 8, 8]}, {"y": [2, 4]}, weights)


TRAIN = """
import json, sys, mxnet as mx, numpy as np
prefix = sys.argv[1]
mx.random.seed(0)
block = mx.gluon.SymbolBlock.imports(prefix + "-symbol.json", ["x"], prefix + "-0000.params")
parameters = block.collect_params()
found = {name: p.grad_req for name, p in parameters.items()}
trainer = mx.gluon.Trainer(parameters, "sgd", {"learning_rate": 0.1})
x, labels = mx.nd.random.normal(shape=(2, 3, 8, 8)), mx.nd.array([0, 3])
loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
for step in range(5):
    with mx.autograd.record():
        out = loss(block(x), labels)
    out.backward()
    trainer.step(2)
values = {name: p.data().asnumpy().tolist() for name, p in parameters.items()}
symbol, args, states = mx.model.load_checkpoint(prefix, 0)
module = mx.mod.Module(symbol, data_names=["x"], label_names=None)
module.bind([("x", (2, 3, 8, 8))], for_training=True)
module.set_params(args, states)
print(json.dumps({"grad": found, "values": values, "args": sorted(args), "states": sorted(states)}))
"""


@pytest.mark.slow
def test_a_fresh_network_is_trained(tmp_path):
    source = network()
    onnxbridge.convert(source, to="mxnet", verify=False).save(tmp_path / "net")
    found = mxnet(TRAIN, tmp_path / "net")
    names = {t.name for t in source.graph.initializer}
    states = {n for n in names if n.endswith((".mean", ".var"))}
    assert set(found["states"]) == states
    assert set(found["args"]) == names - states
    assert {n for n, grad in found["grad"].items() if grad == "write"} == names - states
    biases = {n: found["values"][n] for n in names if n.endswith(".bias") and n not in ("c1.bias", "c2.bias")}
    for name, value in biases.items():
        assert np.any(np.asarray(value) != 0), name
        assert all(other == name or value != v for other, v in biases.items())
    assert found["values"]["b1.weight"] != found["values"]["b2.weight"]
    assert found["values"]["b1.var"] != [1, 1, 1, 1]  # statistics of the batches


@pytest.mark.slow
def test_a_weight_that_is_also_a_statistic(tmp_path):
    """Other exporters merge equal weights, so that one is both an argument and an auxiliary state."""
    import onnxruntime

    source = network(shared=True)
    onnxbridge.convert(source, to="mxnet", verify=False).save(tmp_path / "net")
    found = mxnet(LOAD, tmp_path / "net", "[2, 3, 8, 8]")
    x = np.arange(384, dtype=np.float32).reshape(2, 3, 8, 8)
    expected = onnxruntime.InferenceSession(source.SerializeToString()).run(None, {"x": x})[0]
    np.testing.assert_allclose(np.asarray(found["imports"], np.float32), expected, rtol=1e-4)
    trained = mxnet(TRAIN, tmp_path / "net")
    assert {"b1.weight", "b1.bias", "c1.bias"} <= set(trained["args"])
    assert len(trained["states"]) >= 2

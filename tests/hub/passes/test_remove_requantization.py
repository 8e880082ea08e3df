"""Values that are quantized twice in the same way are moved as integers, and the results are the same."""

from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from onnxbridge.hub import passes
from onnxbridge.hub.io import onnx_files

MOVES = {
    "none": "m = Identity(a)",
    "one": "m = Transpose<perm = [1, 0, 2]>(a)",
    "several": "t = Transpose<perm = [2, 0, 1]>(a)  m = Reshape(t, shape)",
    "slices": "m = Slice(a, one, two, one)",
    "joined": "m = Concat<axis = 0>(a, b)",
    "scattered": "m = ScatterND(a, at, c)",
}


def model_of(moves, *, scale=0.1, dtype=np.uint8, more="", outputs="float[n,k,l] y"):
    text = f"""<ir_version: 10, opset_import: ["" : 21]> g (float[3,3,2] x, float[3,3,2] z, float[1,3,2] u) => ({outputs}) {{
        p = QuantizeLinear(x, s, o)  a = DequantizeLinear(p, s, o)
        q = QuantizeLinear(z, s, o)  b = DequantizeLinear(q, s, o)
        r = QuantizeLinear(u, s, o)  c = DequantizeLinear(r, s, o)
        {moves}  {more}
        v = QuantizeLinear(m, s2, o)  y = DequantizeLinear(v, s2, o) }}"""
    model = onnx.parser.parse_model(text)
    weights = {
        "s": np.float32(0.1), "s2": np.float32(scale), "o": dtype(100), "shape": np.array([2, 9]), "one": np.array([1]),
        "two": np.array([3]), "at": np.array([[2]]),
    }  # fmt: skip
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items())
    return model


def cleaned(model):
    hub = onnx_files.from_proto(model)
    passes.infer(hub)
    return onnx_files.to_proto(passes.clean(hub))


def run(model, feeds):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()})


def compared(model):
    made = cleaned(model)
    onnx.checker.check_model(made, full_check=True)
    rng = np.random.default_rng(0)
    feeds = {k: rng.normal(scale=6, size=s).astype(np.float32) for k, s in (("x", (3, 3, 2)), ("z", (3, 3, 2)), ("u", (1, 3, 2)))}
    for a, b in zip(run(made, feeds), run(model, feeds), strict=True):
        np.testing.assert_array_equal(a, b)
    return Counter(node.op_type for node in made.graph.node)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16])
@pytest.mark.parametrize("name", MOVES)
def test_moved_values(name, dtype):
    outputs = "float[n,k] y" if name == "several" else "float[n,k,l] y"
    counts = compared(model_of(MOVES[name], dtype=dtype, outputs=outputs))
    inputs = 2 if name in ("joined", "scattered") else 1
    assert counts["DequantizeLinear"] == 1 and counts["QuantizeLinear"] == inputs


@pytest.mark.parametrize("kept", [
    {"moves": MOVES["one"], "scale": 0.2},
    {"moves": MOVES["one"], "more": "w = Relu(m)", "outputs": "float[3,3,2] y, float[3,3,2] w"},
    {"moves": "m = Add(a, b)"},
    {"moves": "m = Concat<axis = 0>(a, z)"},
    {"moves": "m = ScatterND<reduction = \"add\">(a, at, c)"},
])  # fmt: skip
def test_others_stay(kept):
    assert compared(model_of(**kept))["DequantizeLinear"] >= 2

"""Gradient nodes compared with finite differences in float64."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import parser

from onnxbridge.errors import ConversionError
from onnxbridge.runtime import Executor

HEAD = '<ir_version: 10, opset_import: ["" : 22, "ai.onnx.preview.training" : 1]> '
STEP = 1e-5


def gradients(body: str, shapes: dict[str, tuple[int, ...]], out: str) -> tuple[onnx.ModelProto, list[str]]:
    """A model of y = sum(t * w) for the body's t, with the gradients of y by all inputs as further outputs."""
    inputs = ", ".join(f"double[{','.join(map(str, s))}] {n}" for n, s in shapes.items())
    weight = f"double[{out}]" if out else "double"
    xs, results = ", ".join(f'"{n}"' for n in shapes), [f"d{n}" for n in shapes]
    text = f"""{HEAD} agraph ({inputs}, {weight} w) => (double y, {", ".join(f"double {r}" for r in results)}) {{
        {body} p = Mul(t, w) y = ReduceSum<keepdims=0>(p)
        {", ".join(results)} = ai.onnx.preview.training.Gradient<xs = [{xs}], zs = ["w"], y = "y">({", ".join(shapes)}, w)
    }}"""
    return parser.parse_model(text), results


def finite_differences(executor: Executor, feeds: dict[str, np.ndarray], name: str) -> np.ndarray:
    gradient = np.zeros_like(feeds[name])
    for i in np.ndindex(gradient.shape):
        values = []
        for sign in (1, -1):
            shifted = feeds[name].copy()
            shifted[i] += sign * STEP
            values.append(float(executor.run(["y"], {**feeds, name: shifted})[0]))
        gradient[i] = (values[0] - values[1]) / (2 * STEP)
    return gradient


UNARY = [
    "Neg", "Exp", "Log", "Sqrt", "Reciprocal", "Abs", "Sin", "Cos", "Tanh", "Sigmoid", "Softplus", "Erf", "Relu",
    "LeakyRelu", "Identity",
]  # fmt: skip
BINARY = ["Add", "Sub", "Mul", "Div", "Pow", "Sum"]
A34 = {"a": (3, 4)}
BODIES = (
    [(op, f"t = {op}(a)", A34, "3,4") for op in UNARY]
    + [(op, f"t = {op}(a, b)", {"a": (2, 3, 1), "b": (4,)}, "2,3,4") for op in BINARY]
    + [(f"{op} {axis}", f"t = {op}<axis={axis}>(a)", A34, "3,4") for op in ("Softmax", "LogSoftmax") for axis in (0, 1)]
    + [
        (f"Gemm {ta}{tb}", f"t = Gemm<alpha=0.5, beta=2.0, transA={ta}, transB={tb}>(a, b, c)",
         {"a": (5, 3) if ta else (3, 5), "b": (4, 5) if tb else (5, 4), "c": (4,)}, "3,4")
        for ta in (0, 1) for tb in (0, 1)
    ]
    + [
        ("MatMul", "t = MatMul(a, b)", {"a": (2, 3, 4), "b": (4, 5)}, "2,3,5"),
        ("Conv", "t = Conv<strides=[2,1], dilations=[1,2], pads=[1,0,0,2]>(a, b, c)",
         {"a": (2, 3, 6, 7), "b": (4, 3, 2, 3), "c": (4,)}, "2,4,3,5"),
        ("Reshape", "s = Constant<value_ints=[2,-1]>() t = Reshape(a, s)", A34, "2,6"),
        ("Flatten", "t = Flatten<axis=2>(a)", {"a": (2, 3, 2)}, "6,2"),
        ("Squeeze", "s = Constant<value_ints=[1]>() t = Squeeze(a, s)", {"a": (3, 1)}, "3"),
        ("Unsqueeze", "s = Constant<value_ints=[0]>() t = Unsqueeze(a, s)", A34, "1,3,4"),
        ("Transpose", "t = Transpose<perm=[1,2,0]>(a)", {"a": (2, 3, 4)}, "3,4,2"),
        ("Concat", "t = Concat<axis=1>(a, b)", {"a": (2, 3), "b": (2, 1)}, "2,4"),
        ("Where", "z = Constant<value=double {1.0}>() k = Greater(a, z) t = Where(k, a, b)", {"a": (3, 4), "b": (1, 4)}, "3,4"),
        ("ReduceSum", "s = Constant<value_ints=[1]>() t = ReduceSum<keepdims=0>(a, s)", A34, "3"),
        ("ReduceMean", "s = Constant<value_ints=[0]>() t = ReduceMean(a, s)", A34, "1,4"),
        ("ReduceMean all", "t = ReduceMean<keepdims=0>(a)", A34, ""),
        ("Cast", "t = Cast<to=11>(a)", A34, "3,4"),
        ("twice", "u = Mul(a, a) v = Add(u, a) t = Mul(v, u)", A34, "3,4"),
    ]
)  # fmt: skip


@pytest.mark.parametrize(("body", "shapes", "out"), [b[1:] for b in BODIES], ids=[b[0] for b in BODIES])
def test_gradient_matches_finite_differences(body, shapes, out):
    model, results = gradients(body, shapes, out)
    executor = Executor(model)
    rng = np.random.default_rng(0)
    feeds = {n: rng.uniform(0.5, 1.5, s) for n, s in shapes.items()}
    feeds["w"] = rng.standard_normal([int(d) for d in out.split(",") if d])
    for name, got in zip(shapes, executor.run(results, feeds), strict=True):
        # finite differences lose half of float64's digits
        np.testing.assert_allclose(got, finite_differences(executor, feeds, name), rtol=1e-6, atol=1e-8)


def test_second_order_gradient():
    body = """t = Sin(a) p = Mul(t, a) y = ReduceSum<keepdims=0>(p)
    da = ai.onnx.preview.training.Gradient<xs = ["a"], y = "y">(a)
    dda = ai.onnx.preview.training.Gradient<xs = ["a"], y = "da">(a)"""
    model = parser.parse_model(f"{HEAD} agraph (double[5] a) => (double[5] da, double[5] dda) {{ {body} }}")
    a = np.linspace(-2, 2, 5)
    first, second = Executor(model).run(None, {"a": a})
    np.testing.assert_allclose(first, np.sin(a) + a * np.cos(a), rtol=1e-14)
    np.testing.assert_allclose(second, 2 * np.cos(a) - a * np.sin(a), rtol=1e-14)


def test_inputs_may_differ_from_the_tensors_in_xs():
    text = f"""{HEAD} agraph (float[2] a, float[2] b, float[2] at) => (float[2] da, float[2] dh, float[2] none)
    {{ h = Mul(a, a) y = Mul(h, b)
       da, none = ai.onnx.preview.training.Gradient<xs = ["a", "at"], zs = ["b"], y = "y">(at, at, b)
       dh = ai.onnx.preview.training.Gradient<xs = ["h", "b"], y = "y">(h, b) }}"""
    source = ir.from_proto(parser.parse_model(text))
    a, b, at = (np.array(v, np.float32) for v in ([1, 2], [3, 4], [5, 6]))
    da, dh, none = Executor(source).run(None, {"a": a, "b": b, "at": at})
    np.testing.assert_array_equal(da, 2 * at * b)
    np.testing.assert_array_equal(dh, b)
    np.testing.assert_array_equal(none, [0, 0])
    assert any(n.op_type == "Gradient" for n in source.graph)  # the source model is not modified


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('y = Round(a) d = ai.onnx.preview.training.Gradient<xs = ["a"], y = "y">(a)', "Round cannot be differentiated"),
        ('y = Neg(a) d = ai.onnx.preview.training.Gradient<xs = ["z"], y = "y">(a)', "no tensor 'z'"),
        ('y = Mul(a, b) d = ai.onnx.preview.training.Gradient<xs = ["a"], y = "y">(a)', "cannot tell whether the dynamic sizes"),
    ],
)
def test_unsupported_gradients_raise(body, reason):
    model = parser.parse_model(f"{HEAD} agraph (float[n] a, float[m] b) => (float[n] y, float[n] d) {{ {body} }}")
    with pytest.raises(ConversionError, match=reason):
        Executor(model)

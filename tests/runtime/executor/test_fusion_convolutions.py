"""Fused convolutions and resizing give the results of the rules."""

from __future__ import annotations

import numpy as np
import pytest

from onnxbridge.runtime import Executor
from tests.runtime.executor.fused import agrees, all_compiled, model, normal_arrays

draw = normal_arrays(4)


CONVOLUTIONS = [
    # batch, channels, height, width, maps, kernel, stride, pads, dilation, groups
    (1, 3, 17, 19, 5, 3, 2, (1, 1, 1, 1), 1, 1),
    (2, 3, 23, 20, 16, 7, 2, (3, 3, 3, 3), 1, 1),
    (1, 40, 9, 7, 50, 1, 1, (0, 0, 0, 0), 1, 1),
    (2, 33, 8, 9, 17, 1, 2, (0, 0, 0, 0), 1, 1),
    (1, 20, 9, 8, 35, 3, 1, (1, 1, 1, 1), 1, 1),
    (2, 16, 7, 5, 48, 3, 1, (0, 1, 2, 0), 1, 1),
    (1, 20, 11, 8, 35, 3, 1, (2, 2, 2, 2), 2, 1),
    (1, 24, 9, 9, 36, 3, 2, (1, 0, 0, 1), 1, 4),
    (2, 21, 9, 10, 21, 5, 1, (2, 2, 2, 2), 1, 21),
    (1, 6, 9, 10, 12, 3, 2, (1, 1, 1, 1), 1, 6),
    # empty outputs: the input is smaller than the kernel, or the batch is empty
    (2, 4, 2, 5, 8, 3, 1, (0, 0, 0, 0), 1, 1),
    (2, 16, 5, 2, 16, 3, 1, (0, 0, 0, 0), 1, 1),
    (2, 9, 5, 4, 9, 5, 2, (0, 0, 0, 0), 1, 9),
    (0, 4, 5, 6, 8, 1, 1, (0, 0, 0, 0), 1, 1),
]


@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize("epilogue", ["Relu", "HardSwish", "none"])
def test_convolutions(case, epilogue):
    n, c, h, w, m, k, s, pads, d, g = case
    last = {"none": "y = Add(v, z)", "Relu": "u = Add(v, z) y = Relu(u)", "HardSwish": "u = Add(v, z) y = HardSwish(u)"}
    attributes = f"strides = [{s},{s}], pads = {list(pads)}, dilations = [{d},{d}], group = {g}"
    text = f"""agraph (float[{n},{c},{h},{w}] x, float[{n},{m},a,b] z) => (float[{n},{m},a,b] y) {{
        v0 = Conv<{attributes}>(x, w, b)
        v = BatchNormalization(v0, gamma, beta, mean, variance)
        {last[epilogue]} }}"""
    weights = {"w": draw(m, c // g, k, k), "b": draw(m), "gamma": draw(m), "beta": draw(m), "mean": draw(m)}
    proto = model(text, **weights, variance=np.abs(draw(m)) + 0.5)
    x = draw(n, c, h, w)
    span = (k - 1) * d + 1
    out = [(size + pads[i] + pads[i + 2] - span) // s + 1 for i, size in enumerate((h, w))]
    name = "Conv" if epilogue == "none" else f"Conv+{epilogue}"
    agrees(proto, {"x": x, "z": draw(n, m, *out)}, name, depth=c // g * k * k)


def test_a_broadcast_addend_is_fused_into_a_convolution():
    text = "agraph (float[1,20,6,6] x, float[18,1,1] z) => (float[1,18,6,6] y) { v = Conv(x, w) u = Add(v, z) y = Gelu(u) }"
    proto = model(text, w=draw(18, 20, 1, 1))
    agrees(proto, {"x": draw(1, 20, 6, 6), "z": draw(18, 1, 1)}, "Conv+Gelu", depth=20)


def test_a_chain_of_image_operators_is_compiled():
    text = """agraph (float[1,3,32,32] x) => (float[1,20] y) {
        a = Conv<pads = [1,1,1,1]>(x, w1) b = Relu(a) c = MaxPool<kernel_shape = [2,2], strides = [2,2]>(b)
        d = Conv<pads = [1,1,1,1]>(c, w2) e = Concat<axis = 1>(c, d) f = LRN<size = 5>(e)
        g = AveragePool<kernel_shape = [3,3], pads = [1,1,1,1], count_include_pad = 1>(f) h = GlobalAveragePool(g)
        i = Flatten(h) y = Gemm(i, w3, b3) }"""
    proto = model(text, w1=draw(18, 3, 3, 3), w2=draw(22, 18, 3, 3), w3=draw(40, 20), b3=draw(20))
    agrees(
        proto, {"x": draw(1, 3, 32, 32)}, "Conv+Relu", "MaxPool", "Conv", "Concat", "LRN", "AveragePool", "GlobalAveragePool",
        "Flatten", "Gemm", depth=18 * 9 * 40,
    )  # fmt: skip


CONVOLUTIONS_1D = [
    ("Conv", (20, 9, 5), "pads = [2,1], strides = [2]"),
    ("Conv", (33, 33, 3), 'dilations = [3], auto_pad = "SAME_UPPER"'),
    ("Conv", (24, 2, 4), "group = 12"),
    ("Conv", (1, 16, 9), "strides = [4]"),
    ("ConvTranspose", (8, 12, 4), "strides = [2], pads = [1,1]"),
    ("ConvTranspose", (8, 3, 5), "strides = [3], group = 4, output_padding = [1]"),
]


@pytest.mark.parametrize("case", CONVOLUTIONS_1D)
def test_convolutions_1d(case):
    op, shape, attributes = case
    groups = {"group = 12": 12}.get(attributes, 4 if "group = 4" in attributes else 1)
    channels = shape[0] if op == "ConvTranspose" else shape[1] * groups
    maps = shape[0] if op == "Conv" else shape[1] * groups
    text = f"""agraph (float[2,{channels},37] x) => (float[a,b,c] y) {{
        u = {op}<{attributes}>(x, w, b0) s = Mul(u, t) y = Relu(s) }}"""
    proto = model(text, w=draw(*shape), b0=draw(maps), t=draw())
    agrees(proto, {"x": draw(2, channels, 37)}, f"{op}+Relu", depth=channels * shape[2])


TRANSPOSED = [
    # channels, maps per group, kernel, groups, attributes
    (20, 12, (2, 2), 1, "strides = [2,2]"),
    (20, 9, (4, 4), 1, "strides = [2,2], pads = [1,1,1,1]"),
    (20, 9, (3, 5), 1, "strides = [2,3], pads = [1,0,2,1], output_padding = [1,2]"),
    (12, 5, (3, 3), 2, "group = 2, pads = [1,1,0,1]"),
    (18, 1, (3, 4), 18, "group = 18, strides = [2,2], pads = [3,2,0,1]"),
    (4, 3, (1, 2), 1, "strides = [3,3]"),
    (17, 33, (6, 6), 1, 'strides = [2,2], auto_pad = "SAME_UPPER"'),
    (16, 16, (3, 3), 1, "strides = [3,2], output_shape = [16,13]"),
    (3, 16, (5, 5), 1, "strides = [1,1], pads = [2,2,2,2]"),
]


@pytest.mark.parametrize("case", TRANSPOSED)
def test_transposed_convolution(case):
    channels, maps, kernel, groups, attributes = case
    text = f"""agraph (float[2,{channels},5,6] x) => (float[a,b,c,d] y) {{
        u = ConvTranspose<{attributes}>(x, w, b0) n = BatchNormalization(u, s, t, m, v) y = Relu(n) }}"""
    total = maps * groups
    proto = model(
        text, w=draw(channels, maps, *kernel), b0=draw(total), s=draw(total), t=draw(total), m=draw(total), v=draw(total) ** 2
    )
    agrees(proto, {"x": draw(2, channels, 5, 6)}, "ConvTranspose+Relu", depth=channels * 4)


CONVOLUTIONS_3D = [
    ((20, 8, 3, 3, 3), "pads = [1,1,1,1,1,1]", True),
    ((20, 8, 3, 3, 3), "pads = [1,0,1,1,1,2], strides = [2,1,2]", True),
    ((20, 8, 2, 1, 3), "dilations = [2,1,1]", True),
    ((16, 4, 3, 3, 3), "group = 2, pads = [2,1,1,0,1,1]", True),
    ((20, 8, 3, 3, 3), 'auto_pad = "SAME_UPPER"', False),
    ((20, 8, 2, 3, 3), "pads = [1,1,1,1,1,1]", False),
]


@pytest.mark.parametrize(("shape", "attributes", "native"), CONVOLUTIONS_3D)
def test_convolutions_3d(shape, attributes, native):
    text = f"""agraph (float[2,8,6,9,7] x) => (float[a,b,c,d,e] y) {{ u = Conv<{attributes}>(x, w, k)
        v = BatchNormalization(u, s, t, m, o) r = Relu(v) z = Add(r, r) p = GlobalAveragePool(z) y = Mul(z, p) }}"""
    maps = shape[0]
    weights = {name: draw(maps) for name in "kstm"} | {"w": draw(*shape), "o": np.abs(draw(maps)) + np.float32(0.1)}
    proto = model(text, **weights)
    names = ["Conv+Relu"] if native else ["Conv", "BatchNormalization+Relu"]
    agrees(proto, {"x": draw(2, 8, 6, 9, 7)}, *names, "Add", "GlobalAveragePool", "Mul", depth=30 * int(np.prod(shape[1:])))
    if native:
        assert all_compiled(Executor(proto), {"x": draw(2, 8, 6, 9, 7)})


@pytest.mark.parametrize("shape", [(5, 20), (20,), (2, 5, 20)])
def test_a_bias_of_shape_1_by_n(shape):
    sizes = ",".join(map(str, shape))
    proto = model(f"agraph (float[{sizes}] x) => (float[...] y) {{ m = MatMul(x, w) b = Add(m, k) y = Relu(b) }}".replace(
        "[...]", "[a,b,c]" if len(shape) == 3 else "[a,b]"), w=draw(20, 7), k=draw(1, 7))  # fmt: skip
    agrees(proto, {"x": draw(*shape)}, "MatMul+Relu", depth=20)
    assert all_compiled(Executor(proto), {"x": draw(*shape)})


RESIZED = [
    ('mode = "nearest", nearest_mode = "floor", coordinate_transformation_mode = "asymmetric"', "scales", [1, 1, 2, 3]),
    ('mode = "nearest", axes = [3, 2]', "sizes", [5, 11]),
    ('mode = "linear"', "scales", [1, 1, 2, 1.5]),
    ('mode = "linear", coordinate_transformation_mode = "align_corners"', "sizes", [2, 20, 4, 13]),
    ('mode = "linear", antialias = 1', "sizes", [2, 20, 4, 3]),
    ('mode = "cubic", coordinate_transformation_mode = "pytorch_half_pixel"', "sizes", [2, 20, 18, 1]),
    ('mode = "cubic", exclude_outside = 1, keep_aspect_ratio_policy = "not_larger", axes = [2, 3]', "sizes", [18, 15]),
]


@pytest.mark.parametrize(("attributes", "second_input", "numbers"), RESIZED)
def test_resized_images(attributes, second_input, numbers):
    inputs = "u, , s" if second_input == "scales" else "u, , , s"
    text = f"agraph (float[2,20,9,7] x) => (float[a,b,c,d] y) {{ u = Relu(x) y = Resize<{attributes}>({inputs}) }}"
    proto = model(text, s=np.array(numbers, np.float32 if second_input == "scales" else np.int64))
    for x in (draw(2, 20, 9, 7), draw(2, 9, 7, 20).transpose(0, 3, 1, 2)):
        agrees(proto, {"x": x}, "Relu", "Resize", depth=8)
    assert all_compiled(Executor(proto), {"x": x})


def test_resizing_over_channels_is_correct():
    proto = model("agraph (float[2,4,3,3] x) => (float[a,b,c,d] y) { u = Relu(x) y = Resize(u, , s) }",
                  s=np.array([1, 2, 2, 2], np.float32))  # fmt: skip
    agrees(proto, {"x": draw(2, 4, 3, 3)}, "Relu", "Resize")


def test_shuffled_channels():
    text = """agraph (float[1,20,4,5] x) => (float[1,24,4,5] y) { a = Conv(x, w) b = Reshape(a, five)
        c = Transpose<perm = [0, 2, 1, 3, 4]>(b) y = Reshape(c, four) }"""
    shapes = {"five": np.array([1, 3, 8, 4, 5]), "four": np.array([1, 24, 4, 5])}
    agrees(model(text, w=draw(24, 20, 1, 1), **shapes), {"x": draw(1, 20, 4, 5)}, "Conv", "Shuffle", depth=20)

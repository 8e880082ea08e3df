"""Pooling with ceil_mode across opset 22: before it, onnx counts windows that start in the end padding, and no runtime does."""

import itertools

import numpy as np
import onnx
import pytest

import onnxbridge
from tests.hub.opset.models import ROUNDING, model_of, same

CASES = [
    (size, kernel, stride, begin, end)
    for size, kernel, stride, begin, end in itertools.product((4, 5), (1, 2, 3), (2, 3), (0, 1), (0, 1))
    if max(begin, end) < kernel
]


def pool_of(op, opset, case, dims, more=""):
    size, kernel, stride, begin, end = case
    free = size + begin + end - kernel
    count = -(-free // stride) + 1
    count -= (count - 1) * stride >= size + begin
    text = (
        f"g (float[1,2,{dims}] x) => (float[1,2,{count},{count}] y) {{ y = {op}<kernel_shape=[{kernel},{kernel}], "
        f"strides=[{stride},{stride}], pads=[{begin},{begin},{end},{end}], ceil_mode=1{more}>(x) }}"
    )
    return model_of(opset, text), np.random.default_rng(0).standard_normal((1, 2, size, size)).astype(np.float32)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool", "AveragePool counted"])
@pytest.mark.parametrize("to", [21, 18, 9])
def test_every_size_is_converted_to_older_opsets(op, to):
    op, _, counted = op.partition(" ")
    for case in CASES:
        source, x = pool_of(op, 22, case, f"{case[0]},{case[0]}", ", count_include_pad=1" if counted else "")
        same(source, onnxbridge.opset.convert(source, to=to), {"x": x}, ROUNDING)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(("dims", "to"), [("6,6", 21), ("6,6", 18), ("6,6", 9), ("6,n", 21), ("6,n", 18)])
def test_auto_pad_valid_is_converted_as_no_padding(op, dims, to):
    source, x = pool_of(op, 22, (6, 2, 3, 0, 0), dims)
    node = source.graph.node[0]
    node.attribute.remove(next(a for a in node.attribute if a.name == "pads"))
    node.attribute.append(onnx.helper.make_attribute("auto_pad", "VALID"))
    same(source, onnxbridge.opset.convert(source, to=to), {"x": x}, ROUNDING)


def test_unused_elements_are_removed_when_another_axis_is_dynamic():
    source, x = pool_of("MaxPool", 22, (4, 1, 2, 0, 0), "4,n")
    target = onnxbridge.opset.convert(source, to=21)
    assert "Slice" in {n.op_type for n in target.graph.node}
    same(source, target, {"x": x})


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_sizes_written_for_newer_opsets_are_those_that_runtimes_compute(op):
    text = f"""g (float[1,2,4,4] x) => (float[1,2,2,4] y) {{
        p = {op}<kernel_shape=[2,2], strides=[3,1], pads=[1,1,1,0], ceil_mode=1>(x)
        y = Split<axis=2>(p)
    }}"""
    source = model_of(17, text)
    same(source, onnxbridge.opset.convert(source, to=25), {"x": np.ones((1, 2, 4, 4), np.float32)})


def test_pads_stay_below_the_kernel_as_onnxruntime_requires():
    text = "g (float[1,1,7,7] x) => (float[1,1,4,4] y) { y = MaxPool<kernel_shape=[2,2], dilations=[3,3], strides=[2,2], "
    source = model_of(22, text + "pads=[1,1,1,1], ceil_mode=1>(x) }")
    same(source, onnxbridge.opset.convert(source, to=21), {"x": np.arange(49, dtype=np.float32).reshape(1, 1, 7, 7)})

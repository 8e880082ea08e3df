"""Converted models pass the full check of onnx: outputs that became constants, dtypes that older versions lack."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxbridge
from onnxbridge.errors import ConversionError
from onnxbridge.runtime import Executor
from tests.hub.opset.models import model_of, run


def checked(model, target):
    made = onnxbridge.opset.convert(model, to=target)
    onnx.checker.check_model(made, full_check=True)
    assert [o.name for o in made.graph.output] == [o.name for o in model.graph.output]
    return made


def test_a_constant_output_comes_from_a_node():
    """The decomposition is folded to a constant, and an initializer cannot be an output."""
    node = helper.make_node("RoiAlign", ["x", "rois", "batch"], ["y"], output_height=2, output_width=2, sampling_ratio=1)
    weights = {
        "x": np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4), "rois": np.array([[0, 0, 3, 3]], np.float32),
        "batch": np.array([0]),
    }  # fmt: skip
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 2, 2])
    graph = helper.make_graph([node], "g", [], [output], [onnx.numpy_helper.from_array(v, n) for n, v in weights.items()])
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
    np.testing.assert_allclose(run(checked(source, 9), {})[0], Executor(source).run(None, {})[0], rtol=1e-6)


def test_a_constant_of_a_dtype_that_identity_lacks_is_refused():
    """It was replaced by an Identity recursively without end."""
    weight = helper.make_tensor("w", TensorProto.UINT4, [2], [1, 2])
    output = helper.make_tensor_value_info("y", TensorProto.UINT4, [2])
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], [output], [weight])
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
    for target in (20, 13, 7):
        with pytest.raises(ConversionError, match="uint4"):
            onnxbridge.opset.convert(source, to=target)


@pytest.mark.parametrize("target", [18, 13, 12, 10])
def test_half_precision_quantization_is_cast_to_single_precision(target):
    text = "g (float16[4,4] x) => (float16[4,4] y) { q = QuantizeLinear(x, s)  y = DequantizeLinear(q, s) }"
    source = model_of(21, text, ir_version=10)
    source.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0.5, np.float16), "s"))
    x = np.abs(np.random.default_rng(0).standard_normal((4, 4)) * 9).astype(np.float16)
    np.testing.assert_array_equal(run(checked(source, target), {"x": x})[0], run(source, {"x": x})[0])


def test_a_batch_normalization_of_two_dtypes_is_cast_to_one():
    text = "g (float16[1,2,3] x, float[2] s) => (float16[1,2,3] y) { y = BatchNormalization(x, s, s, s, s) }"
    source = model_of(22, text, ir_version=10)
    for target in (14, 13, 9, 7):
        assert [n.op_type for n in checked(source, target).graph.node] == ["Cast", "BatchNormalization", "Cast"]


def test_center_crop_pad_supports_int32_sizes_at_older_opsets():
    source = model_of(24, "g (float[2,5] x, int32[2] s) => (float[a,b] y) { y = CenterCropPad(x, s) }", ir_version=10)
    x, size = np.arange(10, dtype=np.float32).reshape(2, 5), np.array([4, 3], np.int32)
    got = run(checked(source, 17), {"x": x, "s": size})[0]
    np.testing.assert_array_equal(got, np.pad(x, [(1, 1), (0, 0)])[:, 1:4])


def test_a_constant_of_strings_at_older_opsets():
    source = model_of(24, 'g () => (string[2] y) { y = Constant<value_strings=["a", "b"]>() }', ir_version=10)
    for target in (11, 9):
        assert run(checked(source, target), {})[0].tolist() == ["a", "b"]


def test_the_default_axes_of_mean_variance_normalization_are_explicit():
    source = model_of(9, "g (float[1,2,8,7] x) => (float[1,2,8,7] y) { y = MeanVarianceNormalization(x) }")
    x = np.random.default_rng(0).standard_normal((1, 2, 8, 7)).astype(np.float32)
    np.testing.assert_allclose(run(checked(source, 13), {"x": x})[0], run(source, {"x": x})[0], rtol=1e-5, atol=1e-5)


def test_an_expanded_size_of_zero_stays_zero():
    source = model_of(24, "g (float[0,2] x) => (float[3,0,2] y) <int64[3] s = {3, 1, 2}> { y = Expand(x, s) }", ir_version=10)
    assert run(checked(source, 7), {"x": np.zeros((0, 2), np.float32)})[0].shape == (3, 0, 2)


def test_each_output_of_sequence_map_has_its_own_type():
    text = """g (seq(float[2]) x) => (seq(float[a]) y) {
        y, s = SequenceMap<body = b (float[2] e) => (float[2] f, int64[n] g) { f = Neg(e)  g = Shape(e) }>(x)
    }"""
    source = model_of(24, text, ir_version=10)
    for target in (20, 17, 13):
        checked(source, target)


def test_branches_of_different_shapes_are_refused_before_opset_11():
    text = """g (bool c) => (float[n] y) {
        z = If<then_branch = a () => (float[2] p) { p = Constant<value_floats=[1.0, 2.0]>() },
               else_branch = b () => (float[3] q) { q = Constant<value_floats=[1.0, 2.0, 3.0]>() }>(c)
        y = Neg(z)
    }"""
    source = model_of(24, text, ir_version=10)
    assert run(checked(source, 11), {"c": np.array(False)})[0].shape == (3,)
    with pytest.raises(ConversionError, match="its branches give the shapes"):
        onnxbridge.opset.convert(source, to=10)


@pytest.mark.parametrize(("before", "after"), [(5, 9), (3, 7), (4, 5), (7, 3), (6, 10), (9, 15), (6, 12)])
@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("target", [10, 7])
def test_resized_sizes_are_those_that_shape_inference_computes_from_scales(before, after, mode, target):
    """The product of a size and a scale that float32 rounds down is below the resized size, unless it is rounded too."""
    attrs = f'mode="{mode}", coordinate_transformation_mode="asymmetric", nearest_mode="{"floor" if after > before else "ceil"}"'
    source = model_of(
        22,
        f"g (float[1,1,{before},4] x) => (float[1,1,{after},4] y) <int64[4] n = {{1,1,{after},4}}> "
        f"{{ y = Resize<{attrs}>(x, , , n) }}",
        ir_version=10,
    )
    x = np.random.default_rng(0).standard_normal((1, 1, before, 4)).astype(np.float32)
    (got,), (want,) = run(checked(source, target), {"x": x}), run(source, {"x": x})
    # a point is a quotient of two roundings and of a scale that may be larger by one unit in the last place;
    # its weights multiply the difference of two elements
    unit = float(np.finfo(np.float32).eps) / 2
    bound = 2 * 4 * unit * before * np.ptp(x) + 4 * unit * np.abs(x).max() if mode == "linear" else 0
    np.testing.assert_allclose(got, want, rtol=0, atol=bound)

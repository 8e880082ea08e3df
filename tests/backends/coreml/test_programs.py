"""The Core ML backend without its rules: names, dtypes, options, dynamic sizes, metadata, and unsupported cases."""

from __future__ import annotations

import contextlib
import gc
import io
from dataclasses import replace

import coremltools as ct
import numpy as np
import onnx_ir as ir
import pytest
from coremltools.converters.mil import Builder as mb

import onnxbridge
from onnxbridge.backends.coreml import backend
from onnxbridge.backends.coreml.ops import rule
from onnxbridge.errors import ConversionError, UsageError
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.runtime import devices
from onnxbridge.runtime.mil import Interpreter

FLOAT, INT64 = ir.DataType.FLOAT, ir.DataType.INT64
HALF = (1 + 2**-8) * 2**-11  # the unit roundoff of float16, and what float32 and products of errors add


def model(write, *inputs, names=("y",)):
    """A model from inputs (name, dtype, shape) and a function of the builder and their values."""
    op = Builder()
    values = [op.input(*i) for i in inputs]
    results = write(op, *values)
    results = results if isinstance(results, tuple) else (results,)
    return op.model(values, [op.output(r, n) for r, n in zip(results, names, strict=True)])


def run(made, **options):
    artifact = backend.from_hub(made, **options)
    return artifact, backend.runner(artifact)


def operators(artifact):
    spec = artifact.model.get_spec()
    (block,) = spec.mlProgram.functions["main"].block_specializations.values()
    return [o.type for o in block.operations if o.type != "const"]


def test_names_are_sanitized_and_restored():
    made = model(
        lambda op, *x: (op.Add(x[0], x[1]), op.Sub(x[0], x[1]), op.Mul(x[0], x[1])),
        ("a/b:0", FLOAT, [2]), ("a.b:0", FLOAT, [2]), names=("12", "state", "a/b 0"),
    )  # fmt: skip
    artifact, call = run(made)
    assert artifact.names == {"a/b:0": "a_b_0", "a.b:0": "a_b_0_1", "12": "var_12", "state": "var_state", "a/b 0": "a_b_0_2"}
    assert "the output 12 is renamed to var_12" in artifact.notes
    spec = artifact.model.get_spec().description
    assert [d.name for d in (*spec.input, *spec.output)] == list(artifact.names.values())
    found = call({"a/b:0": np.float32([1, 2]), "a.b:0": np.float32([3, 5])})
    assert {k: v.tolist() for k, v in found.items()} == {"12": [4, 7], "state": [-2, -3], "a/b 0": [3, 10]}


def test_output_that_is_an_input_or_repeated():
    op = Builder()
    x = op.input("x", FLOAT, [2])
    y = op.Relu(x)
    graph = op.graph([x], [x, y, y, op.constant(np.float32([7, 8]))], "g")
    artifact, _ = run(ir.Model(graph, ir_version=10))
    names = [p.coreml for p in artifact.outputs]
    assert len(set(names) | {"x"}) == len(names) + 1
    found = Interpreter(artifact.model).run({"x": np.float32([-1, 2])})
    assert [found[name].tolist() for name in names] == [[-1, 2], [0, 2], [0, 2], [7, 8]]


def test_int64_is_computed_as_int32():
    made = model(lambda op, x: op.Add(x, np.int64([1, 2])), ("x", INT64, [2]))
    artifact, call = run(made)
    assert (
        artifact.model.get_spec().description.input[0].type.multiArrayType.dataType
        == ct.proto.FeatureTypes_pb2.ArrayFeatureType.INT32
    )
    assert "x is int64 in the source and int32 in Core ML" in artifact.notes
    y = call({"x": np.int64([5, -9])})["y"]
    assert y.dtype == np.int64 and y.tolist() == [6, -7]
    with pytest.raises(UsageError, match="outside of int32"):
        call({"x": np.int64([1 << 40, 0])})


def test_float64_is_verified_with_float32_tolerance():
    weights = np.random.default_rng(3).standard_normal((16, 16))
    for dtype in (ir.DataType.DOUBLE, FLOAT):  # as input dtype, and as intermediate dtype
        made = model(lambda op, x: op.Tanh(op.MatMul(op.Cast(x, to=ir.DataType.DOUBLE), weights)), ("x", dtype, [4, 16]))
        report = onnxbridge.convert(ir.to_proto(made), "coreml", samples=1).report
        assert report.passed and 0 < report.outputs[0].max_abs < 1e-5
        assert report.outputs[0].tolerance.atol < 1e-4


def test_inputs_outside_of_float32_raise():
    _, call = run(model(lambda op, x: op.Neg(x), ("x", ir.DataType.DOUBLE, [2])))
    assert call({"x": np.array([np.inf, 2.5])})["y"].tolist() == [-np.inf, -2.5]
    with pytest.raises(UsageError, match="the input x contains a number outside of float32"):
        call({"x": np.array([1e300, 0])})


def test_constant_outside_of_int32_is_unsupported():
    made = model(lambda op, x: op.Add(x, np.int64([1 << 40])), ("x", INT64, [1]))
    with pytest.raises(ConversionError, match=r"Add x1: a constant contains 1099511627776"):
        backend.from_hub(made)


def test_slice_bounds_outside_of_int32_are_clamped():
    made = model(lambda op, x, s: op.Slice(x, s, np.int64([1 << 62]), np.int64([0])), ("x", FLOAT, [4]), ("s", INT64, [1]))
    _, call = run(made)
    assert call({"x": np.float32([1, 2, 3, 4]), "s": np.int64([2])})["y"].tolist() == [3, 4]


@pytest.mark.parametrize(
    ("dtype", "array"),
    [
        (ir.DataType.BOOL, np.array([True, False])),
        (ir.DataType.UINT8, np.uint8([250, 3])),
        (ir.DataType.INT8, np.int8([-128, 7])),
        (ir.DataType.FLOAT16, np.float16([1.5, -2])),
        (ir.DataType.DOUBLE, np.float64([1.5, -2])),
    ],
)
@pytest.mark.parametrize("target", ["iOS15", "iOS17"])
def test_dtypes_of_inputs_and_outputs(dtype, array, target):
    _, call = run(model(lambda op, x: op.Concat(x, x, axis=0), ("x", dtype, [2])), minimum_deployment_target=target)
    y = call({"x": array})["y"]
    assert y.dtype == array.dtype and y.tolist() == [*array.tolist(), *array.tolist()]


@pytest.mark.slow
def test_bfloat16_is_computed_in_float32():
    """As an input dtype, in native and decomposed operators, and as an intermediate dtype; the notes report it."""
    half = ir.DataType.BFLOAT16
    written = (lambda op, x: op.Relu(x), lambda op, x: op.Mish(x), lambda op, x: op.Swish(x), lambda op, x: op.LogSoftmax(x))
    for write in written:
        artifact, _ = run(model(write, ("x", half, [2])))
        assert "x is bfloat16 in the source and float32 in Core ML" in artifact.notes
    made = model(lambda op, x: op.Cast(op.Exp(op.Cast(x, to=half)), to=FLOAT), ("x", FLOAT, [2]))
    artifact, call = run(made)
    (note,) = artifact.notes
    assert note.startswith("bfloat16 values are computed in float32 in Core ML, first ")
    np.testing.assert_allclose(call({"x": np.float32([0.3, -1])})["y"], np.exp(np.float32([0.3, -1])), rtol=1e-6)


def test_scalar_inputs_have_shape_one():
    artifact, call = run(model(lambda op, x: op.Mul(x, 2.0), ("x", FLOAT, [])))
    assert list(artifact.model.get_spec().description.input[0].type.multiArrayType.shape) == [1]
    y = call({"x": np.float32(3)})["y"]
    assert y.shape == () and y == 6


@pytest.mark.parametrize(
    ("write", "inputs", "reason"),
    [
        (lambda op, x: op.Relu(x), ("x", FLOAT, [1] * 6), "rank 6"),
        (lambda op, x: op.Relu(x), ("x", FLOAT, [0, 2]), "is empty"),
        (lambda op, x: op.Relu(x), ("x", FLOAT, None), "rank is unknown"),
        (lambda op, x: op.Identity(x), ("x", ir.DataType.STRING, [2]), "no tensors of string"),
        (lambda op, x: op.Reshape(x, np.ones(6, np.int64)), ("x", FLOAT, [1]), "a result has rank 6"),
        (lambda op, x: op.Tile(x, np.int64([2, 0])), ("x", FLOAT, [2, 3]), "an empty result"),
    ],
)
def test_unsupported_inputs_and_ranks(write, inputs, reason):
    with pytest.raises(ConversionError, match=reason):
        backend.from_hub(model(write, inputs))


def _branches(op, x, cond):
    return op.SequenceAt(
        op.If(cond, then_branch=lambda: op.SequenceConstruct(x, x), else_branch=lambda: op.SequenceConstruct(x)), np.int64(0)
    )


def _collecting(op, x, count):
    def body(i, condition, rows):
        return condition, op.SequenceInsert(rows, op.Neg(x))

    return op.ConcatFromSequence(op.Loop(count, True, op.SequenceConstruct(x), body=body, outputs=1), axis=0)


@pytest.mark.parametrize(
    ("write", "dtype", "reason"),
    [
        (_branches, ir.DataType.BOOL, "one branch returns a sequence of 2 elements, the other one of 1"),
        (_collecting, ir.DataType.INT64, "a loop carries a sequence, and its trip count is dynamic"),
        (lambda op, x, n: op.SequenceConstruct(x, x), ir.DataType.BOOL, "concatenate them"),
    ],
)
def test_sequences_of_dynamic_length_are_unsupported(write, dtype, reason):
    with pytest.raises(ConversionError, match=reason):
        backend.from_hub(model(write, ("x", ir.DataType.FLOAT, [3]), ("n", dtype, [])))


def _growing(op, x, count):
    def body(i, condition, state):
        new = op.Concat(state, x, axis=0)
        return [condition, new, new]

    return op.Loop(count, True, x, body=body, outputs=2)[1]


@pytest.mark.parametrize(
    ("write", "dtype", "reason"),
    [
        (
            lambda op, x, c: op.If(c, then_branch=lambda: op.Neg(x), else_branch=lambda: op.Concat(x, x, axis=0)),
            ir.DataType.BOOL,
            r"shapes \[3\] and \[6\]",
        ),
        (
            lambda op, x, c: op.If(c, then_branch=lambda: op.Neg(x), else_branch=lambda: op.Unsqueeze(x, [0])),
            ir.DataType.BOOL,
            r"shapes \[3\] and \[1, 3\]",
        ),
        (_growing, ir.DataType.INT64, "change between iterations"),
    ],
)
def test_control_flow_with_different_result_shapes_is_unsupported(write, dtype, reason):
    with pytest.raises(ConversionError, match=reason):
        backend.from_hub(model(write, ("x", FLOAT, [3]), ("n", dtype, [])))


def test_loop_with_dynamic_condition():
    def counted(op, x):
        def body(i, condition, count, state):
            count = op.Add(count, 1)
            return [op.Less(count, 40), count, op.Add(state, x)]

        return op.Loop(None, True, op.constant(np.int64(0)), x, body=body, outputs=2)[1]

    x = np.array([1.0, -2.0, 0.5], np.float32)
    made = backend.from_hub(model(counted, ("x", FLOAT, [3])))
    assert "while_loop" in operators(made)
    np.testing.assert_array_equal(made.run({"x": x})["y"], 41 * x)


def test_all_problems_are_reported_at_once():
    def write(op, x, s, scalar):
        return op.ImageDecoder(op.Cast(x, to=ir.DataType.UINT8)), op.Identity(s), op.Acos(scalar)

    made = model(write, ("x", INT64, [3]), ("s", ir.DataType.STRING, [1]), ("scalar", FLOAT, []), names=("y", "z", "a"))
    with pytest.raises(ConversionError) as error:
        backend.from_hub(made)
    assert {(p.op, p.reason) for p in error.value.problems} == {
        ("input", "Core ML has no tensors of string"),
        ("ImageDecoder", "no rule"),
    }


def test_transpose_of_rank_six():
    def write(op, x):
        wide = op.Transpose(op.Reshape(x, np.int64([1, 2, 3, 2, 2, 2])), perm=[0, 3, 1, 4, 2, 5])
        return op.Reshape(wide, np.int64([2, 4, 6]))

    made = model(write, ("x", FLOAT, [2, 3, 8]))
    x = np.arange(48, dtype=np.float32).reshape(2, 3, 8)
    _, call = run(made)
    assert np.array_equal(call({"x": x})["y"], devices.run(devices.session(made, "cpu"), {"x": x})["y"])


def net(op, x):
    w = np.linspace(-1, 1, 2 * 3 * 3 * 3, dtype=np.float32).reshape(2, 3, 3, 3)
    y = op.GlobalAveragePool(op.Relu(op.Conv(x, w, pads=[1, 1, 1, 1])))
    return op.Softmax(op.Flatten(y))


def test_dynamic_sizes_get_bounds():
    made = model(net, ("x", FLOAT, ["N", 3, "H", "W"]))
    artifact, call = run(made, bounds={"N": (1, 8), "H": (4, 32)})
    ranges = artifact.model.get_spec().description.input[0].type.multiArrayType.shapeRange.sizeRanges
    assert [(r.lowerBound, r.upperBound) for r in ranges] == [(1, 8), (3, 3), (4, 32), (1, 2048)]
    assert artifact.notes == ("the dimension W gets the default upper bound 2048, which Core ML requires",)
    for shape in ((1, 3, 4, 5), (3, 3, 9, 6)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        expected = devices.run(devices.session(made, "cpu"), {"x": x})["y"]
        assert np.allclose(call({"x": x})["y"], expected, rtol=1e-5, atol=1e-6)


def test_fp16():
    made = model(net, ("x", FLOAT, [1, 3, 8, 8]))
    artifact, call = run(made, compute_precision="fp16")
    assert artifact.unit_roundoff == 2**-11 and artifact.outputs[0].dtype == "FLOAT"
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    y, expected = call({"x": x})["y"], devices.run(devices.session(made, "cpu"), {"x": x})["y"]
    # probabilities: a few roundings to float16 of numbers below one
    assert y.dtype == np.float32 and not np.array_equal(y, expected) and np.allclose(y, expected, atol=8 * 2**-11)


def test_mask_that_overflows_float16_stays_in_float32():
    def write(op, x, mask):
        scores = op.Add(op.MatMul(x, op.Transpose(x, perm=[1, 0])), op.Mul(op.Sub(1.0, mask), np.float32(-3.4e38)))
        return op.MatMul(op.Softmax(scores), x)

    made = model(write, ("x", FLOAT, [3, 4]), ("mask", FLOAT, [3]))
    artifact, call = run(made, compute_precision="fp16")
    assert any("stays in float32" in note for note in artifact.notes)
    feeds = {"x": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32), "mask": np.float32([0, 0, 0])}
    y, expected = call(feeds)["y"], devices.run(devices.session(made, "cpu"), feeds)["y"]
    assert np.allclose(y, expected, atol=8 * 2**-11)


def test_constant_that_underflows_keeps_its_readers_in_float32():
    made = model(lambda op, x: op.Relu(op.Neg(op.Log(op.Add(x, np.float32(1e-10))))), ("x", FLOAT, [4]))
    artifact, call = run(made, compute_precision="fp16")
    x = np.float32([0, 1e-3, 1, 2])
    expected = np.maximum(-np.log(x.astype(np.float64) + 1e-10), 0)
    # x is rounded to float16, of which the logarithm makes an absolute error, and so is the result
    np.testing.assert_allclose(call({"x": x})["y"], expected, rtol=HALF, atol=HALF)
    (note,) = [n for n in artifact.notes if "stays in float32" in n]
    assert "Add" in note and "Log" in note and "Relu" not in note


def test_small_numbers_before_a_logarithm_stay_in_float32():
    filters = np.random.default_rng(0).random((8, 4)).astype(np.float32)

    def spectrum(op, x):
        mel = op.MatMul(op.Mul(x, x), op.constant(filters))
        return op.Log(op.Add(mel, 1e-10)), op.Mul(op.Relu(x), op.Relu(x))

    half = backend.from_hub(model(spectrum, ("x", FLOAT, [2, 8]), names=("mel", "gated")), compute_precision="fp16")
    assert any("a root or a logarithm" in note for note in half.notes)
    assert not any("gated" in note for note in half.notes if "stays" in note)
    x = np.array([np.linspace(1e-4, 1e-3, 8), np.linspace(0.1, 1, 8)], np.float32)
    found = half.run({"x": x})["mel"]
    # 1e-8 is 0 in float16, and the logarithm of 1e-10 is -23 instead of -17;
    # both factors x and the filters are rounded to float16, of which the logarithm makes an absolute error, and so is the result
    wide = x.astype(np.float64)
    np.testing.assert_allclose(found, np.log((wide * wide) @ filters + 1e-10), rtol=HALF, atol=3 * HALF)


def test_squares_before_a_root_stay_in_float32():
    def norm(op, x):
        mean = op.ReduceMean(op.Pow(x, np.float32(2)), [-1], keepdims=1)
        return op.Mul(x, op.Div(np.float32(1), op.Sqrt(op.Add(mean, np.float32(1e-6)))))

    half = backend.from_hub(model(norm, ("x", FLOAT, [2, 8])), compute_precision="fp16")
    x = np.array([np.linspace(500, 2000, 8), np.linspace(1e-3, 2e-3, 8)], np.float32)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + 1e-6)
    # x is rounded to float16 where it is a factor and under the root, and so are the root, the quotient and the product
    np.testing.assert_allclose(half.run({"x": x})["y"], expected, rtol=5 * HALF)


def test_invalid_options_raise():
    made = model(lambda op, x: op.Relu(x), ("x", FLOAT, [1]))
    with pytest.raises(UsageError, match="minimum_deployment_target='iOS12' is not one of iOS15"):
        backend.from_hub(made, minimum_deployment_target="iOS12")
    with pytest.raises(UsageError, match="compute_precision='int8' is not one of fp32, fp16, mixed"):
        backend.from_hub(made, compute_precision="int8")


@pytest.mark.parametrize(("target", "version"), [("iOS15", 6), ("iOS16", 7), ("iOS17", 8), ("iOS18", 9)])
def test_deployment_targets(target, version):
    made = model(net, ("x", FLOAT, [1, 3, 8, 8]))
    artifact, call = run(made, minimum_deployment_target=target)
    assert artifact.model.get_spec().specificationVersion == version
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    assert np.allclose(call({"x": x})["y"], devices.run(devices.session(made, "cpu"), {"x": x})["y"], rtol=1e-5, atol=1e-6)


@pytest.fixture
def newer_sin():
    """A rule for Sin that needs iOS 18."""
    original = backend.rules["Sin"]
    del backend.rules["Sin"]
    backend.rules("Sin", needs="iOS18")(lambda input: original.lower(input))
    yield
    del backend.rules["Sin"]
    backend.rules.table(Sin=original.lower)


def test_rule_may_need_a_newer_deployment_target(newer_sin):
    made = model(lambda op, x: op.Sin(x), ("x", FLOAT, [1]))
    with pytest.raises(ConversionError, match="Sin x1: needs iOS18"):
        backend.from_hub(made)
    assert operators(backend.from_hub(made, minimum_deployment_target="iOS18")) == ["sin"]


def test_native_operators():
    made = model(net, ("x", FLOAT, [1, 3, 8, 8]))
    assert operators(backend.from_hub(made)) == ["conv", "relu", "reduce_mean", "reshape", "softmax"]


def test_save_and_open_with_metadata(tmp_path):
    made = model(lambda op, x: op.Relu(x), ("x:0", FLOAT, [2]))
    made.metadata_props.update({"author": "A", "license": "MIT", "version": "3", "task": "none"})
    made.doc_string = "does nothing much"
    artifact = backend.from_hub(made)
    assert backend.save(artifact, tmp_path / "net.mlpackage") == [tmp_path / "net.mlpackage"]
    backend.save(artifact, tmp_path / "half-written")
    for path in (tmp_path / "net.mlpackage", tmp_path / "half-written"):
        reopened = backend.open(path) if path.suffix else None
        assert path.is_dir()
        if reopened is None:
            continue
        assert (reopened.inputs, reopened.outputs, reopened.notes) == (artifact.inputs, artifact.outputs, artifact.notes)
        assert backend.runner(reopened)({"x:0": np.float32([-1, 2])})["y"].tolist() == [0, 2]
        assert (reopened.model.author, reopened.model.license, reopened.model.version) == ("A", "MIT", "3")
        assert reopened.model.short_description == "does nothing much"
        assert reopened.model.user_defined_metadata["task"] == "none"


def test_conversion_is_deterministic():
    made = model(net, ("x", FLOAT, [1, 3, 8, 8]))
    specs = [backend.from_hub(made).model.get_spec() for _ in range(2)]
    assert not any("date" in key for key in specs[0].description.metadata.userDefined)
    assert specs[0].SerializeToString(deterministic=True) == specs[1].SerializeToString(deterministic=True)


def test_nothing_is_printed():
    made = model(net, ("x", FLOAT, [1, 3, 8, 8]))
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        backend.from_hub(made)
    assert (out.getvalue(), err.getvalue()) == ("", "")


def test_dynamic_axes_are_inferred_from_declared_shapes():
    def write(op, x, axes):
        y = op.ReduceSum(x, axes, keepdims=0)
        y.shape = ir.Shape([3, 4])
        return y

    made = model(write, ("x", FLOAT, [3, 4, 4]), ("axes", INT64, [1]))
    _, call = run(made)
    x = np.random.default_rng(0).standard_normal((3, 4, 4)).astype(np.float32)
    for axis in (1, 2, -1):
        assert np.allclose(call({"x": x, "axes": np.int64([axis])})["y"], x.sum(axis), rtol=1e-5, atol=1e-6)


def test_stft_frames_are_inferred_from_its_shape():
    def write(op, x, step, length):
        y = op.STFT(x, step, None, length)
        y.shape = ir.Shape([1, 15, 9, 2])
        return y

    made = model(write, ("x", FLOAT, [1, 128, 1]), ("step", INT64, []), ("length", INT64, []))
    x = np.arange(128, dtype=np.float32).reshape(1, 128, 1)
    y = run(made)[1]({"x": x, "step": np.int64(8), "length": np.int64(16)})["y"]
    frames = np.lib.stride_tricks.sliding_window_view(x[0, :, 0].astype(np.float64), 16)[::8]
    expected = np.fft.rfft(frames)
    # sums of 16 products of numbers up to 127
    assert np.allclose(y[0, ..., 0] + 1j * y[0, ..., 1], expected, atol=16 * 127 * 2**-23)


@pytest.mark.parametrize("size", [2, 8, 1 << 20])
def test_lrn_with_even_and_large_sizes(size):
    x = np.random.default_rng(0).standard_normal((2, 5, 3)).astype(np.float32)
    _, call = run(model(lambda op, x: op.LRN(x, size=size, alpha=0.5, bias=1.0), ("x", FLOAT, [2, 5, 3])))
    before, after = (size - 1) // 2, size // 2
    squares = np.float64(x) ** 2
    total = np.stack([squares[:, max(0, c - before) : c + after + 1].sum(1) for c in range(5)], axis=1)
    np.testing.assert_allclose(call({"x": x})["y"], x / (1 + 0.5 / size * total) ** 0.75, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_inverse_hyperbolic_functions_over_the_full_range(dtype):
    kind = ir.DataType.from_numpy(np.dtype(dtype))
    info = np.finfo(dtype)
    x = np.array([0, info.tiny, 1e-3, 0.5, 0.999, 1, 1.001, 3, 300, info.max / 3, info.max], dtype)
    x = np.concatenate([-x[::-1], x, dtype([np.inf, -np.inf, np.nan])])
    _, call = run(model(lambda op, x: (op.Asinh(x), op.Acosh(x)), ("x", kind, [len(x)]), names=("asinh", "acosh")))
    found = call({"x": x})
    with np.errstate(invalid="ignore"):
        wanted = {"asinh": np.arcsinh(x.astype(np.float64)), "acosh": np.arccosh(x.astype(np.float64))}
    for name, value in wanted.items():  # a few roundings
        np.testing.assert_allclose(found[name], value, rtol=8 * info.eps, atol=0)


def test_a_scale_and_a_shift_of_channels_are_exact():
    """coremltools' passes would make a batch normalization with an epsilon of them, which is 5e-6 off."""
    scale, shift = (np.linspace(*ends, 4, dtype=np.float32).reshape(4, 1, 1) for ends in ((0.5, 3), (-2, 2)))
    made, call = run(model(lambda op, x: op.Neg(op.Add(op.Mul(x, scale), shift)), ("x", FLOAT, [1, 4, 2, 2])))
    x = np.random.default_rng(0).standard_normal((1, 4, 2, 2)).astype(np.float32)
    np.testing.assert_allclose(call({"x": x})["y"], -(x * scale + shift), rtol=3e-7)


def test_a_decomposition_takes_the_place_of_an_operator_that_coremltools_refuses(monkeypatch):
    def refused(X, slope):
        return mb.prelu(x=X, alpha=np.arange(7, dtype=np.float32))

    monkeypatch.setitem(rule.load()._rules, "PRelu", replace(rule["PRelu"], lower=refused))
    made, call = run(model(lambda op, x: op.MatMul(op.PRelu(x, np.float32([[0.5], [2.0]])), np.eye(3, dtype=np.float32)),
                           ("x", FLOAT, [1, 2, 3])))  # fmt: skip
    x = np.array([[[-1, 2, -3], [4, -5, 6]]], np.float32)
    np.testing.assert_array_equal(call({"x": x})["y"], np.float32([[[-0.5, 2, -1.5], [4, -10, 6]]]))


def test_a_number_added_to_a_layer_of_one_output():
    """coremltools' own pass ends in an IndexError."""
    weight = np.float32([[0.5], [-2]])
    made, call = run(model(lambda op, x: op.Add(op.Add(op.MatMul(x, weight), np.float32([0.25])), 1.0), ("x", FLOAT, [1, 3, 2])))
    x = np.arange(6, dtype=np.float32).reshape(1, 3, 2)
    np.testing.assert_array_equal(call({"x": x})["y"], x @ weight + np.float32(1.25))


def test_the_garbage_collector_is_left_as_it_was():
    before = gc.get_freeze_count()
    run(model(lambda op, x: op.Neg(x), ("x", FLOAT, [2])))
    assert gc.get_freeze_count() == before
    gc.freeze()
    try:
        run(model(lambda op, x: op.Neg(x), ("x", FLOAT, [2])))
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()

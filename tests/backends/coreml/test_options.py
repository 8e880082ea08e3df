"""Options of the Core ML backend: images, labels, shapes, states, precision, compression; and `explain`."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxbridge
from onnxbridge import plugin_options
from onnxbridge.backends.coreml import backend
from onnxbridge.backends.coreml.model_options import Image, images, shapes
from onnxbridge.errors import ConversionError, UsageError
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.runtime import devices

FLOAT = ir.DataType.FLOAT
R = np.random.default_rng(0)
KERNEL = (R.standard_normal((8, 3, 3, 3)) / 5).astype(np.float32)
DENSE = R.standard_normal((8, 5)).astype(np.float32)
IMAGE = R.standard_normal((1, 3, 16, 16)).astype(np.float32)
TOLERANCE = 1e-5  # softmax of a few hundred products in float32


def model(write, *inputs, names=("y",)):
    op = Builder()
    values = [op.input(*i) for i in inputs]
    results = write(op, *values)
    results = results if isinstance(results, tuple) else (results,)
    return op.model(values, [op.output(r, n) for r, n in zip(results, names, strict=True)])


def net(op, x):
    return op.Softmax(op.MatMul(op.Flatten(op.GlobalAveragePool(op.Relu(op.Conv(x, KERNEL, pads=[1] * 4)))), DENSE))


def classifier(*shape):
    return model(net, ("x", FLOAT, list(shape)))


def artifact_and_error(made, feeds, **options):
    """The artifact, and its largest difference to ONNX Runtime."""
    artifact = backend.from_hub(made, **options)
    got, want = artifact.run(feeds), devices.run(devices.session(made, "cpu"), feeds)
    assert list(got) == list(want) or set(got) == set(want)
    return artifact, max(float(np.abs(got[k].astype(np.float64) - want[k]).max()) for k in want)


@pytest.mark.parametrize(
    ("text", "layout"),
    [("x:BGR,scale=1/255,bias=-0.4/-0.5/-0.6", "NCHW"), ("x:RGB,scale=0.1/0.2/0.3,layout=NHWC", "NHWC")],
)
def test_image_input(text, layout, tmp_path):
    if layout == "NCHW":
        made, feed = classifier(1, 3, 16, 16), IMAGE
    else:
        made = model(lambda op, x: net(op, op.Transpose(x, perm=[0, 3, 1, 2])), ("x", FLOAT, [None, 16, 16, 3]))
        feed = IMAGE.transpose(0, 2, 3, 1)
    artifact, max_error = artifact_and_error(made, {"x": feed}, image=[text])
    (described,) = artifact.model.get_spec().description.input
    assert (described.type.imageType.height, described.type.imageType.width) == (16, 16) and max_error < TOLERANCE
    (path,) = backend.save(artifact, tmp_path / "net.mlpackage")
    assert backend.open(path).images == artifact.images


def test_parsing_of_image_and_shapes():
    assert images(["a:0:GRAYSCALE,scale=2,bias=-1"]) == {"a:0": Image("GRAYSCALE", (2.0,), (-1.0,))}
    assert shapes(["x:1x3x8,2x3x4"]) == {"x": ((1, 3, 8), (2, 3, 4))}
    for wrong in ("x:CMYK", "x:scale=red", "x:RGB,bias=1/2/3/4", ":RGB", "x:scale=0"):
        with pytest.raises(UsageError):
            images([wrong])
    for wrong in ("x:1x3,2", "x:axb", "x:0x3"):
        with pytest.raises(UsageError):
            shapes([wrong])


def test_options_of_an_unknown_input_raise():
    for options in ({"image": ["z:RGB"]}, {"shapes": ["z:1x3x16x16"]}, {"state": ["z=y"]}, {"state": ["x=z"]}):
        with pytest.raises(UsageError, match="has no (in|out)put 'z'"):
            backend.from_hub(classifier(1, 3, 16, 16), **options)


def test_labels_make_a_classifier(tmp_path):
    (tmp_path / "labels.txt").write_text("ant\nbee\ncat\ndog\neel\n\n")
    artifact, max_error = artifact_and_error(classifier(1, 3, 16, 16), {"x": IMAGE}, labels=tmp_path / "labels.txt")
    described = artifact.model.get_spec().description
    assert described.predictedFeatureName == "classLabel" and max_error < TOLERANCE
    assert artifact.labels == ("ant", "bee", "cat", "dog", "eel")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": ["a", "b", "c"]}, r"3 labels, but the last output, y, has shape \[1, 5\]"),
        ({"labels": ["a", "b", "a", "c", "d"]}, "'a' occurs 2 times"),
        ({"labels": []}, "the list is empty"),
        ({"labels": "no/such/file"}, "cannot be read"),
        ({"image": ["x:RGB", "x:BGR"]}, "x is given twice"),
        ({"image": "x:RGB", "state": "x=y"}, "cannot have both state and image"),
        ({"state": ["a=y", "b=y"]}, "the output y is the updated value of several"),
        ({"state": ["a=y", "a=z"]}, "a is given twice"),
        ({"convert_to": "neuralnetwork", "compute_precision": "fp16"}, "compute_precision requires an ML program"),
        ({"convert_to": "neuralnetwork", "minimum_deployment_target": "iOS18"}, "targets iOS14"),
        ({"convert_to": "neuralnetwork", "compress": "linear8"}, "compress requires an ML program"),
        ({"minimum_deployment_target": "iOS14"}, "not one of iOS15"),
        ({"bounds": {"M": (1, 4)}}, "have no dimension 'M'; all are static"),
    ],
)
def test_invalid_combinations_raise(options, message):
    with pytest.raises(UsageError, match=message):
        backend.from_hub(classifier(1, 3, 16, 16), **options)


def test_image_of_wrong_shape_is_unsupported():
    with pytest.raises(
        ConversionError, match=r"a RGB image must be a float tensor in NCHW with 3 channels; this has shape \[1, 4\]"
    ):
        backend.from_hub(model(lambda op, x: op.Relu(x), ("x", FLOAT, [1, 4])), image="x:RGB")


def test_enumerated_shapes():
    artifact, max_error = artifact_and_error(classifier("N", 3, "H", "W"), {"x": IMAGE}, shapes=["x:1x3x16x16,2x3x8x8"])
    few = artifact.model.get_spec().description.input[0].type.multiArrayType.enumeratedShapes.shapes
    assert sorted(list(s.shape) for s in few) == [[1, 3, 16, 16], [2, 3, 8, 8]] and max_error < TOLERANCE
    with pytest.raises(UsageError, match="they do not match the model's shape"):
        backend.from_hub(classifier("N", 3, "H", "W"), shapes=["x:1x4x16x16,1x4x8x8"])


def counter():
    return model(
        lambda op, x, past: (op.Add(op.ReduceSum(past), x), op.Add(past, x)), ("x", FLOAT, [4]), ("past", FLOAT, [4]),
        names=("y", "present"),
    )  # fmt: skip


def test_state_is_stored_between_runs():
    from onnxbridge.runtime.mil import Interpreter

    feeds = {"x": np.float32([1, 2, 3, 4]), "past": np.float32([1, 0, 2, 0])}
    artifact, max_error = artifact_and_error(counter(), feeds, state=["past=present"], minimum_deployment_target="iOS18")
    description = artifact.model.get_spec().description
    assert [d.name for d in description.state] == ["past"] and [d.name for d in description.output] == ["y"]
    assert max_error == 0  # small integers, which are exact in float16
    engine = Interpreter(artifact.model)
    assert [engine.run({"x": feeds["x"]})["y"].tolist() for _ in range(2)] == [[1, 2, 3, 4], [11, 12, 13, 14]]


def test_states_need_ios18():
    with pytest.raises(ConversionError, match="states need iOS18"):
        backend.from_hub(counter(), state=["past=present"])


CACHED = np.random.default_rng(1)
WEIGHTS = [(CACHED.standard_normal((4, 4)) / 2).astype(np.float32) for _ in range(3)]


def decoder(op, x, past):
    """Attention over a growing cache of keys, which are also the values."""
    query, key = (op.MatMul(x, w) for w in WEIGHTS[:2])
    keys = op.Concat(past, key, axis=1)
    scores = op.Softmax(op.MatMul(query, op.Transpose(keys, perm=[0, 2, 1])))
    return op.MatMul(op.MatMul(scores, keys), WEIGHTS[2]), op.Identity(keys)


def float16_values(*shape):
    """Numbers that are exact in float16, the dtype of states."""
    return CACHED.standard_normal(shape).astype(np.float16).astype(np.float32)


STATE = {"state": ["past=present"], "minimum_deployment_target": "iOS18"}


def growing(write=decoder, tokens="length", past=("past",)):
    return model(write, ("x", FLOAT, [1, tokens, 4]), ("past", FLOAT, [1, *past, 4]), names=("y", "present"))


def test_growing_cache_becomes_a_state_with_a_position(tmp_path):
    from onnxbridge.runtime.mil import Interpreter

    made = growing()
    feeds = {"x": float16_values(1, 2, 4), "past": float16_values(1, 3, 4)}
    artifact, max_error = artifact_and_error(made, feeds, bounds={"past": (0, 6), "length": (1, 3)}, **STATE)
    assert max_error < 2e-3  # new keys are rounded to float16
    description = artifact.model.get_spec().description
    assert [d.name for d in description.input] == ["x", "position"]
    assert list(description.state[0].type.stateType.arrayType.shape) == [1, 9, 4]
    (path,) = backend.save(artifact, tmp_path / "net.mlpackage")
    assert set(backend.runner(backend.open(path))(feeds)) == {"y", "present"}
    # start with an empty cache: several tokens, then one by one
    engine, session = Interpreter(path), devices.session(made, "cpu")
    past = np.zeros((1, 0, 4), np.float32)
    for count in (3, 1, 1, 2):
        x = CACHED.standard_normal((1, count, 4)).astype(np.float32)
        want = devices.run(session, {"x": x, "past": past})
        got = engine.run({"x": x, "position": np.array([past.shape[1]])})
        assert np.abs(got["y"] - want["y"]).max() < 4e-3
        past = want["present"]
    with pytest.raises(UsageError, match="a past of length 10 does not fit"):
        backend.runner(artifact)({"x": x, "past": np.zeros((1, 10, 4), np.float32)})


def test_past_of_attention_becomes_a_growing_state():
    def write(op, x, past, values):
        y, keys, values = op.Attention(x, x, x, None, past, values, scale=1.0, is_causal=1, outputs=3)
        return y, keys, values

    shapes = ("x", FLOAT, [1, 2, 2, 4]), ("k", FLOAT, [1, 2, "past", 4]), ("v", FLOAT, [1, 2, "past", 4])
    made = model(write, *shapes, names=("y", "next_k", "next_v"))
    feeds = {"x": float16_values(1, 2, 2, 4), "k": float16_values(1, 2, 3, 4), "v": float16_values(1, 2, 3, 4)}
    options = {"state": ["k=next_k", "v=next_v"], "minimum_deployment_target": "iOS18", "bounds": {"past": (0, 5)}}
    artifact, max_error = artifact_and_error(made, feeds, **options)
    assert max_error < 2e-6 and artifact.positions == {"past": "position"}  # the new values are exact in float16


def test_unsupported_growing_states():
    def also_read(op, x, past):
        y, keys = decoder(op, x, past)
        return op.Add(y, op.ReduceSum(past, [1], keepdims=1)), keys

    def prepended(op, x, past):
        return op.Relu(x), op.Concat(x, past, axis=1)

    def sliced(op, x, past):
        return op.Relu(x), op.Slice(op.Concat(past, x, axis=1), [1], [100], [1])

    for write, message in (
        (also_read, "is also read by ReduceSum"),
        (prepended, "not begin with it"),
        (sliced, "is computed by Slice, not by a"),
    ):
        with pytest.raises(ConversionError, match=message) as raised:
            backend.from_hub(growing(write), **STATE)
        assert "a cache of a fixed length" in str(raised.value)
    two = model(decoder, ("x", FLOAT, ["N", 1, 4]), ("past", FLOAT, ["N", "past", 4]), names=("y", "present"))
    with pytest.raises(ConversionError, match="N, past of .* are dynamic"):
        backend.from_hub(two, **STATE)
    feeds = {"x": np.ones((1, 1, 4), np.float32), "past": np.ones((1, 2, 4), np.float32)}
    assert artifact_and_error(two, feeds, bounds={"N": (1, 1)}, **STATE)[1] < 2e-3


@pytest.mark.slow
def test_samples_have_enumerated_shapes():
    made = ir.to_proto(classifier("N", 3, "H", "W"))
    for options in ({}, {"compute_precision": "mixed"}, {"image": ["x:RGB,scale=1/255"]}):
        result = onnxbridge.convert(made, "coreml", shapes=["x:1x3x16x16,1x3x8x24"], samples=2, **options)
        assert result.report.passed
        assert [s["x"] for s in result.report.sizes] == [(1, 3, 16, 16)] * 2 + [(1, 3, 8, 24)]


def test_several_inputs_with_enumerated_shapes():
    made = model(lambda op, x, z: (op.Relu(x), op.Neg(z)), ("x", FLOAT, ["N", "H"]), ("z", FLOAT, ["N"]), names=("y", "r"))
    together = {"shapes": ["x:1x4,3x5", "z:1,3"]}
    with pytest.raises(UsageError, match="x, z have several shapes each; this needs iOS18"):
        backend.from_hub(made, **together)
    with pytest.raises(UsageError, match="give the same number for each"):
        backend.from_hub(made, shapes=["x:1x4,3x5", "z:1,2,3"], minimum_deployment_target="iOS18")
    result = onnxbridge.convert(ir.to_proto(made), "coreml", samples=1, minimum_deployment_target="iOS18", **together)
    assert [tuple(s.values()) for s in result.report.sizes] == [((1, 4), (1,)), ((3, 5), (3,))]


@pytest.mark.slow
def test_smallest_and_largest_sizes_are_verified():
    made = ir.to_proto(model(lambda op, x: op.Relu(x), ("x", FLOAT, ["N", "L"])))
    report = onnxbridge.convert(made, "coreml", dynamic=["N=1..64", "L=1..9"], samples=1).report
    assert [s["x"] for s in report.sizes] == [(2, 2), (1, 1), (64, 9)]
    # bounds do not apply to enumerated shapes
    few = onnxbridge.convert(made, "coreml", dynamic=["N=1..64"], shapes="x:2x3,5x4", samples=1).report
    assert [s["x"] for s in few.sizes] == [(2, 3), (5, 4)]
    # a kernel of size 3 does not fit an image of height 1, and 3000 images exceed the limit of a sample
    wide = KERNEL.repeat(200, axis=0)
    made = ir.to_proto(model(lambda op, x: op.Conv(x, wide), ("x", FLOAT, ["N", 3, "H", 4])))
    report = onnxbridge.convert(made, "coreml", dynamic=["N=1..3000", "H=1..40"], samples=1).report
    assert "not verified at N=1, H=1, where the source itself does not run" in report.notes
    assert any("not verified at N=3000, H=40, where the inputs are" in note for note in report.notes)


def test_mixed_precision_measures_supported_sizes():
    """At sizes for which the network computes something, and at each enumerated shape."""
    deep = model(lambda op, x: op.Conv(op.MaxPool(x, kernel_shape=[4, 4]), KERNEL), ("x", FLOAT, [1, 3, "H", "W"]))
    (note,) = backend.from_hub(deep, compute_precision="mixed", bounds={"H": (1, 40), "W": (1, 40)}).notes
    assert "measured values is" in note and "is 0;" not in note
    summed = model(lambda op, x: op.ReduceSum(op.Mul(x, x), [0, 1]), ("x", FLOAT, ["N", "L"]))
    few = backend.from_hub(summed, compute_precision="mixed", shapes="x:2x2,300x300")
    assert any("(measured magnitude)" in note for note in few.notes)


@pytest.mark.parametrize("write", [
    lambda op, x: op.HardSigmoid(x, alpha=0.25), lambda op, x: op.Elu(x, alpha=0.5), lambda op, x: op.LeakyRelu(x, alpha=0.1),
    lambda op, x: op.ThresholdedRelu(x, alpha=0.3), lambda op, x: op.Clip(x, -0.5, 0.75), lambda op, x: op.Selu(x),
])  # fmt: skip
def test_activation_parameters_in_neural_networks(write):
    made = ir.to_proto(model(write, ("x", FLOAT, [1, 3, 4, 4])))
    assert onnxbridge.convert(made, "coreml", convert_to="neuralnetwork", samples=1).report.passed


@pytest.mark.slow
def test_selections_are_computed_in_float32():
    """In float16, scores near 1 tie, and the areas of large boxes overflow."""
    rng = np.random.default_rng(7)
    logits = np.linspace(9.0, 8.0, 48).astype(np.float32)[rng.permutation(48)]
    corner = rng.uniform(0, 900, (48, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(290, 310, (48, 2))], axis=1).astype(np.float32)

    def picked(op, boxes, x):
        picks = op.NonMaxSuppression(boxes, op.Sigmoid(x), np.array([8]), np.float32([0.4]))
        return picks, op.TopK(op.Sigmoid(x), np.array([10]), outputs=2)[1]

    made = model(picked, ("boxes", FLOAT, [1, 48, 4]), ("x", FLOAT, [1, 1, 48]), names=("picks", "best"))
    feeds = {"boxes": boxes[None], "x": logits[None, None]}
    artifact = backend.from_hub(made, compute_precision="fp16")
    found = artifact.run(feeds)
    wanted = devices.run(devices.session(made), feeds)
    assert np.array_equal(found["best"], wanted["best"]) and np.array_equal(found["picks"], wanted["picks"])
    assert any("elements are selected by the results" in note for note in artifact.notes)
    lines_by_op = {line.op: line for line in backend.explain(made, compute_precision="fp16")}
    assert lines_by_op["Sigmoid"].dtype == "fp32" and "elements are selected by it" in lines_by_op["Sigmoid"].note
    free = model(lambda op, x: op.MatMul(op.Sigmoid(x), np.ones((48, 4), np.float32)), ("x", FLOAT, [1, 48]))
    assert not any("choice" in note for note in backend.from_hub(free, compute_precision="fp16").notes)


def test_integers_and_angles_stay_in_float32():
    """Sums of 600 products of 8-bit integers, and the angle of position 5001 modulo 2 pi, are not exact in float16."""
    rng = np.random.default_rng(3)
    bytes_ = rng.integers(0, 256, (600, 4)).astype(np.uint8)
    turns = np.float32([1, 0.3, 0.01])

    def write(op, x, at):
        product = op.MatMulInteger(x, bytes_)
        angle = op.Mul(op.Unsqueeze(op.Cast(at, to=1), [1]), turns)
        return product, op.Cos(op.Concat(angle, angle, axis=1))

    made = model(write, ("x", ir.DataType.UINT8, [2, 600]), ("at", ir.DataType.INT64, [2]), names=("product", "cos"))
    feeds = {"x": rng.integers(0, 256, (2, 600)).astype(np.uint8), "at": np.array([5001, 3])}
    artifact = backend.from_hub(made, compute_precision="fp16")
    found, wanted = artifact.run(feeds), devices.run(devices.session(made), feeds)
    assert np.array_equal(found["product"], wanted["product"])
    assert np.abs(found["cos"] - wanted["cos"]).max() < 1e-3
    assert any("they read integers" in note for note in artifact.notes)
    lines_by_op = {line.op: line for line in backend.explain(made, compute_precision="fp16")}
    assert (lines_by_op["Cos"].dtype, lines_by_op["Cos"].note) == ("fp32", "stays in float32: it reads integers")
    # scaled integers that no periodic function reads may use float16
    free = model(lambda op, x: op.Tanh(op.MatMul(op.Mul(op.Cast(x, to=1), np.float32(1 / 255)), WEIGHTS[0])),
                 ("x", ir.DataType.UINT8, [1, 4]))  # fmt: skip
    lines_by_op = {line.op: line.dtype for line in backend.explain(free, compute_precision="fp16")}
    assert lines_by_op["Mul"] == "fp32" and lines_by_op["MatMul"] == lines_by_op["Tanh"] == "fp16"


def test_mixed_precision_keeps_large_values_in_float32():
    def write(op, x):
        large = op.Mul(x, np.float32(300))
        return op.Sigmoid(op.Sub(op.Div(op.ReduceMean(op.Mul(large, large), [1]), np.float32(60000)), np.float32(1.5)))

    made, feeds = model(write, ("x", FLOAT, [2, 64])), {"x": R.standard_normal((2, 64)).astype(np.float32)}
    _, half = artifact_and_error(made, feeds, compute_precision="fp16")
    artifact, mixed = artifact_and_error(made, feeds, compute_precision="mixed", calibration=[feeds])
    assert half > 0.1 > 1e-3 > mixed
    (note,) = [n for n in artifact.notes if "(measured magnitude)" in n]
    assert "ReduceMean" in note
    with pytest.raises(UsageError, match="calibration requires"):
        backend.from_hub(made, calibration=[feeds])
    with pytest.raises(UsageError, match="the input x is missing"):
        backend.from_hub(made, compute_precision="mixed", calibration=[{}])


@pytest.mark.parametrize(
    ("how", "target", "kind"),
    [
        ("linear8", "iOS16", "constexpr_affine_dequantize"), ("linear4", "iOS18", "constexpr_blockwise_shift_scale"),
        ("sparse50", "iOS17", "constexpr_sparse_to_dense"),
    ],
)  # fmt: skip
def test_weight_compression(how, target, kind):
    weights = R.standard_normal((64, 64)).astype(np.float32)
    made = model(lambda op, x: op.MatMul(x, weights), ("x", FLOAT, [1, 64]))
    artifact, max_error = artifact_and_error(
        made, {"x": np.ones((1, 64), np.float32)}, compress=how, minimum_deployment_target=target
    )
    assert kind in operators(artifact) and 0 < max_error < 40
    if how == "linear4":
        with pytest.raises(UsageError, match="needs minimum_deployment_target='iOS18'"):
            backend.from_hub(made, compress=how)


def operators(artifact):
    (block,) = artifact.model.get_spec().mlProgram.functions["main"].block_specializations.values()
    return [o.type for o in block.operations if o.type != "const"]


@pytest.mark.parametrize(
    ("target", "stored"),
    [("iOS15", None), ("iOS17", "constexpr_affine_dequantize"), ("iOS18", "constexpr_blockwise_shift_scale")],
)
def test_quantized_weights_stay_quantized(target, stored):
    weights = R.integers(-127, 127, (64, 64)).astype(np.int8)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=1),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64])],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(R.uniform(0.01, 0.02, 64).astype(np.float32), "s")],
    )  # fmt: skip
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(source)
    made = onnxbridge.convert(source, "coreml", minimum_deployment_target=target, samples=1)
    assert operators(made.artifact) == ([stored, "matmul"] if stored else ["matmul"])


def test_fused_attention_from_ios18_on():
    q, k = R.standard_normal((1, 2, 4, 8)).astype(np.float32), R.standard_normal((1, 2, 6, 8)).astype(np.float32)
    mask = R.random((4, 6)) > 0.4
    mask[2] = False  # a fully masked row gives zeros
    made = model(
        lambda op, q, k, m: op.Attention(q, k, k, m, scale=0.3), ("q", FLOAT, [1, 2, 4, 8]), ("k", FLOAT, [1, 2, 6, 8]),
        ("m", ir.DataType.BOOL, [4, 6]),
    )  # fmt: skip
    for target in ("iOS17", "iOS18"):
        artifact, max_error = artifact_and_error(made, {"q": q, "k": k, "m": mask}, minimum_deployment_target=target)
        assert ("scaled_dot_product_attention" in operators(artifact)) == (target == "iOS18") and max_error < TOLERANCE


def test_neural_network(tmp_path):
    artifact, max_error = artifact_and_error(classifier(1, 3, 16, 16), {"x": IMAGE}, convert_to="neuralnetwork")
    assert artifact.model.get_spec().WhichOneof("Type") == "neuralNetwork" and max_error < TOLERANCE
    assert backend.save(artifact, tmp_path / "net.mlpackage") == [tmp_path / "net.mlmodel"]


def test_metadata_overrides_the_source():
    made = classifier(1, 3, 16, 16)
    made.metadata_props["author"] = "somebody"
    made.graph.inputs[0].doc_string = "a picture"
    artifact = backend.from_hub(made, metadata=["author=Jane", "task=demo"])
    assert artifact.model.author == "Jane" and artifact.model.user_defined_metadata["task"] == "demo"
    artifact = backend.from_hub(made, metadata={"author": "Jane", "task": "a=b"})
    assert artifact.model.author == "Jane" and artifact.model.user_defined_metadata["task"] == "a=b"
    assert artifact.model.input_description["x"] == "a picture"


def test_explain():
    lines = backend.explain(classifier("N", 3, 16, 16), compute_precision="fp16")
    lines_by_op = {line.op: line for line in lines}
    assert lines_by_op["Conv"].how == "native" and lines_by_op["Conv"].mil == ("conv",) and lines_by_op["Conv"].dtype == "fp16"
    assert lines_by_op["Conv"].units == "GPU, CPU"  # its batch size is dynamic
    (fixed,) = [line for line in backend.explain(classifier(1, 3, 16, 16), compute_precision="fp16") if line.op == "Conv"]
    assert fixed.units == "Neural Engine, GPU, CPU"

    def undecoded(op, x):
        return op.Cast(op.ImageDecoder(op.Cast(x, to=ir.DataType.UINT8)), to=FLOAT)

    lines = backend.explain(model(undecoded, ("x", FLOAT, [9])))
    assert [(line.op, line.how) for line in lines][-2:] == [("Cast", "skipped"), ("ImageDecoder", "unsupported")]
    assert "ImageDecoder" in backend.table(lines)


def test_explain_with_unsupported_inputs():
    """Readers of empty and string inputs are skipped; those of an input of too high a rank are explained."""
    made = model(
        lambda op, x, s, e, h: (op.Relu(x), op.Identity(s), op.Neg(e), op.Sigmoid(h)), ("x", FLOAT, [2]),
        ("s", ir.DataType.STRING, [1]), ("e", FLOAT, [0, 2]), ("h", FLOAT, [1] * 6), names=tuple("abcd"),
    )  # fmt: skip
    lines_by_op = sorted((line.op, line.how) for line in backend.explain(made))
    assert lines_by_op[:4] == [("Identity", "skipped"), ("Neg", "skipped"), ("Relu", "native"), ("Sigmoid", "native")]
    assert lines_by_op[4:] == [("input", "unsupported")] * 3


def test_declared_options():
    found = plugin_options.options(backend)
    assert found["compute_precision"].choices == ("fp32", "fp16", "mixed") and found["image"].many
    with pytest.raises(UsageError, match="has no option 'colour'; its options are minimum_deployment_target"):
        onnxbridge.convert(classifier(1, 3, 16, 16), "coreml", colour="red")
    with pytest.raises(UsageError, match="compute_precision='int8' is not one of fp32, fp16, mixed"):
        onnxbridge.convert(classifier(1, 3, 16, 16), "coreml", compute_precision="int8")

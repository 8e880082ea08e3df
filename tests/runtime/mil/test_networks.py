"""neuralNetwork models: networks that coremltools writes for a program match the program."""

import numpy as np
import pytest
import torch
from torch import nn

from onnxbridge.errors import ConversionError
from onnxbridge.runtime.mil import Interpreter
from tests.runtime.mil.build import assert_hub_matches, ct, mb, program

from coremltools.models import datatypes  # isort: skip
from coremltools.models.neural_network import NeuralNetworkBuilder  # isort: skip
from coremltools.models.neural_network.utils import make_image_input  # isort: skip

rng = np.random.default_rng(11)


def draw(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def assert_network_matches_program(build, **inputs):
    """Check that the network that coremltools writes for a program matches it, in the interpreter and in the hub."""
    built = program(build, ct.target.iOS14, **inputs)
    want = Interpreter(built).run(inputs)
    made = ct.convert(built, source="milinternal", convert_to="neuralnetwork", minimum_deployment_target=ct.target.iOS14)
    found = Interpreter(made.get_spec()).run(inputs)
    for a, b in zip(want.values(), found.values(), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-4)
    assert_hub_matches(made.get_spec(), inputs, found)


X, W = draw(2, 3, 8, 8), draw(4, 3, 3, 3)
IMAGES = {
    "conv": lambda x: mb.conv(x=x, weight=W, bias=W[:, 0, 0, 0], strides=[2, 1], pad_type="custom", pad=[1, 0, 2, 1]),
    "conv_same": lambda x: mb.conv(x=x, weight=W, strides=[2, 2], pad_type="same"),
    "conv_transpose": lambda x: mb.conv_transpose(x=x, weight=draw(3, 2, 3, 3), strides=[2, 2]),
    "max_pool": lambda x: mb.max_pool(x=x, kernel_sizes=[3, 2], strides=[2, 2], pad_type="custom", pad=[1, 1, 0, 0]),
    "avg_pool": lambda x: mb.avg_pool(
        x=x, kernel_sizes=[2, 2], strides=[2, 2], pad_type="same", exclude_padding_from_average=True
    ),
    "batch_norm": lambda x: mb.batch_norm(x=x, mean=W[0, :, 0, 0], variance=np.abs(W[0, :, 1, 1]) + 1, gamma=W[1, :, 0, 0]),
    "instance_norm": lambda x: mb.instance_norm(x=x, gamma=W[0, :, 0, 0], beta=W[0, :, 1, 0]),
    "layer_norm": lambda x: mb.layer_norm(x=x, axes=[-1], gamma=draw(8), beta=draw(8)),
    "local_response_norm": lambda x: mb.local_response_norm(x=x, size=3, alpha=0.1),
    "l2_norm": lambda x: mb.l2_norm(x=x),
    "prelu": lambda x: mb.prelu(x=x, alpha=W[0, :, 0, 0]),
    "activations": lambda x: mb.gelu(x=mb.elu(x=mb.sigmoid_hard(x=x, alpha=0.3, beta=0.1), alpha=0.7)),
    "softmax": lambda x: mb.softmax(x=mb.softplus(x=x), axis=1),
    "linear": lambda x: mb.linear(x=mb.reshape(x=x, shape=[6, 64]), weight=draw(5, 64), bias=draw(5)),
    "matmul": lambda x: mb.matmul(x=x, y=draw(8, 5)),
    "reductions": lambda x: mb.concat(
        values=[mb.reduce_log_sum_exp(x=x, axes=[3]), mb.reduce_max(x=x, axes=[2]), mb.reduce_l2_norm(x=x, axes=[-1])], axis=1
    ),
    "argmax": lambda x: mb.cast(x=mb.reduce_argmax(x=x, axis=2, keep_dims=True), dtype="fp32"),
    "topk": lambda x: mb.topk(x=x, k=3, axis=1, ascending=True)[0],
    "slice": lambda x: mb.slice_by_index(
        x=x, begin=[0, 2, 7, 1], end=[1, 3, 0, 8], stride=[1, 1, -2, 3], squeeze_mask=[False, True, False, False]
    ),
    "split": lambda x: mb.split(x=x, split_sizes=[1, 5, 2], axis=3),
    "pad": lambda x: mb.pad(x=x, pad=[1, 2, 3, 1], mode="reflect"),
    "depth_to_space": lambda x: mb.space_to_depth(x=x, block_size=2),
    "upsample": lambda x: mb.upsample_bilinear(x=x, scale_factor_height=2, scale_factor_width=3, align_corners=False),
    "resize": lambda x: mb.resize_bilinear(x=x, target_size_height=5, target_size_width=11, sampling_mode="OFFSET_CORNERS"),
    "gather": lambda x: mb.gather(x=x, indices=np.array([1, 0, 1], np.int32), axis=1),
    "band_part": lambda x: mb.band_part(x=x, lower=1, upper=2),
    "comparison": lambda x: mb.select(cond=mb.greater(x=x, y=0.3), a=x, b=mb.square(x=x)),
    "cumsum": lambda x: mb.cumsum(x=x, axis=2, exclusive=True, reverse=True),
    "tile": lambda x: mb.tile(x=mb.transpose(x=x, perm=[0, 2, 3, 1]), reps=[1, 2, 1, 3]),
    "cond": lambda x: mb.cond(
        pred=mb.greater(x=mb.reduce_sum(x=x, axes=[0, 1, 2, 3]), y=0.0),
        _true_fn=lambda: mb.mul(x=x, y=2.0), _false_fn=lambda: mb.sub(x=x, y=1.0),
    ),
    "while_loop": lambda x: mb.while_loop(
        _cond=lambda n, a: mb.less(x=n, y=4.0), _body=lambda n, a: (mb.add(x=n, y=1.0), mb.mul(x=a, y=n)),
        loop_vars=(np.float32(1), x),
    )[1],
}  # fmt: skip


@pytest.mark.parametrize("case", IMAGES)
def test_network_layers_match_the_program(case):
    assert_network_matches_program(IMAGES[case], x=X)


RECURRENT = {
    "lstm": lambda x, h, c: mb.lstm(x=x, initial_h=h, initial_c=c, weight_ih=draw(8, 3), weight_hh=draw(8, 2), bias=draw(8)),
    "reverse": lambda x, h, c: mb.lstm(
        x=x, initial_h=h, initial_c=c, weight_ih=draw(8, 3), weight_hh=draw(8, 2), direction="reverse", output_sequence=True
    ),
    "gru": lambda x, h, c: mb.gru(
        x=x, initial_h=mb.add(x=h, y=c), weight_ih=draw(6, 3), weight_hh=draw(6, 2), bias=draw(6), output_sequence=True
    ),
    "rnn": lambda x, h, c: mb.rnn(
        x=x, initial_h=mb.add(x=h, y=c), weight_ih=draw(2, 3), weight_hh=draw(2, 2), bias=draw(2), output_sequence=True
    ),
}


@pytest.mark.parametrize("case", RECURRENT)
def test_recurrent_network_layers_match_the_program(case):
    assert_network_matches_program(RECURRENT[case], x=draw(5, 1, 3), h=draw(1, 2), c=draw(1, 2))


def test_old_network_with_an_image_and_classes():
    """Blobs have the axes sequence, channels, height and width; the image is preprocessed."""
    conv, dense = nn.Conv2d(3, 4, 3, 2, 1), nn.Linear(4 * 4 * 4, 3)
    builder = NeuralNetworkBuilder([("image", datatypes.Array(3, 8, 8))], [("probabilities", None)], mode="classifier")
    w, b = conv.weight.detach().numpy(), conv.bias.detach().numpy()
    builder.add_convolution(
        "conv", 3, 4, 3, 3, 2, 2, "valid", 1, w.transpose(2, 3, 1, 0), b, True, input_name="image", output_name="a",
        padding_top=1, padding_bottom=1, padding_left=1, padding_right=1,
    )  # fmt: skip
    builder.add_activation("relu", "RELU", "a", "b")
    builder.add_flatten("flat", 0, "b", "c")
    w, b = dense.weight.detach().numpy(), dense.bias.detach().numpy()
    builder.add_inner_product("dense", w, b, 64, 3, True, "c", "d")
    builder.add_softmax("softmax", "d", "probabilities")
    builder.set_class_labels(["ant", "bee", "cat"], predicted_feature_name="label")
    builder.set_pre_processing_parameters(
        image_input_names=["image"], is_bgr=True, red_bias=0.1, green_bias=0.2, blue_bias=0.3, image_scale=1 / 128
    )
    pixels = rng.integers(0, 256, (1, 3, 8, 8)).astype(np.float32)
    ready = torch.from_numpy(pixels / 128 + np.array([0.3, 0.2, 0.1], np.float32).reshape(1, 3, 1, 1))
    want = torch.softmax(dense(torch.flatten(torch.relu(conv(ready)), 1)), 1)[0].detach().numpy()
    found = Interpreter(builder.spec).run({"image": pixels})
    assert found["label"] == ["ant", "bee", "cat"][int(want.argmax())]
    table = next(v for v in found.values() if isinstance(v, dict))
    np.testing.assert_allclose(list(table.values()), want, rtol=1e-5)


def test_all_unsupported_layers_are_reported():
    builder = NeuralNetworkBuilder([("x", datatypes.Array(3, 8, 8))], [("y", None)])
    builder.add_l2_normalize("first", "x", "a")
    for name in ("first", "second"):
        layer = builder.spec.neuralNetwork.layers.add(name=name, input=["x"], output=["y"])
        layer.custom.className = f"{name}Thing"
    with pytest.raises(ConversionError) as caught:
        Interpreter(builder.spec)
    assert {p.op for p in caught.value.problems} == {"custom.firstThing", "custom.secondThing"}


def test_pipeline_runs_its_models_in_sequence():
    specs = []
    for source, target, layer in (("x", "between", "TANH"), ("between", "y", "RELU")):
        builder = NeuralNetworkBuilder([(source, datatypes.Array(3, 4, 4))], [(target, datatypes.Array(3, 4, 4))])
        builder.add_activation(layer.lower(), layer, source, target)
        specs += [builder.spec]
    pipeline = ct.models.pipeline.Pipeline([("x", datatypes.Array(3, 4, 4))], [("y", datatypes.Array(3, 4, 4))])
    for spec in specs:
        pipeline.add_model(spec)
    x = draw(3, 4, 4)
    found = Interpreter(pipeline.spec).run({"x": x})
    np.testing.assert_allclose(found["y"], np.maximum(np.tanh(x), 0), rtol=1e-6)
    assert_hub_matches(pipeline.spec, {"x": x}, found)


@pytest.mark.parametrize(("layout", "shape"), [("NCHW", (3, 2, 4)), ("NHWC", (2, 4, 3))])
def test_output_has_the_rank_of_its_description(layout, shape):
    builder = NeuralNetworkBuilder(
        [("data", datatypes.Array(*shape))], [("out", datatypes.Array(*shape))], disable_rank5_shape_mapping=True
    )
    builder.add_activation("linear", "LINEAR", "data", "out")
    made = make_image_input(
        ct.models.MLModel(builder.spec, skip_model_load=True), "data", red_bias=-5, green_bias=-6, blue_bias=-2.5, scale=10.0,
        image_format=layout,
    ).get_spec()  # fmt: skip
    pixels = rng.integers(0, 256, (1, 3, 2, 4)).astype(np.float32)
    want = pixels[0] * 10 + np.array([-5, -6, -2.5], np.float32).reshape(3, 1, 1)
    found = Interpreter(made).run({"data": pixels})
    np.testing.assert_array_equal(found["out"], want if layout == "NCHW" else want.transpose(1, 2, 0))
    assert_hub_matches(made, {"data": pixels}, found)

"""Keras layers are converted to their operators: biases in convolutions, whole batch normalizations, and weights under their
names.
"""

from collections import Counter

import numpy as np
import pytest

import onnxbridge

tf = pytest.importorskip("tensorflow")
K, L = tf.keras, tf.keras.layers


def randomized(model):
    """The model with statistics and biases that differ between channels."""
    rng = np.random.default_rng(0)
    for v in model.variables:
        if v.name in ("moving_mean", "moving_variance", "bias", "gamma", "beta"):
            v.assign(rng.uniform(0.5, 1.5, v.shape))
    return model


def convert(*layers, shape):
    model = randomized(K.Sequential([K.Input(shape), *layers]))
    made = onnxbridge.convert(model, fold_batch_norm=False).model
    return Counter(n.op_type for n in made.graph.node), [t.name for t in made.graph.initializer]


def test_biases_and_norms_have_their_names():
    ops, names = convert(
        L.Conv2D(4, 3, name="c"), L.BatchNormalization(name="n"), L.ReLU(), L.Conv2DTranspose(3, 2, strides=2, name="t"),
        shape=(8, 8, 2),
    )  # fmt: skip
    assert ops == {"Conv": 1, "BatchNormalization": 1, "Relu": 1, "ConvTranspose": 1, "Transpose": 2}
    own = {"/".join(name.split("/")[-2:]) for name in names}
    assert {"c/bias", "n/gamma", "n/beta", "n/moving_mean", "n/moving_variance", "t/bias"} <= own


@pytest.mark.parametrize(
    ("layers", "shape", "expected"),
    [
        ([L.BatchNormalization(scale=False, center=False, axis=1)], (3, 5, 4), {"BatchNormalization": 1}),
        ([L.Conv1D(4, 3), L.BatchNormalization(axis=2)], (9, 3), {"BatchNormalization": 1}),
        # if all other operators have channels last, Mul and Add are cheaper than two transposes
        ([L.Dense(6), L.BatchNormalization(), L.ReLU(), L.Dense(2)], (5, 4), {"Mul": 1, "Add": 3}),
        ([L.Dense(6), L.BatchNormalization()], (4,), {"BatchNormalization": 1}),
    ],
)
def test_norms(layers, shape, expected):
    ops, _ = convert(*layers, shape=shape)
    assert expected.items() <= ops.items() and ("BatchNormalization" in ops) == ("BatchNormalization" in expected), ops


def test_a_bias_is_not_fused_into_a_convolution_with_two_users():
    i = K.Input((6, 6, 2))
    conv = L.Conv2D(3, 3, use_bias=False)(i)
    model = K.Model(i, [conv, conv + np.arange(3, dtype=np.float32)])
    assert Counter(n.op_type for n in onnxbridge.convert(model).model.graph.node)["Add"] == 1


def test_a_pytorch_module_has_the_layers():
    torch = pytest.importorskip("torch")
    model = randomized(K.Sequential([K.Input((8, 8, 2)), L.Conv2D(4, 3), L.BatchNormalization(), L.ReLU()]))
    module = onnxbridge.convert(model, to="pytorch", fold_batch_norm=False).model
    (conv,) = (m for m in module.modules() if isinstance(m, torch.nn.Conv2d))
    (norm,) = (m for m in module.modules() if isinstance(m, torch.nn.BatchNorm2d))
    np.testing.assert_array_equal(conv.bias.detach(), model.layers[0].bias.numpy())
    np.testing.assert_array_equal(norm.running_var, model.layers[1].moving_variance.numpy())

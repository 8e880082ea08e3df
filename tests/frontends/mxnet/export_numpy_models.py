"""Runs in the interpreter that has MXNet: exports layers written with `mx.np` to the folder in its first argument.

Each layer is exported with its inputs, and with what MXNet computes for them.
"""

import sys

import mxnet as mx
import numpy as onp
from mxnet import gluon
from mxnet.gluon import nn, rnn

mx.npx.set_np()
random = onp.random.RandomState(5)
LAYERS = {}


def floats(*shape):
    return random.uniform(-1, 1, shape).astype("float32")


def positive(*shape):
    return random.uniform(0.2, 2, shape).astype("float32")


def below(limit, *shape):
    return random.randint(0, limit, shape).astype("int32")


def layer(*inputs, **children):
    """Declare a function `(np, npx, children, *inputs)` as a layer of that name."""

    def declare(function):
        LAYERS[function.__name__] = function, inputs, children
        return function

    return declare


class Layer(gluon.HybridBlock):
    def __init__(self, function, children):
        super().__init__()
        self.function = function
        with self.name_scope():
            for name, make in children.items():
                child = make()
                if isinstance(child, gluon.Parameter):
                    child = self.params.get(name, shape=child.shape, init=child.init)
                setattr(self, name, child)

    def hybrid_forward(self, F, *inputs, **parameters):
        for name, value in parameters.items():
            object.__setattr__(self, f"_{name}", value)
        return self.function(F.np, F.npx, self, *inputs)


def parameter(*shape):
    return lambda: gluon.Parameter("any", shape=shape, init=mx.init.Uniform(1))


# Layers of Gluon


@layer(floats(2, 5), first=lambda: nn.Dense(8, activation="relu"), second=lambda: nn.Dense(3))
def perceptron(np, npx, net, x):
    return net.second(net.first(x))


@layer(
    floats(2, 3, 8, 8), conv=lambda: nn.Conv2D(6, 3, padding=1), norm=lambda: nn.BatchNorm(), pool=lambda: nn.MaxPool2D(2),
    out=lambda: nn.Dense(4),
)  # fmt: skip
def convolution(np, npx, net, x):
    return net.out(net.pool(npx.relu(net.norm(net.conv(x)))))


@layer(floats(2, 4, 6, 6), one=lambda: nn.Conv2D(4, 3, padding=1, groups=2), two=lambda: nn.Conv2D(4, 1, use_bias=False))
def residual(np, npx, net, x):
    return npx.relu(net.two(npx.relu(net.one(x))) + x)


@layer(floats(1, 4, 5, 5), up=lambda: nn.Conv2DTranspose(3, 3, strides=2, padding=1, output_padding=1))
def transposed_convolution(np, npx, net, x):
    return net.up(x)


@layer(floats(2, 4, 9), conv=lambda: nn.Conv1D(5, 3, strides=2), pool=lambda: nn.AvgPool1D(2))
def convolution_of_sequences(np, npx, net, x):
    return net.pool(net.conv(x))


@layer(floats(1, 2, 4, 5, 5), conv=lambda: nn.Conv3D(3, 2), pool=lambda: nn.GlobalAvgPool3D())
def convolution_of_volumes(np, npx, net, x):
    return npx.batch_flatten(net.pool(net.conv(x)))


@layer(floats(3, 4, 6), norm=lambda: nn.LayerNorm())
def layer_norm(np, npx, net, x):
    return net.norm(x)


@layer(below(9, 2, 5), table=lambda: nn.Embedding(9, 4), out=lambda: nn.Dense(3, flatten=False))
def embedding(np, npx, net, x):
    return net.out(net.table(x))


@layer(floats(5, 2, 3), lstm=lambda: rnn.LSTM(4, num_layers=2, bidirectional=True))
def lstm(np, npx, net, x):
    outputs, states = net.lstm(x, [np.zeros((4, 2, 4)), np.zeros((4, 2, 4))])
    return outputs, states[0], states[1]


@layer(floats(2, 5, 3), gru=lambda: rnn.GRU(4, layout="NTC"))
def gru(np, npx, net, x):
    return net.gru(x, np.zeros((1, 2, 4)))[0]


@layer(floats(5, 2, 3), recurrent=lambda: rnn.RNN(4, activation="tanh"))
def recurrent(np, npx, net, x):
    return net.recurrent(x, np.zeros((1, 2, 4)))[0]


@layer(floats(2, 6), leaky=lambda: nn.LeakyReLU(0.1), elu=lambda: nn.ELU(0.7), selu=lambda: nn.SELU(), gelu=lambda: nn.GELU(),
       swish=lambda: nn.Swish(), prelu=lambda: nn.PReLU())  # fmt: skip
def activations(np, npx, net, x):
    return np.concatenate([net.leaky(x), net.elu(x), net.selu(x), net.gelu(x), net.swish(x), net.prelu(x)], axis=1)


@layer(floats(2, 6), drop=lambda: nn.Dropout(0.5))
def dropout(np, npx, net, x):
    return net.drop(x) * 2


@layer(floats(2, 3, 4), flat=lambda: nn.Flatten())
def flatten(np, npx, net, x):
    return net.flat(x)


@layer(floats(2, 5), weight=parameter(4, 5), bias=parameter(4))
def fully_connected(np, npx, net, x):
    return npx.fully_connected(x, net._weight, net._bias, num_hidden=4)


@layer(floats(2, 3, 4), weight=parameter(4, 6), bias=parameter(6))
def linear_by_matmul(np, npx, net, x):
    return np.matmul(x, net._weight) + net._bias


@layer(floats(2, 5), weight=parameter(5, 3))
def linear_by_dot(np, npx, net, x):
    return np.tanh(np.dot(x, net._weight))


# Attention and what transformers are made of


@layer(floats(2, 4, 6), floats(2, 5, 6), floats(2, 5, 3))
def attention(np, npx, net, query, key, value):
    scores = npx.batch_dot(query, key, transpose_b=True) / 6**0.5
    return npx.batch_dot(npx.softmax(scores, axis=-1), value)


@layer(floats(2, 5, 8), query=lambda: nn.Dense(8, flatten=False), key=lambda: nn.Dense(8, flatten=False),
       value=lambda: nn.Dense(8, flatten=False))  # fmt: skip
def attention_of_heads(np, npx, net, x):
    def heads(y):
        return np.transpose(npx.reshape(y, (-2, -2, 2, -1)), (0, 2, 1, 3))

    scores = np.matmul(heads(net.query(x)), np.swapaxes(heads(net.key(x)), 2, 3)) / 2
    mixed = np.matmul(npx.softmax(scores), heads(net.value(x)))
    return npx.reshape(np.transpose(mixed, (0, 2, 1, 3)), (-2, -2, -1))


@layer(floats(2, 4, 5), onp.array([2, 4], "float32"))
def masked_scores(np, npx, net, scores, length):
    kept = np.swapaxes(npx.sequence_mask(np.swapaxes(scores, 0, 1), length, use_sequence_length=True, value=-1e9), 0, 1)
    return npx.softmax(kept, axis=1)


@layer(floats(2, 5), onp.array([2, 5], "int32"))
def softmax_of_lengths(np, npx, net, x, length):
    return npx.softmax(x, length, axis=-1, use_length=True)


@layer(floats(1, 6, 4))
def causal_mask(np, npx, net, x):
    return x[:, :, :1] * np.tril(np.ones((6, 6)), k=0)


@layer(floats(2, 6, 8))
def positions(np, npx, net, x):
    steps = np.expand_dims(npx.arange_like(x, axis=1), 1)
    rates = np.power(10000.0, -np.arange(0, 8, 2) / 8.0)
    return x + np.concatenate([np.sin(steps * rates), np.cos(steps * rates)], axis=-1)


@layer(floats(2, 3, 8))
def rotary_positions(np, npx, net, x):
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * 0.6 - second * 0.8, second * 0.6 + first * 0.8], axis=-1)


@layer(floats(3, 8), scale=parameter(8))
def root_mean_square_norm(np, npx, net, x):
    return x / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + 1e-6) * net._scale


@layer(floats(3, 8))
def standardized(np, npx, net, x):
    return (x - np.mean(x, axis=1, keepdims=True)) / (np.std(x, axis=1, keepdims=True) + 1e-5)


@layer(floats(2, 8))
def gated_linear_unit(np, npx, net, x):
    value, gate = np.split(x, 2, axis=1)
    return value * npx.sigmoid(gate)


@layer(floats(2, 8))
def gelu_written_out(np, npx, net, x):
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))


@layer(floats(2, 8))
def gelu_by_erf(np, npx, net, x):
    return x * (1 + npx.erf(x / 2**0.5)) / 2


@layer(floats(2, 6))
def mish(np, npx, net, x):
    return x * np.tanh(np.log1p(np.exp(x)))


# Losses and scores


@layer(floats(4, 5), below(5, 4))
def cross_entropy(np, npx, net, logits, label):
    return -npx.pick(npx.log_softmax(logits, axis=-1), label, axis=-1)


@layer(floats(4, 3), floats(4, 3))
def smooth_l1(np, npx, net, x, y):
    return np.sum(npx.smooth_l1(x - y, scalar=1.0), axis=1)


@layer(floats(4, 3), floats(4, 3))
def cosine_similarity(np, npx, net, x, y):
    return np.sum(x * y, axis=1) / (np.sqrt(np.sum(x**2, axis=1)) * np.sqrt(np.sum(y**2, axis=1)) + 1e-8)


@layer(floats(4, 3))
def unit_length(np, npx, net, x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@layer(floats(3, 4), floats(5, 4))
def pairwise_distances(np, npx, net, x, y):
    return np.sqrt(np.sum((np.expand_dims(x, 1) - np.expand_dims(y, 0)) ** 2, axis=2))


@layer(floats(3, 7))
def best_scores(np, npx, net, x):
    values, indices = npx.topk(x, k=3, ret_typ="both", axis=1)
    return values, indices


@layer(floats(3, 7))
def chosen_classes(np, npx, net, x):
    return np.argmax(x, axis=1), np.argmin(x, axis=1), np.argsort(x, axis=1), np.sort(x, axis=1)


@layer(floats(3, 7))
def log_sum_exp(np, npx, net, x):
    most = np.max(x, axis=1, keepdims=True)
    return np.squeeze(most + np.log(np.sum(np.exp(x - most), axis=1, keepdims=True)), axis=1)


@layer(below(4, 3), floats(4, 2))
def one_hot_table(np, npx, net, ids, table):
    return np.dot(npx.one_hot(ids, 4), table)


# Boxes


@layer(floats(5, 4))
def box_corners(np, npx, net, x):
    x0, y0, w, h = np.split(x, 4, axis=-1)
    return np.clip(np.concatenate([x0 - w / 2, y0 - h / 2, x0 + w / 2, y0 + h / 2], axis=-1), -1, 1)


@layer(positive(3, 4), positive(2, 4))
def box_overlaps(np, npx, net, a, b):
    low = np.maximum(np.expand_dims(a[:, :2], 1), b[:, :2])
    high = np.minimum(np.expand_dims(a[:, 2:], 1), b[:, 2:])
    both = np.prod(np.clip(high - low, 0, 9), axis=2)
    areas = np.prod(a[:, 2:] - a[:, :2], axis=1)
    return both, areas


@layer(floats(1, 3, 4, 5))
def anchors(np, npx, net, x):
    return npx.multibox_prior(x, sizes=(0.3, 0.6), ratios=(1, 2))


@layer(floats(1, 2, 3, 3))
def grid(np, npx, net, x):
    return np.stack([x[:, 0], x[:, 1] * 2], axis=-1), np.indices((3, 3))


# Shapes


@layer(floats(2, 3, 4))
def reshapes(np, npx, net, x):
    return np.reshape(x, (6, 4)), np.reshape(x, (-1,)), npx.reshape(x, (-2, -1)), np.ravel(x), x.reshape(2, -1)


@layer(floats(2, 3, 4))
def transposes(np, npx, net, x):
    return x.T, np.transpose(x), np.transpose(x, (1, 0, 2)), np.moveaxis(x, 0, -1), np.swapaxes(x, 0, 2)


@layer(floats(4, 6))
def slices(np, npx, net, x):
    return x[1:3], x[:, -1], x[::2, 1:5:2], x[0], x[-1, 2:], np.expand_dims(x[:, 3], 1)


@layer(floats(4, 6))
def reversed_slices(np, npx, net, x):
    return x[::-1], np.flip(x, 1), np.fliplr(x), np.flipud(x), np.rot90(x)


@layer(floats(2, 3), floats(2, 3))
def joined(np, npx, net, x, y):
    return (np.concatenate([x, y], axis=0), np.stack([x, y], axis=1), np.hstack([x, y]), np.vstack([x, y]),
            np.column_stack([x, y]), np.append(x, y, axis=1))  # fmt: skip


@layer(floats(2, 3, 2), floats(2, 3, 2))
def joined_in_depth(np, npx, net, x, y):
    return np.dstack([x, y])


@layer(floats(6, 4))
def pieces(np, npx, net, x):
    first, second, third = np.split(x, [1, 4], axis=0)
    left, right = np.hsplit(x, 2)
    return third, first, second, right, left, np.array_split(x, 3)[1]


@layer(floats(2, 3, 4))
def padded(np, npx, net, x):
    return np.pad(x, ((0, 0), (1, 2), (0, 1))), np.pad(x, ((0, 0), (1, 1), (2, 1)), mode="edge")


@layer(floats(2, 3))
def repeated(np, npx, net, x):
    return np.repeat(x, 2, axis=1), np.tile(x, (2, 2)), np.broadcast_to(x, (4, 2, 3)), np.roll(x, 1, axis=1)


@layer(floats(3, 4))
def diagonals(np, npx, net, x):
    return np.diag(x[:, :3]), np.trace(x), np.diagonal(x, offset=1), np.tril(x, k=-1), np.eye(3, 4) * x


@layer(floats(5, 3), below(5, 4))
def gathered(np, npx, net, x, ids):
    return np.take(x, ids, axis=0), np.take(x, ids + 3, axis=0, mode="wrap")


@layer(floats(3, 4, 2), below(3, 2, 5))
def gathered_by_tuples(np, npx, net, x, ids):
    return npx.gather_nd(x, ids)


@layer(floats(2, 3))
def constants(np, npx, net, x):
    return (x + np.ones((2, 3)), x * np.full((3,), 2.5), x + np.zeros_like(x), np.ones_like(x), np.full_like(x, 3),
            x + np.linspace(0, 1, 3), np.arange(3) + x)  # fmt: skip


@layer(floats(2, 3))
def sizes(np, npx, net, x):
    return npx.shape_array(x), npx.reshape_like(np.ones((6,)), x)


# Arithmetic and reductions


@layer(positive(3, 4))
def logarithms(np, npx, net, x):
    return np.log(x), np.log2(x), np.log10(x), np.log1p(x), np.expm1(x), np.sqrt(x), np.cbrt(x), np.reciprocal(x)


@layer(floats(3, 4))
def angles(np, npx, net, x):
    return np.sin(x), np.arcsin(x), np.arctan2(x, np.abs(x) + 0.5), np.sinh(x), np.arctanh(x / 2), np.degrees(x), np.hypot(x, x)


@layer(floats(3, 4) * 5)
def rounded(np, npx, net, x):
    return np.floor(x), np.ceil(x), np.trunc(x), np.rint(x), np.around(x, 1), np.fix(x), np.sign(x)


@layer(floats(3, 4), positive(4))
def scalars_on_both_sides(np, npx, net, x, y):
    return 1 - x, 2 / y, y**2, 2**x, x % 0.3, np.maximum(x, 0.1), np.minimum(0.1, x), -x, x - 1, np.mod(3.0, y)


@layer(floats(3, 4), floats(3, 4))
def comparisons(np, npx, net, x, y):
    return np.where(x > y, x, y), np.where(x > 0, x, 0.5), (x >= y) * 2.0, np.logical_not(x < 0), np.equal(x, y)


@layer(floats(2, 3, 4))
def sums(np, npx, net, x):
    return (np.sum(x), np.sum(x, axis=(0, 2)), np.mean(x, axis=-1), np.prod(x, axis=1), np.max(x, axis=0), np.min(x),
            np.var(x, axis=1), np.std(x), np.cumsum(x, axis=1), np.average(x, axis=2))  # fmt: skip


@layer(floats(3, 4), positive(3, 4))
def weighted_average(np, npx, net, x, weights):
    return np.average(x, axis=1, weights=weights)


@layer(floats(3, 4))
def truths(np, npx, net, x):
    return np.any(x > 0.9, axis=1), np.all(x > -2), np.isnan(x), np.isfinite(x), np.nan_to_num(x)


@layer(below(9, 3, 4), below(5, 3, 4))
def integers(np, npx, net, x, y):
    return x + y, x * 2, x - y, np.bitwise_and(x, y), np.bitwise_or(x, y), np.maximum(x, y), x / (y + 1)


@layer(floats(2, 3, 4), floats(4, 3))
def products(np, npx, net, x, y):
    return np.tensordot(x, y, axes=1), np.dot(x, y), np.inner(x[0], y.T), np.outer(x[0, 0], y[0]), np.vdot(x[0], y.T)


@layer(floats(2, 3, 4), floats(2, 4, 5))
def einsum(np, npx, net, x, y):
    return np.einsum("bij,bjk->bik", x, y), np.einsum("bij->bj", x), np.einsum("bij,bij->b", x, x)


@layer(floats(2, 3, 3))
def linear_algebra(np, npx, net, x):
    spread = np.matmul(x, np.swapaxes(x, 1, 2)) + np.eye(3)
    return np.linalg.inv(spread), np.linalg.cholesky(spread), np.linalg.det(spread), np.linalg.solve(spread, x)


@layer(floats(3, 5))
def differences(np, npx, net, x):
    return np.diff(x, axis=1), np.diff(x, n=2, axis=0), np.ediff1d(x[0])


@layer(floats(3, 4))
def types(np, npx, net, x):
    return x.astype("float16"), (x * 9).astype("int32"), (x > 0).astype("float32"), x.astype("float64"), (x * 9).astype("int8")


@layer(floats(2, 3, 6, 6))
def pooled(np, npx, net, x):
    return (npx.pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max"), npx.pooling(x, pool_type="avg", global_pool=True),
            npx.pooling(x, kernel=(3, 3), pool_type="avg", pad=(1, 1), count_include_pad=False))  # fmt: skip


@layer(positive(3, 4))
def gamma_functions(np, npx, net, x):
    return npx.gamma(x), npx.gammaln(x), npx.erfinv(x / 3)


def main():
    mx.random.seed(3)
    for name, (function, inputs, children) in LAYERS.items():
        net = Layer(function, children)
        net.initialize(mx.init.Xavier())
        net.hybridize()
        arrays = [mx.np.array(x, dtype=x.dtype) for x in inputs]
        outputs = net(*arrays)
        outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        net.export(f"{sys.argv[1]}/{name}", epoch=0)
        arrays = {f"data{i}" if len(inputs) > 1 else "data": x for i, x in enumerate(inputs)}
        arrays.update((f"output{i}", y.asnumpy()) for i, y in enumerate(outputs))
        onp.savez(f"{sys.argv[1]}/{name}.npz", **arrays)


main()

"""tf.function, modules, SavedModels and control flow, and what is rejected."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from onnxbridge.errors import ConversionError, UnsafeFileError, UsageError
from onnxbridge.frontends.tensorflow import frontend
from onnxbridge.frontends.tensorflow.graph.functions import all_operators
from onnxbridge.frontends.tensorflow.saved_model import operator_checks
from tests.frontends.tensorflow.compare import agree, hub_of, kinds, run

F32, I32 = tf.float32, tf.int32
R = tf.raw_ops


def spec(*shape, dtype=F32, name=None):
    return tf.TensorSpec(shape, dtype, name=name)


class Net(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable(np.arange(12, dtype=np.float32).reshape(4, 3), name="w")
        self.table = tf.constant(np.arange(400, dtype=np.float32))

    @tf.function(jit_compile=True)
    def inner(self, x):
        return x @ self.w

    @tf.function(input_signature=[spec(None, 4, name="x")])
    def __call__(self, x):
        return {"y": self.inner(x) + 1.0, "z": tf.gather(self.table, [1, 399])}


def test_module_with_called_functions():
    hub = agree(Net())
    assert [v.name for v in hub.graph.inputs] == ["x"]
    assert sorted(v.name for v in hub.graph.outputs) == ["y", "z"]
    assert "w" in hub.graph.initializers
    assert not [k for k in kinds(hub) if "Call" in k]


def test_saved_model(tmp_path):
    net = Net()
    tf.saved_model.save(net, str(tmp_path / "net"), signatures={"serving_default": net.__call__, "other": net.__call__})
    assert frontend.accepts(tmp_path / "net")
    for source in (tmp_path / "net", (str(tmp_path / "net"), "other")):
        hub = agree(source)
        assert [v.name for v in hub.graph.inputs] == ["x"]
        assert "w" in hub.graph.initializers
    fixed = hub_of(tmp_path / "net", {"x": ((2, 4), "float32")})
    assert [list(v.shape) for v in fixed.graph.outputs if v.name == "y"] == [[2, 3]]
    with pytest.raises(UsageError, match="no signature 'nope'"):
        hub_of((str(tmp_path / "net"), "nope"))


def test_a_function_without_a_signature():
    @tf.function
    def f(a, b):
        return tf.concat([a, tf.cast(b, F32)], 1)

    with pytest.raises(UsageError, match="inputs="):
        hub_of(f)
    hub = agree(f, (np.ones((2, 3), np.float32), np.ones((2, 1), np.int32)))
    assert [v.name for v in hub.graph.inputs] == ["a", "b"]
    hub = hub_of(f, {"a": (("N", 3), "float32"), "b": (("N", 1), "int32")})
    assert hub.graph.inputs[0].shape[0].value == "N"


CONTROL = {
    "cond": lambda x, n: tf.cond(n > 2, lambda: x * 2, lambda: tf.reduce_sum(x) + x),
    "cond without bool": lambda x, n: R.If(cond=n, input=[x], Tout=[F32], then_branch=_twice, else_branch=_thrice)[0],
    "cond of a vector": lambda x, n: R.If(cond=x[:1] * 0, input=[x], Tout=[F32], then_branch=_twice, else_branch=_thrice)[0],
    "switch": lambda x, n: tf.switch_case(n, [lambda: x, lambda: x * 2, lambda: x - 7]),
    "while": lambda x, n: tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * 1.5 + x), (0, x))[1],
    "nested": lambda x, n: tf.while_loop(
        lambda i, a: i < n, lambda i, a: (i + 1, tf.cond(i % 2 == 0, lambda: a + x, lambda: -a)), (0, x)
    )[1],
    "map": lambda x, n: tf.map_fn(lambda r: tf.reduce_sum(r) * r, x),
    "scan": lambda x, n: tf.scan(lambda a, r: a + r, x),
    "fold": lambda x, n: tf.foldr(lambda a, r: a * 0.5 + r, x),
    "array": lambda x, n: _array(x),
    "array backwards": lambda x, n: _reversed(x),
    "array read": lambda x, n: tf.TensorArray(F32, 3, element_shape=[3]).unstack(x[:3]).gather([2, 0]),
    "array grown": lambda x, n: _dynamic_size(x, n),
}


@tf.function(input_signature=[spec(4, 3)])
def _twice_f(x):
    return x * 2


@tf.function(input_signature=[spec(4, 3)])
def _thrice_f(x):
    return x * 3


_twice, _thrice = _twice_f.get_concrete_function(), _thrice_f.get_concrete_function()


def _array(x):
    items = tf.TensorArray(F32, size=4, element_shape=[3])
    for i in tf.range(4):
        items = items.write(i, x[i] * tf.cast(i, F32))
    return items.stack()


def _reversed(x):
    items = tf.TensorArray(F32, size=4, element_shape=[None])
    for i in tf.range(4):
        items = items.write(3 - i, x[i])
    return items.stack()


def _dynamic_size(x, n):
    items = tf.TensorArray(F32, size=0, dynamic_size=True, element_shape=[3])
    for i in tf.range(n):
        items = items.write(i, x[0] + tf.cast(i, F32))
    return items.stack()


@pytest.mark.parametrize("n", [0, 1, 3, 5])
@pytest.mark.parametrize("name", CONTROL)
def test_control_flow(name, n):
    if name == "array grown" and n == 0:
        n = 2
    function = tf.function(CONTROL[name]).get_concrete_function(spec(4, 3, name="x"), spec(dtype=I32, name="n"))
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    hub = hub_of(function)
    feeds = {v.name: {"x": x, "n": np.array(n, np.int32)}[v.name] for v in hub.graph.inputs}
    expected = frontend.runner(function)(feeds)
    for got, w in zip(run(hub, feeds), expected.values(), strict=True):
        np.testing.assert_allclose(got, w, rtol=1e-5, atol=1e-5)


def test_every_unknown_operator_is_listed_with_its_line():
    @tf.function
    def f(x):
        a = tf.linalg.sqrtm(x)
        b = tf.raw_ops.MatrixLogarithm(input=tf.cast(x, tf.complex64))
        c, _ = tf.linalg.eig(x)
        d = tf.nn.relu(tf.math.real(c)) + tf.random.stateless_binomial([2, 3, 3], [1, 2], 5, tf.abs(x), tf.float32)
        return a, b, d, tf.linalg.sqrtm(d)

    with pytest.raises(ConversionError) as caught:
        hub_of(f, (np.eye(3, dtype=np.float32),))
    problems = {p.op: p for p in caught.value.problems}
    assert set(problems) == {"MatrixSquareRoot", "complex::MatrixLogarithm", "complex::Eig", "StatelessRandomBinomial"}
    assert all(p.locations[0].file.endswith("test_functions.py") and p.locations[0].line > 0 for p in problems.values())


def test_unique_along_an_axis_known_only_at_run_time_is_refused():
    @tf.function(input_signature=[spec(2, 3), tf.TensorSpec([1], tf.int32)])
    def f(x, axis):
        return tf.raw_ops.UniqueV2(x=x, axis=axis)

    with pytest.raises(ConversionError, match="an axis known only when the model runs"):
        hub_of(f)


@pytest.mark.parametrize("kind", ["write", "read", "python", "print", "saver"])
def test_a_saved_model_with_unsafe_operators_is_rejected(tmp_path, kind):
    out = str(tmp_path / "out")

    def unsafe(x):
        if kind == "write":
            tf.io.write_file(out, "text")
        elif kind == "read":
            return x + tf.cast(tf.strings.length(tf.io.read_file(out)), F32)
        elif kind == "python":
            return tf.ensure_shape(tf.py_function(lambda v: v, [x], F32), [2])
        elif kind == "print":
            tf.print(x, output_stream=f"file://{out}")
        else:
            tf.raw_ops.SaveV2(prefix=out, tensor_names=["x"], shape_and_slices=[""], tensors=[x])
        return x + 1.0

    module = tf.Module()
    module.f = tf.function(unsafe, input_signature=[spec(2)])
    tf.saved_model.save(module, str(tmp_path / "net"), signatures=module.f)
    for use in (hub_of, frontend.runner):
        with pytest.raises(UnsafeFileError, match="access resources outside"):
            use(tmp_path / "net")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net"]


def test_a_saver_called_by_a_signature_is_rejected(tmp_path):
    """With the name of TensorFlow's own saver it would pass the check of the file."""

    @tf.function(input_signature=[spec(2)])
    def __inference__traced_save_1(x):
        tf.raw_ops.SaveV2(prefix=str(tmp_path / "out"), tensor_names=["x"], shape_and_slices=[""], tensors=[x])
        return x

    module = tf.Module()
    module.f = tf.function(lambda x: __inference__traced_save_1(x) + 1.0, input_signature=[spec(2)])
    concrete = module.f.get_concrete_function()
    with pytest.raises(UnsafeFileError, match="SaveV2"):
        operator_checks.check_graph(concrete.graph, "net")


def test_values_have_tensorflows_names():
    @tf.function(input_signature=[spec(2, 3, name="x")])
    def f(x):
        with tf.name_scope("block"):
            y = tf.nn.relu(x, name="act")
        return tf.nn.softmax(y, name="end")

    names = {o.name for n in hub_of(f).graph for o in n.outputs}
    assert "block/act" in names


EMPTY = np.zeros(0, np.int64)
LISTS = {
    "push and pop": lambda x: _pushed(x),
    "concat": lambda x: R.TensorListConcatV2(input_handle=_list(x), element_shape=[-1], leading_dims=EMPTY, element_dtype=F32),
    "resize up": lambda x: _stack(R.TensorListResize(input_handle=_list(x), size=6)),
    "resize down": lambda x: _stack(R.TensorListResize(input_handle=_list(x), size=2)),
    "length": lambda x: R.TensorListLength(input_handle=_list(x)),
    "gather": lambda x: R.TensorListGather(input_handle=_list(x), indices=[3, 0], element_shape=[3], element_dtype=F32),
    "scatter": lambda x: _stack(R.TensorListScatterV2(tensor=x, indices=[3, 0, 4, 1], element_shape=[3], num_elements=6)),
    "scatter open": lambda x: _stack(R.TensorListScatterV2(tensor=x, indices=[3, 0, 2, 1], element_shape=[3], num_elements=-1)),
    "scatter into": lambda x: _stack(
        R.TensorListScatterIntoExistingList(input_handle=_list(x), tensor=x[:2] + 1, indices=[2, 0])
    ),
    "set beyond": lambda x: _stack(
        R.TensorListSetItem(input_handle=_list(x), index=4, item=x[0], resize_if_index_out_of_bounds=True)
    ),
}  # fmt: skip


def _list(x):
    return R.TensorListFromTensor(tensor=x, element_shape=[3])


def _stack(items):
    return R.TensorListStack(input_handle=items, element_shape=[3], element_dtype=F32)


def _pushed(x):
    items = R.EmptyTensorList(element_shape=[-1], max_num_elements=-1, element_dtype=F32)
    for i in range(3):
        items = R.TensorListPushBack(input_handle=items, tensor=x[i])
    items, last = R.TensorListPopBack(input_handle=items, element_shape=[-1], element_dtype=F32)
    return _stack(items), last


@pytest.mark.parametrize("name", LISTS)
def test_lists(name):
    agree(tf.function(LISTS[name]).get_concrete_function(spec(4, 3, name="x")))


def test_every_list_rule_is_tested():
    """The rules that samples.py does not cover."""
    seen = set()
    for written, specs in ((LISTS, [spec(4, 3)]), (CONTROL, [spec(4, 3), spec(dtype=I32)])):
        for function in written.values():
            seen |= {op.type for op in all_operators(tf.function(function).get_concrete_function(*specs).graph)}
    assert {o for o in frontend.rules if "TensorList" in o} <= seen


@pytest.mark.parametrize("way", ["tile", "stack"])
@pytest.mark.parametrize("batch", [None, 2])
def test_upsampling_by_repeats_is_a_resize(way, batch):
    """Feature pyramids of TensorFlow's detectors write it in these ways."""
    kernel = tf.constant(np.random.default_rng(0).normal(size=(3, 3, 4, 4)).astype(np.float32))

    @tf.function(input_signature=[spec(batch, 6, 5, 4)])
    def f(x):
        y = tf.nn.conv2d(x, kernel, 1, "SAME")
        rows = tf.shape(y)[0]
        if way == "tile":
            y = tf.tile(tf.reshape(y, [rows, 6, 1, 5, 1, 4]), [1, 1, 2, 1, 3, 1])
        else:
            y = tf.stack([tf.stack([y] * 3, axis=3)] * 2, axis=2)
        return tf.nn.conv2d(tf.reshape(y, [rows, 12, 15, 4]), kernel, 1, "SAME")

    found = kinds(agree(f))
    assert found["Resize"] == 1 and found["Transpose"] == 2 and not {"Tile", "Concat"} & set(found)

"""Programs: control flow, lists, states, float16, classifiers, features, saved packages, and errors."""

import numpy as np
import pytest

from onnxbridge.errors import ConversionError, OnnxbridgeError, UnsafeFileError, UsageError
from onnxbridge.runtime.mil import Interpreter
from tests.runtime.mil.build import Function, Program, compute, ct, mb, program

types = ct.converters.mil.mil.types
F = np.float32


def saved(built, tmp_path, **options):
    """Save the program as an .mlpackage with coremltools."""
    model = ct.convert(
        built,
        source="milinternal",
        convert_to="mlprogram",
        minimum_deployment_target=options.pop("target", ct.target.iOS18),
        compute_precision=ct.precision.FLOAT32,
        skip_model_load=True,
        **options,
    )
    path = str(tmp_path / "model.mlpackage")
    model.save(path)
    return path


def test_cond_runs_one_branch():
    def build(x, y):
        positive = mb.greater(x=mb.reduce_sum(x=x, keep_dims=False), y=F(0))
        return mb.cond(pred=positive, _true_fn=lambda: mb.add(x=x, y=y), _false_fn=lambda: mb.mul(x=x, y=y))

    x, y = np.array([1, 2], F), np.array([5, 7], F)
    np.testing.assert_array_equal(compute(build, x=x, y=y), x + y)
    np.testing.assert_array_equal(compute(build, x=-x, y=y), -x * y)


def collatz(n):
    def cond(n, steps):
        return mb.squeeze(x=mb.greater(x=n, y=1))

    def body(n, steps):
        half = mb.equal(x=mb.mod(x=n, y=2), y=0)
        return mb.select(cond=half, a=mb.floor_div(x=n, y=2), b=mb.add(x=mb.mul(x=n, y=3), y=1)), mb.add(x=steps, y=1)

    return mb.while_loop(_cond=cond, _body=body, loop_vars=(n, mb.sub(x=n, y=n)))


@pytest.mark.parametrize(("start", "steps"), [(1, 0), (6, 8), (27, 111)])
def test_while_loop(start, steps):
    n, count = compute(collatz, n=np.array([start], np.int32))
    assert (n.tolist(), count.tolist()) == ([1], [steps])
    assert count.dtype == np.int32


def test_saved_loop_matches_the_one_in_memory(tmp_path):
    path = saved(program(collatz, n=np.array([27], np.int32)), tmp_path)
    assert [v.tolist() for v in Interpreter(path).run({"n": np.array([27])}).values()] == [[1], [111]]


def test_lists():
    def build(x):
        ls = mb.make_list(init_length=1, elem_shape=(2,), dtype="fp32")
        ls = mb.list_write(ls=ls, index=2, value=x)
        ls = mb.list_scatter(ls=ls, indices=np.array([0, 3], np.int32), value=np.array([[1, 2], [3, 4]], F))
        return mb.list_length(ls=ls), mb.list_read(ls=ls, index=2), mb.list_gather(ls=ls, indices=np.array([3, 1, 0], np.int32))

    length, third, picked = compute(build, x=np.array([8, 9], F))
    assert length == 4
    assert third.tolist() == [8, 9]
    assert picked.tolist() == [[3, 4], [0, 0], [1, 2]]


@pytest.mark.parametrize("turns", [1, 4])
def test_list_of_dynamic_elements_grows_in_a_loop(turns):
    def build(x, n):
        def turn(i, ls):
            return mb.add(x=i, y=1), mb.list_write(ls=ls, index=i, value=mb.mul(x=x, y=mb.cast(x=i, dtype="fp32")))

        count = mb.squeeze(x=n)
        ls = mb.make_list(init_length=1, elem_shape=("a", "b"), dtype="fp32", dynamic_length=True)
        _, ls = mb.while_loop(_cond=lambda i, ls: mb.less(x=i, y=count), _body=turn, loop_vars=(np.int32(0), ls))
        return mb.list_length(ls=ls), mb.list_gather(ls=ls, indices=mb.range_1d(start=0, end=count, step=1))

    x = np.arange(6, dtype=F).reshape(2, 3)
    length, rows = compute(build, x=x, n=np.array([turns], np.int32))
    assert length == turns
    np.testing.assert_array_equal(rows, x * np.arange(turns, dtype=F)[:, None, None])


def test_list_of_dynamic_length():
    def build(x, n):
        ls = mb.make_list(init_length=mb.squeeze(x=n), elem_shape=(2,), dtype="fp32", dynamic_length=False)
        return mb.list_length(ls=mb.list_write(ls=ls, index=1, value=x))

    assert compute(build, x=np.array([8, 9], F), n=np.array([5], np.int32)) == 5


def counter():
    """A program that adds its input to a state and returns the state."""
    inputs = {"x": mb.placeholder(shape=(2,), dtype=types.fp16)}
    inputs["total"] = mb.state_tensor_placeholder(shape=(2,), dtype=types.fp16)
    with Function(inputs, opset_version=ct.target.iOS18) as function:
        kept = mb.read_state(input=function.inputs["total"])
        kept = mb.coreml_update_state(state=function.inputs["total"], value=mb.add(x=kept, y=function.inputs["x"]))
        function.set_outputs([mb.identity(x=kept, name="y")])
    built = Program()
    built.add_function("main", function)
    return built


@pytest.mark.parametrize("kind", ["memory", "saved"])
def test_states_are_stored_until_reset(kind, tmp_path):
    model = Interpreter(counter() if kind == "memory" else saved(counter(), tmp_path))
    for times in (1, 2, 3):
        assert model.run({"x": np.array([1, 2], np.float16)})["y"].tolist() == [times, 2 * times]
    model.reset()
    assert model.run({"x": np.array([1, 2], np.float16)})["y"].tolist() == [1, 2]


def test_float16_is_rounded_after_each_operator_and_summed_in_float32():
    x = np.array([2048, 1, 1], np.float16)
    assert compute(lambda x: mb.reduce_sum(x=x), x=x).tolist() == 2050
    one_by_one = compute(lambda x: mb.add(x=mb.add(x=x, y=np.float16(1)), y=np.float16(1)), x=x[:1])
    assert one_by_one.dtype == np.float16
    assert one_by_one.tolist() == [2048]
    assert np.isinf(compute(lambda x: mb.mul(x=x, y=x), x=x[:1])).all()


def test_saved_program_reads_its_weight_file(tmp_path):
    weight = np.random.default_rng(3).standard_normal((64, 32)).astype(F)
    x = np.ones((1, 32), F)
    path = saved(program(lambda x: mb.linear(x=x, weight=weight, name="y"), x=x), tmp_path)
    np.testing.assert_allclose(Interpreter(path).run({"x": x})["y"], x @ weight.T, rtol=1e-5, atol=1e-5)
    (tmp_path / "model.mlpackage" / "Data" / "com.apple.CoreML" / "weights" / "weight.bin").unlink()
    with pytest.raises(UnsafeFileError, match=r"weight\.bin"):
        Interpreter(path)


def test_classifier_returns_label_and_probabilities(tmp_path):
    built = program(lambda x: mb.softmax(x=x, axis=-1), ct.target.iOS16, x=np.zeros((1, 3), F))
    config = ct.ClassifierConfig(["cat", "dog", "owl"])
    path = saved(built, tmp_path, target=ct.target.iOS16, classifier_config=config)
    label, probabilities = Interpreter(path).run({"x": np.log(np.array([[0.2, 0.7, 0.1]], F))}).values()
    assert label == "dog"
    assert list(probabilities) == ["cat", "dog", "owl"]
    np.testing.assert_allclose(list(probabilities.values()), [0.2, 0.7, 0.1], rtol=1e-5)


def test_images_as_arrays_or_pil_images(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="Pillow is only needed for pictures")
    built = program(lambda x: mb.reduce_sum(x=x, axes=[2, 3], name="y"), ct.target.iOS15, x=np.zeros((1, 3, 2, 4), F))
    inputs = [ct.ImageType(name="x", shape=(1, 3, 2, 4), color_layout=ct.colorlayout.BGR)]
    model = Interpreter(saved(built, tmp_path, target=ct.target.iOS15, inputs=inputs))
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    want = pixels[..., ::-1].astype(F).sum((0, 1))[None]
    np.testing.assert_array_equal(model.run({"x": image.fromarray(pixels)})["y"], want)
    np.testing.assert_array_equal(model.run({"x": pixels.transpose(2, 0, 1)[None, ::-1]})["y"], want)
    with pytest.raises(UsageError, match="2 x 3"):
        model.run({"x": image.fromarray(pixels[:, :3])})


def test_optional_input_has_its_default(tmp_path):
    built = program(lambda x, y: mb.add(x=x, y=y, name="z"), ct.target.iOS16, x=np.zeros(2, F), y=np.zeros(2, F))
    inputs = [ct.TensorType("x", (2,)), ct.TensorType("y", (2,), default_value=np.full(2, 3, F))]
    model = Interpreter(saved(built, tmp_path, target=ct.target.iOS16, inputs=inputs))
    assert model.run({"x": np.ones(2)})["z"].tolist() == [4, 4]
    assert model.run({"x": np.ones(2), "y": np.ones(2)})["z"].tolist() == [2, 2]


ADD = program(lambda x: mb.add(x=x, y=np.int32(1)), x=np.zeros(2, np.int32))


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "x is missing"),
        ({"x": np.zeros(3)}, "shape"),
        ({"x": np.zeros(2), "y": np.zeros(2)}, "no input y"),
        ({"x": np.array([2**40, 0])}, "int32 cannot represent"),
        ({"x": np.array([0.5, 0])}, "int32 cannot represent"),
    ],
)
def test_invalid_feeds_raise(feeds, message):
    with pytest.raises(UsageError, match=message):
        Interpreter(ADD).run(feeds)


def test_all_operators_without_a_rule_are_reported(tmp_path):
    path = saved(program(lambda x: mb.tanh(x=mb.sigmoid(x=mb.exp(x=x))), x=np.zeros(2, F)), tmp_path)
    spec = ct.utils.load_spec(path)
    operations = spec.mlProgram.functions["main"].block_specializations["CoreML8"].operations
    for op in operations:
        op.type = {"exp": "exp_of_tomorrow", "tanh": "tanh_of_tomorrow"}.get(op.type, op.type)
        if op.type == "sigmoid":
            op.inputs["slope"].CopyFrom(op.inputs["x"])
    with pytest.raises(ConversionError) as caught:
        Interpreter(spec)
    reasons = {(p.op, p.reason) for p in caught.value.problems}
    assert reasons == {
        ("exp_of_tomorrow", "no rule"),
        ("tanh_of_tomorrow", "no rule"),
        ("sigmoid", "input 'slope' is not supported"),
    }


def test_result_of_wrong_type_raises(tmp_path):
    path = saved(program(lambda x: mb.exp(x=x), x=np.zeros(2, F)), tmp_path)
    spec = ct.utils.load_spec(path)
    (exp,) = (op for op in spec.mlProgram.functions["main"].block_specializations["CoreML8"].operations if op.type == "exp")
    exp.outputs[0].type.tensorType.dimensions[0].constant.size = 3
    with pytest.raises(OnnxbridgeError, match="result has shape"):
        Interpreter(spec).run({"x": np.zeros(2)})


@pytest.mark.parametrize("content", [b"", b"not a model", b"\xff" * 100])
def test_corrupt_file_raises(content, tmp_path):
    path = tmp_path / "broken.mlmodel"
    path.write_bytes(content)
    with pytest.raises((UnsafeFileError, UsageError)):
        Interpreter(path)


def test_invalid_sources_raise():
    with pytest.raises(UsageError, match="does not exist"):
        Interpreter("missing.mlpackage")
    with pytest.raises(UsageError, match="dict"):
        Interpreter({})
    with pytest.raises(UsageError, match="no function 'other'"):
        Interpreter(ADD, function="other")


def test_selected_function(tmp_path):
    built = program(lambda x: mb.add(x=x, y=F(1), name="y"), x=np.zeros(2, F))
    other = program(lambda x: mb.mul(x=x, y=F(5), name="y"), x=np.zeros(2, F))
    for name, each in (("one", built), ("two", other)):
        (tmp_path / name).mkdir()
        saved(each, tmp_path / name)
    both = ct.utils.MultiFunctionDescriptor()
    both.add_function(str(tmp_path / "one" / "model.mlpackage"), "main", "plus")
    both.add_function(str(tmp_path / "two" / "model.mlpackage"), "main", "times")
    both.default_function_name = "times"
    ct.utils.save_multifunction(both, str(tmp_path / "both.mlpackage"))
    feeds = {"x": np.array([1, 2])}
    assert Interpreter(tmp_path / "both.mlpackage").run(feeds)["y"].tolist() == [5, 10]
    assert Interpreter(tmp_path / "both.mlpackage", function="plus").run(feeds)["y"].tolist() == [2, 3]


@pytest.mark.parametrize("kind", ["memory", "saved"])
def test_dynamic_sizes(kind, tmp_path):
    rows = ct.converters.mil.mil.get_new_symbol()
    inputs = {"x": mb.placeholder(shape=(rows, 3), dtype=types.fp32)}
    with Function(inputs, opset_version=ct.target.iOS16) as function:
        function.set_outputs([mb.reshape(x=function.inputs["x"], shape=[-1], name="y")])
    built = Program()
    built.add_function("main", function)
    flexible = [ct.TensorType("x", (ct.RangeDim(1, 9, default=2), 3))]
    model = Interpreter(built if kind == "memory" else saved(built, tmp_path, target=ct.target.iOS16, inputs=flexible))
    for count in (1, 2, 7):
        assert model.run({"x": np.ones((count, 3))})["y"].shape == (3 * count,)


def test_weight_file_outside_of_the_package_raises(tmp_path):
    (tmp_path / "secret.bin").write_bytes(b"secret")
    path = saved(program(lambda x: mb.linear(x=x, weight=np.ones((64, 32), F)), x=np.ones((1, 32), F)), tmp_path)
    spec = ct.utils.load_spec(path)
    for op in spec.mlProgram.functions["main"].block_specializations["CoreML8"].operations:
        if op.type == "const" and op.attributes["val"].WhichOneof("value") == "blobFileValue":
            op.attributes["val"].blobFileValue.fileName = "@model_path/../../../../secret.bin"
    (tmp_path / "model.mlpackage" / "Data" / "com.apple.CoreML" / "model.mlmodel").write_bytes(spec.SerializeToString())
    with pytest.raises(UnsafeFileError, match=r"secret\.bin.*which does not exist"):
        Interpreter(path)

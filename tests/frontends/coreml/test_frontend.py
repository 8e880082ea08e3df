"""The Core ML frontend: names, states, classes, metadata, sizes, functions, and damaged files."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

import onnxbridge
from onnxbridge.errors import UnsafeFileError, UsageError
from onnxbridge.frameworks import coremltools
from onnxbridge.frontends.coreml import frontend
from onnxbridge.runtime import devices
from onnxbridge.runtime.mil.ops import rule as mil

ct = coremltools()
from coremltools.converters.mil import Builder as mb  # noqa: E402
from coremltools.converters.mil.mil import Function, Program, types  # noqa: E402


def saved(tmp_path, build, shape=(2, 3), **options):
    """A package whose program is build(x)."""

    @mb.program(input_specs=[mb.TensorSpec(shape=shape)], opset_version=ct.target.iOS17)
    def program(x):
        return build(x)

    path = tmp_path / "net.mlpackage"
    model = ct.convert(program, compute_precision=ct.precision.FLOAT32, minimum_deployment_target=ct.target.iOS17, **options)
    model.author, model.license, model.version, model.short_description = "A", "MIT", "2", "adds"
    model.user_defined_metadata["task"] = "none"
    model.save(str(path))
    return path


@pytest.mark.slow
def test_package_converts_to_all_targets_with_metadata(tmp_path):
    path = saved(tmp_path, lambda x: mb.softmax(x=mb.linear(x=x, weight=np.eye(3, dtype=np.float32), name="dense"), name="y"))
    for target in ("onnx", "pytorch", "coreml"):
        made = onnxbridge.convert(path, target)
        assert made.report.passed and made.source == "coreml"
        assert [v.name for v in made.hub.graph.inputs] == ["x"] and [v.name for v in made.hub.graph.outputs] == ["y"]
    metadata = {"author": "A", "license": "MIT", "version": "2", "description": "adds", "task": "none"}
    assert metadata.items() <= made.hub.metadata_props.items()
    assert not any(key.startswith("com.github") for key in made.hub.metadata_props)


@pytest.mark.slow
def test_names_of_the_source_are_restored(tmp_path):
    graph = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 22]> g (float[N, 3] "in/x:0") => (float[N, 3] "out y")'
                                    '{ "out y" = Relu ("in/x:0") }')  # fmt: skip
    onnxbridge.convert(graph, "coreml", output=tmp_path / "net.mlpackage")
    back = onnxbridge.convert(tmp_path / "net.mlpackage", "onnx")
    assert [i.name for i in back.model.graph.input] == ["in/x:0"] and [o.name for o in back.model.graph.output] == ["out y"]
    assert back.report.passed
    assert onnxbridge.verify(graph, tmp_path / "net.mlpackage").passed
    assert onnxbridge.verify(tmp_path / "net.mlpackage", graph).passed
    onnxbridge.convert(graph, "coreml", output=tmp_path / "half.mlpackage", compute_precision="fp16")
    assert onnxbridge.verify(tmp_path / "net.mlpackage", tmp_path / "half.mlpackage").agrees


def test_output_that_is_an_input_is_preserved(tmp_path):
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 22]>
        g (float[2, 3] x, int32[2] n) => (float[2, 3] y, float[2, 3] x, int32[2] n) { y = Relu (x) }""")
    onnxbridge.convert(model, "coreml", output=tmp_path / "net.mlpackage")
    for target in ("onnx", "pytorch", "tensorflow", "coreml"):
        back = onnxbridge.convert(tmp_path / "net.mlpackage", target, samples=1)
        assert [v.name for v in back.hub.graph.outputs] == ["y", "x", "n"] and back.report.passed
    assert onnxbridge.verify(model, tmp_path / "net.mlpackage", samples=1).passed


def test_symbolic_size_expressions_are_preserved(tmp_path):
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 22]> g (float[N, past] x, float[N, longer] mask) => (float[N, longer] y)
        <int64[4] pads = {0, 1, 0, 0}> { more = Pad <mode="edge"> (x, pads) y = Mul (more, mask) }""")
    for value in (model.graph.input[1], model.graph.output[0]):
        value.type.tensor_type.shape.dim[1].dim_param = "past + 1"
    onnxbridge.convert(model, "coreml", dynamic=["N=1..4", "past=1..9"], output=tmp_path / "net.mlpackage")
    back = onnxbridge.convert(tmp_path / "net.mlpackage", "onnx")
    assert [str(v.shape) for v in back.hub.graph.inputs] == ["[N,past]", "[N,past + 1]"]
    assert back.report.passed and all(s["mask"][1] == s["x"][1] + 1 for s in back.report.sizes)


def test_classifier_returns_probabilities_and_stores_classes(tmp_path):
    config = ct.ClassifierConfig(["ant", "bee", "cat"])
    path = saved(tmp_path, lambda x: mb.softmax(x=x, name="p"), shape=(1, 3), classifier_config=config)
    made = onnxbridge.convert(path, "pytorch")
    assert made.report.passed and len(made.hub.graph.outputs) == 1
    assert json.loads(made.hub.metadata_props["class_labels"]) == ["ant", "bee", "cat"]


def test_integer_label_is_an_output(tmp_path):
    config = ct.ClassifierConfig([30, 10, 20])
    path = saved(tmp_path, lambda x: mb.softmax(x=x, name="p"), shape=(1, 3), classifier_config=config)
    made = onnxbridge.convert(path, "onnx")
    assert made.report.passed
    label, probabilities = made.hub.graph.outputs
    found = devices.run(devices.session(made.hub, "cpu"), {"x": np.float32([[0, 1, 5]])})
    assert found[label.name] == 20 and found[probabilities.name].shape == (3,)


def counter():
    placeholder = {"x": mb.placeholder((1,), dtype=types.fp16), "total": mb.state_tensor_placeholder((1,), dtype=types.fp16)}
    with Function(placeholder, opset_version=ct.target.iOS18) as function:
        total = mb.add(x=mb.read_state(input=function.inputs["total"]), y=function.inputs["x"])
        mb.coreml_update_state(state=function.inputs["total"], value=total)
        function.set_outputs([mb.mul(x=total, y=np.float16(2), name="twice")])
    program = Program()
    program.add_function("main", function)
    return program


def test_state_becomes_an_input_and_an_output():
    made = onnxbridge.convert(counter(), "onnx")
    assert made.report.passed
    assert [v.name for v in made.hub.graph.inputs] == ["x", "total"]
    assert [v.name for v in made.hub.graph.outputs] == ["twice", "total_out"]
    run = frontend.runner(counter())
    found = run({"x": np.float16([3]), "total": np.float16([4])})
    assert found["total_out"].tolist() == [7] and found["twice"].tolist() == [14]


def test_a_state_without_a_type_is_refused(tmp_path):
    package = ct.convert(counter(), source="milinternal", minimum_deployment_target=ct.target.iOS18, skip_model_load=True)
    package.save(str(tmp_path / "net.mlpackage"))
    (file,) = (tmp_path / "net.mlpackage").rglob("*.mlmodel")
    spec = ct.models.utils.load_spec(str(tmp_path / "net.mlpackage"))
    (state,) = (v for v in spec.mlProgram.functions["main"].inputs if v.name == "total")
    state.type.stateType.ClearField("wrappedType")
    file.write_bytes(spec.SerializeToString())
    with pytest.raises(UnsafeFileError, match="the state 'total' of the program is not a tensor"):
        frontend.to_hub(tmp_path / "net.mlpackage")


def test_dynamic_sizes_can_be_named(tmp_path):
    path = saved(tmp_path, lambda x: mb.exp(x=x, name="y"), shape=(ct.converters.mil.mil.get_new_symbol(), 3),
                 inputs=[ct.TensorType("x", shape=(ct.RangeDim(1, 64), 3))])  # fmt: skip
    assert list(frontend.to_hub(path).graph.inputs[0].shape) == ["x_0", 3]
    named = frontend.to_hub(path, None, {"x": {0: "batch"}}).graph
    assert str(named.inputs[0].shape) == "[batch,3]" and str(named.outputs[0].shape) == "[batch,3]"
    with pytest.raises(UsageError, match=r"the input x has shape \(None, 3\), not \(2, 4\)"):
        frontend.to_hub(path, {"x": np.zeros((2, 4), np.float32)})
    with pytest.raises(UsageError, match="no input z, only x"):
        frontend.to_hub(path, {"z": np.zeros((2, 3), np.float32)})


def test_inspect_shows_allowed_sizes(tmp_path):
    from click.testing import CliRunner

    from onnxbridge.cli import group

    symbol = ct.converters.mil.mil.get_new_symbol()
    ranged = saved(tmp_path, lambda x: mb.non_zero(x=x, name="y"), shape=(symbol, 3),
                   inputs=[ct.TensorType("x", shape=(ct.RangeDim(1, 64), 3))])  # fmt: skip
    message = CliRunner().invoke(group, ["inspect", str(ranged)]).output
    assert "input   x: float32[x_0, 3]  sizes 1..64, 3" in message and "output  y: int32[y_0, 2]" in message
    listed = saved(tmp_path / "other", lambda x: mb.relu(x=x, name="y"), shape=(symbol, 3),
                   inputs=[ct.TensorType("x", shape=ct.EnumeratedShapes([(1, 3), (4, 3)]))])  # fmt: skip
    assert "sizes 1x3 or 4x3" in CliRunner().invoke(group, ["inspect", str(listed)]).output


def test_every_operator_of_the_interpreter_has_a_rule():
    """The interpreter has every operator that coremltools registers (tests/runtime/mil/test_rules.py)."""
    assert set(frontend.rules) == set(mil)


def damaged(tmp_path, change):
    """A saved program with a modified specification."""
    path = saved(tmp_path, lambda x: mb.add(x=mb.linear(x=x, weight=np.ones((64, 3), np.float32)), y=1.0, name="y"))
    (file,) = path.rglob("*.mlmodel")
    spec = ct.models.utils.load_spec(str(path))
    change(spec, spec.mlProgram.functions["main"])
    file.write_bytes(spec.SerializeToString())
    return path


def block(function):
    return function.block_specializations[function.opset]


DAMAGE = {
    "opset": (lambda spec, main: main.ClearField("opset"), "no block for its opset"),
    "constant": (lambda spec, main: block(main).operations[0].ClearField("outputs"), "a constant without a name"),
    "value": (lambda spec, main: block(main).operations[0].attributes["val"].ClearField("type"), "cannot be read"),
    "binding": (lambda spec, main: block(main).operations[-1].inputs["x"].arguments[0].ClearField("name"), "cannot be read"),
    "nothing": (lambda spec, main: block(main).operations[-1].inputs["x"].ClearField("arguments"), "has no value"),
    "input": (lambda spec, main: spec.description.ClearField("input"), "lacks the input x"),
    "output": (lambda spec, main: spec.description.output.add(name="z"), "does not compute the output 'z'"),
    "unknown": (lambda spec, main: block(main).outputs.__setitem__(0, "nowhere"), "uses nowhere before it is defined"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_programs_raise(tmp_path, case):
    change, message = DAMAGE[case]
    path = damaged(tmp_path, change)
    with pytest.raises(UnsafeFileError, match=message):
        frontend.to_hub(path)


def test_truncated_weight_file_raises(tmp_path):
    path = damaged(tmp_path, lambda spec, main: None)
    (weights,) = path.rglob("weight.bin")
    weights.write_bytes(weights.read_bytes()[:200])
    with pytest.raises(UnsafeFileError, match="has no weights at"):
        frontend.to_hub(path)

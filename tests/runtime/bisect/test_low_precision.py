"""Which operators add error in lower precision, and which to keep in float32."""

import json

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnxbridge
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.runtime.bisect.low_precision.keep_in_float32 import search
from onnxbridge.runtime.bisect.low_precision.name_patterns import shortened
from onnxbridge.runtime.bisect.low_precision.operator_errors import measure
from onnxbridge.runtime.bisect.low_precision.operator_runs import OperatorRuns
from onnxbridge.runtime.bisect.low_precision.round_to import RoundTo

R = np.random.default_rng(2)
WEIGHT, LAST = (R.standard_normal((16, 16)).astype(np.float32) / 4 for _ in range(2))
HALF = 2.0**-11


def network(write):
    """Two layers with an operator between them that float16 computes badly."""
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, [4, 16])
    first = op.Tanh(op.MatMul(x, WEIGHT))
    y = op.MatMul(write(op, first), LAST)
    return op.model([x], [op.output(y, "y")])


def overflowing(op, value):
    """The squares exceed 65504; their sum is not under a root, so that no rule of the backend keeps it in float32."""
    large = op.Mul(value, np.float32(3000))
    large.name = "large"
    square = op.Mul(large, large)
    square.name = "square"
    return op.Mul(square, np.float32(1e-7))


def ill_conditioned(op, value):
    """Adding and subtracting 1000 leaves about three of the bits of float16."""
    shifted = op.Add(value, np.float32(1000))
    shifted.name = "shifted"
    back = op.Sub(shifted, np.float32(1000))
    back.name = "back"
    return back


def measured(model, in_float32=()):
    feeds = [{"x": R.standard_normal((4, 16)).astype(np.float32)} for _ in range(2)]
    span = 2 * float(np.abs(onnxbridge.runtime.Executor(model).run(None, feeds[0])[0]).max())
    return measure(model, feeds, HALF, in_float32, {"y": span}, lambda stage: None)


def test_rounding_is_that_of_float16():
    x = np.array([1 + 2**-12, 1 + 3 * 2**-12, 70000.0, -1e-9, np.inf, 65504.0])
    assert RoundTo(HALF)(x).tolist() == [1, 1 + 2**-10, np.inf, 0, np.inf, 65504]
    assert RoundTo(HALF).constant(np.float32([1e-10])).tolist() == [np.float32(1e-10)]


TEXT = """<ir_version: 10, opset_import: ["" : 21]>
g (float[N, 8] x, bool flag) => (float[N, 8] y, float[M] z) <float[8] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
  a = Mul(x, w)
  b, c = Split <axis = 1, num_outputs = 2> (a)
  d = If (flag) <
    then_branch = yes () => (float[N, 4] p) { p = Add(b, c) },
    else_branch = no () => (float[N, 4] q) { q = Sub(b, c) }>
  y = Concat <axis = 1> (d, c)
  s = Sigmoid(b)
  shape = Constant <value_ints = [-1]> ()
  z = Reshape(s, shape)
}"""


@pytest.mark.parametrize("flag", [True, False])
def test_runs_by_operator_are_those_of_the_model(flag):
    model = onnxbridge.load(onnx.parser.parse_model(TEXT))
    feeds = {"x": R.standard_normal((3, 8)).astype(np.float32), "flag": np.array(flag)}
    exact = dict(zip("yz", onnxbridge.runtime.Executor(model, precision="float64").run(None, feeds), strict=True))
    runs = OperatorRuns(model, feeds, lambda *seen: None)
    every = [op.name for op in runs.operators]
    for found in (runs.outputs, runs.rounded([], RoundTo(HALF))):
        assert all(np.array_equal(found[name], exact[name]) for name in "yz")
    (branch,) = (op.name for op in runs.operators if op.op == "If")
    for low, changed in ((every, "yz"), ([branch], "y")):
        found = runs.rounded(low, RoundTo(HALF))
        assert [name for name in "yz" if not np.array_equal(found[name], exact[name])] == list(changed)
        assert all(np.allclose(found[name], exact[name], rtol=1e-2, atol=1e-2) for name in "yz")


def test_overflow_is_counted_and_comes_first():
    errors = measured(network(overflowing)).errors
    worst = errors.rows[0]
    assert worst.name == "square" and worst.op == "Mul"
    assert worst.overflow > 0 and worst.moves == float("inf") and worst.largest > 65504
    assert errors.together == float("inf")
    assert "square" in str(errors).splitlines()[3]


def test_ill_conditioned_operator_is_the_worst():
    errors = measured(network(ill_conditioned)).errors
    assert {row.name for row in errors.rows[:2]} == {"shifted", "back"}
    assert errors.rows[0].moves > 20 * errors.rows[2].moves > 0
    assert not any(row.overflow for row in errors.rows)


def test_operators_in_float32_are_not_rounded():
    kept = measured(network(ill_conditioned), ["shifted", "back"])
    assert "shifted" not in {row.name for row in kept.errors.rows} and kept.errors.in_float32 == 2
    assert kept.errors.together < measured(network(ill_conditioned)).errors.together / 20


@pytest.mark.parametrize(("write", "expected"), [(ill_conditioned, {"shifted", "back"}), (overflowing, {"square"})])
def test_search_finds_the_operators_that_are_needed(write, expected):
    found = measured(network(write))
    kept = search(found, 0.01, lambda stage: None)
    assert expected <= set(kept.names) and len(kept.names) <= len(expected) + 1
    assert kept.share <= 0.01 < found.errors.together
    for name in expected:
        others = [row.name for row in found.errors.rows if row.name not in set(kept.names) - {name}]
        assert found.share(others) > 0.01  # each is needed


def test_many_names_become_few_patterns():
    types = {f"block.{b}/{op.lower()}_{i}": op for b in range(4) for op in ("Add", "Exp", "Mul") for i in range(3)}
    names = [name for name in types if name.startswith(("block.1/", "block.2/"))]
    assert shortened([*names, "block.0/add_0"], types) == (["block.1/*", "block.2/*", "block.0/add_0"], ["block.0/add_0", *names])
    assert shortened([name for name, op in types.items() if op == "Exp"], types)[0] == ["Exp"]
    assert shortened(["block.0/add_0", "block.3/mul_2"], types)[0] == ["block.0/add_0", "block.3/mul_2"]


def write_half_precision(folder, write):
    onnx.save(onnxbridge.convert(network(write), "onnx", verify=False).model, folder / "net.onnx")
    made = onnxbridge.convert(folder / "net.onnx", "coreml", compute_precision="fp16", verify=False)
    made.save(folder / "net.mlpackage")


@pytest.fixture(scope="module")
def half_precision(tmp_path_factory):
    """A model that is off by far in float16, and its program."""
    folder = tmp_path_factory.mktemp("half")
    write_half_precision(folder, ill_conditioned)
    return folder


def test_suggestion_is_converted_and_verified(half_precision):
    model, program = half_precision / "net.onnx", half_precision / "net.mlpackage"
    found = onnxbridge.bisect(model, program, suggest=True)
    assert found.first is None and found.operators is not None
    made = found.suggestion
    assert made.passed and made.before > 0.05 and made.after <= 0.01 and made.report.verdict == "PASSED"
    assert set(made.names) == {"shifted", "back"} and made.tried == 1
    repeated = onnxbridge.convert(model, "coreml", max_drift=made.limit, **made.options)
    assert repeated.report.verdict == "PASSED"


def test_command_prints_the_options(cli, half_precision):
    model, program = half_precision / "net.onnx", half_precision / "net.mlpackage"
    ran = cli("bisect", model, program, "--suggest", "-q")
    assert ran.code == 0
    assert f"onnxbridge convert {model} --to coreml --compute-precision fp16 --float32-ops " in ran.out
    found = json.loads(cli("bisect", model, program, "--suggest", "--max-drift", "90%", "--json", "-q").out)["suggestion"]
    assert found["reason"].startswith("not needed: outputs are off by") and found["limit"] == 0.9


def test_suggestion_for_a_candidate_that_is_not_of_lower_precision(cli, half_precision):
    ran = cli("bisect", half_precision / "net.onnx", half_precision / "net.onnx", "--suggest")
    assert ran.code == 0 and "CANDIDATE does not compute in lower precision" in ran.err


def test_reason_where_no_set_is_enough(tmp_path):
    # ONNX Runtime's Tanh and the interpreter's differ in the last bit of float32
    write_half_precision(tmp_path, overflowing)
    found = onnxbridge.bisect(tmp_path / "net.onnx", tmp_path / "net.mlpackage", suggest=True, max_drift=1e-9)
    assert not found.suggestion.passed and "none that helps" in str(found.suggestion)

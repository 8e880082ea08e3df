"""What users do with the module: train it, keep its state, run it at any size, export it."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
import torch

import onnxbridge
from onnxbridge.backends.pytorch import backend
from onnxbridge.errors import ConversionError
from onnxbridge.hub.ir.builder import Builder
from onnxbridge.runtime import devices
from tests.backends.small_networks import countdown, image_classifier, weights


@pytest.fixture
def classifier():
    hub = image_classifier()
    return hub, backend.from_hub(hub)


def images(count):
    return np.random.default_rng(count).standard_normal((count, 3, 12, 12)).astype(np.float32)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_any_batch_size(classifier, count):
    hub, module = classifier
    feeds = {"image": images(count)}
    expected = devices.run(devices.session(hub, "cpu"), feeds)
    np.testing.assert_allclose(backend.runner(module)(feeds)["logits"], expected["logits"], rtol=1e-5, atol=1e-5)


def test_weights_are_trained_and_named_as_in_the_hub(classifier):
    _, module = classifier
    assert [n for n, _ in module.named_parameters()] == [
        "stem.conv.weight", "stem.conv.bias", "stem.bn.weight", "stem.bn.bias", "blocks.0.conv.weight",
        "head.weight", "head.bias",
    ]  # fmt: skip
    buffers = {n for n, _ in module.named_buffers()}
    assert buffers == {"stem.bn.running_mean", "stem.bn.running_var", "stem.bn.num_batches_tracked"}
    assert module.input_names == ("image",)


def test_weights_share_the_hubs_memory(classifier):
    hub, module = classifier
    held = hub.graph.initializers["head.weight"].const_value.numpy()
    assert module.head.weight.data_ptr() == held.ctypes.data


def test_a_training_step_lowers_the_loss(classifier):
    _, module = classifier
    x, labels = torch.from_numpy(images(16)), torch.arange(16) % 5
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
    losses = []
    for _ in range(3):
        loss = torch.nn.functional.cross_entropy(module(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > losses[1] > losses[2]


def test_state_dict_goes_into_another_module(classifier):
    hub, module = classifier
    with torch.no_grad():
        module.head.weight.mul_(3.0)
    x = torch.from_numpy(images(2))
    expected = module(x)
    other = backend.from_hub(image_classifier())
    assert not torch.equal(other(x), expected)
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(x), expected)


def test_inputs_by_keyword(classifier):
    _, module = classifier
    x = torch.from_numpy(images(2))
    assert torch.equal(module(image=x), module(x))


def test_saved_program_has_a_dynamic_batch(classifier, tmp_path):
    _, module = classifier
    path = tmp_path / "net.pt2"
    assert backend.save(module, path) == [path]
    loaded = torch.export.load(path).module()
    for count in (1, 5):
        x = torch.from_numpy(images(count))
        torch.testing.assert_close(loaded(x), module(x))


@pytest.mark.parametrize("turns", [0, 1, 4])
@pytest.mark.parametrize("sign", [1, -1])
def test_control_flow_is_decided_when_the_module_runs(turns, sign):
    hub = countdown()
    feeds = {"x": np.array([1, 2, 3], np.float32) * sign, "turns": np.array(turns)}
    expected = devices.run(devices.session(hub, "cpu"), feeds)
    got = backend.runner(backend.from_hub(hub))(feeds)
    np.testing.assert_array_equal(got["y"], expected["y"])
    np.testing.assert_array_equal(got["end"], expected["end"])


def saved(hub, folder):
    """The module, and the program that comes back from its file."""
    module = backend.from_hub(hub)
    backend.save(module, folder / "net.pt2")
    return module, torch.export.load(folder / "net.pt2").module()


def test_loops_and_branches_are_saved(tmp_path):
    module, loaded = saved(countdown(), tmp_path)
    for turns, sign in itertools.product((0, 1, 9), (1.0, -1.0)):
        given = torch.tensor([1.0, 2.0, 3.0]) * sign, torch.tensor(turns)
        for ours, theirs in zip(loaded(*given), module(*given), strict=True):
            assert torch.equal(ours, theirs)


def collecting(ends):
    """A loop that gives what each turn makes; where `ends`, its body may stop it before `turns`."""
    op = Builder()
    x, turns = op.input("x", ir.DataType.FLOAT, ["N", 3]), op.input("turns", ir.DataType.INT64, [])
    w = op.constant(weights(3, 3), "w")

    def body(turn, going, state):
        state = op.Add(op.MatMul(state, w), op.Cast(turn, to=1))
        return [op.Less(op.ReduceSum(state, keepdims=0), 40.0) if ends else going, state, op.ReduceSum(state, [1], keepdims=0)]

    end, rows = op.Loop(turns, True, x, body=body, outputs=2)
    return op.model([x, turns], [op.output(end, "end"), op.output(rows, "rows")])


@pytest.mark.parametrize("ends", [False, True])
def test_a_loop_that_collects_is_saved(ends, tmp_path):
    hub = collecting(ends)
    module, loaded = saved(hub, tmp_path)
    judge = devices.session(hub, "cpu")
    for batch, turns in ((1, 0), (2, 3), (3, 20)):
        x = np.random.default_rng(batch).standard_normal((batch, 3)).astype(np.float32)
        expected = devices.run(judge, {"x": x, "turns": np.array(turns)})
        for got in (module, loaded):
            end, rows = (r.detach().numpy() for r in got(torch.from_numpy(x), torch.tensor(turns)))
            np.testing.assert_allclose(end, expected["end"], rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(rows, expected["rows"] if turns else rows[:0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backwards", [0, 1])
def test_a_scan_over_any_number_of_steps_is_saved(backwards, tmp_path):
    hub = onnxbridge.load(onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[2] start, float[2, T] xs) => (float[2] total, float[2, T] rows) {{
            total, rows = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [{backwards}],
                scan_output_axes = [1], scan_output_directions = [{1 - backwards}],
                body = step (float[2] s, float[2] x) => (float[2] t, float[2] r) {{ t = Add(s, x)  r = Mul(t, x) }}> (start, xs)
        }}"""))
    module, loaded = saved(hub, tmp_path)
    judge = devices.session(hub, "cpu")
    for steps in (1, 4, 30):
        given = np.ones(2, np.float32), np.random.default_rng(steps).standard_normal((2, steps)).astype(np.float32)
        expected = devices.run(judge, dict(zip(("start", "xs"), given, strict=True)))
        for got in (module, loaded):
            for result, name in zip(got(*map(torch.from_numpy, given)), ("total", "rows"), strict=True):
                np.testing.assert_allclose(result.numpy(), expected[name], rtol=1e-5, atol=1e-5)


def test_a_loop_whose_state_grows_is_not_saved_and_named(tmp_path):
    op = Builder()
    x, turns = op.input("x", ir.DataType.FLOAT, [3]), op.input("turns", ir.DataType.INT64, [])
    end = op.Loop(turns, True, x, body=lambda i, going, s: [going, op.Concat(s, s, axis=0)])
    end.producer().name = "doubling"
    module = backend.from_hub(op.model([x, turns], [op.output(end, "y")]))
    assert module(torch.ones(3), torch.tensor(2)).shape == (12,)
    with pytest.raises(ConversionError, match=r"a state of \[3\] becomes one of \[6\](.|\n)*doubling(.|\n)*--emit source"):
        backend.save(module, tmp_path / "net.pt2")
    assert not (tmp_path / "net.pt2").exists()


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_recurrent_layer_is_saved_for_any_batch_and_any_number_of_steps(kind, tmp_path):
    op = Builder()
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    x = op.input("x", ir.DataType.FLOAT, ["T", "N", 5])
    made = [op.constant(weights(2, gates * 4, n), name) for n, name in ((5, "W"), (4, "R"))]
    more = {"linear_before_reset": 1} if kind == "GRU" else {}
    y = getattr(op, kind)(x, *made, hidden_size=4, direction="bidirectional", **more)
    module, loaded = saved(op.model([x], [op.output(y, "y")]), tmp_path)
    for steps, batch in ((1, 1), (7, 3), (4, 2)):
        given = torch.randn(steps, batch, 5)
        torch.testing.assert_close(loaded(given), module(given))


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_a_state_of_another_batch_is_an_error(op):
    """PyTorch's kernels would read behind its end. Weights that are an input keep this from being a layer, which looks itself."""
    hub, gates = Builder(), {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    x, w = hub.input("x", ir.DataType.FLOAT, [3, None, 4]), hub.input("w", ir.DataType.FLOAT, [1, gates * 5, 4])
    h = hub.input("h", ir.DataType.FLOAT, [1, None, 5])
    more = {"linear_before_reset": 1} if op == "GRU" else {}
    y = getattr(hub, op)(x, w, hub.constant(weights(1, gates * 5, 5), "r"), None, None, h, hidden_size=5, outputs=2, **more)
    module = backend.from_hub(hub.model([x, w, h], [hub.output(y[0], "y")]))
    assert module(torch.ones(3, 4, 4), torch.ones(1, gates * 5, 4), torch.zeros(1, 4, 5)).shape == (3, 1, 4, 5)
    with pytest.raises(RuntimeError, match="expand"):
        module(torch.ones(3, 4, 4), torch.ones(1, gates * 5, 4), torch.zeros(1, 3, 5))


def test_a_network_that_halves_images_of_any_size_is_saved(tmp_path, capfd):
    op = Builder()
    x = h = op.input("x", ir.DataType.FLOAT, ["N", 3, "H", "W"])
    for _ in range(5):
        h = op.MaxPool(h, kernel_shape=[2, 2], strides=[2, 2])
    backend.save(backend.from_hub(op.model([x], [op.output(op.GlobalAveragePool(h), "y")])), tmp_path / "net.pt2")
    assert torch.export.load(tmp_path / "net.pt2").module()(torch.ones(1, 3, 96, 80)).shape == (1, 3, 1, 1)
    assert capfd.readouterr() == ("", "")


def test_a_branch_that_the_input_decides_is_saved(tmp_path):
    op = Builder()
    x, w = op.input("x", ir.DataType.FLOAT, ["N", 3]), op.constant(np.ones((3, 3), np.float32), "w")
    y = op.If(op.Greater(op.ReduceSum(x, keepdims=0), 0.0), then_branch=lambda: x, else_branch=lambda: op.MatMul(x, w))
    module = backend.from_hub(op.model([x], [op.output(y, "y")]))
    backend.save(module, tmp_path / "net.pt2")
    loaded = torch.export.load(tmp_path / "net.pt2").module()
    for x in (torch.ones(2, 3), -torch.ones(4, 3)):
        torch.testing.assert_close(loaded(x), module(x))


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_padding_in_a_branch_is_saved(mode, tmp_path):
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", "T"])
    more = op.Greater(op.ReduceSum(x, keepdims=0), 0.0)
    pads = [lambda: op.Pad(x, [0, 2, 0, 1], mode=mode), lambda: op.Pad(x, [0, 1, 0, 2], mode=mode)]
    y = op.If(more, then_branch=pads[0], else_branch=pads[1])
    module, loaded = saved(op.model([x], [op.output(y, "y")]), tmp_path)
    for given in (torch.rand(2, 3), -torch.rand(4, 5)):
        assert torch.equal(loaded(given), module(given))


def test_sizes_that_are_scaled_stay_sizes(tmp_path):
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, [1, 1, "H", 4])
    scaled = op.Cast(op.Floor(op.Mul(op.Cast(op.size(x, 2), to=1), 2.0)), to=7)
    y = op.Add(op.Cast(op.Range(np.array(0), scaled, np.array(1)), to=1), op.ReduceSum(x, keepdims=0))
    module = backend.from_hub(op.model([x], [op.output(y, "y")]))
    backend.save(module, tmp_path / "net.pt2")
    assert torch.export.load(tmp_path / "net.pt2").module()(torch.ones(1, 1, 7, 4)).shape == (14,)


def test_constants_of_rules_do_not_take_a_weights_name():
    """A reversed slice makes a constant; the file has one by the name that it would get."""
    op = Builder()
    x = op.input("x", ir.DataType.INT64, [3])
    held = [op.constant(np.array([10 * i] * 3), f"constant_{i}") for i in range(1, 4)]
    y = op.Sum(*(op.Cast(v, to=1) for v in (op.Slice(x, [-1], [-9], [0], [-1]), *held)))
    module = backend.from_hub(op.model([x], [op.output(y, "y")]))
    assert module(torch.tensor([1, 2, 3])).tolist() == [63.0, 62.0, 61.0]


def test_what_a_rank_decides_that_only_a_run_tells_is_saved(tmp_path):
    """A recurrent cell as torch.onnx writes it: the rank of what an If gave decides how it is called."""
    graph = onnx.parser.parse_graph("""
        net (float[N, 4, T] x) => (float[1, B, 2] y, int64[1] first) {
            one = Constant <value_ints = [1]> ()
            two = Constant <value_int = 2> ()
            zero = Constant <value_ints = [0]> ()
            shape = Shape (x)
            last = Constant <value_ints = [-1]> ()
            steps = Gather (shape, last)
            single = Equal (steps, one)
            row = If (single) <
                then_branch = taken () => (float[N, 4] short) { short = Squeeze (x, last) },
                else_branch = kept () => (float[N, 4, T] long) { long = Identity (x) }
            >
            ranks = Shape (row)
            rank = Size (ranks)
            first = Gather (ranks, zero)
            flat = Equal (rank, two)
            deep = Not (flat)
            sequence = If (deep) <
                then_branch = moved () => (float[T, N, 4] turned) { turned = Transpose <perm = [2, 0, 1]> (row) },
                else_branch = raised () => (float[1, N, 4] raising) { raising = Unsqueeze (row, zero) }
            >
            _, y = LSTM <hidden_size = 2> (sequence, W, R)
        }""")
    rng = np.random.default_rng(0)
    for name, shape in (("W", (1, 8, 4)), ("R", (1, 8, 2))):
        graph.initializer.append(onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name))
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    conversion = onnxbridge.convert(model, "pytorch")
    conversion.save(tmp_path / "net.pt2")
    program = torch.export.load(tmp_path / "net.pt2").module()
    for count, steps in ((2, 3), (3, 5)):
        x = torch.from_numpy(rng.standard_normal((count, 4, steps)).astype(np.float32))
        for a, b in zip(program(x), conversion.model(x), strict=True):
            torch.testing.assert_close(a, b)
    x = x[..., :1]
    torch.testing.assert_close(conversion.model(x)[0].shape, torch.Size([1, 3, 2]))


def test_a_size_that_the_model_asks_for_is_not_the_one_that_is_saved(tmp_path):
    """Three is the size that is tried first."""
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", "T"])
    y = op.If(op.Equal(op.size(x, 1), np.array(3)), then_branch=lambda: op.Neg(x), else_branch=lambda: op.Abs(x))
    module, loaded = saved(op.model([x], [op.output(y, "y")]), tmp_path)
    for count, steps in ((2, 5), (4, 64)):
        given = torch.randn(count, steps)
        assert torch.equal(loaded(given), module(given))
    with pytest.raises(Exception, match=r"(?i)guard|constraint|violated|!= 3|size"):
        loaded(torch.randn(2, 3))


def test_a_batch_that_comes_second_is_saved(tmp_path):
    """Nothing tells that the state's second size is the batch: neither a name nor its place."""
    op = Builder()
    x, state = op.input("x", ir.DataType.FLOAT, [None, None]), op.input("state", ir.DataType.FLOAT, [2, None, 4])
    rows = op.ReduceSum(x, [1], keepdims=1)
    y = op.Concat(op.Squeeze(op.Slice(state, [0], [1], [0]), [0]), rows, axis=1)
    module, loaded = saved(op.model([x, state], [op.output(y, "y")]), tmp_path)
    for count, steps in ((3, 7), (5, 64)):
        given = torch.randn(count, steps), torch.randn(2, count, 4)
        assert torch.equal(loaded(*given), module(*given))


def test_an_axis_that_is_an_input_is_not_saved_and_named(tmp_path):
    op = Builder()
    x, axis = op.input("x", ir.DataType.FLOAT, [3, 4]), op.input("axis", ir.DataType.INT64, [])
    total = op.CumSum(x, axis)
    total.producer().name = "running"
    module = backend.from_hub(op.model([x, axis], [op.output(total, "y")]))
    assert module(torch.ones(3, 4), torch.tensor(1))[0].tolist() == [1, 2, 3, 4]
    with pytest.raises(ConversionError, match=r"a number that only a run tells(.|\n)*running"):
        backend.save(module, tmp_path / "net.pt2")


def test_a_program_that_takes_no_zeros_is_saved(tmp_path):
    op = Builder()
    x, y = op.input("x", ir.DataType.INT32, ["N"]), op.input("y", ir.DataType.INT32, ["N"])
    module, loaded = saved(op.model([x, y], [op.output(op.Div(x, y), "z")]), tmp_path)
    given = torch.tensor([7, -7, 9]), torch.tensor([2, 2, 3])
    assert loaded(*(g.int() for g in given)).tolist() == module(*(g.int() for g in given)).tolist() == [3, -3, 3]


def test_a_program_that_is_only_for_short_inputs_is_made_of_longer_ones(tmp_path):
    """Of short inputs there is one window, which is all that a program made of them takes."""
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", "T"])
    padded = op.Pad(x, [0, 8, 0, 8], mode="wrap")
    starts = op.Range(np.array(0), op.Sub(op.size(padded, 1), np.array(15)), np.array(8))
    places = op.Add(op.Unsqueeze(starts, [1]), np.arange(16).reshape(1, 16))
    module, loaded = saved(op.model([x], [op.output(op.Gather(padded, places, axis=1), "y")]), tmp_path)
    for count, steps in ((2, 40), (3, 128)):
        given = torch.randn(count, steps)
        assert torch.equal(loaded(given), module(given))


def test_axes_that_are_an_empty_input_are_saved(tmp_path):
    op = Builder()
    x, axes = op.input("x", ir.DataType.FLOAT, [2, 3]), op.input("axes", ir.DataType.INT64, [0])
    module, loaded = saved(op.model([x, axes], [op.output(op.ReduceSum(x, axes), "y")]), tmp_path)
    given = torch.arange(6.0).reshape(2, 3), torch.zeros(0, dtype=torch.int64)
    assert loaded(*given).tolist() == module(*given).tolist() == [[15.0]]


def test_a_range_of_floats_is_saved(tmp_path):
    op = Builder()
    ends = [op.input(name, ir.DataType.FLOAT, []) for name in ("start", "limit", "delta")]
    _, loaded = saved(op.model(ends, [op.output(op.Range(*ends), "y")]), tmp_path)
    for start, limit, delta in ((0, 2, 0.5), (3, -1, -1), (1, 0, 1)):
        given = [torch.tensor(float(v)) for v in (start, limit, delta)]
        assert loaded(*given).tolist() == np.arange(start, limit, delta).tolist()

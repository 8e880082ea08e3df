"""Using the module: training, state, dynamic sizes and export."""

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
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.runtime import devices
from tests.backends.small_networks import assert_runs_like_hub, countdown, image_classifier, images, weights


@pytest.fixture
def classifier():
    hub = image_classifier()
    return hub, backend.from_hub(hub)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_any_batch_size(classifier, count):
    hub, module = classifier
    assert_runs_like_hub(backend, hub, module, {"image": images(count)}, rtol=1e-5, atol=1e-5)


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
    stored = hub.graph.initializers["head.weight"].const_value.numpy()
    assert module.head.weight.data_ptr() == stored.ctypes.data


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


def test_state_dict_loads_into_another_module(classifier):
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


@pytest.mark.parametrize("trip_count", [0, 1, 4])
@pytest.mark.parametrize("sign", [1, -1])
def test_control_flow_runs_at_run_time(trip_count, sign):
    hub = countdown()
    feeds = {"x": np.array([1, 2, 3], np.float32) * sign, "trip_count": np.array(trip_count)}
    assert_runs_like_hub(backend, hub, backend.from_hub(hub), feeds)


def saved(hub, folder):
    """The module, and the program loaded from its file."""
    module = backend.from_hub(hub)
    backend.save(module, folder / "net.pt2")
    return module, torch.export.load(folder / "net.pt2").module()


def test_loops_and_branches_are_exported(tmp_path):
    module, loaded = saved(countdown(), tmp_path)
    for trip_count, sign in itertools.product((0, 1, 9), (1.0, -1.0)):
        inputs = torch.tensor([1.0, 2.0, 3.0]) * sign, torch.tensor(trip_count)
        for ours, theirs in zip(loaded(*inputs), module(*inputs), strict=True):
            assert torch.equal(ours, theirs)


def loop_with_scan_output(early_exit):
    """A loop with a scan output; if `early_exit`, its body may end it before `trip_count` iterations."""
    op = Builder()
    x, trip_count = op.input("x", ir.DataType.FLOAT, ["N", 3]), op.input("trip_count", ir.DataType.INT64, [])
    w = op.constant(weights(3, 3), "w")

    def body(iteration, condition, state):
        state = op.Add(op.MatMul(state, w), op.Cast(iteration, to=1))
        return [
            op.Less(op.ReduceSum(state, keepdims=0), 40.0) if early_exit else condition,
            state,
            op.ReduceSum(state, [1], keepdims=0),
        ]

    end, rows = op.Loop(trip_count, True, x, body=body, outputs=2)
    return op.model([x, trip_count], [op.output(end, "end"), op.output(rows, "rows")])


@pytest.mark.parametrize("early_exit", [False, True])
def test_a_loop_with_scan_outputs_is_exported(early_exit, tmp_path):
    hub = loop_with_scan_output(early_exit)
    module, loaded = saved(hub, tmp_path)
    session = devices.session(hub, "cpu")
    for batch, trip_count in ((1, 0), (2, 3), (3, 20)):
        x = np.random.default_rng(batch).standard_normal((batch, 3)).astype(np.float32)
        expected = devices.run(session, {"x": x, "trip_count": np.array(trip_count)})
        for got in (module, loaded):
            end, rows = (r.detach().numpy() for r in got(torch.from_numpy(x), torch.tensor(trip_count)))
            np.testing.assert_allclose(end, expected["end"], rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(rows, expected["rows"] if trip_count else rows[:0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reverse", [0, 1])
def test_a_scan_of_dynamic_length_is_exported(reverse, tmp_path):
    hub = onnxbridge.load(
        onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[2] start, float[2, T] xs) => (float[2] total, float[2, T] rows) {{
            total, rows = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [{reverse}],
                scan_output_axes = [1], scan_output_directions = [{1 - reverse}],
                body = step (float[2] s, float[2] x) => (float[2] t, float[2] r) {{ t = Add(s, x)  r = Mul(t, x) }}> (start, xs)
        }}""")
    )
    module, loaded = saved(hub, tmp_path)
    session = devices.session(hub, "cpu")
    for steps in (1, 4, 30):
        inputs = np.ones(2, np.float32), np.random.default_rng(steps).standard_normal((2, steps)).astype(np.float32)
        expected = devices.run(session, dict(zip(("start", "xs"), inputs, strict=True)))
        for got in (module, loaded):
            for result, name in zip(got(*map(torch.from_numpy, inputs)), ("total", "rows"), strict=True):
                np.testing.assert_allclose(result.numpy(), expected[name], rtol=1e-5, atol=1e-5)


def test_exporting_a_loop_with_a_growing_state_is_an_error(tmp_path):
    op = Builder()
    x, trip_count = op.input("x", ir.DataType.FLOAT, [3]), op.input("trip_count", ir.DataType.INT64, [])
    end = op.Loop(trip_count, True, x, body=lambda i, condition, s: [condition, op.Concat(s, s, axis=0)])
    end.producer().name = "doubling"
    module = backend.from_hub(op.model([x, trip_count], [op.output(end, "y")]))
    assert module(torch.ones(3), torch.tensor(2)).shape == (12,)
    with pytest.raises(ConversionError, match=r"shape from \[3\] to \[6\](.|\n)*doubling(.|\n)*--emit source"):
        backend.save(module, tmp_path / "net.pt2")
    assert not (tmp_path / "net.pt2").exists()


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_recurrent_layer_is_exported_with_dynamic_batch_and_time(kind, tmp_path):
    op = Builder()
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    x = op.input("x", ir.DataType.FLOAT, ["T", "N", 5])
    weights_ = [op.constant(weights(2, gates * 4, n), name) for n, name in ((5, "W"), (4, "R"))]
    options = {"linear_before_reset": 1} if kind == "GRU" else {}
    y = getattr(op, kind)(x, *weights_, hidden_size=4, direction="bidirectional", **options)
    module, loaded = saved(op.model([x], [op.output(y, "y")]), tmp_path)
    for steps, batch in ((1, 1), (7, 3), (4, 2)):
        inputs = torch.randn(steps, batch, 5)
        torch.testing.assert_close(loaded(inputs), module(inputs))


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_a_state_of_another_batch_is_an_error(op):
    """PyTorch's kernels would read out of bounds.

    A weight that is an input prevents the layer, which would check the size itself.
    """
    hub, gates = Builder(), {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    x, w = hub.input("x", ir.DataType.FLOAT, [3, None, 4]), hub.input("w", ir.DataType.FLOAT, [1, gates * 5, 4])
    h = hub.input("h", ir.DataType.FLOAT, [1, None, 5])
    options = {"linear_before_reset": 1} if op == "GRU" else {}
    y = getattr(hub, op)(x, w, hub.constant(weights(1, gates * 5, 5), "r"), None, None, h, hidden_size=5, outputs=2, **options)
    module = backend.from_hub(hub.model([x, w, h], [hub.output(y[0], "y")]))
    assert module(torch.ones(3, 4, 4), torch.ones(1, gates * 5, 4), torch.zeros(1, 4, 5)).shape == (3, 1, 4, 5)
    with pytest.raises(RuntimeError, match="expand"):
        module(torch.ones(3, 4, 4), torch.ones(1, gates * 5, 4), torch.zeros(1, 3, 5))


def test_a_downsampling_network_is_exported_with_dynamic_sizes(tmp_path, capfd):
    op = Builder()
    x = h = op.input("x", ir.DataType.FLOAT, ["N", 3, "H", "W"])
    for _ in range(5):
        h = op.MaxPool(h, kernel_shape=[2, 2], strides=[2, 2])
    backend.save(backend.from_hub(op.model([x], [op.output(op.GlobalAveragePool(h), "y")])), tmp_path / "net.pt2")
    assert torch.export.load(tmp_path / "net.pt2").module()(torch.ones(1, 3, 96, 80)).shape == (1, 3, 1, 1)
    assert capfd.readouterr() == ("", "")


def test_a_data_dependent_branch_is_exported(tmp_path):
    op = Builder()
    x, w = op.input("x", ir.DataType.FLOAT, ["N", 3]), op.constant(np.ones((3, 3), np.float32), "w")
    y = op.If(op.Greater(op.ReduceSum(x, keepdims=0), 0.0), then_branch=lambda: x, else_branch=lambda: op.MatMul(x, w))
    module = backend.from_hub(op.model([x], [op.output(y, "y")]))
    backend.save(module, tmp_path / "net.pt2")
    loaded = torch.export.load(tmp_path / "net.pt2").module()
    for x in (torch.ones(2, 3), -torch.ones(4, 3)):
        torch.testing.assert_close(loaded(x), module(x))


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_padding_in_a_branch_is_exported(mode, tmp_path):
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", "T"])
    options = op.Greater(op.ReduceSum(x, keepdims=0), 0.0)
    pads = [lambda: op.Pad(x, [0, 2, 0, 1], mode=mode), lambda: op.Pad(x, [0, 1, 0, 2], mode=mode)]
    y = op.If(options, then_branch=pads[0], else_branch=pads[1])
    module, loaded = saved(op.model([x], [op.output(y, "y")]), tmp_path)
    for inputs in (torch.rand(2, 3), -torch.rand(4, 5)):
        assert torch.equal(loaded(inputs), module(inputs))


def test_scaled_sizes_stay_symbolic(tmp_path):
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, [1, 1, "H", 4])
    scaled = op.Cast(op.Floor(op.Mul(op.Cast(op.size(x, 2), to=1), 2.0)), to=7)
    y = op.Add(op.Cast(op.Range(np.array(0), scaled, np.array(1)), to=1), op.ReduceSum(x, keepdims=0))
    module = backend.from_hub(op.model([x], [op.output(y, "y")]))
    backend.save(module, tmp_path / "net.pt2")
    assert torch.export.load(tmp_path / "net.pt2").module()(torch.ones(1, 1, 7, 4)).shape == (14,)


def test_constants_of_rules_do_not_reuse_a_weights_name():
    """A reversed slice adds a constant; the model has a weight of the name that it would get."""
    op = Builder()
    x = op.input("x", ir.DataType.INT64, [3])
    stored = [op.constant(np.array([10 * i] * 3), f"constant_{i}") for i in range(1, 4)]
    y = op.Sum(*(op.Cast(v, to=1) for v in (op.Slice(x, [-1], [-9], [0], [-1]), *stored)))
    module = backend.from_hub(op.model([x], [op.output(y, "y")]))
    assert module(torch.tensor([1, 2, 3])).tolist() == [63.0, 62.0, 61.0]


def test_a_branch_on_a_run_time_rank_is_exported(tmp_path):
    """A recurrent cell as torch.onnx writes it: its call depends on the rank of an If's output."""
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


def test_a_size_that_the_model_compares_with_is_not_the_example_size(tmp_path):
    """Three is the example size that is tried first."""
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", "T"])
    y = op.If(op.Equal(op.size(x, 1), np.array(3)), then_branch=lambda: op.Neg(x), else_branch=lambda: op.Abs(x))
    module, loaded = saved(op.model([x], [op.output(y, "y")]), tmp_path)
    for count, steps in ((2, 5), (4, 64)):
        inputs = torch.randn(count, steps)
        assert torch.equal(loaded(inputs), module(inputs))
    with pytest.raises(Exception, match=r"(?i)guard|constraint|violated|!= 3|size"):
        loaded(torch.randn(2, 3))


def test_a_batch_on_the_second_axis_is_exported(tmp_path):
    """Neither a name nor its axis marks the state's second dimension as the batch."""
    op = Builder()
    x, state = op.input("x", ir.DataType.FLOAT, [None, None]), op.input("state", ir.DataType.FLOAT, [2, None, 4])
    rows = op.ReduceSum(x, [1], keepdims=1)
    y = op.Concat(op.Squeeze(op.Slice(state, [0], [1], [0]), [0]), rows, axis=1)
    module, loaded = saved(op.model([x, state], [op.output(y, "y")]), tmp_path)
    for count, steps in ((3, 7), (5, 64)):
        inputs = torch.randn(count, steps), torch.randn(2, count, 4)
        assert torch.equal(loaded(*inputs), module(*inputs))


def test_exporting_an_axis_that_is_an_input_is_an_error(tmp_path):
    op = Builder()
    x, axis = op.input("x", ir.DataType.FLOAT, [3, 4]), op.input("axis", ir.DataType.INT64, [])
    total = op.CumSum(x, axis)
    total.producer().name = "running"
    module = backend.from_hub(op.model([x, axis], [op.output(total, "y")]))
    assert module(torch.ones(3, 4), torch.tensor(1))[0].tolist() == [1, 2, 3, 4]
    with pytest.raises(ConversionError, match=r"depends on the values of a tensor(.|\n)*running"):
        backend.save(module, tmp_path / "net.pt2")


def test_a_module_that_fails_on_zeros_is_exported(tmp_path):
    op = Builder()
    x, y = op.input("x", ir.DataType.INT32, ["N"]), op.input("y", ir.DataType.INT32, ["N"])
    module, loaded = saved(op.model([x, y], [op.output(op.Div(x, y), "z")]), tmp_path)
    inputs = torch.tensor([7, -7, 9]), torch.tensor([2, 2, 3])
    assert loaded(*(g.int() for g in inputs)).tolist() == module(*(g.int() for g in inputs)).tolist() == [3, -3, 3]


def test_export_retries_with_longer_inputs(tmp_path):
    """Short inputs have one window, and a program exported on them supports no more."""
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", "T"])
    padded = op.Pad(x, [0, 8, 0, 8], mode="wrap")
    starts = op.Range(np.array(0), op.Sub(op.size(padded, 1), np.array(15)), np.array(8))
    positions = op.Add(op.Unsqueeze(starts, [1]), np.arange(16).reshape(1, 16))
    module, loaded = saved(op.model([x], [op.output(op.Gather(padded, positions, axis=1), "y")]), tmp_path)
    for count, steps in ((2, 40), (3, 128)):
        inputs = torch.randn(count, steps)
        assert torch.equal(loaded(inputs), module(inputs))


def test_axes_from_an_empty_input_are_exported(tmp_path):
    op = Builder()
    x, axes = op.input("x", ir.DataType.FLOAT, [2, 3]), op.input("axes", ir.DataType.INT64, [0])
    module, loaded = saved(op.model([x, axes], [op.output(op.ReduceSum(x, axes), "y")]), tmp_path)
    inputs = torch.arange(6.0).reshape(2, 3), torch.zeros(0, dtype=torch.int64)
    assert loaded(*inputs).tolist() == module(*inputs).tolist() == [[15.0]]


def test_a_range_of_floats_is_exported(tmp_path):
    op = Builder()
    early_exit = [op.input(name, ir.DataType.FLOAT, []) for name in ("start", "limit", "delta")]
    _, loaded = saved(op.model(early_exit, [op.output(op.Range(*early_exit), "y")]), tmp_path)
    for start, limit, delta in ((0, 2, 0.5), (3, -1, -1), (1, 0, 1)):
        inputs = [torch.tensor(float(v)) for v in (start, limit, delta)]
        assert loaded(*inputs).tolist() == np.arange(start, limit, delta).tolist()

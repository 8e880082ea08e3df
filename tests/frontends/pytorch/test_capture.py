"""Forms of sources, input and output names, source locations, dynamic sizes, and error messages."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import onnxbridge
from onnxbridge.errors import ConversionError, UnsafeFileError, UsageError
from onnxbridge.frontends.pytorch import frontend
from tests.frontends.pytorch.compare import (
    assert_equal_outputs,
    check_against_pytorch,
    convert_to_onnx,
    onnxruntime_session,
    run_session,
)

HERE = Path(__file__).name


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        self.register_buffer("shift", torch.arange(3.0))

    def forward(self, x, unused=None):
        return F.softmax(self.inner(x) + self.shift, -1)


def test_input_and_output_names():
    class Named(nn.Module):
        def forward(self, x, pair, k=2):
            return {"relu": F.relu(x) * k, "sum": pair["a"] + pair["b"], "x": x, "more": (x, None)}

    example = (torch.randn(2, 2), {"a": torch.randn(2), "b": torch.randn(2)})
    net = Named()
    model = check_against_pytorch(net, example)
    assert [v.name for v in model.graph.inputs] == ["x", "pair_a", "pair_b"]
    assert [v.name for v in model.graph.outputs] == ["relu", "sum", "x_1", "more_0"]


class Output(dict):
    """A container whose library registers it without the keys of its children, as transformers 4 does with model outputs."""


class Pair(list):
    """Another one, which is no mapping."""


pytree.register_pytree_node(Output, lambda d: (list(d.values()), list(d)), lambda values, keys: Output(zip(keys, values)))  # noqa: B905
pytree.register_pytree_node(Pair, lambda p: (list(p), None), lambda values, _: Pair(values))


def test_names_in_containers_that_are_registered_without_keys():
    class Net(nn.Module):
        def forward(self, x):
            return Output(logits=x + 1, hidden=Pair([x * 2, x * 3]))

    made = onnxbridge.convert(Net(), inputs=(torch.ones(2),))
    assert [o.name for o in made.model.graph.output] == ["logits", "hidden_0", "hidden_1"]


def test_weights_have_the_same_names_and_memory():
    net = Net().eval()
    model = frontend.to_hub(net, (torch.randn(2, 4),))
    arrays = {name: v.const_value.numpy() for name, v in model.graph.initializers.items()}
    for name, tensor in net.state_dict().items():
        assert np.shares_memory(arrays[name], tensor.numpy()), name


def test_shared_weights_are_one_initializer():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.out = nn.Embedding(100, 16), nn.Linear(16, 100, bias=False)
            self.out.weight = self.words.weight

        def forward(self, ids):
            return self.out(self.words(ids)[:, 0])

    model = check_against_pytorch(Tied().eval(), (torch.randint(0, 100, (2, 3)),))
    assert sum(v.const_value.size == 1600 for v in model.graph.initializers.values()) == 1


def test_unused_inputs_are_preserved():
    model = check_against_pytorch(Net().eval(), (torch.randn(2, 4), torch.randn(7)))
    assert [v.name for v in model.graph.inputs] == ["x", "unused"]


@pytest.mark.parametrize("batch", [1, 2])
def test_dynamic_batch_with_any_example_size(batch):
    model = check_against_pytorch(Net().eval(), {"x": torch.randn(batch, 4)}, {"x": {0: "batch"}}, [{"x": torch.randn(5, 4)}])
    assert [list(v.shape) for v in (*model.graph.inputs, *model.graph.outputs)] == [["batch", 4], ["batch", 3]]


def test_dynamic_and_static_inputs():
    given, other = ((torch.randn(n, 4), torch.randn(7)) for n in (2, 9))
    model = check_against_pytorch(Net().eval(), given, {"x": {0: "rows"}, "unused": None}, [other])
    assert [list(v.shape) for v in model.graph.inputs] == [["rows", 4], [7]]


def test_dynamic_shapes_of_torch_export():
    shapes = {"x": {0: torch.export.Dim("rows", min=1, max=64)}}
    model = check_against_pytorch(Net().eval(), (torch.randn(2, 4),), shapes, [(torch.randn(9, 4),)])
    assert list(model.graph.inputs[0].shape) == ["rows", 4]


class Loops(nn.Module):
    """A Python loop over a size of a nested input."""

    def forward(self, x, states):
        total = x
        for step in range(states["k"].shape[0]):
            total = total + states["k"][step]
        return total


def test_the_line_that_fixes_a_size_is_named():
    example = {"x": torch.randn(4), "states": {"k": torch.randn(3, 4)}}
    with pytest.raises(UsageError, match=r"specializes it to 3 \(at .*test_capture\.py:\d+ in forward\); make") as caught:
        frontend.to_hub(Loops(), example, {"states_k": {0: "n"}})
    line = int(str(caught.value).rpartition("test_capture.py:")[2].split()[0])
    assert "for step in range" in Path(__file__).read_text().splitlines()[line - 1]


def test_input_errors():
    with pytest.raises(UsageError, match=r"'features' \(axis 1 of x\) cannot vary: the model's code specializes it to 4"):
        frontend.to_hub(Net().eval(), (torch.randn(2, 4),), {"x": {1: "features"}})
    with pytest.raises(UsageError, match="no input is named y; the inputs are x"):
        frontend.to_hub(Net().eval(), (torch.randn(2, 4),), {"y": {0: "n"}})
    with pytest.raises(UsageError, match=r'needs example inputs: its forward takes x; .*"x:float32'):
        frontend.to_hub(Net().eval(), None)
    with pytest.raises(UsageError, match="forward has no parameter z"):
        frontend.to_hub(Net().eval(), {"z": torch.randn(2)})


def test_module_in_training_mode_is_converted_in_evaluation_mode():
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)).train()
    net[1].eval()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    check_against_pytorch(net, (torch.randn(2, 1, 5, 5),))
    assert [m.training for m in net] == [True, False, True]
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.ones(1))
        self.inner = nn.Module()
        self.inner.register_buffer("last", torch.zeros(2, 3))

    def forward(self, x):
        self.seen.add_(1)
        before = self.inner.last.clone()
        self.inner.last.copy_(x)
        return x * self.seen + before


@pytest.mark.parametrize("exported", [False, True])
def test_mutated_buffers_become_inputs_and_outputs(exported):
    net = Counter()
    source = torch.export.export(net, (torch.randn(2, 3),)) if exported else net
    model, proto = convert_to_onnx(source, None if exported else (torch.randn(2, 3),))
    assert [v.name for v in model.graph.inputs] == ["x", "seen", "inner.last"]
    assert [v.name for v in model.graph.outputs] == ["output", "seen.next", "inner.last.next"]
    session, state = onnxruntime_session(proto), {"seen": net.seen.numpy(), "inner.last": net.inner.last.numpy()}
    for _ in range(3):
        x = torch.randn(2, 3)
        expected = frontend.runner(source)({"x": x.numpy(), **state})
        got = run_session(session, {"x": x.numpy(), **state})
        assert_equal_outputs(got, expected)
        state = {"seen": got["seen.next"], "inner.last": got["inner.last.next"]}
    assert net.seen.item() == 1 and not net.inner.last.any()


for _name in ("one", "two", "three", "four", "five"):
    torch.library.define(f"onnxbridge_tests::{_name}", "(Tensor x) -> Tensor")
    # implemented in NumPy, which cannot be traced
    torch.library.impl(f"onnxbridge_tests::{_name}", "CompositeExplicitAutograd")(lambda x: torch.from_numpy(x.numpy() * 1))
    torch.library.register_fake(f"onnxbridge_tests::{_name}")(torch.empty_like)
unknown = torch.ops.onnxbridge_tests


class Unknown(nn.Module):
    def forward(self, x):
        a = unknown.one(x)  # first
        b = unknown.two(a)  # second
        c = torch.nn.functional.relu(b)
        d = unknown.three(c)  # third
        e = unknown.four(d)  # fourth
        return unknown.five(x) + e  # fifth


def test_unsupported_operators_are_reported_with_locations():
    with pytest.raises(ConversionError) as caught:
        frontend.to_hub(Unknown(), (torch.randn(3, 3),))
    lines = Path(__file__).read_text().splitlines()
    expected = {}
    for number, line in enumerate(lines, 1):
        mark = line.rpartition("# ")[2]
        if mark in ("first", "second", "third", "fourth", "fifth"):
            expected[mark] = number
    problems = {p.op: p.locations[0] for p in caught.value.problems}
    assert len(problems) == 5
    assert sorted(place.line for place in problems.values()) == sorted(expected.values())
    assert all(place.file.endswith(HERE) and place.scope == "Unknown.forward" for place in problems.values())
    assert not any(place.file.startswith("/") for place in problems.values())


def test_nodes_have_source_location_and_module():
    model = frontend.to_hub(Net().eval(), (torch.randn(2, 4),))
    gemm = next(n for n in model.graph if n.op_type == "Gemm")
    assert gemm.metadata_props["onnxbridge.scope"] == "inner.0"
    assert gemm.metadata_props["onnxbridge.source"].partition(":")[0].endswith(HERE)


def test_size_computations_have_no_module():
    class Sized(nn.Module):
        def forward(self, x):
            return x.reshape(x.shape[0] * 2, 2) + x.shape[0]

    model = frontend.to_hub(Sized(), (torch.randn(3, 4),), {"x": {0: "n"}})
    assert not [n.metadata_props for n in model.graph if "metadata_hook" in str(n.metadata_props)]


def test_nothing_is_printed(capfd):
    torch.export.export(Net().eval(), (torch.randn(2, 4),))  # triggers PyTorch's own first-use output
    capfd.readouterr()
    frontend.to_hub(nn.LSTM(4, 3).eval(), (torch.randn(2, 1, 4),), {"input": {0: "t"}})
    gc.collect()
    assert capfd.readouterr() == ("", "")


def test_factory_and_weights(tmp_path, monkeypatch):
    (tmp_path / "made_here.py").write_text("import torch\ndef build():\n    return torch.nn.Linear(3, 2)\n\nnumber = 3\n")
    monkeypatch.chdir(tmp_path)
    net = nn.Linear(3, 2)
    torch.save(net.state_dict(), "net.pth")
    source = ("made_here:build", "net.pth")
    assert frontend.accepts(source) and frontend.accepts("made_here:build")
    _, proto = convert_to_onnx(source, (torch.randn(2, 3),))
    x = np.random.default_rng(0).normal(size=(2, 3)).astype("f")
    assert_equal_outputs(
        run_session(onnxruntime_session(proto), {"input": x}), {"output": net(torch.from_numpy(x)).detach().numpy()}
    )
    wrong = {
        "made_here:nothing": "has no attribute 'nothing'",
        "not_there:build": "no module",
        "made_here:number": "is not callable",
    }
    for name, text in wrong.items():
        with pytest.raises(UsageError, match=text):
            frontend.to_hub(name, (torch.randn(2, 3),))
    sys.modules.pop("made_here", None)


def test_factory_with_random_weights_is_deterministic(tmp_path, monkeypatch):
    (tmp_path / "drawn_here.py").write_text("import torch\ndef build():\n    return torch.nn.Linear(3, 2)\n")
    monkeypatch.chdir(tmp_path)
    before = torch.get_rng_state()
    assert onnxbridge.convert("drawn_here:build", inputs=(torch.ones(2, 3),)).report.passed
    assert torch.equal(torch.get_rng_state(), before), "the global generator is unchanged"
    sys.modules.pop("drawn_here", None)


def test_pickles_are_rejected(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "touched",))

    torch.save(Bomb(), tmp_path / "bomb.pth")
    torch.save(Net(), tmp_path / "module.pth")
    torch.save(Net().state_dict(), tmp_path / "state.pth")
    for name in ("bomb", "module", "state"):
        path = tmp_path / f"{name}.pth"
        assert frontend.accepts(path)
        with pytest.raises(UnsafeFileError, match=r"torch\.export\.save"):
            frontend.to_hub(path, None)
    with pytest.raises(UnsafeFileError):
        frontend.to_hub((f"{__name__}:Net", tmp_path / "bomb.pth"), (torch.randn(2, 4),))
    assert not (tmp_path / "touched").exists()


@pytest.mark.slow
def test_digits_example(tmp_path, monkeypatch):
    folder = Path(__file__).parents[3] / "examples" / "digits"
    monkeypatch.syspath_prepend(folder)
    import data
    import torch_net

    split = data.split()
    np.savez(tmp_path / "digits.npz", **split)
    threads = torch.get_num_threads()
    torch_net.main(str(tmp_path / "digits.npz"), str(tmp_path / "net.pt2"))
    torch.set_num_threads(threads)
    _, proto = convert_to_onnx(tmp_path / "net.pt2")
    [scores] = onnxruntime_session(proto).run(None, {"image": split["x_test"]})
    assert (scores.argmax(1) == split["y_test"]).mean() > 0.95
    model, from_factory = convert_to_onnx(("torch_net:build", tmp_path / "net.pth"), {"image": (("n", 1, 8, 8), "float32")})
    assert list(model.graph.inputs[0].shape) == ["n", 1, 8, 8]
    np.testing.assert_allclose(onnxruntime_session(from_factory).run(None, {"image": split["x_test"]})[0], scores, atol=2.0**-16)
    sys.modules.pop("data"), sys.modules.pop("torch_net")


def test_bfloat16_weights_share_memory():
    net = nn.Linear(8, 8).to(torch.bfloat16)
    model = frontend.to_hub(net, (torch.randn(2, 8, dtype=torch.bfloat16),))
    weight = model.graph.initializers["weight"].const_value
    assert weight.dtype == ir.DataType.BFLOAT16
    assert weight.numpy().ctypes.data == net.weight.data_ptr()


class Trains(nn.Module):
    def __init__(self, own):
        super().__init__()
        self.own = own
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("var", torch.ones(3))

    def forward(self, x, mean, var):
        mean, var = (self.mean, self.var) if self.own else (mean * 1, var * 1)
        return F.batch_norm(x, mean, var, training=True), mean, var


def test_norm_updating_its_buffers_is_rejected():
    with pytest.raises(UsageError, match="update their statistics"):
        frontend.to_hub(Trains(own=True), (torch.randn(4, 3), torch.zeros(3), torch.ones(3)))


def test_norm_updating_its_inputs():
    check_against_pytorch(Trains(own=False), (torch.randn(4, 3), torch.zeros(3), torch.ones(3)))


def test_mismatched_weights_are_listed(tmp_path, monkeypatch):
    (tmp_path / "factory_of_linear.py").write_text("import torch\ndef net():\n    return torch.nn.Linear(2, 3)\n")
    monkeypatch.chdir(tmp_path)
    torch.save({"weight": torch.zeros(3, 2), "extra": torch.zeros(1)}, "w.pth")
    with pytest.raises(UsageError, match=r"does not match Linear: .*bias.*extra"):
        frontend.to_hub(("factory_of_linear:net", "w.pth"), (torch.zeros(1, 2),))


@pytest.mark.parametrize(("given", "message"), [
    ({"zz": ((2, 4), "float32")}, "no input 'zz'; it has input"), ({"input": ((2, 4), "float32")}, r"exported as \[1, 4\]"),
])  # fmt: skip
def test_inputs_must_match_exported_program(given, message):
    program = torch.export.export(nn.Linear(4, 2), (torch.zeros(1, 4),))
    with pytest.raises(UsageError, match=message):
        frontend.to_hub(program, given)


def test_size_range_of_a_branch_is_reported():
    class Long(nn.Module):
        def forward(self, x):
            return x * 2 if x.shape[0] < 50 else x * 3

    result = onnxbridge.convert(Long(), inputs=(torch.randn(4, 3),), dynamic={"x": {0: "n"}})
    assert result.notes == ("valid only for n=1..49: the traced code branches on size",)
    assert onnxbridge.convert(Net().eval(), inputs=(torch.randn(4, 4),), dynamic={"x": {0: "n"}}).notes == ()


@pytest.mark.parametrize(("code", "condition"), [
    (lambda x: x * 2 if x.shape[0] % 2 == 0 else x * 3, "(n % 2) == 0"),
    (lambda x: x * 2 if x.shape[0] // 3 == 2 else x * 3, "(n // 3) == 2"),
    (lambda x: x * 2 if x.shape[0] != 5 else x * 3, "n != 5"),
    (lambda x: x * 2 if x.shape[0] * x.shape[0] > 20 else x * 3, "n*n > 20"),
])  # fmt: skip
def test_size_guards_are_reported(code, condition):
    class Chooses(nn.Module):
        def forward(self, x):
            return code(x)

    result = onnxbridge.convert(Chooses(), inputs=(torch.randn(6, 3),), dynamic={"x": {0: "n"}}, verify=False)
    assert result.notes == (f"valid only for {condition}: the traced code branches on size",)


def test_attention_reference_without_fast_path():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    net = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    hidden = torch.tensor([[False, True, True], [True, True, True]])  # the second row is fully masked
    given = {"src": torch.randn(2, 3, 8), "src_key_padding_mask": hidden}
    assert onnxbridge.convert(net, inputs=given).report.passed
    assert torch.backends.mha.get_fastpath_enabled()


def test_gradients_inside_a_model():
    class Slope(nn.Module):
        def forward(self, x, w):
            return torch.func.vmap(torch.func.grad(lambda x, w: (x @ w).sin()), in_dims=(0, None))(x, w)

    class Norms(nn.Module):
        def forward(self, x):
            return torch.vmap(lambda row: torch.linalg.norm(row) + row.max())(x)

    assert onnxbridge.convert(Slope(), inputs=(torch.randn(3, 5), torch.randn(5))).report.passed
    assert onnxbridge.convert(Norms(), inputs=(torch.randn(3, 5),)).report.passed  # after a failed trace, the state is clean

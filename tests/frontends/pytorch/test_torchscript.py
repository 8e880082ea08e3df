"""TorchScript: scripted, traced, frozen and saved modules, compared with the script itself."""

from __future__ import annotations

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import onnxbridge
from onnxbridge.cli import group
from onnxbridge.errors import UnsafeFileError, UsageError
from onnxbridge.frontends.pytorch import frontend
from tests.frontends.pytorch.compare import (
    assert_equal_outputs,
    check_against_pytorch,
    convert_to_onnx,
    onnxruntime_session,
    run_session,
)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        self.heads = nn.ModuleList([nn.Linear(4, 2), nn.Linear(4, 3)])

    def forward(self, image):
        y = self.conv(image).mean([2, 3])
        found = []
        for head in self.heads:
            found.append(head(y))
        return {"joined": torch.cat(found, 1), "soft": torch.nn.functional.softmax(y, -1)}


@pytest.mark.parametrize("make", [torch.jit.script, lambda m: torch.jit.freeze(torch.jit.script(m))], ids=["scripted", "frozen"])
def test_scripted(make):
    images = torch.randn(2, 3, 8, 8), torch.randn(5, 3, 8, 8)
    model = check_against_pytorch(make(Net().eval()), (images[0],), {"image": {0: "n"}}, [(images[1],)])
    assert [list(v.shape) for v in model.graph.inputs] == [["n", 3, 8, 8]]
    assert [v.name for v in model.graph.outputs] == ["joined", "soft"]


def test_names_of_parameters_and_modules():
    net = torch.jit.script(Net().eval())
    model = frontend.to_hub(net, (torch.randn(2, 3, 8, 8),), fold_batch_norm=False)
    assert {"conv.0.weight", "conv.1.running_mean", "heads.1.bias"} <= set(model.graph.initializers)
    weight = model.graph.initializers["conv.0.weight"].const_value
    assert weight.numpy().ctypes.data == net.conv[0].weight.data_ptr()
    outer = frontend.to_hub(torch.jit.script(nn.Sequential(net.conv)), (torch.randn(2, 3, 8, 8),))
    assert next(n for n in outer.graph if n.op_type == "Conv").metadata_props["onnxbridge.scope"] == "0.0"


def test_traced_and_saved(tmp_path):
    image = torch.randn(2, 3, 8, 8)
    net = torch.jit.trace(Net().conv.eval(), image)
    torch.jit.save(net, tmp_path / "net.pt")
    for source in (net, tmp_path / "net.pt"):
        model = check_against_pytorch(source, (image,), {"input": {0: "n"}}, [(torch.randn(3, 3, 8, 8),)])
        assert [n.op_type for n in model.graph] == ["Conv", "Relu"]


class ControlFlow(nn.Module):
    """Loops and branches: static, over a dynamic size, and data-dependent."""

    def __init__(self):
        super().__init__()
        self.cell, self.other = nn.GRUCell(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        h = torch.zeros(x.shape[1], 4)
        for i in range(x.size(0)):
            h = self.cell(x[i], h)
        if bool(h.sum() > 0):
            h = self.other(h)
        else:
            h = h * 2.0
            h = h - x.sum()
        iterations = 0
        while bool(h.abs().sum() < 100.0) and iterations < 9:
            h = h * 2.0 + 0.5
            iterations += 1
        if h.dim() == 3:
            raise ValueError("never")
        return h, torch.tensor(iterations)


class Sizes(nn.Module):
    """A trace records sizes, and what is computed from them, as tensors."""

    def forward(self, x):
        n = x.shape[0]
        half, grown = (n + 1) // 2, x.shape[0]
        grown += 1
        grown *= 2
        return torch.arange(half * 2), x[: n // 2], x.reshape(n, -1), x.new_zeros(n - 1), torch.diff(torch.arange(grown)) + n


def test_sizes_in_a_trace(tmp_path):
    traced = torch.jit.trace(Sizes(), (torch.randn(4, 5, 6),), check_trace=False)
    traced.save(tmp_path / "net.pt")
    sizes = {"x": {0: "n"}}
    made = onnxbridge.convert(tmp_path / "net.pt", inputs={"x": ((4, 5, 6), "float32")}, dynamic=sizes, verify=False)
    session = onnxruntime_session(made.model)
    for n in (3, 4, 9):
        x = torch.randn(n, 5, 6)
        for got, reference in zip(session.run(None, {"x": x.numpy()}), Sizes()(x), strict=True):
            torch.testing.assert_close(torch.from_numpy(got), reference)


class Positions(nn.Module):
    """As vision transformers resize their position embeddings: to sizes of dtypes and roots that a trace records as tensors."""

    def __init__(self):
        super().__init__()
        self.grid = nn.Parameter(torch.randn(1, 9, 4))

    def forward(self, image):
        def whole(x):
            return x.to(torch.int64) if torch.jit.is_tracing() and isinstance(x, torch.Tensor) else int(x)

        side = whole(self.grid.shape[1] ** 0.5)
        size = (whole(image.shape[2] // 4), whole(image.shape[3] / 4))
        resized = self.grid.reshape(1, side, side, 4).permute(0, 3, 1, 2)
        return nn.functional.interpolate(resized, size=size, mode="bicubic", antialias=True) + image.mean()


def test_sizes_of_a_resize_in_a_trace(tmp_path):
    traced = torch.jit.trace(Positions(), (torch.randn(2, 3, 20, 28),), check_trace=False)
    traced.save(tmp_path / "net.pt")
    result = onnxbridge.convert(tmp_path / "net.pt", inputs={"image": ((2, 3, 20, 28), "float32")}, dynamic={"image": {0: "n"}})
    assert result.report.passed and list(result.model.graph.output[0].type.tensor_type.shape.dim[2:])[0].dim_value == 5


class Masked(nn.Module):
    def __init__(self, layer, masks):
        super().__init__()
        self.layer, self.masks = layer, masks

    def forward(self, x):
        causal = torch.full((x.shape[1], x.shape[1]), float("-inf")).triu(1) if "causal" in self.masks else None
        padding = x[:, :, 0] > 1.2 if "padding" in self.masks else None
        if padding is not None:
            padding = torch.cat([torch.zeros_like(padding[:, :1]), padding[:, 1:]], 1)  # a row without any key has no result
        return self.layer(x, src_mask=causal, src_key_padding_mask=padding)


@pytest.mark.parametrize("masks", [(), ("causal",), ("padding",), ("causal", "padding")], ids="-".join)
@pytest.mark.parametrize("options", [{}, {"activation": "gelu", "norm_first": True}], ids=["relu", "gelu"])
@pytest.mark.filterwarnings("ignore:Support for mismatched:UserWarning")
def test_fast_path_of_transformer_layers(masks, options, tmp_path):
    """What is traced without gradients calls one operator for a whole layer."""
    layer = Masked(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options), masks).eval()
    with torch.no_grad():
        traced = torch.jit.trace(layer, (torch.randn(2, 5, 8),), check_trace=False)
    assert "_transformer_encoder_layer_fwd" in str(traced.inlined_graph)
    traced.save(tmp_path / "net.pt")
    sizes = {"x": {0: "n", 1: "t"}}
    made = onnxbridge.convert(tmp_path / "net.pt", inputs={"x": ((2, 5, 8), "float32")}, dynamic=sizes, verify=False)
    session = onnxruntime_session(made.model)
    for shape in ((2, 5, 8), (3, 7, 8)):
        x = torch.randn(shape)
        with torch.no_grad():
            (got,), reference = session.run(None, {"x": x.numpy()}), layer(x)
        torch.testing.assert_close(torch.from_numpy(got), reference, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("average", [True, False])
def test_fast_path_of_attention(average, tmp_path):
    class Attends(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x):
            return self.attention(x, x, x, average_attn_weights=average)

    layer = Attends().eval()
    with torch.no_grad():
        traced = torch.jit.trace(layer, (torch.randn(2, 5, 8),), check_trace=False)
    assert "_native_multi_head_attention" in str(traced.inlined_graph)
    traced.save(tmp_path / "net.pt")
    sizes = {"x": {0: "n", 1: "t"}}
    made = onnxbridge.convert(tmp_path / "net.pt", inputs={"x": ((2, 5, 8), "float32")}, dynamic=sizes, verify=False)
    x = torch.randn(3, 7, 8)
    with torch.no_grad():
        references = layer(x)
    for got, reference in zip(onnxruntime_session(made.model).run(None, {"x": x.numpy()}), references, strict=True):
        torch.testing.assert_close(torch.from_numpy(got), reference, rtol=1e-4, atol=1e-5)


def test_control_flow():
    net = torch.jit.script(ControlFlow().eval())
    others = [(torch.randn(t, n, 4) * s,) for t, n, s in ((3, 2, 1), (7, 5, -3), (1, 1, 10))]
    model = check_against_pytorch(net, (torch.randn(4, 2, 4),), {"x": {0: "time", 1: "n"}}, others)
    assert [n.op_type for n in model.graph if n.op_type in ("If", "Loop")] == ["Loop", "If", "If", "Loop"]


def test_numbers_and_containers():
    class Mixed(nn.Module):
        def forward(self, x, times: int, names: list[str], scale: float = 2.0):
            results: dict[str, torch.Tensor] = {}
            for name in names:
                results[name] = x * (len(name) + times // 2) - scale
            pair = (results["ab"], [results["c"]])
            first, rest = pair
            if isinstance(first, torch.Tensor) and "c" in results and not torch.jit.is_tracing():
                first = first.to(torch.float64).float()
            return first[..., 1:-1:2] if x.shape[-1] >= 4 else first, rest[0].view(-1, x.size(1))

    net = torch.jit.script(Mixed())
    _, proto = convert_to_onnx(net, (torch.randn(2, 6), 5, ["ab", "c"]))
    x = torch.randn(2, 6)
    expected = {f"output_{i}": y.numpy() for i, y in enumerate(net(x, 5, ["ab", "c"]))}
    assert_equal_outputs(run_session(onnxruntime_session(proto), {"x": x.numpy()}), expected)


class Stateful(nn.Module):
    """State whose shape is set in the first call, as in streaming models."""

    def __init__(self):
        super().__init__()
        self.state = torch.zeros(0)
        self.calls = 0

    def forward(self, x):
        if self.state.numel() == 0:
            self.state = torch.zeros(x.shape[0], 3)
        self.state = self.state * 0.5 + x
        return self.state.tanh()


def test_state_becomes_inputs_and_outputs(tmp_path):
    torch.jit.save(torch.jit.script(Stateful()), tmp_path / "net.pt")
    model, proto = convert_to_onnx(tmp_path / "net.pt", (torch.randn(2, 3),))
    assert [v.name for v in model.graph.inputs] == ["x", "state"]
    assert [v.name for v in model.graph.outputs] == ["output", "state.next"]
    real, session, state = torch.jit.load(tmp_path / "net.pt"), onnxruntime_session(proto), torch.zeros(2, 3).numpy()
    for _ in range(3):
        x = torch.randn(2, 3)
        got = run_session(session, {"x": x.numpy(), "state": state})
        assert_equal_outputs({"output": got["output"]}, {"output": real(x).numpy()})
        assert_equal_outputs(got, frontend.runner(tmp_path / "net.pt")({"x": x.numpy(), "state": state}))
        state = got["state.next"]


def test_state_that_is_not_a_tensor_is_rejected():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    with pytest.raises(UsageError, match="state 'calls' is not a tensor, and changes between calls"):
        frontend.to_hub(torch.jit.script(Counts()), (torch.randn(2),))


def test_code_with_external_effects_is_rejected(tmp_path):
    class Reads(nn.Module):
        def forward(self, x):
            return x + torch.from_file("/etc/hostname", False, 1)

    torch.jit.save(torch.jit.script(Reads()), tmp_path / "net.pt")
    with pytest.raises(UnsafeFileError, match="from_file"):
        frontend.to_hub(tmp_path / "net.pt", (torch.randn(2),))


def test_command_line(tmp_path):
    class Rates(nn.Module):
        def forward(self, x, rate: int):
            return x[:, :: rate // 8000] * 2

    torch.jit.save(torch.jit.script(Rates()), tmp_path / "net.pt")
    command = ["convert", str(tmp_path / "net.pt"), "--inputs", "x:float32[n,32] rate=16000", "-o", str(tmp_path / "net.onnx")]
    result = CliRunner().invoke(group, [*command, "--to", "onnx"])
    assert result.exit_code == 0, result.output
    assert "PASSED" in result.output and (tmp_path / "net.onnx").exists()
    result = CliRunner().invoke(group, [*command[:2], "--to", "onnx", "--inputs", "x:float32[n,32]"])
    assert isinstance(result.exception, UsageError) and "rate" in str(result.exception)


class Chooses(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x + 1
        return x * 2


class ChoosesByPython(nn.Module):
    def forward(self, x):
        return {True: x + 1, False: x * 2}[bool(eval("x.sum() > 0"))]


def test_scripting_is_suggested_where_it_helps():
    x = torch.ones(3)
    with pytest.raises(UsageError, match="cannot trace Chooses: .*pass torch.jit.script of the module"):
        convert_to_onnx(Chooses(), (x,))
    check_against_pytorch(torch.jit.script(Chooses()), (x,), None, [(-x,)])
    with pytest.raises(UsageError, match="cannot trace ChoosesByPython") as raised:
        convert_to_onnx(ChoosesByPython(), (x,))
    assert "torch.jit.script" not in str(raised.value)

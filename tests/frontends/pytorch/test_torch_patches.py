"""The patches of PyTorch: what they replace exists as expected in the installed release, and is restored on exit.

A failure here means that PyTorch has changed: check the patch, adapt or remove it, and update the release in its comment.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest
import torch
from torch import nn
from torch._subclasses import fake_impls
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.modules import rnn
from torch.nn.utils.rnn import pad_packed_sequence
from torch.utils import _pytree as pytree

from onnxbridge.errors import UsageError
from onnxbridge.frameworks.torch_rnn_kernels import rnn_meta_kernels
from onnxbridge.frontends.pytorch import frontend, torch_patches
from onnxbridge.frontends.pytorch.torch_patches import associative_scan
from onnxbridge.frontends.pytorch.torch_patches.attention_fast_path import without_attention_fast_path
from onnxbridge.frontends.pytorch.torch_patches.functorch_stack import restore_functorch_stack
from onnxbridge.frontends.pytorch.torch_patches.lazy_graph_module import lazy_code
from onnxbridge.frontends.pytorch.torch_patches.packed_sequences import packed_sequences
from onnxbridge.frontends.pytorch.torch_patches.symbolic_len import symbolic_len
from onnxbridge.frontends.pytorch.torch_patches.target import CHECKED_ON, Target, replaced
from tests.frontends.pytorch.compare import check_against_pytorch

MODULES = [importlib.import_module(f"{torch_patches.__name__}.{m.name}") for m in pkgutil.iter_modules(torch_patches.__path__)]
TARGETS = [target for module in MODULES for target in getattr(module, "TARGETS", ())]
LAYERS = [getattr(torch.ops.aten, name) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")]


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"{t.module}.{t.name}")
def test_target_exists_with_the_expected_parameters(target):
    if target.module.startswith("torchvision"):
        pytest.importorskip("torchvision", reason="torchvision is not installed")
    importlib.import_module(target.module)
    assert target.applies(), f"{target} differs in PyTorch {torch.__version__}; last checked on {CHECKED_ON}"


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__.rpartition(".")[2])
def test_patch_names_the_release_it_was_checked_on(module):
    assert f"PyTorch {CHECKED_ON}" in inspect.getsource(module)


def test_installed_release_is_the_checked_one():
    assert torch.__version__.partition("+")[0] == CHECKED_ON, "check all patches, then update CHECKED_ON"


def test_patch_is_not_applied_to_other_parameters():
    target = Target("torch.nn.modules.rnn", "RNNBase.check_forward_args", ("self", "input"))
    before = rnn.RNNBase.check_forward_args
    with replaced(target, lambda original: None):
        assert rnn.RNNBase.check_forward_args is before
    assert not Target("torch.nn.modules.rnn", "Missing.check_forward_args", ("self",)).applies()
    assert not Target("torch.not_imported", "function", ()).applies()


def test_changed_target_is_reported_where_a_trace_fails(monkeypatch):
    class Branches(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    monkeypatch.setattr(rnn.RNNBase, "check_forward_args", lambda self, inputs: None)
    with pytest.raises(UsageError, match=r"has changed torch\.nn\.modules\.rnn\.RNNBase\.check_forward_args, which onnxbridge"):
        frontend.to_hub(Branches(), (torch.ones(3),))


def test_replaced_restores_the_attribute_after_an_error():
    target = Target("torch.nn.modules.rnn", "LSTM.check_forward_args", ("self", "input", "hidden", "batch_sizes"))
    before = rnn.LSTM.check_forward_args
    with pytest.raises(ValueError, match="failed"), replaced(target, lambda original: 3):
        assert rnn.LSTM.check_forward_args == 3
        raise ValueError("failed")
    assert rnn.LSTM.check_forward_args is before


def test_associative_scan_passes_the_users_function():
    """The function that PyTorch passes to `generic_associative_scan` works on batches; the user's is in its closure."""
    module = importlib.import_module("torch._higher_order_ops.associative_scan")
    [target] = associative_scan.TARGETS
    received = []

    def wrap(original):
        def record(operator, leaves, dim=0, additional_inputs=()):
            received.append(operator)
            return original(operator, leaves, dim, additional_inputs)

        return record

    def add(a, b):
        return a + b

    with replaced(target, wrap):
        module.associative_scan(add, torch.ones(4, 2), dim=0, combine_mode="generic")
    operator = received[0]  # it calls itself
    closure = inspect.getclosurevars(operator.keywords["combine_fn"]).nonlocals
    total = operator.func(torch.ones(2), torch.ones(2), **{**operator.keywords, "combine_fn": closure["func"]})
    assert pytree.tree_leaves(total)[0].tolist() == [2.0, 2.0]


@pytest.mark.parametrize("overload", ["input", "data"])
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_recurrent_operators_have_python_kernels(layer, overload):
    """Which the patches replace; without them a trace would unroll the layers in C++."""
    operator = getattr(layer, overload)
    meta = torch._C.DispatchKey.Meta
    before = dict(operator.py_kernels)
    assert meta in before and hasattr(operator._dispatch_cache, "clear")
    with rnn_meta_kernels(), packed_sequences():
        assert all(operator.py_kernels[key] is not kernel for key, kernel in before.items())
    assert operator.py_kernels == before


def test_packing_operators():
    pack = torch.ops.aten._pack_padded_sequence.default
    before = dict(fake_impls.op_implementations_dict)
    assert pack in before
    assert "_VF._pad_packed_sequence" in inspect.getsource(pad_packed_sequence)
    original = torch._VF._pad_packed_sequence
    with packed_sequences():
        assert fake_impls.op_implementations_dict[pack] is not before[pack]
        assert torch._VF._pad_packed_sequence is torch.ops.onnxbridge.pad_packed_sequence.default
    assert fake_impls.op_implementations_dict == before and torch._VF._pad_packed_sequence == original


def test_lazy_code():
    with lazy_code():
        lazy = make_fx(lambda x: x + 1)(torch.ones(2))
    assert isinstance(lazy, _LazyGraphModule)
    assert not isinstance(make_fx(lambda x: x + 1)(torch.ones(2)), _LazyGraphModule)


def test_symbolic_len():
    class Length(nn.Module):
        def forward(self, x):
            return x.new_zeros(len(x[x > 0]))

    with pytest.raises(Exception, match="data-dependent"):
        torch.export.export(Length(), (torch.ones(3),))
    before = len
    with symbolic_len():
        torch.export.export(Length(), (torch.ones(3),))
        assert len is not before and len([1, 2]) == 2
    assert len is before


def test_functorch_stack_is_restored():
    functorch = torch._C._functorch
    before = functorch.get_dynamic_layer_stack_depth()
    with restore_functorch_stack():
        functorch._vmap_increment_nesting(2, "error")
        assert functorch.get_dynamic_layer_stack_depth() == before + 1
    assert functorch.get_dynamic_layer_stack_depth() == before


def test_attention_fast_path():
    """Its results for fully padded rows are NaN: if not, the patch is no longer needed."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x, padding = torch.randn(2, 3, 8), torch.tensor([[False, True, True], [True, True, True]])
    with torch.no_grad():
        assert layer(x, src_key_padding_mask=padding).isnan().any()
        with without_attention_fast_path():
            assert not layer(x, src_key_padding_mask=padding).isnan().any()
    assert torch.backends.mha.get_fastpath_enabled()


class Masked(nn.Module):
    def __init__(self, which):
        super().__init__()
        options = {"d_model": 8, "nhead": 2, "dim_feedforward": 16, "batch_first": True}
        self.net = {
            "encoder": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(**options), 1),
            "decoder": lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(**options), 1),
            "both": lambda: nn.Transformer(num_encoder_layers=1, num_decoder_layers=1, **options),
        }[which]()
        self.which = which

    def forward(self, x, mask):
        if self.which == "encoder":
            return self.net(x, mask=mask)
        return self.net(x, x, tgt_mask=mask, memory_mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1]))


@pytest.mark.parametrize("which", ["encoder", "decoder", "both"])
def test_masks_of_transformers(which):
    """They are inputs: PyTorch compares them with the causal mask, and the result is no part of a program."""
    causal = nn.Transformer.generate_square_subsequent_mask
    other = torch.zeros(4, 4)
    other[2, 1] = -torch.inf
    sizes = {"x": {0: "n", 1: "t"}, "mask": {0: "t", 1: "t"}}
    first, *others = ((torch.randn(n, t, 8), mask) for n, t, mask in ((2, 5, causal(5)), (3, 4, other), (2, 6, causal(6))))
    check_against_pytorch(Masked(which).eval(), first, sizes, others)

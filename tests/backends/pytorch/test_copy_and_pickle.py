"""Copying, pickling, moving and tracing the module, as for any nn.Module."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import onnx_ir as ir
import pytest
import torch

from onnxbridge.backends.pytorch import backend
from onnxbridge.backends.pytorch.codegen import source_file
from onnxbridge.hub.builder.builder import Builder
from tests.backends.small_networks import countdown, image_classifier


def loop_network():
    """Non-persistent constants, a pool whose function has another __name__, and a loop."""
    op = Builder()
    x, trip_count = op.input("x", ir.DataType.FLOAT, ["N", 4, 8]), op.input("turns", ir.DataType.INT64, [])
    buffer = op.constant(np.linspace(-1, 1, 20, dtype=np.float32).reshape(1, 4, 5)[..., :4], "constant_1")
    y = op.Add(op.MaxPool(x, kernel_shape=[2], strides=[2]), buffer)
    end = op.Loop(
        trip_count,
        True,
        y,
        body=lambda i, condition, s: [condition, op.Mul(op.Add(s, buffer), op.constant(np.float32(0.5), "half"))],
    )
    return op.model([x, trip_count], [op.output(end, "y")])


NETWORKS = {
    "classifier": (image_classifier, lambda: (torch.randn(3, 3, 12, 12),)),
    "control flow": (countdown, lambda: (torch.tensor([1.0, 2.0, 3.0]), torch.tensor(3))),
    "steps": (loop_network, lambda: (torch.randn(2, 4, 8), torch.tensor(3))),
}


def pickled_and_loaded(module):
    return pickle.loads(pickle.dumps(module))


def saved_and_loaded(module):
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


@pytest.fixture(params=NETWORKS)
def network(request):
    build, inputs = NETWORKS[request.param]
    torch.manual_seed(0)
    return backend.from_hub(build()), inputs()


def equal(a, b):
    pairs = zip(*(r if isinstance(r, tuple) else (r,) for r in (a, b)), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


@pytest.mark.parametrize("copy_module", [copy.copy, copy.deepcopy, pickled_and_loaded, saved_and_loaded])
def test_a_copy_equals_the_module(network, copy_module, tmp_path):
    module, inputs = network
    copied = copy_module(module)
    assert equal(copied(*inputs), module(*inputs)) and not copied.training
    assert list(copied.state_dict()) == list(module.state_dict())
    assert [n for n, _ in copied.named_buffers()] == [n for n, _ in module.named_buffers()]
    for name in ("input_names", "output_names", "input_types", "output_types", "meta"):
        assert getattr(copied, name) == getattr(module, name)
    copied.load_state_dict(module.state_dict())
    source_file.save(copied, tmp_path / "net.py")


def test_a_deep_copy_has_weights_of_its_own(network):
    module, inputs = network
    before, copied = module(*inputs), copy.deepcopy(module)
    for parameter in copied.parameters():
        parameter.data.zero_()
    assert equal(module(*inputs), before)


def test_a_copy_keeps_shared_weights_shared():
    op = Builder()
    x, w = op.input("x", ir.DataType.FLOAT, [2, 3]), op.constant(np.ones((3, 3), np.float32), "w")
    module = backend.from_hub(op.model([x], [op.output(op.MatMul(op.MatMul(x, w), op.Transpose(w, perm=[1, 0])), "y")]))
    module.alias = module.w
    copied = pickled_and_loaded(copy.deepcopy(module))
    assert copied.alias is copied.w and copied.w is not module.w


def test_jit_trace_and_functional_call(network):
    module, inputs = network
    if "body_1" not in dict(module.named_children()):  # jit.trace records only the branch taken
        assert equal(torch.jit.trace(module, inputs, check_trace=False)(*inputs), module(*inputs))
    weights = {name: torch.zeros_like(p) for name, p in module.named_parameters()}
    zeroed = copy.deepcopy(module)
    for parameter in zeroed.parameters():
        parameter.data.zero_()
    assert equal(torch.func.functional_call(module, weights, inputs), zeroed(*inputs))


def creation_network():
    """Values created from sizes alone: ranges, filled tensors, sizes as numbers, random numbers, and loop counters."""
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", 3])
    shape, rows = op.Shape(x), op.size(x, 0)
    counter = op.Cast(op.Range(np.array(0), rows, np.array(1)), to=1)
    filled = op.ConstantOfShape(shape, value=ir.tensor(np.array([2.0], np.float32)))
    entries = op.Gather(op.constant(np.array([[4, 5, 6]], np.int64), "table"), op.Mod(shape, np.array([3, 3])), axis=1)
    noise = op.Mul(op.RandomNormal(shape=[1, 3]), op.constant(np.zeros((1, 3), np.float32), "none"))
    total = op.Sum(x, op.Unsqueeze(counter, [1]), filled, op.EyeLike(x), noise, op.Cast(op.ReduceSum(entries), to=1))
    end = op.Loop(
        2, True, total, body=lambda i, condition, s: [condition, op.Mul(s, op.Add(op.Cast(op.Gather(shape, i), to=1), s))]
    )
    more = op.Expand(x, op.Concat([2], shape, axis=0))
    return op.model([x], [op.output(v, name) for v, name in ((total, "total"), (end, "end"), (more, "more"))])


def test_created_tensors_are_on_the_device_of_the_inputs():
    """On the meta device, which like others rejects tensors of another device, up to the first value that is read."""
    module = backend.from_hub(creation_network())
    copied = [n for n in module.graph.nodes if getattr(n.target, "takes_device", False)]
    assert len(copied) >= 5 and all(n.kwargs["device"].target is getattr for n in copied)
    moved = copy.deepcopy(module).to("meta")
    for node in list(moved.graph.nodes):
        if node.op == "output":
            node.args = (node.args[0][:1],)
    moved.graph.eliminate_dead_code()
    moved.recompile()
    assert moved(torch.ones(4, 3, device="meta"))[0].device.type == "meta"


def test_a_jit_trace_supports_other_sizes():
    op = Builder()
    ids = op.input("ids", ir.DataType.INT64, ["N", "T"])
    steps = op.Range(np.array(0), op.size(ids, 1), np.array(1))
    module = backend.from_hub(op.model([ids], [op.output(op.Add(ids, op.Expand(op.Unsqueeze(steps, [0]), op.Shape(ids))), "y")]))
    traced = torch.jit.trace(module, (torch.zeros(2, 3, dtype=torch.int64),))
    assert traced(torch.zeros(3, 4, dtype=torch.int64)).tolist() == [[0, 1, 2, 3]] * 3

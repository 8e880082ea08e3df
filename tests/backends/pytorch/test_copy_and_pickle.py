"""The module copied, pickled, moved and wrapped, as every nn.Module is."""

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
from onnxbridge.hub.ir.builder import Builder
from tests.backends.small_networks import countdown, image_classifier


def stepping():
    """Constants in no state_dict, a pool whose function does not know its own name, and a loop."""
    op = Builder()
    x, turns = op.input("x", ir.DataType.FLOAT, ["N", 4, 8]), op.input("turns", ir.DataType.INT64, [])
    held = op.constant(np.linspace(-1, 1, 20, dtype=np.float32).reshape(1, 4, 5)[..., :4], "constant_1")
    y = op.Add(op.MaxPool(x, kernel_shape=[2], strides=[2]), held)
    end = op.Loop(turns, True, y, body=lambda i, going, s: [going, op.Mul(op.Add(s, held), op.constant(np.float32(0.5), "half"))])
    return op.model([x, turns], [op.output(end, "y")])


NETWORKS = {
    "classifier": (image_classifier, lambda: (torch.randn(3, 3, 12, 12),)),
    "control flow": (countdown, lambda: (torch.tensor([1.0, 2.0, 3.0]), torch.tensor(3))),
    "steps": (stepping, lambda: (torch.randn(2, 4, 8), torch.tensor(3))),
}


def pickled(module):
    return pickle.loads(pickle.dumps(module))


def stored(module):
    held = io.BytesIO()
    torch.save(module, held)
    held.seek(0)
    return torch.load(held, weights_only=False)


@pytest.fixture(params=NETWORKS)
def network(request):
    build, inputs = NETWORKS[request.param]
    torch.manual_seed(0)
    return backend.from_hub(build()), inputs()


def same(a, b):
    pairs = zip(*(r if isinstance(r, tuple) else (r,) for r in (a, b)), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickled, stored])
def test_a_copy_is_the_module(network, how, tmp_path):
    module, inputs = network
    made = how(module)
    assert same(made(*inputs), module(*inputs)) and not made.training
    assert list(made.state_dict()) == list(module.state_dict())
    assert [n for n, _ in made.named_buffers()] == [n for n, _ in module.named_buffers()]
    for name in ("input_names", "output_names", "input_types", "output_types", "meta"):
        assert getattr(made, name) == getattr(module, name)
    made.load_state_dict(module.state_dict())
    source_file.save(made, tmp_path / "net.py")


def test_a_deep_copy_has_weights_of_its_own(network):
    module, inputs = network
    before, made = module(*inputs), copy.deepcopy(module)
    for parameter in made.parameters():
        parameter.data.zero_()
    assert same(module(*inputs), before)


def test_a_copy_keeps_shared_weights_shared():
    op = Builder()
    x, w = op.input("x", ir.DataType.FLOAT, [2, 3]), op.constant(np.ones((3, 3), np.float32), "w")
    module = backend.from_hub(op.model([x], [op.output(op.MatMul(op.MatMul(x, w), op.Transpose(w, perm=[1, 0])), "y")]))
    module.again = module.w
    made = pickled(copy.deepcopy(module))
    assert made.again is made.w and made.w is not module.w


def test_it_is_traced_and_called_with_other_weights(network):
    module, inputs = network
    if "body_1" not in dict(module.named_children()):  # a trace keeps the way that one input took
        assert same(torch.jit.trace(module, inputs, check_trace=False)(*inputs), module(*inputs))
    weights = {name: torch.zeros_like(p) for name, p in module.named_parameters()}
    zeroed = copy.deepcopy(module)
    for parameter in zeroed.parameters():
        parameter.data.zero_()
    assert same(torch.func.functional_call(module, weights, inputs), zeroed(*inputs))


def making():
    """What is made of sizes alone: ranges, tensors full of a number, sizes as numbers, random numbers, and a loop's turns."""
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", 3])
    shape, rows = op.Shape(x), op.size(x, 0)
    counted = op.Cast(op.Range(np.array(0), rows, np.array(1)), to=1)
    filled = op.ConstantOfShape(shape, value=ir.tensor(np.array([2.0], np.float32)))
    places = op.Gather(op.constant(np.array([[4, 5, 6]], np.int64), "table"), op.Mod(shape, np.array([3, 3])), axis=1)
    noise = op.Mul(op.RandomNormal(shape=[1, 3]), op.constant(np.zeros((1, 3), np.float32), "none"))
    total = op.Sum(x, op.Unsqueeze(counted, [1]), filled, op.EyeLike(x), noise, op.Cast(op.ReduceSum(places), to=1))
    end = op.Loop(2, True, total, body=lambda i, going, s: [going, op.Mul(s, op.Add(op.Cast(op.Gather(shape, i), to=1), s))])
    more = op.Expand(x, op.Concat([2], shape, axis=0))
    return op.model([x], [op.output(v, name) for v, name in ((total, "total"), (end, "end"), (more, "more"))])


def test_what_it_makes_is_where_its_inputs_are():
    """On "meta", which refuses what is elsewhere as other devices do, up to what reads a number."""
    module = backend.from_hub(making())
    made = [n for n in module.graph.nodes if getattr(n.target, "makes", False)]
    assert len(made) >= 5 and all(n.kwargs["device"].target is getattr for n in made)
    placed = copy.deepcopy(module).to("meta")
    for node in list(placed.graph.nodes):
        if node.op == "output":
            node.args = (node.args[0][:1],)
    placed.graph.eliminate_dead_code()
    placed.recompile()
    assert placed(torch.ones(4, 3, device="meta"))[0].device.type == "meta"


def test_a_trace_takes_other_sizes():
    op = Builder()
    ids = op.input("ids", ir.DataType.INT64, ["N", "T"])
    steps = op.Range(np.array(0), op.size(ids, 1), np.array(1))
    module = backend.from_hub(op.model([ids], [op.output(op.Add(ids, op.Expand(op.Unsqueeze(steps, [0]), op.Shape(ids))), "y")]))
    traced = torch.jit.trace(module, (torch.zeros(2, 3, dtype=torch.int64),))
    assert traced(torch.zeros(3, 4, dtype=torch.int64)).tolist() == [[0, 1, 2, 3]] * 3

"""torch's control flow as ONNX control flow: cond, while_loop, scan, map; and vmap and autocast."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as mapped
from torch._higher_order_ops.scan import scan

from onnxbridge.frontends.pytorch.capture.runner import outputs_of
from tests.frontends.pytorch.compare import (
    assert_equal_outputs,
    check_against_pytorch,
    convert_to_onnx,
    feeds_of,
    onnxruntime_session,
    run_session,
)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
    torch._dynamo.reset()


class Chooses(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        y = torch.cond(x.sum() > 0, lambda x: self.a(x), lambda x: self.b(x).cos(), (x,))
        return torch.cond(x.shape[0] > 4, lambda y: y + 1, lambda y: y - 1, (y,))


def test_cond():
    x = torch.randn(4, 3)
    model = check_against_pytorch(Chooses(), (x,), {"x": {0: "n"}}, [(x.abs(),), (-x.abs(),), (torch.randn(7, 3),)])
    assert [n.op_type for n in model.graph].count("If") == 2
    assert "Reshape" not in [n.op_type for n in model.graph.all_nodes()], "conditions are scalars already"


class Repeats(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3)

    def forward(self, x):
        def body(i, y):
            return i + 1, self.a(y) + y * 2 + i

        return torch.while_loop(lambda i, y: (i < 9) & (y.abs().sum() < 50), body, (torch.tensor(0), x))


def test_while_loop():
    model = check_against_pytorch(
        Repeats(), (torch.randn(4, 3),), {"x": {0: "n"}}, [(torch.randn(7, 3) * 100,), (torch.zeros(1, 3),)]
    )
    assert [n.op_type for n in model.graph].count("Loop") == 1
    assert "Reshape" not in [n.op_type for n in model.graph.all_nodes()], "conditions are scalars already"


class Scans(nn.Module):
    def forward(self, x, h):
        def step(states, item):
            new = torch.tanh(states[0] + item)
            return [new, states[1] + 1], [new * 2, states[1] + new]

        return scan(step, [h, h * 0], x, dim=1, reverse=True)


def test_scan():
    given = (torch.randn(3, 6), torch.randn(3))
    model = check_against_pytorch(Scans(), given, {"x": {1: "time"}}, [(torch.randn(3, 9), torch.randn(3))])
    assert [n.op_type for n in model.graph].count("Scan") == 1


class Recurs(nn.Module):
    """A linear recurrence, as an associative scan over pairs."""

    def forward(self, x):
        def combine(a, b):
            return a[0] * b[0], b[0] * a[1] + b[1]

        return associative_scan(combine, (x.sigmoid(), x), dim=1, combine_mode="generic")[1]


class Largest(nn.Module):
    """The maximum so far, from the end."""

    def forward(self, x):
        return associative_scan(torch.maximum, x, dim=1, combine_mode="generic", reverse=True)


@pytest.mark.parametrize("module", [Recurs, Largest])
@pytest.mark.parametrize(("axis", "others"), [(1, [(3, 9), (3, 2)]), (0, [(4, 6)])])
def test_associative_scan(module, axis, others):
    model = check_against_pytorch(module(), (torch.randn(3, 6),), {"x": {axis: "n"}}, [(torch.randn(shape),) for shape in others])
    assert [n.op_type for n in model.graph].count("Scan") == 1


class Maps(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 2)

    def forward(self, x, y):
        return mapped(lambda item, y: self.a(item) + y, x, y)


def test_map():
    model = check_against_pytorch(
        Maps(), (torch.randn(5, 4, 3), torch.randn(2)), {"x": {0: "n"}}, [(torch.randn(2, 4, 3), torch.randn(2))]
    )
    assert [n.op_type for n in model.graph] == ["Scan"]


def test_vmap():
    class Each(nn.Module):
        def forward(self, x, w):
            return torch.vmap(lambda a, b: a @ b)(x, w)

    given = (torch.randn(5, 2, 3), torch.randn(5, 3, 4))
    model = check_against_pytorch(Each(), given, {"x": {0: "n"}, "w": {0: "n"}}, [(torch.randn(2, 2, 3), torch.randn(2, 3, 4))])
    assert [n.op_type for n in model.graph] == ["MatMul"]


class Branches(nn.Module):
    """Consecutive and nested vmaps with several results."""

    def forward(self, x, w):
        def one(x, w):
            a, b = torch.vmap(lambda a, b: (a @ b, a.sum()))(x, w)
            c = torch.vmap(torch.vmap(lambda a: a.cumsum(0) * 2))(a)
            return c + torch.vmap(lambda v: v + 1)(b)[:, None, None]

        return torch.cond(x.sum() > 0, one, lambda x, w: torch.vmap(torch.mul, in_dims=(1, None), out_dims=1)(x, 2.0) @ w, (x, w))


class Steps(nn.Module):
    """vmap in a branch in a loop, and vmap with an in-place write."""

    def forward(self, x, w):
        def body(i, y):
            def more(y):
                z = y.clone()
                torch.vmap(lambda row: row.mul_(2))(z)
                return z

            y = torch.cond(y.sum() > 0, more, lambda y: torch.vmap(lambda row: row.flip(0) - 1)(y), (y,))
            return i + 1, torch.vmap(torch.mv)(w, y)

        return torch.while_loop(lambda i, y: i < 3, body, (torch.tensor(0), x))


@pytest.mark.slow
@pytest.mark.parametrize(("module", "shape", "op"), [(Branches, (5, 2, 4), "If"), (Steps, (5, 4), "Loop")])
def test_vmap_in_control_flow(module, shape, op):
    def given(n, sign):
        return sign * torch.rand(n, *shape[1:]), torch.randn(n, 4, 4)

    others = [given(n, sign) for n in (2, 5) for sign in (1, -1)]
    model = check_against_pytorch(module(), given(5, 1), {"x": {0: "n"}, "w": {0: "n"}}, others)
    assert [n.op_type for n in model.graph].count(op) == 1
    program = torch.export.export(module(), given(5, 1))
    session, inputs = onnxruntime_session(convert_to_onnx(program)[1]), given(5, 1)  # PyTorch itself cannot run this program
    assert_equal_outputs(run_session(session, feeds_of(model, inputs)), outputs_of(module()(*inputs), ["x", "w"]))
    assert "_add_batch_dim" in str([list(m.graph.nodes) for m in program.graph_module.children()]), "the program is not modified"


def test_branches_under_vmap():
    class Each(nn.Module):
        def forward(self, x):
            return torch.vmap(lambda a: torch.cond(a.sum() > 0, torch.cos, torch.sin, (a,)))(x)

    check_against_pytorch(Each(), (torch.randn(5, 3),), {"x": {0: "n"}}, [(torch.randn(2, 3),)])


def test_autocast():
    class Casts(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4, bias=False)

        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.float16):
                y = self.a(x)
            return y.float() + x

    # float16 has 11 significant bits, and sums of four products are added in a different order
    check_against_pytorch(Casts(), (torch.randn(2, 4),), rtol=2.0**-9)

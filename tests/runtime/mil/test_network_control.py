"""Branches and loops of neural networks, with continue and break, compared with the same in Python."""

import numpy as np
import pytest

from onnxbridge.errors import UnsafeFileError
from onnxbridge.runtime.mil import Interpreter
from tests.runtime.mil.build import assert_hub_matches

from coremltools.models import datatypes  # isort: skip
from coremltools.models.neural_network import NeuralNetworkBuilder  # isort: skip


class Net:
    """Writes layers that update scalar blobs, like statements of a program."""

    def __init__(self, builder, spec=None):
        self.made, self.count = builder if spec is None else NeuralNetworkBuilder(nn_spec=spec, spec=None), [0]
        self.made.rank_dict = builder.rank_dict

    def name(self):
        self.count[0] += 1
        return f"t{self.count[0]}"

    def inner(self, spec, write):
        net = Net(self.made, spec)
        net.count = self.count
        write(net)

    def add(self, blob, value):
        """blob += value, a number or a blob"""
        sum_, number = self.name(), value
        if not isinstance(value, str):
            number = self.name()
            self.made.add_load_constant_nd(number, number, np.float32([value]), [1])
        self.made.add_add_broadcastable(sum_, [blob, number], sum_)
        self.made.add_copy(self.name(), sum_, blob)

    def greater(self, blob, value):
        """A blob that is 1 if blob > value, else 0."""
        name = self.name()
        self.made.add_greater_than(name, [blob], name, alpha=float(value))
        return name

    def branch(self, condition, then, other=None):
        layer = self.made.add_branch(self.name(), condition)
        self.inner(layer.branch.ifBranch, then)
        if other:
            self.inner(layer.branch.elseBranch, other)

    def loop(self, body, iterations=None, max_iterations=None):
        layer = self.made.add_loop(self.name(), input_name=max_iterations, max_iterations=iterations)
        self.inner(layer.loop.bodyNetwork, body)

    def exit(self, kind):
        getattr(self.made, f"add_loop_{kind}")(self.name())


def computed(write, **inputs):
    """The final value of `y` by the interpreter, which ONNX Runtime must match; `y`, `i` and `j` start at 0."""
    features = [(name, datatypes.Array(1)) for name in inputs]
    builder = NeuralNetworkBuilder(features, [("out", datatypes.Array(1))], disable_rank5_shape_mapping=True)
    for name in ("y", "i", "j"):
        builder.add_load_constant_nd(name, name, np.float32([0]), [1])
    write(Net(builder))
    builder.add_activation("out", "LINEAR", "y", "out", [1.0, 0.0])
    feeds = {k: np.float32([v]) for k, v in inputs.items()}
    found = Interpreter(builder.spec).run(feeds)
    assert_hub_matches(builder.spec, feeds, found)
    return found["out"].item()


def test_branch_without_else():
    def write(net):
        net.add("y", "x")
        net.branch(net.greater("x", 2), lambda net: net.add("y", 10))

    assert [computed(write, x=x) for x in (1, 3)] == [1, 13]


def test_dynamic_maximum_of_iterations():
    def write(net):
        net.loop(lambda net: net.add("y", 2), iterations=50, max_iterations="x")

    assert [computed(write, x=x) for x in (0, 1, 7)] == [0, 2, 14]


def exit_loop(kind, otherwise):
    """y += i for i up to 8, with `kind` if i > x, before or after the addition."""

    def body(net):
        net.add("i", 1)
        if otherwise:
            net.branch(net.greater("i", 3), lambda net: net.exit(kind), lambda net: net.add("j", 100))
        else:
            net.branch(net.greater("i", 3), lambda net: (net.add("j", 7), net.exit(kind)))
        net.add("y", "i")
        net.add("y", "x")

    def write(net):
        net.loop(body, iterations=8)
        net.add("y", "j")

    return write


@pytest.mark.parametrize(("kind", "otherwise", "want"), [
    ("break", False, 1 + 2 + 3 + 3 * 0.5 + 7), ("break", True, 6 + 1.5 + 300),
    ("continue", False, 6 + 1.5 + 5 * 7), ("continue", True, 6 + 1.5 + 300),
])  # fmt: skip
def test_continue_and_break(kind, otherwise, want):
    assert computed(exit_loop(kind, otherwise), x=0.5) == want


def python(x):
    y = i = 0
    for _ in range(6):
        i += 1
        j = 0
        for _ in range(5):
            j += 1
            if j > x:
                if i > 2:
                    break
                y += 100
                continue
            y += j
        if i > 4:
            break
        y += 1000
    return y


@pytest.mark.parametrize("x", [0, 2, 4, 9])
def test_nested_loops_with_breaks(x):
    def exceeds(net):
        net.branch(net.greater("i", 2), lambda net: net.exit("break"))
        net.add("y", 100)
        net.exit("continue")

    def inner(net):
        net.add("j", 1)
        found = net.name()
        net.made.add_greater_than(found, ["j", "x"], found)
        net.branch(found, exceeds)
        net.add("y", "j")

    def outer(net):
        net.add("i", 1)
        zero = net.name()
        net.made.add_load_constant_nd(zero, zero, np.float32([0]), [1])
        net.made.add_copy(net.name(), zero, "j")
        net.loop(inner, iterations=5)
        net.branch(net.greater("i", 4), lambda net: net.exit("break"))
        net.add("y", 1000)

    assert computed(lambda net: net.loop(outer, iterations=6), x=x) == python(x)


def test_break_outside_of_a_loop_raises():
    with pytest.raises(UnsafeFileError, match="exits a loop, but is not inside of one"):
        computed(lambda net: net.branch(net.greater("x", 0), lambda net: net.exit("break")), x=1)

"""Branches and loops of Core ML's networks, with the ways out of a loop, against the same in Python."""

import numpy as np
import pytest

from onnxbridge.errors import UnsafeFileError
from onnxbridge.runtime.mil import Interpreter
from tests.runtime.mil.build import agrees

from coremltools.models import datatypes  # isort: skip
from coremltools.models.neural_network import NeuralNetworkBuilder  # isort: skip


class Net:
    """Writes layers that change blobs of one number, as a program of statements."""

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

    def more(self, blob, value):
        """A blob that tells whether blob > value."""
        name = self.name()
        self.made.add_greater_than(name, [blob], name, alpha=float(value))
        return name

    def when(self, condition, then, other=None):
        layer = self.made.add_branch(self.name(), condition)
        self.inner(layer.branch.ifBranch, then)
        if other:
            self.inner(layer.branch.elseBranch, other)

    def loop(self, body, turns=None, most=None):
        layer = self.made.add_loop(self.name(), input_name=most, max_iterations=turns)
        self.inner(layer.loop.bodyNetwork, body)

    def leave(self, how):
        getattr(self.made, f"add_loop_{how}")(self.name())


def computed(write, **inputs):
    """The blob `y` after the statements, by the interpreter and by ONNX Runtime; it starts at 0, as do `i` and `j`."""
    features = [(name, datatypes.Array(1)) for name in inputs]
    builder = NeuralNetworkBuilder(features, [("out", datatypes.Array(1))], disable_rank5_shape_mapping=True)
    for name in ("y", "i", "j"):
        builder.add_load_constant_nd(name, name, np.float32([0]), [1])
    write(Net(builder))
    builder.add_activation("out", "LINEAR", "y", "out", [1.0, 0.0])
    feeds = {k: np.float32([v]) for k, v in inputs.items()}
    found = Interpreter(builder.spec).run(feeds)
    agrees(builder.spec, feeds, found)
    return found["out"].item()


def test_a_branch_without_another_way_changes_what_was_there():
    def write(net):
        net.add("y", "x")
        net.when(net.more("x", 2), lambda net: net.add("y", 10))

    assert [computed(write, x=x) for x in (1, 3)] == [1, 13]


def test_an_input_tells_the_most_turns_of_a_loop():
    def write(net):
        net.loop(lambda net: net.add("y", 2), turns=50, most="x")

    assert [computed(write, x=x) for x in (0, 1, 7)] == [0, 2, 14]


def leaving(how, otherwise):
    """y += i while i counts to 8, with `how` where i > x, before or behind what is added."""

    def body(net):
        net.add("i", 1)
        if otherwise:
            net.when(net.more("i", 3), lambda net: net.leave(how), lambda net: net.add("j", 100))
        else:
            net.when(net.more("i", 3), lambda net: (net.add("j", 7), net.leave(how)))
        net.add("y", "i")
        net.add("y", "x")

    def write(net):
        net.loop(body, turns=8)
        net.add("y", "j")

    return write


@pytest.mark.parametrize(("how", "otherwise", "want"), [
    ("break", False, 1 + 2 + 3 + 3 * 0.5 + 7), ("break", True, 6 + 1.5 + 300),
    ("continue", False, 6 + 1.5 + 5 * 7), ("continue", True, 6 + 1.5 + 300),
])  # fmt: skip
def test_a_turn_ends_where_it_is_left(how, otherwise, want):
    assert computed(leaving(how, otherwise), x=0.5) == want


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
def test_loops_in_loops_are_left_one_at_a_time(x):
    def past(net):
        net.when(net.more("i", 2), lambda net: net.leave("break"))
        net.add("y", 100)
        net.leave("continue")

    def inner(net):
        net.add("j", 1)
        found = net.name()
        net.made.add_greater_than(found, ["j", "x"], found)
        net.when(found, past)
        net.add("y", "j")

    def outer(net):
        net.add("i", 1)
        zero = net.name()
        net.made.add_load_constant_nd(zero, zero, np.float32([0]), [1])
        net.made.add_copy(net.name(), zero, "j")
        net.loop(inner, turns=5)
        net.when(net.more("i", 4), lambda net: net.leave("break"))
        net.add("y", 1000)

    assert computed(lambda net: net.loop(outer, turns=6), x=x) == python(x)


def test_leaving_no_loop_is_refused():
    with pytest.raises(UnsafeFileError, match="leaves a loop, and there is none"):
        computed(lambda net: net.when(net.more("x", 0), lambda net: net.leave("break")), x=1)



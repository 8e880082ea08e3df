"""The walker: binding, statics, failures that leave nothing out, expansions, bodies."""

from __future__ import annotations

import numpy as np
import pytest

from onnxbridge.errors import ConversionError, SourceLocation, Unsupported
from onnxbridge.lowering import Body, Call, Deferred, Ref, Schema, Target, lower, resolve
from onnxbridge.rules import Int, Ints, Outputs, Rules


class Direct(Target):
    """A target that computes at once, on Python values."""

    direction = "Test to Python"
    writer = "writer"

    def __init__(self, expansions=None):
        self.expansions = expansions or {}

    def static(self, key, value):
        return None if isinstance(value, str) else np.asarray(value)

    def decompose(self, call):
        return self.expansions.get(call.op)


def run(rules, calls, outputs, target=None, **values):
    values = dict(values)
    lower(calls, rules, values, target or Direct())
    return resolve([Ref(o) for o in outputs], values)


def call(op, *inputs, out="y", where=None, schema=None, **attrs):
    outs = out if isinstance(out, tuple) else (out,)
    inputs = tuple(Ref(i) if isinstance(i, str) else i for i in inputs)
    return Call(op, inputs, attrs, outs, where or SourceLocation(node=op), schema)


@pytest.fixture
def rules():
    rules = Rules("test")
    rules("Add")(lambda a, b: a + b)
    return rules


def test_values_flow_by_key(rules):
    assert run(rules, [call("Add", "x", "x", out="s"), call("Add", "s", 1)], ["y"], x=3) == [7]


def test_positions_are_bound_by_the_schemas_names(rules):
    @rules("aten::op")
    def op(self, *, beta=1):
        return (self, beta)[0] * beta

    schema = Schema(("self", "alpha", "beta"), {"alpha": 1, "beta": 1})
    assert run(rules, [call("aten::op", "x", 1, 5, schema=schema)], ["y"], x=2) == [10]
    with pytest.raises(ConversionError, match="alpha=2 is not supported"):
        run(rules, [call("aten::op", "x", 2, schema=schema)], ["y"], x=2)


def test_an_attribute_takes_the_type_of_the_rules_default(rules):
    seen = {}

    @rules("Pool")
    def pool(x, *, kernel=(1,), ceil=False, ratio=0.5, mode="max"):
        seen.update(kernel=kernel, ceil=ceil, ratio=ratio, mode=mode)
        return x

    run(rules, [call("Pool", "x", kernel=3, ceil=1, ratio=1, mode=None)], ["y"], x=0)
    assert seen == {"kernel": (3,), "ceil": True, "ratio": 1.0, "mode": "max"}
    assert isinstance(seen["ceil"], bool) and isinstance(seen["ratio"], float)


def test_statics_are_folded_or_reported(rules):
    @rules("Reshape")
    def reshape(x, shape: Ints, axis: Int | None = None):
        return shape, axis

    assert run(rules, [call("Reshape", "x", "s", out=("a", "b"))], ["a", "b"], x=0, s=np.array([2, 3])) == [(2, 3), None]
    with pytest.raises(ConversionError, match="input 'shape' must be known when converting"):
        run(rules, [call("Reshape", "x", "s")], ["y"], x=0, s="unknown")


def test_a_static_list_may_hold_values(rules):
    rules("view")(_view)
    assert run(rules, [Call("view", (Ref("x"), (Ref("n"), 4)), {}, ("y",))], ["y"], x=0, n=np.int64(2)) == [[2, 4]]


def _view(x, size: Ints):
    return list(size)


def test_outputs_tells_which_are_used(rules):
    @rules("MaxPool")
    def max_pool(x, *, outputs: Outputs):
        return ("pooled", "indices") if outputs[1:] == (True,) else "pooled"

    assert run(rules, [call("MaxPool", "x", out=("a", "b"))], ["b"], x=0) == ["indices"]
    assert run(rules, [call("MaxPool", "x", out=("a", None))], ["a"], x=0) == ["pooled"]


def test_every_problem_is_reported_once_with_all_its_places(rules):
    @rules("Half")
    def half(x):
        raise Unsupported("odd numbers", "double them first")

    @rules("Bug")
    def bug(x):
        return x.nothing

    calls = [
        call("Missing", "x", out="a", where=SourceLocation("net.py", 22, "Net.forward")),
        call("Half", "a", out="skipped"),  # depends on what failed: says nothing
        call("Missing", "a", out="b", where=SourceLocation("net.py", 30)),  # an operator without a rule is found all the same
        call("Half", "x", out="c", where=SourceLocation("net.py", 23)),
        call("Bug", "x", out="d"),
        call("Addd", "x", "x", out="e"),
    ]
    with pytest.raises(ConversionError) as caught:
        run(rules, calls, ["y"], x=1)
    text = str(caught.value)
    assert text.splitlines()[0] == "Test to Python: 4 operators cannot be converted"
    assert "Missing x2: no rule\n      at net.py:22 in Net.forward, and 1 more" in text
    assert "Half x1: odd numbers\n      at net.py:23\n      hint: double them first" in text
    assert "Bug x1: its rule failed: AttributeError" in text
    assert "Addd x1: no rule" in text and "hint: there are rules for Add" in text
    report = caught.value.as_dict()
    assert [p["op"] for p in report["problems"]] == ["Missing", "Half", "Bug", "Addd"]
    assert report["problems"][0]["count"] == 2 and report["problems"][0]["locations"][0]["line"] == 22


def test_too_few_results_are_a_problem(rules):
    rules("One")(lambda x: x)
    with pytest.raises(ConversionError, match="output 2 is used, but the rule returns 1"):
        run(rules, [call("One", "x", out=("a", "b"))], ["a"], x=1)


def test_what_has_no_rule_is_expanded(rules):
    body = Body(("a",), [call("Add", "a", "a", out="t"), call("Add", "t", "outer", out="u")], (Ref("u"),))
    target = Direct({"Triple": body})
    assert run(rules, [call("Triple", "x")], ["y"], target, x=5, outer=1) == [11]


def test_a_rule_that_refuses_gives_way_to_the_expansion(rules):
    rules("Twice")(_refuse)
    target = Direct({"Twice": Body(("a",), [call("Add", "a", "a", out="t")], (Ref("t"),))})
    assert run(rules, [call("Twice", "x")], ["y"], target, x=5) == [10]


def _refuse(x):
    raise Unsupported("never")


def test_an_expansion_that_fails_names_what_it_needs(rules):
    target = Direct({"Rare": Body(("a",), [call("Rarer", "a", out="t")], (Ref("t"),))})
    with pytest.raises(ConversionError, match=r"Rare x1: no rule, and its decomposition needs Rarer \(no rule\)"):
        run(rules, [call("Rare", "x")], ["y"], target, x=5)


def test_bodies_are_callables_that_see_outer_values(rules):
    @rules("If")
    def if_(cond, *, then_branch, else_branch):
        return then_branch() if cond else else_branch()

    branch = Body((), [call("Add", "x", 1, out="t")], (Ref("t"),))
    other = Body((), [], (Ref("x"),))
    calls = [call("If", "c", then_branch=branch, else_branch=other)]
    assert run(rules, calls, ["y"], x=5, c=True) == [6]
    assert run(rules, calls, ["y"], x=5, c=False) == [5]


def test_problems_inside_a_body_are_reported(rules):
    @rules("If")
    def if_(cond, *, then_branch, else_branch):
        return then_branch() if cond else else_branch()

    branch = Body((), [call("Nope", "x", out="t"), call("Nix", "x", out="u")], (Ref("t"),))
    with pytest.raises(ConversionError) as caught:
        run(rules, [call("If", "c", then_branch=branch, else_branch=branch)], ["y"], x=5, c=True)
    assert [p.op for p in caught.value.problems] == ["Nope", "Nix"]


def test_a_wrong_argument_is_reported_behind_a_failed_input(rules):
    rules("Half")(lambda x: x / 2)
    calls = [call("Missing", "x", out="a"), call("Half", "a", out="b", digits=3), call("Add", "a", out="c")]
    with pytest.raises(ConversionError) as caught:
        run(rules, calls, ["b"], x=1)
    reasons = [(p.op, p.reason) for p in caught.value.problems]
    assert reasons == [("Missing", "no rule"), ("Half", "digits=3 is not supported"), ("Add", "input 'b' is missing")]


def test_an_input_that_a_rule_does_not_name_is_reported_by_its_name(rules):
    rules("Half")(lambda x: x / 2)
    with pytest.raises(ConversionError, match="Half x1: input 'scale' is not supported"):
        run(rules, [call("Half", "x", "x", schema=Schema(("x", "scale")))], ["y"], x=1)


class Steps(Target):
    """A target that lists the calls of rules and runs none of them."""

    direction = "Test to steps"

    def __init__(self):
        self.steps = []

    def static(self, key, value):
        return np.array(value) if isinstance(value, int) else Deferred(value)

    def apply(self, rule, call, args, attrs):
        self.steps.append((call.op, args, attrs))
        return f"{call.op}_{len(self.steps)}"

    def body(self, body, rules, values):
        inner = Steps()
        lower(body.calls, rules, values, inner)
        return tuple(inner.steps)

    def decompose(self, call):
        doubled = Call("Add", (Ref("a"), Ref("a")), {}, ("t",))
        return Body(("a",), [doubled], (Ref("t"),)) if call.op == "Double" else None


def test_a_target_may_keep_calls_for_later(rules):
    @rules("Reshape")
    def reshape(x, shape: Ints, *, axis: Int = 0): ...

    @rules("If")
    def if_(condition, *, then_branch): ...

    target, values = Steps(), {"x": "x", "two": 2, "n": "n"}
    branch = Body((), [call("Add", "x", "d", out="e")], (Ref("e"),))
    calls = [call("Double", "x", out="d"), call("Reshape", "d", "two", axis=Ref("two")), call("Reshape", "x", "n")]
    lower([*calls, call("If", "x", then_branch=branch)], rules, values, target)
    assert target.steps == [
        ("Add", ["x", "x"], {}),
        ("Reshape", ["Add_1", (2,)], {"axis": 2}),
        ("Reshape", ["x", Deferred("n", "ints", "shape")], {"axis": 0}),
        ("If", ["x"], {"then_branch": (("Add", ["x", "Add_1"], {}),)}),
    ]

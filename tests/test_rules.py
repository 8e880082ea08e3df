"""The rule tables: what a signature says, and what is refused when a rule is registered."""

from __future__ import annotations

import pytest

from onnxbridge.rules import Floats, Ints, Outputs, Rules, no_rule


def test_a_signature_tells_inputs_attributes_and_statics():
    rules = Rules("test", writer=True)

    @rules("Op", limits="2-D only", needs="iOS17")
    def op(write, data, shape: Ints, scale: Floats | None = None, *rest, mode="linear", outputs: Outputs):
        return data

    params = {p.name: p for p in rules["Op"].params}
    assert list(params) == ["data", "shape", "scale", "rest", "mode", "outputs"]
    assert [p.form for p in params.values()] == ["", "ints", "floats", "", "", "outputs"]
    assert params["rest"].variadic and params["mode"].keyword and params["mode"].default == "linear"
    assert (rules["Op"].limits, rules["Op"].needs) == ("2-D only", "iOS17")


def test_two_rules_for_one_operator_are_refused():
    rules = Rules("test")
    rules("Relu")(lambda x: x)
    with pytest.raises(ValueError, match="two rules for Relu"):
        rules("Relu")(lambda x: -x)


def test_a_table_takes_inputs_as_they_come():
    rules = Rules("test")
    rules.table(Abs=abs)
    (param,) = rules["Abs"].params
    assert rules["Abs"].lower is abs and param.variadic


def test_a_mapping_in_the_order_of_names():
    rules = Rules("test")
    rules("B", "A")(lambda x: x)
    assert list(rules) == ["A", "B"] and len(rules) == 2 and "C" not in rules


def test_an_operator_can_say_why_it_has_no_rule():
    rules = Rules("t")
    rules("Tanh")(lambda x: x)
    rules.unsupported("Tan", "Cot", reason="it has poles", hint="use Tanh")
    assert (no_rule("Tan", rules).reason, no_rule("Tan", rules).hint) == ("it has poles", "use Tanh")
    assert (no_rule("Tanhh", rules).reason, no_rule("Tanhh", rules).hint) == ("no rule", "there are rules for Tanh")
    rules("Cot")(lambda x: x)
    assert rules.reasons() == {"Tan": "it has poles"}

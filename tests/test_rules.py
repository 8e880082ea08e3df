"""The rule tables: what a signature says, and what is refused when a rule is registered."""

from __future__ import annotations

import onnx
import pytest

from onnxbridge.backends.coreml.ops import rule as coreml
from onnxbridge.backends.mxnet.ops import rule as mxnet
from onnxbridge.backends.pytorch.ops import rule as pytorch
from onnxbridge.backends.tensorflow.ops import all_rules as tensorflow
from onnxbridge.hub.decompositions.standard import decompose
from onnxbridge.hub.ir.schemas import schema_of
from onnxbridge.rules import Floats, Ints, Outputs, Rules, no_rule
from onnxbridge.runtime.executor.numpy.ops import rule as executor


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


@pytest.mark.parametrize("target", ["executor", "decompositions", "pytorch", "tensorflow", "mxnet", "coreml"])
def test_defaults_of_attributes_are_those_of_the_standard(target):
    """In float32: 1e-5 is 9.999999747378752e-06, which matters where a model computes in float64."""
    own = {"executor": executor, "decompositions": decompose, "pytorch": pytorch, "mxnet": mxnet, "coreml": coreml}
    rules = tensorflow() if target == "tensorflow" else own[target]
    compared = 0
    for op in rules:
        domain, _, name = op.rpartition("::")
        try:
            attributes = schema_of(name, domain).attributes
        except ValueError:  # of another organization
            continue
        for param in rules[op].params:
            attribute = attributes.get(param.name)
            if attribute is None or not isinstance(param.default, float) or attribute.default_value.type == 0:
                continue
            assert param.default == onnx.helper.get_attribute_value(attribute.default_value), (op, param.name)
            compared += 1
    assert compared > 10

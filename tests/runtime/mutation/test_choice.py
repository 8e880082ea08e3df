"""Every beginning of the order of faults is spread over kinds and depth."""

from __future__ import annotations

import pytest

from onnxbridge.diagnostics import SourceLocation
from onnxbridge.runtime.mutation.choice import spread
from onnxbridge.runtime.mutation.fault import Fault, InputsSwapped


def fault(kind, depth):
    return Fault(kind, f"n{depth}", f"n{depth}", "Sub", "", SourceLocation(), InputsSwapped(0, depth))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, 100])
def test_the_order_has_every_fault_once(count):
    faults = [fault("weight scaled", i) for i in range(count)]
    assert sorted(spread(faults), key=faults.index) == faults


def test_kinds_take_turns():
    faults = [fault("weight scaled", i) for i in range(50)] + [fault("mode", i) for i in range(2)]
    first = list(spread(faults))[:4]
    assert [f.kind for f in first] == ["weight scaled", "mode"] * 2


def test_a_beginning_is_spread_over_the_depth():
    faults = [fault("axis", i) for i in range(80)]
    first = sorted(faults.index(f) for f in list(spread(faults))[:7])
    assert first == [10, 20, 30, 40, 50, 60, 70]

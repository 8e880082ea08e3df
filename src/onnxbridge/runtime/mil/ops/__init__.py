"""Rules: Core ML's MIL operators in NumPy, by MIL's own names of operators and parameters.

Where an operator changed between versions of the opset, its rule takes the parameters of all of them.
float16 tensors reach a rule as float32, and its result is rounded to float16, unless the operator only moves values.
"""

from collections.abc import Sequence
from typing import Any

from onnxbridge.rules import Rules

Values = Sequence[Any]
"""Several values; any other parameter is one value."""

rule = Rules("runtime.mil", package=__name__)

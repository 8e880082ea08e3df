"""Rules: MIL operators in NumPy, by MIL's names of operators and parameters.

If an operator changed between opset versions, its rule takes the parameters of all versions. Rules get float16 tensors as
float32, and their results are rounded to float16, unless the operator only moves values.
"""

from collections.abc import Sequence
from typing import Any

from onnxbridge.rules import Rules

Values = Sequence[Any]
"""A parameter that is a tuple of values; all others are a single value."""

rule = Rules("runtime.mil", package=__name__)

"""Lowering rules: model types to MIL operators, by the names of types and parameters in the specification.

The inputs are the model's, in the order of its description: float64 or int64 vectors and scalars, or strings. A classifier
returns the probabilities of its classes. Parameters that are missing in the file have the specification's defaults.
"""

from onnxbridge.rules import Rules

rule = Rules("runtime.mil.estimators", package=__name__, writer=True)
"""These models compute in float64, as Core ML does."""

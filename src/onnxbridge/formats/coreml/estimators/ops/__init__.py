"""The kinds of models in MIL operators, by the names of kinds and parameters in the specification.

The inputs are the model's, in the order of its description: vectors and scalars of float64 or int64, or texts. A classifier
gives the probabilities of its classes. A parameter that the file does not give has the specification's default.
"""

from onnxbridge.rules import Rules

rule = Rules("runtime.mil.estimators", package=__name__, writer=True)
"""Such models compute in float64, as Core ML does."""

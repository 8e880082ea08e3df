"""The layers of Core ML's neural networks in MIL operators, by the names of layers and parameters in the specification.

A parameter that the file does not give has the specification's default. `mil.exact` tells whether blobs have their own ranks;
where not, they have the axes (sequence, channels, height, width).
"""

from onnxbridge.rules import Rules

rule = Rules("runtime.mil.network", package=__name__, writer=True)

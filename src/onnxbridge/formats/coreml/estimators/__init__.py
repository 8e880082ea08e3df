"""Reads classical machine learning models (trees, linear models, scalers, ...) as MIL programs.

The interpreter, the frontend and pipelines then need rules for MIL only.
"""

from onnxbridge.formats.coreml.estimators.reader import UNSUPPORTED, function, keys

__all__ = ["UNSUPPORTED", "function", "keys"]

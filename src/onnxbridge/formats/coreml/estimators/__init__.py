"""Core ML's models of classical machine learning (trees, linear models, scalers, ...), read as programs of MIL operators.

So the interpreter runs them, the frontend converts them, and a pipeline holds them beside networks, all by one set of rules.
"""

from onnxbridge.formats.coreml.estimators.reader import REFUSED, function, keys

__all__ = ["REFUSED", "function", "keys"]

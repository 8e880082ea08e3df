"""An interpreter of MIL, the intermediate language of Core ML programs, so that they can be verified without a Mac."""

from onnxbridge.runtime.mil.interpreter import Interpreter

__all__ = ["Interpreter"]

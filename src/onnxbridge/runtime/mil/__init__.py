"""An interpreter of MIL, the language of Core ML programs, so that they can be checked without a Mac."""

from onnxbridge.runtime.mil.interpreter import Interpreter

__all__ = ["Interpreter"]

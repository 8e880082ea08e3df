"""The Python API: `convert`, `verify`, `check`, `load` and `explain`. The command line calls these functions too."""

from onnxbridge.api._check import check, explain
from onnxbridge.api._conversion import Conversion
from onnxbridge.api._convert import convert
from onnxbridge.api._load import load
from onnxbridge.api._verify import verify

__all__ = ["Conversion", "check", "convert", "explain", "load", "verify"]

"""The Python API: `convert`, `verify`, `bisect`, `check`, `diff`, `load` and `explain`, which the command line calls too."""

from onnxbridge.api._bisect import bisect
from onnxbridge.api._check import check, explain
from onnxbridge.api._conversion import Conversion
from onnxbridge.api._convert import convert
from onnxbridge.api._diff import diff
from onnxbridge.api._load import load
from onnxbridge.api._verify import verify
from onnxbridge.runtime.bisect.bisection import Bisection

__all__ = ["Bisection", "Conversion", "bisect", "check", "convert", "diff", "explain", "load", "verify"]

"""The Python API: `convert`, `verify`, `bisect`, `round_trip`, `check`, `diff`, `load` and `explain`."""

from onnxbridge.api._bisect import bisect
from onnxbridge.api._check import check, explain, problems_by_target
from onnxbridge.api._conversion import Conversion
from onnxbridge.api._convert import convert
from onnxbridge.api._diff import diff
from onnxbridge.api._load import load
from onnxbridge.api._round_trip import RoundTrip, Step, round_trip
from onnxbridge.api._source_model import SourceModel
from onnxbridge.api._verify import verify
from onnxbridge.runtime.bisect.bisection import Bisection

__all__ = [
    "Bisection", "Conversion", "RoundTrip", "SourceModel", "Step", "bisect", "check", "convert", "diff", "explain", "load",
    "problems_by_target", "round_trip", "verify",
]  # fmt: skip

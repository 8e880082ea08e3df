"""Runs models in MXNet 1.9.1, in a second interpreter.

MXNet is retired and requires numpy below 1.24, so it has its own environment (`environment.py`). Files are read and
written without it.
"""

from onnxbridge.runtime.mxnet.client import Service, service
from onnxbridge.runtime.mxnet.environment import python

__all__ = ["Service", "python", "service"]

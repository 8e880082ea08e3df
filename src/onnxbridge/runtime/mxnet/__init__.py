"""Runs models in MXNet 1.9.1, in a second interpreter.

MXNet is retired and requires numpy below 1.24, so it has its own environment; ONNXBRIDGE_MXNET_PYTHON is the path of its
interpreter. Files are read and written without MXNet.
"""

from onnxbridge.runtime.mxnet.client import Service, python, service

__all__ = ["Service", "python", "service"]

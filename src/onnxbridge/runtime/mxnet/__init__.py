"""MXNet 1.9.1 in a second interpreter, which runs models.

MXNet is retired and needs numpy below 1.24, so it lives in an environment of its own, which the variable
ONNXBRIDGE_MXNET_PYTHON names. Files are read and written without it.
"""

from onnxbridge.runtime.mxnet.client import Service, python, service

__all__ = ["Service", "python", "service"]

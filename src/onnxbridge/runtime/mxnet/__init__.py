"""MXNet 1.9.1 in a second interpreter, and what both plugins know of its files: its dtypes.

MXNet is retired and needs numpy below 1.24, so it lives in an environment of its own, which the variable
ONNXBRIDGE_MXNET_PYTHON names. Files are read and written without it; it only runs models.
"""

from onnxbridge.formats.mxnet.dtypes import FLAGS, dtype_named
from onnxbridge.runtime.mxnet.client import Service, python, service

__all__ = ["FLAGS", "Service", "dtype_named", "python", "service"]

"""Canonical forms: what sources write out in several operators is recognized and becomes the one operator that it is.

A module here has the forms of one family; each is a pattern and a function that writes the operator, registered with `form`.
"""

from __future__ import annotations

from onnxbridge.hub.patterns import attention, gelu, norms, softplus, swish
from onnxbridge.hub.patterns.forms import canonicalize

__all__ = ["attention", "canonicalize", "gelu", "norms", "softplus", "swish"]

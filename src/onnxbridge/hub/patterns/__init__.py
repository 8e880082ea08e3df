"""Recognizes decomposed operators in a graph and replaces them by the operator (Gelu, LayerNormalization, Attention, ...).

Each module has the patterns of one family of operators and the functions that build them, registered with `form`.
"""

from __future__ import annotations

from onnxbridge.hub.patterns import attention, batch_norm, gelu, norms, prelu, softplus, swish
from onnxbridge.hub.patterns.forms import canonicalize

__all__ = ["attention", "batch_norm", "canonicalize", "gelu", "norms", "prelu", "softplus", "swish"]

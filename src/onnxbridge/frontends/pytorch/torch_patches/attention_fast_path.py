"""Patch: no fused kernels for whole attention layers when a source is run as the reference."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from onnxbridge import frameworks


# Checked on PyTorch 2.13.0: the fast path of nn.TransformerEncoderLayer returns NaN for fully padded rows.
@contextlib.contextmanager
def without_attention_fast_path() -> Iterator[None]:
    """Disable the fused kernels for whole attention layers, which no trace contains.

    For fully padded rows they return NaN, where the operators that the layers' code calls return 0.
    """
    mha = frameworks.torch().backends.mha
    before = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        mha.set_fastpath_enabled(before)

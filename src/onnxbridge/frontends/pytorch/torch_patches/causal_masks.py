"""Patch: masks of nn.Transformer, nn.TransformerEncoder and nn.TransformerDecoder."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from onnxbridge.frontends.pytorch.torch_patches.target import Target, replaced

# Checked on PyTorch 2.13.0: without a hint, the layers compare a mask with the causal one, which a trace cannot: its result is a
# Python bool that depends on data.
TARGETS = (Target("torch.nn.modules.transformer", "_detect_is_causal_mask", ("mask", "is_causal", "size")),)


def masks_without_detection() -> contextlib.AbstractContextManager[None]:
    """Add masks as they are; whether one is causal decides only which kernel PyTorch uses."""
    return replaced(TARGETS[0], _only_hints)


def _only_hints(original: Callable[..., Any]) -> Callable[..., Any]:
    def is_causal_mask(mask: Any, is_causal: Any = None, size: Any = None) -> bool:
        return is_causal is True

    return is_causal_mask

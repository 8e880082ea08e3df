"""Reports patches that do not apply to the installed release of PyTorch (they were checked on PyTorch 2.13.0)."""

from __future__ import annotations

from onnxbridge.frontends.pytorch.torch_patches import (
    associative_scan,
    causal_masks,
    packed_sequences,
    symbolic_len,
    torchvision_detection,
)  # fmt: skip

_TARGETS = (*associative_scan.TARGETS, *causal_masks.TARGETS, *packed_sequences.TARGETS, *symbolic_len.TARGETS,
            *torchvision_detection.TARGETS)  # fmt: skip


def not_applied() -> list[str]:
    """The targets in imported modules that differ from what the patches rely on."""
    return [f"{t.module}.{t.name}" for t in _TARGETS if t.is_imported() and not t.applies()]

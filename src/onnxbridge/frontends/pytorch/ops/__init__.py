"""Rules from ATen operators, as torch.export emits them, to ONNX; names and parameters are those of the ATen schemas."""

from __future__ import annotations

from onnxbridge.rules import Rules

rule = Rules("frontends.pytorch", package=__name__, writer=True)

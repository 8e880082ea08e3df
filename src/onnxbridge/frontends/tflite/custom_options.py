"""The options of custom operators."""

from __future__ import annotations

from typing import Any

from onnxbridge.errors import Unsupported


def options_of(content: bytes) -> dict[str, Any]:
    """The operator's options, which are a map in FlexBuffers."""
    from flatbuffers import flexbuffers  # type: ignore[import-untyped]  # it has no annotations

    try:
        found = flexbuffers.Loads(content)
    except Exception as error:
        raise Unsupported(f"options that are damaged ({type(error).__name__})", "get the file again") from error
    if not isinstance(found, dict):
        raise Unsupported("options that are no map", "get the file again")
    return found


def transposed_conv_options(content: bytes) -> tuple[str, int, int]:
    """The padding and the strides (width, height) of MediaPipe's transposed convolution, from C's TfLiteTransposeConvParams."""
    kind, stride_w, stride_h = (int.from_bytes(content[i : i + 4], "little") for i in (0, 4, 8))
    if kind not in (1, 2) or len(content) < 12:
        raise Unsupported(f"the padding {kind}")
    return "SAME" if kind == 1 else "VALID", stride_w, stride_h

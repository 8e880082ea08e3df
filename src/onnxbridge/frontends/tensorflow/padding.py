"""Padding of TensorFlow's convolutions and pools as ONNX attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow import sizes
from onnxbridge.frontends.tensorflow.channels_last import channels_last

Window = dict[str, Any]


def window(
    x: Any, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], padding: str,
    explicit: Sequence[int] = (), data_format: str = "NHWC",
) -> Window:  # fmt: skip
    """The attributes of an ONNX convolution or pool over `x` (channels first): strides, dilations, and pads or auto_pad.

    Dilations of 1 are left out: ONNX Runtime cannot load a quantized AveragePool that has them.
    """
    found: Window = {"strides": list(strides)} | ({"dilations": list(dilations)} if any(d != 1 for d in dilations) else {})
    if padding == "VALID":
        return found
    if padding == "EXPLICIT":
        pairs = [tuple(explicit[i : i + 2]) for i in range(0, len(explicit), 2)]
        channel = len(pairs) - 1 if channels_last(data_format) else 1
        if any(pairs[0]) or any(pairs[channel]):
            raise Unsupported("explicit padding of the batch or channel axis")
        pairs = [p for i, p in enumerate(pairs) if i not in (0, channel)]
        return found | {"pads": [p[0] for p in pairs] + [p[1] for p in pairs]}
    all_totals = [same_total(size, k, s, d) for size, k, s, d in zip(list(x.shape)[2:], kernel, strides, dilations, strict=True)]
    totals = [t for t in all_totals if t is not None]
    if len(totals) < len(all_totals):
        if any(d != 1 for d in dilations):
            raise Unsupported(
                "padding SAME with strides and dilations requires a static input size", "give the input a fixed height and width"
            )
        return found | {"auto_pad": "SAME_UPPER"}
    return found | {"pads": [t // 2 for t in totals] + [t - t // 2 for t in totals]}


def same_total(size: Any, kernel: int, stride: int, dilation: int) -> int | None:
    """The total padding of SAME along an axis; None if it depends on an unknown size."""
    extent = (kernel - 1) * dilation + 1
    if isinstance(size, int):
        return max((-(-size // stride) - 1) * stride + extent - size, 0)
    return max(extent - 1, 0) if stride == 1 else 0 if extent == 1 else None


def padded(
    op: Any, x: Any, kernel: Sequence[Any], strides: Sequence[int], dilations: Sequence[int], padding: str,
    explicit: Sequence[int] = (), data_format: str = "NHWC",
) -> tuple[Any, Window]:  # fmt: skip
    """The input and the attributes of a convolution.

    The input is padded where ONNX has no attribute for it: with padding SAME, if its size is dynamic and there are dilations, or
    if the size of the kernel is dynamic.
    """
    dynamic = any(not isinstance(s, int) for s in (*list(x.shape)[2:], *kernel))
    if padding != "SAME" or not dynamic or (all(d == 1 for d in dilations) and all(isinstance(k, int) for k in kernel)):
        return x, window(x, kernel, strides, dilations, padding, explicit, data_format)
    around = [
        sizes.same_padding(op, op.size(x, i + 2), k, s, d)[1:]
        for i, (k, s, d) in enumerate(zip(kernel, strides, dilations, strict=True))
    ]
    pads = op.dims([0, 0, *(p[0] for p in around), 0, 0, *(p[1] for p in around)])
    return op.Pad(x, pads), {"strides": list(strides), "dilations": list(dilations)}

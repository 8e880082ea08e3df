"""Convolutions as Keras layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from onnxbridge.backends.tensorflow.functional.expressions import Expression
from onnxbridge.backends.tensorflow.functional.values import dims, dtype_config, is_float, is_weight, sizes_of, weight
from onnxbridge.backends.tensorflow.layers import last, layer
from onnxbridge.hub.builder.auto_pad import explicit_pads


def padding_of(
    auto_pad: str, pads: Any, sizes: Sequence[int | None], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[str, list[tuple[int, int]]] | None:
    """Keras's `padding`, and the amounts to pad before; None where they cannot be told."""
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if auto_pad == "SAME_UPPER":
        return "same", []
    known = all(s == 1 or n is not None for s, n in zip(strides, sizes, strict=True))
    if auto_pad == "SAME_LOWER" and not known:
        return None
    before, after = explicit_pads(auto_pad, pads, sizes, kernel, strides, dilations)
    if not any(before) and not any(after):
        same = all(e == 1 and s == 1 for e, s in zip(extents, strides, strict=True))
        return ("same" if same and any(k > 1 for k in kernel) else "valid"), []
    if known and (before, after) == explicit_pads("SAME_UPPER", None, sizes, kernel, strides, dilations):
        return "same", []
    if min(*before, *after) < 0:
        return None
    return "valid", list(zip(before, after, strict=True))


def zeros_around(x: Any, pads: Sequence[tuple[int, int]], like: ir.Value) -> Any:
    """The input with its spatial dimensions padded by zeros."""
    if not pads:
        return x
    even = [one(p) for p in pads]
    amounts = pads[0] if len(pads) == 1 else tuple(pads) if any(isinstance(e, tuple) for e in even) else one(even)
    return Expression(f"ZeroPadding{len(pads)}D", (x,), {"padding": amounts, **dtype_config(like)})


def one(values: Sequence[int]) -> Any:
    """A single number if all values are equal, as users write it."""
    return values[0] if len(set(values)) == 1 else tuple(values)


@layer(last("Conv"))
def conv(
    node: ir.Node, X: ir.Value, W: ir.Value, B: ir.Value | None = None, *, auto_pad: str = "NOTSET", dilations: Any = None,
    group: int = 1, kernel_shape: Any = None, pads: Any = None, strides: Any = None,
) -> Expression | None:  # fmt: skip
    spatial, channels = len(dims(X)) - 2, dims(X)[-1]
    if not is_float(X, W) or not is_weight(W) or (B is not None and not is_weight(B)) or channels is None:
        return None
    out, inner, *kernel = sizes_of(W)
    strides, dilations = strides or (1,) * spatial, dilations or (1,) * spatial
    padding = padding_of(auto_pad, pads, dims(X)[1:-1], kernel, strides, dilations)
    if padding is None or inner * group != channels or (max(strides) > 1 and max(dilations) > 1):
        return None
    config = {
        "kernel_size": one(kernel), "strides": one(strides), "padding": padding[0], "dilation_rate": one(dilations),
        "use_bias": B is not None, **dtype_config(X),
    }  # fmt: skip
    config = {k: v for k, v in config.items() if (k, v) not in (("strides", 1), ("dilation_rate", 1), ("use_bias", True))}
    config = {k: v for k, v in config.items() if (k, v) != ("padding", "valid")}
    biases = () if B is None else (weight(B),)
    order = [*range(2, spatial + 2), 1, 0]
    inputs = (zeros_around(X, padding[1], X),)
    if group > 1 and inner == 1 and spatial <= 2 and len(set(strides)) == 1:
        multiplier = out // group
        settings = {**config, **({} if multiplier == 1 else {"depth_multiplier": multiplier})}
        kernels = weight(W, [*range(2, spatial + 2), 0, 1], [*kernel, channels, multiplier])
        return Expression(f"DepthwiseConv{spatial}D", inputs, settings, (kernels, *biases))
    if group > 1 and X.dtype != ir.DataType.FLOAT:
        return None
    settings = {"filters": out, **config, **({} if group == 1 else {"groups": group})}
    return Expression(f"Conv{spatial}D", inputs, settings, (weight(W, order), *biases))


@layer(last("ConvTranspose"))
def conv_transpose(
    node: ir.Node, X: ir.Value, W: ir.Value, B: ir.Value | None = None, *, auto_pad: str = "NOTSET", dilations: Any = None,
    group: int = 1, kernel_shape: Any = None, output_padding: Any = None, output_shape: Any = None, pads: Any = None,
    strides: Any = None,
) -> Expression | None:  # fmt: skip
    spatial = len(dims(X)) - 2
    if not is_float(X, W) or not is_weight(W) or (B is not None and not is_weight(B)) or output_shape is not None:
        return None
    inside, out, *kernel = sizes_of(W)
    strides, extra = strides or (1,) * spatial, output_padding or (0,) * spatial
    if group != 1 or set(dilations or (1,)) != {1} or any(k < s for k, s in zip(kernel, strides, strict=True)):
        return None
    if dims(X)[-1] != inside:
        return None
    total = [k - s for k, s in zip(kernel, strides, strict=True)]
    if auto_pad.startswith("SAME"):
        if auto_pad == "SAME_LOWER" and any(t % 2 for t in total):
            return None
        before, after = [t // 2 for t in total], [t - t // 2 for t in total]
    else:
        pads = pads if pads and auto_pad != "VALID" else (0,) * (2 * spatial)
        before, after = list(pads[:spatial]), [a - e for a, e in zip(pads[spatial:], extra, strict=True)]
    same = any(total) and before == [t // 2 for t in total] and after == [t - t // 2 for t in total]
    if min(*before, *after) < 0:
        return None
    config: dict[str, Any] = {"filters": out, "kernel_size": one(kernel), "strides": one(strides), **dtype_config(X)}
    if B is None:
        config["use_bias"] = False
    if same:
        config["padding"] = "same"
    weights = (weight(W, [*range(2, spatial + 2), 1, 0]), *(() if B is None else (weight(B),)))
    made = Expression(f"Conv{spatial}DTranspose", (X,), config, weights)
    if same or not any((*before, *after)):
        return made
    amounts = list(zip(before, after, strict=True))
    cropping = amounts[0] if spatial == 1 else tuple(amounts)
    return Expression(f"Cropping{spatial}D", (made,), {"cropping": cropping, **dtype_config(X)})

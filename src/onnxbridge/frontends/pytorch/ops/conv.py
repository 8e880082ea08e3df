"""Convolutions."""

from onnxbridge.frontends.pytorch.ops import rule


def per_axis(value, rank):
    """One number per spatial axis, from one number or `rank` numbers."""
    value = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return value * rank if len(value) == 1 else value


def with_batch_axis(op, x, rank, compute):
    """Apply `compute` to x with a batch axis, which PyTorch's layers allow inputs to omit."""
    if len(x.shape) == rank + 2:
        return compute(x)
    y = compute(op.Unsqueeze(x, [0]))
    return op.Squeeze(y, [0])


def convolve(op, input, weight, bias, stride, padding, dilation, groups):
    rank = len(weight.shape) - 2
    pads = list(per_axis(padding, rank))
    return with_batch_axis(op, input, rank, lambda x: op.Conv(
        x, weight, bias, strides=per_axis(stride, rank), pads=pads + pads, dilations=per_axis(dilation, rank), group=groups
    ))  # fmt: skip


@rule("aten::conv1d", "aten::conv2d", "aten::conv3d")
def conv(op, input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    return convolve(op, input, weight, bias, stride, padding, dilation, groups)


@rule("aten::conv1d.padding", "aten::conv2d.padding", "aten::conv3d.padding")
def conv_padding(op, input, weight, bias=None, stride=1, padding="valid", dilation=1, groups=1):
    rank = len(weight.shape) - 2
    if padding == "valid":
        return convolve(op, input, weight, bias, stride, 0, dilation, groups)
    total = [d * (k - 1) for d, k in zip(per_axis(dilation, rank), list(weight.shape)[2:], strict=True)]
    pads = [t // 2 for t in total] + [t - t // 2 for t in total]
    return with_batch_axis(op, input, rank, lambda x: op.Conv(
        x, weight, bias, strides=per_axis(stride, rank), pads=pads, dilations=per_axis(dilation, rank), group=groups
    ))  # fmt: skip


def convolve_transposed(op, input, weight, bias, stride, padding, output_padding, groups, dilation):
    rank = len(weight.shape) - 2
    pads = list(per_axis(padding, rank))
    output_pads = per_axis(output_padding, rank)
    # ONNX requires output_padding < stride: what exceeds it is subtracted from the end padding
    ends = [p - e for p, e in zip(pads, output_pads, strict=True)]
    excess = [max(0, -e) for e in ends]

    def lower(x):
        y = op.ConvTranspose(
            x, weight, None if any(excess) else bias, strides=per_axis(stride, rank), pads=pads + [max(0, e) for e in ends],
            dilations=per_axis(dilation, rank), group=groups,
        )  # fmt: skip
        if not any(excess):
            return y
        # elements beyond the last window are 0 plus the bias
        y = op.Pad(y, [0] * (rank + 4) + excess)
        return y if bias is None else op.Add(y, op.reshape(bias, [-1] + [1] * rank))

    return with_batch_axis(op, input, rank, lower)


@rule("aten::conv_transpose1d", "aten::conv_transpose2d.input", "aten::conv_transpose3d.input")
def conv_transpose(op, input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    return convolve_transposed(op, input, weight, bias, stride, padding, output_padding, groups, dilation)


@rule("aten::convolution")
def convolution(op, input, weight, bias, stride, padding, dilation, transposed_, output_padding, groups):
    if transposed_:
        return convolve_transposed(op, input, weight, bias, stride, padding, output_padding, groups, dilation)
    return convolve(op, input, weight, bias, stride, padding, dilation, groups)

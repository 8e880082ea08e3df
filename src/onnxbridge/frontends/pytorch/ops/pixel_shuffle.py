"""Rearrangements between channels and pixels."""

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.shape import rank, sizes


@rule("aten::pixel_shuffle")
def pixel_shuffle(op, self, upscale_factor):
    x = self if rank(self) == 4 else op.reshape(self, [1, *sizes(op, self)][-4:]) if rank(self) == 3 else None
    if x is None:
        raise Unsupported("pixel_shuffle of more than one batch axis")
    y = op.DepthToSpace(x, blocksize=upscale_factor, mode="CRD")
    return y if x is self else op.Squeeze(y, [0])


@rule("aten::pixel_unshuffle")
def pixel_unshuffle(op, self, downscale_factor):
    r = downscale_factor
    if rank(self) < 3:
        raise Unsupported("pixel_unshuffle of fewer than 3 axes")
    *lead, c, h, w = sizes(op, self)
    channels = c * r * r if isinstance(c, int) else op.Mul(c, r * r)
    down, across = (v // r if isinstance(v, int) else op.Div(v, r) for v in (h, w))
    n = len(lead)
    x = op.reshape(self, [*lead, c, down, r, across, r])
    x = op.Transpose(x, perm=[*range(n), n, n + 2, n + 4, n + 1, n + 3])
    return op.reshape(x, [*lead, channels, down, across])


@rule("aten::channel_shuffle", "aten::native_channel_shuffle")
def channel_shuffle(op, self, groups):
    n, c, *rest = sizes(op, self)
    x = op.reshape(self, [n, groups, c // groups if isinstance(c, int) else op.Div(c, groups), *rest])
    order = [0, 2, 1, *range(3, 3 + len(rest))]
    return op.reshape(op.Transpose(x, perm=order), [n, c, *rest])

"""Image sampling, cropping, decoding and non-maximum suppression."""

from __future__ import annotations

import io

import numpy as np
import torch
import torch.nn.functional as F

from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.backends.pytorch.trace.size_arithmetic import known_ints
from onnxbridge.backends.pytorch.trace.tracer import data_dependent_call, opaque_call, read_ints
from onnxbridge.errors import Unsupported
from onnxbridge.frameworks import pillow

_MODES = {"linear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}


@rule("GridSample", limits="2 and 3 spatial dimensions, cubic for 2 only")
def grid_sample(X, grid, *, align_corners=0, mode="linear", padding_mode="zeros"):
    if X.ndim not in (4, 5) or (mode == "cubic" and X.ndim == 5):
        raise Unsupported(f"{mode} with {X.ndim - 2} spatial dimensions")
    return F.grid_sample(X, grid.to(X.dtype), _MODES[mode], padding_mode, bool(align_corners))


@opaque_call
def affine(theta, size, align_corners):
    return F.affine_grid(theta, list(size) if isinstance(size, tuple) else read_ints(size), bool(align_corners))


@rule("AffineGrid")
def affine_grid(theta, size, *, align_corners=0):
    return affine(theta, known_ints(size), align_corners)


@opaque_call
def columns_to_image(input, image, block, dilations, pads, strides):
    image = image if isinstance(image, tuple) else tuple(read_ints(image))
    block = block if isinstance(block, tuple) else tuple(read_ints(block))
    rank = len(image)
    dilations, strides, pads = dilations or (1,) * rank, strides or (1,) * rank, pads or (0,) * (2 * rank)
    padded = [n + b + a for n, b, a in zip(image, pads[:rank], pads[rank:], strict=True)]
    counts = [(n - (k - 1) * d - 1) // s + 1 for n, k, d, s in zip(padded, block, dilations, strides, strict=True)]
    # the flat index in the padded image of each element of each block: block elements first, then blocks
    index = torch.zeros([1] * (2 * rank), dtype=torch.int64, device=input.device)
    for axis in range(rank):
        offsets = torch.arange(block[axis], device=input.device) * dilations[axis]
        blocks = torch.arange(counts[axis], device=input.device) * strides[axis]
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = block[axis], counts[axis]
        index = index * padded[axis] + (offsets[:, None] + blocks).reshape(shape)
    total = 1
    for n in (*block, *counts):
        total *= n
    flat, size = input.reshape([input.shape[0], -1, total]), 1
    for n in padded:
        size *= n
    summed = flat.new_zeros([flat.shape[0], flat.shape[1], size]).index_add(2, index.reshape(-1), flat)
    image_sum = summed.reshape([flat.shape[0], flat.shape[1], *padded])
    for axis in range(rank):
        image_sum = image_sum.narrow(2 + axis, pads[axis], image[axis])
    return image_sum


@rule("Col2Im")
def col2im(input, image_shape, block_shape, *, dilations=None, pads=None, strides=None):
    return columns_to_image(input, known_ints(image_shape), known_ints(block_shape), dilations, pads, strides)


_FORMATS = ("BMP", "JPEG", "JPEG2000", "TIFF", "PNG", "WEBP", "PPM")
"""The formats in the ONNX specification; JPEG2000 and PPM stand for their families."""
_MAX_PIXELS = 1 << 28
"""The maximum number of pixels: a small file may declare any size."""


@data_dependent_call
def decoded(encoded_stream, channels, bgr):
    """Decode an image with Pillow, which is imported only here; an undecodable image gives an empty one."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(encoded_stream.numpy().tobytes()), formats=_FORMATS) as image:
            if image.height * image.width > _MAX_PIXELS:
                raise ValueError(f"an image of {image.height} x {image.width}")
            pixels = np.array(image.convert("L" if channels == 1 else "RGB"))
    except (OSError, SyntaxError):
        return torch.zeros((0, 0, channels), dtype=torch.uint8)
    pixels = torch.from_numpy(pixels.reshape(*pixels.shape[:2], channels))
    return torch.flip(pixels, [2]) if bgr else pixels


@rule("ImageDecoder")
def image_decoder(encoded_stream, *, pixel_format="RGB"):
    if pixel_format not in ("RGB", "BGR", "Grayscale"):
        raise Unsupported(f"pixel_format {pixel_format!r}")
    pillow()
    return decoded(encoded_stream, 1 if pixel_format == "Grayscale" else 3, pixel_format == "BGR")

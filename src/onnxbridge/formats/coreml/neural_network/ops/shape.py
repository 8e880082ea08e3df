"""Reshape, transpose, concat, split, pad and fill layers."""

import numpy as np

from onnxbridge.errors import UnsafeFileError, Unsupported
from onnxbridge.formats.coreml.neural_network import weights as stored
from onnxbridge.formats.coreml.neural_network.ops import rule
from onnxbridge.formats.coreml.neural_network.ops.arithmetic import float32
from onnxbridge.rules import Outputs


def to_int32(mil, x):
    """Cast a blob to the integers that MIL requires."""
    return mil.cast(x=x, dtype="int32")


@rule("loadConstant")
def load_constant(mil, *, shape, data):
    values = stored.read(data, tuple(int(n) for n in shape))
    return mil.weight(values if mil.exact else values[None], "data")


@rule("loadConstantND")
def load_constant_nd(mil, *, shape, data):
    return mil.weight(stored.read(data, tuple(int(n) for n in shape)), "data")


def _channels_last(mil, x, shape):
    """Reshape (S, C, H, W) in the order of (S, H, W, C)."""
    s, c, h, w = shape
    y = mil.reshape(x=mil.transpose(x=x, perm=np.array([0, 2, 3, 1])), shape=np.array([s, h, w, c]))
    return mil.transpose(x=y, perm=np.array([0, 3, 1, 2]))


@rule("reshape")
def reshape(mil, x, *, targetShape, mode="CHANNEL_FIRST"):
    shape = [int(n) for n in targetShape]
    if mil.exact:
        raise Unsupported("the old reshape layer in a network whose blobs have arbitrary ranks")
    shape = shape if len(shape) == 4 else [-1, *shape]
    if mode == "CHANNEL_LAST":
        return _channels_last(mil, x, shape)
    return mil.reshape(x=x, shape=np.array(shape))


@rule("flatten")
def flatten(mil, x, *, mode="CHANNEL_FIRST"):
    if mode == "CHANNEL_LAST":
        x = mil.transpose(x=x, perm=np.array([0, 2, 3, 1]))
    y = mil.flatten2d(x=x, axis=1)
    return mil.expand_dims(x=y, axes=np.array([2, 3])) if not mil.exact else y


@rule("permute")
def permute(mil, x, *, axis):
    if mil.exact:
        raise Unsupported("the old permute layer in a network whose blobs have arbitrary ranks")
    return mil.transpose(x=x, perm=np.array([int(a) for a in axis]))


@rule("transpose")
def transpose(mil, x, *, axes):
    return mil.transpose(x=x, perm=np.array([int(a) for a in axes]))


@rule("concat")
def concat(mil, *xs, sequenceConcat=False):
    return mil.concat(values=list(xs), axis=0 if sequenceConcat else -3)


@rule("concatND")
def concat_nd(mil, *xs, axis=0, interleave=False):
    return mil.concat(values=list(xs), axis=axis, interleave=interleave)


@rule("stack")
def stack(mil, *xs, axis=0):
    return mil.stack(values=list(xs), axis=axis)


@rule("split")
def split(mil, x, *, nOutputs):
    return _as_tuple(mil.split(x=x, axis=-3, num_splits=int(nOutputs), outputs=int(nOutputs)))


@rule("splitND")
def split_nd(mil, x, *, axis=0, numSplits=0, splitSizes=(), outputs: Outputs):
    if (len(splitSizes) or numSplits) != len(outputs):
        raise UnsafeFileError(f"a split layer has {len(outputs)} outputs, but {len(splitSizes) or numSplits} parts")
    if len(splitSizes):
        sizes = [int(n) for n in splitSizes]
        return _as_tuple(mil.split(x=x, axis=axis, split_sizes=np.array(sizes), outputs=len(sizes)))
    return _as_tuple(mil.split(x=x, axis=axis, num_splits=int(numSplits), outputs=int(numSplits)))


def _as_tuple(results):
    return results if isinstance(results, tuple) else (results,)


@rule("sequenceRepeat")
def sequence_repeat(mil, x, *, nRepetitions):
    axes = 4 if not mil.exact else 5
    return mil.tile(x=x, reps=np.array([int(nRepetitions) or 1, *(1 for _ in range(axes - 1))]))


@rule("tile")
def tile(mil, x, reps_blob=None, *, reps=()):
    return mil.tile(x=x, reps=np.array([int(n) for n in reps]) if reps_blob is None else to_int32(mil, reps_blob))


@rule("getShape")
def get_shape(mil, x):
    return mil.cast(x=mil.shape(x=x), dtype="fp32")


@rule("squeeze")
def squeeze(mil, x, *, axes=(), squeezeAll=False):
    return mil.at_least_rank(x=mil.squeeze(x=x) if squeezeAll else mil.squeeze(x=x, axes=np.array(axes)), rank=1)


@rule("expandDims")
def expand_dims(mil, x, *, axes):
    return mil.expand_dims(x=x, axes=np.array(axes))


@rule("flattenTo2D")
def flatten_to_2d(mil, x, *, axis=0):
    return mil.flatten2d(x=x, axis=axis)


@rule("reshapeStatic")
def reshape_static(mil, x, *, targetShape=()):
    return mil.reshape(x=x, shape=np.array(targetShape, np.int32))


@rule("rankPreservingReshape")
def rank_preserving_reshape(mil, x, *, targetShape):
    return mil.reshape(x=x, shape=np.array(targetShape))


@rule("reshapeDynamic")
def reshape_dynamic(mil, x, shape):
    return mil.reshape(x=x, shape=to_int32(mil, shape))


@rule("reshapeLike")
def reshape_like(mil, x, like):
    return mil.reshape(x=x, shape=mil.shape(x=like))


def _broadcast(mil, x, shape):
    """Broadcast `x` by adding zeros of the target shape."""
    return mil.add(x=x, y=mil.fill(shape=shape, value=float32(0)))


@rule("broadcastToStatic")
def broadcast_to_static(mil, x, *, targetShape):
    return _broadcast(mil, x, np.array([int(n) for n in targetShape]))


@rule("broadcastToDynamic")
def broadcast_to_dynamic(mil, x, shape):
    return _broadcast(mil, x, to_int32(mil, shape))


@rule("broadcastToLike")
def broadcast_to_like(mil, x, like):
    return _broadcast(mil, x, mil.shape(x=like))


@rule("fillStatic")
def fill_static(mil, *, value=0.0, targetShape):
    return mil.fill(shape=np.array([int(n) for n in targetShape]), value=float32(value))


@rule("fillDynamic")
def fill_dynamic(mil, shape, *, value=0.0):
    return mil.fill(shape=to_int32(mil, shape), value=float32(value))


@rule("fillLike")
def fill_like(mil, x, *, value=0.0):
    return mil.fill(shape=mil.shape(x=x), value=float32(value))


@rule("constantPad")
def constant_pad(mil, x, pad_blob=None, *, value=0.0, padAmounts=(), padToGivenOutputSizeMode=False):
    if padToGivenOutputSizeMode:
        sizes = np.array([int(n) for n in padAmounts], np.int32) if pad_blob is None else to_int32(mil, pad_blob)
        return mil.pad(x=x, pad=_pads_to_size(mil, x, sizes), mode="constant", constant_val=float32(value))
    pad = np.array([int(n) for n in padAmounts]) if pad_blob is None else to_int32(mil, pad_blob)
    return mil.pad(x=x, pad=pad, mode="constant", constant_val=float32(value))


def _pads_to_size(mil, x, sizes):
    """The padding of both sides of each axis that gives the target size, which is set for one of the sides; 0 if it is less."""
    sides = mil.reshape(x=sizes, shape=np.array([-1, 2]))
    target_sizes = mil.reduce_max(x=sides, axes=np.array([1]), keep_dims=False)
    missing = mil.maximum(x=mil.sub(x=target_sizes, y=mil.shape(x=x)), y=np.int32(0))
    is_padded = mil.cast(x=mil.greater(x=sides, y=np.int32(0)), dtype="int32")
    return mil.reshape(x=mil.mul(x=mil.expand_dims(x=missing, axes=np.array([1])), y=is_padded), shape=np.array([-1]))


@rule("rangeStatic")
def range_static(mil, *, endValue=0.0, startValue=0.0, stepSizeValue=0.0):
    return mil.range_1d(**{k: float32(v) for k, v in (("end", endValue), ("start", startValue), ("step", stepSizeValue))})


@rule("rangeDynamic")
def range_dynamic(mil, end, start=None, step=None, *, startValue=0.0, stepSizeValue=0.0):
    scalars = [float32(default) if v is None else v for v, default in ((start, startValue), (step, stepSizeValue))]
    end, start, step = (v if isinstance(v, np.float32) else mil.squeeze(x=v) for v in (end, *scalars))
    return mil.range_1d(end=end, start=start, step=step)


@rule("matrixBandPart")
def matrix_band_part(mil, x, *, numLower=0, numUpper=0):
    return mil.band_part(x=x, lower=numLower, upper=numUpper)


@rule("lowerTriangular")
def lower_triangular(mil, x, *, k=0):
    return mil.band_part(x=x, lower=-1, upper=k) if k >= 0 else mil.sub(x=x, y=mil.band_part(x=x, lower=-k - 1, upper=-1))


@rule("upperTriangular")
def upper_triangular(mil, x, *, k=0):
    return mil.band_part(x=x, lower=-k, upper=-1) if k <= 0 else mil.sub(x=x, y=mil.band_part(x=x, lower=-1, upper=k - 1))


@rule("slidingWindows")
def sliding_windows(mil, x, *, axis=0, windowSize, step=1):
    return mil.sliding_windows(x=x, axis=axis, size=int(windowSize), stride=int(step))


@rule("reverse")
def reverse(mil, x, *, reverseDim):
    return mil.reverse(x=x, axes=np.array([a for a, is_reversed in enumerate(reverseDim) if is_reversed]))


@rule("reverseSeq")
def reverse_seq(mil, x, lengths, *, batchAxis=0, sequenceAxis=0):
    return mil.reverse_sequence(x=x, lengths=to_int32(mil, lengths), seq_axis=sequenceAxis, batch_axis=batchAxis)

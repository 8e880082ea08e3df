# ruff: noqa: E501  one operator per line
"""Samples of gradients, losses, quantization, special functions, complex numbers, Fourier transforms and factorizations."""

import numpy as np

from tests.frontends.tensorflow.samples import EDGES, SAMPLES, Input, S, Sample, const, f32, f64, fed, flags, i32, pos, unit

for _op in ("ReluGrad", "Relu6Grad", "LeakyReluGrad", "SoftplusGrad", "SoftsignGrad"):
    S(_op, gradients=f32(3, 4), features=f32(3, 4, low=-8, high=8))
for _op in ("EluGrad", "SeluGrad"):
    SAMPLES.append(Sample(_op, {"gradients": f32(3, 4), "outputs": unit(3, 4)}))
for _op in ("SigmoidGrad", "TanhGrad", "ReciprocalGrad", "InvGrad", "SqrtGrad", "RsqrtGrad"):
    S(_op, y=pos(3, 4), dy=f32(3, 4))
S("BiasAddGrad", out_backprop=f32(2, 3, 4, 5))
S("BiasAddGrad", out_backprop=f32(2, 3, 4, 5), data_format="NCHW")
S("BroadcastGradientArgs", s0=fed([2, 1, 3], np.int32), s1=fed([4, 1], np.int32))
S("BroadcastGradientArgs", s0=fed([2, 3], np.int32), s1=fed([2, 3], np.int32))

S("SoftmaxCrossEntropyWithLogits", features=f32(3, 5), labels=f32(3, 5, low=0, high=1))
for _dtype in (np.int32, np.int64):
    S("SparseSoftmaxCrossEntropyWithLogits", features=f32(3, 5, dynamic=(0,)), labels=fed([0, 4, 2], _dtype, dynamic=(0,)))

for _more in ({}, {"narrow_range": True}, {"signed_input": False}, {"num_bits": 4}, {"num_bits": 16}, {"round_mode": "HALF_UP"}):
    S("QuantizeAndDequantizeV2", input=f32(4, 7), input_min=np.float32(-1.3), input_max=np.float32(1.7), range_given=True, **_more)
    S("QuantizeAndDequantizeV2", input=f32(4, 7), input_min=np.float32(0), input_max=np.float32(0), **_more)
    S("QuantizeAndDequantizeV2", input=f32(4, 7), input_min=fed(-1.3), input_max=fed(1.7), range_given=True, **_more)
S("QuantizeAndDequantizeV2", input=fed([0.0, 0.0]), input_min=np.float32(0), input_max=np.float32(0), label="zeros")
S("QuantizeAndDequantizeV4", input=f32(4, 3, 2), input_min=np.zeros(3, np.float32), input_max=np.zeros(3, np.float32), axis=1)
S("QuantizeAndDequantizeV3", input=f32(4, 7), input_min=np.float32(-1), input_max=np.float32(1), num_bits=8)
for _more in ({}, {"narrow_range": True}, {"num_bits": 4}):
    S("FakeQuantWithMinMaxArgs", inputs=f32(4, 7, low=-9, high=9), min=-6.0, max=5.0, **_more)
    S("FakeQuantWithMinMaxVars", inputs=f32(4, 7), min=np.float32(-1.2), max=np.float32(1.5), **_more)
    S("FakeQuantWithMinMaxVars", inputs=f32(4, 7), min=fed(-1.2), max=fed(1.5), **_more)
    S("FakeQuantWithMinMaxVarsPerChannel", inputs=f32(4, 3), min=const(3, low=-2, high=-1), max=const(3, low=1, high=2), **_more)

_fractions = fed([-2.5, -0.3, 0.1, 0.5, 1.0, 1.5, 2.0, 3.7, 10.2, 30.0])
for _op in ("Lgamma", "Digamma"):
    S(_op, x=_fractions)
    S(_op, x=f64(6, low=0.2, high=9))
S("Erfinv", x=unit(9))
S("Ndtri", x=f32(9, low=0.01, high=0.99))
for _n in "01":
    for _op in ("J", "I"):
        S(f"Bessel{_op}{_n}", x=f32(9, low=-8, high=8))
    S(f"BesselI{_n}e", x=f32(9, low=-8, high=8))
    for _op in ("BesselY{}", "BesselK{}", "BesselK{}e"):
        S(_op.format(_n), x=f64(9, low=0.1, high=12))
for _op in ("Igamma", "Igammac"):
    S(_op, a=fed([0.5, 1, 3, 8]), x=fed([0.2, 2, 2.5, 11]))
S("Zeta", x=fed([1.5, 2, 4]), q=fed([1, 2.5, 0.3]))
S("Polygamma", a=np.float32(1), x=pos(5))
S("Polygamma", a=np.array([2, 2], np.float32), x=pos(3, 2))
for _op in ("LeftShift", "RightShift"):
    for _dtype in (np.int8, np.int32, np.int64, np.uint8, np.uint16):
        S(_op, x=fed([5, 7, 120, 1, 100], _dtype), y=fed([0, 1, 2, 3, 20], _dtype))
S("RightShift", x=fed([-5, -128, -1], np.int8), y=fed([1, 2, 9], np.int8))


def c64(*shape, dtype=np.complex64):
    rng = np.random.default_rng(len(shape))
    return Input((rng.uniform(-2, 2, shape) + 1j * rng.uniform(-2, 2, shape)).astype(dtype))


S("Complex", real=f32(3, 4), imag=f32(4))
for _op, _name in (("Real", "input"), ("Imag", "input"), ("ComplexAbs", "x"), ("Angle", "input"), ("Conj", "input")):
    S(_op, **{_name: c64(3, 4)})
for _op in ("Add", "AddV2", "Sub", "Mul", "RealDiv", "Div", "DivNoNan", "SquaredDifference", "Pow"):
    S(_op, x=c64(3, 4), y=c64(4))
for _op in ("Neg", "Square", "Reciprocal", "Inv", "Exp", "Log", "Sqrt", "Rsqrt", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Tanh", "Sigmoid", "OnesLike", "ZerosLike"):
    S(_op, x=c64(3, 4))
for _op in ("Equal", "NotEqual"):
    S(_op, x=c64(3, 4), y=c64(3, 4))
S("ConjugateTranspose", x=c64(3, 4), perm=[1, 0])
S("ConjugateTranspose", x=f32(3, 4), perm=[1, 0])
S("Cast", x=c64(3, 4), DstT="complex128")
S("Cast", x=c64(3, 4), DstT="float32")
S("Cast", x=f32(3), DstT="complex64")
S("MatMul", a=c64(3, 4), b=c64(4, 2))
S("BatchMatMulV2", x=c64(2, 3, 4), y=c64(2, 5, 4), adj_y=True)
S("BatchMatMul", x=c64(2, 3, 4), y=c64(2, 4, 5))
S("BatchMatMulV3", x=c64(2, 3, 4), y=c64(4, 5), Tout="complex64")
S("BatchMatMulV3", x=i32(3, 4, dtype=np.int8), y=i32(4, 5, dtype=np.int8), Tout="int32")
for _op, _args in {
    "Reshape": {"tensor": c64(3, 4), "shape": [2, 6]}, "Squeeze": {"input": c64(3, 1)}, "ExpandDims": {"input": c64(3), "axis": 0},
    "Transpose": {"x": c64(3, 4), "perm": [1, 0]}, "ConcatV2": {"values": [c64(3, 4), c64(2, 4)], "axis": 0},
    "Pack": {"values": [c64(3), c64(3)]}, "Tile": {"input": c64(3), "multiples": [2]}, "Slice": {"input": c64(4), "begin": [1], "size": [2]},
    "GatherV2": {"params": c64(4, 2), "indices": np.array([1, 0]), "axis": 0}, "Sum": {"input": c64(3, 4), "axis": [1]},
    "Mean": {"input": c64(3, 4), "axis": [0]}, "Pad": {"input": c64(3), "paddings": [[1, 2]]}, "Roll": {"input": c64(4), "shift": [1], "axis": [0]},
    "ReverseV2": {"tensor": c64(4), "axis": [0]}, "Shape": {"input": c64(3, 4)}, "Identity": {"input": c64(2)},
    "SelectV2": {"condition": flags(3), "t": c64(3), "e": c64(3)}, "Cumsum": {"x": c64(4), "axis": 0},
    "Unpack": {"value": c64(2, 3), "num": 2}, "Split": {"value": c64(4), "axis": 0, "num_split": 2}, "StopGradient": {"input": c64(2)},
    "SplitV": {"value": c64(4), "size_splits": [1, 3], "axis": 0, "num_split": 2}, "Fill": {"dims": [2, 3], "value": c64()},
    "BroadcastTo": {"input": c64(3), "shape": [2, 3]}, "Size": {"input": c64(3, 4)}, "Rank": {"input": c64(3, 4)},
    "PadV2": {"input": c64(3), "paddings": [[1, 2]], "constant_values": np.complex64(1 + 2j)},
    "GatherNd": {"params": c64(4, 2), "indices": np.array([[1, 0]])}, "IdentityN": {"input": [c64(2), c64(3)]},
    "ScatterNd": {"indices": np.array([[1], [3]]), "updates": c64(2), "shape": [5]}, "AddN": {"inputs": [c64(3), c64(3), c64(3)]},
    "TensorScatterUpdate": {"tensor": c64(4), "indices": np.array([[1]]), "updates": c64(1)}, "BiasAdd": {"value": c64(2, 3), "bias": c64(3)},
    "UnsortedSegmentSum": {"data": c64(3), "segment_ids": np.array([0, 2, 0]), "num_segments": 3},
    "Prod": {"input": c64(3, 4), "axis": [1]}, "Einsum": {"inputs": [c64(3, 4), c64(4, 2)], "equation": "ij,jk->ki"}, "Gather": {"params": c64(4, 2), "indices": np.array([1, 0])},
    "EnsureShape": {"input": c64(3), "shape": [3]}, "MirrorPad": {"input": c64(4), "paddings": [[1, 2]], "mode": "REFLECT"}, "Select": {"condition": flags(3), "x": c64(3), "y": c64(3)},
    "TensorScatterAdd": {"tensor": c64(4), "indices": np.array([[1], [1]]), "updates": c64(2)},
    "StridedSlice": {"input": c64(4, 3), "begin": [1, 0], "end": [3, 1], "strides": [1, 1], "shrink_axis_mask": 2},
}.items():  # fmt: skip
    S(_op, **_args)
for _count, _suffix, _shape in ((1, "", (2, 3, 8)), (2, "2D", (2, 6, 8)), (3, "3D", (2, 4, 6, 5))):
    for _dtype in (np.complex64, np.complex128):
        S(f"FFT{_suffix}", input=c64(*_shape, dtype=_dtype))
        S(f"IFFT{_suffix}", input=c64(*_shape, dtype=_dtype))
    for _length in (list(_shape[-_count:]), [3] * _count, fed([4] * _count, np.int32)):
        S(f"RFFT{_suffix}", input=f32(*_shape), fft_length=_length)
        S(f"IRFFT{_suffix}", input=c64(*_shape), fft_length=_length)
S("RFFT", input=f64(3, 7), fft_length=[7], Tcomplex="complex128")
S("IRFFT", input=c64(3, 7, dtype=np.complex128), fft_length=[12], Treal="float64")
for _type in ("int32", "uint8", "int16"):
    S("Bitcast", input=f32(3, 4), type=_type)
S("Bitcast", input=i32(3, 2), type="int64")
S("Bitcast", input=EDGES, type="uint32")


def definite(*shape, dtype=np.float32):
    a = np.random.default_rng(4).normal(size=shape)
    return Input((a @ np.swapaxes(a, -1, -2) + 2 * np.eye(shape[-1])).astype(dtype))


for _dtype in (np.float32, np.float64):
    S("Cholesky", input=definite(2, 4, 4, dtype=_dtype))
    for _adjoint in (False, True):
        S("MatrixInverse", input=f32(2, 4, 4, dtype=_dtype), adjoint=_adjoint)
        S("MatrixSolve", matrix=f32(2, 4, 4, dtype=_dtype), rhs=f32(2, 4, 3, dtype=_dtype), adjoint=_adjoint)
        for _lower in (False, True):
            S("MatrixTriangularSolve", matrix=definite(2, 4, 4, dtype=_dtype), rhs=f32(4, 3, dtype=_dtype), lower=_lower, adjoint=_adjoint)
    S("MatrixDeterminant", input=f32(3, 4, 4, dtype=_dtype))
    S("LogMatrixDeterminant", input=f32(3, 4, 4, dtype=_dtype))
S("MatrixDeterminant", input=f32(2, 2), label="2x2")
S("MatrixDeterminant", input=fed([[1, 2], [2, 4]]), label="singular")
S("Qr", input=f32(2, 5, 3))
S("Qr", input=f32(2, 3, 3), full_matrices=True)
S("Svd", input=f32(2, 5, 3), outputs=(0,))
S("Svd", input=f32(3, 5), compute_uv=False, outputs=(0,))
S("SelfAdjointEigV2", input=definite(2, 4, 4), outputs=(0,))
S("Lu", input=f32(2, 4, 4))
S("MatrixSolveLs", matrix=f32(2, 5, 3), rhs=f32(2, 5, 2), l2_regularizer=np.float64(0.1))
S("MatrixSolveLs", matrix=f32(3, 5), rhs=f32(3, 2), l2_regularizer=np.float64(0.0))

for _dtype in (np.int8, np.int16, np.uint8, np.uint16, np.int64):
    S("Relu", features=fed([5, 0, 7, 100], _dtype))
    S("Relu6", features=fed([5, 0, 7, 100], _dtype))
    S("Maximum", x=fed([5, 0, 7], _dtype), y=fed([6, 6, 6], _dtype))
    S("Minimum", x=fed([5, 0, 7], _dtype), y=fed([6, 6, 6], _dtype))
for _dtype in (np.int8, np.int16):
    S("Relu", features=fed([5, -3, 7], _dtype))
    S("Pow", x=fed([2, -3, 1], _dtype), y=fed([3, 2, 9], _dtype))
S("GatherV2", params=f32(4, 2), indices=fed([1, 3], np.int16), axis=0)
S("Where", condition=fed([[0, 1.5], [0, -2]], np.float64))
S("Where", condition=fed([0, 3, 0], np.int16))
S("ScatterNd", indices=fed([[1], [3], [1]], np.int32), updates=f32(3, 2, dtype=np.float16), shape=[5, 2])
S("SegmentMean", data=f32(5, 2, dtype=np.float16), segment_ids=fed([0, 0, 2, 2, 3], np.int32))
S("UnsortedSegmentMax", data=f32(5, 2, dtype=np.float16), segment_ids=fed([0, 3, -1, 0, 1], np.int32), num_segments=5)
S("Dilation2D", input=i32(1, 5, 5, 2), filter=i32(2, 2, 2), strides=[1] * 4, rates=[1] * 4, padding="SAME")
S("TruncateDiv", x=fed([7.0, -7.0, 6.5]), y=fed([3.0, 3.0, -2.0]))
for _op in ("ArgMax", "ArgMin"):
    S(_op, input=fed([[1, np.nan, 3], [np.nan, 2, 5], [2, 5, np.nan]]), dimension=1, label="NaN")
S("Bucketize", input=fed([np.nan, -np.inf, np.inf, 0.5]), boundaries=[0.0, 0.5, 3.0])
S("Maximum", x=fed([np.nan, 1, -0.0]), y=fed([1, np.nan, 0.0]))
for _op in ("Dawsn", "Spence", "FresnelSin", "FresnelCos"):
    S(_op, x=f32(40, low=-8, high=8))
    S(_op, x=fed([0.0, -0.0, 1, 2, 2.5, 60, np.nan] + [np.inf] * (_op != "Spence"), np.float64), label="edges")
S("Expint", x=f32(40, low=0.01, high=40))
S("Expint", x=fed([0.0, -1, 1e-9, 16, 17, np.nan], np.float64))
S("Betainc", a=f64(30, low=0.05, high=20), b=f64(30, low=0.1, high=15), x=f64(30, low=0, high=1))
S("Betainc", a=fed([1.0, 0, -1, 2, 2, 3]), b=fed([1.0, 1, 1, 2, 2, 3]), x=fed([0.0, 0.5, 0.5, 1, 1.5, np.nan]))

"""Compressed weights, compared with the examples of MIL's documentation and coremltools' decompression."""

import numpy as np
import pytest

from onnxbridge.formats.coreml.mil_constants import unpack
from onnxbridge.runtime.mil import Interpreter
from tests.runtime.mil.build import compute, ct, mb, program, run

types = ct.converters.mil.mil.types
rng = np.random.default_rng(4)
F, H = np.float32, np.float16
BIT, UINT2, UINT3, UINT4, INT4 = (
    types.np_uint1_dtype,
    types.np_uint2_dtype,
    types.np_uint3_dtype,
    types.np_uint4_dtype,
    types.np_int4_dtype,
)

MASK = np.array([[1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 1, 1], [1, 1, 0, 0]])
SPARSE = np.array([[1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 0, 1], [0, 1, 1, 0, 1, 0], [0, 0, 0, 1, 0, 0]])
KEYS = np.array([0, 1, 1, 0, 1, 1, 0, 0, 1])

CASES = [
    (
        "constexpr_affine_dequantize",
        ct.target.iOS16,
        {"quantized_data": np.array([[1, 2], [250, 7]], np.uint8), "zero_point": np.array([1, 9], np.uint8)}
        | {"scale": np.array([0.5, 2], F), "axis": 0},
    ),
    (
        "constexpr_affine_dequantize",
        ct.target.iOS16,
        {"quantized_data": np.array([-100, 100], np.int8), "zero_point": np.int8(-100), "scale": F(0.25), "axis": 0},
    ),
    ("constexpr_cast", ct.target.iOS16, {"source_val": np.array([1.5, 0.1], H), "output_dtype": "fp32"}),
    (
        "constexpr_lut_to_dense",
        ct.target.iOS16,
        {"indices": np.array([0b01101100, 0b11], np.uint8), "lut": np.array([1, 2, 3, 4], F), "shape": np.array([5], np.uint32)},
    ),
    (
        "constexpr_sparse_to_dense",
        ct.target.iOS16,
        {"nonzero_data": np.array([3, 5], F), "mask": np.array([0b01100], np.uint8), "shape": np.array([5], np.uint32)},
    ),
    (
        "constexpr_blockwise_shift_scale",
        ct.target.iOS18,
        {"data": np.array([[-8, 7, 3, 1], [0, 1, -2, 5]]).astype(INT4), "scale": np.array([[0.5, 2]], F)}
        | {"offset": np.array([[1, -1]]).astype(INT4)},
    ),
    (
        "constexpr_blockwise_shift_scale",
        ct.target.iOS18,
        {"data": rng.integers(0, 255, (4, 6)).astype(np.uint8), "scale": rng.random((2, 3)).astype(F)},
    ),
    (
        "constexpr_lut_to_dense",
        ct.target.iOS18,
        {
            "indices": np.array([2, 3, 3, 0, 1, 0, 3, 0, 2, 1, 0, 3]).reshape(6, 2).astype(UINT2),
            "lut": np.array([1, 5, 9, 13, 2, 10, 18, 26], F).reshape(2, 1, 4, 1),
        },
    ),
    *(
        (
            "constexpr_lut_to_dense",
            ct.target.iOS18,
            {
                "indices": np.array([[[0, 0], [1, 0]], [[1, 1], [0, 0]]]).astype(BIT),
                "lut": np.array([1, 2, 3, 4, 5, 6], F).reshape(1, 1, 1, 2, 3),
                "vector_axis": axis,
            },
        )
        for axis in (0, 1, 2)
    ),
    (
        "constexpr_sparse_to_dense",
        ct.target.iOS18,
        {"nonzero_data": np.arange(1, 10).astype(np.int8), "mask": MASK.astype(BIT)},
    ),
    (
        "constexpr_lut_to_sparse",
        ct.target.iOS18,
        {
            "indices_mask": SPARSE.astype(BIT),
            "indices_nonzero_data": KEYS.astype(BIT),
            "lut": np.array([2, 3], F).reshape(1, 1, 2, 1),
        },
    ),
    (
        "constexpr_lut_to_sparse",
        ct.target.iOS18,
        {
            "indices_mask": SPARSE.astype(BIT),
            "indices_nonzero_data": KEYS.astype(BIT),
            "lut": np.array([[2, 2.5], [3, 3.5]], F).reshape(1, 1, 2, 2),
            "vector_axis": 0,
        },
    ),
    (
        "constexpr_sparse_blockwise_shift_scale",
        ct.target.iOS18,
        {
            "data_mask": MASK.astype(BIT),
            "nonzero_data": np.array([10, 11, 3, 4, 5, 6, 7, 8, 9], np.int8),
            "scale": np.array([[0.1, 0.2, 0.3, 0.4]], F),
            "offset": np.array([[1, 2, 3, 4]], np.int8),
        },
    ),
]


@pytest.mark.parametrize(("op", "opset", "parameters"), [pytest.param(*c, id=f"{c[0]}-{i}") for i, c in enumerate(CASES)])
def test_matches_coremltools(op, opset, parameters):
    wanted = {}

    def build(x):
        found = getattr(mb, op)(**parameters)
        found = found if isinstance(found, tuple | list) else [found]
        values = found[0].op.materialized_val_inference()
        wanted["values"] = values if isinstance(values, tuple) else (values,)
        return [*found, mb.identity(x=x)]

    built = program(build, opset, x=np.zeros(1, F))
    *got, _ = Interpreter(built).run({"x": np.zeros(1, F)}).values()
    for g, w in zip(got, wanted["values"], strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-6)
        assert g.shape == w.shape


def test_the_documented_example_of_two_groups():
    parameters = CASES[7][2]
    built = program(lambda x: mb.add(x=mb.constexpr_lut_to_dense(**parameters), y=x), x=np.zeros((6, 2), F))
    got = next(iter(Interpreter(built).run({"x": np.zeros((6, 2), F)}).values()))
    assert got.tolist() == [[9, 13], [13, 1], [5, 1], [26, 2], [18, 10], [2, 26]]


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 6, 8])
def test_unpack_starts_at_the_lowest_bit(bits):
    numbers = rng.integers(0, 2**bits, 29)
    whole = sum(int(n) << (bits * i) for i, n in enumerate(numbers))
    packed = np.frombuffer(whole.to_bytes(-(-29 * bits // 8), "little"), np.uint8)
    assert unpack(packed, bits, 29).tolist() == numbers.tolist()


# NumPy treats coremltools' sub-byte dtypes as equal to the bytes that store them, hence the names.
SUB_BYTE_DTYPES = {
    "uint1": (BIT, 0, 2),
    "uint2": (UINT2, 0, 4),
    "uint3": (UINT3, 0, 8),
    "uint4": (UINT4, 0, 16),
    "int4": (INT4, -8, 8),
    "uint8": (np.uint8, 0, 256),
    "int8": (np.int8, -128, 128),
}


@pytest.mark.parametrize("name", SUB_BYTE_DTYPES)
@pytest.mark.parametrize("size", [4, 4096])
def test_sub_byte_integers_are_read_from_a_saved_program(name, size, tmp_path):
    kind, low, high = SUB_BYTE_DTYPES[name]
    numbers = rng.integers(low, high, (2, size))

    def build(x):
        if name in ("int4", "uint4", "int8", "uint8"):
            return mb.add(x=mb.constexpr_blockwise_shift_scale(data=numbers.astype(kind), scale=np.ones((1, 1), F)), y=x)
        table = np.arange(high, dtype=F).reshape(1, 1, high, 1)
        return mb.add(x=mb.constexpr_lut_to_dense(indices=numbers.astype(kind), lut=table), y=x)

    x = np.zeros((2, size), F)
    model = ct.convert(
        program(build, x=x),
        convert_to="mlprogram",
        minimum_deployment_target=ct.target.iOS18,
        compute_precision=ct.precision.FLOAT32,
        skip_model_load=True,
    )
    model.save(str(tmp_path / "m.mlpackage"))
    (got,) = Interpreter(tmp_path / "m.mlpackage").run({"x": x}).values()
    np.testing.assert_array_equal(got, numbers)


def test_per_tensor_then_per_channel_quantization():
    x, scale = np.array([[[3, -7], [11, 2]]], np.float32), np.array([0.5, 0.25], np.float32)

    def build(x):
        whole = mb.quantize(input=x, scale=np.float32(1), output_dtype="int8")
        return mb.dequantize(input=whole, scale=scale, axis=-2)

    np.testing.assert_array_equal(compute(build, x=x), x * scale[:, None])


def test_quantize_and_dequantize_along_an_axis():
    x = np.array([[-1, 0.26, 3], [-40, 0.4, 1e6]], F)
    scale, zero = np.array([0.5, 2], F), np.array([-3, 4], np.int8)
    parameters = {"scale": scale, "zero_point": zero, "axis": 0}
    q = run("quantize", parameters=parameters | {"output_dtype": "int8"}, input=x)
    assert q.dtype == np.int8
    assert q.tolist() == [[-5, -2, 3], [-16, 4, 127]]
    assert run("dequantize", parameters=parameters, input=q).tolist() == [[-1, 0.5, 3], [-40, 0, 246]]


def test_conv_quantized():
    x, weight = rng.random((1, 2, 5, 5)).astype(F), rng.integers(0, 255, (3, 2, 3, 3)).astype(np.uint8)
    parameters = {
        "weight": weight,
        "quantization_type": "linear",
        "quant_scale": np.array([F(0.1)]),
        "quant_bias": np.array([F(-3)]),
    }
    got = run("conv_quantized", ct.target.iOS15, parameters, x=x)
    np.testing.assert_allclose(got, run("conv", parameters={"weight": weight.astype(F) * F(0.1) - 3}, x=x), rtol=1e-5)

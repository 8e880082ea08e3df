"""Samples of MXNet's quantized operators."""

from __future__ import annotations

import numpy as np

from tests.frontends.mxnet.sample_list import SampleList, array


def quantized_samples():
    found = SampleList()
    s, x34 = found.add, found.floats(3, 4)
    part = found.fractions(3, 4)

    def int8(*shape):
        return found.random.randint(-127, 128, shape).astype(np.int8)

    def uint8(*shape):
        return found.random.randint(0, 256, shape).astype(np.uint8)

    def weight(*shape):
        """Weights of 7 bits: on processors without VNNI, MXNet adds two products in 16 bits."""
        return found.random.randint(-63, 64, shape).astype(np.int8)

    for data, options in (
        (x34, {"out_type": "int8", "min_calib_range": -2.0, "max_calib_range": 2.0}),
        (part, {"out_type": "uint8", "min_calib_range": 0.0, "max_calib_range": 1.5}),
        (part, {"out_type": "auto", "min_calib_range": 0.0, "max_calib_range": 0.5}),
        (x34, {"out_type": "auto", "min_calib_range": -1.0, "max_calib_range": 0.5}),
        (x34, {"out_type": "int8"}),
        (part, {"out_type": "uint8"}),
        (int8(3, 4), {"out_type": "int8"}),
        (uint8(3, 4), {"out_type": "uint8"}),
        (int8(3, 4), {"out_type": "int8", "min_calib_range": -1.0, "max_calib_range": 2.0}),
    ):
        s("_contrib_quantize_v2", data, heads=3, **options)
    s("_contrib_quantize", x34, array(-2), array(2), out_type="int8", heads=3)
    s("_contrib_quantize", part, array(0), array(1), out_type="uint8", heads=3)
    for data in (int8(5), uint8(5)):
        for known in ((), (1, 2)):
            s("_contrib_dequantize", data, array(-2), array(1), known=known)
    wide = array(-(2**29), 3, 2**28, 0).astype(np.int32)
    for options in ({}, {"min_calib_range": -2.0, "max_calib_range": 2.0}):
        for known in ((), (1, 2)):
            s("_contrib_requantize", wide, array(-8), array(8), heads=3, known=known, **options)
    s(
        "_contrib_requantize",
        np.abs(wide),
        array(-8),
        array(8),
        heads=3,
        out_type="auto",
        min_calib_range=0.0,
        max_calib_range=2.1,
    )

    ends = array(-1), array(0.5)
    for known in ((), (1, 2, 3, 4, 5, 6, 7, 8)):
        s("_contrib_quantized_conv", uint8(2, 3, 5, 6), weight(4, 3, 3, 3), int8(4), *ends, *ends, *ends, heads=3, known=known,
          kernel=(3, 3), num_filter=4, pad=(1, 1), stride=(2, 1))  # fmt: skip
    s("_contrib_quantized_conv", uint8(2, 3, 5, 6), weight(4, 3, 3, 3), *ends, *ends, heads=3, kernel=(3, 3), num_filter=4,
      no_bias=True, stride=(1, 1), pad=(0, 0), dilate=(1, 2))  # fmt: skip
    for data in (int8(2, 3, 4), uint8(2, 3, 4)):
        for known in ((), (1, 2, 3, 4, 5, 6, 7, 8)):
            s("_contrib_quantized_fully_connected", data, weight(5, 12), int8(5), *ends, *ends, *ends, heads=3, known=known,
              num_hidden=5)  # fmt: skip
        s(
            "_contrib_quantized_fully_connected",
            data,
            weight(5, 4),
            *ends,
            *ends,
            heads=3,
            num_hidden=5,
            no_bias=True,
            flatten=False,
        )
    for data in (int8(2, 3, 5, 6), uint8(2, 3, 5, 6)):
        s("_contrib_quantized_pooling", data, *ends, heads=3, kernel=(2, 2), stride=(2, 2), pool_type="max")
        s("_contrib_quantized_pooling", data, *ends, heads=3, kernel=(2, 2), stride=(1, 1), pool_type="avg")
        s("_contrib_quantized_pooling", data, *ends, heads=3, kernel=(3, 3), pad=(1, 1), pool_type="avg", count_include_pad=False)
        s("_contrib_quantized_pooling", data, *ends, heads=3, kernel=(1, 1), global_pool=True, pool_type="avg")
        s("_contrib_quantized_act", data, *ends, heads=3, act_type="relu")
        s("_contrib_quantized_flatten", data, *ends, heads=3)
        s("_contrib_quantized_batch_norm", data, found.floats(3), found.floats(3), found.floats(3), found.fractions(3), *ends,
          heads=3, eps=0.1, min_calib_range=-3.0, max_calib_range=2.5)  # fmt: skip
    s("_contrib_quantized_embedding", array(0, 3, 1), int8(4, 5), *ends, heads=3, input_dim=4, output_dim=5)
    sides = int8(3, 4), uint8(3, 4)
    for lhs in sides:
        for rhs in sides:
            s("_contrib_quantized_elemwise_add", lhs, rhs, *ends, array(-2), array(3), heads=3, min_calib_range=-4.1,
              max_calib_range=3.0)  # fmt: skip
        s("_contrib_quantized_elemwise_add", lhs, lhs[::-1].copy(), *ends, array(-2), array(3), heads=3)
    for options, heads in (
        ({}, 3),
        ({"min_calib_range": -1.0, "max_calib_range": 2.0}, 3),
        ({"min_calib_range": -0.2, "max_calib_range": 0.1}, 3),  # wraps around
        ({"enable_float_output": True}, 1),
    ):
        for known in ((), (2, 3, 4, 5)):
            s("_contrib_quantized_elemwise_mul", int8(3, 4), int8(3, 4), *ends, array(-2), array(3), heads=heads, known=known,
              **options)  # fmt: skip
    s("_contrib_quantized_concat", int8(2, 3), uint8(2, 3), *ends, array(0), array(3), heads=3, num_args=2)
    s("_contrib_quantized_concat", uint8(2, 3), uint8(2, 4), array(0), array(1), array(0), array(1), heads=3, num_args=2)
    s("_contrib_quantized_concat", int8(2, 3), int8(1, 3), *ends, array(-2), array(0), heads=3, num_args=2, dim=0)
    return found

"""Inputs for which torch's functions differ from ONNX, or have no kernel."""

from __future__ import annotations

import onnx
import onnx.parser
import pytest
import torch

import onnxbridge


def _verified(graph):
    text = f'<ir_version: 10, opset_import: ["" : 20]> g {graph}'
    return onnxbridge.convert(onnx.parser.parse_model(text), to="pytorch").report


@pytest.mark.parametrize("bounds", [(-9, -9, -2), (-5, -9, -1), (9, -9, -1), (2, -9, -2)])
def test_slices_that_go_back(bounds):
    """From before the first element they have the first element, unlike Python's."""
    start, end, step = bounds
    size = 1 if start < 0 else 4 if step == -1 else 2
    constants = f"<int64[1] a = {{{start}}}, int64[1] b = {{{end}}}, int64[1] c = {{1}}, int64[1] d = {{{step}}}>"
    assert _verified(f"(float[3,4] x) => (float[3,{size}] y) {constants} {{ y = Slice (x, a, b, c, d) }}").passed
    at_run_time = "(float[3,4] x, int64[1] a, int64[1] b) => (float[3,n] y) <int64[1] c = {1}, int64[1] d = {STEP}>"
    text = f'<ir_version: 10, opset_import: ["" : 20]> g {at_run_time.replace("STEP", str(step))} {{ y = Slice (x, a, b, c, d) }}'
    net = onnxbridge.convert(onnx.parser.parse_model(text), to="pytorch", verify=False).model
    assert net(torch.randn(3, 4), torch.tensor([start]), torch.tensor([end])).shape == (3, size)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_average_pools_of_volumes_in_half_precision(dtype):
    call = "AveragePool <kernel_shape = [2, 1, 2], strides = [1, 2, 1]>"
    text = f'<ir_version: 10, opset_import: ["" : 22]> g ({dtype}[1,4,5,5,7] x) => ({dtype}[1,4,4,3,6] y) {{ y = {call} (x) }}'
    assert onnxbridge.convert(onnx.parser.parse_model(text), to="pytorch").report.agrees


def test_a_model_without_inputs_whose_positions_are_made_on_its_device():
    graph = """() => (float[2,2,1] y) <float[2,3,1] x = {1, 2, 3, 4, 5, 6}, int64[2,2,1] i = {0, -2, 1, 0}>
               { y = GatherND <batch_dims = 1> (x, i) }"""
    assert _verified(graph).agrees

"""StableHLO's operators in TensorFlow Lite files, and their counterparts among its own, compared with the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from onnxbridge.errors import ConversionError
from tests.frontends.tflite.build import G, Op, T, constant, model
from tests.frontends.tflite.compare import agree, hub_of, run, saved

RNG = np.random.default_rng(7)
F = RNG.normal(size=(3, 5, 4)).astype(np.float32)
I32 = RNG.integers(-90, 90, (3, 5, 4)).astype(np.int32)
I8 = RNG.integers(-120, 120, (3, 5, 4)).astype(np.int8)
B = RNG.random((3, 5, 4)) < 0.5


def _file(name, inputs, options="", values=None, graphs=(), shape=None):
    """A model of one operator, and what feeds it."""
    inputs = [t if isinstance(t, T) else T(np.asarray(t)) for t in inputs]
    fed = [t for t in inputs if not t.constant]
    for i, t in enumerate(fed):
        t.name = f"x{i}"
    y = T(type=inputs[0].kind, name="y", shape=shape)
    operator = Op(name, inputs, [y], options, values or {}, second=True)
    return model(G(fed, [y], [operator]), *graphs), {t.name: np.asarray(t.value) for t in fed}


def _check(tmp_path, name, inputs, options="", values=None, **more):
    content, feeds = _file(name, inputs, options, values, **more)
    return agree(saved(tmp_path, content), feeds)


def _combining(name, like):
    """A graph that combines two elements."""
    a, b, y = (T(type=like.kind, shape=()) for _ in range(3))
    return G([a, b], [y], [Op(name, [a, b], [y], "AddOptions" if name == "ADD" else "")])


@pytest.mark.parametrize("data", [F, I32, I8], ids=["float32", "int32", "int8"])
@pytest.mark.parametrize("name", ["ADD", "MULTIPLY", "MAXIMUM", "MINIMUM"])
def test_elementwise(tmp_path, name, data):
    """Integers wrap around."""
    _check(tmp_path, f"STABLEHLO_{name}", [data, data[::-1].copy()])


@pytest.mark.parametrize("data", [B, I32, I8], ids=["bool", "int32", "int8"])
def test_and(tmp_path, data):
    _check(tmp_path, "STABLEHLO_AND", [data, data[::-1].copy()])


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32])
def test_shift_left(tmp_path, dtype):
    width = 8 * np.dtype(dtype).itemsize
    amounts = [0, 1, 3, width - 1]
    if dtype != np.int32:  # by more, the interpreter's result depends on the processor
        amounts += [width, width + 5, -1]
    _check(tmp_path, "STABLEHLO_SHIFT_LEFT", [np.array([1, -3, 77, 1, 1, 1, 1][: len(amounts)], dtype), np.array(amounts, dtype)])


@pytest.mark.parametrize("low, high, interior", [
    ([1, 0, 2], [0, 2, 1], [0, 0, 0]), ([0, 1, 0], [0, 0, 0], [1, 2, 0]), ([-1, 0, 0], [0, -2, 1], [0, 1, 2]),
    ([0, 0, 0], [0, 0, 0], [0, 0, 0]),
])  # fmt: skip
@pytest.mark.parametrize("data", [F, I32, I8], ids=["float32", "int32", "int8"])
def test_pad(tmp_path, data, low, high, interior):
    values = {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": interior}
    _check(tmp_path, "STABLEHLO_PAD", [data, constant(data.dtype.type(7))], "StablehloPadOptions", values)


WINDOWS = {
    "one axis": {"window_dimensions": [1, 3, 1]},
    "strides": {"window_dimensions": [2, 2, 2], "window_strides": [1, 2, 2]},
    "dilations": {"window_dimensions": [1, 2, 2], "window_dilations": [1, 3, 2]},
    "padding": {"window_dimensions": [1, 3, 2], "padding": [0, 0, 1, 1, 0, 1]},
    "spread": {"window_dimensions": [1, 3, 2], "base_dilations": [1, 2, 3], "padding": [0, 0, 2, 0, 1, 1]},
}


@pytest.mark.parametrize("name, initial", [
    ("ADD", 0.0), ("STABLEHLO_ADD", 1.5), ("STABLEHLO_MULTIPLY", 1.0), ("MAXIMUM", -9.0), ("MINIMUM", 0.1),
])  # fmt: skip
@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_reduce_window(tmp_path, window, name, initial):
    values = {"window_strides": [1] * 3, "base_dilations": [1] * 3, "window_dilations": [1] * 3, "padding": [0] * 6, **window}
    values["body_subgraph_index"] = 1
    inputs = [T(F), constant(np.float32(initial))]
    graphs = [_combining(name, inputs[0])]
    _check(tmp_path, "STABLEHLO_REDUCE_WINDOW", inputs, "StablehloReduceWindowOptions", values, graphs=graphs)


@pytest.mark.parametrize("function, data, initial", [
    ("ADD", F, 0), ("MUL", F, 1), ("MAXIMUM", F, -5), ("MINIMUM", F, 2), ("ADD", I32, 3), ("ALL", B, True), ("ANY", B, False),
])  # fmt: skip
def test_reduce_window_of_tensorflow_lite(tmp_path, function, data, initial):
    window = [constant(np.int64(v)) for v in ([2, 2, 1], [1, 2, 2], [1, 2, 1])]
    inputs = [T(data), constant(data.dtype.type(initial)), *window]
    _check(tmp_path, "REDUCE_WINDOW", inputs, "ReduceWindowOptions", {"reduce_function": function})


@pytest.mark.parametrize("data", [F, I32, I8], ids=["float32", "int32", "int8"])
def test_dilate(tmp_path, data):
    inputs = [T(data), constant(np.int32([2, 1, 3])), constant(data.dtype.type(-4))]
    _check(tmp_path, "DILATE", inputs, "DilateOptions")


# the sizes of the slices, the starts, the shape of the result, and attributes
GATHERS = {
    "rows": (
        [1, 5, 4], [[2], [0], [7]], (3, 5, 4),
        {"offset_dims": [1, 2], "collapsed_slice_dims": [0], "start_index_map": [0], "index_vector_dim": 1},
    ),
    "windows": (
        [2, 2, 4], [[0, 1], [1, 9], [-3, 2]], (3, 2, 2, 4),
        {"offset_dims": [1, 2, 3], "start_index_map": [0, 1], "index_vector_dim": 1},
    ),
    "the second axis first": (
        [1, 1, 2], [[4, 0, 1], [2, 2, 3]], (2, 2),
        {"offset_dims": [0], "collapsed_slice_dims": [0, 1], "start_index_map": [1, 0, 2], "index_vector_dim": 1},
    ),
    "vectors along the first axis": (
        [1, 2, 4], [[[0, 1], [2, 0]], [[3, 0], [1, 1]]], (2, 2, 2, 4),
        {"offset_dims": [2, 3], "collapsed_slice_dims": [0], "start_index_map": [0, 1], "index_vector_dim": 0},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", GATHERS.values(), ids=GATHERS)
@pytest.mark.parametrize("data", [F, I32, I8], ids=["float32", "int32", "int8"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_gather(tmp_path, case, data, dtype):
    """Starts out of range are clamped."""
    sizes, starts, shape, values = case
    inputs, values = [data, np.array(starts, dtype)], {"slice_sizes": sizes, **values}
    _check(tmp_path, "STABLEHLO_GATHER", inputs, "StablehloGatherOptions", values, shape=shape)


# the indices, the shape of the updates, and attributes
SCATTERS = {
    "rows": (
        [[2], [0], [9]], (3, 5, 4),
        {"update_window_dims": [1, 2], "inserted_window_dims": [0], "scatter_dims_to_operand_dims": [0], "index_vector_dim": 1},
    ),
    "elements": (
        [[0, 1, 2], [2, 4, 3], [1, -1, 0]], (3,),
        {"inserted_window_dims": [0, 1, 2], "scatter_dims_to_operand_dims": [0, 1, 2], "index_vector_dim": 1},
    ),
    "columns": (
        [[3], [1]], (2, 3, 4),
        {"update_window_dims": [1, 2], "inserted_window_dims": [1], "scatter_dims_to_operand_dims": [1], "index_vector_dim": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SCATTERS.values(), ids=SCATTERS)
@pytest.mark.parametrize("name", ["STABLEHLO_ADD", "STABLEHLO_MULTIPLY", "STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM", ""])
@pytest.mark.parametrize("data", [F, I32], ids=["float32", "int32"])
def test_scatter(tmp_path, case, name, data):
    indices, size, values = case
    inputs = [T(data), T(np.int32(indices)), T(RNG.integers(-9, 9, size).astype(data.dtype))]
    if name:
        body = _combining(name, inputs[0])
    else:
        a, b = (T(type=inputs[0].kind, shape=()) for _ in range(2))
        body = G([a, b], [b], [])
    values = {**values, "update_computation_subgraph_index": 1}
    _check(tmp_path, "STABLEHLO_SCATTER", inputs, "StablehloScatterOptions", values, graphs=[body])


@pytest.mark.parametrize("algorithm, state", [
    ("THREEFRY", [5, 9]), ("PHILOX", [5, 9]), ("PHILOX", [2**40 + 1, 2**63, 3]), ("DEFAULT", [7, 2**32 - 1, 2**33]),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["INT32", "UINT32", "INT64", "UINT64"])
def test_random_bits(tmp_path, algorithm, state, kind):
    x = T(np.array(state, np.uint64), type="UINT64", name="x0")
    outputs = [T(type="UINT64", name="y0", shape=(len(state),)), T(type=kind, name="y1", shape=(3, 7))]
    options, values = "StablehloRngBitGeneratorOptions", {"algorithm": algorithm}
    operator = Op("STABLEHLO_RNG_BIT_GENERATOR", [x], outputs, options, values, second=True)
    agree(saved(tmp_path, model(G([x], outputs, [operator]))), {"x0": np.array(state, np.uint64)})


def test_case_without_a_kernel_in_the_interpreter(tmp_path):
    """An index out of range chooses the last branch, as StableHLO's specification says."""
    x, index, y = T(F, name="x"), T(np.int32(0), name="index"), T(type="FLOAT32", name="y", shape=F.shape)
    branches = []
    for name in ("NEG", "ABS", "FLOOR"):
        a, b = (T(type="FLOAT32", shape=F.shape) for _ in range(2))
        branches.append(G([a], [b], [Op(name, [a], [b], f"{name.capitalize()}Options" if name != "FLOOR" else "")]))
    values = {"branch_subgraph_indices": [1, 2, 3]}
    operator = Op("STABLEHLO_CASE", [index, x], [y], "StablehloCaseOptions", values, second=True)
    hub = hub_of(saved(tmp_path, model(G([index, x], [y], [operator]), *branches)))
    for i, expected in ((0, -F), (1, np.abs(F)), (2, np.floor(F)), (-1, np.floor(F)), (8, np.floor(F))):
        np.testing.assert_array_equal(run(hub, {"index": np.array(i, np.int32), "x": F})[0], expected)


def test_computations_of_several_operators_are_refused(tmp_path):
    x = T(F)
    a, b, middle, y = (T(type="FLOAT32", shape=()) for _ in range(4))
    body = G([a, b], [y], [Op("ADD", [a, b], [middle], "AddOptions"), Op("ABS", [middle], [y], "AbsOptions")])
    values = {"window_dimensions": [1, 2, 2], "window_strides": [1] * 3, "base_dilations": [1] * 3, "window_dilations": [1] * 3,
              "padding": [0] * 6, "body_subgraph_index": 1}  # fmt: skip
    inputs = [x, constant(np.float32(0))]
    content, _ = _file("STABLEHLO_REDUCE_WINDOW", inputs, "StablehloReduceWindowOptions", values, graphs=[body])
    with pytest.raises(ConversionError, match="a reduction of windows by several operators"):
        hub_of(saved(tmp_path, content))

"""LSTM layers that quantize their input and, at each step, their hidden state, for products with weights in bytes."""

from __future__ import annotations

import numpy as np

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.kernels.array_layout import Array, address, copy, plain
from onnxbridge.runtime.executor.kernels.compile.kernel import load_kernel
from onnxbridge.runtime.executor.kernels.convolution import round_to_lanes
from onnxbridge.runtime.executor.kernels.dynamic_quantization import Weights, convolution, quantized
from onnxbridge.runtime.executor.kernels.integers import as_rows, still
from onnxbridge.runtime.executor.kernels.recurrent import GATES, Layer, blocked
from onnxbridge.runtime.executor.kernels.run.call_recorder import retain

Bytes = tuple[Array, Array, Array]  # weights (inputs, outputs), their scale and their zero point, for all or for each output


def lstm_on_bytes(w: Bytes, r: Bytes, b: Array | None, reverse: bool, pool: Pool) -> Layer | None:
    """One direction for constant w (I, 4H), r (H, 4H) and b (8H,), as `recurrent.layer`; None for weights that are not such."""
    hidden = r[0].shape[0]
    bias = np.zeros(4 * hidden, np.float32) if b is None else b[: 4 * hidden] + b[4 * hidden :]
    project, recurrent = _product(w, blocked(bias, GATES["LSTM"]), pool), _product(r, None, pool)
    if project is None or recurrent is None:
        return None
    run = load_kernel("recurrent", "lstm_cell")

    def steps(x: Array, h: Array | None, c: Array | None, y: Array) -> Array:
        length, batch = x.shape[:2]
        projected = project(plain(x, pool))
        zeros = retain(np.zeros((batch, hidden), np.float32))
        hidden_state = zeros if h is None else plain(h, pool)
        state = pool.empty((batch, round_to_lanes(hidden)))
        copy(zeros if c is None else c, state[:, :hidden])
        for t in range(length)[:: -1 if reverse else 1]:
            gates = recurrent(hidden_state)
            run(address(projected[t]), address(gates), address(state), address(y[t]), batch, hidden)
            hidden_state = y[t]
        return state[:, :hidden]

    steps.retained = (project, recurrent)  # type: ignore[attr-defined]
    return steps


def _product(parts: Bytes, shift: Array | None, pool: Pool):  # type: ignore[no-untyped-def]
    """The function of x (..., I) that quantizes all of it at once, and gives the blocked gates (..., 4 * whole vectors)."""
    values, scale, zero = parts
    made = Weights.of(values, zero.reshape(-1), 1)
    if made is None or scale.size not in (1, values.shape[1]):
        return None
    count = GATES["LSTM"]
    weights = Weights(blocked(made.int8, count), None if made.rest is None else blocked(made.rest, count))
    by = blocked(np.ascontiguousarray(np.broadcast_to(scale.reshape(-1), (values.shape[1],)), np.float32), count)
    run = convolution(weights, still, 1, shift, pool, by)

    def multiply(x: Array) -> Array:
        found = quantized(x, pool)
        assert found is not None, "what is multiplied is dense"
        q, s, z = found
        return as_rows(lambda rows: run(rows, z, s), q)

    multiply.retained = (run,)  # type: ignore[attr-defined]
    return multiply

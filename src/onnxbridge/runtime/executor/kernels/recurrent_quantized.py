"""LSTM layers that quantize their input and, at each step, their hidden state, for products with weights in bytes."""

from __future__ import annotations

import numpy as np

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.kernels.array_layout import Array, address, copy, plain
from onnxbridge.runtime.executor.kernels.compile.kernel import loop
from onnxbridge.runtime.executor.kernels.convolution import whole
from onnxbridge.runtime.executor.kernels.dynamic_quantization import Weights, convolution, quantized
from onnxbridge.runtime.executor.kernels.recurrent import GATES, Layer, blocked
from onnxbridge.runtime.executor.kernels.run.call_recorder import keep
from onnxbridge.runtime.executor.numpy.padding import Window

Bytes = tuple[Array, Array, Array]  # weights (inputs, outputs), their scale and their zero point, for all or for each output


def lstm_on_bytes(w: Bytes, r: Bytes, b: Array | None, reverse: bool, pool: Pool) -> Layer | None:
    """One direction for constant w (I, 4H), r (H, 4H) and b (8H,), as `recurrent.layer`; None for weights that are not such."""
    hidden = r[0].shape[0]
    bias = np.zeros(4 * hidden, np.float32) if b is None else b[: 4 * hidden] + b[4 * hidden :]
    project, again = _product(w, blocked(bias, GATES["LSTM"]), pool), _product(r, None, pool)
    if project is None or again is None:
        return None
    run = loop("recurrent", "lstm_cell")

    def steps(x: Array, h: Array | None, c: Array | None, y: Array) -> Array:
        times, batch = x.shape[:2]
        projected = project(plain(x, pool))
        nothing = keep(np.zeros((batch, hidden), np.float32))
        before = nothing if h is None else plain(h, pool)
        state = pool.empty((batch, whole(hidden)))
        copy(nothing if c is None else c, state[:, :hidden])
        for t in range(times)[:: -1 if reverse else 1]:
            gates = again(before)
            run(address(projected[t]), address(gates), address(state), address(y[t]), batch, hidden)
            before = y[t]
        return state[:, :hidden]

    steps.kept = (project, again)  # type: ignore[attr-defined]
    return steps


def _product(parts: Bytes, shift: Array | None, pool: Pool):  # type: ignore[no-untyped-def]
    """The function of x (..., I) that quantizes all of it at once, and gives the blocked gates (..., 4 * whole vectors)."""
    codes, scale, zero = parts
    made = Weights.of(codes, zero.reshape(-1), 1)
    if made is None or scale.size not in (1, codes.shape[1]):
        return None
    count = GATES["LSTM"]
    weights = Weights(blocked(made.int8, count), None if made.rest is None else blocked(made.rest, count))
    by = blocked(np.ascontiguousarray(np.broadcast_to(scale.reshape(-1), (codes.shape[1],)), np.float32), count)
    run = convolution(weights, _still, 1, shift, pool, by)

    def multiply(x: Array) -> Array:
        found = quantized(x, pool)
        assert found is not None, "what is multiplied is dense"
        q, s, z = found
        y = run(q.reshape(1, -1, 1, q.shape[-1]).transpose(0, 3, 1, 2), z, s)
        return y.transpose(0, 2, 3, 1).reshape(*x.shape[:-1], -1)

    multiply.kept = (run,)  # type: ignore[attr-defined]
    return multiply


def _still(x: Array) -> Window:
    return Window((1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)))

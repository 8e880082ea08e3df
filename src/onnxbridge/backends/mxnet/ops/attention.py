"""Attention."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.backends.mxnet.ops.types import cast, fixed, typed
from onnxbridge.errors import Unsupported


def repeated_heads(sym, x, groups):
    """Each head of keys or values, once for each head of queries that uses it."""
    if groups == 1:
        return x
    y = sym.repeat(x, repeats=groups, axis=1)
    y.dtype, y.shape = x.dtype, (x.shape[0], x.shape[1] * groups, *x.shape[2:])
    return y


@rule("ai.onnx.preview::FlexAttention")
def flex_attention(sym, Q, K, V, *, prob_mod=None, scale=None, score_mod=None, softmax_precision=None):
    """Attention with a subgraph on the scores and another on the probabilities, computed in at least float32 by default."""
    within = np.dtype(ir.DataType(softmax_precision).numpy()) if softmax_precision else np.promote_types(Q.dtype, np.float32)
    if within.name not in ("float32", "float64"):
        raise Unsupported(f"softmax_precision={within.name}")
    heads, key_heads, width = fixed(Q, [1])[0], fixed(K, [1])[0], fixed(Q, [3])[0]
    q, k, v = (cast(sym, x, within) for x in (Q, K, V))
    k, v = (repeated_heads(sym, x, heads // key_heads) for x in (k, v))
    factor = np.array(width**-0.5 if scale is None else scale, within)
    shape = (*Q.shape[:3], K.shape[2])
    scores = typed(sym._npi_matmul(q, sym.transpose(k, axes=(0, 1, 3, 2))), within, shape)
    scores = typed(sym._npi_multiply(scores, factor), within, shape)
    if score_mod is not None:
        scores = typed(score_mod(scores)[0], within, shape)
    weights = typed(sym.softmax(scores, axis=-1), within, shape)
    if prob_mod is not None:
        weights = typed(prob_mod(weights)[0], within, shape)
    return cast(sym, typed(sym._npi_matmul(weights, v), within), Q.dtype)

"""Running sums and products."""

from __future__ import annotations

from onnxbridge.hub.expand import expand
from onnxbridge.hub.expand.axis import along
from onnxbridge.hub.expand.running import running


@expand("CumProd")
def cum_prod(op, x, axis, *, exclusive=0, reverse=0):
    return along(op, axis, len(x.shape), lambda a: running(op, op.Mul, x, a, 1, exclusive, reverse))

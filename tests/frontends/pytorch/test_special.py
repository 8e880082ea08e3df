"""Special functions in double precision compared with mpmath: some of PyTorch's own are only single precision."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
import torch
from torch import nn
from torch import special as S

from tests.frontends.pytorch.compare import convert_to_onnx, onnxruntime_session, run_session

POSITIVE = np.concatenate([np.linspace(0.05, 3.1, 15), [4.7, 9.9, 19.95, 20.05, 33.3, 150.5]])
SYMMETRIC = np.concatenate([-POSITIVE[::2], POSITIVE[1::2]])
INSIDE = np.array([-0.999999, -0.97, -0.5, -1e-9, 0.2, 0.8, 0.95, 0.9999])
ROUNDING = 2.0**-53
"""Of every operation; beyond FAR the rounding of the argument changes the phase by as much."""

UNARY = {
    "bessel_j0": (S.bessel_j0, lambda x: mp.besselj(0, x), SYMMETRIC),
    "bessel_j1": (S.bessel_j1, lambda x: mp.besselj(1, x), SYMMETRIC),
    "bessel_y0": (S.bessel_y0, lambda x: mp.bessely(0, x), POSITIVE),
    "bessel_y1": (S.bessel_y1, lambda x: mp.bessely(1, x), POSITIVE),
    "i0": (S.i0, lambda x: mp.besseli(0, x), SYMMETRIC), "i1": (S.i1, lambda x: mp.besseli(1, x), SYMMETRIC),
    "i1e": (S.i1e, lambda x: mp.besseli(1, x) * mp.exp(-abs(x)), SYMMETRIC),
    "k0": (S.modified_bessel_k0, lambda x: mp.besselk(0, x), POSITIVE),
    "k1": (S.modified_bessel_k1, lambda x: mp.besselk(1, x), POSITIVE),
    "k1e": (S.scaled_modified_bessel_k1, lambda x: mp.besselk(1, x) * mp.exp(x), POSITIVE),
    "airy": (S.airy_ai, mp.airyai, np.array([-60.5, -12.3, -5.1, -1.0, 0.0, 1.5, 4.2, 20.0])),
    "erfc": (torch.erfc, mp.erfc, SYMMETRIC[np.abs(SYMMETRIC) < 26]), "erfinv": (torch.erfinv, mp.erfinv, INSIDE),
    "erfcx": (S.erfcx, lambda x: mp.erfc(x) * mp.exp(x * x), SYMMETRIC[SYMMETRIC > -20]),
    "ndtri": (S.ndtri, lambda p: mp.sqrt(2) * mp.erfinv(2 * p - 1), np.array([1e-9, 0.003, 0.4, 0.5, 0.77, 0.99])),
    "digamma": (torch.digamma, mp.digamma, SYMMETRIC), "lgamma": (torch.lgamma, lambda x: mp.log(abs(mp.gamma(x))), SYMMETRIC),
    "polygamma": (lambda x: torch.polygamma(2, x), lambda x: mp.psi(2, x), SYMMETRIC),
}  # fmt: skip
BINARY = {
    "zeta": (S.zeta, mp.zeta, np.array([1.1, 2.0, 7.5, 30.0]), np.array([0.3, 1.0, 12.5, 3.0])),
    "igamma": (
        torch.igamma, lambda a, x: mp.gammainc(a, 0, x, regularized=True),
        np.array([0.1, 2.0, 30.0, 5.0, 80.0]), np.array([0.5, 0.3, 35.0, 5.0, 70.0]),
    ),
    "hermite": (
        lambda x, n: S.hermite_polynomial_h(x, n.long()), lambda x, n: mp.hermite(int(n), x),
        np.array([0.3, -1.2, 2.0, 0.9]), np.array([0.0, 1.0, 5.0, 12.0]),
    ),
    "legendre": (
        lambda x, n: S.legendre_polynomial_p(x, n.long()), lambda x, n: mp.legendre(int(n), x),
        np.array([0.3, -0.8, 1.5, 0.9]), np.array([3.0, 1.0, 5.0, 20.0]),
    ),
}  # fmt: skip


class AllFunctions(nn.Module):
    def __init__(self, functions):
        super().__init__()
        self.functions = functions

    def forward(self, *inputs):
        n = len(inputs) // len(self.functions)
        return tuple(f(*inputs[i * n : i * n + n]) for i, f in enumerate(self.functions))


@pytest.mark.slow
@pytest.mark.parametrize("table", [UNARY, BINARY], ids=["unary", "binary"])
def test_special_functions_in_double_precision(table):
    points = [p for _, _, *given in table.values() for p in given]
    model, proto = convert_to_onnx(AllFunctions([f for f, *_ in table.values()]), tuple(map(torch.from_numpy, points)))
    found = run_session(onnxruntime_session(proto), dict(zip([v.name for v in model.graph.inputs], points, strict=True)))
    for (name, (_, exact, *given)), got in zip(table.items(), found.values(), strict=True):
        with mp.workdps(40):
            expected = np.array([float(exact(*map(mp.mpf, map(float, xs)))) for xs in zip(*given, strict=True)])
        # a hundred roundings relative to the function's value, and to its slope near its zeros
        allowed = 400 * ROUNDING * np.maximum(np.abs(expected), np.minimum(1, np.abs(given[0]) * 0.1))
        assert (np.abs(got - expected) <= allowed).all(), (name, np.max(np.abs(got - expected) / allowed))

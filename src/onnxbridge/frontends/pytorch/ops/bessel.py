"""Bessel functions and the Airy function, computed in double precision."""

from onnxbridge.frontends.pytorch.float64_rules import in_float64
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.hub.decompositions.special import bessel


def _register(function, *names, **options):
    for name in names:
        rule(f"aten::{name}")(in_float64(lambda op, x: function(op, x, **options), "x" if "scaled" in name else "self"))


for _n in (0, 1):
    _register(bessel.bessel_j, f"special_bessel_j{_n}", order=_n)
    _register(bessel.bessel_y, f"special_bessel_y{_n}", order=_n)
    _register(bessel.bessel_i, f"special_modified_bessel_i{_n}", f"special_i{_n}", *(["i0"] if _n == 0 else []), order=_n)
    _register(bessel.bessel_ie, f"special_i{_n}e", order=_n)
    _register(bessel.bessel_k, f"special_modified_bessel_k{_n}", order=_n, scaled=False)
    _register(bessel.bessel_k, f"special_scaled_modified_bessel_k{_n}", order=_n, scaled=True)

rule("aten::special_spherical_bessel_j0")(in_float64(bessel.spherical_bessel_j0, "x"))
rule("aten::special_airy_ai")(in_float64(bessel.airy_ai, "x"))
